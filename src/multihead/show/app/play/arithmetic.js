/** The parts of a transformer, on rows of numbers: a (rows, width) matrix is a Float32Array, row after row. */

/** What layer norm adds to the variance, as in torch. */
const EPSILON = 1e-5;

/**
 * out = x Wᵀ + b: W has a row per output. Four outputs at a time, which reads x once for four rows of W.
 * @param {Float32Array} x (rows, inputs)
 * @param {Float32Array} weight (outputs, inputs)
 * @param {Float32Array | null} bias (outputs)
 * @param {number} inputs
 */
export function linear(x, weight, bias, inputs) {
  const [rows, outputs] = [x.length / inputs, weight.length / inputs];
  const out = new Float32Array(rows * outputs);
  for (let i = 0, to = 0; i < rows; i += 1) {
    const start = i * inputs;
    let o = 0;
    for (; o + 3 < outputs; o += 4, to += 4) {
      let one = 0;
      let two = 0;
      let three = 0;
      let four = 0;
      for (let a = 0, b = o * inputs; a < inputs; a += 1, b += 1) {
        const value = x[start + a];
        one += value * weight[b];
        two += value * weight[b + inputs];
        three += value * weight[b + 2 * inputs];
        four += value * weight[b + 3 * inputs];
      }
      out[to] = one;
      out[to + 1] = two;
      out[to + 2] = three;
      out[to + 3] = four;
    }
    for (; o < outputs; o += 1, to += 1) {
      let sum = 0;
      for (let a = 0, b = o * inputs; a < inputs; a += 1, b += 1) sum += x[start + a] * weight[b];
      out[to] = sum;
    }
    if (bias) for (let c = 0; c < outputs; c += 1) out[i * outputs + c] += bias[c];
  }
  return out;
}

/**
 * Mean and 1 / standard deviation of a row.
 * @param {Float32Array} x
 * @param {number} from
 * @param {number} width
 */
export function moments(x, from, width) {
  let [mean, variance] = [0, 0];
  for (let d = from; d < from + width; d += 1) mean += x[d] / width;
  for (let d = from; d < from + width; d += 1) variance += (x[d] - mean) ** 2 / width;
  return { mean, scale: 1 / Math.sqrt(variance + EPSILON) };
}

/**
 * Each row minus its mean, divided by its standard deviation, times a weight, plus a bias.
 * @param {Float32Array} x (rows, width)
 * @param {Float32Array} weight
 * @param {Float32Array} bias
 */
export function layerNorm(x, weight, bias) {
  const width = weight.length;
  const out = new Float32Array(x.length);
  for (let from = 0; from < x.length; from += width) {
    const { mean, scale } = moments(x, from, width);
    for (let d = 0; d < width; d += 1) out[from + d] = (x[from + d] - mean) * scale * weight[d] + bias[d];
  }
  return out;
}

/**
 * The error function: a series of positive terms, exact to the last digits.
 * @param {number} x
 */
export function erf(x) {
  const size = Math.abs(x);
  if (size > 5.9) return Math.sign(x);
  let [term, sum] = [x, x];
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n += 1) {
    term *= (2 * x * x) / (2 * n + 1);
    sum += term;
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

/** @param {number} x the share of a normal distribution below x */
const below = (x) => 0.5 * (1 + erf(x / Math.SQRT2));

/** x times the share of a normal distribution below x. @param {number} x */
export const gelu = (x) => x * below(x);

/** @param {number} x */
export const geluSlope = (x) => below(x) + (x * Math.exp(-0.5 * x * x)) / Math.sqrt(2 * Math.PI);

/**
 * @param {Float32Array} x
 * @param {Float32Array} y
 */
export const add = (x, y) => x.map((value, i) => value + y[i]);

/**
 * Softmax of `count` numbers from `from` on, in place.
 * @param {Float32Array} x
 * @param {number} from
 * @param {number} count
 */
export function softmax(x, from, count) {
  let [top, total] = [-Infinity, 0];
  for (let i = from; i < from + count; i += 1) if (x[i] > top) top = x[i];
  for (let i = from; i < from + count; i += 1) total += x[i] = Math.exp(x[i] - top);
  for (let i = from; i < from + count; i += 1) x[i] /= total;
}

/**
 * Rotate the first dimensions of every head by the position of its token: (i, i + half) is a pair.
 * @param {Float32Array} x (rows, heads × headDim)
 * @param {import("./model.js").Sizes} sizes
 * @param {1 | -1} direction −1 undoes it
 */
export function rotate(x, { heads, headDim, rotaryDim, rotaryBase }, direction = 1) {
  const out = x.slice();
  const [width, half] = [heads * headDim, rotaryDim / 2];
  for (let from = 0, position = 0; from < x.length; from += width, position += 1) {
    for (let pair = 0; pair < half; pair += 1) {
      const angle = direction * position * rotaryBase ** (-pair / half);
      const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
      for (let a = from + pair, end = from + width; a < end; a += headDim) {
        out[a] = x[a] * cos - x[a + half] * sin;
        out[a + half] = x[a + half] * cos + x[a] * sin;
      }
    }
  }
  return out;
}
