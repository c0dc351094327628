/** On served pages: switch heads of the model off or scale them, and see what it predicts then. */

import { headIn, headState, indexIn, replace } from "./address.js";
import { inflate } from "./blobs.js";
import { kindMeaning } from "./definitions.js";
import { announce, el } from "./dom.js";
import { formatFraction, formatPercent, plural, sentence, shorten } from "./format.js";
import { kindText } from "./grid.js";
import { HeadMap } from "./head_map.js";
import { help } from "./help.js";
import { MapPair } from "./map_pair.js";
import { loadMap } from "./maps.js";
import { HeadSwitches } from "./play/switches.js";
import { bar, fillChanges, guessRows, legend } from "./prediction_bars.js";
import { firstOf, kindOf, places, report } from "./report.js";
import { askSwitches, isAbort } from "./server.js";
import { withoutValue } from "./share_names.js";
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
const DECODER = "The encoder reads one text, the decoder writes the other word by word. ";
const EACH = " This model has a prediction for every token: choose one.";

/** What the answer of a model means. @type {Record<SwitchAnswer["reading"], string>} */
const MEANING = {
  next: "This model predicts the next token. The bars show the likeliest tokens after the chosen one.",
  masked:
    "This model fills in hidden tokens. The chosen token is hidden, and the bars show the likeliest tokens at its " +
    "position. For the list below, each token is hidden in turn.",
  classes: "This model sorts its input into classes. The bars show the likeliest classes.",
  vector:
    "This model predicts no words: it turns its input into a vector. The cosine compares the vector with your " +
    "switches to the vector of the unchanged model: 1 is the same direction, 0 an unrelated one.",
};

/** Kept while other views are shown. */
const switches = new SwitchState();

/** @param {string} text */
const sequenceName = (text) => el("h2", { class: "sequencename" }, text);

/** Whether a sequence has tokens: images, sound and vectors have positions. @param {import("./types.js").Sequence} s */
const hasWords = ({ shown }) => shown.some((word, i) => word !== String(i));

/** "Layer 3", "Decoder layer 3", "Cross-attention, layer 3". @param {number} site */
function layerTitle(site) {
  const { stack, layer } = report.sites[site];
  if (!stack) return `Layer ${layer}`;
  if (stack === "cross") return `Cross-attention, layer ${layer}`;
  return `${stack[0].toUpperCase()}${stack.slice(1)} layer ${layer}`;
}

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
    const { sequences, layers } = report.texts[this.text];
    /** The index of the sequence that has predictions: of an encoder–decoder, that of the decoder. */
    this.predicted = layers[layers.length - 1].rows;
    this.sequence = sequences[this.predicted];
    this.source = this.predicted ? sequences[0] : null;
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
    const chooseRow = (/** @type {number} */ token) => this.sameSequence && choose(token);
    this.pair = new MapPair(chooseRow, (which, cell) => this.read(which, cell), MODEL);
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
      this.grid?.kinds,
    );
    const lead =
      "Switch a head off (untick it) or scale its output with the slider, and compare the predictions before and " +
      "after. The model runs again after every change.";
    const controls = el("div", { class: "controls" }, textChoice(this.text));
    controls.querySelector("details")?.setAttribute("open", "");
    controls.querySelector("textarea")?.setAttribute("rows", "2");
    const element = el("div", { class: "switchview" }, el("p", { class: "lead" }, lead), controls, this.tokens.box);
    element.append(el("div", { class: "two" }, heads, this.prediction), this.pair.box);
    const { note } = report.texts[this.text];
    if (note) this.tokens.box.before(el("p", { class: "note textnote" }, sentence(note)));
    const typed = report.served?.includes("text") || this.source;
    if (!typed && !hasWords(this.sequence)) this.tokens.box.prepend(sequenceName("Positions of the input"));
    if (this.source) this.tokens.box.before(this.sourceText(this.source));
    element.addEventListener("keydown", (event) => this.onKey(event));
    return element;
  }

  /** What the encoder reads. @param {import("./types.js").Sequence} source */
  sourceText(source) {
    const shown = new TokenText(source, { hover: () => {}, pick: () => {}, label: "Tokens of the encoder" });
    this.tokens.box.prepend(sequenceName("The decoder has read"));
    shown.box.prepend(sequenceName("The encoder reads"));
    return shown.box;
  }

  makeGrid() {
    const layers = report.sites.map((site, s) =>
      Array.from({ length: site.heads }, (_, h) => {
        const head = firstOf[s] + h;
        const kind = withoutValue(kindOf(head));
        const about = kind ? { kind, label: kindText(head), meaning: kindMeaning(kind) } : {};
        const name = report.heads[head];
        return { name, shown: name.replace(/^.*\./, ""), ...about };
      }),
    );
    const handlers = {
      select: (/** @type {number} */ layer, /** @type {number} */ head) =>
        this.act(() => (this.head = firstOf[layer] + head)),
      scale: (/** @type {number} */ layer, /** @type {number} */ head, /** @type {number} */ scale) =>
        this.act(() => {
          this.head = firstOf[layer] + head;
          switches.set(this.head, scale);
        }),
    };
    return new HeadSwitches(layers, handlers, layerTitle);
  }

  /** Whether the rows of the chosen head's map are the tokens that have predictions. */
  get sameSequence() {
    return report.texts[this.text].layers[places[this.head].site].rows === this.predicted;
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
      const layer = report.texts[text].layers[places[head].site];
      this.maps = { before, after: codes && HeadMap.fromCodes(name, report.texts[text], layer, codes) };
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
    const decoder = this.source && answer?.reading === "next" ? DECODER : "";
    const each = answer?.reading === "classes" && (answer.rows ?? 1) > 1 ? EACH : "";
    this.meaning.textContent = answer ? decoder + MEANING[answer.reading] + each + vector : "";
    this.title.textContent = answer ? this.heading(answer) : "No prediction";
    if (answer?.top) this.drawTop(answer, changed);
    if (answer?.cosine !== undefined) this.drawCosine(answer.cosine, answer.change ?? 0, changed);
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
  heading({ reading, rows }) {
    const word = `“${this.word(this.token)}”`;
    if (reading === "vector") return "The vector of the input";
    if (reading === "classes") return (rows ?? 1) > 1 ? `The class of ${word}` : "The class of the input";
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
   * @param {number} change
   * @param {boolean} changed
   */
  drawCosine(cosine, change, changed) {
    const row = (/** @type {string} */ name, /** @type {number} */ value) =>
      el(
        "div",
        { class: "guess" },
        el("span", { class: "guessed" }, "cosine"),
        el("span", { class: "barpair" }, bar(name, Math.max(0, value))),
        el("span", { class: "chance" }, el("b", { "data-cosine": name }, value.toFixed(DIGITS))),
      );
    const rows = changed ? [row("before", 1), row("after", cosine)] : [row("before", 1)];
    const moved = `The vector moved by ${formatPercent(change, 2)} of its length.`;
    this.bars.replaceChildren(...rows, legend(changed, MODEL), changed ? el("p", {}, moved) : "");
  }

  /**
   * The tokens that changed: of a model without predictions, those whose vectors turned, the most turned first.
   * @param {SwitchAnswer} answer
   */
  changes({ changed, cosines, reading, rows = 1 }) {
    const word = (/** @type {number} */ token) => shorten(this.word(token), 20);
    if (changed) {
      const arrow = (/** @type {string} */ a, /** @type {string} */ b) => `${shorten(a, 20)} → ${shorten(b, 20)}`;
      const of = (/** @type {number} */ token) => (rows === 1 && reading === "classes" ? "" : `${word(token)}: `);
      return changed.map(({ token, before, after }) => ({ token, text: of(token) + arrow(before, after) }));
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
  changeTitle({ reading, shown, cosines, rows = 1 }, count) {
    const of = `${count} of ${plural(shown.length, "token")}`;
    if (reading === "vector") {
      if (!cosines) return "This model returns one vector for the whole input.";
      if (!count) return "No token's vector turned.";
      return `The vectors of ${of} turned; the text is shaded by it. Their cosines, the most turned first:`;
    }
    if (reading === "classes" && rows === 1) return `The likeliest class ${count ? "changed:" : "is the same."}`;
    if (reading === "classes") return `The likeliest class ${count ? `of ${of} changed:` : "is the same everywhere."}`;
    if (!count) return "The likeliest token is the same everywhere.";
    return `The likeliest ${reading === "next" ? "next token changed after" : "token changed at"} ${of} (underlined):`;
  }

  drawMaps() {
    this.pair.box.hidden = !this.maps.before;
    if (!this.maps.before) return;
    const elsewhere = "The view of this head has the same weights.";
    const row = this.sameSequence ? this.token : null;
    this.pair.update(report.heads[this.head], row, this.maps, elsewhere);
  }

  /**
   * @param {"before" | "after"} which
   * @param {[number, number]} cell
   */
  read(which, cell) {
    const map = this.maps[which];
    if (!map) return "";
    const [query, key] = [map.rows.shown[cell[0]], map.columns.shown[cell[1]]].map((word) => `“${shorten(word, 24)}”`);
    return `${query} looks at ${key} with weight ${formatFraction(map.row(cell[0])[cell[1]])}`;
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
