/** The table of all heads: sortable, a link per head. */

import { go, headLink } from "./address.js";
import { charts } from "./charts.js";
import { columnHelp } from "./definitions.js";
import { el, saveFile, svg } from "./dom.js";
import { formatFraction, formatNumber, plural } from "./format.js";
import { kindText } from "./grid.js";
import { help } from "./help.js";
import { kindBackground } from "./palettes.js";
import { cell, column, importanceError, importanceOf, kindOf, numberIn, places, report, textIn } from "./report.js";
import { hasShares, leadingOf, sharesOf } from "./shares.js";

/**
 * @typedef {object} TableColumn
 * @property {string} key
 * @property {string} title
 * @property {Node} help
 * @property {(head: number) => number | string | null} value for sorting
 * @property {(head: number) => import("./dom.js").Child} show
 * @property {boolean} [words]
 */

const ROWS = 150; // shown at once

/**
 * @param {string} extra one more column: the measure that colours the grid
 * @returns {TableColumn[]}
 */
function tableColumns(extra) {
  /** @type {TableColumn[]} */
  const columns = [
    { key: "head", title: "Head", help: help("head"), value: (head) => head, show: (head) => report.heads[head] },
  ];
  if (column("kind")) {
    const value = (/** @type {number} */ head) => kindText(head) || null;
    columns.push({ key: "kind", title: "Kind", help: help("kind"), value, show: kindCell, words: true });
    const score = (/** @type {number} */ head) => numberIn("kind_score", head);
    const show = (/** @type {number} */ head) => formatFraction(score(head));
    if (!hasShares()) columns.push({ key: "score", title: "Score", help: help("score"), value: score, show });
  }
  if (hasShares()) {
    const [key, title] = ["shares", "Shares"];
    columns.push({ key, title, help: help("shares"), value: sharesOrder, show: sharesCell, words: true });
  }
  if (report.importance) {
    const term = columnHelp(report.importance);
    columns.push({ key: "importance", title: "Importance", help: term, value: importanceOf, show: importanceCell });
  }
  if (column("most_similar")) {
    const value = (/** @type {number} */ head) => numberIn("most_similar_cka", head);
    const [key, title] = ["most_similar", "Most similar"];
    columns.push({ key, title, help: help("most similar"), value, show: similarCell, words: true });
  }
  if (extra !== "kind" && extra !== "shares" && extra !== report.importance && column(extra)) {
    const value = (/** @type {number} */ head) => cell(extra, head);
    const show = (/** @type {number} */ head) => {
      const x = value(head);
      return typeof x === "string" ? x : formatNumber(x);
    };
    columns.push({ key: extra, title: extra, help: columnHelp(extra), value, show });
  }
  return columns;
}

/** @param {number} head */
export function kindCell(head) {
  const dot = el("i", { class: "dot", "aria-hidden": "true" });
  dot.style.background = kindOf(head) ? kindBackground(kindOf(head)) : "transparent";
  return [dot, kindText(head) || formatNumber(null)];
}

/** By leading share, the largest first. @param {number} head */
function sharesOrder(head) {
  const shares = sharesOf(head);
  const leading = charts.shares.indexOf(leadingOf(head)[0]);
  return shares && leading >= 0 ? 2 * leading - shares[leading] : null;
}

/** The shares side by side. @param {number} head */
function sharesCell(head) {
  const shares = sharesOf(head);
  if (!shares) return formatNumber(null);
  const label = charts.shares.map(({ name }, i) => `${name} ${formatFraction(shares[i])}`).join(", ");
  const bar = svg("svg", { class: "sharebar", role: "img", "aria-label": label, viewBox: "0 0 1 1" });
  bar.setAttribute("preserveAspectRatio", "none");
  let x = 0;
  shares.forEach((share, i) => {
    bar.append(svg("rect", { x, y: 0, width: Math.max(0, share), height: 1, fill: charts.shares[i].colour }));
    x += share;
  });
  return bar;
}

/** @param {number} head */
function importanceCell(head) {
  const error = importanceError(head);
  const interval = error === null ? null : el("small", {}, ` ± ${formatNumber(error, 1)}`);
  return [formatNumber(importanceOf(head), 2), interval];
}

/** @param {number} head */
function similarCell(head) {
  const other = textIn("most_similar", head);
  if (!other) return formatNumber(null);
  return [`${other} `, el("small", {}, formatFraction(numberIn("most_similar_cka", head)))];
}

/**
 * Undefined values last, equal ones by head.
 * @param {number[]} heads
 * @param {TableColumn} by
 * @param {boolean} descending
 */
function sorted(heads, by, descending) {
  return [...heads].sort((a, b) => {
    const [x, y] = [by.value(a), by.value(b)];
    if (x === null || y === null) return Number(x === null) - Number(y === null) || a - b;
    const order = x < y ? -1 : x > y ? 1 : 0;
    return (descending ? -order : order) || a - b;
  });
}

/**
 * @param {import("./types.js").State} state
 * @param {number[]} heads
 * @param {string} extra
 */
export function headTable(state, heads, extra) {
  const columns = tableColumns(extra);
  const find = (/** @type {string | undefined} */ key) => columns.find((one) => one.key === key);
  const by = find(state.sort) ?? find("importance") ?? columns[0];
  const ascending = ["head", "kind", "shares"].includes(by.key);
  const descending = (state.down ?? (ascending ? "0" : "1")) === "1";
  const order = sorted(heads, by, descending);
  const titles = columns.map((one) => {
    const on = one === by;
    const sort = () => go({ sort: one.key, down: on ? (descending ? "0" : "1") : undefined });
    const sign = on ? (descending ? " ↓" : " ↑") : "";
    const direction = on ? (descending ? "descending" : "ascending") : "none";
    const button = el("button", { type: "button", onclick: sort }, one.title + sign);
    return el("th", { scope: "col", class: one.words ? "words" : "", "aria-sort": direction }, button, one.help);
  });
  const body = el("tbody");
  const more = el("button", { type: "button", class: "more" });
  const add = () => {
    const shown = body.rows.length;
    body.append(...order.slice(shown, shown + ROWS).map((head) => headRow(head, columns)));
    more.hidden = body.rows.length >= order.length;
    more.textContent = `Show more of ${order.length} heads`;
  };
  more.addEventListener("click", add);
  add();
  const caption = el("caption", { class: "quiet" }, "All heads");
  const table = el("table", { class: "heads" }, caption, el("thead", {}, el("tr", {}, titles)), body);
  const scroll = { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of heads" };
  const download = el("button", { type: "button", onclick: saveTable }, "Download CSV");
  const count = el("small", { class: "dim" }, ` ${plural(order.length, "head")} in this table`);
  return el("div", { class: "table" }, el("div", scroll, table, more), el("p", { class: "tail" }, download, count));
}

/**
 * @param {number} head
 * @param {TableColumn[]} columns
 */
function headRow(head, columns) {
  const cells = columns.map(({ show, words }, i) => {
    if (i === 0) return el("th", { scope: "row" }, el("a", { href: headLink(head) }, show(head)));
    return el("td", { class: words ? "words" : "" }, show(head));
  });
  return el("tr", { "data-head": report.heads[head] }, cells);
}

/** A text cell that begins with one of these is a formula to a spreadsheet. */
const FORMULA = /^[=+\-@\t\r]/;

/** @param {number | string | null} value */
function csvCell(value) {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  return `"${(FORMULA.test(value) ? `'${value}` : value).replaceAll('"', '""')}"`;
}

/** Every column of every head. */
function saveTable() {
  const names = Object.keys(report.table ?? {});
  const rows = report.heads.map((name, head) => {
    const { site, number } = places[head];
    return [name, report.sites[site].layer, number, ...names.map((column) => cell(column, head))];
  });
  const lines = [["head", "layer", "number", ...names], ...rows].map((row) => `${row.map(csvCell).join(",")}\r\n`);
  saveFile(new Blob(lines, { type: "text/csv" }), "heads.csv");
}
