/** The line above the map of a head: its name and kind, what it does, and the steps to other heads. */

import { ALL_HEADS, headLink, link } from "./address.js";
import { el } from "./dom.js";
import { headSentence } from "./grid.js";
import { similarityLine } from "./head_panel.js";
import { kindCell } from "./head_table.js";
import { column, neighbour, report } from "./report.js";

/**
 * @param {number} head
 * @param {number | null} second
 */
export function headTop(head, second) {
  const step = (/** @type {[number, number]} */ move, /** @type {string} */ sign, /** @type {string} */ text) => {
    const to = neighbour(head, move);
    const label = `${text}: ${report.heads[to]}`;
    return el("a", { href: headLink(to), class: "step", title: label, "aria-label": label }, sign);
  };
  const steps = el("span", { class: "steps" });
  steps.append(
    step([0, -1], "←", "previous head"),
    step([0, 1], "→", "next head"),
    step([-1, 0], "↑", "previous layer"),
    step([1, 0], "↓", "next layer"),
  );
  const does = second === null ? headSentence(head) : similarityLine(head, second);
  return el("div", { class: "headtop" },
    el("h2", {}, report.heads[head]),
    second === null ? null : el("span", { class: "beside" }, `and ${report.heads[second]}`),
    column("kind") && second === null ? el("span", { class: "chip" }, kindCell(head)) : null,
    steps,
    el("a", { href: link(ALL_HEADS), class: "back" }, "← All heads"),
    el("p", { class: "does" }, does));
}
