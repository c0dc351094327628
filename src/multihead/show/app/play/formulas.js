/** How a number comes about, written with the numbers of this text. */

import { formatNumber } from "../format.js";

const TERMS = 3;

/** @param {number} x */
export const write = (x) => formatNumber(x).replace(/^-/, "−");

/**
 * a·x + a·x + … : the largest terms of a sum of products, then how many others there are, and the result.
 * @param {[number, number][]} pairs
 * @param {number} [constant] added at the end
 */
export function sumOfProducts(pairs, constant) {
  const order = pairs.filter(([a, b]) => a * b !== 0).sort((x, y) => Math.abs(y[0] * y[1]) - Math.abs(x[0] * x[1]));
  const terms = order.slice(0, TERMS).map(([a, b]) => `${write(a)} · ${write(b)}`);
  if (order.length > TERMS) terms.push(`… (${order.length - TERMS} smaller terms)`);
  if (constant !== undefined) terms.push(write(constant));
  return terms.join(" + ") || "0";
}

/**
 * The pairs of a row of a matrix and a vector.
 * @param {Float32Array} matrix (rows, width)
 * @param {number} row
 * @param {Float32Array} vector
 * @param {number} width
 * @param {number} [from] first number of the vector
 * @returns {[number, number][]}
 */
export const rowTimes = (matrix, row, vector, width, from = 0) =>
  Array.from({ length: width }, (_, d) => [matrix[row * width + d], vector[from + d]]);
