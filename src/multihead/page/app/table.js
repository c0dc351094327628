// ---- the table of all heads -------------------------------------------------------------------

const SHOWN_ROWS = 150;

/** The columns that stand beside the grid: [key, heading, value for sorting, cells, meaning]. */
function tableColumns(extra) {
  const made = [["head", "Head", (at) => at, (at) => DATA.heads[at], "layer and head, from 0"]];
  if (column("kind")) {
    made.push(["kind", "Kind", (at) => kindName(at) || null, kindCell, "what the head does, by evidence"]);
    made.push(["score", "Score", (at) => cell("kind_score", at), (at) => share(cell("kind_score", at)), column("kind_score").meaning]);
  }
  if (DATA.importance) made.push(["importance", "Importance", importanceOf, importanceCell, `${column(DATA.importance).meaning}; ± is the 95 % interval`]);
  if (column("most_similar")) {
    made.push(["most_similar", "Most similar", (at) => cell("most_similar_cka", at), similarCell, "the head that writes most alike, and how much (CKA, 0 to 1)"]);
  }
  if (extra && !["kind", DATA.importance].includes(extra) && column(extra)) {
    const found = column(extra);
    const value = (at) => found.values[at];
    made.push([extra, extra, value, (at) => (typeof value(at) === "string" ? value(at) : number(value(at))), `${found.meaning} (${found.unit})`]);
  }
  return made;
}

function kindCell(at) {
  const dot = el("i", { class: "dot", "aria-hidden": "true" });
  dot.style.background = KIND_COLOURS[kindOf(at)] || "transparent";
  return [dot, kindName(at) || NOTHING];
}

function importanceCell(at) {
  const error = importanceError(at);
  return [number(importanceOf(at), 2), error === null ? "" : el("small", {}, ` ± ${number(error, 1)}`)];
}

function similarCell(at) {
  const other = cell("most_similar", at);
  return other ? [`${other} `, el("small", {}, share(cell("most_similar_cka", at)))] : NOTHING;
}

/** Sortable, a link per head, the first rows at once and more on demand. */
function headTable(state, rows, extra) {
  const columns = tableColumns(extra);
  const wanted = columns.find(([key]) => key === state.sort) || columns.find(([key]) => key === "importance") || columns[0];
  const descending = (state.down ?? (wanted[0] === "head" || wanted[0] === "kind" ? "0" : "1")) === "1";
  const order = [...rows].sort((a, b) => {
    const [x, y] = [wanted[2](a), wanted[2](b)];
    if (x === null || y === null) return (x === null) - (y === null) || a - b;
    const less = x < y ? -1 : x > y ? 1 : 0;
    return (descending ? -less : less) || a - b;
  });
  const head = el("tr", {}, columns.map(([key, title, , , meaning]) => {
    const on = key === wanted[0];
    const sort = () => go({ sort: key, down: on ? (descending ? "0" : "1") : undefined });
    const sign = on ? (descending ? " ↓" : " ↑") : "";
    return el("th", { scope: "col", "aria-sort": on ? (descending ? "descending" : "ascending") : "none" },
      el("button", { type: "button", title: meaning, onclick: sort }, title + sign));
  }));
  const body = el("tbody");
  const more = el("button", { type: "button", class: "more" });
  let shown = 0;
  const add = () => {
    const next = order.slice(shown, shown + SHOWN_ROWS);
    body.append(...next.map((at) => el("tr", { "data-head": DATA.heads[at] }, columns.map(([key, , , show], i) =>
      i === 0
        ? el("th", { scope: "row" }, el("a", { href: headLink(at) }, show(at)))
        : el("td", { class: ["kind", "most_similar"].includes(key) ? "words" : "" }, show(at))))));
    shown += next.length;
    more.hidden = shown >= order.length;
    more.textContent = `show more of ${order.length} heads`;
  };
  more.addEventListener("click", add);
  add();
  const table = el("table", { class: "heads" }, el("caption", { class: "quiet" }, "All heads"), el("thead", {}, head), body);
  return el("div", { class: "table" }, el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of heads" }, table, more),
    el("p", { class: "tail" }, el("button", { type: "button", onclick: saveTable }, "Download CSV")));
}

/** Every column of every head; a spreadsheet must not take a cell for a formula. */
function saveTable() {
  const names = Object.keys(DATA.table || {});
  const quoted = (x) => {
    if (x === null || x === undefined) return "";
    if (typeof x === "number") return String(x);
    const safe = /^[=+\-@\t\r]/.test(x) ? `'${x}` : x;
    return `"${safe.replaceAll('"', '""')}"`;
  };
  const lines = [["head", "layer", "number", ...names].map(quoted).join(",")];
  DATA.heads.forEach((name, at) => {
    const place = DATA.places[at];
    lines.push([quoted(name), DATA.sites[place.site].layer, place.head, ...names.map((n) => quoted(cell(n, at)))].join(","));
  });
  save(new Blob([lines.join("\r\n") + "\r\n"], { type: "text/csv" }), "heads.csv");
}
