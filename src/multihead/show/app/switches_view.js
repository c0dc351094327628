/** On served pages: switch heads of the model off or scale them, and see what it predicts then. */

import { headIn, headState, indexIn, replace } from "./address.js";
import { inflate } from "./blobs.js";
import { announce, el } from "./dom.js";
import { formatFraction, plural, shorten } from "./format.js";
import { kindText } from "./grid.js";
import { HeadMap } from "./head_map.js";
import { help } from "./help.js";
import { MapPair } from "./map_pair.js";
import { loadMap } from "./maps.js";
import { HeadSwitches } from "./play/switches.js";
import { bar, fillChanges, guessRows, legend } from "./prediction_bars.js";
import { column, firstOf, kindOf, places, report } from "./report.js";
import { askSwitches, isAbort } from "./server.js";
import { SwitchState } from "./switch_state.js";
import { textChoice, textIn } from "./text_choice.js";
import { TokenText } from "./token_text.js";

/**
 * @typedef {import("./types.js").SwitchAnswer} SwitchAnswer
 * @typedef {import("./types.js").State} State
 */

const RESTING = 60; // milliseconds without a change after which the model runs
const MOST_HEADS = 2048;
const DIGITS = 4; // of a cosine: one head turns a vector little
const MODEL = "unchanged model";

/** What the answer of a model means. @type {Record<SwitchAnswer["reading"], string>} */
const MEANING = {
  next: "This model predicts the next token. The bars show the likeliest tokens after the chosen one.",
  masked:
    "This model fills in hidden tokens. The chosen token is hidden from it, and the bars show what it takes it for. " +
    "For the list, every other token is hidden in turn.",
  vector:
    "This model has no prediction of words to compare: it turns a text into a vector. The cosine compares the vector " +
    "with your switches to that of the unchanged model: 1 is the same direction, 0 an unrelated one.",
};

/** Kept while other views are shown. */
const switches = new SwitchState();

/**
 * @param {State} state
 * @returns {import("./types.js").View}
 */
export function switchesView(state) {
  const scene = new SwitchScene(state);
  return {
    element: scene.element,
    start: () => scene.ask(),
    resize: () => scene.drawMaps(),
    stop: () => scene.stop(),
  };
}

class SwitchScene {
  /** @param {State} state */
  constructor(state) {
    switches.restore(state.scale);
    this.text = textIn(state);
    this.sequence = report.texts[this.text].sequences[0];
    this.head = headIn(state) ?? 0;
    this.token = indexIn(state.row, this.sequence.shown.length) ?? this.lastWord();
    this.abort = new AbortController();
    this.timer = 0;
    /** @type {SwitchAnswer | null} */
    this.answer = null;
    /** @type {Record<"before" | "after", HeadMap | null>} */
    this.maps = { before: null, after: null };
    const choose = (/** @type {number} */ token) => this.choose(token);
    this.tokens = new TokenText(this.sequence, { hover: () => {}, pick: choose, label: "Tokens; choose one" });
    this.pair = new MapPair(choose, (which, cell) => this.read(which, cell), MODEL);
    this.grid = report.heads.length > MOST_HEADS ? null : this.makeGrid();
    const act = (/** @type {() => void} */ change) => () => this.act(change);
    this.undo = el("button", { type: "button", id: "undo", onclick: act(() => switches.undo()) }, "Undo");
    this.reset = el("button", { type: "button", id: "reset", onclick: act(() => switches.reset()) }, "Reset");
    this.title = el("h2", {});
    this.meaning = el("p", { class: "dim" });
    this.bars = el("div", { class: "predictions" });
    this.list = el("div", { class: "changes" });
    this.fault = el("p", { class: "note", role: "alert" });
    this.prediction = el(
      "section",
      { class: "prediction", "aria-label": "prediction", "aria-busy": "true" },
      ...[el("div", { class: "inputtop" }, this.title), this.fault, this.meaning, this.bars, this.list],
    );
    this.element = this.layout();
    this.show();
  }

  layout() {
    const tooMany = `The grid is for up to ${MOST_HEADS} heads; this model has ${report.heads.length}.`;
    const heads = el(
      "section",
      { class: "heads", "aria-label": "heads" },
      el("div", { class: "inputtop" }, el("h2", {}, "Heads"), help("switch"), this.undo, this.reset),
      this.grid?.box ?? el("p", { class: "dim" }, tooMany),
    );
    const lead =
      "Switch a head off, or scale what it writes, and see what the model does without it. The model itself runs " +
      "again after every change.";
    const controls = el("div", { class: "controls" }, textChoice(this.text));
    controls.querySelector("details")?.setAttribute("open", "");
    controls.querySelector("textarea")?.setAttribute("rows", "2");
    const element = el("div", { class: "switchview" }, el("p", { class: "lead" }, lead), controls, this.tokens.box);
    element.append(el("div", { class: "two" }, heads, this.prediction), this.pair.box);
    element.addEventListener("keydown", (event) => this.onKey(event));
    return element;
  }

  makeGrid() {
    const layers = report.sites.map((site, s) =>
      Array.from({ length: site.heads }, (_, h) => {
        const head = firstOf[s] + h;
        const kind = column("kind") ? { kind: kindOf(head), label: kindText(head) } : {};
        return { name: report.heads[head], ...kind };
      }),
    );
    return new HeadSwitches(layers, {
      select: (layer, head) => this.act(() => (this.head = firstOf[layer] + head)),
      scale: (layer, head, scale) =>
        this.act(() => {
          this.head = firstOf[layer] + head;
          switches.set(this.head, scale);
        }),
    });
  }

  /** The last token that is not a delimiter. */
  lastWord() {
    const { special } = this.sequence;
    const last = special.lastIndexOf(false);
    return last < 0 ? special.length - 1 : last;
  }

  /** @param {number} token */
  choose(token) {
    this.act(() => (this.token = token));
  }

  /**
   * Change something, show it, and let the model run once nothing else changes.
   * @param {() => void} change
   */
  act(change) {
    change();
    this.show();
    this.abort.abort();
    this.prediction.setAttribute("aria-busy", "true");
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.ask(), RESTING);
  }

  stop() {
    clearTimeout(this.timer);
    this.abort.abort();
  }

  /** What is chosen; the predictions follow when they arrive. */
  show() {
    const { site, head } = places[this.head];
    this.grid?.update(switches.settings, site, head);
    this.undo.disabled = !switches.past.length;
    this.reset.disabled = !switches.scales.size;
    this.paintText();
  }

  /** The chosen token; of a model that returns vectors, how much the vector of each token turned. */
  paintText() {
    const { cosines } = this.answer ?? {};
    if (cosines && switches.scales.size) this.tokens.paint(Float32Array.from(cosines, (cosine) => 1 - cosine), null);
    else this.tokens.paint(null, this.token);
  }

  /** Let the model run. */
  async ask() {
    this.abort.abort();
    this.abort = new AbortController();
    const { signal } = this.abort;
    const { head, token, text } = this;
    replace({ ...headState(head), row: String(token), scale: switches.text || undefined });
    const name = report.heads[head];
    const changed = switches.scales.size > 0;
    const request = { text: report.texts[text].at ?? text, scales: switches.byName, token };
    try {
      const answer = await askSwitches(changed ? { ...request, head: name } : request, signal);
      const codes = answer.map === null ? null : await inflate(answer.map);
      const before = await loadMap(text, head).catch(() => null);
      if (signal.aborted) return;
      this.answer = answer;
      this.maps = { before, after: codes && HeadMap.fromCodes(name, this.sequence, codes) };
      this.fault.textContent = "";
    } catch (error) {
      if (isAbort(error) || signal.aborted) return;
      this.answer = null;
      this.maps = { before: null, after: null };
      this.fault.textContent = error instanceof Error ? error.message : String(error);
    }
    this.draw(changed);
    this.prediction.setAttribute("aria-busy", "false");
  }

  // ---- the answer -----------------------------------------------------------------------------

  /** @param {boolean} changed whether any head is */
  draw(changed) {
    const { answer } = this;
    this.bars.replaceChildren();
    this.list.replaceChildren();
    const vector = answer?.vector ? ` The vector: ${answer.vector}.` : "";
    this.meaning.textContent = answer ? MEANING[answer.reading] + vector : "";
    this.title.textContent = answer ? this.heading(answer) : "No prediction";
    if (answer?.top) this.drawTop(answer, changed);
    if (answer?.cosine !== undefined) this.drawCosine(answer.cosine, changed);
    const changes = answer && changed ? this.changes(answer) : [];
    if (answer && changed) {
      const title = this.changeTitle(answer, changes.length);
      fillChanges(this.list, title, changes, (token) => this.choose(token));
      announce(title);
    }
    const marked = new Set(answer?.changed?.map(({ token }) => token));
    this.paintText();
    this.tokens.spans.forEach((span, n) => span.classList.toggle("switched", marked.has(this.tokens.from + n)));
    this.drawMaps();
  }

  /** @param {SwitchAnswer} answer */
  heading({ reading }) {
    const word = `“${this.word(this.token)}”`;
    if (reading === "vector") return "The vector of the text";
    return reading === "next" ? `Next token after ${word}` : `In place of ${word}`;
  }

  /**
   * @param {SwitchAnswer} answer
   * @param {boolean} changed
   */
  drawTop({ top = [], actual }, changed) {
    const guesses = top.map(({ id, word, before, after }) => {
      return { word: shorten(word, 16), before, after, actual: id === actual };
    });
    this.bars.replaceChildren(...guessRows(guesses, changed, MODEL));
  }

  /**
   * @param {number} cosine
   * @param {boolean} changed
   */
  drawCosine(cosine, changed) {
    const row = (/** @type {string} */ name, /** @type {number} */ value) =>
      el(
        "div",
        { class: "guess" },
        el("span", { class: "guessed" }, "cosine"),
        el("span", { class: "barpair" }, bar(name, Math.max(0, value))),
        el("span", { class: "chance" }, el("b", { "data-cosine": name }, value.toFixed(DIGITS))),
      );
    const rows = changed ? [row("before", 1), row("after", cosine)] : [row("before", 1)];
    this.bars.replaceChildren(...rows, legend(changed, MODEL));
  }

  /**
   * The tokens that changed: of a model without predictions, those whose vectors turned, the most turned first.
   * @param {SwitchAnswer} answer
   */
  changes({ changed, cosines }) {
    const word = (/** @type {number} */ token) => shorten(this.word(token), 20);
    if (changed) {
      const arrow = (/** @type {string} */ a, /** @type {string} */ b) => `${shorten(a, 20)} → ${shorten(b, 20)}`;
      return changed.map(({ token, before, after }) => ({ token, text: `${word(token)}: ${arrow(before, after)}` }));
    }
    return (cosines ?? [])
      .map((cosine, token) => ({ token, cosine, text: `${word(token)} ${cosine.toFixed(DIGITS)}` }))
      .filter(({ cosine }) => 1 - cosine >= 0.5 * 10 ** -DIGITS)
      .sort((a, b) => a.cosine - b.cosine);
  }

  /**
   * @param {SwitchAnswer} answer
   * @param {number} count
   */
  changeTitle({ reading, shown, cosines }, count) {
    const of = `${count} of ${plural(shown.length, "token")}`;
    if (reading === "vector") {
      if (!cosines) return "This model returns one vector for the whole text.";
      if (!count) return "No token's vector turned.";
      return `The vectors of ${of} turned; the text is shaded by it. Their cosines, the most turned first:`;
    }
    if (!count) return "The likeliest token is the same everywhere.";
    return reading === "next" ? `The likeliest next token changed after ${of}:` : `Another token fills ${of}:`;
  }

  drawMaps() {
    this.pair.box.hidden = !this.maps.before;
    if (!this.maps.before) return;
    const elsewhere = "The view of this head has the same weights.";
    this.pair.update(report.heads[this.head], this.token, this.maps, elsewhere);
  }

  /**
   * @param {"before" | "after"} which
   * @param {[number, number]} cell
   */
  read(which, cell) {
    const weight = this.maps[which]?.row(cell[0])[cell[1]];
    const [query, key] = cell.map((token) => `“${shorten(this.word(token), 24)}”`);
    return `${query} looks at ${key} with weight ${formatFraction(weight)}`;
  }

  /** @param {number} token */
  word(token) {
    return this.sequence.shown[token];
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    if (event.key.toLowerCase() !== "z" || !(event.ctrlKey || event.metaKey) || event.shiftKey) return;
    if (event.target instanceof HTMLTextAreaElement) return;
    event.preventDefault();
    this.act(() => switches.undo());
  }
}
