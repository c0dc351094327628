/** The map of the chosen head, with the trained model and with the switches. */

import { el } from "../dom.js";
import { formatFraction } from "../format.js";
import { HeadMap } from "../head_map.js";
import { help } from "../help.js";
import { MapView } from "../map_view.js";

/**
 * @typedef {import("./session.js").Session} Session
 * @typedef {import("./session.js").Which} Which
 */

export class MapPanes {
  /**
   * @param {Session} session
   * @param {(token: number) => void} choose
   */
  constructor(session, choose) {
    this.session = session;
    this.title = el("h2", {});
    this.said = el("p", { class: "cellnote" });
    this.panes = /** @type {Which[]} */ (["before", "after"]).map((which) => {
      const view = new MapView({
        point: (cell) => this.say(which, cell),
        pick: ([query]) => choose(query),
        drawn: () => {},
      });
      const name = el("h3", {});
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

  update() {
    const { session } = this;
    const { changed, headName, token } = session;
    this.title.textContent = `Where ${headName} looks`;
    const sequence = {
      shown: session.tokens.map((_, i) => session.word(i)),
      joined_to_previous: session.tokens.map(() => false),
      special: session.tokens.map((_, i) => session.data.special.includes(session.word(i))),
    };
    for (const { which, view, name, box } of this.panes) {
      const shown = which === "before" || changed;
      box.hidden = !shown;
      name.textContent = which === "after" ? "with your switches" : "trained model";
      if (!shown) continue;
      view.show(this.map(which, sequence));
      const label = `Attention map of ${headName}, ${name.textContent}. The computation below has its rows as numbers.`;
      view.canvas.setAttribute("aria-label", label);
      view.mark = { row: token, column: null };
      view.draw();
    }
    this.say("after", null);
  }

  /**
   * @param {Which} which
   * @param {import("../types.js").Sequence} sequence
   */
  map(which, sequence) {
    const { layer, head, headName } = this.session;
    const n = sequence.shown.length;
    const text = {
      name: "",
      note: "",
      window: /** @type {[number, number]} */ ([1, 1]),
      source: 0,
      sequences: [sequence],
    };
    const shape = { label: "", queries: n, keys: n, rows: 0, columns: 0, norms: null, heads: [] };
    const map = new HeadMap(headName, { ...text, layers: [], lengths: "v" }, shape);
    const weights = this.session.run(which).layers[layer].weights[head];
    map.coded = Uint8Array.from(weights, (weight) => 255 * Math.sqrt(weight) + 0.5);
    return map;
  }

  /**
   * @param {Which} which
   * @param {[number, number] | null} cell
   */
  say(which, cell) {
    const { session } = this;
    if (!cell || cell[1] > cell[0]) {
      this.said.textContent = cell
        ? "A word cannot look at later words."
        : "Point at a square to read its weight; click it to choose its row.";
      return;
    }
    const weight = session.row(which, session.headName, cell[0])[cell[1]];
    const [query, key] = cell.map((token) => `“${session.word(token)}”`);
    this.said.textContent = `${query} looks at ${key} with weight ${formatFraction(weight)}`;
  }

  resize() {
    this.update();
  }
}
