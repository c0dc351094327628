/** What is known of one head, beside its map. */

import { headLink, link } from "./address.js";
import { charts } from "./charts.js";
import { columnHelp, kindHelp } from "./definitions.js";
import { el, svg } from "./dom.js";
import { ExampleRows } from "./example_rows.js";
import { formatFraction, formatNumber, formatPercent, sentence, shorten } from "./format.js";
import { GLOSSARY } from "./glossary.js";
import { kindText } from "./grid.js";
import { heading, help } from "./help.js";
import { kindColor } from "./palettes.js";
import * as data from "./report.js";
import { cell, column, indexOf, kindOf, numberIn, prunable, report, textIn } from "./report.js";
import { leadingOf, sharesOf } from "./shares.js";
import { measureLabel, measureMeaning, pairValues } from "./similarity_values.js";

/** Leaves the head out of an address. */
const NO_HEAD = { stack: undefined, layer: undefined, head: undefined, row: undefined, second: undefined };

const SHOWN_KINDS = 4;

export class HeadPanel {
  /**
   * @param {number} head
   * @param {boolean} [open] whether the table of all measures is open
   */
  constructor(head, open = false) {
    this.rows = new ExampleRows();
    const label = `Numbers of ${report.heads[head]}`;
    const rows = report.texts.length ? this.rows.element : null;
    const parts = [
      ...[sharesPart(head), kindPart(head), rows, importancePart(head), similarPart(head)],
      ...[distancePart(head), corpusPairsPart(head), measuresPart(head, open)],
    ];
    this.element = el("aside", { class: "panel", "aria-label": label }, parts);
  }
}

/** The five shares with their intervals; those that lead are bold. @param {number} head */
function sharesPart(head) {
  const shares = sharesOf(head);
  if (!shares) return null;
  const leading = leadingOf(head);
  const bars = charts.shares.map((share, i) => {
    const [low, high] = [numberIn(`${share.name}_low`, head), numberIn(`${share.name}_high`, head)];
    const term = help(share.name, sentence(share.meaning));
    const name = el(leading.includes(share) ? "b" : "span", {}, share.name, " ", term);
    return barLine(name, { label: share.name, value: shares[i], color: share.colour, low, high });
  });
  const caption = el("p", { class: "dim" }, "The five add up to 1; the lines are 95 % intervals.");
  return el("section", { class: "shares" }, heading("What decides where it looks", "shares"), bars, caption);
}

/** @param {number} head */
function kindPart(head) {
  if (!column("kind")) return null;
  const kind = kindOf(head);
  const why = report.why?.[report.heads[head]];
  const scores = Object.keys(report.kinds)
    .map((name) => ({ name, score: numberIn(`kind:${name}`, head) }))
    .sort((a, b) => (b.score ?? 0) - (a.score ?? 0));
  const first = [kind, ...["second", "third"].map((name) => kindIn(textIn(name, head)))];
  const order = [...first.flatMap((name) => scores.filter((one) => one.name === name)), ...scores];
  const bars = [...new Set(order)]
    .slice(0, SHOWN_KINDS)
    .map(({ name, score }) => (score === null ? null : scoreBar(head, name, score, name === kind)));
  const reason = why ? `${GLOSSARY.evidence} Here: ${why}.` : GLOSSARY.evidence;
  const caption = el("p", { class: "dim" }, "Bars are scores, ticks are thresholds. ", help("score"));
  return el(
    "section",
    {},
    heading("Kind"),
    el("p", {}, el("b", {}, kindText(head))),
    el("p", { class: "dim" }, `${evidence(head)} `, help("evidence", reason)),
    el("div", { class: "scores" }, bars, caption),
    drivenLine(head),
  );
}

/** "window" of "window ±2". @param {string} name */
const kindIn = (name) => name.split(" ")[0];

/** Why a head has its kind, or none, in plain words. @param {number} head */
function evidence(head) {
  const kind = kindOf(head);
  if (Object.hasOwn(report.kinds, kind)) {
    const [score, chance] = ["kind_score", "kind_control"].map((name) => formatFraction(numberIn(name, head)));
    const { threshold } = report.kinds[kind];
    return `Its score is ${score}: clearly above the threshold (${threshold}) and above chance (${chance}).`;
  }
  const closest = textIn("second", head);
  if (!closest) return "No kind could be measured.";
  const { threshold, shares } = report.kinds[kindIn(closest)];
  const score = numberIn("second_score", head) ?? 0;
  const leading = leadingOf(head).map(({ name }) => name);
  const leads = !leading.length || leading.some((name) => shares.includes(name));
  const missing =
    score > threshold && !leads
      ? `A head is named after this kind only if ${shares.join(" or ")} leads.`
      : `The 95 % interval of this kind must be above ${threshold} and above chance.`;
  return `The closest kind is “${closest}”, with a score of ${formatFraction(score)}. ${missing}`;
}

/** @param {number} head */
function drivenLine(head) {
  const follows = { position: "positions, not words", content: "words, not positions", both: "positions and words" };
  const driven = /** @type {keyof typeof follows} */ (textIn("driven", head));
  if (!Object.hasOwn(follows, driven)) return null;
  const score = numberIn("driven_score", head);
  const text =
    "The tokens of a text are shuffled, and both maps compared: the overlap at the same positions, minus the overlap " +
    `at the same words: ${score !== null && score > 0 ? "+" : ""}${formatFraction(score)}.`;
  return el("p", { class: "dim" }, `Follows ${follows[driven]} `, help("follows", text));
}

/**
 * A score with its threshold; interval and chance are those of the head's own kind.
 * @param {number} head
 * @param {string} kind
 * @param {number} score
 * @param {boolean} detailed whether interval and chance belong to this kind
 */
function scoreBar(head, kind, score, detailed) {
  const { threshold } = report.kinds[kind];
  const [chance, low, high] = ["kind_control", "kind_low", "kind_high"].map((name) => {
    return detailed ? numberIn(name, head) : null;
  });
  const label = `${kind} ${formatFraction(score)}, threshold ${threshold}`;
  const name = el("span", {}, kind, " ", kindHelp(kind));
  return barLine(name, { label, value: score, color: kindColor(kind), threshold, chance, low, high });
}

/**
 * A value from 0 to 1 as a bar, with its interval (a line), threshold (a tick) and chance (a dot).
 * @param {HTMLElement} name
 * @param {{label: string, value: number, color: string, threshold?: number, chance?: number | null,
 *   low: number | null, high: number | null}} bar
 */
function barLine(name, { label, value, color, threshold, chance = null, low, high }) {
  const x = (/** @type {number} */ at) => `${(100 * Math.max(0, Math.min(1, at))).toFixed(1)}%`;
  const picture = svg("svg", { class: "score", role: "img", "aria-label": label });
  picture.append(
    svg("rect", { x: 0, y: 5, width: "100%", height: 6, class: "track", rx: 3 }),
    svg("rect", { x: 0, y: 5, width: x(value), height: 6, rx: 3, fill: color }),
  );
  if (threshold !== undefined) {
    picture.append(svg("rect", { x: x(threshold), y: 1, width: 1.5, height: 14, class: "tick" }));
  }
  if (low !== null && high !== null) {
    picture.append(svg("line", { x1: x(low), x2: x(high), y1: 8, y2: 8, class: "ends" }));
  }
  if (chance !== null) picture.append(svg("circle", { cx: x(chance), cy: 8, r: 3, class: "chance" }));
  return el("div", { class: "scoreline" }, name, picture, el("span", { class: "value" }, formatFraction(value)));
}

/** @param {number} head */
function importancePart(head) {
  if (!report.importance) return null;
  const rank = numberIn("rank", head);
  const error = data.importanceError(head);
  const interval = error === null ? "" : ` ± ${formatNumber(error, 1)}`;
  const place = rank === null ? "" : `, rank ${rank} of ${report.heads.length}`;
  const meaning = `${sentence(column(report.importance)?.meaning ?? "")} ${sentence(report.corpus.loss ?? "")}`.trim();
  return el(
    "section",
    {},
    heading("Importance"),
    el("p", {}, el("b", {}, formatNumber(data.importanceOf(head), 2)), `${interval}${place}.`),
    pruningLine(head),
    el("p", { class: "dim" }, `${GLOSSARY.importance.split(".")[0]}. `, help("how importance is measured", meaning)),
  );
}

/** @param {number} head */
function pruningLine(head) {
  if (!report.curve || !prunable.has(report.heads[head])) return null;
  const others = prunable.size > 1 ? `, together with ${prunable.size - 1} others,` : "";
  const text = `Can be pruned${others} for less than ${formatPercent(report.curve.limit)} of quality. `;
  return el("p", {}, text, el("a", { href: link({ ...NO_HEAD, view: "pruning" }) }, "Show pruning →"));
}

/** @param {number} head */
function similarPart(head) {
  const other = textIn("most_similar", head);
  const index = indexOf.get(other);
  if (index === undefined) return null;
  const value = `, CKA similarity ${formatFraction(numberIn("most_similar_cka", head))} `;
  const all = link({ ...NO_HEAD, view: "similarity", pick: report.heads[head] });
  return el(
    "section",
    {},
    heading("Most similar", "most similar"),
    el("p", {}, el("a", { href: headLink(index) }, other), value, help("CKA")),
    el("p", {}, el("a", { href: link({ second: other }) }, "Show side by side →")),
    el("p", {}, el("a", { href: all }, "Show all pairs →")),
  );
}

/**
 * The tokens that the head ties together most, over the corpus.
 * @param {number} head
 */
function corpusPairsPart(head) {
  const pairs = report.often?.[report.heads[head]];
  if (!pairs?.length) return null;
  const text =
    "For every token, the other token with the largest weight, special tokens excluded: mean weight × number of " +
    "times. The pairs with the most weight in total come first.";
  const lines = pairs.map(([query, key, times, weight]) => {
    return pairLine(query, key, `${formatFraction(weight)} × ${times}`);
  });
  const title = el("h3", {}, "Strongest pairs over the corpus ", help("pairs", text));
  return el("section", { class: "pairs often" }, title, el("ol", {}, lines));
}

/**
 * @param {string} query
 * @param {string} key
 * @param {string} value
 */
function pairLine(query, key, value) {
  const word = (/** @type {string} */ token) => el("span", { class: "word" }, shorten(token, 14));
  return el("li", {}, word(query), " → ", word(key), el("span", { class: "value" }, value));
}

/**
 * Mean weight by distance, over the corpus.
 * @param {number} head
 */
function distancePart(head) {
  /** @type {[number, number][]} */
  const bars = [];
  for (let offset = -64; offset <= 64; offset += 1) {
    const value = numberIn(`offset${offset < 0 ? offset : `+${offset}`}`, head);
    if (value !== null) bars.push([offset, value]);
  }
  if (bars.length < 3) return null;
  const top = Math.max(...bars.map(([, value]) => value), 1e-9);
  const wide = 100 / bars.length;
  const box = { viewBox: "0 0 100 40", preserveAspectRatio: "none" };
  const picture = svg("svg", { class: "offsets", role: "img", "aria-label": "mean weight by distance", ...box });
  bars.forEach(([offset, value], i) => {
    const tall = (value / top) * 38;
    const [x, y] = [(i * wide + wide * 0.12).toFixed(2), (40 - tall).toFixed(2)];
    const size = { width: (wide * 0.76).toFixed(2), height: tall.toFixed(2) };
    const bar = svg("rect", { x, y, ...size, class: offset === 0 ? "zero" : "" });
    bar.append(svg("title", {}, `${offset > 0 ? "+" : ""}${offset}: ${formatFraction(value)}`));
    picture.append(bar);
  });
  const [first, last] = [bars[0][0], bars[bars.length - 1][0]];
  const ends = [`${-first} back`, "itself", `${last} ahead`].map((text) => el("span", {}, text));
  return el(
    "section",
    {},
    heading("Where it looks, by distance", "by distance"),
    picture,
    el("p", { class: "ends dim" }, ends),
    el("p", { class: "dim" }, `Highest bar: ${formatFraction(top)} of the weight, mean over the corpus.`),
  );
}

const ELSEWHERE = ["kind", "most_similar", "second", "third", "order$", "cluster$", "driven", "leading$"];
const SHOWN_ELSEWHERE = new RegExp(`^(offset[+-]|(spread|rest|position|word|match)_|${ELSEWHERE.join("|")})`);

/**
 * @param {number} head
 * @param {boolean} open
 */
function measuresPart(head, open) {
  const names = Object.keys(report.table ?? {}).filter((name) => !SHOWN_ELSEWHERE.test(name));
  if (!names.length) return null;
  const body = el("tbody");
  const fill = () => {
    if (!details.open || body.firstChild) return;
    for (const name of names) {
      const value = cell(name, head);
      const text = typeof value === "string" ? value : formatNumber(value);
      const why = value === null ? data.whyMissing(name, head) : "";
      const shown = el("td", {}, text, why ? help(`missing: ${name}`, sentence(why)) : null);
      const title = el("th", { scope: "row" }, name, " ", columnHelp(name));
      body.append(el("tr", {}, title, shown, el("td", { class: "dim" }, column(name)?.unit)));
    }
  };
  const table = el("table", { class: "measures" }, body);
  const summary = el("summary", {}, `All ${names.length} measures`);
  const details = el("details", { open, ontoggle: fill }, summary, table);
  return details;
}

const COMPARED = ["kind_score", "entropy", "max_weight", "distance", "first", "special", "previous", "output_norm"];

/**
 * Two heads in numbers.
 * @param {number} first
 * @param {number} second
 */
export function pairPanel(first, second) {
  const has = (/** @type {string} */ name) => [first, second].some((head) => numberIn(name, head) !== null);
  const rows = [report.importance ?? "", ...COMPARED].filter(has).map((name) => {
    const title = el("th", { scope: "row" }, name === report.importance ? "importance" : name, " ", columnHelp(name));
    return el("tr", {}, title, [first, second].map((head) => el("td", {}, formatNumber(numberIn(name, head)))));
  });
  const kinds = column("kind")
    ? el("tr", {}, el("th", { scope: "row" }, "kind ", help("kind")),
        [first, second].map((head) => el("td", {}, data.kindWithDetail(head))))
    : null;
  const titles = [first, second].map((head) => el("th", { scope: "col" }, report.heads[head]));
  const head = el("thead", {}, el("tr", {}, el("td"), titles));
  const table = el("table", { class: "measures" }, head, el("tbody", {}, kinds, rows));
  return el("div", { class: "pair" }, heading("Both heads in numbers", "measures"), table);
}

/**
 * How similar two heads are, by every measure.
 * @param {number} first
 * @param {number} second
 */
export function similarityLine(first, second) {
  const line = el("span", { class: "alikeness" });
  const { pairs } = report;
  if (!pairs) return line;
  const [i, j] = [first, second].map((head) => pairs.heads.indexOf(report.heads[head]));
  Promise.all(pairs.measures.map(pairValues)).then((values) => {
    line.append("Similarity: ");
    values.forEach((value, n) => {
      const measure = pairs.measures[n];
      const text = `${n ? ", " : ""}${measureLabel(measure)} ${formatFraction(value(i, j))} `;
      line.append(text, help(measureLabel(measure), measureMeaning(measure)));
    });
  });
  return line;
}
