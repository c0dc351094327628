/** The map of the chosen head, with the trained model and with the switches, and how to read it. */

import { formatFraction } from "../format.js";
import { HeadMap } from "../head_map.js";
import { MapPair } from "../map_pair.js";
import { MapGuide } from "./map_guide.js";
import { nameOf } from "./settings.js";

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
    this.pair = new MapPair(choose, (which, cell) => this.read(which, cell), "trained model", "word");
    this.guide = new MapGuide();
    this.box = this.pair.box;
    this.box.querySelector(".panes")?.append(this.guide.box);
  }

  update() {
    const { changed, headName, token } = this.session;
    const maps = { before: this.map("before"), after: changed ? this.map("after") : null };
    this.guide.box.hidden = changed; // its place is that of the second map
    this.guide.draw();
    this.pair.update(headName, token, maps, "The computation below has its rows as numbers.");
  }

  /**
   * @param {Which} which
   * @param {number} [layer]
   * @param {number} [head]
   */
  map(which, layer = this.session.layer, head = this.session.head) {
    const { session } = this;
    const sequence = {
      shown: session.tokens.map((_, i) => session.word(i)),
      joined_to_previous: session.tokens.map(() => false),
      special: session.tokens.map((_, i) => session.data.special.includes(session.word(i))),
    };
    return HeadMap.fromWeights(nameOf(layer, head), sequence, session.run(which).layers[layer].weights[head]);
  }

  /**
   * The map of any head, with the switches.
   * @param {number} layer
   * @param {number} head
   */
  picture(layer, head) {
    const n = this.session.tokens.length;
    return { coded: this.map("after", layer, head).coded ?? new Uint8Array(n * n), queries: n, keys: n };
  }

  /**
   * @param {Which} which
   * @param {[number, number]} cell
   */
  read(which, cell) {
    const { session } = this;
    if (cell[1] > cell[0]) return "A word cannot look at later words.";
    const weight = session.row(which, session.headName, cell[0])[cell[1]];
    const [query, key] = cell.map((token) => `“${session.word(token)}”`);
    return `${query} looks at ${key} with weight ${formatFraction(weight)}`;
  }

  resize() {
    this.update();
  }
}
