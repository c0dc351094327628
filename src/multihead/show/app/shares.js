/** The five shares of log n that decide where a head looks: values from the table, names and words from the data. */

import { charts } from "./charts.js";
import { numberIn, report, textIn } from "./report.js";
import { sharesNamed } from "./share_names.js";

/**
 * The shares of a head in the order of `charts.shares`; null where they were not measured.
 * @param {number} head
 * @returns {number[] | null}
 */
export function sharesOf(head) {
  if (!textIn("leading", head)) return null;
  const values = charts.shares.map(({ name }) => numberIn(name, head));
  return values.includes(null) ? null : /** @type {number[]} */ (values);
}

/** Whether any head has shares; reports of earlier versions have none. */
export const hasShares = () => report.heads.some((_, head) => sharesOf(head) !== null);

/** The one or two shares that lead in a head. @param {number} head */
export const leadingOf = (head) => sharesNamed(textIn("leading", head));

/** The meaning of the entry for them in the legend. */
export const TWO_LEAD = "two shares are about as large as each other";

/** The share that leads in a head, or the name of all heads in which two do. @param {number} head */
export function leadingName(head) {
  const leading = leadingOf(head);
  return leading.length > 1 ? charts.two_lead : (leading[0]?.name ?? "");
}

/** What a head does by its leading shares, in a sentence. @param {number} head */
export function leadingSentence(head) {
  const does = leadingOf(head).map(({ one }) => one);
  return does.length ? `This head ${does.join("; it also ")}.` : "";
}
