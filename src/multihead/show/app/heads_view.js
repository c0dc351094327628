/** The first view: the grid of heads and their table. */

import { go } from "./address.js";
import { columnHelp, kindMeaning } from "./definitions.js";
import { choice, el } from "./dom.js";
import { plural } from "./format.js";
import { Grid, legend } from "./grid.js";
import { headTable } from "./head_table.js";
import { help } from "./help.js";
import { kindLabel } from "./kinds.js";
import { column, kindOf, numberColumns, report } from "./report.js";
import { yourText } from "./text_choice.js";

/** Measures that people choose first. */
const FAVOURITES = [
  ...["entropy", "max_weight", "distance", "first", "special", "previous", "next", "self", "induction", "same_token"],
  ...["output_norm", "kind_score", "driven_score", "most_similar_cka"],
];

function measureNames() {
  const names = numberColumns();
  const favourites = [report.importance ?? "", ...FAVOURITES].filter((name) => names.includes(name));
  return [...favourites, ...names.filter((name) => !favourites.includes(name))];
}

/**
 * @param {import("./types.js").State} state
 * @returns {import("./types.js").View}
 */
export function headsView(state) {
  const names = measureNames();
  const byKind = column("kind") !== null;
  const by = state.color && names.includes(state.color) ? state.color : byKind ? "kind" : (names[0] ?? "kind");
  const kind = report.heads.some((_, head) => kindOf(head) === state.kind) ? state.kind : undefined;
  const grid = new Grid(by, kind);
  const choose = (/** @type {string | undefined} */ one) => go({ kind: one });
  const left = el("section", { class: "gridside", "aria-label": "Grid of heads" });
  left.append(colorControl(by, names, byKind), grid.box, legend(by, kind, choose), grid.note);
  const heads = report.heads.map((_, head) => head).filter((head) => kind === undefined || kindOf(head) === kind);
  const right = report.table ? el("section", { class: "tableside", "aria-label": "Table of heads" }) : null;
  if (kind !== undefined) right?.append(filterNote(kind, heads.length));
  right?.append(headTable(state, heads, by));
  return { element: el("div", { class: "two" }, left, right), start: () => grid.draw(), resize: () => grid.draw() };
}

/**
 * @param {string} by
 * @param {string[]} names
 * @param {boolean} byKind
 */
function colorControl(by, names, byKind) {
  const options = names.map((name) => /** @type {[string, string]} */ ([name, name]));
  if (byKind) options.unshift(["kind", "kind of head"]);
  const own = yourText({ view: "tokens" });
  if (!options.length) return el("div", { class: "controls" }, own);
  const term = by === "kind" ? help("kind") : columnHelp(by);
  const change = (/** @type {string} */ color) => go({ color, kind: undefined });
  return el("div", { class: "controls" }, choice("Colour by", options, by, change, term), own);
}

/**
 * @param {string} kind
 * @param {number} count
 */
function filterNote(kind, count) {
  const all = el("button", { type: "button", onclick: () => go({ kind: undefined }) }, "Show all heads");
  const title = el("b", {}, `${plural(count, "head")} of kind “${kindLabel(kind)}”`);
  return el("p", { class: "filter" }, title, ": ", kindMeaning(kind), " ", all);
}
