/** One row of attention, softmax(q kᵀ), from the q and k of a head. */

/**
 * @typedef {object} QK
 * @property {Float32Array} q (query, dim), scaled
 * @property {Float32Array} k (key, dim)
 * @property {number} dim
 * @property {Uint32Array} first the first key that each query sees
 * @property {Uint32Array} end the key after the last one
 * @property {Float32Array | null} bias added to the scores: by key − query + queries − 1
 * @property {number | undefined} softcap
 * @property {number | undefined} sink score of a learned sink
 */

/**
 * out[j] = q[i] · k[j] for the keys from `from` to `to`; four at a time, which reads q once for four keys.
 * @param {QK} qk
 * @param {number} i
 * @param {number} from
 * @param {number} to
 * @param {Float32Array} out
 */
function products({ q, k, dim }, i, from, to, out) {
  const start = i * dim;
  const last = start + dim;
  let j = from;
  for (; j + 3 < to; j += 4) {
    let [one, two, three, four] = [0, 0, 0, 0];
    for (let a = start, b = j * dim; a < last; a += 1, b += 1) {
      const x = q[a];
      one += x * k[b];
      two += x * k[b + dim];
      three += x * k[b + 2 * dim];
      four += x * k[b + 3 * dim];
    }
    out[j] = one;
    out[j + 1] = two;
    out[j + 2] = three;
    out[j + 3] = four;
  }
  for (; j < to; j += 1) {
    let sum = 0;
    for (let a = start, b = j * dim; a < last; a += 1, b += 1) sum += q[a] * k[b];
    out[j] = sum;
  }
}

/**
 * The weights of query `i`.
 * @param {QK} qk
 * @param {number} i
 * @param {Float32Array} out
 */
export function attentionRow(qk, i, out) {
  const { bias, softcap, sink } = qk;
  const [from, to, shift] = [qk.first[i], qk.end[i], qk.first.length - 1 - i];
  out.fill(0);
  products(qk, i, from, to, out);
  let top = sink === undefined ? -Infinity : sink;
  for (let j = from; j < to; j += 1) {
    if (softcap !== undefined) out[j] = softcap * Math.tanh(out[j] / softcap);
    if (bias) out[j] += bias[j + shift];
    if (out[j] > top) top = out[j];
  }
  let total = sink === undefined ? 0 : Math.exp(sink - top);
  for (let j = from; j < to; j += 1) {
    out[j] = Math.exp(out[j] - top);
    total += out[j];
  }
  for (let j = from; j < to; j += 1) out[j] /= total;
  return out;
}
