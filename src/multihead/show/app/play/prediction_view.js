/** The next word after the chosen one, before and after the switches, and the words whose prediction changes. */

import { el } from "../dom.js";
import { help } from "../help.js";
import { fillChanges, guessRows } from "../prediction_bars.js";

/** @typedef {import("./session.js").Session} Session */

const SHOWN = 8;

export class PredictionView {
  /**
   * @param {Session} session
   * @param {(token: number) => void} choose
   */
  constructor(session, choose) {
    this.session = session;
    this.choose = choose;
    this.title = el("h2", {});
    this.bars = el("div", { class: "predictions" });
    this.list = el("div", { class: "changes" });
    this.box = el(
      "section",
      { class: "prediction", "aria-label": "next word" },
      el("div", { class: "inputtop" }, this.title, help("next word")),
      this.bars,
      this.list,
    );
  }

  update() {
    const { session } = this;
    const { words } = session.data;
    const at = session.token * words.length;
    const [before, after] = [session.before, session.after].map((run) =>
      run.probabilities.subarray(at, at + words.length),
    );
    const order = words
      .map((_, id) => id)
      .sort((a, b) => Math.max(before[b], after[b]) - Math.max(before[a], after[a]));
    const actual = session.tokens[session.token + 1]?.id;
    const shown = order.slice(0, SHOWN);
    if (actual !== undefined && !shown.includes(actual)) shown[SHOWN - 1] = actual;
    this.title.textContent = `Next word after “${session.word(session.token)}”`;
    const guesses = shown.map((id) => ({
      word: words[id],
      before: before[id],
      after: after[id],
      actual: id === actual,
    }));
    this.bars.replaceChildren(...guessRows(guesses, session.changed));
    this.drawChanges();
  }

  drawChanges() {
    const { session } = this;
    if (!session.changed) {
      this.list.replaceChildren();
      return;
    }
    const found = session.changedGuesses;
    const [before, after] = [session.guesses("before"), session.guesses("after")];
    const title = found.length
      ? `Likeliest next word changed after ${found.length} of ${session.tokens.length} words:`
      : "The likeliest next word is the same everywhere.";
    const { words } = session.data;
    const changes = found.map((token) => ({
      token,
      text: `${session.word(token)}: ${words[before[token]]} → ${words[after[token]]}`,
    }));
    fillChanges(this.list, title, changes, this.choose);
  }
}
