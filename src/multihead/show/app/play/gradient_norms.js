/** How strongly training on the present text would change W_Q of each head: the length of its gradient. */

import { gradients } from "./backward.js";
import { intact } from "./model.js";

/**
 * @typedef {import("./session.js").Session} Session
 * @typedef {import("./session.js").Which} Which
 * @typedef {{run: object, layers: import("./backward.js").Gradients[]}} Latest
 */

/** The gradients of the last measured runs. @type {Map<Which, Latest>} */
const latest = new Map();

/**
 * Compute the gradients of the present runs, which takes longer than the runs. False: they were known.
 * @param {Session} session
 */
export function measureGradients(session) {
  /** @type {Which[]} */
  const both = ["before", "after"];
  const stale = both.filter((which) => latest.get(which)?.run !== session.run(which));
  for (const which of stale) {
    const run = session.run(which);
    const known = latest.get("before");
    const settings = which === "before" ? intact(session.sizes) : session.settings;
    latest.set(which, known?.run === run ? known : { run, layers: gradients(session.model, run, settings) });
  }
  return stale.length > 0;
}

/**
 * For each head; null until it is measured.
 * @param {Session} session
 * @param {number} layer
 * @param {Which} which
 * @returns {number[] | null}
 */
export function gradientNorms(session, layer, which) {
  const measured = latest.get(which);
  if (measured?.run !== session.run(which)) return null;
  const { heads, headDim, width } = session.sizes;
  const { q } = measured.layers[layer];
  const size = headDim * width;
  return Array.from({ length: heads }, (_, h) => Math.hypot(...q.subarray(h * size, (h + 1) * size)));
}
