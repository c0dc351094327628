/** The map of the chosen head, with the trained model and with the switches. */

import { formatFraction } from "../format.js";
import { HeadMap } from "../head_map.js";
import { MapPair } from "../map_pair.js";

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
    this.pair = new MapPair(choose, (which, cell) => this.read(which, cell));
    this.box = this.pair.box;
  }

  update() {
    const { changed, headName, token } = this.session;
    const maps = { before: this.map("before"), after: changed ? this.map("after") : null };
    this.pair.update(headName, token, maps, "The computation below has its rows as numbers.");
  }

  /** @param {Which} which */
  map(which) {
    const { session } = this;
    const { layer, head, headName } = session;
    const sequence = {
      shown: session.tokens.map((_, i) => session.word(i)),
      joined_to_previous: session.tokens.map(() => false),
      special: session.tokens.map((_, i) => session.data.special.includes(session.word(i))),
    };
    return HeadMap.fromWeights(headName, sequence, session.run(which).layers[layer].weights[head]);
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
