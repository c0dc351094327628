/** The similarity of every two heads. */

import { readBlob } from "./blobs.js";
import { sentence } from "./format.js";
import { report } from "./report.js";

/**
 * @typedef {import("./types.js").PairMeasure} PairMeasure
 * @typedef {(i: number, j: number) => number} PairValues NaN where two heads have no value
 */

/** @type {Map<string, Promise<Uint8Array>>} */
const blobs = new Map();

/**
 * @param {PairMeasure} measure
 * @returns {Promise<PairValues>}
 */
export async function pairValues(measure) {
  let blob = blobs.get(measure.name);
  if (!blob) {
    blob = readBlob(measure.line);
    blobs.set(measure.name, blob);
  }
  const bytes = await blob;
  const size = report.pairs?.heads.length ?? 0;
  return (i, j) => {
    const step = bytes[i * size + j];
    return step === 255 ? NaN : measure.low + (step / 254) * (1 - measure.low);
  };
}

/** What a measure is called beside its value. @type {Record<string, string>} */
const LABELS = { cka: "CKA", attention: "attention distance", write: "write overlap", read: "read overlap" };

/** @param {PairMeasure} measure */
export const measureLabel = ({ name }) => (Object.hasOwn(LABELS, name) ? LABELS[name] : name);

/** @type {Record<string, string>} */
const QUESTIONS = {
  correlation: "Do two heads have the same output?",
  cka: "Do two heads have the same output, apart from a rotation?",
  attention: "Do two heads look at the same tokens?",
  write: "Do the output matrices of two heads write into the same directions?",
  read: "Do the input matrices of two heads read the same directions?",
};

/** @param {PairMeasure} measure */
export const questionOf = ({ name }) => (Object.hasOwn(QUESTIONS, name) ? QUESTIONS[name] : name);

/** @param {PairMeasure} measure */
export const measureMeaning = (measure) => `${questionOf(measure)} ${sentence(measure.meaning)}`;

/** @param {PairMeasure} measure whether 0 means the same and 1 nothing in common */
export const isDistance = (measure) => measure.name === "attention";

/**
 * Pairs of heads, the most similar first.
 * @param {PairMeasure} measure
 * @param {PairValues} values
 * @param {number[]} heads
 * @param {number} count
 * @returns {[number, number, number][]} head, head, value
 */
export function mostSimilar(measure, values, heads, count) {
  const sign = isDistance(measure) ? 1 : -1;
  /** @type {[number, number, number][]} */
  const pairs = [];
  heads.forEach((i, n) => {
    for (const j of heads.slice(n + 1)) {
      const value = values(i, j);
      if (!Number.isNaN(value)) pairs.push(i < j ? [i, j, value] : [j, i, value]);
    }
  });
  return pairs.sort((a, b) => sign * (a[2] - b[2]) || a[0] - b[0] || a[1] - b[1]).slice(0, count);
}
