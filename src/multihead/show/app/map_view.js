/** A map on a canvas: zoom, pan, the cell under the pointer. */

import { FONT, contextOf, fillVertical, pixelRatio, sizeCanvas, typeScale } from "./canvas.js";
import { el, pointerOn, saveFile } from "./dom.js";
import { shorten } from "./format.js";
import { paintMap } from "./map_image.js";
import { themeColor } from "./palettes.js";
import { RemoteMap, windowInPicture } from "./remote_map.js";

/**
 * @typedef {import("./head_map.js").HeadMap} HeadMap
 * @typedef {import("./types.js").Window} Window
 * @typedef {[number, number]} Point
 * @typedef {[number, number] | null} Cell query, key
 */

const LABELS = 104; // pixels beside and above the map: its axis titles and tokens
const TITLE = 22; // of these, pixels of an axis title
const LABEL_STEP = 11; // pixels between labels, at least
const LARGEST_SIDE = 720;
const SMALLEST_WINDOW = 4; // cells

export class MapView {
  /**
   * @param {object} handlers
   * @param {(cell: Cell) => void} handlers.point called with the cell under the pointer
   * @param {(cell: [number, number]) => void} handlers.pick called with the cell that was clicked
   * @param {() => void} handlers.drawn
   * @param {string} [unit] what the axes call a token
   */
  constructor({ point, pick, drawn }, unit = "token") {
    this.unit = unit;
    this.point = point;
    this.pick = pick;
    this.drawn = drawn;
    /** @type {HeadMap | null} */
    this.map = null;
    /** @type {Window} */
    this.window = { x: 0, y: 0, w: 1, h: 1 };
    /** The row and column that are outlined. @type {{row: number | null, column: number | null}} */
    this.mark = { row: null, column: null };
    this.width = 0;
    this.height = 0;
    this.room = 0;
    this.type = 1; // the scale of the labels
    this.dragged = false;
    /** @type {{key: string, from: object, image: ImageData} | null} */
    this.painted = null;
    /** @type {Map<number, Point>} */
    this.pointers = new Map();
    this.canvas = el("canvas", { class: "map", role: "img", tabindex: "-1" });
    this.box = el("div", { class: "mapbox" }, this.canvas);
    this.canvas.addEventListener("wheel", (e) => this.onWheel(e), { passive: false });
    this.canvas.addEventListener("pointerdown", (e) => this.onDown(e));
    this.canvas.addEventListener("pointermove", (e) => this.onMove(e));
    this.canvas.addEventListener("pointerup", (e) => this.onUp(e));
    this.canvas.addEventListener("pointercancel", (e) => this.pointers.delete(e.pointerId));
    this.canvas.addEventListener("pointerleave", () => this.point(null));
    this.canvas.addEventListener("dblclick", () => this.showAll());
  }

  /** Pixels beside and above the map. */
  get labels() {
    return Math.round(LABELS * this.type);
  }

  /** Where the cells are on the canvas. */
  get place() {
    return { left: this.labels, width: this.width, window: this.window, type: this.type };
  }

  /**
   * Take another map; `draw` shows it.
   * @param {HeadMap} map
   */
  show(map) {
    const same = this.map && this.map.queries === map.queries && this.map.keys === map.keys;
    this.map = map;
    if (!same) this.window = { x: 0, y: 0, w: map.keys, h: map.queries };
    const size = `${map.queries} queries down, ${map.keys} keys across`;
    const label = `Attention map of ${map.name}: ${size}. The text below has the same weights.`;
    this.canvas.setAttribute("aria-label", label);
  }

  clear() {
    sizeCanvas(this.canvas, this.canvas.clientWidth, this.canvas.clientHeight);
  }

  showAll() {
    if (!this.map) return;
    this.window = { x: 0, y: 0, w: this.map.keys, h: this.map.queries };
    this.draw();
  }

  /**
   * Zoom around a point of the map, in pixels.
   * @param {number} factor
   * @param {number} [x]
   * @param {number} [y]
   */
  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const { map, window: w } = this;
    if (!map) return;
    const [j, i] = [w.x + (x / this.width) * w.w, w.y + (y / this.height) * w.h];
    const wide = Math.max(Math.min(SMALLEST_WINDOW, map.keys), Math.min(map.keys, w.w / factor));
    const high = Math.max(Math.min(SMALLEST_WINDOW, map.queries), Math.min(map.queries, w.h / factor));
    this.window = { w: wide, h: high, x: j - (x / this.width) * wide, y: i - (y / this.height) * high };
    this.draw();
  }

  clampWindow() {
    const { map, window: w } = this;
    if (!map) return;
    w.x = Math.max(0, Math.min(map.keys - w.w, w.x));
    w.y = Math.max(0, Math.min(map.queries - w.h, w.y));
  }

  /** @param {WheelEvent} event */
  onWheel(event) {
    const out = event.deltaY > 0 && this.window.w >= (this.map?.keys ?? 0);
    if (out && !event.ctrlKey && !event.metaKey) return; // nothing to zoom out of: the page scrolls
    event.preventDefault();
    const [x, y] = pointerOn(event, this.canvas);
    this.zoom(Math.exp(-event.deltaY / 300), x - this.labels, y - this.labels);
  }

  /** @param {PointerEvent} event */
  onDown(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, pointerOn(event, this.canvas));
    this.dragged = false;
  }

  /** @param {PointerEvent} event */
  onMove(event) {
    const now = pointerOn(event, this.canvas);
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      this.point(this.cellAt(now));
      return;
    }
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const reach = (/** @type {Point} */ p) => Math.hypot(p[0] - other[0], p[1] - other[1]);
      const [x, y] = [(now[0] + other[0]) / 2 - this.labels, (now[1] + other[1]) / 2 - this.labels];
      this.dragged = true;
      this.zoom(reach(now) / Math.max(1, reach(before)), x, y);
    } else if (this.dragged || Math.hypot(now[0] - before[0], now[1] - before[1]) > 4) {
      this.dragged = true;
      this.window.x -= ((now[0] - before[0]) / this.width) * this.window.w;
      this.window.y -= ((now[1] - before[1]) / this.height) * this.window.h;
      this.draw();
    } else {
      return; // too little to be a drag
    }
    this.pointers.set(event.pointerId, now);
  }

  /** @param {PointerEvent} event */
  onUp(event) {
    this.pointers.delete(event.pointerId);
    if (this.dragged) return;
    const cell = this.cellAt(pointerOn(event, this.canvas));
    if (cell) this.pick(cell);
  }

  /**
   * @param {Point} point
   * @returns {Cell}
   */
  cellAt([x, y]) {
    const { map, window: w } = this;
    if (!map || x < this.labels || y < this.labels) return null;
    const j = Math.floor(w.x + ((x - this.labels) / this.width) * w.w);
    const i = Math.floor(w.y + ((y - this.labels) / this.height) * w.h);
    return i >= 0 && j >= 0 && i < map.queries && j < map.keys ? [i, j] : null;
  }

  /** Width and type are read once and then observed: every reading makes the browser lay out the page. */
  observeRoom() {
    const read = () => {
      const room = this.box.clientWidth;
      if (room === this.room) return false;
      this.room = room;
      this.type = typeScale();
      return true;
    };
    read();
    new ResizeObserver(() => read() && this.draw()).observe(this.box);
  }

  draw() {
    const { map } = this;
    if (!map) return;
    this.clampWindow();
    if (!this.room) this.observeRoom();
    this.width = Math.max(80, Math.min(this.room || 560, this.type * LARGEST_SIDE) - this.labels);
    this.height = Math.max(80, Math.min(1.6 * this.width, (this.width * map.queries) / map.keys));
    const context = sizeCanvas(this.canvas, this.width + this.labels, this.height + this.labels);
    const corner = Math.round(this.labels * pixelRatio());
    const image = this.paint(map);
    this.canvas.toggleAttribute("data-waiting", map instanceof RemoteMap && map.asking !== null);
    if (image) context.putImageData(image, corner, corner);
    this.drawFrame(context, map);
    this.drawMarks(context);
    this.drawn();
  }

  /**
   * The pixels of the window; kept while the pointer moves, which changes the marks alone.
   * @param {HeadMap} map
   */
  paint(map) {
    const ratio = pixelRatio();
    const [w, h] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
    const changed = () => this.box.isConnected && this.draw();
    const part = map instanceof RemoteMap ? map.picture(this.window, w, h, changed) : null;
    const coded = map.coded ?? part?.coded;
    if (!coded) return null;
    const key = [...Object.values(this.window), w, h].join(" ");
    if (this.painted?.key !== key || this.painted.from !== coded) {
      const picture = part ?? { coded, keys: map.keys, queries: map.queries };
      const window_ = part ? windowInPicture(part, this.window) : this.window;
      this.painted = { key, from: coded, image: paintMap(picture, window_, w, h) };
    }
    return this.painted.image;
  }

  /**
   * Axis titles, tokens along both axes.
   * @param {CanvasRenderingContext2D} context
   * @param {HeadMap} map
   */
  drawFrame(context, map) {
    const { window: w, width, height, labels, type, unit } = this;
    const [cellWidth, cellHeight] = [width / w.w, height / w.h];
    context.strokeStyle = themeColor("--line");
    context.strokeRect(labels - 0.5, labels - 0.5, width + 1, height + 1);
    context.font = `600 ${12 * type}px ${FONT}`;
    context.fillStyle = themeColor("--ink");
    context.textBaseline = "middle";
    context.textAlign = "center";
    context.fillText(width < 180 * type ? "key" : `key: the ${unit} looked at`, labels + width / 2, 8 * type);
    const query = height < 180 * type ? "query" : `query: the ${unit} that looks`;
    fillVertical(context, query, 8 * type, labels + height / 2);
    context.textAlign = "right";
    const label = (/** @type {string} */ token, /** @type {boolean} */ special, /** @type {boolean} */ marked) => {
      context.fillStyle = themeColor(marked ? "--ink" : special ? "--faint" : "--dim");
      context.font = `${marked ? "600 " : ""}${11 * type}px ${FONT}`;
      return fit(context, token, labels - (TITLE + 8) * type);
    };
    const rowStep = Math.max(1, Math.ceil((type * LABEL_STEP) / cellHeight));
    for (let i = Math.ceil(w.y / rowStep - 1e-9) * rowStep; i < Math.min(map.queries, w.y + w.h); i += rowStep) {
      const y = labels + (i + 0.5 - w.y) * cellHeight;
      if (y < labels + 2 || y > labels + height - 2) continue;
      context.fillText(label(map.rows.shown[i], map.rows.special[i], i === this.mark.row), labels - 6, y);
    }
    context.textAlign = "left";
    const columnStep = Math.max(1, Math.ceil((type * LABEL_STEP) / cellWidth));
    for (let j = Math.ceil(w.x / columnStep - 1e-9) * columnStep; j < Math.min(map.keys, w.x + w.w); j += columnStep) {
      const x = labels + (j + 0.5 - w.x) * cellWidth;
      if (x < labels + 2 || x > labels + width - 2) continue;
      const text = label(map.columns.shown[j], map.columns.special[j], j === this.mark.column);
      fillVertical(context, text, x, labels - 6);
    }
  }

  /** @param {CanvasRenderingContext2D} context */
  drawMarks(context) {
    const { window: w, width, height, labels } = this;
    const { row, column } = this.mark;
    const [cellWidth, cellHeight] = [width / w.w, height / w.h];
    context.save();
    context.beginPath();
    context.rect(labels, labels, width, height);
    context.clip();
    context.strokeStyle = themeColor("--mark");
    context.lineWidth = 1.5;
    if (row !== null) {
      context.strokeRect(labels - 2, labels + (row - w.y) * cellHeight, width + 4, Math.max(2, cellHeight));
    }
    if (column !== null) {
      context.strokeRect(labels + (column - w.x) * cellWidth, labels - 2, Math.max(2, cellWidth), height + 4);
    }
    context.restore();
  }

  savePng() {
    const { map } = this;
    if (!map) return;
    const copy = el("canvas", { width: this.canvas.width, height: this.canvas.height });
    const context = contextOf(copy);
    context.fillStyle = themeColor("--paper");
    context.fillRect(0, 0, copy.width, copy.height);
    context.drawImage(this.canvas, 0, 0);
    copy.toBlob((blob) => blob && saveFile(blob, `${map.name}.png`));
  }
}

/**
 * A token shortened to some pixels.
 * @param {CanvasRenderingContext2D} context
 * @param {string} token
 * @param {number} room
 */
function fit(context, token, room) {
  let text = shorten(token, 18);
  while (text.length > 2 && context.measureText(text).width > room) {
    text = `${Array.from(text).slice(0, -2).join("")}…`;
  }
  return text;
}
