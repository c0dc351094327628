/** The first view: the grid of heads and their table. */

import { go } from "./address.js";
import { charts } from "./charts.js";
import { columnHelp, kindMeaning } from "./definitions.js";
import { choice, el } from "./dom.js";
import { plural, sentence } from "./format.js";
import { Grid } from "./grid.js";
import { headTable } from "./head_table.js";
import { help } from "./help.js";
import { legend } from "./legend.js";
import { column, kindOf, numberColumns, report } from "./report.js";
import { sharesNamed, withoutValue } from "./share_names.js";
import { TWO_LEAD, hasShares, leadingName } from "./shares.js";
import { yourText } from "./text_choice.js";

/** Measures that people choose first; the others are in a group below. */
const FAVOURITES = ["entropy", "distance", "first", "special", "previous", "next", "self", "induction", "same_token"];

/**
 * What can colour the grid: the first of `options` unless something else is chosen, and the other measures.
 * @returns {{options: [string, string][], more: [string, string][]}} value, text
 */
function colourings() {
  const names = numberColumns();
  const favourites = [report.importance ?? "", ...FAVOURITES].filter((name) => names.includes(name));
  const named = (/** @type {string} */ name) => /** @type {[string, string]} */ ([name, name]);
  const options = favourites.map(named);
  if (column("kind")) options.unshift(["kind", "kind of head"]);
  if (hasShares()) options.unshift(["shares", "what decides where it looks"]);
  return { options, more: names.filter((name) => !favourites.includes(name)).map(named) };
}

/**
 * The heads of the share or the kind that is chosen; all of them if none is.
 * @param {import("./types.js").State} state
 * @returns {{share?: string, kind?: string, has: (head: number) => boolean}}
 */
function selection({ share, kind }) {
  const leads = (/** @type {number} */ head) => leadingName(head) === share;
  const isKind = (/** @type {number} */ head) => withoutValue(kindOf(head)) === kind;
  const some = (/** @type {(head: number) => boolean} */ has) => report.heads.some((_, head) => has(head));
  if (some(leads)) return { share, has: leads };
  if (some(isKind)) return { kind, has: isKind };
  return { has: () => true };
}

/**
 * @param {import("./types.js").State} state
 * @returns {import("./types.js").View}
 */
export function headsView(state) {
  const colours = colourings();
  const all = [...colours.options, ...colours.more];
  const by = all.find(([value]) => value === state.color)?.[0] ?? all[0]?.[0] ?? "kind";
  const { share, kind, has } = selection(state);
  const grid = new Grid(by, has);
  const left = el("section", { class: "gridside", "aria-label": "Grid of heads" });
  left.append(colorControl(by, colours), grid.box, legend(by, { share, kind }), grid.note);
  const heads = [...report.heads.keys()].filter(has);
  const right = report.table ? el("section", { class: "tableside", "aria-label": "Table of heads" }) : null;
  const count = heads.length;
  if (share === charts.two_lead) right?.append(filterNote("in which two shares lead", sentence(TWO_LEAD), count));
  else if (share !== undefined) right?.append(filterNote(`in which ${share} leads`, shareMeaning(share), count));
  if (kind !== undefined) right?.append(filterNote(`of kind “${kind}”`, kindMeaning(kind), count));
  right?.append(headTable(state, heads, by));
  return { element: el("div", { class: "two" }, left, right), start: () => grid.draw(), resize: () => grid.draw() };
}

/** @param {string} share */
const shareMeaning = (share) => sentence(sharesNamed(share)[0]?.meaning ?? "");

/**
 * @param {string} by
 * @param {ReturnType<typeof colourings>} colours
 */
function colorControl(by, { options, more }) {
  const own = yourText({ view: "tokens" });
  if (!options.length && !more.length) return el("div", { class: "controls" }, own);
  const term = by === "kind" || by === "shares" ? help(by) : columnHelp(by);
  const change = (/** @type {string} */ color) => go({ color, kind: undefined, share: undefined });
  return el("div", { class: "controls" }, choice("Colour by", options, by, change, term, more), own);
}

/**
 * @param {string} which
 * @param {string} meaning
 * @param {number} count
 */
function filterNote(which, meaning, count) {
  const reset = () => go({ kind: undefined, share: undefined });
  const all = el("button", { type: "button", onclick: reset }, "Show all heads");
  return el("p", { class: "filter" }, el("b", {}, `${plural(count, "head")} ${which}`), ": ", meaning, " ", all);
}
