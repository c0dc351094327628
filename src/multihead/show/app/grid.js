/** The grid of heads: layers down, heads across; every head one mark. */

import { headLink } from "./address.js";
import { FONT, fillVertical, sizeCanvas, typeScale } from "./canvas.js";
import { charts } from "./charts.js";
import { kindSentence } from "./definitions.js";
import { announce, el, pointerOn } from "./dom.js";
import { formatFraction, formatNumber } from "./format.js";
import { DRAW, SMALLEST_RING } from "./marks.js";
import { kindColor, shade, themeColor } from "./palettes.js";
import * as data from "./report.js";
import { ARROWS, column, neighbour, numberIn, places, prunable, report } from "./report.js";
import { withoutValue } from "./share_names.js";
import { leadingOf, leadingSentence, sharesOf } from "./shares.js";

/** @typedef {import("./marks.js").Mark} Mark */

// Pixels where the type has its usual size.
const GUTTER = 62; // left of the grid: the axis title and the layers
const CAPTION = 40; // above it: the axis title and the numbers of the heads
const LARGEST_CELL = 46;
const SMALLEST_CELL = 5;

/**
 * The mark of every head: its shares or its kind, sized by importance; or coloured by one measure.
 * @param {string} by "shares", "kind" or a column
 * @param {Chosen} chosen the heads that are not faded
 * @returns {(head: number) => Mark}
 */
function marks(by, chosen) {
  if (by === "shares" || by === "kind") {
    const importance = report.heads.map((_, head) => data.importanceOf(head));
    const [, most] = range(importance);
    const unsized = by === "shares" ? 1 : 0.6;
    return (head) => ({
      shape: by === "shares" ? "shares" : "dot",
      color: kindColor(data.kindOf(head)),
      size: most > 0 ? Math.sqrt(Math.max(importance[head] ?? 0, 0) / most) : unsized,
      hollow: prunable.has(report.heads[head]),
      faded: !chosen(head),
      parts: sharesOf(head) ?? undefined,
      leading: leadingOf(head),
    });
  }
  const values = data.numbersOf(by);
  const { ramp, low, high } = scaleOf(values);
  return (head) => {
    const value = values[head];
    const color = value === null ? themeColor("--line") : shade(ramp, high > low ? (value - low) / (high - low) : 0.5);
    return { shape: "square", color };
  };
}

/**
 * The colours of a measure; where it has both signs, zero is in the middle.
 * @param {(number | null)[]} values
 * @returns {{ramp: "measure" | "signed", low: number, high: number}}
 */
export function scaleOf(values) {
  const [low, high] = range(values);
  const end = Math.max(-low, high);
  return low < 0 && high > 0 ? { ramp: "signed", low: -end, high: end } : { ramp: "measure", low, high };
}

/**
 * @param {(number | null)[]} values
 * @returns {[number, number]}
 */
function range(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const x of values) {
    if (x !== null && x < low) low = x;
    if (x !== null && x > high) high = x;
  }
  return [low, high];
}

/** @typedef {(head: number) => boolean} Chosen whether a head is selected */

/** Click or Enter opens a head, arrow keys move, a line below says what is under the pointer. */
export class Grid {
  /**
   * @param {string} by "shares", "kind" or a column
   * @param {Chosen} chosen the heads that are not faded
   */
  constructor(by, chosen) {
    this.by = by;
    this.chosen = chosen;
    this.columns = 1 + Math.max(...places.map((place) => place.number));
    /** @type {Map<string, number>} */
    this.headAt = new Map(places.map(({ site, number }, head) => [`${site} ${number}`, head]));
    this.side = LARGEST_CELL;
    this.type = 1; // the scale of the type
    this.picked = 0;
    /** @type {number | null} */
    this.hovered = null;
    this.canvas = el("canvas", {
      tabindex: "0",
      role: "application",
      class: "grid",
      "aria-label": "Grid of heads, layers down, heads across. Arrow keys move, Enter opens the head.",
    });
    this.note = el("p", { class: "hover", "aria-hidden": "true" });
    this.box = el("div", { class: "gridbox" }, this.canvas);
    this.canvas.addEventListener("pointermove", (event) => this.hover(this.under(event)));
    this.canvas.addEventListener("pointerleave", () => this.hover(null));
    this.canvas.addEventListener("click", (event) => {
      const head = this.under(event);
      if (head !== null) location.hash = headLink(head);
    });
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
    this.canvas.addEventListener("focus", () => this.draw());
    this.canvas.addEventListener("blur", () => this.draw());
    this.describe(null);
  }

  get gutter() {
    return GUTTER * this.type;
  }

  get caption() {
    return CAPTION * this.type;
  }

  /** @param {MouseEvent} event */
  under(event) {
    const [x, y] = pointerOn(event, this.canvas);
    const { gutter, caption, side } = this;
    const [site, number] = [Math.floor((y - caption) / side), Math.floor((x - gutter) / side)];
    return this.headAt.get(`${site} ${number}`) ?? null;
  }

  /** @param {number | null} head */
  hover(head) {
    if (head === this.hovered) return;
    this.hovered = head;
    this.canvas.style.cursor = head === null ? "default" : "pointer";
    this.draw();
    this.describe(head);
  }

  /** @param {number | null} head */
  describe(head) {
    const hint = "Point at a head for its numbers; click to open it.";
    this.note.textContent = head === null ? hint : headLine(head, this.by);
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    if (event.key === "Enter") location.hash = headLink(this.picked);
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    this.picked = neighbour(this.picked, step);
    this.draw();
    this.describe(this.picked);
    announce(headLine(this.picked, this.by));
  }

  draw() {
    const rows = report.sites.length;
    this.type = typeScale();
    const { gutter, caption } = this;
    const fits = ((this.box.clientWidth || 600) - gutter) / this.columns;
    this.side = Math.max(SMALLEST_CELL, Math.min(LARGEST_CELL * this.type, fits > 12 ? Math.floor(fits) : fits));
    // The legend explains the marks that are drawn.
    if (this.box.parentElement) this.box.parentElement.dataset.mark = this.side < SMALLEST_RING ? "tile" : "ring";
    const [width, height] = [this.side * this.columns, this.side * rows];
    const context = sizeCanvas(this.canvas, gutter + width, caption + height + 2);
    this.drawAxes(context, width, height);
    const mark = marks(this.by, this.chosen);
    const focused = document.activeElement === this.canvas ? this.picked : null;
    places.forEach(({ site, number }, head) => {
      const [x, y] = [gutter + number * this.side, caption + site * this.side];
      const how = mark(head);
      context.globalAlpha = how.faded ? 0.16 : 1;
      DRAW[how.shape](context, how, x, y, this.side);
      context.globalAlpha = 1;
      if (head !== this.hovered && head !== focused) return;
      context.strokeStyle = themeColor("--ink");
      context.lineWidth = 1.5;
      context.strokeRect(x + 0.75, y + 0.75, this.side - 1.5, this.side - 1.5);
    });
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} width
   * @param {number} height
   */
  drawAxes(context, width, height) {
    const { type, gutter, caption } = this;
    context.font = `600 ${12 * type}px ${FONT}`;
    context.fillStyle = themeColor("--ink");
    context.textBaseline = "middle";
    context.textAlign = "center";
    context.fillText("head", gutter + Math.min(width, this.box.clientWidth - gutter) / 2, 8 * type);
    fillVertical(context, "layer", 8 * type, caption + height / 2);
    context.font = `${11 * type}px ${FONT}`;
    context.fillStyle = themeColor("--dim");
    const every = Math.max(1, Math.ceil((18 * type) / this.side));
    for (let h = 0; h < this.columns; h += every) {
      context.fillText(String(h), gutter + (h + 0.5) * this.side, caption - 11 * type);
    }
    context.textAlign = "right";
    const short = report.sites.length > 40 || this.side < 14 * type;
    report.sites.forEach(({ label, layer }, s) => {
      if (s % every) return;
      const text = short ? String(layer) : label.replace(/^(enc|dec)oder\./, "$1.");
      context.fillText(text, gutter - 8 * type, caption + (s + 0.5) * this.side);
    });
  }
}

/**
 * A head in one line.
 * @param {number} head
 * @param {string} [measure]
 */
export function headLine(head, measure) {
  const parts = [report.heads[head]];
  if (column("kind")) {
    const score = numberIn("kind_score", head);
    const finer = withoutValue(data.kindOf(head)) === data.kindOf(head);
    parts.push(`${kindText(head)}${score === null || !finer ? "" : ` ${formatFraction(score)}`}`);
  }
  const shares = sharesOf(head);
  if (shares) parts.push(charts.shares.map(({ name }, i) => `${name} ${formatFraction(shares[i])}`).join(", "));
  if (report.importance) parts.push(`importance ${formatNumber(data.importanceOf(head), 2)}`);
  const similar = data.textIn("most_similar", head);
  if (similar) parts.push(`most similar ${similar} ${formatFraction(numberIn("most_similar_cka", head))}`);
  const shown = measure === "kind" || measure === "shares" || measure === report.importance ? null : column(measure);
  if (measure && shown) parts.push(`${measure} ${formatNumber(numberIn(measure, head))}`);
  if (prunable.has(report.heads[head])) parts.push("can be pruned");
  return parts.join(" · ");
}

/** The kind of a head in words: "window ±2". @param {number} head */
export const kindText = (head) =>
  [data.kindOf(head), data.textIn("kind_detail", head)].filter(Boolean).join(" ");

/** What a head does, by its kind; by its leading shares if it has no finer kind. @param {number} head */
export const headSentence = (head) => kindSentence(data.kindOf(head)) || leadingSentence(head);
