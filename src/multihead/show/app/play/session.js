/** What is typed, chosen and switched, and what the model computes from it. */

import { guesses, intact, loss } from "./model.js";
import { cacheBytes, changedHeads, copy, fromParts, headIn, keyOf, nameOf, offHeads, toParts } from "./settings.js";
import { Tokenizer, isTyped } from "./tokenizer.js";

/**
 * @typedef {import("./model.js").Run} Run
 * @typedef {import("./model.js").Settings} Settings
 * @typedef {import("./tokenizer.js").Token} Token
 * @typedef {"before" | "after"} Which the trained model, or the one with the present switches
 *
 * @typedef {object} Card the jobs of heads, from the model card
 * @property {Record<string, string>} kinds head → kind
 * @property {Record<string, string>} meanings head → what a head of its kind does, unless that is a share
 * @property {Record<string, string[]>} heads kind → heads
 * @property {string} agreement the head that looks from the verb to its subject
 * @property {string} marks the head that looks at the marks of the sentence
 *
 * @typedef {object} Data of the page, as multihead.show.play writes it
 * @property {string} version
 * @property {import("../types.js").Charts} charts
 * @property {number} parameters
 * @property {import("./model.js").Sizes} sizes
 * @property {string[]} words
 * @property {string[]} special
 * @property {number} context the longest text that the model was trained on
 * @property {string[]} samples
 * @property {[string, number][]} layout
 * @property {Card} card
 */

const UNDO_STEPS = 200;

export class Session {
  /**
   * @param {Data} data
   * @param {import("./model.js").Model} model
   * @param {Map<string, number>} lessons how many steps each lesson has
   */
  constructor(data, model, lessons) {
    this.data = data;
    this.model = model;
    this.lessons = lessons;
    this.sizes = data.sizes;
    this.card = data.card;
    this.tokenizer = new Tokenizer(data.words);
    this.text = "";
    /** The chosen word; null: the last one. @type {number | null} */
    this.chosen = null;
    this.layer = 0;
    this.head = 0;
    this.settings = intact(this.sizes);
    this.lesson = "";
    /** How many steps of each lesson are done. @type {Map<string, number>} */
    this.progress = new Map();
    /** @type {Settings[]} */
    this.past = [];
    /** What `undo` has left; a new switch clears it. @type {Settings[]} */
    this.future = [];
    /** The slider that is being dragged: all its changes are undone together. */
    this.gesture = "";
    /** Mean loss over the samples by settings, as far as it was measured. @type {Map<string, number>} */
    this.losses = new Map();
    /** @type {Token[]} */
    this.tokens = [];
    this.dropped = 0;
    /** @type {Run} */
    this.before = model.run([this.tokenizer.begin]);
    this.after = this.before;
    this.took = 0;
    this.computed = { text: "", settings: "" };
  }

  /** Run the model where the text or a switch has changed. */
  compute() {
    const key = keyOf(this.settings);
    if (this.tokens.length && this.computed.text === this.text && this.computed.settings === key) return;
    const began = performance.now();
    if (!this.tokens.length || this.computed.text !== this.text) {
      const all = this.tokenizer.read(this.text);
      this.tokens = all.slice(0, this.data.context);
      this.dropped = all.length - this.tokens.length;
      this.before = this.model.run(this.tokens.map(({ id }) => id));
    }
    this.after = key ? this.model.run(this.before.ids, this.settings) : this.before;
    this.computed = { text: this.text, settings: key };
    this.took = performance.now() - began;
  }

  get token() {
    return Math.min(this.chosen ?? Infinity, this.tokens.length - 1);
  }

  get headName() {
    return nameOf(this.layer, this.head);
  }

  /** Whether any switch differs from the trained model. */
  get changed() {
    return keyOf(this.settings) !== "";
  }

  /**
   * Change switches; `undo` leads back.
   * @param {(settings: Settings) => void} change
   * @param {string} [gesture] changes of one gesture are one step
   */
  switch(change, gesture = "") {
    const next = copy(this.settings);
    change(next);
    if (keyOf(next) === keyOf(this.settings)) return;
    if (!gesture || gesture !== this.gesture) this.past.push(this.settings);
    if (this.past.length > UNDO_STEPS) this.past.shift();
    this.gesture = gesture;
    this.future = [];
    this.settings = next;
  }

  undo() {
    this.step(this.past, this.future);
  }

  redo() {
    this.step(this.future, this.past);
  }

  /**
   * @param {Settings[]} from
   * @param {Settings[]} to
   */
  step(from, to) {
    const settings = from.pop();
    if (!settings) return;
    to.push(this.settings);
    this.settings = settings;
    this.gesture = "";
  }

  /** Nothing can be undone. */
  forget() {
    this.past = [];
    this.future = [];
    this.gesture = "";
  }

  // ---- the address ----------------------------------------------------------------------------

  /** The address that leads back here. */
  get hash() {
    const parts = new URLSearchParams({ text: this.text, head: this.headName, ...toParts(this.settings) });
    if (this.chosen !== null) parts.set("token", String(this.chosen));
    if (this.lesson) parts.set("lesson", this.lesson);
    if (this.progress.size) parts.set("done", [...this.progress].map(([id, steps]) => `${id}:${steps}`).join(","));
    return `#${parts}`;
  }

  /**
   * Whatever is not valid is ignored.
   * @param {string} hash
   */
  restore(hash) {
    const parts = Object.fromEntries(new URLSearchParams(hash.replace(/^#/, "")));
    if (parts.text !== undefined) this.text = parts.text;
    const token = Number(parts.token);
    this.chosen = parts.token && Number.isInteger(token) && token >= 0 ? token : null;
    const place = headIn(parts.head ?? "", this.sizes);
    if (place) [this.layer, this.head] = place;
    this.settings = fromParts(parts, this.sizes);
    this.lesson = this.lessons.has(parts.lesson) ? parts.lesson : "";
    this.progress.clear();
    for (const pair of (parts.done ?? "").split(",")) {
      const [, id, steps] = /^([a-z]+):(\d{1,2})$/.exec(pair) ?? [];
      const most = this.lessons.get(id);
      if (most !== undefined) this.progress.set(id, Math.min(most, Number(steps)));
    }
  }

  // ---- what lessons and views read ------------------------------------------------------------

  /** @param {Which} which @returns {Run} */
  run(which) {
    return this[which];
  }

  /** @param {number} token */
  word(token) {
    return this.data.words[this.tokens[token].id];
  }

  /** A word in quotes, and its place if the text has it more than once. @param {number} token */
  named(token) {
    const word = this.word(token);
    const copies = this.tokens.filter((_, i) => this.word(i) === word).length;
    return copies > 1 ? `“${word}” (word ${token})` : `“${word}”`;
  }

  /** Whether a token is a mark such as <now>. @param {number} token */
  isMark(token) {
    const word = this.word(token);
    return isTyped(word) && this.data.special.includes(word);
  }

  /** Whether the model reads the words of a text. @param {string} text */
  reads(text) {
    const ids = this.tokenizer.read(text).map(({ id }) => id);
    return ids.length === this.tokens.length && ids.every((id, i) => id === this.tokens[i].id);
  }

  /**
   * The probability that one of some words comes after a token.
   * @param {Which} which
   * @param {string[]} words
   * @param {number} [token]
   */
  probability(which, words, token = this.token) {
    const from = token * this.sizes.words;
    const ids = words.map((word) => this.tokenizer.ids.get(word) ?? -1);
    return ids.reduce((sum, id) => sum + (this.run(which).probabilities[from + id] ?? 0), 0);
  }

  /**
   * The weights of a head from a token.
   * @param {Which} which
   * @param {string} name
   * @param {number} [token]
   */
  row(which, name = this.headName, token = this.token) {
    const [layer, head] = headIn(name, this.sizes) ?? [0, 0];
    const n = this.tokens.length;
    return this.run(which).layers[layer].weights[head].subarray(token * n, token * n + token + 1);
  }

  /** @param {Which} which */
  guesses(which) {
    return guesses(this.run(which));
  }

  /** Tokens whose likeliest next word the switches change. */
  get changedGuesses() {
    const [before, after] = [this.guesses("before"), this.guesses("after")];
    return before.flatMap((guess, i) => (guess === after[i] ? [] : [i]));
  }

  /**
   * The first token of the second round, in a text that repeats its first words; 0 where it does not.
   */
  get round() {
    const ids = this.before.ids;
    for (let length = 2; 2 * length < ids.length; length += 1) {
      if (ids.slice(1 + length).every((id, i) => id === ids[1 + i])) return 1 + length;
    }
    return 0;
  }

  /**
   * How many of the words after the first round are predicted; its first word is free. NaN without a second round.
   * @param {Which} which
   */
  copied(which) {
    const { round } = this;
    const found = round ? this.guesses(which).slice(round, -1) : [];
    if (!found.length) return NaN;
    return found.filter((guess, i) => guess === this.before.ids[round + i + 1]).length / found.length;
  }

  /** Mean loss on the present text. @param {Which} which */
  loss(which) {
    return loss(this.run(which));
  }

  get off() {
    return offHeads(this.settings);
  }

  get changedHeads() {
    return changedHeads(this.settings);
  }

  get cacheBytes() {
    return cacheBytes(this.settings, this.sizes);
  }

  /**
   * Mean loss over the samples, relative to the trained model; null until it is measured.
   * @param {Settings} [settings]
   */
  lossGrowth(settings = this.settings) {
    const [base, now] = [this.losses.get(""), this.losses.get(keyOf(settings))];
    return base === undefined || now === undefined ? null : now / base - 1;
  }

  /**
   * How far the heads' outputs at a token are from those of the trained heads, relative to their length.
   * @param {number} layer
   * @param {number} [token]
   */
  difference(layer, token = this.token) {
    const width = this.sizes.heads * this.sizes.headDim;
    const [before, after] = [this.before.layers[layer].outputs, this.after.layers[layer].outputs];
    let [apart, size] = [0, 0];
    for (let c = token * width; c < (token + 1) * width; c += 1) {
      apart += (after[c] - before[c]) ** 2;
      size += before[c] ** 2;
    }
    return Math.sqrt(apart / size);
  }
}
