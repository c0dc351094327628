/** What several lessons check, the texts that they share, and words that they write. */

import { intact } from "./model.js";
import { headIn, nameOf } from "./settings.js";

/** @typedef {import("./session.js").Session} Session */

export const REPEATED = Array(3).fill("whale key fat Ben men apple opened Kim today").join(" ");
export const MARKED = "<past> <sea> the ships drifted . <now> <town> the doors behind the house";

/**
 * The heads of a kind, by the model card.
 * @param {Session} session
 * @param {string} kind
 */
export const headsOf = (session, kind) => session.card.heads[kind] ?? [];

/** The head that lessons begin with where the learner is to find another. */
export const firstHead = () => nameOf(0, 0);

/** The layer of the induction heads. @param {Session} session */
export const inductionLayer = (session) => headIn(headsOf(session, "induction")[0] ?? "", session.sizes)?.[0] ?? 0;

/** @param {string[]} names */
export const list = (names) =>
  names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}` : names.join("");

const NUMBERS = ["No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine"];

/** A count at the start of a sentence. @param {number} count */
export const inWords = (count) => NUMBERS[count] ?? String(count);

/**
 * @param {number} share
 * @param {number} [decimals]
 */
export const percent = (share, decimals = 0) => `${(100 * share).toFixed(decimals)}\u00a0%`;

/**
 * Whether no switch differs from the trained model, except on the named heads.
 * @param {Session} session
 * @param {string[]} names
 */
export const onlyChanged = (session, names) =>
  session.changedHeads.every((name) => names.includes(name)) &&
  session.settings.every(({ merged, kvHeads, heads }) => !merged && kvHeads === heads.length);

/** Whether one head is off and nothing else is switched. @param {Session} session */
export const oneOff = (session) => session.off.length === 1 && onlyChanged(session, session.off);

/**
 * The weight that the chosen head gives to some tokens, from the chosen token.
 * @param {Session} session
 * @param {(token: number) => boolean} isMeant
 */
export const weightOn = (session, isMeant) =>
  session.row("after").reduce((sum, weight, i) => sum + (isMeant(i) ? weight : 0), 0);

/** @param {Session} session */
const lastToken = (session) => session.tokens.length - 1;

/** Whether the last word is chosen. @param {Session} session */
export const atEnd = (session) => session.token === lastToken(session);

/**
 * The weight that a trained head gives to the last two marks, from the last word.
 * @param {Session} session
 * @param {string} head
 */
export function weightOnMarks(session, head) {
  const row = session.row("before", head, lastToken(session));
  const marks = session.tokens.flatMap((_, i) => (session.isMark(i) ? [i] : [])).slice(-2);
  return marks.reduce((sum, i) => sum + row[i], 0);
}

/**
 * Whether a text is an original with one letter deleted.
 * @param {string} text
 * @param {string} original
 */
export const oneLetterLess = (text, original) =>
  Array.from(original, (_, i) => original.slice(0, i) + original.slice(i + 1)).includes(text);

/**
 * Whether the text is an original in which one mark was replaced by a different one.
 * @param {Session} session
 * @param {string} original
 */
export function oneMarkChanged(session, original) {
  const before = session.tokenizer.read(original);
  const changed = session.tokens.flatMap(({ id }, i) => (id === before[i]?.id ? [] : [i]));
  return session.tokens.length === before.length && changed.length === 1 && session.isMark(changed[0]);
}

/**
 * Whether, after the last word, some words are likelier than others, by a factor.
 * @param {Session} session
 * @param {import("./session.js").Which} which
 * @param {string[]} words
 * @param {string[]} others
 * @param {number} [factor]
 */
export function prefers(session, which, words, others, factor = 1) {
  const last = lastToken(session);
  return session.probability(which, words, last) > factor * session.probability(which, others, last);
}

/** The likeliest next word after the last one. @param {Session} session */
export const lastGuess = (session) => session.data.words[session.guesses("after")[lastToken(session)]];

/**
 * Settings in which one layer shares keys and values among pairs of heads.
 * @param {Session} session
 * @param {number} layer
 */
export function paired(session, layer) {
  const settings = intact(session.sizes);
  settings[layer].kvHeads = Math.max(1, session.sizes.heads / 2);
  return settings;
}
