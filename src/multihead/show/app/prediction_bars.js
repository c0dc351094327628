/** Bars of probabilities before and after a change of heads, and the words whose prediction it changes. */

import { el } from "./dom.js";
import { formatPercent } from "./format.js";
import { refill } from "./play/refill.js";

/**
 * @typedef {{word: string, before: number, after: number, actual: boolean}} Guess `actual`: it stands in the text
 * @typedef {{token: number, text: string}} Change
 */

export const LISTED = 24;

/**
 * One row per word, and the legend of the colours.
 * @param {Guess[]} guesses
 * @param {boolean} changed whether any head is
 * @param {string} [model] what the bars before show
 */
export function guessRows(guesses, changed, model = "trained model") {
  const rows = guesses.map(({ word, before, after, actual }) =>
    el(
      "div",
      { class: actual ? "guess actual" : "guess", "data-word": word },
      el("span", { class: "guessed" }, word, actual ? el("small", {}, " (in the text)") : null),
      el("span", { class: "barpair" }, bar("before", before), changed ? bar("after", after) : null),
      el("span", { class: "chance" }, chance(before), changed ? el("b", {}, chance(after)) : null),
    ),
  );
  return [...rows, legend(changed, model)];
}

/**
 * @param {boolean} changed
 * @param {string} model
 */
export const legend = (changed, model) =>
  el(
    "p",
    { class: "dim legendline" },
    el("span", { class: "swatch before" }),
    changed ? ` ${model}` : ` ${model}: no switch is changed`,
    changed ? el("span", { class: "swatch after" }) : null,
    changed ? " with your switches" : null,
  );

/**
 * Fill a box with the words that changed, as buttons that choose them.
 * @param {Element} box
 * @param {string} title
 * @param {Change[]} changes
 * @param {(token: number) => void} choose
 */
export function fillChanges(box, title, changes, choose) {
  const buttons = changes.slice(0, LISTED).map(({ token, text }) =>
    el("button", { type: "button", class: "suggestion", onclick: () => choose(token) }, text),
  );
  const rest = changes.length - buttons.length;
  const more = rest > 0 ? el("span", { class: "dim" }, ` and ${rest} more`) : "";
  refill(box, el("p", {}, title), ...buttons, more);
}

/** @param {number} share */
const chance = (share) => (share < 0.001 ? "< 0.1\u00a0%" : formatPercent(share, share < 0.01 ? 1 : 2));

/**
 * @param {string} name
 * @param {number} share
 */
export function bar(name, share) {
  const element = el("span", { class: `bar ${name}` });
  element.style.width = `${Math.max(0.5, 100 * share)}%`;
  return element;
}
