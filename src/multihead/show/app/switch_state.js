/** The scale of every head of a served model, in the address, with the steps that led there. */

import { indexOf, places, report } from "./report.js";

/** @typedef {import("./play/model.js").Settings} Settings */

const UNDO_STEPS = 200;

/** "L0H1:0,L2H3:0.5"; whatever is not valid is ignored. @param {string} text */
function scalesIn(text) {
  /** @type {Map<number, number>} */
  const scales = new Map();
  for (const pair of text.split(",")) {
    const [name, value] = pair.split(":");
    const [head, scale] = [indexOf.get(name), Number(value)];
    if (head !== undefined && value && scale >= 0 && scale < 1) scales.set(head, scale);
  }
  return scales;
}

/** Switches of the whole visit: another text or view does not forget them. */
export class SwitchState {
  constructor() {
    /** Heads that are not at 1. @type {Map<number, number>} */
    this.scales = new Map();
    /** @type {Map<number, number>[]} */
    this.past = [];
  }

  /** @param {string | undefined} text of the address */
  restore(text) {
    if (text !== undefined && text !== this.text) this.scales = scalesIn(text);
  }

  get text() {
    return [...this.scales]
      .sort(([a], [b]) => a - b)
      .map(([head, scale]) => `${report.heads[head]}:${Number(scale.toFixed(2))}`)
      .join(",");
  }

  get byName() {
    return Object.fromEntries([...this.scales].map(([head, scale]) => [report.heads[head], scale]));
  }

  /** As the grid of switches draws them. @returns {Settings} */
  get settings() {
    /** @type {Settings} */
    const settings = report.sites.map(({ heads }) => ({ heads: [], merged: false, kvHeads: heads }));
    places.forEach(({ site }, head) =>
      settings[site].heads.push({ scale: this.scales.get(head) ?? 1, pattern: null }),
    );
    return settings;
  }

  /**
   * @param {number} head
   * @param {number} scale
   */
  set(head, scale) {
    const next = new Map(this.scales);
    next.delete(head);
    if (scale < 1) next.set(head, scale);
    this.change(next);
  }

  reset() {
    if (this.scales.size) this.change(new Map());
  }

  /** @param {Map<number, number>} next */
  change(next) {
    this.past.push(this.scales);
    if (this.past.length > UNDO_STEPS) this.past.shift();
    this.scales = next;
  }

  undo() {
    this.scales = this.past.pop() ?? this.scales;
  }
}
