/** The whole computation for the chosen word in one layer, from its embedding to the next word; every number opens. */

import { typeScale } from "../canvas.js";
import { el } from "../dom.js";
import { formatNumber } from "../format.js";
import { help } from "../help.js";
import { describeHead, describeLayer, describeWords } from "./computation.js";
import { write } from "./formulas.js";
import { inWords } from "./lesson_checks.js";
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
      { class: "computation", "aria-label": "the computation" },
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
    this.title.textContent = `The computation for “${session.word(token)}”`;
    [...this.layers.children].forEach((tab, i) => tab.setAttribute("aria-pressed", String(i === layer)));
    const parts = describeLayer(session);
    const own = Array.from({ length: sizes.heads }, (_, head) => describeHead(session, head));
    const groups = [parts.before, ...own, parts.concatenated, parts.shares, parts.after, parts.alone];
    groups.push(describeWords(session));
    const { merged } = session.settings[layer];
    const shape = `${layer} ${merged}`;
    if (this.built !== shape) {
      this.build(groups, merged);
      this.built = shape;
    }
    groups.flat().forEach((vector, i) => this.strips[i].show(vector));
    this.sizesNote.textContent = sizesText(session);
    if (this.marked?.vector) this.marked.move(this.marked.cursor);
    this.draw();
  }

  sizesNote = el("p", { class: "dim" });

  /**
   * @param {Vector[][]} groups of the word, of each head, then those of all heads
   * @param {boolean} merged
   */
  build(groups, merged) {
    const { layer, sizes } = this.session;
    const { width, heads, headDim, words } = sizes;
    this.strips = [];
    this.marked = null;
    this.clearReadout();
    const boxes = groups.map((vectors) =>
      vectors.map(() => {
        const strip = new Strip((...cell) => this.inspect(...cell));
        this.strips.push(strip);
        return strip.box;
      }),
    );
    const own = boxes.splice(1, heads);
    const [before, concatenated, shares, after, alone, end] = boxes;
    const cards = own.map((vectors, head) =>
      el("div", { class: "headcard" }, el("h4", {}, `L${layer}H${head}`), ...vectors),
    );
    const rest = sizes.layers - 1 - layer;
    const more = `${inWords(rest)} more layer${rest > 1 ? "s do" : " does"} the same with this vector. Then: the `;
    const steps = [
      step(
        "The vector of the word ",
        "embedding",
        `A word is a vector of ${width} numbers, one cell each. Normalized, all words have the same scale: this is ` +
          `what the heads read.`,
        ...before,
      ),
      step(
        merged ? "One head: the same scores for all four parts " : "Each head compares, weighs and mixes ",
        "query, key, value",
        "The query of this word is multiplied with the key of every word so far: the scores. Softmax turns scores " +
          "into weights that add up to 1. The output is the sum of the values of these words, each times its weight.",
        el("div", { class: "headcards" }, ...cards),
      ),
      step(
        "All heads together ",
        "W_O",
        `The ${heads} outputs are put side by side. The matrix W_O has ${width} rows and ${heads * headDim} columns, ` +
          `${headDim} for each head: a head's output times its columns is what this head adds to the word. A head ` +
          `that is off adds nothing.`,
        ...concatenated,
        el("div", { class: "headcards shares" }, ...shares),
        ...after,
      ),
      step(
        "This word alone ",
        "hidden layer",
        "Two more matrices work on this vector without looking at other words.",
        ...alone,
      ),
      step(
        `${rest ? more : "The "}next word `,
        "next word",
        `The last vector is multiplied with the embedding of each of the ${words} words: the score of this word. ` +
          `Softmax turns scores into probabilities.`,
        ...end,
      ),
    ];
    this.body.replaceChildren(this.sizesNote, el("ol", { class: "computing" }, ...steps));
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

/**
 * A step of the computation: its title, what happens, and its vectors.
 * @param {string} title
 * @param {string} term
 * @param {string} text
 * @param {...HTMLElement} vectors
 */
const step = (title, term, text, ...vectors) =>
  el("li", {}, el("h3", {}, title, help(term)), el("p", { class: "dim explained" }, text), ...vectors);

/** Shapes from the words to the vector that the heads add. @param {Session} session */
function sizesText({ tokens, sizes }) {
  const { width, heads, headDim } = sizes;
  const n = tokens.length;
  return (
    `${n} words × d_model ${width} → ${heads} heads × d_k ${headDim} → concatenation ${n} × ${heads * headDim} → ` +
    `W_O (${width} × ${heads * headDim}) → ${n} × ${width}`
  );
}
