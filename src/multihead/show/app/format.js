/** Numbers and words as the page writes them; the formats are those of every face (multihead._base.charts). */

import { charts } from "./charts.js";

/** @param {unknown} x @returns {x is null | undefined} */
const missing = (x) => x === null || x === undefined || Number.isNaN(x);

/**
 * A few significant digits; integers below a million in full.
 * @param {number | null | undefined} x
 * @param {number} [digits]
 */
export function formatNumber(x, digits = charts.format.digits) {
  const { missing: none, plain } = charts.format;
  if (missing(x)) return none;
  const size = Math.abs(x);
  if (Number.isInteger(x) && size < plain[1]) return String(x);
  if (size >= plain[1] || size < plain[0]) return x.toExponential(1).replace("e+", "e").replace(".0e", "e");
  return String(Number(x.toPrecision(digits)));
}

/**
 * A value between 0 and 1: weights, scores, similarities.
 * @param {number | null | undefined} x
 */
export function formatFraction(x) {
  const { missing: none, fraction_digits } = charts.format;
  return missing(x) ? none : x.toFixed(fraction_digits);
}

/**
 * @param {number} x a share: 0.05 is 5 %
 * @param {number} [digits]
 */
export const formatPercent = (x, digits = 2) => `${formatNumber(100 * x, digits)}\u00a0%`;

/**
 * 22.7 M.
 * @param {number} count
 */
export function formatCount(count) {
  const step = Math.max(0, Math.min(3, Math.floor(Math.log10(Math.max(1, count)) / 3)));
  return `${Number((count / 1000 ** step).toPrecision(3))}${["", " k", " M", " G"][step]}`;
}

/**
 * A token that fits on a line.
 * @param {string} token
 * @param {number} [length]
 */
export function shorten(token, length = 24) {
  const letters = Array.from(token);
  return letters.length <= length ? token : `${letters.slice(0, length - 1).join("")}…`;
}

/**
 * With a capital letter and a full stop.
 * @param {string} text
 */
export const sentence = (text) =>
  text ? `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}` : "";

/**
 * @param {number} count
 * @param {string} word
 */
export const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
