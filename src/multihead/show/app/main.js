/** The frame of the page, and which view it shows. */

import { ALL_HEADS, currentState, fragment, go, headIn, headLink, replaceFragment } from "./address.js";
import { announce, byId, closest, el } from "./dom.js";
import { formatCount, plural, shorten } from "./format.js";
import { headLine } from "./grid.js";
import { headView } from "./head_view.js";
import { headsView } from "./heads_view.js";
import { help } from "./help.js";
import { loadMap, loadRows, loadWeights } from "./maps.js";
import { resetThemeColors } from "./palettes.js";
import { pruningView } from "./pruning_view.js";
import { RemoteMap } from "./remote_map.js";
import { ARROWS, indexOf, loadReport, neighbour, report } from "./report.js";
import { similarityView } from "./similarity_view.js";
import { switchesView } from "./switches_view.js";
import { theoryView } from "./theory_view.js";
import { tokensView } from "./tokens_view.js";

/**
 * @typedef {import("./types.js").State} State
 * @typedef {import("./types.js").View} View
 * @typedef {{key: string, title: string, make: (state: State) => View, has: () => boolean}} Tab
 */

const isServed = () => report.served !== null && report.texts.some(Boolean);

/** @type {Tab[]} */
const TABS = [
  { key: "heads", title: "Heads", make: headsView, has: () => true },
  { key: "tokens", title: "Tokens", make: tokensView, has: () => report.texts.length > 0 },
  { key: "switches", title: "Switches", make: switchesView, has: isServed },
  { key: "similarity", title: "Similarity", make: similarityView, has: () => report.pairs !== null },
  { key: "pruning", title: "Pruning", make: pruningView, has: () => report.curve !== null || report.cost !== null },
  { key: "theory", title: "Theory", make: theoryView, has: () => report.theory !== null },
];

/** @type {View | null} */
let shown = null;
let turn = 0;

/**
 * @param {State} state
 * @param {number | null} head
 * @returns {Tab | null} null: the view of one head
 */
function tabOf(state, head) {
  const asked = TABS.find((tab) => tab.key === state.view && tab.has());
  if (asked) return asked;
  return head === null ? TABS[0] : null;
}

async function render() {
  const began = performance.now();
  turn += 1;
  const mine = turn;
  const address = fragment();
  const state = currentState();
  const head = headIn(state);
  const tab = tabOf(state, head);
  const moved = !tab && head !== null ? shown?.moveTo?.(state, head) : null;
  const name = tab?.key ?? "head";
  if (!moved) {
    shown?.stop?.();
    shown = tab || head === null ? (tab ?? TABS[0]).make(state) : headView(state, head);
    byId("main").replaceChildren(shown.element);
  }
  for (const item of byId("views").querySelectorAll("a")) {
    item.href = tabLink(item.dataset.view ?? "heads", state.text);
    if (item.dataset.view === (tab?.key ?? "heads")) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  }
  document.body.dataset.view = name;
  await (moved ?? shown?.start?.());
  if (mine !== turn) return;
  if (!tab && head !== null) announce(headLine(head));
  document.body.dataset.ready = `${name} ${address}`;
  document.body.dataset.took = (performance.now() - began).toFixed(1);
}

let due = 0;

/** Render once the keys that wait have been handled: keys that come faster than heads are drawn are one move. */
function renderSoon() {
  clearTimeout(due);
  due = window.setTimeout(render);
}

/** A tab shows the text that was chosen before. @param {string} view @param {string} [text] */
const tabLink = (view, text) => `#view=${view}${text ? `&text=${encodeURIComponent(text)}` : ""}`;

const STOPPED = "This page is incomplete: the run was stopped before everything was measured.";

function frame() {
  const { notes, model, version, made } = report;
  const stopped = report.stopped ? [STOPPED] : [];
  byId("card").replaceChildren(...card());
  byId("findings").replaceChildren(...stopped.map((text) => el("p", { class: "finding note" }, text)), ...findings());
  const other = () => (document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  byId("tools").replaceChildren(
    el("button", { type: "button", id: "theme", onclick: () => setTheme(other()) }, "Light / dark"),
    el("button", { type: "button", onclick: () => window.print() }, "Print"),
  );
  const tabs = TABS.filter((tab) => tab.has());
  const links = tabs.map(({ key, title }) => el("a", { href: tabLink(key), "data-view": key }, title));
  byId("views").replaceChildren(...links);
  const keys = "On a head, arrow keys move to other heads and layers, and Esc leads back to all heads.";
  byId("foot").replaceChildren(
    ...[...stopped, ...notes].map((note) => el("p", { class: "note" }, note)),
    el("p", {}, `multihead ${version}, ${made}. ${model.class}. ${keys} The URL saves this view.`),
  );
}

/** The sizes of the model and of the text. */
function card() {
  const { model, corpus, sites, heads } = report;
  const kv = sites.reduce((sum, site) => sum + site.kv, 0);
  const counts = new Set(sites.map((site) => site.heads));
  const each = [...counts][0];
  const shape =
    counts.size === 1
      ? `${plural(sites.length, "layer")} × ${plural(each, "head")}`
      : `${heads.length} heads in ${plural(sites.length, "layer")}`;
  const documents = plural(corpus.documents, "document");
  const read = corpus.tokens ? `${corpus.tokens.toLocaleString("en")} tokens in ${documents}` : documents;
  /** @type {[string, string, string][]} */
  const parts = [
    [formatCount(model.parameters), "parameters", "parameters"],
    [shape, "", "head"],
    [String(kv), kv === heads.length ? "kv heads, one each" : "kv heads", "kv heads"],
    [read, corpus.name ? `of ${shorten(corpus.name, 60)}` : "", "token"],
  ];
  return parts.map(([value, unit, term]) => el("span", {}, el("b", {}, value), ` ${unit} `, help(term)));
}

/** Where a finding leads, by the view of its link. @type {Record<string, string>} */
const LEADS = {
  heads: "Show heads →",
  similarity: "Show similarity →",
  pruning: "Show pruning →",
  theory: "Show theory →",
};

function findings() {
  return report.findings.map(({ text, link }) => {
    const view = new URLSearchParams(link.slice(1)).get("view") ?? "";
    const lead = Object.hasOwn(LEADS, view) ? LEADS[view] : "Show head →";
    const words = el("span", {}, linkHeads(text.replace(/(\d) %/g, "$1\u00a0%")));
    const arrow = el("a", { class: "arrow", href: link, onclick: () => byId("views").scrollIntoView() }, lead);
    return el("div", { class: "finding" }, words, arrow);
  });
}

/**
 * A text with a link for every head that it names.
 * @param {string} text
 */
function linkHeads(text) {
  return text.split(/([\w.]*L\d+H\d+)/).map((part) => {
    const head = indexOf.get(part);
    return head === undefined ? part : el("a", { href: headLink(head) }, part);
  });
}

/** @param {string} name */
function setTheme(name) {
  document.documentElement.dataset.theme = name;
  resetThemeColors();
  shown?.stop?.();
  shown = null; // drawn in the colours of before
  if (report) render();
}

/** @param {KeyboardEvent} event arrows move between heads, unless the focus is on something that uses them */
function onKey(event) {
  if (closest(event, "input, select, textarea, .tokens, canvas.grid, [contenteditable]")) return;
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const head = headIn(currentState());
  if (document.body.dataset.view !== "head" || head === null) return;
  if (event.key === "Escape") go(ALL_HEADS);
  const step = ARROWS[event.key];
  if (!step) return;
  event.preventDefault();
  replaceFragment(headLink(neighbour(head, step)));
  renderSoon();
}

async function start() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  setTheme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  if (typeof DecompressionStream === "undefined") {
    const text = "This browser is too old for this page. Use Chrome 111, Safari 16.4, Firefox 113 or a newer one.";
    byId("main").append(el("p", { class: "lead" }, text));
    return;
  }
  await loadReport();
  frame();
  render();
  window.addEventListener("hashchange", () => location.hash !== "#main" && render());
  window.addEventListener("keydown", onKey);
  let timer = 0;
  window.addEventListener("resize", () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => shown?.resize?.(), 80);
  });
}

// ---- for the console of the browser, and for tests --------------------------------------------

/**
 * `await multihead.weights("L3H7")`: the rows of a map; null where it is not here.
 * @param {string} name
 * @param {number} [text]
 * @param {{norm?: boolean, hide?: boolean}} [options]
 */
async function weights(name, text = 0, { norm = false, hide = false } = {}) {
  const map = await loadMap(text, indexOf.get(name) ?? -1);
  if (!map || map instanceof RemoteMap) return null;
  const shown = map.reweighted(norm, hide);
  return Array.from({ length: map.queries }, (_, i) => Array.from(shown.row(i)));
}

/**
 * One row of a map, or with `looks: false` one column, also where the map is too large to be here.
 * @param {string} name
 * @param {number} i
 * @param {number} [text]
 * @param {{norm?: boolean, hide?: boolean, looks?: boolean}} [options]
 */
async function row(name, i, text = 0, { norm = false, hide = false, looks = true } = {}) {
  const load = looks ? loadRows : loadMap;
  const map = await load(text, indexOf.get(name) ?? -1);
  return map && Array.from(await loadWeights(map.reweighted(norm, hide), looks, i));
}

Object.defineProperty(window, "multihead", {
  value: Object.freeze({ weights, row, get data() { return report; } }), // prettier-ignore
});

start();
