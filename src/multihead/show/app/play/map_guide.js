/** How to read an attention map: what each shape in it means. */

import { contextOf, sizeCanvas, typeScale } from "../canvas.js";
import { el } from "../dom.js";
import { paintMap } from "../map_image.js";

const SIDE = 56; // pixels where the type has its usual size
const WORDS = 9;
const ROUND = 5; // words after which the text of the last drawing repeats

/**
 * Each shape: the weight of query i for key j, and its meaning.
 * @type {[(i: number, j: number) => number, string][]}
 */
const SHAPES = [
  [(i, j) => Number(j === i), "The diagonal: every word looks at itself."],
  [(i, j) => Number(j === Math.max(0, i - 1)), "Just below the diagonal: at the previous word."],
  [
    (i, j) => (j === 1 && i > 0 ? 0.8 : j === 5 && i > 4 ? 0.5 : 0.02),
    "A column: many words look at the same word, such as a mark or a subject.",
  ],
  [
    (i, j) => (i < ROUND ? 0.03 : Number(j === i - ROUND + 1)),
    "A diagonal farther below: in a text that repeats, at the word that followed the earlier copy (induction).",
  ],
  [(i) => 1 / (i + 1), "A triangle: at all words so far, about equally."],
];

export class MapGuide {
  constructor() {
    this.icons = SHAPES.map(() => el("canvas", { class: "thumb", "aria-hidden": "true" }));
    this.box = el(
      "div",
      { class: "pane mapguide" },
      el("h3", {}, "How to read it"),
      el(
        "p",
        {},
        "Each row belongs to one word. Its squares show where the head looks from this word: the darker, the more " +
          "weight. The weights of a row add up to 1. Nothing is above the diagonal, because a word cannot look at " +
          "later words.",
      ),
      el("ul", {}, ...SHAPES.map(([, meaning], i) => el("li", {}, this.icons[i], el("span", {}, meaning)))),
      el("p", {}, "Each head in the list above has a small map of its own. Click one to see it here."),
    );
  }

  draw() {
    if (this.box.hidden) return;
    const side = Math.round(SIDE * typeScale());
    const window_ = { x: 0, y: 0, w: WORDS, h: WORDS };
    SHAPES.forEach(([weight], shape) => {
      const coded = Uint8Array.from({ length: WORDS * WORDS }, (_, cell) => {
        const [i, j] = [Math.floor(cell / WORDS), cell % WORDS];
        return j > i ? 0 : 255 * Math.sqrt(weight(i, j));
      });
      const icon = this.icons[shape];
      sizeCanvas(icon, side, side);
      const image = paintMap({ coded, queries: WORDS, keys: WORDS }, window_, icon.width, icon.height);
      contextOf(icon).putImageData(image, 0, 0);
    });
  }
}
