/** The vectors of one word in one layer, and for each number the formula that it comes from. */

import { moments } from "./arithmetic.js";
import { rowTimes, sumOfProducts, write } from "./formulas.js";
import { rowsOf } from "./model.js";

/**
 * @typedef {import("./session.js").Session} Session
 * @typedef {import("./strip.js").Vector} Vector
 */

/**
 * A row of a matrix.
 * @param {Float32Array} matrix
 * @param {number} row
 * @param {number} width
 */
const rowOf = (matrix, row, width) => matrix.subarray(row * width, (row + 1) * width);

/**
 * Layer norm of one vector.
 * @param {Float32Array} x
 * @param {Float32Array} weight
 * @param {Float32Array} bias
 * @returns {(d: number) => string}
 */
function normFormula(x, weight, bias) {
  const { mean, scale } = moments(x, 0, x.length);
  return (d) =>
    `(x − mean) / deviation · weight + bias = (${write(x[d])} − ${write(mean)}) / ${write(1 / scale)} · ` +
    `${write(weight[d])} + ${write(bias[d])}`;
}

/**
 * What each head adds to the word: its output times its columns of W_O.
 * @param {Session} session
 * @param {Float32Array} concatenated
 */
function contributions({ model, layer, sizes }, concatenated) {
  const { width, heads, headDim } = sizes;
  const weight = model.of(layer, "attention.o_proj.weight");
  return Array.from({ length: heads }, (_, h) =>
    Float32Array.from({ length: width }, (_, d) => {
      let sum = 0;
      for (let c = h * headDim; c < (h + 1) * headDim; c += 1) {
        sum += weight[d * heads * headDim + c] * concatenated[c];
      }
      return sum;
    }),
  );
}

/**
 * The vectors before and after the heads.
 * @param {Session} session
 * @returns {Record<"before" | "concatenated" | "shares" | "after" | "alone", Vector[]>} `shares`: of each head through
 * W_O; `alone`: of the hidden layer
 */
export function describeLayer(session) {
  const { model, layer, token, settings } = session;
  const { width, heads, headDim, hidden } = session.sizes;
  const run = session.after.layers[layer];
  const of = (/** @type {string} */ name) => model.of(layer, name);
  const at = (/** @type {Float32Array} */ x, size = width) => rowOf(x, token, size);
  const [input, middle, active] = [at(run.input), at(run.middle), at(run.active, hidden)];
  const [attention, concatenated] = [at(run.attention), at(run.concatenated, heads * headDim)];
  const shape = `${width} = d_model`;
  const embedding = at(session.after.embedding);
  const earlier = layer ? `embedding + what earlier layers added = ` : "";
  const inputName = layer ? `vector that enters layer ${layer}` : `embedding of “${session.word(token)}”`;
  const before = [
    {
      name: inputName,
      symbol: "x",
      shape,
      values: input,
      formula: (/** @type {number} */ d) =>
        layer
          ? `${earlier}${write(embedding[d])} + ${write(input[d] - embedding[d])}`
          : `row ${session.before.ids[token]} of the embedding table, column ${d}`,
    },
    {
      name: "the same, normalized",
      symbol: "x̂",
      shape,
      values: at(run.normed),
      formula: normFormula(input, of("attention_norm.weight"), of("attention_norm.bias")),
    },
  ];
  const added = contributions(session, concatenated);
  const largest = added.flatMap((x) => [...x]).reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  const shares = added.map((values, h) => ({
    name: `what L${layer}H${h} adds`,
    symbol: `L${layer}H${h} adds`,
    shape,
    values,
    largest,
    formula: (/** @type {number} */ d) => {
      const row = of("attention.o_proj.weight").subarray(d * heads * headDim, (d + 1) * heads * headDim);
      const own = (/** @type {Float32Array} */ x) => x.subarray(h * headDim, (h + 1) * headDim);
      return (
        `row ${d} of W_O, columns ${h * headDim} to ${(h + 1) * headDim - 1} (counted from 0), times the output ` +
        `of L${layer}H${h} = ` +
        sumOfProducts(rowTimes(own(row), 0, own(concatenated), headDim))
      );
    },
  }));
  const joined = [
    {
      name: "outputs of all heads, side by side",
      symbol: "concatenation",
      shape: `${heads * headDim} = ${heads} heads × d_k`,
      values: concatenated,
      breaks: Array.from({ length: heads - 1 }, (_, h) => (h + 1) * headDim),
      formula: (/** @type {number} */ c) => {
        const h = Math.floor(c / headDim);
        const raw = at(run.outputs, heads * headDim)[c];
        return (
          `number ${c % headDim} of L${layer}H${h}'s output, times its strength: ${write(raw)} · ` +
          `${write(settings[layer].heads[h].scale)}`
        );
      },
    },
  ];
  const after = [
    {
      name: "mixed by W_O: the sum of what the heads add, and a bias",
      symbol: "mixed",
      shape,
      values: attention,
      formula: (/** @type {number} */ d) => {
        const terms = added.map((x, h) => `${write(x[d])} from L${layer}H${h}`).join(" + ");
        const bias = write(of("attention.o_proj.bias")[d]);
        return `row ${d} of W_O (counted from 0) times the concatenation + bias = ${terms} + ${bias}`;
      },
    },
    {
      name: "added to the vector that entered",
      symbol: "residual",
      shape,
      values: middle,
      formula: (/** @type {number} */ d) => `x + mixed = ${write(input[d])} + ${write(attention[d])}`,
    },
  ];
  const alone = [
    {
      name: "hidden layer",
      symbol: "hidden",
      shape: String(hidden),
      values: active,
      formula: (/** @type {number} */ u) =>
        `GELU(row ${u} of W_up times the normalized residual + bias) = GELU(${write(at(run.up, hidden)[u])})`,
    },
    {
      name: `vector that leaves layer ${layer}`,
      symbol: "out",
      shape,
      values: at(run.output),
      formula: (/** @type {number} */ d) =>
        `residual + W_down · hidden + bias = ${write(middle[d])} + ${write(at(run.down)[d])}`,
    },
  ];
  return { before, concatenated: joined, shares, after, alone };
}

/**
 * q, k and v of the chosen word, its scores, weights, and the head's output.
 * @param {Session} session
 * @param {number} head
 * @returns {Vector[]}
 */
export function describeHead(session, head) {
  const { model, layer, token, sizes } = session;
  const { width, heads, headDim, rotaryDim } = sizes;
  const setting = session.settings[layer];
  const run = session.after.layers[layer];
  const n = session.tokens.length;
  const of = (/** @type {string} */ name) => model.of(layer, `attention.${name}`);
  const slice = (/** @type {Float32Array} */ x, row = token) => {
    const from = row * heads * headDim + head * headDim;
    return x.subarray(from, from + headDim);
  };
  const normed = rowOf(run.normed, token, width);
  const shape = `${headDim} = d_k`;
  const shared = heads / setting.kvHeads > 1 ? `, the mean of ${heads / setting.kvHeads} heads` : "";
  const projection = (/** @type {string} */ name, /** @type {boolean} */ rotated) => (/** @type {number} */ d) => {
    const row = head * headDim + d;
    const bias = of(`${name}_proj.bias`)[row];
    const product = sumOfProducts(rowTimes(of(`${name}_proj.weight`), row, normed, width), bias);
    const turn =
      rotated && d < rotaryDim
        ? `, then rotated by the position ${token} together with number ${(d + rotaryDim / 2) % rotaryDim}`
        : "";
    return `W_${name.toUpperCase()}[${d}] · x̂ + bias = ${product}${turn}${name === "q" ? "" : shared}`;
  };
  const row = (/** @type {Float32Array} */ x) => x.subarray(token * n, token * n + token + 1);
  const [scores, weights] = [row(run.scores[head]), row(run.weights[head])];
  const group = rowsOf(setting).find((one) => one.includes(head)) ?? [head];
  const size = group.length * headDim;
  const part = (/** @type {Float32Array} */ x, /** @type {number} */ at) => {
    const from = at * heads * headDim + group[0] * headDim;
    return x.subarray(from, from + size);
  };
  const label = (/** @type {number} */ j) => `“${session.word(j)}”`;
  const top = scores.reduce((most, x) => Math.max(most, x), -Infinity);
  const total = scores.reduce((sum, x) => sum + Math.exp(x - top), 0);
  const pattern = setting.merged ? null : setting.heads[head].pattern;
  const { scale } = setting.heads[head];
  const off = scale === 1 ? "" : `; times its strength ${write(scale)} in the concatenation`;
  return [
    { name: "query q", symbol: "q", shape, values: slice(run.q), formula: projection("q", true) },
    { name: "key k", symbol: "k", shape, values: slice(run.k), formula: projection("k", true) },
    { name: "value v", symbol: "v", shape, values: slice(run.v), formula: projection("v", false) },
    {
      name: "scores q · k / √d",
      symbol: "score",
      shape: `${token + 1} words so far`,
      values: scores,
      label,
      formula: (j) =>
        `q · k / √${size} = (${sumOfProducts(rowTimes(part(run.k, j), 0, part(run.q, token), size))}) / ` +
        `${write(Math.sqrt(size))}`,
    },
    {
      name: "weights: softmax of the scores",
      symbol: "weight",
      shape: `${token + 1}, sum 1`,
      values: weights,
      label,
      positive: true,
      formula: (j) =>
        pattern
          ? `set by hand: ${pattern}`
          : `e^(score − largest) / sum = e^(${write(scores[j])} − ${write(top)}) / ${write(total)} = ` +
            `${write(Math.exp(scores[j] - top))} / ${write(total)}`,
    },
    {
      name: "output: Σ weight · value",
      symbol: "output",
      shape,
      values: slice(run.outputs),
      formula: (d) => {
        const pairs = Array.from(
          weights,
          (weight, j) => /** @type {[number, number]} */ ([weight, slice(run.v, j)[d]]),
        );
        return `Σ weight · v[${d}] = ${sumOfProducts(pairs)}${off}`;
      },
    },
  ];
}

/**
 * The last vector, and the probability of every word.
 * @param {Session} session
 * @returns {Vector[]}
 */
export function describeWords(session) {
  const { model, token, after } = session;
  const { width, words, layers } = session.sizes;
  const last = rowOf(after.layers[layers - 1].output, token, width);
  const normed = rowOf(after.normed, token, width);
  const [scores, chances] = [after.logits, after.probabilities].map((x) => rowOf(x, token, words));
  const top = scores.reduce((most, x) => Math.max(most, x), -Infinity);
  const total = scores.reduce((sum, x) => sum + Math.exp(x - top), 0);
  const label = (/** @type {number} */ id) => `“${session.data.words[id]}”`;
  const table = model.weights["words.weight"];
  return [
    {
      name: "last vector, normalized",
      symbol: "y",
      shape: `${width} = d_model`,
      values: normed,
      formula: normFormula(last, model.weights["norm.weight"], model.weights["norm.bias"]),
    },
    {
      name: "score of every word (its logit)",
      symbol: "score",
      shape: `${words} words`,
      values: scores,
      label,
      formula: (id) => `embedding of ${label(id)} · y = ${sumOfProducts(rowTimes(table, id, normed, width))}`,
    },
    {
      name: "probability that the word comes next",
      symbol: "probability",
      shape: `${words}, sum 1`,
      values: chances,
      label,
      positive: true,
      formula: (id) => `e^(score − largest) / sum = ${write(Math.exp(scores[id] - top))} / ${write(total)}`,
    },
  ];
}
