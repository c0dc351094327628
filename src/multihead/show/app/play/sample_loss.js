/** The mean loss over the sample texts with some switches, computed a text at a time so that the page stays quick. */

import { loss } from "./model.js";
import { copy, keyOf } from "./settings.js";

/** @typedef {import("./session.js").Session} Session */

const pause = () => new Promise((resolve) => setTimeout(resolve));

export class SampleLoss {
  /**
   * @param {Session} session
   * @param {() => void} done called after each measurement
   * @param {() => import("./model.js").Settings[]} more settings to measure after the present ones
   */
  constructor(session, done, more) {
    this.session = session;
    this.done = done;
    this.more = more;
    this.turn = 0;
    const { tokenizer, data } = session;
    this.texts = data.samples.map((text) => tokenizer.read(text).map(({ id }) => id));
  }

  /** Measure the trained model, the present switches and the settings after them, where that is not yet done. */
  async measure() {
    const { session } = this;
    this.turn += 1;
    const mine = this.turn;
    for (const settings of [undefined, copy(session.settings), ...this.more()]) {
      const key = settings ? keyOf(settings) : "";
      if (session.losses.has(key)) continue;
      let [sum, count] = [0, 0];
      for (const ids of this.texts) {
        await pause();
        if (mine !== this.turn) return; // the switches have changed meanwhile
        sum += loss(session.model.run(ids, settings)) * (ids.length - 1);
        count += ids.length - 1;
      }
      session.losses.set(key, sum / count);
      this.done();
    }
  }
}
