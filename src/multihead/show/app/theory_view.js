/** Statements of the theory, and whether they hold on this model. */

import { el } from "./dom.js";
import { help } from "./help.js";
import { report } from "./report.js";

/** @typedef {import("./types.js").Statement} Statement */

/** @type {Record<string, string>} */
const VERDICTS = { holds: "✓ holds", fails: "✗ fails", "holds only if": "~ conditional" };

/** @param {string} verdict */
const verdictText = (verdict) => (Object.hasOwn(VERDICTS, verdict) ? VERDICTS[verdict] : verdict);

/** @returns {import("./types.js").View} */
export function theoryView() {
  const { about, statements } = /** @type {NonNullable<typeof report.theory>} */ (report.theory);
  const head = ["#", "statement", "verdict", "as computed", "as stated"].map((title) => {
    const term = title === "#" ? null : [" ", help(title)];
    return el("th", { scope: "col" }, title, term);
  });
  const body = el("tbody", {}, statements.map(row));
  const table = el("table", { class: "theory" }, el("thead", {}, el("tr", {}, head)), body);
  const lead =
    "Statements about multi-head attention from papers and textbooks. Both sides were computed on this model: " +
    `${summary(statements)}. Click a statement for its formula and the result of each layer.`;
  const scroll = { class: "scroll wide", tabindex: "0", role: "region", "aria-label": "Statements and verdicts" };
  const notes = [el("p", { class: "lead" }, lead), el("p", { class: "dim" }, about)];
  return { element: el("div", {}, notes, el("div", scroll, table)) };
}

/** @param {Statement[]} statements */
function summary(statements) {
  /** @type {Map<string, number>} */
  const count = new Map();
  for (const { verdict } of statements) count.set(verdict, (count.get(verdict) ?? 0) + 1);
  return [...count]
    .map(([verdict, n]) => {
      if (verdict === "holds only if") return `${n} ${n === 1 ? "holds" : "hold"} under a condition`;
      if (verdict === "holds" || verdict === "fails") return `${n} ${n === 1 ? verdict : verdict.slice(0, -1)}`;
      return `${n} ${n === 1 ? "has" : "have"} ${verdict}`;
    })
    .join(", ");
}

/** @param {Statement} statement */
function row(statement) {
  const { id, title, formula, verdict, tally } = statement;
  const layers = Object.entries(statement.layers);
  const [label, result] = layers.find(([, layer]) => layer.verdict === verdict) ?? layers[0];
  const condition = statement.holds_when.replace(/\.$/, "");
  const results = layers.map(([name, layer]) =>
    el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, verdictText(layer.verdict)),
      el("td", {}, layer.lhs), el("td", {}, layer.rhs)));
  const detail = el("details", {}, el("summary", {}, title), el("code", {}, formula), el("p", {}, result.because));
  if (condition) detail.append(el("p", { class: "dim" }, `True when ${condition}.`));
  detail.append(el("table", { class: "layers" }, el("tbody", {}, results)));
  const text = tally.replace(/^(holds|fails|conditional)/, (word) =>
    verdictText(word === "conditional" ? "holds only if" : word));
  return el("tr", { class: `verdict ${verdict.replaceAll(" ", "-")}`, "data-key": id },
    el("th", { scope: "row" }, id),
    el("td", { class: "statement" }, detail),
    el("td", { class: "result" }, text),
    el("td", { title: label }, result.lhs),
    el("td", {}, result.rhs));
}
