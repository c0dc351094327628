// ---- where we are: the fragment of the address ------------------------------------------------

const VIEWS = [
  ["heads", "Heads", headsView, () => true],
  ["tokens", "Tokens", tokensView, () => DATA.texts.length > 0],
  ["alike", "Alike", alikeView, () => DATA.pairs !== null],
  ["cut", "Cut", cutView, () => DATA.curve !== null || DATA.cost !== null],
  ["theory", "Theory", theoryView, () => DATA.claims !== null],
];

function stateNow() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** A place from the address: a whole number from 0, below `count`; null where it is none. */
function placeIn(value, count) {
  const found = Number(value);
  return value !== undefined && Number.isInteger(found) && found >= 0 && found < count ? found : null;
}

/** The fragment for a state: the present one with some changes; undefined takes a part away. */
function link(changes) {
  const next = { ...stateNow(), ...changes };
  const parts = Object.entries(next).filter(([, v]) => v !== undefined && v !== "").map(([k, v]) => `${k}=${encodeURIComponent(v)}`);
  return `#${parts.join("&")}`;
}

const go = (changes) => {
  location.hash = link(changes);
};

/** Change the address without showing anything anew. */
function replace(changes) {
  history.replaceState(null, "", link(changes));
}

function headPlace(at) {
  const { site, head } = DATA.places[at];
  return { stack: DATA.sites[site].stack || undefined, layer: String(DATA.sites[site].layer), head: String(head) };
}

const headLink = (at) => link({ view: undefined, kind: undefined, pick: undefined, second: undefined, ...headPlace(at) });

function headOf(state) {
  if (state.layer === undefined || state.head === undefined) return null;
  const s = DATA.sites.findIndex((site) => String(site.layer) === state.layer && (site.stack || "") === (state.stack || ""));
  const head = Number(state.head);
  return s >= 0 && Number.isInteger(head) && head >= 0 && head < DATA.sites[s].heads ? DATA.first[s] + head : null;
}

// ---- the frame of the page --------------------------------------------------------------------

let shown = null;
let turn = 0;

function render() {
  const began = performance.now();
  turn += 1;
  const mine = turn;
  const state = stateNow();
  const at = headOf(state);
  const known = VIEWS.find(([key, , , has]) => key === state.view && has());
  const view = known && known[0] !== "heads" ? known[0] : at === null || state.view === "heads" ? "heads" : "head";
  let done = view === "head" && shown && shown.move ? shown.move(state, at) : null;
  const anew = done === null;
  if (anew) {
    if (shown && shown.done) shown.done();
    shown = view === "head" ? headView(state, at) : VIEWS.find(([key]) => key === view)[2](state);
    byId("main").replaceChildren(shown.view);
  }
  const current = view === "head" ? "heads" : view;
  for (const item of byId("views").children) {
    if (item.dataset.view === current) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  }
  document.body.dataset.view = view;
  if (anew && shown.after) done = shown.after();
  Promise.resolve(done).then(() => {
    if (mine !== turn) return;
    if (view === "head") say(headLine(at));
    document.body.dataset.ready = `${view} ${location.hash}`;
    document.body.dataset.took = (performance.now() - began).toFixed(1);
  });
}

function frame() {
  const { model, corpus, sites, notes } = DATA;
  const each = new Set(sites.map((s) => s.heads));
  const kv = sites.reduce((sum, s) => sum + s.kv, 0);
  const shape = each.size === 1 ? `${plural(sites.length, "layer")} × ${plural([...each][0], "head")}` : `${DATA.heads.length} heads in ${plural(sites.length, "layer")}`;
  const seen = corpus.tokens ? `${corpus.tokens.toLocaleString("en")} tokens in ${plural(corpus.documents, "document")}` : plural(corpus.documents, "document");
  const parts = [[large(model.parameters), "parameters"], [shape, ""], [kv, kv === DATA.heads.length ? "kv heads, one each" : "kv heads"], [seen, corpus.name ? `of ${brief(corpus.name, 60)}` : ""]];
  byId("card").replaceChildren(...parts.flatMap(([a, b], i) => [i ? el("span", { class: "sep", "aria-hidden": "true" }, "·") : "", el("span", {}, el("b", {}, String(a)), b ? ` ${b}` : "")]));
  const part = DATA.stopped ? ["This page is a part: the run was stopped before all was measured."] : [];
  byId("findings").replaceChildren(...part.map((text) => el("p", { class: "finding note" }, text)), ...DATA.findings.map((f) => el("a", { class: "finding", href: f.link }, el("span", {}, f.text.replace(/(\d) %/g, "$1\u00a0%")), el("span", { class: "arrow", "aria-hidden": "true" }, "see →"))));
  const other = () => (document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  byId("tools").replaceChildren(
    el("button", { type: "button", id: "theme", onclick: () => theme(other()) }, "Light / dark"),
    el("button", { type: "button", onclick: () => window.print() }, "Print"));
  byId("views").replaceChildren(...VIEWS.filter(([, , , has]) => has()).map(([key, text]) => el("a", { href: `#view=${key}`, "data-view": key }, text)));
  byId("foot").replaceChildren(...[...part, ...notes].map((n) => el("p", { class: "note" }, n)),
    el("p", {}, `multihead ${DATA.version}, ${DATA.made}. ${model.class}. On a head: arrow keys move between heads and layers, Esc goes back to all. The address keeps what you see.`));
}

function large(n) {
  const at = Math.max(0, Math.min(3, Math.floor(Math.log10(Math.max(1, n)) / 3)));
  return `${Number((n / 1000 ** at).toPrecision(3))}${["", " k", " M", " G"][at]}`;
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  mapRamp = null;
  COLOURS.clear();
  if (shown && shown.done) shown.done();
  shown = null; // what was drawn has the colours of before
  if (DATA) render();
}

/** Arrows move between heads, wherever nothing else wants them. */
function keys(event) {
  const wanted = event.target.closest && event.target.closest("input, select, textarea, .tokens, canvas.grid, [contenteditable]");
  if (wanted || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const at = headOf(stateNow());
  if (document.body.dataset.view !== "head" || at === null) return;
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (event.key === "Escape") go({ view: "heads", layer: undefined, head: undefined, second: undefined, row: undefined });
  if (!step) return;
  event.preventDefault();
  history.replaceState(null, "", headLink(neighbour(DATA.places[at], step)));
  render();
}

async function start() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  theme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
  if (typeof DecompressionStream === "undefined") {
    byId("main").append(el("p", { class: "lead" }, "This browser is too old for this page: it has no DecompressionStream (Chrome 80, Safari 16.4, Firefox 113)."));
    return;
  }
  await loadData();
  frame();
  render();
  window.addEventListener("hashchange", () => location.hash !== "#main" && render());
  window.addEventListener("keydown", keys);
  let waiting = null;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => shown && shown.resize && shown.resize(), 80);
  });
}


/** For the console of the browser, and for tests: `await multihead.weights("L3H7")` gives the rows of a map. */
async function weights(name, t = 0, { norm = false, hide = false } = {}) {
  const map = DATA.at.has(name) ? await headMap(t, DATA.at.get(name)) : null;
  if (!map || map.far) return null;
  const shaped = map.shaped(norm, hide);
  return Array.from({ length: map.queries }, (_, i) => Array.from(shaped.row(i)));
}

/** One row of a map, or with `looks` false one column: also where the map itself is too large to be here. */
async function row(name, i, t = 0, { norm = false, hide = false, looks = true } = {}) {
  const map = DATA.at.has(name) ? await headMap(t, DATA.at.get(name)) : null;
  return map && Array.from(await lineOf(map.shaped(norm, hide), looks, i));
}

window.multihead = Object.freeze({ weights, row, get data() { return DATA; } });

start();
