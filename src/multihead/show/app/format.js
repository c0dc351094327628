/** Numbers and words as the page writes them; the rules are those of every face (multihead._base.number_text). */

import { charts } from "./charts.js";

/** @param {unknown} x @returns {x is null | undefined} */
const missing = (x) => x === null || x === undefined || Number.isNaN(x);

/**
 * A few significant digits; below a million, the integer digits in full.
 * @param {number | null | undefined} x
 * @param {number} [digits]
 */
export function formatNumber(x, digits = charts.format.digits) {
  const { missing: none, plain } = charts.format;
  if (missing(x)) return none;
  const size = Math.abs(x);
  if (size === Infinity) return x > 0 ? "∞" : "-∞";
  if (Number.isInteger(x) && size < plain[1]) return String(x);
  if (size >= plain[1] || size < plain[0]) return x.toExponential(1).replace("e+", "e").replace(".0e", "e");
  return size < 10 ** (digits - 1) ? String(Number(x.toPrecision(digits))) : x.toFixed(0);
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
 * A count with three significant digits and an SI prefix: 22.7 M.
 * @param {number | null | undefined} count
 */
export function formatCount(count) {
  const { prefixes } = charts.format;
  if (missing(count) || Math.abs(count) === Infinity) return formatNumber(count);
  let [size, step] = [count, 0];
  for (; Math.abs(size) >= 999.5 && step < prefixes.length - 1; step += 1) size /= 1000;
  if (step === 0) return Number.isInteger(size) ? String(size) : size.toPrecision(3);
  return `${size.toPrecision(3)} ${prefixes[step]}`;
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
