/** A text: its tokens shaded by weight, with arcs to the strongest. */

import { closest, el, svg } from "./dom.js";
import { shorten } from "./format.js";
import { largestOf } from "./map_image.js";

/**
 * @typedef {import("./types.js").Sequence} Sequence
 * @typedef {{hover: (i: number | null) => void, pick: (i: number) => void, label: string}} Options
 */

const ARCS = 5;
const SMALLEST_ARC = 0.04;
const MOST_TOKENS = 2000; // a longer text is shown in parts

export class TokenText {
  /**
   * `hover` and `pick` are called with the index of a token.
   * @param {Sequence} sequence
   * @param {Options} options
   */
  constructor(sequence, { hover, pick, label }) {
    this.sequence = sequence;
    this.from = 0;
    /** @type {HTMLElement[]} */
    this.spans = [];
    this.shades = new Int8Array(0);
    /** @type {HTMLElement | null} */
    this.marked = null;
    /** @type {[Float32Array | null, number | null]} */
    this.painted = [null, null];
    this.arcs = svg("svg", { class: "arcs", "aria-hidden": "true" });
    this.text = el("p", { class: "tokens", "aria-label": label });
    this.part = sequence.shown.length > MOST_TOKENS ? el("p", { class: "part" }) : null;
    this.box = el("div", { class: "reading" }, this.arcs, this.part, this.text);
    this.fill(0);
    const on = (/** @type {string} */ type, /** @type {(i: number) => void} */ call) =>
      this.text.addEventListener(type, (event) => {
        const i = tokenIn(event);
        if (i !== null) call(i);
      });
    on("pointerover", hover);
    on("focusin", hover);
    on("click", pick);
    this.text.addEventListener("pointerleave", () => hover(null));
    this.text.addEventListener("keydown", (event) => this.onKey(event, pick));
  }

  /**
   * Show the tokens from one on.
   * @param {number} from
   */
  fill(from) {
    const { shown, special, joined_to_previous } = this.sequence;
    const count = Math.min(MOST_TOKENS, shown.length - from);
    this.from = from;
    this.spans = Array.from({ length: count }, (_, n) => {
      const token = shown[from + n];
      const title = token.length > 40 ? shorten(token, 400) : null;
      const kind = special[from + n] ? "token special" : "token";
      const attributes = { class: kind, "data-i": from + n, role: "button", tabindex: n ? "-1" : "0", title };
      return el("span", attributes, shorten(token, 40));
    });
    this.shades = new Int8Array(count);
    this.marked = null;
    this.text.replaceChildren(...this.spans.flatMap((span, n) => [joined_to_previous[from + n] && n ? "" : " ", span]));
    if (!this.part) return;
    const step = (/** @type {number} */ to, /** @type {string} */ text) => {
      const disabled = to < 0 || to >= shown.length;
      return el("button", { type: "button", disabled, onclick: () => this.showFrom(to) }, text);
    };
    const range = `tokens ${from} to ${from + count - 1} of ${shown.length}`;
    this.part.replaceChildren(step(from - MOST_TOKENS, "earlier"), range, step(from + MOST_TOKENS, "later"));
  }

  /** @param {number} from */
  showFrom(from) {
    this.fill(from);
    this.draw();
  }

  /**
   * @param {KeyboardEvent} event
   * @param {(i: number) => void} pick
   */
  onKey(event, pick) {
    const i = tokenIn(event);
    if (i === null) return;
    const step = { ArrowLeft: -1, ArrowRight: 1, Enter: 0, " ": 0 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    if (step === 0) {
      pick(i);
      return;
    }
    const next = this.spans[i - this.from + step];
    if (!next) return;
    this.spans[i - this.from].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  /**
   * Shade every token by its weight, and draw arcs from token `from`; null if it is a token of another sequence.
   * @param {Float32Array | null} weights
   * @param {number | null} from
   */
  paint(weights, from) {
    this.painted = [weights, from];
    if (this.part && from !== null && !this.spanOf(from)) this.fill(Math.floor(from / MOST_TOKENS) * MOST_TOKENS);
    this.draw();
  }

  /**
   * The element of a token, if it is in the part shown.
   * @param {number} i
   * @returns {HTMLElement | undefined}
   */
  spanOf(i) {
    return this.spans[i - this.from];
  }

  draw() {
    const [weights, from] = this.painted;
    const top = weights ? Math.max(1e-9, largestOf(weights)) : 1;
    this.spans.forEach((span, n) => {
      const weight = weights ? weights[this.from + n] : 0;
      const strength = weight > 0.001 || (weight > 0 && this.part) ? Math.sqrt(weight / top) : 0;
      const shade = strength > 0.02 ? Math.round(72 * strength) : 0;
      if (shade === this.shades[n]) return;
      this.shades[n] = shade;
      span.style.backgroundColor = shade ? `color-mix(in srgb, var(--shade) ${shade}%, transparent)` : "";
      span.style.color = shade > 0 ? "var(--ink)" : ""; // special tokens are pale
    });
    this.marked?.classList.remove("from");
    this.marked = from === null ? null : (this.spanOf(from) ?? null);
    this.marked?.classList.add("from");
    this.arcs.replaceChildren();
    if (weights && from !== null && this.marked) this.drawArcs(weights, from, this.marked);
  }

  /**
   * @param {Float32Array} weights
   * @param {number} from
   * @param {HTMLElement} marked
   */
  drawArcs(weights, from, marked) {
    const box = this.box.getBoundingClientRect();
    const above = (/** @type {HTMLElement} */ span) => {
      const place = span.getBoundingClientRect();
      return [place.left + place.width / 2 - box.left, place.top - box.top];
    };
    const start = above(marked);
    for (const i of strongest(weights, ARCS, SMALLEST_ARC, (i) => i !== from && this.spanOf(i) !== undefined)) {
      const end = above(/** @type {HTMLElement} */ (this.spanOf(i)));
      const lift = Math.min(start[1], end[1]) - Math.min(34, 8 + Math.abs(end[0] - start[0]) / 9);
      const path = svg("path", {
        d: `M${start} C${start[0]},${lift} ${end[0]},${lift} ${end}`,
        fill: "none",
        "stroke-width": (0.8 + 3 * Math.sqrt(weights[i])).toFixed(2),
        "stroke-opacity": (0.35 + 0.6 * weights[i]).toFixed(2),
      });
      this.arcs.append(path);
    }
  }
}

/** @param {Event} event */
function tokenIn(event) {
  const span = closest(event, ".token");
  return span ? Number(span.dataset.i) : null;
}

/**
 * The indices of the largest weights, the largest first.
 * @param {Float32Array} weights
 * @param {number} count
 * @param {number} smallest
 * @param {(i: number) => boolean} [allowed]
 */
export function strongest(weights, count, smallest, allowed = () => true) {
  const indices = [];
  for (let i = 0; i < weights.length; i += 1) if (weights[i] >= smallest && allowed(i)) indices.push(i);
  return indices.sort((a, b) => weights[b] - weights[a]).slice(0, count);
}
