/** The text that the model reads: a field, its words as chips, suggestions, and unknown words. */

import { charts } from "../charts.js";
import { closest, el } from "../dom.js";
import { formatFraction, plural, shorten } from "../format.js";
import { help } from "../help.js";
import { strongest } from "../token_text.js";
import { refill } from "./refill.js";
import { isTyped } from "./tokenizer.js";

/** @typedef {import("./session.js").Session} Session */

const SUGGESTED = 8;
const LISTED = 4; // words that the head looks at
const UNSEEN = /^[\p{C}\p{M}\p{Z}]$/u;

/**
 * A typed word as it can be seen: control characters, and marks without a letter, by their code.
 * @param {string} typed
 */
const visible = (typed) =>
  UNSEEN.test(typed) ? `⟨U+${typed.codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0")}⟩` : typed;

export class InputView {
  /**
   * @param {Session} session
   * @param {() => void} changed called after the text or the chosen word has changed
   */
  constructor(session, changed) {
    this.session = session;
    this.changed = changed;
    this.field = el("textarea", {
      ...{ id: "text", rows: 2, spellcheck: "false", autocapitalize: "off", autocomplete: "off" },
      "aria-label": "text that the model reads",
      oninput: () => this.typed(),
    });
    this.suggestions = el("div", { class: "suggestions", role: "group", "aria-label": "words to continue with" });
    this.chips = el("div", { class: "chips", role: "group", "aria-label": "words; choose the one to look at" });
    this.notes = el("div", { class: "notes", role: "status" });
    /** Where the chosen head looks from the chosen word. */
    this.looks = el("span", {});
    this.chips.addEventListener("click", (event) => {
      const chip = closest(event, ".wordchip");
      if (chip) this.choose(Number(chip.dataset.i));
    });
    this.chips.addEventListener("keydown", (event) => this.onKey(event));
    this.suggestions.addEventListener("click", (event) => {
      const button = closest(event, "button[data-word]");
      if (button) this.complete(button.dataset.word ?? "");
    });
    const samples = el(
      "select",
      { id: "samples", "aria-label": "sample texts" },
      el("option", { value: "" }, "samples…"),
    );
    session.data.samples.forEach((text, i) => samples.append(el("option", { value: i }, shorten(text, 60))));
    samples.addEventListener("change", () => {
      if (samples.value) this.setText(session.data.samples[Number(samples.value)]);
      samples.value = "";
    });
    const clear = el("button", { type: "button", onclick: () => this.setText("") }, "Clear");
    this.box = el(
      "section",
      { class: "input", "aria-label": "words" },
      el("div", { class: "inputtop" }, el("h2", {}, "Words"), help("the language"), samples, clear),
      this.field,
      this.suggestions,
      this.notes,
      this.chips,
      el("p", { class: "dim caption" }, this.looks, " ", help("weight")),
      el("p", { class: "dim caption" }, "Below each word: the likeliest next word. ", help("next word")),
    );
    /** @type {HTMLElement[]} */
    this.shown = [];
  }

  typed() {
    this.session.text = this.field.value;
    this.session.chosen = null;
    this.changed();
  }

  /** @param {string} text */
  setText(text) {
    this.field.value = text;
    this.typed();
    this.field.focus();
  }

  /** @param {number} token */
  choose(token) {
    this.session.chosen = token;
    this.changed();
  }

  /** @param {KeyboardEvent} event arrows move between words */
  onKey(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const chip = closest(event, ".wordchip");
    if (!step || !chip) return;
    event.preventDefault();
    const next = Number(chip.dataset.i) + step;
    if (next < 0 || next >= this.session.tokens.length) return;
    this.choose(next);
    this.shown[next]?.focus();
  }

  /**
   * Replace the word that is being typed, or add one.
   * @param {string} word
   */
  complete(word) {
    const partial = this.partial();
    const text = this.field.value;
    const kept = partial ? text.slice(0, text.length - partial.length) : text && !/\s$/.test(text) ? `${text} ` : text;
    this.setText(`${kept}${word} `);
  }

  /** The letters at the end of the text, unless they are a word. */
  partial() {
    const last = /[^\s]+$/.exec(this.field.value)?.[0] ?? "";
    return this.session.tokenizer.idOf(last) === undefined ? last : "";
  }

  update() {
    const { session } = this;
    if (this.field.value !== session.text) this.field.value = session.text;
    this.drawSuggestions();
    this.drawNotes();
    this.drawChips();
    this.looks.textContent = this.looksText();
  }

  looksText() {
    const { session } = this;
    const row = session.row("after");
    const words = strongest(row, LISTED, 0.005).map((i) => `${session.named(i)} ${formatFraction(row[i])}`);
    const { merged } = session.settings[session.layer];
    const head = merged ? `the merged head of layer ${session.layer}` : session.headName;
    return `Blue: from ${session.named(session.token)}, ${head} looks at ${words.join(", ")}.`;
  }

  drawSuggestions() {
    const { session } = this;
    const partial = this.partial();
    const completions = partial ? session.tokenizer.completions(partial, SUGGESTED) : [];
    const words = completions.length ? completions : this.likely();
    const lead = completions.length ? "complete: " : "next: ";
    const buttons = words.map((word) => el("button", { type: "button", class: "suggestion", "data-word": word }, word));
    refill(this.suggestions, el("span", { class: "dim" }, lead), ...buttons);
  }

  /** The likeliest words after the text. */
  likely() {
    const { words } = this.session.data;
    const from = (this.session.tokens.length - 1) * words.length;
    const chances = this.session.after.probabilities.subarray(from, from + words.length);
    const order = words.map((_, id) => id).sort((a, b) => chances[b] - chances[a]);
    return order
      .map((id) => words[id])
      .filter(isTyped)
      .slice(0, SUGGESTED);
  }

  drawNotes() {
    const { session } = this;
    const unknown = [...new Set(session.tokens.filter(({ known }) => !known).map(({ typed }) => typed))];
    const notes = unknown.slice(0, 4).map((word) => {
      const close = session.tokenizer.similar(word, 3);
      const advice = close.length ? ` Similar: ${close.join(", ")}.` : "";
      const count = session.data.words.length;
      return el(
        "p",
        { class: "note" },
        "“",
        el("span", { class: "word" }, shorten(visible(word), 30)),
        `” is not one of the ${count} words of this model, which reads it as <unk>.${advice}`,
      );
    });
    const rest = unknown.length - notes.length;
    if (rest > 0) notes.push(el("p", { class: "note" }, `${plural(rest, "more unknown word")}.`));
    if (session.dropped) {
      const text =
        `The model was trained on ${session.data.context} words at a time. The last ` +
        `${plural(session.dropped, "word")} are not read.`;
      notes.push(el("p", { class: "note" }, text));
    }
    this.notes.replaceChildren(...notes);
  }

  drawChips() {
    const { session } = this;
    const { words } = session.data;
    const [before, after] = [session.guesses("before"), session.guesses("after")];
    const row = session.row("after");
    while (this.shown.length > session.tokens.length) this.shown.pop()?.remove();
    session.tokens.forEach(({ typed, known, id }, i) => {
      let chip = this.shown[i];
      if (!chip) {
        const parts = [el("span", { class: "word" }), el("small", {})];
        chip = el("button", { type: "button", class: "wordchip", "data-i": i }, ...parts);
        this.shown.push(chip);
        this.chips.append(chip);
      }
      const changed = before[i] !== after[i];
      const [word, next] = /** @type {HTMLElement[]} */ ([...chip.children]);
      word.textContent = known ? words[id] : shorten(visible(typed), 24);
      next.textContent = words[after[i]];
      next.classList.toggle("switched", changed);
      chip.classList.toggle("unknown", !known);
      chip.classList.toggle("from", i === session.token);
      chip.tabIndex = i === session.token ? 0 : -1;
      chip.setAttribute("aria-pressed", String(i === session.token));
      const shade = i < row.length ? Math.round(72 * row[i] ** charts.weight_exponent) : 0;
      chip.style.backgroundColor = shade > 2 ? `color-mix(in srgb, var(--shade) ${shade}%, var(--soft))` : "";
      const which = changed ? `next word before: ${words[before[i]]}, now: ` : "next word: ";
      chip.setAttribute("aria-label", `${word.textContent}, ${which}${words[after[i]]}`);
      chip.title = changed ? `next word before: ${words[before[i]]}, now: ${words[after[i]]}` : "";
    });
  }
}
