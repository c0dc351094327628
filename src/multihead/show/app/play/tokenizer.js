/** Text to words of the vocabulary, as `multihead.sources.embedded.tokenizer` splits it. */

/**
 * @typedef {object} Token
 * @property {number} id
 * @property {string} typed the word as it was typed; "" for the first token, which every text has
 * @property {boolean} known whether it is in the vocabulary
 */

const WORD = /<[\p{L}\p{N}_]+>|[\p{L}\p{N}_]+|[^\p{L}\p{N}_\s]/gu;

export const [PAD, BEGIN, UNKNOWN] = ["<pad>", "<s>", "<unk>"];

/** Whether a person would type it. @param {string} word */
export const isTyped = (word) => word !== PAD && word !== BEGIN && word !== UNKNOWN;

/** @param {string} word */
const capitalized = (word) => word.slice(0, 1).toUpperCase() + word.slice(1).toLowerCase();

export class Tokenizer {
  /** @param {string[]} words the word of every id */
  constructor(words) {
    this.words = words;
    this.ids = new Map(words.map((word, id) => [word, id]));
    this.begin = this.ids.get(BEGIN) ?? 0;
    this.unknown = this.ids.get(UNKNOWN) ?? 0;
  }

  /** @param {string} word case is ignored where the vocabulary has only one form */
  idOf(word) {
    return this.ids.get(word) ?? this.ids.get(word.toLowerCase()) ?? this.ids.get(capitalized(word));
  }

  /**
   * @param {string} text
   * @returns {Token[]}
   */
  read(text) {
    const words = text.match(WORD) ?? [];
    const tokens = words.map((typed) => {
      const id = this.idOf(typed);
      return { id: id ?? this.unknown, typed, known: id !== undefined };
    });
    return [{ id: this.begin, typed: "", known: true }, ...tokens];
  }

  /**
   * Words that begin like this one, at most `count`.
   * @param {string} start
   * @param {number} count
   */
  completions(start, count) {
    const lower = start.toLowerCase();
    const found = this.words.filter((word) => word.toLowerCase().startsWith(lower) && word.toLowerCase() !== lower);
    const [same, other] = [true, false].map((as) => found.filter((word) => word.startsWith(start) === as));
    return [...same, ...other].filter(isTyped).slice(0, count);
  }

  /**
   * Words of the vocabulary that are spelt like an unknown one, the closest first.
   * @param {string} word
   * @param {number} count
   */
  similar(word, count) {
    const pairs = (/** @type {string} */ w) => {
      const text = `^${w.toLowerCase()}$`;
      return new Set(Array.from({ length: text.length - 1 }, (_, i) => text.slice(i, i + 2)));
    };
    const wanted = pairs(word.slice(0, 40));
    const close = this.words.map((other) => {
      const has = pairs(other);
      return { other, score: (2 * [...has].filter((pair) => wanted.has(pair)).length) / (has.size + wanted.size) };
    });
    const best = close.filter(({ score }) => score > 0.3).sort((a, b) => b.score - a.score);
    return best.slice(0, count).map(({ other }) => other);
  }
}
