/** Which heads do the same. */

import { go, headLink, headState, link } from "./address.js";
import { FONT, colorBar, fillVertical, sizeCanvas } from "./canvas.js";
import { choice, el, pointerOn } from "./dom.js";
import { formatFraction } from "./format.js";
import { heading, help } from "./help.js";
import { shade, themeColor } from "./palettes.js";
import { indexOf, layerOf, report } from "./report.js";
import {
  isDistance,
  measureLabel,
  measureMeaning,
  mostSimilar,
  pairValues,
  questionOf,
} from "./similarity_values.js";

/**
 * @typedef {import("./types.js").Pairs} Pairs
 * @typedef {import("./types.js").PairMeasure} PairMeasure
 */

const LISTED_PAIRS = 10;
const LARGEST_CELL = 40;
const TITLE = 18; // pixels of an axis title
const LARGEST_SIDE = 760;

/**
 * @param {import("./types.js").State} state
 * @returns {import("./types.js").View}
 */
export function similarityView(state) {
  const pairs = /** @type {Pairs} */ (report.pairs);
  const named = (/** @type {string | undefined} */ name) => pairs.measures.find((measure) => measure.name === name);
  const measure = named(state.measure) ?? named(pairs.by) ?? pairs.measures[0];
  const layers = [...new Set(pairs.heads.map(layerOf))];
  const scope = layers.find((layer) => layer === state.scope);
  const clustered = state.order !== "layer";
  const order = (clustered ? pairs.order : pairs.heads.map((_, i) => i)).filter(
    (i) => scope === undefined || layerOf(pairs.heads[i]) === scope,
  );
  const matrix = new PairMatrix(pairs, measure, order, state.pick);
  const list = el("ol", { class: "toppairs" });
  /** @type {[string, string][]} */
  const orders = [["cluster", "similar heads together"], ["layer", "by layer"]];
  /** @type {[string, string][]} */
  const scopes = [["all", "all layers"], ...layers.map((layer) => /** @type {[string, string]} */ ([layer, layer]))];
  const controls = el("div", { class: "controls" },
    choice("Measure", pairs.measures.map((one) => [one.name, measureLabel(one)]), measure.name,
      (name) => go({ measure: name }), help(measureLabel(measure), measureMeaning(measure))),
    choice("Order", orders, clustered ? "cluster" : "layer", (to) => go({ order: to === "layer" ? to : undefined })),
    choice("Heads", scopes, scope ?? "all", (to) => go({ scope: to === "all" ? undefined : to })));
  const top = el("section", { class: "groups" }, heading("Most similar pairs"), list);
  const left = el("section", { class: "pairside" }, matrix.box, matrix.legend(), matrix.note);
  const two = el("div", { class: "two" }, left, el("div", {}, top, groups(pairs)));
  const element = el("div", {}, el("p", { class: "lead" }, questionOf(measure)), controls, two);
  const start = async () => {
    const values = await pairValues(measure);
    matrix.show(values);
    const listed = mostSimilar(measure, values, order, LISTED_PAIRS);
    list.replaceChildren(...listed.map((pair) => pairItem(pairs, measure, pair)));
  };
  return { element, start, resize: () => matrix.draw() };
}

/**
 * @param {Pairs} pairs
 * @param {PairMeasure} measure
 * @param {[number, number, number]} pair
 */
function pairItem(pairs, measure, [i, j, value]) {
  const [a, b] = [pairs.heads[i], pairs.heads[j]];
  const name = `${measureLabel(measure)} ${formatFraction(value)}`;
  return el("li", {}, el("a", { href: pairLink(a, b) }, `${a} and ${b}`), el("span", { class: "value" }, name));
}

/**
 * The two heads side by side.
 * @param {string} a
 * @param {string} b
 */
const pairLink = (a, b) => link({ view: undefined, pick: undefined, ...headState(indexOf.get(a) ?? 0), second: b });

/** @param {Pairs} pairs */
function groups({ groups: found, notes }) {
  const names = (/** @type {string[]} */ group) =>
    group.map((name, i) => [i ? " " : "", el("a", { href: headLink(indexOf.get(name) ?? 0) }, name)]);
  const list = found.length
    ? el("ul", {}, found.map((group) => el("li", {}, names(group))))
    : el("p", { class: "dim" }, "No two heads are similar enough to form a group.");
  const title = heading(`Groups of similar heads (${found.length})`, "group");
  return el("section", { class: "groups" }, title, list, notes.map((note) => el("p", { class: "dim" }, note)));
}

class PairMatrix {
  /**
   * @param {Pairs} pairs
   * @param {PairMeasure} measure
   * @param {number[]} order
   * @param {string | undefined} pick the head that is outlined
   */
  constructor({ heads }, measure, order, pick) {
    this.names = order.map((i) => heads[i]);
    this.measure = measure;
    this.order = order;
    this.picked = pick === undefined ? -1 : this.names.indexOf(pick);
    this.side = LARGEST_CELL;
    this.gutter = 40;
    /** @type {import("./similarity_values.js").PairValues | null} */
    this.values = null;
    const label = "Similarity of every two heads; the lists beside it name the most similar.";
    this.canvas = el("canvas", { class: "pairs", role: "img", "aria-label": label });
    this.box = el("div", { class: "pairbox" }, this.canvas);
    this.note = el("p", { class: "hover" }, "Point at a cell for its two heads; click to see them side by side.");
    this.canvas.addEventListener("pointermove", (event) => {
      const at = this.under(event);
      this.canvas.style.cursor = at ? "pointer" : "default";
      if (at) this.describe(...at);
    });
    this.canvas.addEventListener("click", (event) => {
      const at = this.under(event);
      if (!at) return;
      const [a, b] = at.map((n) => this.names[n]);
      location.hash = a === b ? headLink(indexOf.get(a) ?? 0) : pairLink(a, b);
    });
  }

  /** @param {import("./similarity_values.js").PairValues} values */
  show(values) {
    this.values = (i, j) => values(this.order[i], this.order[j]);
    this.draw();
    if (this.picked >= 0) this.describe(this.picked, this.picked);
  }

  /**
   * @param {MouseEvent} event
   * @returns {[number, number] | null} row, column
   */
  under(event) {
    const [x, y] = pointerOn(event, this.canvas);
    const [j, i] = [Math.floor((x - this.gutter) / this.side), Math.floor((y - this.gutter) / this.side)];
    const count = this.order.length;
    return i >= 0 && j >= 0 && i < count && j < count ? [i, j] : null;
  }

  /**
   * @param {number} i
   * @param {number} j
   */
  describe(i, j) {
    const { values, names, measure } = this;
    if (!values) return;
    if (i !== j) {
      this.note.textContent = `${names[i]} and ${names[j]}: ${measureLabel(measure)} ${formatFraction(values(i, j))}`;
      return;
    }
    const sign = isDistance(measure) ? 1 : -1;
    const others = names.map((_, k) => k).filter((k) => k !== i && !Number.isNaN(values(i, k)));
    others.sort((a, b) => sign * (values(i, a) - values(i, b)));
    const nearest = others.slice(0, 3).map((k) => `${names[k]} ${formatFraction(values(i, k))}`);
    this.note.textContent = `Most similar to ${names[i]}: ${nearest.join(", ")}`;
  }

  /**
   * Brighter is more similar; correlation has two ends.
   * @param {number} value
   */
  color(value) {
    if (Number.isNaN(value)) return themeColor("--line");
    if (this.measure.low < 0) return shade("signed", (value + 1) / 2);
    return shade("measure", isDistance(this.measure) ? 1 - value : value);
  }

  legend() {
    const { low } = this.measure;
    const bar = colorBar((x) => this.color(low + x * (1 - low)));
    const word = (/** @type {string} */ text) => el("span", { class: "dim" }, text);
    const ends = low < 0 ? ["−1, opposite", "1, the same"] : ["0, unrelated", "1, the same"];
    const [least, most] = isDistance(this.measure) ? ["0, the same", "1, nothing in common"] : ends;
    return el("p", { class: "legend" }, word(least), bar, word(most));
  }

  draw() {
    const { values, names } = this;
    if (!values) return;
    const count = names.length;
    const context = sizeCanvas(this.canvas, 10, 10);
    context.font = `10px ${FONT}`;
    this.gutter = TITLE + 8 + Math.ceil(Math.max(32, ...names.map((name) => context.measureText(name).width)));
    const width = Math.min(this.box.clientWidth || 600, LARGEST_SIDE);
    this.side = Math.max(1, Math.min(LARGEST_CELL, (width - this.gutter) / count));
    const { side, gutter } = this;
    sizeCanvas(this.canvas, gutter + side * count, gutter + side * count);
    const painted = side > 12 ? side - 1 : side + 0.5; // small cells overlap: no seams
    for (let i = 0; i < count; i += 1) {
      for (let j = 0; j < count; j += 1) {
        context.fillStyle = this.color(i === j ? NaN : values(i, j));
        context.fillRect(gutter + j * side, gutter + i * side, painted, painted);
      }
    }
    context.font = `600 12px ${FONT}`;
    context.fillStyle = themeColor("--ink");
    context.textBaseline = "middle";
    context.textAlign = "center";
    context.fillText("head", gutter + (side * count) / 2, 7);
    fillVertical(context, "head", 7, gutter + (side * count) / 2);
    context.font = `10px ${FONT}`;
    const every = Math.max(1, Math.ceil(13 / side));
    for (let i = 0; i < count; i += every) {
      context.fillStyle = themeColor(i === this.picked ? "--ink" : "--dim");
      context.textAlign = "right";
      context.fillText(names[i], gutter - 4, gutter + (i + 0.5) * side);
      context.textAlign = "left";
      fillVertical(context, names[i], gutter + (i + 0.5) * side, gutter - 4);
    }
    if (this.picked < 0) return;
    context.strokeStyle = themeColor("--mark");
    context.lineWidth = 1.5;
    context.strokeRect(gutter, gutter + this.picked * side, side * count, side);
  }
}
