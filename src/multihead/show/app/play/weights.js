/** The page's weights: one blob of halves, cut into matrices by the names and sizes beside it. */

import { halves } from "../blobs.js";

/**
 * @param {Uint8Array} bytes
 * @param {[string, number][]} layout the name of each matrix and how many numbers it has, in order
 * @returns {import("./model.js").Weights}
 */
export function readWeights(bytes, layout) {
  const values = halves(bytes);
  let from = 0;
  return Object.fromEntries(layout.map(([name, size]) => [name, values.slice(from, (from += size))]));
}
