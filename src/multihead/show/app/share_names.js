/** The names of the shares of log n, and the labels that name heads by them. */

import { charts } from "./charts.js";

/** @typedef {import("./types.js").Share} Share */

/** "match, 0.18" → "match": heads that are named by the same share form a group. @param {string} label */
export const withoutValue = (label) => label.split(",")[0];

/**
 * The shares that a label such as "position + word" names; none of that of a finer kind.
 * @param {string} label
 * @returns {Share[]}
 */
export function sharesNamed(label) {
  const names = withoutValue(label).split(" + ");
  return charts.shares.filter(({ name }) => names.includes(name));
}
