/** The switches of all heads as text, for the address, and the other way round. */

import { PATTERNS, intact } from "./model.js";

/**
 * @typedef {import("./model.js").Sizes} Sizes
 * @typedef {import("./model.js").Settings} Settings
 * @typedef {import("./model.js").HeadSetting} HeadSetting
 */

/**
 * "L1H2" → [1, 2], if there is such a head.
 * @param {string} name
 * @param {Sizes} sizes
 * @returns {[number, number] | null}
 */
export function headIn(name, { layers, heads }) {
  const match = /^L(\d+)H(\d+)$/.exec(name);
  if (!match) return null;
  const [layer, head] = [Number(match[1]), Number(match[2])];
  return layer < layers && head < heads ? [layer, head] : null;
}

/** @param {number} layer @param {number} head */
export const nameOf = (layer, head) => `L${layer}H${head}`;

/** Divisors: into how many sets of keys and values the heads can be grouped. @param {number} heads */
export const kvChoices = (heads) =>
  Array.from({ length: heads }, (_, i) => heads - i).filter((count) => heads % count === 0);

/** @param {Settings} settings @returns {Settings} */
export const copy = (settings) =>
  settings.map((layer) => ({ ...layer, heads: layer.heads.map((head) => ({ ...head })) }));

/**
 * Only what differs from the trained model: {scale: "L0H1:0", pattern: "L1H0:first", merge: "1", kv: "2:1"}.
 * @param {Settings} settings
 * @returns {Record<string, string>}
 */
export function toParts(settings) {
  /** @type {Record<"scale" | "pattern" | "merge" | "kv", string[]>} */
  const parts = { scale: [], pattern: [], merge: [], kv: [] };
  settings.forEach(({ heads, merged, kvHeads }, layer) => {
    heads.forEach(({ scale, pattern }, head) => {
      if (scale !== 1) parts.scale.push(`${nameOf(layer, head)}:${Number(scale.toFixed(2))}`);
      if (pattern) parts.pattern.push(`${nameOf(layer, head)}:${pattern}`);
    });
    if (merged) parts.merge.push(String(layer));
    if (kvHeads !== heads.length) parts.kv.push(`${layer}:${kvHeads}`);
  });
  const written = Object.entries(parts).map(([key, list]) => /** @type {[string, string]} */ ([key, list.join(",")]));
  return Object.fromEntries(written.filter(([, text]) => text));
}

/**
 * Settings from parts of an address; whatever is not valid is ignored.
 * @param {Record<string, string | undefined>} parts
 * @param {Sizes} sizes
 * @returns {Settings}
 */
export function fromParts(parts, sizes) {
  const settings = intact(sizes);
  /** @type {(key: string) => [string, string][]} */
  const pairs = (key) =>
    (parts[key] ?? "")
      .split(",")
      .map((pair) => /** @type {[string, string]} */ ([...pair.split(":"), "", ""].slice(0, 2)));
  for (const [name, text] of pairs("scale")) {
    const place = headIn(name, sizes);
    const scale = Number(text);
    if (place && text && scale >= 0 && scale <= 1) settings[place[0]].heads[place[1]].scale = scale;
  }
  for (const [name, text] of pairs("pattern")) {
    const place = headIn(name, sizes);
    const pattern = PATTERNS.find((one) => one === text);
    if (place && pattern) settings[place[0]].heads[place[1]].pattern = pattern;
  }
  for (const [layer] of pairs("merge"))
    if (/^\d+$/.test(layer) && settings[Number(layer)]) settings[Number(layer)].merged = true;
  for (const [layer, count] of pairs("kv")) {
    if (!/^\d+$/.test(layer) || !settings[Number(layer)]) continue;
    if (kvChoices(sizes.heads).includes(Number(count))) settings[Number(layer)].kvHeads = Number(count);
  }
  return settings;
}

/** One string for equal settings. @param {Settings} settings */
export const keyOf = (settings) => new URLSearchParams(toParts(settings)).toString();

/**
 * The heads that differ from the trained ones.
 * @param {Settings} settings
 */
export const changedHeads = (settings) =>
  settings.flatMap(({ heads }, layer) =>
    heads.flatMap(({ scale, pattern }, head) => (scale !== 1 || pattern ? [nameOf(layer, head)] : [])),
  );

/** @param {Settings} settings */
export const offHeads = (settings) =>
  settings.flatMap(({ heads }, layer) =>
    heads.flatMap(({ scale }, head) => (scale === 0 ? [nameOf(layer, head)] : [])),
  );

/**
 * How many sets of keys and values of a layer are read by a head that is on; a merged head reads all.
 * @param {import("./model.js").LayerSetting} setting
 */
function setsRead({ heads, merged, kvHeads }) {
  const size = heads.length / kvHeads;
  const groups = Array.from({ length: kvHeads }, (_, g) => heads.slice(g * size, (g + 1) * size));
  const read = groups.filter((group) => group.some(({ scale }) => scale > 0)).length;
  return merged && read ? kvHeads : read;
}

/**
 * Bytes of the key/value cache for one word, in half precision: a key and a value of d_k numbers per set that is read.
 * @param {Settings} settings
 * @param {Sizes} sizes
 */
export const cacheBytes = (settings, { headDim }) =>
  settings.reduce((sum, layer) => sum + 2 * setsRead(layer) * headDim * 2, 0);
