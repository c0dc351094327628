/** The grid of heads with a switch and a slider each. It draws settings and reports changes; it computes nothing. */

import { contextOf, sizeCanvas, typeScale } from "../canvas.js";
import { el } from "../dom.js";
import { formatFraction } from "../format.js";
import { help } from "../help.js";
import { paintMap } from "../map_image.js";
import { kindColor } from "../palettes.js";
import { PATTERNS } from "./model.js";
import { kvChoices } from "./settings.js";

/**
 * @typedef {import("./model.js").Settings} Settings
 * @typedef {import("./model.js").Pattern} Pattern
 *
 * @typedef {object} GridHead
 * @property {string} name
 * @property {string} [shown] the name without the part that the title of its layer has
 * @property {string} [kind]
 * @property {string} [label] what is written below the name; default: the kind
 * @property {string} [meaning] what a head of the kind does
 *
 * @typedef {object} Handlers a switch that the caller does not have is not drawn
 * @property {(layer: number, head: number) => void} select
 * @property {(layer: number, head: number, scale: number, slider: boolean) => void} scale `slider`: by the slider
 * @property {() => void} [settle] the slider is released
 * @property {(layer: number, head: number, pattern: Pattern | null) => void} [pattern]
 * @property {(layer: number, merged: boolean) => void} [merge]
 * @property {(layer: number, kvHeads: number) => void} [share]
 */

const THUMB = 44; // pixels where the type has its usual size

/** @type {Record<Pattern, string>} */
const PATTERN_LABELS = { uniform: "all words equally", previous: "previous word", first: "first word" };

export class HeadSwitches {
  /**
   * @param {GridHead[][]} layers
   * @param {Handlers} handlers
   * @param {(layer: number) => string} [title] of a layer
   */
  constructor(layers, handlers, title = (layer) => `Layer ${layer}`) {
    this.layers = layers;
    this.title = title;
    this.handlers = handlers;
    this.cells = layers.map((heads, layer) => heads.map((head, h) => this.cell(head, layer, h)));
    this.bars = layers.map((heads, layer) => this.bar(layer, heads.length));
    this.pattern = el("select", { "aria-label": "where the chosen head looks" });
    this.pattern.append(
      el("option", { value: "" }, "as it was trained"),
      ...PATTERNS.map((one) => el("option", { value: one }, PATTERN_LABELS[one])),
    );
    this.pattern.addEventListener("change", () => {
      const chosen = PATTERNS.find((one) => one === this.pattern.value) ?? null;
      handlers.pattern?.(this.at[0], this.at[1], chosen);
    });
    this.patternName = el("span", {});
    const detail = el("div", { class: "choice detail" }, el("label", {}, this.patternName, this.pattern));
    detail.append(help("pattern by hand"));
    const rows = layers.map((heads, layer) => {
      const grid = el("div", { class: "switchrow" }, ...this.cells[layer].map(({ box }) => box));
      grid.style.setProperty("--heads", String(heads.length));
      return el("div", { class: "switchlayer" }, this.bars[layer].box, grid);
    });
    this.box = el("div", { class: "switches" }, ...rows, handlers.pattern ? detail : null);
    this.kinds = kindLegend(layers.flat());
    /** The chosen head. @type {[number, number]} */
    this.at = [0, 0];
  }

  /**
   * @param {GridHead} head
   * @param {number} layer
   * @param {number} number
   */
  cell({ name, shown, kind, label }, layer, number) {
    const dot = el("span", { class: "dot" });
    if (kind) dot.style.backgroundColor = kindColor(kind);
    const thumb = el("canvas", { class: "thumb", "aria-hidden": "true", hidden: true });
    const choose = el(
      "button",
      { type: "button", class: "headname", "data-head": name, onclick: () => this.handlers.select(layer, number) },
      thumb,
      el("b", {}, dot, shown ?? name),
      kind ? el("small", {}, label ?? kind) : null,
    );
    const on = el("input", { type: "checkbox", "aria-label": `${name} on`, "data-switch": name });
    on.addEventListener("change", () => this.handlers.scale(layer, number, on.checked ? 1 : 0, false));
    const slider = el("input", {
      ...{ type: "range", min: 0, max: 1, step: 0.05, "aria-label": `strength of ${name}`, "data-scale": name },
      oninput: () => {
        value.textContent = formatFraction(Number(slider.value));
        this.handlers.scale(layer, number, Number(slider.value), true);
      },
      onchange: () => this.handlers.settle?.(),
    });
    const value = el("span", { class: "strength" });
    const box = el("div", { class: "switch" }, choose, el("div", { class: "dial" }, on, slider, value));
    return { box, thumb, choose, on, slider, value };
  }

  /**
   * What is switched for a layer as a whole.
   * @param {number} layer
   * @param {number} heads
   */
  bar(layer, heads) {
    const title = this.title(layer);
    const merge = el("input", { type: "checkbox", "data-merge": layer, "aria-label": `one head in ${title}` });
    merge.addEventListener("change", () => this.handlers.merge?.(layer, merge.checked));
    const share = el("select", { "data-share": layer, "aria-label": `keys/values of ${title}` });
    for (const count of kvChoices(heads)) share.append(el("option", { value: count }, String(count)));
    share.addEventListener("change", () => this.handlers.share?.(layer, Number(share.value)));
    const first = layer === 0; // one "?" is enough
    const box = el(
      "div",
      { class: "layerbar" },
      el("b", {}, title),
      this.handlers.merge
        ? el(
            "span",
            { class: "toggle" },
            el("label", {}, merge, el("span", {}, "one head")),
            first ? help("one head") : null,
          )
        : null,
      this.handlers.share
        ? el(
            "span",
            { class: "choice" },
            el("label", {}, el("span", {}, "keys/values"), share),
            first ? help("keys/values") : null,
          )
        : null,
    );
    return { box, merge, share };
  }

  /**
   * @param {Settings} settings
   * @param {number} layer the chosen head
   * @param {number} head
   */
  update(settings, layer, head) {
    this.at = [layer, head];
    this.cells.forEach((cells, l) =>
      cells.forEach(({ box, choose, on, slider, value }, h) => {
        const { scale, pattern } = settings[l].heads[h];
        on.checked = scale > 0;
        slider.value = String(scale);
        value.textContent = pattern ? PATTERN_LABELS[pattern] : formatFraction(scale);
        box.classList.toggle("isoff", scale === 0);
        box.classList.toggle("changed", scale !== 1 || pattern !== null);
        choose.setAttribute("aria-pressed", String(l === layer && h === head));
      }),
    );
    this.bars.forEach(({ merge, share }, l) => {
      merge.checked = settings[l].merged;
      share.value = String(settings[l].kvHeads);
    });
    this.pattern.value = settings[layer].heads[head].pattern ?? "";
    this.pattern.disabled = settings[layer].merged;
    this.patternName.textContent = `${this.layers[layer][head].name} looks`;
  }

  /**
   * A small map in the cell of every head.
   * @param {(layer: number, head: number) => import("../head_map.js").Picture} mapOf
   */
  drawMaps(mapOf) {
    const side = Math.round(THUMB * typeScale());
    this.cells.forEach((cells, layer) =>
      cells.forEach(({ thumb }, head) => {
        const map = mapOf(layer, head);
        thumb.hidden = false;
        sizeCanvas(thumb, side, side);
        const window_ = { x: 0, y: 0, w: map.keys, h: map.queries };
        contextOf(thumb).putImageData(paintMap(map, window_, thumb.width, thumb.height), 0, 0);
      }),
    );
  }
}

/**
 * The kinds of the heads, each with a "?" that says what a head of this kind does.
 * @param {GridHead[]} heads
 */
function kindLegend(heads) {
  /** @type {Map<string, GridHead>} */
  const first = new Map();
  for (const head of heads) if (head.kind && !first.has(head.kind)) first.set(head.kind, head);
  const keys = [...first].map(([kind, { meaning }]) => {
    const dot = el("span", { class: "dot" });
    dot.style.backgroundColor = kindColor(kind);
    return el("span", { class: "kindkey" }, dot, kind, " ", help(kind, meaning));
  });
  const title = el("span", { class: "dim" }, "Kinds ", help("kind"));
  return keys.length ? el("p", { class: "kindkeys" }, title, ...keys) : null;
}
