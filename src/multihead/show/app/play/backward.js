/** The gradient of the loss with respect to the projections of every layer: the chain rule, written out. */

import { geluSlope, moments, rotate } from "./arithmetic.js";
import { rowsOf } from "./model.js";

/**
 * @typedef {import("./model.js").Model} Model
 * @typedef {import("./model.js").Run} Run
 * @typedef {import("./model.js").LayerRun} LayerRun
 * @typedef {import("./model.js").Settings} Settings
 * @typedef {{q: Float32Array, k: Float32Array, v: Float32Array, o: Float32Array}} Gradients of W_Q, W_K, W_V, W_O
 */

/**
 * ∂ loss / ∂ each projection, layer by layer; the loss is that of `model.js`.
 * @param {Model} model
 * @param {Run} run
 * @param {Settings} settings
 * @returns {Gradients[]}
 */
export function gradients(model, run, settings) {
  const { words, width, layers } = model.sizes;
  const count = run.ids.length;
  const dLogits = run.probabilities.slice();
  for (let i = 0; i + 1 < count; i += 1) dLogits[i * words + run.ids[i + 1]] -= 1;
  dLogits.fill(0, (count - 1) * words); // the last token has no next word
  for (let a = 0; a < dLogits.length; a += 1) dLogits[a] /= Math.max(1, count - 1);
  const last = run.layers[layers - 1].output;
  let dx = normBackward(
    last,
    model.weights["norm.weight"],
    inputGradient(dLogits, model.weights["words.weight"], width),
  );
  /** @type {Gradients[]} */
  const found = [];
  for (let layer = layers - 1; layer >= 0; layer -= 1) {
    const { gradient, dInput } = layerBackward(model, layer, run.layers[layer], settings[layer], dx);
    found.unshift(gradient);
    dx = dInput;
  }
  return found;
}

/**
 * Through x → x Wᵀ + b, to x.
 * @param {Float32Array} dOut (rows, outputs)
 * @param {Float32Array} weight (outputs, inputs)
 * @param {number} inputs
 */
function inputGradient(dOut, weight, inputs) {
  const outputs = weight.length / inputs;
  const dx = new Float32Array((dOut.length / outputs) * inputs);
  for (let i = 0, a = 0; a < dOut.length; i += 1) {
    for (let o = 0; o < outputs; o += 1, a += 1) {
      const slope = dOut[a];
      if (slope === 0) continue;
      for (let d = 0; d < inputs; d += 1) dx[i * inputs + d] += slope * weight[o * inputs + d];
    }
  }
  return dx;
}

/**
 * The same, to W.
 * @param {Float32Array} dOut (rows, outputs)
 * @param {Float32Array} x (rows, inputs)
 * @param {number} inputs
 */
function weightGradient(dOut, x, inputs) {
  const rows = x.length / inputs;
  const outputs = dOut.length / rows;
  const dWeight = new Float32Array(outputs * inputs);
  for (let i = 0; i < rows; i += 1) {
    for (let o = 0; o < outputs; o += 1) {
      const slope = dOut[i * outputs + o];
      if (slope === 0) continue;
      for (let d = 0; d < inputs; d += 1) dWeight[o * inputs + d] += slope * x[i * inputs + d];
    }
  }
  return dWeight;
}

/**
 * Through layer norm, to its input.
 * @param {Float32Array} x
 * @param {Float32Array} weight
 * @param {Float32Array} dOut
 */
function normBackward(x, weight, dOut) {
  const width = weight.length;
  const dx = new Float32Array(x.length);
  for (let from = 0; from < x.length; from += width) {
    const { mean, scale } = moments(x, from, width);
    let [sum, product] = [0, 0];
    for (let d = 0; d < width; d += 1) {
      const slope = dOut[from + d] * weight[d];
      sum += slope / width;
      product += (slope * (x[from + d] - mean) * scale) / width;
    }
    for (let d = 0; d < width; d += 1) {
      const normal = (x[from + d] - mean) * scale;
      dx[from + d] = scale * (dOut[from + d] * weight[d] - sum - normal * product);
    }
  }
  return dx;
}

/**
 * @param {Model} model
 * @param {number} layer
 * @param {LayerRun} run
 * @param {import("./model.js").LayerSetting} setting
 * @param {Float32Array} dOutput
 */
function layerBackward(model, layer, run, setting, dOutput) {
  const { width, hidden, heads, headDim } = model.sizes;
  const of = (/** @type {string} */ name) => model.of(layer, name);
  const sum = (/** @type {Float32Array[]} */ ...parts) =>
    parts[0].map((_, i) => parts.reduce((total, part) => total + part[i], 0));

  const dActive = inputGradient(dOutput, of("down.weight"), hidden);
  const dUp = dActive.map((slope, i) => slope * geluSlope(run.up[i]));
  const dMiddleNormed = inputGradient(dUp, of("up.weight"), width);
  const dMiddle = sum(dOutput, normBackward(run.middle, of("hidden_norm.weight"), dMiddleNormed));

  const o = weightGradient(dMiddle, run.concatenated, heads * headDim);
  const dConcatenated = inputGradient(dMiddle, of("attention.o_proj.weight"), heads * headDim);
  const { dq, dk, dv } = attentionBackward(model, run, setting, dConcatenated);
  const parts = { q: rotate(dq, model.sizes, -1), k: rotate(dk, model.sizes, -1), v: dv };
  const gradient = {
    q: weightGradient(parts.q, run.normed, width),
    k: weightGradient(parts.k, run.normed, width),
    v: weightGradient(parts.v, run.normed, width),
    o,
  };
  const dNormed = sum(
    inputGradient(parts.q, of("attention.q_proj.weight"), width),
    inputGradient(parts.k, of("attention.k_proj.weight"), width),
    inputGradient(parts.v, of("attention.v_proj.weight"), width),
  );
  return { gradient, dInput: sum(dMiddle, normBackward(run.input, of("attention_norm.weight"), dNormed)) };
}

/**
 * To q, k and v. A row of scores is that of one head, or of all heads of a merged layer: then its gradient is the sum
 * over the heads.
 * @param {Model} model
 * @param {LayerRun} run
 * @param {import("./model.js").LayerSetting} setting
 * @param {Float32Array} dConcatenated
 */
function attentionBackward(model, run, setting, dConcatenated) {
  const { heads, headDim } = model.sizes;
  const { q, k, v } = run;
  const width = heads * headDim;
  const n = q.length / width;
  const [dq, dk, dv] = [new Float32Array(q.length), new Float32Array(q.length), new Float32Array(q.length)];
  const slopes = new Float64Array(n);
  for (const row of rowsOf(setting)) {
    const scale = 1 / Math.sqrt(row.length * headDim);
    const [first, size] = [row[0] * headDim, row.length * headDim];
    const weights = run.weights[row[0]];
    const free = setting.merged || setting.heads[row[0]].pattern === null; // weights set by hand have no gradient
    for (let i = 0; i < n; i += 1) {
      let mean = 0;
      for (let j = 0; j <= i; j += 1) {
        const weight = weights[i * n + j];
        let slope = 0;
        for (let c = first; c < first + size; c += 1) {
          const above = dConcatenated[i * width + c] * setting.heads[Math.floor(c / headDim)].scale;
          slope += above * v[j * width + c];
          dv[j * width + c] += weight * above;
        }
        slopes[j] = slope;
        mean += weight * slope;
      }
      if (!free) continue;
      for (let j = 0; j <= i; j += 1) {
        const slope = weights[i * n + j] * (slopes[j] - mean) * scale;
        for (let c = first; c < first + size; c += 1) {
          dq[i * width + c] += slope * k[j * width + c];
          dk[j * width + c] += slope * q[i * width + c];
        }
      }
    }
  }
  return { dq, dk: model.shared(dk, setting.kvHeads), dv: model.shared(dv, setting.kvHeads) };
}
