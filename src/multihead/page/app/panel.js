// ---- what is known of a head ------------------------------------------------------------------

function headPanel(at, scene, open = false) {
  const pairs = el("section", { class: "pairs" }, el("h3", {}, "Strongest pairs in this text"), el("ol", {}));
  const told = (map, found) => pairs.querySelector("ol").replaceChildren(...pairLines(found.map(([p, i, j]) => [map.rows.shown[i], map.columns.shown[j], share(p)])));
  scene.onMap = (map) => (map.far ? ask("pairs", map.where).then((r) => r.json()).then((found) => scene.live && told(map, found)).catch(() => {}) : told(map, strongest(map)));
  return el("aside", { class: "panel", "aria-label": `Numbers of ${DATA.heads[at]}` }, kindPart(at), importancePart(at), similarPart(at), offsetPart(at), oftenPart(at), DATA.texts.length ? pairs : null, measuresPart(at, open));
}

function kindPart(at) {
  if (!column("kind")) return null;
  const kind = kindOf(at);
  const why = DATA.why && DATA.why[DATA.heads[at]];
  const bars = [];
  const scores = Object.keys(DATA.kinds).map((k) => [k, cell(`kind:${k}`, at)]).filter(([, x]) => x !== null);
  scores.sort((a, b) => (b[0] === kind) - (a[0] === kind) || b[1] - a[1]);
  for (const [name, score] of scores.slice(0, 4)) {
    const mine = name === kind;
    bars.push(scoreBar(name, score, DATA.kinds[name].threshold, mine ? cell("kind_control", at) : null, mine ? [cell("kind_low", at), cell("kind_high", at)] : null));
  }
  const driven = cell("driven", at);
  const said = { position: "places, not words", content: "words, not places", mixed: "places and words" }[driven];
  const score = cell("driven_score", at);
  const shuffled = score === null ? "" : ` (tokens shuffled: overlap by place minus by word ${score > 0 ? "+" : ""}${share(score)})`;
  return el("section", {}, el("h3", {}, "Kind"), why ? el("p", {}, sentence(why)) : null,
    el("div", { class: "scores" }, bars), said ? el("p", { class: "dim" }, `Follows ${said}${shuffled}.`) : null);
}

/** A score with its interval, its threshold (a tick) and what chance gives (a dot). */
function scoreBar(name, score, threshold, control, ends) {
  const x = (v) => `${(100 * Math.max(0, Math.min(1, v))).toFixed(1)}%`;
  const picture = svg("svg", { class: "score", role: "img", "aria-label": `${name} ${share(score)}, threshold ${threshold}${control === null ? "" : `, chance ${share(control)}`}` },
    svg("rect", { x: 0, y: 5, width: "100%", height: 6, class: "track", rx: 3 }));
  const fill = svg("rect", { x: 0, y: 5, width: x(score), height: 6, rx: 3, fill: KIND_COLOURS[name] || "#9aa3ad" });
  picture.append(fill, svg("rect", { x: x(threshold), y: 1, width: 1.5, height: 14, class: "tick" }));
  if (ends && ends[0] !== null) picture.append(svg("line", { x1: x(ends[0]), x2: x(ends[1]), y1: 8, y2: 8, class: "ends" }));
  if (control !== null) picture.append(svg("circle", { cx: x(control), cy: 8, r: 3, class: "chance" }));
  return el("div", { class: "scoreline", title: `${DATA.kinds[name].meaning}; the tick is the threshold${control === null ? "" : ", the dot what chance gives"}` },
    el("span", {}, name), picture, el("span", { class: "value" }, share(score)));
}

function importancePart(at) {
  if (!DATA.importance) return null;
  const rank = cell("rank", at);
  const error = importanceError(at);
  const going = goingHeads().has(DATA.heads[at]);
  return el("section", {}, el("h3", {}, "Importance"),
    el("p", {}, el("b", {}, number(importanceOf(at), 2)), error === null ? "" : ` ± ${number(error, 1)}`, rank === null ? "" : `, place ${rank} of ${DATA.heads.length}`, going ? ". It can go." : "."),
    el("p", { class: "dim" }, `${sentence(column(DATA.importance).meaning)} ${sentence(DATA.corpus.loss || "")}`));
}

function similarPart(at) {
  const other = cell("most_similar", at);
  if (!other) return null;
  const to = DATA.at.get(other);
  return el("section", {}, el("h3", {}, "Most similar"),
    el("p", {}, el("a", { href: headLink(to) }, other), ` writes ${share(cell("most_similar_cka", at))} the same (CKA). `,
      el("a", { href: link({ second: other }) }, "Side by side"), " · ", el("a", { href: link({ view: "alike", pick: DATA.heads[at], layer: undefined, head: undefined }) }, "all pairs")));
}

/** The tokens that it ties together most, over the corpus. */
function oftenPart(at) {
  const found = DATA.often && DATA.often[DATA.heads[at]];
  if (!found || !found.length) return null;
  return el("section", { class: "pairs often" }, el("h3", {}, "Strongest pairs over the corpus"),
    el("ol", {}, pairLines(found.map(([a, b, times, weight]) => [a, b, `${share(weight)} × ${times}`]))),
    el("p", { class: "dim" }, "Of every token the one other token it looks at most, delimiters left out: mean weight × how often; most weight in all first."));
}

/** Mean mass by distance, over the corpus. */
function offsetPart(at) {
  const known = [];
  for (let o = -64; o <= 64; o += 1) {
    const value = cell(`offset${o < 0 ? o : `+${o}`}`, at);
    if (value !== null) known.push([o, value]);
  }
  if (known.length < 3) return null;
  const top = Math.max(...known.map(([, v]) => v), 1e-9);
  const wide = 100 / known.length;
  const picture = svg("svg", { class: "offsets", viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": "mean weight by distance" });
  known.forEach(([o, v], i) => {
    const tall = (v / top) * 38;
    const bar = svg("rect", { x: (i * wide + wide * 0.12).toFixed(2), y: (40 - tall).toFixed(2), width: (wide * 0.76).toFixed(2), height: tall.toFixed(2), class: o === 0 ? "zero" : "" });
    bar.append(svg("title", {}, `${o > 0 ? "+" : ""}${o}: ${share(v)}`));
    picture.append(bar);
  });
  const [first, last] = [known[0][0], known[known.length - 1][0]];
  return el("section", {}, el("h3", {}, "Where it looks, by distance"), picture,
    el("p", { class: "ends dim" }, el("span", {}, `${-first} back`), el("span", {}, "itself"), el("span", {}, `${last} ahead`)), el("p", { class: "dim" }, `Highest bar: ${share(top)} of the weight, mean over the corpus.`));
}

/** The pairs of tokens with the largest weights, delimiters and the token itself left out. */
function strongest(map, count = 7) {
  const best = [];
  const { coded, keys, queries, square, rows, columns } = map;
  let least = -1; // of those found, once there are enough
  for (let i = 0; i < queries; i += 1) {
    if (rows.special[i]) continue;
    for (let j = 0, at = i * keys; j < keys; j += 1) {
      if (coded[at + j] <= least || columns.special[j] || (square && i === j)) continue;
      best.push([coded[at + j], i, j]);
      best.sort((a, b) => b[0] - a[0]);
      if (best.length > count) best.pop();
      if (best.length === count) least = best[count - 1][0];
    }
  }
  return best.map(([v, i, j]) => [(v / 255) ** 2, i, j]);
}

const pairLines = (found) => found.map(([a, b, value]) => el("li", {}, el("span", { class: "word" }, brief(a, 14)), " → ", el("span", { class: "word" }, brief(b, 14)), el("span", { class: "value" }, value)));

function measuresPart(at, open) {
  const names = Object.keys(DATA.table || {}).filter((n) => !/^(offset[+-]|kind|most_similar|second|third|order$|cluster$|driven)/.test(n));
  if (!names.length) return null;
  const rows = () => names.map((n) => {
    const value = cell(n, at);
    const shown = value === null ? NOTHING : typeof value === "string" ? value : number(value);
    return el("tr", {}, el("th", { scope: "row", title: column(n).meaning }, n), el("td", { title: whyNone(n, at) || null }, shown), el("td", { class: "dim" }, column(n).unit));
  });
  const body = el("tbody", {});
  const part = el("details", { open, ontoggle: () => part.open && !body.firstChild && body.append(...rows()) }, el("summary", {}, `All ${names.length} measures`), el("table", { class: "measures" }, body));
  return part;
}

/** Two heads in numbers. */
function pairNumbers(a, b) {
  const parts = [];
  if (DATA.pairs) parts.push(el("p", { class: "alikeness" }, "Alike: "));
  if (DATA.pairs) {
    const heads = DATA.pairs.heads;
    const [i, j] = [heads.indexOf(DATA.heads[a]), heads.indexOf(DATA.heads[b])];
    Promise.all(DATA.pairs.measures.map((m) => pairValues(m))).then((all) => {
      const said = all.map((values, n) => `${DATA.pairs.measures[n].name} ${share(values(i, j))}`).join(", ");
      parts[0].textContent = `How alike: ${said}`;
    });
  }
  const names = [DATA.importance, "kind_score", "entropy", "max_weight", "distance", "first", "special", "previous", "output_norm"].filter((n) => n && column(n));
  parts.push(el("table", { class: "measures" },
    el("thead", {}, el("tr", {}, el("th", {}), el("th", { scope: "col" }, DATA.heads[a]), el("th", { scope: "col" }, DATA.heads[b]))),
    el("tbody", {}, column("kind") ? el("tr", {}, el("th", { scope: "row" }, "kind"), el("td", {}, kindName(a)), el("td", {}, kindName(b))) : null,
      names.map((n) => el("tr", {}, el("th", { scope: "row", title: column(n).meaning }, n), el("td", {}, number(cell(n, a))), el("td", {}, number(cell(n, b))))))));
  return parts;
}
