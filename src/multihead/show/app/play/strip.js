/** A vector as a row of coloured cells; each number can be read with pointer, touch or arrow keys. */

import { contextOf, sizeCanvas } from "../canvas.js";
import { el, pointerOn } from "../dom.js";
import { formatNumber } from "../format.js";
import { shade, signedRamp, themeColor, weightRamp } from "../palettes.js";

/**
 * @typedef {object} Vector
 * @property {string} name what it is: "query of L1H2"
 * @property {string} symbol "q"
 * @property {string} shape "24 = d_k"
 * @property {ArrayLike<number>} values
 * @property {boolean} [positive] shares of 0 … 1; otherwise numbers of both signs
 * @property {number} [largest] the size that has the strongest colour; default: the largest of the values
 * @property {(index: number) => string} formula how the number comes about, with its numbers
 * @property {(index: number) => string} [label] what a cell stands for, such as a word
 * @property {number[]} [breaks] a gap is drawn before these cells
 */

// Pixels where the type has its usual size.
const HEIGHT = 20;
const TOUCHED = 28; // the height where a finger points
const LARGEST_CELL = 26;

/** @typedef {(vector: Vector, index: number, strip: Strip) => void} Inspect */

export class Strip {
  /**
   * @param {Inspect} inspect called with the cell that is pointed at
   */
  constructor(inspect) {
    this.inspect = inspect;
    /** @type {Vector | null} */
    this.vector = null;
    this.cursor = 0;
    this.width = 0;
    this.height = HEIGHT;
    this.type = 1;
    this.caption = el("span", {});
    this.shape = el("small", { class: "shape" });
    this.canvas = el("canvas", { class: "cells", tabindex: "0", role: "slider", "aria-valuemin": 0 });
    this.room = el("div", { class: "striproom" }, this.canvas);
    this.box = el("div", { class: "vector" }, el("div", { class: "vectortop" }, this.caption, this.shape), this.room);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerdown", (event) => this.point(event));
    this.canvas.addEventListener("focus", () => this.move(this.cursor));
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
  }

  /** @param {Vector} vector */
  show(vector) {
    this.vector = vector;
    this.cursor = Math.min(this.cursor, vector.values.length - 1);
    this.caption.textContent = vector.name;
    this.shape.textContent = vector.shape;
    this.canvas.setAttribute("aria-label", `${vector.name}, ${vector.shape}`);
    this.canvas.setAttribute("aria-valuemax", String(vector.values.length - 1));
    this.announce();
  }

  announce() {
    const { vector, cursor } = this;
    if (!vector) return;
    this.canvas.setAttribute("aria-valuenow", String(cursor));
    this.canvas.setAttribute("aria-valuetext", `${cellName(vector, cursor)}: ${formatNumber(vector.values[cursor])}`);
  }

  /**
   * @param {number} width of the room, read once for all strips
   * @param {number} [type] scale of the type
   */
  draw(width, type = this.type) {
    const { vector } = this;
    if (!vector || width < 1) return;
    this.type = type;
    const count = vector.values.length;
    this.width = Math.min(width, type * LARGEST_CELL * count);
    this.height = type * (matchMedia("(pointer: coarse)").matches ? TOUCHED : HEIGHT);
    const { height } = this;
    const context = sizeCanvas(this.canvas, this.width, height);
    const cell = this.width / count;
    const top = Math.max(1e-9, vector.largest ?? Math.max(...Array.from(vector.values, Math.abs)));
    for (let i = 0; i < count; i += 1) {
      const x = vector.values[i];
      context.fillStyle = vector.positive
        ? shade(weightRamp(), Math.sqrt(Math.max(0, x)))
        : shade(signedRamp(), 0.5 + x / top / 2);
      context.fillRect(i * cell, 0, cell - (cell > 5 ? 1 : 0), height);
    }
    context.fillStyle = themeColor("--ink");
    for (const index of vector.breaks ?? []) context.fillRect(index * cell - 1, 0, 1.5, height);
    if (document.activeElement === this.canvas || this.marked) this.outline();
  }

  marked = false;

  outline() {
    const context = contextOf(this.canvas);
    const cell = this.width / (this.vector?.values.length ?? 1);
    context.strokeStyle = themeColor("--mark");
    context.lineWidth = 2;
    context.strokeRect(this.cursor * cell + 1, 1, Math.max(2, cell - 2), this.height - 2);
  }

  /** @param {PointerEvent} event */
  point(event) {
    if (!this.vector) return;
    const [x] = pointerOn(event, this.canvas);
    this.move(Math.floor((x / this.width) * this.vector.values.length));
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const count = this.vector?.values.length ?? 1;
    const [back, on] = [this.cursor - 1, this.cursor + 1];
    const to = { ArrowLeft: back, ArrowDown: back, ArrowRight: on, ArrowUp: on, Home: 0, End: count - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.move(to);
  }

  /** @param {number} index */
  move(index) {
    const { vector } = this;
    if (!vector) return;
    this.cursor = Math.max(0, Math.min(vector.values.length - 1, index));
    this.announce();
    this.inspect(vector, this.cursor, this);
  }
}

/**
 * "q[3]", or "weight of “keys”".
 * @param {Vector} vector
 * @param {number} index
 */
export const cellName = ({ symbol, label }, index) => (label ? `${symbol} of ${label(index)}` : `${symbol}[${index}]`);
