/** How one head is drawn into its cell of the grid: a ring of shares, a tile, a dot, or a square. */

import { charts } from "./charts.js";

/**
 * @typedef {object} Mark
 * @property {"dot" | "square" | "shares"} shape
 * @property {string} color
 * @property {number} [size] 0 … 1
 * @property {boolean} [hollow]
 * @property {boolean} [faded]
 * @property {number[]} [parts] shares that sum to 1, in the order of `charts.shares`
 * @property {import("./types.js").Share[]} [leading] one or two of them
 *
 * @typedef {(context: CanvasRenderingContext2D, mark: Mark, x: number, y: number, side: number) => void} Draw
 */

export const SMALLEST_RING = 20; // pixels of a cell from which on a ring is legible; in smaller cells it is a tile
const PALEST = 0.4; // opacity of a tile whose leading share is 0
const TURN = 2 * Math.PI;

/** @type {Draw} */
function drawDot(context, { color, size = 0.6, hollow }, x, y, side) {
  const [smallest, largest] = charts.size;
  const radius = Math.max(1.2, (side / 2) * (smallest + (largest - smallest) * size));
  context.beginPath();
  context.arc(x + side / 2, y + side / 2, radius, 0, TURN);
  context.lineWidth = Math.max(1, Math.min(2.5, side / 12));
  context.strokeStyle = context.fillStyle = color;
  if (hollow) context.stroke();
  else context.fill();
}

/** @type {Draw} */
function drawSquare(context, { color }, x, y, side) {
  const gap = gapOf(side);
  context.fillStyle = color;
  context.fillRect(x + gap, y + gap, side - 2 * gap, side - 2 * gap);
}

/** @type {Draw} */
function drawShares(context, mark, x, y, side) {
  if (!mark.parts) drawDot(context, { ...mark, size: 0.2 }, x, y, side);
  else if (side < SMALLEST_RING) drawTile(context, mark, x, y, side);
  else drawRing(context, mark, x, y, side);
}

/** The shares as a ring, clockwise from the top; inside, a disc of those that lead. @type {Draw} */
function drawRing(context, { parts = [], leading = [], size = 1, hollow }, x, y, side) {
  const { size: [smallest, largest], hole, centre } = charts.ring;
  const radius = (side / 2) * (smallest + (largest - smallest) * size);
  const [middle, across] = [x + side / 2, y + side / 2];
  const arc = (/** @type {number} */ r, /** @type {number} */ from, /** @type {number} */ to) => {
    context.beginPath();
    context.arc(middle, across, r, TURN * (from - 0.25), TURN * (to - 0.25));
  };
  const width = radius * (1 - hole);
  const gap = 0.6 / (TURN * (radius - width / 2)); // a pixel between two parts
  let start = 0;
  context.lineWidth = width;
  parts.forEach((part, i) => {
    const end = start + part;
    const between = part > 3 * gap && part < 1 ? gap : 0;
    context.strokeStyle = charts.shares[i].colour;
    arc(radius - width / 2, start + between, end - between);
    if (part > 0) context.stroke();
    start = end;
  });
  context.lineWidth = Math.max(1.2, radius / 9);
  const inner = radius * centre - (hollow ? context.lineWidth / 2 : 0);
  leading.forEach(({ colour }, i) => {
    context.strokeStyle = context.fillStyle = colour;
    const [from, to] = [0.5 + i / leading.length, 0.5 + (i + 1) / leading.length]; // the first is on the left
    arc(inner, from, to);
    if (hollow) context.stroke();
    else context.fill();
  });
}

/** A square of the leading share, halved where two lead; the larger their share, the stronger. @type {Draw} */
function drawTile(context, { parts = [], leading = [], hollow }, x, y, side) {
  const gap = gapOf(side);
  const inner = side - 2 * gap;
  const line = Math.max(1, side / 8);
  const names = charts.shares.map(({ name }) => name);
  const share = leading.reduce((sum, { name }) => sum + parts[names.indexOf(name)], 0);
  const opacity = context.globalAlpha;
  context.globalAlpha = opacity * (PALEST + (1 - PALEST) * Math.sqrt(Math.max(0, Math.min(1, share))));
  context.lineWidth = line;
  leading.forEach(({ colour }, i) => {
    const width = inner / leading.length;
    const [left, top] = [x + gap + i * width, y + gap];
    context.strokeStyle = context.fillStyle = colour;
    if (hollow) context.strokeRect(left + line / 2, top + line / 2, width - line, inner - line);
    else context.fillRect(left, top, width, inner);
  });
  context.globalAlpha = opacity;
}

/** @param {number} side */
const gapOf = (side) => (side > 12 ? 1.5 : 0.5);

/** By shape: draw a mark into a square cell. @type {Record<Mark["shape"], Draw>} */
export const DRAW = { dot: drawDot, square: drawSquare, shares: drawShares };
