/**
 * The transformer of the page: what `multihead.sources.embedded.network` computes, with switches on its heads.
 *
 * A run keeps every intermediate number. All matrices are Float32Arrays, row after row; n is the number of tokens.
 */

import { add, gelu, layerNorm, linear, rotate, softmax } from "./arithmetic.js";

/**
 * @typedef {object} Sizes
 * @property {number} words of the vocabulary
 * @property {number} width d_model
 * @property {number} layers
 * @property {number} heads of each layer
 * @property {number} headDim d_k
 * @property {number} hidden
 * @property {number} rotaryDim
 * @property {number} rotaryBase
 *
 * @typedef {"uniform" | "previous" | "first"} Pattern
 *
 * @typedef {object} HeadSetting
 * @property {number} scale of its output: 1 is the trained head, 0 a head that is off
 * @property {Pattern | null} pattern where it looks, set by hand; null: as its scores say
 *
 * @typedef {object} LayerSetting
 * @property {HeadSetting[]} heads
 * @property {boolean} merged one head with the same projections: one score for all, over heads × d_k dimensions
 * @property {number} kvHeads this many sets of keys and values: groups of heads share their mean
 *
 * @typedef {LayerSetting[]} Settings
 *
 * @typedef {object} LayerRun
 * @property {Float32Array} input (n, width)
 * @property {Float32Array} normed (n, width)
 * @property {Float32Array} q (n, heads × d_k), rotated, and so are the keys
 * @property {Float32Array} k
 * @property {Float32Array} v
 * @property {Float32Array[]} scores of every head, (n, n); the heads of a merged layer have the same
 * @property {Float32Array[]} weights softmax of the scores
 * @property {Float32Array} outputs (n, heads × d_k), before the scale of the heads
 * @property {Float32Array} concatenated (n, heads × d_k), times the scale of the heads
 * @property {Float32Array} attention (n, width): the concatenation times W_O
 * @property {Float32Array} middle (n, width): input + attention
 * @property {Float32Array} middleNormed
 * @property {Float32Array} up (n, hidden)
 * @property {Float32Array} active (n, hidden): GELU of it
 * @property {Float32Array} down (n, width)
 * @property {Float32Array} output (n, width): middle + down
 *
 * @typedef {object} Run
 * @property {number[]} ids
 * @property {Float32Array} embedding (n, width)
 * @property {LayerRun[]} layers
 * @property {Float32Array} normed (n, width)
 * @property {Float32Array} logits (n, words)
 * @property {Float32Array} probabilities (n, words) of the next word
 *
 * @typedef {Record<string, Float32Array>} Weights by the names of the state dict
 */

/** @type {Pattern[]} */
export const PATTERNS = ["uniform", "previous", "first"];

/**
 * Every head as it was trained.
 * @param {Sizes} sizes
 * @returns {Settings}
 */
export const intact = ({ layers, heads }) =>
  Array.from({ length: layers }, () => ({
    heads: Array.from({ length: heads }, () => ({ scale: 1, pattern: null })),
    merged: false,
    kvHeads: heads,
  }));

/**
 * The heads that share one row of scores: each its own, or all of a merged layer.
 * @param {LayerSetting} setting
 */
export function rowsOf({ heads, merged }) {
  const numbers = heads.map((_, h) => h);
  return merged ? [numbers] : numbers.map((h) => [h]);
}

/**
 * The key whose weight is 1; null: equal weights.
 * @param {Pattern} pattern
 * @param {number} query
 */
const patternKey = (pattern, query) =>
  pattern === "uniform" ? null : pattern === "first" ? 0 : Math.max(0, query - 1);

export class Model {
  /**
   * @param {Sizes} sizes
   * @param {Weights} weights
   */
  constructor(sizes, weights) {
    this.sizes = sizes;
    this.weights = weights;
  }

  /**
   * A matrix of a layer, by its name in the state dict.
   * @param {number} layer
   * @param {string} name
   */
  of(layer, name) {
    return this.weights[`layers.${layer}.${name}`];
  }

  /**
   * @param {number[]} ids
   * @param {Settings} [settings]
   * @returns {Run}
   */
  run(ids, settings = intact(this.sizes)) {
    const { width, words, layers } = this.sizes;
    const table = this.weights["words.weight"];
    const embedding = new Float32Array(ids.length * width);
    ids.forEach((id, i) => embedding.set(table.subarray(id * width, (id + 1) * width), i * width));
    /** @type {LayerRun[]} */
    const runs = [];
    for (let layer = 0; layer < layers; layer += 1) {
      const input = layer ? runs[layer - 1].output : embedding;
      runs.push(this.runLayer(layer, input, settings[layer]));
    }
    const normed = layerNorm(runs[layers - 1].output, this.weights["norm.weight"], this.weights["norm.bias"]);
    const logits = linear(normed, table, null, width);
    const probabilities = logits.slice();
    for (let i = 0; i < ids.length; i += 1) softmax(probabilities, i * words, words);
    return { ids, embedding, layers: runs, normed, logits, probabilities };
  }

  /**
   * @param {number} layer
   * @param {Float32Array} input
   * @param {LayerSetting} setting
   * @returns {LayerRun}
   */
  runLayer(layer, input, setting) {
    const { width, hidden, heads, headDim } = this.sizes;
    const of = (/** @type {string} */ name) => this.of(layer, name);
    const normed = layerNorm(input, of("attention_norm.weight"), of("attention_norm.bias"));
    const project = (/** @type {string} */ name) =>
      linear(normed, of(`attention.${name}_proj.weight`), of(`attention.${name}_proj.bias`), width);
    const q = rotate(project("q"), this.sizes);
    const k = this.shared(rotate(project("k"), this.sizes), setting.kvHeads);
    const v = this.shared(project("v"), setting.kvHeads);
    const { scores, weights } = this.attend(q, k, setting);
    const outputs = this.mix(weights, v);
    const concatenated = outputs.map((x, i) => x * setting.heads[Math.floor((i % (heads * headDim)) / headDim)].scale);
    const attention = linear(concatenated, of("attention.o_proj.weight"), of("attention.o_proj.bias"), heads * headDim);
    const middle = add(input, attention);
    const middleNormed = layerNorm(middle, of("hidden_norm.weight"), of("hidden_norm.bias"));
    const up = linear(middleNormed, of("up.weight"), of("up.bias"), width);
    const active = up.map(gelu);
    const down = linear(active, of("down.weight"), of("down.bias"), hidden);
    const output = add(middle, down);
    return {
      ...{ input, normed, q, k, v, scores, weights, outputs, concatenated, attention, middle },
      ...{ middleNormed, up, active, down, output },
    };
  }

  /**
   * Keys or values in which each group of consecutive heads has the mean of its heads.
   * @param {Float32Array} x (n, heads × d_k)
   * @param {number} groups
   */
  shared(x, groups) {
    const { heads, headDim } = this.sizes;
    const size = heads / groups;
    if (size === 1) return x;
    const out = new Float32Array(x.length);
    for (let start = 0; start < x.length; start += size * headDim) {
      for (let d = 0; d < headDim; d += 1) {
        let sum = 0;
        for (let a = start + d; a < start + size * headDim; a += headDim) sum += x[a];
        for (let a = start + d; a < start + size * headDim; a += headDim) out[a] = sum / size;
      }
    }
    return out;
  }

  /**
   * Scores q · k / √d and their softmax over the tokens up to the query.
   * @param {Float32Array} q
   * @param {Float32Array} k
   * @param {LayerSetting} setting
   */
  attend(q, k, setting) {
    const { heads, headDim } = this.sizes;
    const width = heads * headDim;
    const n = q.length / width;
    /** @type {Float32Array[]} */
    const scores = [];
    /** @type {Float32Array[]} */
    const weights = [];
    for (const row of rowsOf(setting)) {
      const scale = 1 / Math.sqrt(row.length * headDim);
      const [first, size] = [row[0] * headDim, row.length * headDim];
      const score = new Float32Array(n * n);
      for (let i = 0; i < n; i += 1) {
        for (let j = 0; j <= i; j += 1) {
          let sum = 0;
          const from = i * width + first;
          for (let a = from, b = j * width + first; a < from + size; a += 1, b += 1) sum += q[a] * k[b];
          score[i * n + j] = sum * scale;
        }
      }
      const pattern = setting.merged ? null : setting.heads[row[0]].pattern;
      const weight = pattern ? byHand(pattern, n) : score.slice();
      if (!pattern) for (let i = 0; i < n; i += 1) softmax(weight, i * n, i + 1);
      for (const h of row) {
        scores[h] = score;
        weights[h] = weight;
      }
    }
    return { scores, weights };
  }

  /**
   * Every head's sum of values, each times its weight.
   * @param {Float32Array[]} weights
   * @param {Float32Array} v
   */
  mix(weights, v) {
    const { heads, headDim } = this.sizes;
    const width = heads * headDim;
    const n = v.length / width;
    const out = new Float32Array(v.length);
    const sum = new Float64Array(headDim);
    for (let h = 0; h < heads; h += 1) {
      for (let i = 0; i < n; i += 1) {
        sum.fill(0);
        for (let j = 0; j <= i; j += 1) {
          const weight = weights[h][i * n + j];
          if (weight === 0) continue;
          for (let d = 0, b = j * width + h * headDim; d < headDim; d += 1, b += 1) sum[d] += weight * v[b];
        }
        out.set(sum, i * width + h * headDim);
      }
    }
    return out;
  }
}

/**
 * The weights of a pattern: each query looks at one key, or at all before it equally.
 * @param {Pattern} pattern
 * @param {number} n
 */
function byHand(pattern, n) {
  const weights = new Float32Array(n * n);
  for (let i = 0; i < n; i += 1) {
    const key = patternKey(pattern, i);
    if (key === null) weights.fill(1 / (i + 1), i * n, i * n + i + 1);
    else weights[i * n + key] = 1;
  }
  return weights;
}

/**
 * Mean −log probability of the next word, in nats.
 * @param {Run} run
 */
export function loss({ ids, probabilities }) {
  const words = probabilities.length / ids.length;
  let sum = 0;
  for (let i = 0; i + 1 < ids.length; i += 1) sum -= Math.log(probabilities[i * words + ids[i + 1]]);
  return ids.length > 1 ? sum / (ids.length - 1) : 0;
}

/**
 * The likeliest next word after every token.
 * @param {Run} run
 */
export function guesses({ ids, probabilities }) {
  const words = probabilities.length / ids.length;
  return ids.map((_, i) => {
    let best = 0;
    for (let w = 1; w < words; w += 1) if (probabilities[i * words + w] > probabilities[i * words + best]) best = w;
    return best;
  });
}
