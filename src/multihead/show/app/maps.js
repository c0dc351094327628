/** Maps by text and head: read once, the latest kept. */

import { floats } from "./blobs.js";
import { HeadMap } from "./head_map.js";
import { RemoteMap } from "./remote_map.js";
import { places, report } from "./report.js";
import { askBytes } from "./server.js";

const CACHE_BYTES = 96e6;
const LARGEST_FETCHED = 2048; // tokens up to which the server sends a complete map

/** @type {Map<string, HeadMap>} the least recently used first */
const cache = new Map();

/** @type {Map<string, Promise<HeadMap>>} */
const pending = new Map();

/**
 * The attention of a head on a text, rows on demand; null where the page does not have it.
 * @param {number} text
 * @param {number} head
 * @returns {Promise<HeadMap | null>}
 */
export async function loadRows(text, head) {
  const key = `${text} ${head}`;
  const cached = cache.get(key);
  if (cached) {
    cachePut(key, cached);
    return cached;
  }
  const place = places[head];
  const layer = place && report.texts[text]?.layers[place.site];
  const stored = layer?.heads[place.head];
  if (!layer || !stored) return null;
  let reading = pending.get(key);
  if (!reading) {
    reading = stored.served
      ? readServed(text, head)
      : HeadMap.read(report.heads[head], report.texts[text], layer, stored, place.head);
    pending.set(key, reading);
  }
  try {
    const map = await reading;
    cachePut(key, map);
    return map;
  } finally {
    pending.delete(key);
  }
}

/**
 * The same, with every row computed.
 * @param {number} text
 * @param {number} head
 */
export async function loadMap(text, head) {
  const map = await loadRows(text, head);
  if (map && !map.coded) {
    await map.complete();
    cachePut(`${text} ${head}`, map);
  }
  return map;
}

/**
 * Keep a map as the latest; the oldest make room.
 * @param {string} key
 * @param {HeadMap} map
 */
function cachePut(key, map) {
  cache.delete(key);
  cache.set(key, map);
  let total = 0;
  for (const cached of cache.values()) total += cached.bytes;
  for (const [oldest, cached] of cache) {
    if (total <= CACHE_BYTES || oldest === key) break;
    cache.delete(oldest);
    total -= cached.bytes;
  }
}

/**
 * @param {number} t
 * @param {number} head
 * @returns {Promise<HeadMap>}
 */
async function readServed(t, head) {
  const text = report.texts[t];
  const place = places[head];
  const layer = text.layers[place.site];
  const where = { text: t, layer: layer.label, head: place.head };
  const { queries, keys } = layer;
  if (Math.max(queries, keys) > LARGEST_FETCHED) return new RemoteMap(report.heads[head], text, layer, where);
  const map = new HeadMap(report.heads[head], text, layer);
  const size = { x: 0, y: 0, w: keys, h: queries, width: keys, height: queries };
  const [coded, norms] = await Promise.all([askBytes("map", { ...where, ...size }), askBytes("norms", where)]);
  map.coded = coded;
  map.norms = floats(norms);
  return map;
}

/**
 * The weights of one token: of its row if `looks`, else of its column.
 * @param {HeadMap} map
 * @param {boolean} looks
 * @param {number} i
 */
export async function loadWeights(map, looks, i) {
  if (map instanceof RemoteMap) return map.fetchWeights(looks, i);
  if (looks) return map.row(i);
  await map.complete();
  return map.column(i);
}
