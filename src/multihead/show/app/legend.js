/** What the marks of the grid mean. Shares and kinds are buttons that select heads. */

import { go } from "./address.js";
import { colorBar } from "./canvas.js";
import { charts } from "./charts.js";
import { columnHelp, kindHelp } from "./definitions.js";
import { el } from "./dom.js";
import { formatNumber } from "./format.js";
import { scaleOf } from "./grid.js";
import { help } from "./help.js";
import { kindBackground, shade } from "./palettes.js";
import * as data from "./report.js";
import { prunable, report } from "./report.js";
import { sharesNamed, withoutValue } from "./share_names.js";
import { TWO_LEAD, leadingName } from "./shares.js";

/** @typedef {import("./types.js").State} State */

/**
 * @param {string} by "shares", "kind" or a column
 * @param {State} state
 */
export function legend(by, state) {
  if (by === "shares") return sharesLegend(state);
  return by === "kind" ? kindsLegend(state) : measureLegend(by);
}

/** A line per share, then the finer kinds. @param {State} state */
function sharesLegend(state) {
  const lines = charts.shares.map(({ name, colour, meaning }) => {
    return shareLine(name, colour, meaning, state);
  });
  if (countLed(charts.two_lead)) lines.push(shareLine(charts.two_lead, "var(--dim)", TWO_LEAD, state));
  const finer = kindCounts().filter(([kind]) => kind && !sharesNamed(kind).length);
  const kinds = finer.length ? el("div", { class: "legend" }, kindKeys(finer, state)) : null;
  const leading = "the largest of position, word and match, or two of them; spread or rest where they dominate";
  const ring = `Ring: the five shares. Disc: ${leading}.`;
  const tile = `Colour: ${leading}. Weaker where it is small.`;
  return el("div", {},
    el("p", { class: "legend" }, el("b", {}, "What decides where a head looks ", help("shares")),
      el("span", { class: "dim ringhint" }, ring), el("span", { class: "dim tilehint" }, tile)),
    el("ul", { class: "sharelist" }, lines),
    kinds,
    el("p", { class: "legend hints" }, el("span", { class: "ringhint" }, sizeHint()), hollowHint(),
      el("span", { class: "dim" }, "Click a share or a kind to list its heads.")));
}

/** How many heads are led by a share alone, or by two. @param {string} name */
const countLed = (name) => report.heads.filter((_, head) => leadingName(head) === name).length;

/**
 * @param {string} name
 * @param {string} colour
 * @param {string} meaning
 * @param {State} state
 */
const shareLine = (name, colour, meaning, state) =>
  el("li", {}, key("share", name, name, colour, countLed(name), state), el("span", { class: "meaning" }, meaning));

/** @param {State} state */
function kindsLegend(state) {
  const hint = el("span", { class: "dim" }, "Click a kind to list its heads.");
  return el("div", { class: "legend" }, kindKeys(kindCounts(), state), sizeHint(), hollowHint(), hint);
}

/** The kinds and how many heads have them, the most frequent first. @returns {[string, number][]} */
function kindCounts() {
  /** @type {Map<string, number>} */
  const count = new Map();
  for (const head of report.heads.keys()) {
    const kind = withoutValue(data.kindOf(head));
    count.set(kind, (count.get(kind) ?? 0) + 1);
  }
  return [...count].sort((a, b) => b[1] - a[1]);
}

/**
 * @param {[string, number][]} counts
 * @param {State} state
 */
function kindKeys(counts, state) {
  const keys = counts.map(([kind, heads]) => {
    return el("span", { class: "keyhelp" }, key("kind", kind, kind, kindBackground(kind), heads, state),
      kindHelp(kind));
  });
  return [el("b", {}, "Kinds of heads ", help("kind")), keys];
}

/**
 * A button that selects the heads of a share or of a kind, or all of them again.
 * @param {"share" | "kind"} part of the address
 * @param {string} value
 * @param {string} label
 * @param {string} color
 * @param {number} count
 * @param {State} state
 */
function key(part, value, label, color, count, state) {
  const dot = el("i", { class: "dot" });
  dot.style.background = color;
  const on = state[part] === value;
  const onclick = () => go({ share: undefined, kind: undefined, [part]: on ? undefined : value });
  const button = el("button", { type: "button", class: "key", "aria-pressed": String(on), onclick });
  button.append(dot, label, el("small", {}, String(count)));
  return button;
}

const sizeHint = () =>
  report.importance ? el("span", { class: "dim" }, "Larger: more important ", help("importance")) : null;

const hollowHint = () =>
  prunable.size ? el("span", { class: "dim" }, "Hollow: can be pruned ", help("can be pruned")) : null;

/** @param {string} name */
function measureLegend(name) {
  const { ramp, low, high } = scaleOf(data.numbersOf(name));
  if (low > high) return el("p", { class: "legend" });
  const bar = colorBar((level) => shade(ramp, level));
  const label = el("span", { class: "dim" }, name, " ", columnHelp(name));
  return el("p", { class: "legend" }, formatNumber(low), bar, formatNumber(high), label);
}
