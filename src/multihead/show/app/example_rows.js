/** Rows of a head's map on a text that show best what it does: a query, and the keys that it looks at most. */

import { link } from "./address.js";
import { el } from "./dom.js";
import { formatFraction, shorten } from "./format.js";
import { heading } from "./help.js";
import { loadWeights } from "./maps.js";
import { RemoteMap } from "./remote_map.js";
import { ask } from "./server.js";
import { strongest } from "./token_text.js";

/** @typedef {import("./head_map.js").HeadMap} HeadMap */

const ROWS = 3;
const KEYS = 3;
const PAIRS = 24; // the strongest, among which the queries are looked for
const LEAST = 0.02;

export class ExampleRows {
  constructor() {
    this.list = el("ol");
    const title = heading("Three rows of this text", "example rows");
    this.element = el("section", { class: "pairs rows" }, title, this.list);
  }

  /** @param {HeadMap} map */
  async show(map) {
    /** @type {[number, number, number][]} weight, query, key */
    let pairs;
    if (map instanceof RemoteMap) {
      const response = await ask("pairs", map.where).catch(() => null);
      if (!response) return;
      pairs = await response.json();
    } else {
      pairs = strongestPairs(map);
    }
    const words = new Set(); // a word that is repeated is shown once
    const isNew = (/** @type {number} */ i) => words.size < words.add(map.rows.shown[i]).size;
    const queries = pairs.map(([, i]) => i).filter(isNew).slice(0, ROWS);
    const rows = await Promise.all(queries.map((i) => loadWeights(map, true, i))).catch(() => null);
    if (rows) this.list.replaceChildren(...queries.map((i, n) => rowLine(map, i, rows[n])));
  }
}

/**
 * @param {HeadMap} map
 * @param {number} i
 * @param {Float32Array} weights
 */
function rowLine(map, i, weights) {
  const word = (/** @type {string} */ token) => el("span", { class: "word" }, shorten(token, 14));
  const keys = strongest(weights, KEYS, LEAST).map((j) => {
    return el("span", {}, word(map.columns.shown[j]), " ", el("small", {}, formatFraction(weights[j])));
  });
  const href = link({ row: String(i), dir: undefined });
  const query = el("a", { href, title: `token ${i}` }, word(map.rows.shown[i]));
  return el("li", {}, query, " → ", el("span", { class: "keys" }, keys));
}

/**
 * The pairs of tokens with the largest weights, special tokens and the diagonal excluded.
 * @param {HeadMap} map
 * @returns {[number, number, number][]} weight, query, key
 */
function strongestPairs({ coded, keys, queries, square, rows, columns }) {
  /** @type {[number, number, number][]} */
  const best = [];
  let least = -1; // of the best, once there are enough
  for (let i = 0; coded && i < queries; i += 1) {
    if (rows.special[i]) continue;
    for (let j = 0, start = i * keys; j < keys; j += 1) {
      if (coded[start + j] <= least || columns.special[j] || (square && i === j)) continue;
      best.push([coded[start + j], i, j]);
      best.sort((a, b) => b[0] - a[0]);
      if (best.length > PAIRS) best.pop();
      if (best.length === PAIRS) least = best[PAIRS - 1][0];
    }
  }
  return best.map(([value, i, j]) => [(value / 255) ** 2, i, j]);
}
