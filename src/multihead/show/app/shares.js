/** The five shares of log n that decide where a head looks: values from the table, names and words from the data. */

import { numberIn, report, textIn } from "./report.js";

/** @typedef {import("./types.js").Share} Share */

/**
 * The shares of a head in the order of `report.charts.shares`; null where they were not measured.
 * @param {number} head
 * @returns {number[] | null}
 */
export function sharesOf(head) {
  if (!textIn("leading", head)) return null;
  const values = report.charts.shares.map(({ name }) => numberIn(name, head));
  return values.includes(null) ? null : /** @type {number[]} */ (values);
}

/** Whether any head has shares; reports of earlier versions have none. */
export const hasShares = () => report.heads.some((_, head) => sharesOf(head) !== null);

/** "match, 0.18" → "match": heads that are named by the same share form a group. @param {string} label */
export const withoutValue = (label) => label.split(",")[0];

/**
 * The shares that a label such as "position + word" names; none of that of a finer kind.
 * @param {string} label
 * @returns {Share[]}
 */
export function sharesNamed(label) {
  const names = withoutValue(label).split(" + ");
  return report.charts.shares.filter(({ name }) => names.includes(name));
}

/** The one or two shares that lead in a head. @param {number} head */
export const leadingOf = (head) => sharesNamed(textIn("leading", head));

/** What a head does by its leading shares, in a sentence. @param {number} head */
export function leadingSentence(head) {
  const does = leadingOf(head).map(({ one }) => one);
  return does.length ? `This head ${does.join("; it also ")}.` : "";
}
