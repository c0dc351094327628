/** How strongly training on the present text would change W_Q of each head: the length of its gradient. */

import { gradients } from "./backward.js";
import { intact } from "./model.js";

/**
 * @typedef {import("./session.js").Session} Session
 * @typedef {{run: object, found: import("./backward.js").Gradients[]}} Latest
 */

/** The last runs and their gradients: one of the trained model, one with switches. @type {Map<string, Latest>} */
const latest = new Map();

/**
 * @param {Session} session
 * @param {number} layer
 * @param {import("./session.js").Which} which
 * @returns {number[]} for each head
 */
export function gradientNorms(session, layer, which) {
  const run = session.run(which);
  let kept = latest.get(which);
  if (kept?.run !== run) {
    const settings = which === "before" ? intact(session.sizes) : session.settings;
    kept = { run, found: gradients(session.model, run, settings) };
    latest.set(which, kept);
  }
  const { heads, headDim, width } = session.sizes;
  const { q } = kept.found[layer];
  const size = headDim * width;
  return Array.from({ length: heads }, (_, h) => {
    let sum = 0;
    for (let i = h * size; i < (h + 1) * size; i += 1) sum += q[i] ** 2;
    return Math.sqrt(sum);
  });
}
