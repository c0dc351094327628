/** Two maps of one head side by side: with the unchanged model, and with the switches. */

import { el } from "./dom.js";
import { help } from "./help.js";
import { MapView } from "./map_view.js";

/**
 * @typedef {import("./head_map.js").HeadMap} HeadMap
 * @typedef {"before" | "after"} Which the unchanged model, or the one with the present switches
 */

/** @type {Which[]} */
const BOTH = ["before", "after"];

const POINT = "Point at a square to read its weight; click it to choose its row.";
const LATER = " Switching a head off changes the maps of later layers, not its own.";

export class MapPair {
  /**
   * @param {(token: number) => void} choose a row
   * @param {(which: Which, cell: [number, number]) => string} read a cell in words
   * @param {string} [model] what the map before is of
   * @param {string} [unit] what the axes call a token
   */
  constructor(choose, read, model = "trained model", unit = "token") {
    this.read = read;
    this.names = { before: model, after: "with your switches" };
    this.title = el("h2", {});
    this.hint = POINT;
    this.said = el("p", { class: "cellnote" });
    this.panes = BOTH.map((which) => {
      const point = (/** @type {[number, number] | null} */ cell) => this.say(which, cell);
      const view = new MapView({ point, pick: ([query]) => choose(query), drawn: () => {} }, unit);
      const name = el("h3", {}, this.names[which]);
      return { which, view, name, box: el("div", { class: "pane" }, name, view.box) };
    });
    const [before, after] = this.panes;
    this.box = el(
      "section",
      { class: "maps" },
      el("div", { class: "inputtop" }, this.title, help("attention map")),
      el("div", { class: "panes" }, before.box, after.box),
      this.said,
    );
  }

  /**
   * @param {string} head
   * @param {number | null} token the row that is outlined
   * @param {Record<Which, HeadMap | null>} maps
   * @param {string} elsewhere where the numbers of the maps are, for those who do not see them
   */
  update(head, token, maps, elsewhere) {
    this.title.textContent = `Where ${head} looks`;
    this.hint = maps.after ? POINT + LATER : POINT;
    for (const { which, view, box } of this.panes) {
      const map = maps[which];
      box.hidden = !map;
      if (!map) continue;
      view.show(map);
      view.canvas.setAttribute("aria-label", `Attention map of ${head}, ${this.names[which]}. ${elsewhere}`);
      view.mark = { row: token, column: null };
      view.draw();
    }
    this.say("after", null);
  }

  /**
   * @param {Which} which
   * @param {[number, number] | null} cell
   */
  say(which, cell) {
    this.said.textContent = cell ? this.read(which, cell) : this.hint;
  }
}
