/** One head: its map, the text, and the panel of what is known of it. */

import { go, indexIn, replace } from "./address.js";
import { colorBar, typeScale } from "./canvas.js";
import { charts } from "./charts.js";
import { choice, el, nextFrame, rest, toggle } from "./dom.js";
import { formatFraction, sentence, shorten } from "./format.js";
import { kindText } from "./grid.js";
import { HeadPanel, pairPanel } from "./head_panel.js";
import { headTop } from "./head_top.js";
import { help } from "./help.js";
import { LayerStrip } from "./layer_strip.js";
import { drawProfile } from "./map_image.js";
import { MapView } from "./map_view.js";
import { loadMap, loadWeights } from "./maps.js";
import { shade, weightRamp } from "./palettes.js";
import { RemoteMap } from "./remote_map.js";
import { ARROWS, indexOf, neighbour, places, report, textIn as textOfColumn } from "./report.js";
import { textChoice, textIn } from "./text_choice.js";
import { TokenText, strongest } from "./token_text.js";

/**
 * @typedef {import("./types.js").State} State
 * @typedef {import("./head_map.js").HeadMap} HeadMap
 *
 * @typedef {object} Pane one map with its controls
 * @property {number} head
 * @property {HeadMap | null} map
 * @property {MapView} view
 * @property {HTMLCanvasElement} profile
 * @property {HTMLElement} note
 * @property {HTMLElement} box
 */

/** The two directions of the address. */
export const LOOKS = "looks";
export const SEEN = "seen";

const LARGEST_AHEAD = 1e6; // cells of a map up to which the neighbours are computed ahead
const LATE = 80; // milliseconds after which the map of the previous head is cleared
const SCALE = 160; // pixels of the colour bar where the type has its usual size
const RESTING = 70; // milliseconds that the pointer rests before a row is asked of the server

/**
 * @param {State} state
 * @param {number} head
 * @returns {import("./types.js").View}
 */
export function headView(state, head) {
  const second = state.second === undefined ? undefined : indexOf.get(state.second);
  const scene = new HeadScene(state, head, second ?? null);
  return {
    element: scene.element,
    start: () => scene.start(),
    resize: () => scene.paint(),
    stop: () => scene.stop(),
    moveTo: (next, to) => scene.moveTo(next, to),
  };
}

/**
 * All options of an address except the head and the token.
 * @param {State} state
 */
function viewOptions(state) {
  const { stack: _stack, layer: _layer, head: _head, row: _row, ...options } = state;
  return JSON.stringify(options);
}

class HeadScene {
  /**
   * @param {State} state
   * @param {number} head
   * @param {number | null} second
   */
  constructor(state, head, second) {
    this.state = state;
    this.head = head;
    this.previous = head;
    this.second = second;
    this.text = textIn(state);
    this.looks = state.dir !== SEEN;
    this.live = true;
    this.turn = 0;
    /** The token that was clicked. @type {number | null} */
    this.pinned = null;
    /** The token whose weights are shown: under the pointer, else the pinned one. @type {number | null} */
    this.token = null;
    /** The cell under the pointer. @type {[number, number] | null} */
    this.cell = null;
    this.timer = 0;
    /** @type {{rows: TokenText, columns: TokenText} | null} the same object twice where queries are the keys */
    this.texts = null;
    this.spoken = el("p", { class: "said" });
    this.panes = (second === null ? [head] : [head, second]).map((one) => this.makePane(one));
    this.textSide = el("div", { class: "textside" });
    this.panel = second === null ? new HeadPanel(head) : null;
    this.top = headTop(head, second);
    this.strip = new LayerStrip(head, this.text);
    this.compare = this.compareControl();
    const side = this.panel?.element ?? pairPanel(head, /** @type {number} */ (second));
    const panes = el("div", { class: "panes" }, this.panes.map((pane) => pane.box));
    const main = el("div", { class: "mapside" }, this.controls(), panes, this.textSide);
    const scene = el("div", { class: second === null ? "scene" : "scene both" }, main, side);
    this.element = el("div", { class: "headview" }, this.top, scene, this.strip.element);
  }

  /**
   * @param {number} head
   * @returns {Pane}
   */
  makePane(head) {
    const note = el("p", { class: "cellnote" });
    const profile = el("canvas", { class: "profile", "aria-hidden": "true" });
    const view = new MapView({
      point: (cell) => {
        this.cell = cell;
        this.aim(cell && cell[this.looks ? 0 : 1]);
      },
      pick: (cell) => this.pin(cell[this.looks ? 0 : 1]),
      drawn: () => this.drawProfiles(),
    });
    const button = (/** @type {string} */ text, /** @type {() => void} */ onclick, /** @type {string} */ label) =>
      el("button", { type: "button", "aria-label": label, onclick }, text);
    const zoom = el("div", { class: "zoom" });
    zoom.append(
      button("+", () => view.zoom(1.6), "Zoom in"),
      button("−", () => view.zoom(1 / 1.6), "Zoom out"),
      button("Whole map", () => view.showAll(), "Whole map"),
      button("PNG", () => view.savePng(), "Download the map as PNG"),
    );
    const name = this.second === null ? null : el("h3", {}, `${report.heads[head]} `, el("small", {}, kindText(head)));
    const under = el("div", { class: "under" }, weightBar(), zoom, note);
    return { head, map: null, view, profile, note, box: el("div", { class: "pane" }, name, view.box, profile, under) };
  }

  /** The choice of a second head. */
  compareControl() {
    const similar = textOfColumn("most_similar", this.head);
    const { site } = places[this.head];
    const names = report.heads.filter((name, i) => places[i].site === site && name !== report.heads[this.head]);
    const options = [...new Set([similar, ...names])].filter(Boolean).map((value) => el("option", { value }));
    const input = el("input", {
      list: "others",
      placeholder: similar ? `e.g. ${similar}` : "head",
      size: "9",
      "aria-label": "Compare with head",
      autocomplete: "off",
      onchange: () => {
        const name = input.value.trim();
        go({ second: indexOf.has(name) ? name : undefined });
      },
    });
    input.value = this.state.second ?? "";
    const label = el("label", {}, el("span", {}, "Compare with"), input);
    return el("div", { class: "choice" }, label, el("datalist", { id: "others" }, options));
  }

  controls() {
    const { norm, hide } = this.state;
    return el("div", { class: "controls" }, textChoice(this.text), this.compare,
      toggle("norm-weighted", norm === "1", (on) => go({ norm: on ? "1" : undefined }), help("norm-weighted")),
      toggle("hide delimiters", hide === "1", (on) => go({ hide: on ? "1" : undefined }), help("hide delimiters")));
  }

  async start() {
    const maps = await Promise.all(this.panes.map((pane) => loadMap(this.text, pane.head))).catch(() => [null]);
    if (this.live) this.showMaps(maps);
  }

  /**
   * Show another head in place: the parts that are the same for both stay. Null if everything has to be made again.
   * @param {State} state
   * @param {number} head
   */
  moveTo(state, head) {
    const { map } = this.panes[0];
    const local = map !== null && !(map instanceof RemoteMap);
    const same = this.second === null && this.texts && local && viewOptions(state) === viewOptions(this.state);
    return same ? this.turnTo(state, head) : null;
  }

  /**
   * @param {State} state
   * @param {number} head
   */
  async turnTo(state, head) {
    this.state = state;
    this.previous = this.head;
    this.head = head;
    this.turn += 1;
    const { turn } = this;
    // No map is seen under the name of another head.
    const late = setTimeout(() => turn === this.turn && this.panes[0].view.clear(), LATE);
    const map = await loadMap(this.text, head).catch(() => null);
    clearTimeout(late);
    if (!this.live || turn !== this.turn) return;
    this.panes[0].head = head;
    const open = this.panel?.element.querySelector("details[open]") !== null;
    const [panel, top, compare] = [new HeadPanel(head, open), headTop(head, null), this.compareControl()];
    this.panel?.element.replaceWith(panel.element);
    this.top.replaceWith(top);
    this.compare.replaceWith(compare);
    Object.assign(this, { panel, top, compare });
    this.strip.show(head);
    this.showMaps([map]);
  }

  /** @param {(HeadMap | null)[]} maps */
  showMaps(maps) {
    const { norm, hide } = this.state;
    if (!maps[0]) {
      this.texts = null;
      const text = report.served ? "The map of this head did not arrive." : "The map of this head is not in this page.";
      this.textSide.replaceChildren(el("p", { class: "dim" }, text));
      this.panes.forEach((pane) => pane.box.remove());
      return;
    }
    this.panes.forEach((pane, n) => {
      pane.map = maps[n]?.reweighted(norm === "1", hide === "1") ?? null;
      if (pane.map) pane.view.show(pane.map);
    });
    const map = /** @type {HeadMap} */ (this.panes[0].map);
    const aimed = this.token === this.pinned ? null : this.token;
    this.pinned = indexIn(this.state.row, this.looks ? map.queries : map.keys);
    this.token = aimed ?? this.pinned;
    if (this.texts?.rows.sequence !== map.rows || this.texts.columns.sequence !== map.columns) this.makeTexts(map);
    this.paint();
    this.panel?.rows.show(maps[0]);
    if (this.second === null && !report.served && map.queries * map.keys <= LARGEST_AHEAD) this.computeAhead();
  }

  /** Compute the maps that the arrow keys lead to, one per frame: first the one where the last step leads again. */
  async computeAhead() {
    const { turn } = this;
    const steps = Object.values(ARROWS);
    const same = steps.filter((step) => neighbour(this.previous, step) === this.head);
    await rest();
    for (const step of [...same, ...steps]) {
      await nextFrame();
      if (!this.live || turn !== this.turn) return;
      await loadMap(this.text, neighbour(this.head, step)).catch(() => null);
    }
  }

  stop() {
    this.live = false;
    for (const { map } of this.panes) if (map instanceof RemoteMap) map.cancel();
  }

  /** @param {HeadMap} map */
  makeTexts(map) {
    this.token = this.pinned;
    this.cell = null;
    const make = (/** @type {import("./types.js").Sequence} */ tokens, /** @type {string} */ label) =>
      new TokenText(tokens, { hover: (i) => this.aim(i), pick: (i) => this.pin(i), label });
    const rows = make(map.rows, map.square ? "Tokens of the text" : "Tokens that look");
    const columns = map.square ? rows : make(map.columns, "Tokens that are looked at");
    this.texts = { rows, columns };
    const title = this.second === null ? "Text" : `Text, as ${report.heads[this.head]} reads it`;
    const { note } = report.texts[this.text];
    this.textSide.replaceChildren(
      el("div", { class: "texttop" }, el("h3", {}, title), this.directionControl()),
      note ? el("p", { class: "dim" }, sentence(note)) : "",
      ...new Set([rows.box, columns.box]),
      this.spoken,
    );
  }

  directionControl() {
    const radio = (/** @type {string} */ key, /** @type {string} */ text) => {
      const change = () => go({ dir: key === LOOKS ? undefined : key });
      const input = el("input", { type: "radio", name: "way", value: key, onchange: change });
      input.checked = (key === LOOKS) === this.looks;
      return el("label", {}, input, text);
    };
    const title = el("legend", { class: "quiet" }, "Direction");
    const radios = [radio(LOOKS, "where a token looks"), radio(SEEN, "who looks at a token")];
    return el("fieldset", { class: "way" }, title, radios, help("direction"));
  }

  /** @param {number | null} token the one under the pointer */
  aim(token) {
    this.token = token ?? this.pinned;
    this.paint();
  }

  /** @param {number} token */
  pin(token) {
    this.pinned = this.pinned === token ? null : token;
    this.token = this.pinned;
    replace({ row: this.pinned === null ? undefined : String(token) });
    this.paint();
  }

  paint() {
    const { texts, token, looks } = this;
    const map = this.panes[0].map;
    if (!texts || !map) return;
    for (const pane of this.panes) {
      if (!pane.map) continue;
      pane.view.mark = looks ? { row: token, column: null } : { row: null, column: token };
      pane.view.draw();
      pane.note.textContent = this.cellText(pane.map);
    }
    const weights = token === null ? null : map.weights(looks, token);
    if (token !== null && !weights) this.fetchWeights(token);
    const [from, to] = looks ? [texts.rows, texts.columns] : [texts.columns, texts.rows];
    if (from === to) from.paint(weights, token);
    else {
      from.paint(null, token);
      to.paint(weights, null);
    }
    this.spoken.textContent = this.tokenText(map, weights);
  }

  /**
   * Ask for the weights of a token, once the pointer rests, and paint them when they arrive.
   * @param {number} token
   */
  fetchWeights(token) {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(async () => {
      if (!this.live || token !== this.token) return;
      const load = this.panes.map(({ map }) => map && loadWeights(map, this.looks, token));
      await Promise.all(load).catch(() => {});
      if (this.live && token === this.token && this.panes[0].map?.weights(this.looks, token)) this.paint();
    }, this.pinned === token ? 0 : RESTING);
  }

  /** @param {HeadMap} map */
  cellText(map) {
    if (!this.cell) return "\u00a0";
    const [i, j] = this.cell;
    const weights = map.weights(true, i);
    if (!weights) return "\u00a0";
    return `“${shorten(map.rows.shown[i], 16)}” → “${shorten(map.columns.shown[j], 16)}” ${weights[j].toFixed(3)}`;
  }

  /**
   * @param {HeadMap} map
   * @param {Float32Array | null} weights
   */
  tokenText(map, weights) {
    if (this.token === null) return "Point at a token, in the text or on the map; click to keep it.";
    const [from, to] = this.looks ? [map.rows, map.columns] : [map.columns, map.rows];
    const name = `“${shorten(from.shown[this.token], 24)}”, token ${this.token}`;
    if (!weights) return `${name}: loading …`;
    const part = (/** @type {number} */ j) => `“${shorten(to.shown[j], 16)}” ${formatFraction(weights[j])}`;
    const parts = strongest(weights, 6, 0.005).map(part).join(", ") || "no token with much weight";
    return `${name}, ${this.looks ? "looks at" : "is looked at by"} ${parts}`;
  }

  drawProfiles() {
    for (const { map, view, profile } of this.panes) {
      const weights = this.token === null || !this.looks ? null : (map?.weights(true, this.token) ?? null);
      profile.style.visibility = weights ? "visible" : "hidden"; // its place stays, so nothing moves
      if (weights) drawProfile(profile, weights, view.place);
    }
  }
}

/** The colours of the map, with the scale that they follow. */
function weightBar() {
  const bar = colorBar((level) => shade(weightRamp(), level), SCALE * typeScale());
  const ticks = [0, 0.1, 0.25, 0.5, 1].map((weight) => {
    const tick = el("span", {}, String(weight));
    tick.style.left = `${100 * weight ** charts.weight_exponent}%`;
    return tick;
  });
  const scale = el("div", { class: "scale" }, bar, el("div", { class: "ticks", "aria-hidden": "true" }, ticks));
  const text = el("span", {}, "attention weight, square-root scale ", help("weight"));
  return el("div", { class: "weightbar" }, scale, text, el("span", {}, "reading the map ", help("attention map")));
}

/** The choice of a direction, for other views. @param {boolean} looks */
export const directionChoice = (looks) =>
  choice("Show", [[LOOKS, "where the token looks"], [SEEN, "who looks at the token"]], looks ? LOOKS : SEEN,
    (dir) => go({ dir: dir === LOOKS ? undefined : dir }), help("direction"));
