/** The next word after the chosen one, before and after the switches, and the words whose prediction changes. */

import { el } from "../dom.js";
import { formatPercent } from "../format.js";
import { help } from "../help.js";
import { refill } from "./refill.js";

/** @typedef {import("./session.js").Session} Session */

const SHOWN = 8;
const LISTED = 24;

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
    const changed = session.changed;
    const rows = shown.map((id) =>
      el(
        "div",
        { class: id === actual ? "guess actual" : "guess", "data-word": words[id] },
        el("span", { class: "guessed" }, words[id], id === actual ? el("small", {}, " (in the text)") : null),
        el("span", { class: "barpair" }, bar("before", before[id]), changed ? bar("after", after[id]) : null),
        el("span", { class: "chance" }, chance(before[id]), changed ? el("b", {}, chance(after[id])) : null),
      ),
    );
    const legend = el(
      "p",
      { class: "dim legendline" },
      el("span", { class: "swatch before" }),
      changed ? " trained model " : " trained model: no switch is changed",
      changed ? el("span", { class: "swatch after" }) : null,
      changed ? " with your switches" : null,
    );
    this.bars.replaceChildren(...rows, legend);
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
    const buttons = found.slice(0, LISTED).map((token) => {
      const { words } = session.data;
      const text = `${session.word(token)}: ${words[before[token]]} → ${words[after[token]]}`;
      return el("button", { type: "button", class: "suggestion", onclick: () => this.choose(token) }, text);
    });
    const more = found.length > LISTED ? el("span", { class: "dim" }, ` and ${found.length - LISTED} more`) : null;
    refill(this.list, el("p", {}, title), ...buttons, more ?? "");
  }
}

/** @param {number} share */
const chance = (share) => (share < 0.001 ? "< 0.1\u00a0%" : formatPercent(share, share < 0.01 ? 1 : 2));

/**
 * @param {string} name
 * @param {number} share
 */
function bar(name, share) {
  const element = el("span", { class: `bar ${name}` });
  element.style.width = `${Math.max(0.5, 100 * share)}%`;
  return element;
}
