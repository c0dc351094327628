/** Maps as pixels. */

import { FONT, contextOf, pixelRatio, sizeCanvas } from "./canvas.js";
import { el } from "./dom.js";
import { formatFraction } from "./format.js";
import { mapColors, themeColor } from "./palettes.js";

/**
 * @typedef {import("./types.js").Window} Window
 * @typedef {import("./head_map.js").Picture} Picture
 */

/**
 * The first cell of every pixel, and the end of the last.
 * @param {number} start
 * @param {number} span
 * @param {number} cells
 * @param {number} pixels
 */
function edges(start, span, cells, pixels) {
  const first = new Int32Array(pixels + 1);
  for (let p = 0; p <= pixels; p += 1) first[p] = Math.min(cells, Math.floor(start + (p / pixels) * span + 1e-9));
  return first;
}

/**
 * A window of a map as an image. A pixel that covers several cells shows the largest weight.
 * @param {Picture} map
 * @param {Window} window_
 * @param {number} width
 * @param {number} height
 */
export function paintMap({ coded, keys, queries }, window_, width, height) {
  const colors = mapColors();
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const xs = edges(window_.x, window_.w, keys, width);
  const ys = edges(window_.y, window_.h, queries, height);
  const largest = new Uint8Array(width);
  let painted = -1; // the one row that `largest` holds
  for (let y = 0; y < height; y += 1) {
    const [top, bottom] = [ys[y], Math.max(ys[y] + 1, ys[y + 1])];
    const same = top === painted && bottom === top + 1;
    const to = y * width;
    if (same) {
      pixels.copyWithin(to, to - width, to);
      continue;
    }
    largest.fill(0);
    for (let i = top; i < bottom && i < queries; i += 1) {
      for (let x = 0, row = i * keys; x < width; x += 1) {
        const end = Math.min(keys, Math.max(xs[x] + 1, xs[x + 1]));
        let most = largest[x];
        for (let j = xs[x]; j < end; j += 1) if (coded[row + j] > most) most = coded[row + j];
        largest[x] = most;
      }
    }
    painted = bottom === top + 1 ? top : -1;
    for (let x = 0; x < width; x += 1) pixels[to + x] = colors[largest[x]];
  }
  return image;
}

/**
 * A small picture of a complete map.
 * @param {import("./head_map.js").HeadMap} map
 * @param {number} side
 */
export async function thumbnail(map, side) {
  const canvas = el("canvas", { class: "thumb", "aria-hidden": "true" });
  sizeCanvas(canvas, side, side);
  const pixels = Math.round(side * pixelRatio());
  const picture = await map.preview(pixels);
  const window_ = { x: 0, y: 0, w: picture.keys, h: picture.queries };
  contextOf(canvas).putImageData(paintMap(picture, window_, pixels, pixels), 0, 0);
  return canvas;
}

/** @param {Float32Array} weights the largest; as arguments of Math.max they would overflow the stack */
export const largestOf = (weights) => weights.reduce((most, weight) => (weight > most ? weight : most), 0);

const PROFILE_HEIGHT = 56;

/**
 * The weights of one row as bars below the map, aligned with its columns.
 * @param {HTMLCanvasElement} canvas
 * @param {Float32Array} weights
 * @param {{left: number, width: number, window: Window, type: number}} place
 */
export function drawProfile(canvas, weights, { left, width, window: window_, type }) {
  const height = PROFILE_HEIGHT * type;
  const context = sizeCanvas(canvas, left + width, height);
  const top = Math.max(1e-9, largestOf(weights));
  const cell = width / window_.w;
  context.fillStyle = themeColor("--dim");
  context.font = `${11 * type}px ${FONT}`;
  context.textAlign = "right";
  context.textBaseline = "top";
  context.fillText(formatFraction(top), left - 6, 2);
  context.textBaseline = "bottom";
  context.fillText("0", left - 6, height - 2);
  context.fillStyle = themeColor("--line");
  context.fillRect(left, height - 1, width, 1);
  context.fillStyle = themeColor("--accent");
  const end = Math.min(weights.length, window_.x + window_.w);
  for (let j = Math.floor(window_.x); j < end; j += 1) {
    const tall = (weights[j] / top) * (height - 8);
    const x = left + (j - window_.x) * cell;
    if (x + cell <= left || tall <= 0.2) continue;
    context.fillRect(Math.max(left, x), height - 1 - tall, Math.max(1, cell - (cell > 4 ? 1 : 0)), tall);
  }
}
