/** The attention of one head on a text too long to hold its map: rows, columns and pictures are asked of the server. */

import { floats } from "./blobs.js";
import { announce } from "./dom.js";
import { HeadMap } from "./head_map.js";
import { askBytes, isAbort } from "./server.js";

/**
 * @typedef {import("./types.js").Window} Window
 * @typedef {import("./head_map.js").Picture} Picture
 * @typedef {Record<string, string | number>} Where
 * @typedef {Window & {width: number, height: number}} Part a window and the size of its picture
 * @typedef {Picture & {key: string, part: Part}} PartPicture
 */

const LARGEST_PICTURE = 4096; // cells along a side
const CACHED_LINES = 256;
const MOVING_DELAY = 120; // milliseconds without a change of the window before its picture is asked for

export class RemoteMap extends HeadMap {
  /**
   * @param {string} name
   * @param {import("./types.js").Text} text
   * @param {import("./types.js").TextLayer} layer
   * @param {Where} where
   */
  constructor(name, text, layer, where) {
    super(name, text, layer);
    this.where = where;
    /** Rows and columns that have arrived. @type {Map<string, Float32Array>} */
    this.lines = new Map();
    /** The picture of the complete map. @type {PartPicture | null} */
    this.overview = null;
    /** @type {PartPicture | null} */
    this.latest = null;
    /** The key of the picture that is on its way. @type {string | null} */
    this.asking = null;
    /** @type {AbortController | null} */
    this.controller = null;
    this.timer = 0;
    /** @type {Map<string, RemoteMap>} */
    this.variants = new Map();
    /** @type {[string, import("./types.js").Text, import("./types.js").TextLayer]} */
    this.source = [name, text, layer];
  }

  complete() {
    return Promise.resolve();
  }

  get bytes() {
    return 4 * this.keys * this.lines.size + 2e6;
  }

  /**
   * @param {boolean} norm
   * @param {boolean} hide
   * @returns {RemoteMap}
   */
  reweighted(norm, hide) {
    if (!norm && !hide) return this;
    const key = `${norm} ${hide}`;
    let variant = this.variants.get(key);
    if (!variant) {
      const where = { ...this.where, ...(norm ? { norm: 1 } : {}), ...(hide ? { hide: 1 } : {}) };
      variant = new RemoteMap(...this.source, where);
      this.variants.set(key, variant);
    }
    return variant;
  }

  /**
   * Null until `fetchWeights` has brought them.
   * @param {boolean} looks
   * @param {number} i
   */
  weights(looks, i) {
    return this.lines.get(`${looks ? "row" : "column"} ${i}`) ?? null;
  }

  /**
   * @param {boolean} looks
   * @param {number} i
   */
  async fetchWeights(looks, i) {
    const known = this.weights(looks, i);
    if (known) return known;
    const kind = looks ? "row" : "column";
    const weights = floats(await askBytes(kind, { ...this.where, i }));
    if (this.lines.size >= CACHED_LINES) this.lines.delete(this.lines.keys().next().value ?? "");
    this.lines.set(`${kind} ${i}`, weights);
    return weights;
  }

  /**
   * The best picture of a window that is here now; `changed` is called when a better one arrives.
   * @param {Window} window_
   * @param {number} width
   * @param {number} height
   * @param {() => void} changed
   */
  picture(window_, width, height, changed) {
    const [x, y] = [Math.floor(window_.x), Math.floor(window_.y)];
    const w = Math.min(this.keys, Math.ceil(window_.x + window_.w - 1e-9)) - x;
    const h = Math.min(this.queries, Math.ceil(window_.y + window_.h - 1e-9)) - y;
    const size = { width: Math.min(w, width, LARGEST_PICTURE), height: Math.min(h, height, LARGEST_PICTURE) };
    const part = { x, y, w, h, ...size };
    const key = Object.values(part).join(" ");
    if (this.latest?.key === key) return this.latest;
    if (this.overview?.key === key) return this.overview;
    if (this.asking !== key) {
      this.cancel();
      this.asking = key;
      this.timer = window.setTimeout(() => this.fetchPicture(part, key, changed), this.overview ? MOVING_DELAY : 0);
    }
    return this.overview;
  }

  /**
   * @param {Part} part
   * @param {string} key
   * @param {() => void} changed
   */
  async fetchPicture(part, key, changed) {
    this.controller = new AbortController();
    try {
      const coded = await askBytes("map", { ...this.where, ...part }, this.controller.signal);
      this.latest = { key, part, coded, keys: part.width, queries: part.height };
      if (part.w === this.keys && part.h === this.queries) this.overview = this.latest;
      this.asking = null;
      changed();
    } catch (error) {
      if (this.asking === key) this.asking = null;
      if (!isAbort(error)) announce(String(error));
    }
  }

  /** Give up the picture that is on its way. */
  cancel() {
    clearTimeout(this.timer);
    this.controller?.abort();
    this.asking = null;
  }

  /**
   * @param {number} side
   * @returns {Promise<Picture>}
   */
  async preview(side) {
    const [width, height] = [Math.min(side, this.keys), Math.min(side, this.queries)];
    const part = { x: 0, y: 0, w: this.keys, h: this.queries, width, height, thin: 1 };
    return { coded: await askBytes("map", { ...this.where, ...part }), keys: width, queries: height };
  }
}

/**
 * A window of the map in the cells of a picture.
 * @param {PartPicture} picture
 * @param {Window} window_
 * @returns {Window}
 */
export function windowInPicture({ part, keys, queries }, window_) {
  const [across, down] = [keys / part.w, queries / part.h];
  return {
    x: (window_.x - part.x) * across,
    y: (window_.y - part.y) * down,
    w: window_.w * across,
    h: window_.h * down,
  };
}
