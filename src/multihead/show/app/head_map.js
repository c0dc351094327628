/** The attention of one head on one text, from the data of the page. */

import { attentionRow } from "./attention_row.js";
import { counts, floats, halves, readBlob } from "./blobs.js";

/**
 * @typedef {import("./types.js").Text} Text
 * @typedef {import("./types.js").TextLayer} TextLayer
 * @typedef {import("./types.js").StoredMap} StoredMap
 * @typedef {import("./types.js").Sequence} Sequence
 * @typedef {import("./attention_row.js").QK} QK
 * @typedef {{coded: Uint8Array, queries: number, keys: number}} Picture cells 255 √p, row after row
 */

/** Milliseconds of computing after which the page may react. */
const SLICE = 40;

const pause = () => new Promise((resolve) => setTimeout(resolve));

/** @param {number} weight the code of a weight: small weights keep their digits in 8 bits */
const code = (weight) => 255 * Math.sqrt(weight) + 0.5;

/** `row(i)` has the weights of a query; `coded` has all of them as 255 √p, once `complete` has run. */
export class HeadMap {
  /**
   * @param {string} name
   * @param {Pick<Text, "sequences">} text
   * @param {TextLayer} layer
   */
  constructor(name, text, layer) {
    this.name = name;
    this.queries = layer.queries;
    this.keys = layer.keys;
    /** @type {Sequence} */
    this.rows = text.sequences[layer.rows];
    /** @type {Sequence} */
    this.columns = text.sequences[layer.columns];
    this.square = layer.rows === layer.columns;
    /** @type {Uint8Array | null} */
    this.coded = null;
    /** @type {QK | null} */
    this.qk = null;
    /** The length of the vector that each key adds. @type {Float32Array | null} */
    this.norms = null;
    /** @type {Promise<void> | null} */
    this.completing = null;
  }

  /**
   * @param {string} name
   * @param {Text} text
   * @param {TextLayer} layer
   * @param {StoredMap} stored
   * @param {number} head
   */
  static async read(name, text, layer, stored, head) {
    const map = new HeadMap(name, text, layer);
    if (stored.map !== undefined) map.coded = await readBlob(stored.map);
    else map.qk = await readQK(stored);
    if (layer.norms !== null) {
      map.norms = floats(await readBlob(layer.norms)).subarray(head * layer.keys, (head + 1) * layer.keys);
    }
    return map;
  }

  /**
   * A square map from its weights, row after row.
   * @param {string} name
   * @param {Sequence} sequence
   * @param {Float32Array} weights
   */
  static fromWeights(name, sequence, weights) {
    const n = sequence.shown.length;
    const layer = { label: "", queries: n, keys: n, rows: 0, columns: 0, norms: null, heads: [] };
    return HeadMap.fromCodes(name, { sequences: [sequence] }, layer, Uint8Array.from(weights, code));
  }

  /**
   * A map from its codes.
   * @param {string} name
   * @param {Pick<Text, "sequences">} text
   * @param {TextLayer} layer
   * @param {Uint8Array} coded
   */
  static fromCodes(name, text, layer, coded) {
    const map = new HeadMap(name, text, layer);
    map.coded = coded;
    return map;
  }

  /** Compute every row, some milliseconds at a time. */
  complete() {
    this.completing ??= this.computeAll();
    return this.completing;
  }

  async computeAll() {
    if (this.coded) return;
    const coded = new Uint8Array(this.queries * this.keys);
    let since = performance.now();
    for (let i = 0; i < this.queries; i += 1) {
      const row = this.row(i);
      for (let j = 0, start = i * this.keys; j < this.keys; j += 1) coded[start + j] = code(row[j]);
      if (performance.now() - since > SLICE) {
        await pause();
        since = performance.now();
      }
    }
    this.coded = coded;
  }

  get bytes() {
    return (this.coded?.length ?? 0) + (this.qk ? 4 * (this.qk.q.length + this.qk.k.length) : 0);
  }

  /** @param {number} i */
  row(i) {
    const row = new Float32Array(this.keys);
    if (this.qk) return attentionRow(this.qk, i, row);
    if (this.coded) for (let j = 0; j < this.keys; j += 1) row[j] = (this.coded[i * this.keys + j] / 255) ** 2;
    return row;
  }

  /**
   * The weights that all queries give to key `j`; the map must be complete.
   * @param {number} j
   */
  column(j) {
    const weights = new Float32Array(this.queries);
    const coded = this.coded;
    if (coded) for (let i = 0; i < this.queries; i += 1) weights[i] = (coded[i * this.keys + j] / 255) ** 2;
    return weights;
  }

  /**
   * The weights of row i if `looks`, else of column i; null if they have to be loaded first.
   * @param {boolean} looks
   * @param {number} i
   * @returns {Float32Array | null}
   */
  weights(looks, i) {
    return looks ? this.row(i) : this.column(i);
  }

  /**
   * The map in at most `side` rows. Of a map that is not complete some rows are computed, evenly spread.
   * @param {number} side
   * @returns {Promise<Picture>}
   */
  async preview(side) {
    if (this.coded) return { coded: this.coded, queries: this.queries, keys: this.keys };
    const rows = Math.min(side, this.queries);
    const coded = new Uint8Array(rows * this.keys);
    for (let n = 0; n < rows; n += 1) {
      const row = this.row(Math.floor(((n + 0.5) * this.queries) / rows));
      for (let j = 0; j < this.keys; j += 1) coded[n * this.keys + j] = code(row[j]);
    }
    return { coded, queries: rows, keys: this.keys };
  }

  /**
   * The map with every key weighted by the norm of what it adds, or without special tokens; rows sum to 1 again.
   * @param {boolean} norm
   * @param {boolean} hide
   * @returns {HeadMap}
   */
  reweighted(norm, hide) {
    const norms = norm ? this.norms : null;
    const drop = hide && this.columns.special.some(Boolean);
    if (!norms && !drop) return this;
    const factor = new Float32Array(this.keys).fill(1);
    for (let j = 0; j < this.keys; j += 1) {
      if (norms) factor[j] = norms[j];
      if (drop && this.columns.special[j]) factor[j] = 0;
    }
    const map = /** @type {HeadMap} */ (Object.create(this));
    map.row = (i) => scaled(this.row(i), factor);
    if (this.coded) map.coded = scaledCodes(this.coded, this.queries, this.keys, factor);
    return map;
  }
}

/**
 * @param {StoredMap} stored
 * @returns {Promise<QK>}
 */
async function readQK(stored) {
  const { q, k, first, end, dim } = /** @type {Required<StoredMap>} */ (stored);
  const blobs = await Promise.all([q, k, first, end].map(readBlob));
  const numbers = stored.wide ? floats : halves;
  return {
    q: numbers(blobs[0]),
    k: numbers(blobs[1]),
    first: counts(blobs[2]),
    end: counts(blobs[3]),
    dim,
    bias: stored.bias === undefined ? null : floats(await readBlob(stored.bias)),
    softcap: stored.softcap,
    sink: stored.sink,
  };
}

/**
 * @param {Float32Array} row
 * @param {Float32Array} factor
 */
function scaled(row, factor) {
  let total = 0;
  for (let j = 0; j < row.length; j += 1) {
    row[j] *= factor[j];
    total += row[j];
  }
  if (total > 0) for (let j = 0; j < row.length; j += 1) row[j] /= total;
  return row;
}

/**
 * The same for coded rows: p = (code / 255)².
 * @param {Uint8Array} coded
 * @param {number} queries
 * @param {number} keys
 * @param {Float32Array} factor
 */
function scaledCodes(coded, queries, keys, factor) {
  const result = new Uint8Array(coded.length);
  for (let i = 0; i < queries; i += 1) {
    const start = i * keys;
    let total = 0;
    for (let j = 0; j < keys; j += 1) total += coded[start + j] ** 2 * factor[j];
    if (total === 0) continue;
    for (let j = 0; j < keys; j += 1) {
      result[start + j] = Math.round(coded[start + j] * Math.sqrt((factor[j] / total) * 255 * 255));
    }
  }
  return result;
}
