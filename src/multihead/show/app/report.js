/** The data of the page, and what the views ask of it. */

import { readData } from "./blobs.js";
import { setCharts } from "./charts.js";

/** @typedef {import("./types.js").Report} Report */

/**
 * Where a head is: its layer (an index of `report.sites`), its index there, and its number in the original model,
 * which is the one of its name and differs from the index in a pruned model.
 * @typedef {{site: number, head: number, number: number}} Place
 */

/** @type {Report} */
export let report;

/** @type {Place[]} */
export let places = [];

/** @type {Map<string, number>} */
export let indexOf = new Map();

/** The index of the first head of every layer. @type {number[]} */
export let firstOf = [];

/** The heads that can be removed together within the limit of the curve. @type {Set<string>} */
export let prunable = new Set();

export async function loadReport() {
  report = await readData();
  setCharts(report.charts);
  if (report.served) report.texts = byNumber(report.texts);
  indexOf = new Map(report.heads.map((name, index) => [name, index]));
  places = [];
  firstOf = [];
  report.sites.forEach((site, s) => {
    firstOf.push(places.length);
    for (let head = 0; head < site.heads; head += 1) {
      places.push({ site: s, head, number: headNumber(report.heads[places.length]) });
    }
  });
  prunable = prunableHeads();
}

/**
 * Texts of a server by their number: it drops old texts for new ones, so the first numbers may be missing.
 * @param {import("./types.js").Text[]} texts
 */
function byNumber(texts) {
  /** @type {import("./types.js").Text[]} */
  const places = [];
  for (const text of texts) places[text.at ?? 0] = text;
  return places;
}

/** @param {string} name "L3H7" → 7 */
const headNumber = (name) => Number(/H(\d+)$/.exec(name)?.[1] ?? 0);

/** @param {string} name "L3H7" → "L3" */
export const layerOf = (name) => name.replace(/H\d+$/, "");

function prunableHeads() {
  const curve = report.curve;
  const line = curve?.curves[0];
  if (!curve || !line) return new Set(/** @type {string[]} */ ([]));
  const point = line.points.find((p) => p.gone === curve.prunable);
  return new Set(point?.heads ?? line.order.slice(0, curve.prunable));
}

/**
 * A column of the table, or null.
 * @param {string | null | undefined} name
 */
export function column(name) {
  return name && report.table && Object.hasOwn(report.table, name) ? report.table[name] : null;
}

/**
 * @param {string | null} name
 * @param {number} head
 */
export const cell = (name, head) => column(name)?.values[head] ?? null;

/**
 * @param {string | null} name
 * @param {number} head
 * @returns {number | null}
 */
export function numberIn(name, head) {
  const value = cell(name, head);
  return typeof value === "number" ? value : null;
}

/**
 * @param {string} name
 * @param {number} head
 * @returns {string}
 */
export function textIn(name, head) {
  const value = cell(name, head);
  return typeof value === "string" ? value : "";
}

/**
 * The numbers of a column.
 * @param {string | null} name
 * @returns {(number | null)[]}
 */
export const numbersOf = (name) => report.heads.map((_, head) => numberIn(name, head));

/** The columns of numbers that have values. */
export const numberColumns = () =>
  Object.keys(report.table ?? {}).filter((name) => column(name)?.values.some((x) => typeof x === "number"));

/**
 * Why a value is missing, if that is known.
 * @param {string} name
 * @param {number} head
 */
export function whyMissing(name, head) {
  const reasons = column(name)?.why ?? {};
  return Object.keys(reasons).find((reason) => reasons[reason].includes(report.heads[head])) ?? "";
}

/** @param {number} head */
export const kindOf = (head) => textIn("kind", head);

/** @param {number} head "window ±2" */
export const kindWithDetail = (head) => [kindOf(head), textIn("kind_detail", head)].filter(Boolean).join(" ");

/** @param {number} head */
export const importanceOf = (head) => numberIn(report.importance, head);

/** Half of the 95 % interval. @param {number} head */
export function importanceError(head) {
  const error = report.importance ? numberIn(`${report.importance}_error`, head) : null;
  return error === null ? null : 1.96 * error;
}

/**
 * The head one step away in the grid, around its edges.
 * @param {number} head
 * @param {[number, number]} step down, right
 */
export function neighbour(head, [down, right]) {
  const place = places[head];
  const sites = report.sites.length;
  const site = (place.site + down + sites) % sites;
  const count = report.sites[site].heads;
  const next = down ? Math.min(place.head, count - 1) : (place.head + right + count) % count;
  return firstOf[site] + next;
}

/** Arrow keys as steps in the grid. @type {Record<string, [number, number]>} */
export const ARROWS = { ArrowRight: [0, 1], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowUp: [-1, 0] };
