/** The whole computation for the chosen word in one layer, from its embedding to the next word; every number opens. */

import { typeScale } from "../canvas.js";
import { el } from "../dom.js";
import { formatNumber } from "../format.js";
import { help } from "../help.js";
import { describeHead, describeLayer, describeWords } from "./computation.js";
import { write } from "./formulas.js";
import { Strip, cellName } from "./strip.js";

/**
 * @typedef {import("./session.js").Session} Session
 * @typedef {import("./strip.js").Vector} Vector
 */

export class ComputationView {
  /**
   * @param {Session} session
   * @param {(layer: number) => void} chooseLayer
   */
  constructor(session, chooseLayer) {
    this.session = session;
    this.title = el("h2", {});
    this.layers = el("div", { class: "layertabs", role: "group", "aria-label": "layer" });
    for (let layer = 0; layer < session.sizes.layers; layer += 1) {
      this.layers.append(el("button", { type: "button", onclick: () => chooseLayer(layer) }, `Layer ${layer}`));
    }
    this.body = el("div", { class: "steps-of" });
    this.value = el("b", {});
    this.formula = el("span", {});
    this.readout = el("div", { class: "readout", id: "readout", "aria-live": "polite" }, this.value, this.formula);
    this.box = el(
      "section",
      { class: "computation" },
      el("div", { class: "inputtop" }, this.title, help("the computation"), this.layers),
      this.body,
      this.readout,
    );
    /** @type {Strip[]} */
    this.strips = [];
    this.built = "";
    /** @type {Strip | null} */
    this.marked = null;
    this.clearReadout();
  }

  clearReadout() {
    this.readout.classList.remove("on");
    this.value.textContent = "";
    this.formula.textContent =
      "Point at any cell, tap it, or reach it with Tab and the arrow keys: its value and its formula are shown here.";
  }

  /**
   * @param {Vector} vector
   * @param {number} index
   * @param {Strip} strip
   */
  inspect(vector, index, strip) {
    this.readout.classList.add("on");
    this.value.textContent = `${cellName(vector, index)} = ${write(vector.values[index])}`;
    this.formula.textContent = `= ${vector.formula(index)}`;
    const before = this.marked;
    this.marked = strip;
    if (before && before !== strip) {
      before.marked = false;
      before.draw(before.width);
    }
    strip.marked = true;
    strip.draw(strip.width);
  }

  update() {
    const { session } = this;
    const { layer, token, sizes } = session;
    const n = session.tokens.length;
    this.title.textContent = `The computation for “${session.word(token)}”`;
    [...this.layers.children].forEach((tab, i) => tab.setAttribute("aria-pressed", String(i === layer)));
    const { width, heads, headDim } = sizes;
    const parts = describeLayer(session);
    const own = Array.from({ length: heads }, (_, head) => describeHead(session, head));
    const end = describeWords(session);
    const vectors = [...parts.before, ...own.flat(), ...parts.after, ...parts.alone, ...end];
    const merged = session.settings[layer].merged;
    const shape = `${layer} ${merged} ${vectors.length}`;
    if (this.built !== shape) {
      this.build(
        parts.before.length,
        own.map((list) => list.length),
        parts.after.length,
        parts.alone.length,
        end.length,
        merged,
      );
      this.built = shape;
    }
    vectors.forEach((vector, i) => this.strips[i].show(vector));
    this.sizesNote.textContent =
      `${n} words × d_model ${width} → ${heads} heads × d_k ${headDim} → concatenation ${n} × ${heads * headDim} → ` +
      `W_O (${heads * headDim} × ${width}) → ${n} × ${width}`;
    if (this.marked?.vector) this.marked.move(this.marked.cursor);
    this.draw();
  }

  sizesNote = el("p", { class: "dim" });

  /**
   * @param {number} before
   * @param {number[]} own vectors of each head
   * @param {number} after
   * @param {number} alone
   * @param {number} end
   * @param {boolean} merged
   */
  build(before, own, after, alone, end, merged) {
    const { layer, sizes } = this.session;
    this.strips = [];
    this.marked = null;
    this.clearReadout();
    const make = (/** @type {number} */ count) =>
      Array.from({ length: count }, () => {
        const strip = new Strip((...cell) => this.inspect(...cell));
        this.strips.push(strip);
        return strip.box;
      });
    const first = el("li", {}, el("h3", {}, "The vector of the word ", help("embedding")), ...make(before));
    const cards = own.map((count, head) =>
      el("div", { class: "headcard" }, el("h4", {}, `L${layer}H${head}`), ...make(count)),
    );
    const title = merged ? "One head: the same scores for all four parts " : "Each head compares, weighs and mixes ";
    const middle = el(
      "li",
      {},
      el("h3", {}, title, help("query, key, value")),
      el("div", { class: "headcards" }, ...cards),
    );
    const last = el("li", {}, el("h3", {}, "All heads together ", help("W_O")), ...make(after));
    const hidden = el("li", {}, el("h3", {}, "This word alone ", help("hidden layer")), ...make(alone));
    const rest = sizes.layers - 1 - layer;
    const later = rest
      ? `${rest} more layer${rest > 1 ? "s do" : " does"} the same with this vector. Then: the next word `
      : "The next word ";
    const words = el("li", {}, el("h3", {}, later, help("next word")), ...make(end));
    this.body.replaceChildren(this.sizesNote, el("ol", { class: "computing" }, first, middle, last, hidden, words));
  }

  draw() {
    /** @type {number[]} */
    const rooms = this.strips.map(({ room }) => room.clientWidth); // read together: each reading lays out the page
    const type = typeScale();
    this.strips.forEach((strip, i) => strip.draw(rooms[i], type));
  }

  /** The value that is read out, as a number. For tests. */
  get inspected() {
    const strip = this.marked;
    return strip?.vector ? formatNumber(strip.vector.values[strip.cursor]) : "";
  }
}
