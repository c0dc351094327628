/** Canvases that are sharp on every screen, and the colour bar. */

import { el } from "./dom.js";

const PLAIN_TYPE = 16; // pixels: the font of style.css

export const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

export const pixelRatio = () => window.devicePixelRatio || 1;

/**
 * @param {HTMLCanvasElement} canvas
 * @returns {CanvasRenderingContext2D}
 */
export function contextOf(canvas) {
  const context = canvas.getContext("2d");
  if (!context) throw new Error("this browser draws no canvas");
  return context;
}

/**
 * Clear a canvas and give it this size in CSS pixels.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 */
export function sizeCanvas(canvas, width, height) {
  const ratio = pixelRatio();
  const [across, down] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  const context = contextOf(canvas);
  if (canvas.width === across && canvas.height === down && canvas.style.width && "reset" in context) {
    context.reset(); // setting the size would allocate the memory again
  } else {
    canvas.width = across;
    canvas.height = down;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/**
 * A bar of the colours of 0 … 1.
 * @param {(x: number) => string} color
 * @param {number} [width]
 */
export function colorBar(color, width = 160) {
  const bar = el("canvas", { class: "bar", "aria-hidden": "true" });
  const context = sizeCanvas(bar, width, 10);
  for (let x = 0; x < width; x += 1) {
    context.fillStyle = color(x / (width - 1));
    context.fillRect(x, 0, 1, 10);
  }
  return bar;
}

/**
 * Text that reads upwards.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} x
 * @param {number} y
 */
export function fillVertical(context, text, x, y) {
  context.save();
  context.translate(x, y);
  context.rotate(-Math.PI / 2);
  context.fillText(text, 0, 0);
  context.restore();
}

/** How much larger than usual the type of the page is: what is drawn grows with it. */
export const typeScale = () => parseFloat(getComputedStyle(document.documentElement).fontSize) / PLAIN_TYPE;
