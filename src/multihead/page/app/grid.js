// ---- the grid: layers down, heads across ------------------------------------------------------

const GUTTER = 40;
const CAPTION = 20;

/** Statistics that people choose from first; the rest stands below them. */
const FAVOURED = ["entropy", "max_weight", "distance", "first", "special", "previous", "next", "self", "induction", "same_token",
  "output_norm", "kind_score", "driven_score", "most_similar_cka"];

function measureNames() {
  const numbers = Object.keys(DATA.table || {}).filter((n) => !isWords(column(n)) && column(n).values.some((x) => x !== null));
  const favoured = [DATA.importance, ...FAVOURED].filter((n) => numbers.includes(n));
  return [...favoured, ...numbers.filter((n) => !favoured.includes(n))];
}

/** How a head is painted: {colour, size 0–1, hollow}. */
function painter(state) {
  const importances = DATA.heads.map((_, at) => importanceOf(at));
  const most = Math.max(...importances.filter((x) => x !== null), 0);
  const size = (at) => (most > 0 && importances[at] !== null ? Math.sqrt(Math.max(importances[at], 0) / most) : most > 0 ? 0 : 0.6);
  const going = goingHeads();
  const byKind = !state.color || state.color === "kind";
  if (byKind && column("kind")) {
    const faded = (at) => state.kind && kindOf(at) !== state.kind;
    return (at) => ({ colour: KIND_COLOURS[kindOf(at)] || "#9aa3ad", size: size(at), hollow: going.has(DATA.heads[at]), faded: faded(at) });
  }
  const name = byKind ? measureNames()[0] : state.color;
  const values = name && column(name) ? column(name).values : DATA.heads.map(() => null);
  const [low, high] = range(values);
  return (at) => ({
    colour: values[at] === null ? null : inScale(SCALE, high > low ? (values[at] - low) / (high - low) : 0.5),
    square: true,
  });
}

function range(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const x of values) {
    if (x !== null && x < low) low = x;
    if (x !== null && x > high) high = x;
  }
  return [low, high];
}

/** The canvas, the head under the pointer said beside it; click or Enter opens, arrows move. */
class Grid {
  constructor(state) {
    this.state = state;
    this.columns = Math.max(...DATA.sites.map((s) => s.heads));
    this.picked = 0;
    this.hovered = null;
    this.canvas = el("canvas", {
      tabindex: "0", role: "application", class: "grid",
      "aria-label": "Grid of heads, layers down, heads across. Arrow keys move, Enter opens the head.",
    });
    this.note = el("p", { class: "hover", "aria-hidden": "true" });
    this.box = el("div", { class: "gridbox" }, this.canvas);
    this.canvas.addEventListener("pointermove", (e) => this.hover(this.under(e)));
    this.canvas.addEventListener("pointerleave", () => this.hover(null));
    this.canvas.addEventListener("click", (e) => {
      const at = this.under(e);
      if (at !== null) location.hash = headLink(at);
    });
    this.canvas.addEventListener("keydown", (e) => this.key(e));
    this.canvas.addEventListener("focus", () => this.draw());
    this.canvas.addEventListener("blur", () => this.draw());
    this.tell(null);
  }

  under(event) {
    const [x, y] = pointer(event, this.canvas);
    const head = Math.floor((x - GUTTER) / this.cell);
    const s = Math.floor((y - CAPTION) / this.cell);
    const site = DATA.sites[s];
    return site && head >= 0 && head < site.heads ? DATA.first[s] + head : null;
  }

  hover(at) {
    if (at === this.hovered) return;
    this.hovered = at;
    this.canvas.style.cursor = at === null ? "default" : "pointer";
    this.draw();
    this.tell(at);
  }

  tell(at) {
    const hint = "Point at a head for its numbers; click to open it.";
    this.note.textContent = at === null ? hint : headLine(at, this.state.color);
  }

  key(event) {
    const place = DATA.places[this.picked];
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "Enter") location.hash = headLink(this.picked);
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    this.picked = neighbour(place, step);
    this.draw();
    this.tell(this.picked);
    say(headLine(this.picked, this.state.color));
  }

  draw() {
    const width = this.box.clientWidth || 600;
    const fits = (width - GUTTER) / this.columns;
    this.cell = Math.max(5, Math.min(46, fits > 12 ? Math.floor(fits) : fits));
    const context = sized(this.canvas, GUTTER + this.cell * this.columns, CAPTION + this.cell * DATA.sites.length + 2);
    const paint = painter(this.state);
    const every = Math.max(1, Math.ceil(18 / this.cell));
    context.font = `11px ${FONT}`;
    context.fillStyle = css("--dim");
    context.textBaseline = "middle";
    context.textAlign = "center";
    for (let h = 0; h < this.columns; h += every) context.fillText(String(h), GUTTER + (h + 0.5) * this.cell, CAPTION / 2);
    context.textAlign = "right";
    DATA.sites.forEach((site, s) => {
      const text = DATA.sites.length > 40 || this.cell < 14 ? String(site.layer) : site.label.replace(/^(enc|dec)oder\./, "$1.");
      if (s % every === 0) context.fillText(text, GUTTER - 8, CAPTION + (s + 0.5) * this.cell);
    });
    const focused = document.activeElement === this.canvas ? this.picked : null;
    DATA.heads.forEach((_, at) => this.dot(context, at, paint(at), at === this.hovered || at === focused));
  }

  dot(context, at, how, marked) {
    const { site, head } = DATA.places[at];
    const [x, y, c] = [GUTTER + head * this.cell, CAPTION + site * this.cell, this.cell];
    const gap = c > 12 ? 1.5 : 0.5;
    context.globalAlpha = how.faded ? 0.16 : 1;
    if (how.square) {
      context.fillStyle = how.colour || css("--line");
      context.fillRect(x + gap, y + gap, c - 2 * gap, c - 2 * gap);
    } else {
      const radius = Math.max(1.2, (c / 2 - gap) * (0.26 + 0.74 * how.size));
      context.beginPath();
      context.arc(x + c / 2, y + c / 2, radius, 0, 7);
      if (how.hollow) {
        context.lineWidth = Math.max(1, Math.min(2.5, c / 12));
        context.strokeStyle = how.colour;
        context.stroke();
      } else {
        context.fillStyle = how.colour;
        context.fill();
      }
    }
    context.globalAlpha = 1;
    if (marked) {
      context.strokeStyle = css("--ink");
      context.lineWidth = 1.5;
      context.strokeRect(x + 0.75, y + 0.75, c - 1.5, c - 1.5);
    }
  }
}

/** The head a step away, in the grid. */
function neighbour(place, [down, right]) {
  const sites = DATA.sites.length;
  const s = (place.site + down + sites) % sites;
  const heads = DATA.sites[s].heads;
  const h = down ? Math.min(place.head, heads - 1) : (place.head + right + heads) % heads;
  return DATA.first[s] + h;
}

/** A head in one line. */
function headLine(at, measure) {
  const parts = [DATA.heads[at]];
  if (column("kind")) parts.push(kindName(at) + (cell("kind_score", at) === null ? "" : ` ${share(cell("kind_score", at))}`));
  if (DATA.importance) parts.push(`importance ${number(importanceOf(at), 2)}`);
  if (cell("most_similar", at)) parts.push(`most similar ${cell("most_similar", at)} ${share(cell("most_similar_cka", at))}`);
  if (measure && measure !== "kind" && column(measure)) parts.push(`${measure} ${number(cell(measure, at))}`);
  if (goingHeads().has(DATA.heads[at])) parts.push("can go");
  return parts.join(" · ");
}

// ---- its legend -------------------------------------------------------------------------------

function legend(state) {
  const byKind = (!state.color || state.color === "kind") && column("kind");
  if (!byKind) {
    const name = !state.color || state.color === "kind" ? measureNames()[0] : state.color;
    if (!name || !column(name)) return el("p", { class: "legend" });
    const [low, high] = range(column(name).values);
    const bar = el("canvas", { class: "bar", "aria-hidden": "true" });
    const context = sized(bar, 160, 10);
    for (let x = 0; x < 160; x += 1) {
      context.fillStyle = inScale(SCALE, x / 159);
      context.fillRect(x, 0, 1, 10);
    }
    const said = `${column(name).meaning} (${column(name).unit || "words"})`;
    return el("p", { class: "legend" }, number(low), bar, number(high), el("span", { class: "dim" }, said));
  }
  const found = new Map();
  DATA.heads.forEach((_, at) => found.set(kindOf(at), (found.get(kindOf(at)) || 0) + 1));
  const items = [...found].sort((a, b) => b[1] - a[1]).map(([kind, count]) => {
    const dot = el("i", { class: "dot" });
    dot.style.background = KIND_COLOURS[kind] || "#9aa3ad";
    const on = state.kind === kind;
    const said = DATA.kinds[kind] ? DATA.kinds[kind].meaning : kind === "mixed" ? "no one thing" : "";
    return el("button", { type: "button", class: "key", "aria-pressed": String(on), title: said, onclick: () => go({ kind: on ? undefined : kind }) },
      dot, kind, el("small", {}, String(count)));
  });
  const words = [DATA.importance ? "larger: more important" : "", DATA.curve ? "hollow: can go" : ""].filter(Boolean).join(" · ");
  return el("div", { class: "legend" }, items, el("span", { class: "dim" }, words));
}

// ---- the first view ---------------------------------------------------------------------------

function headsView(asked) {
  const known = asked.kind && DATA.heads.some((_, at) => kindOf(at) === asked.kind);
  const state = { ...asked, kind: known ? asked.kind : undefined, color: column(asked.color) ? asked.color : undefined };
  const grid = new Grid(state);
  const names = measureNames();
  const options = [...(column("kind") ? [["kind", "kind of head"]] : []), ...names.map((n) => [n, n])];
  const chosen = state.color || (column("kind") ? "kind" : names[0]);
  const rows = DATA.heads.map((_, at) => at).filter((at) => !state.kind || kindOf(at) === state.kind);
  const controls = el("div", { class: "controls" }, options.length ? choice("Colour", options, chosen, (color) => go({ color, kind: undefined })) : null);
  const left = el("section", { class: "gridside", "aria-label": "Grid of heads" }, controls, grid.box, legend(state), grid.note);
  const title = state.kind ? el("p", { class: "filter" }, `${plural(rows.length, "head")} of kind ${state.kind} `,
    el("button", { type: "button", onclick: () => go({ kind: undefined }) }, "show all")) : null;
  const right = DATA.table ? el("section", { class: "tableside", "aria-label": "Table of heads" }, title, headTable(state, rows, chosen)) : null;
  const view = el("div", { class: "two" }, left, right);
  return { view, after: () => grid.draw(), resize: () => grid.draw() };
}
