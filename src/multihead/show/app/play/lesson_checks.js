/** What several lessons check, and words that they write. */

import { intact } from "./model.js";
import { headIn, nameOf } from "./settings.js";

/** @typedef {import("./session.js").Session} Session */

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

/** @param {number} share */
export const percent = (share) => `${Math.round(100 * share)}\u00a0%`;

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

/** Whether the last word is chosen. @param {Session} session */
export const atEnd = (session) => session.token === session.tokens.length - 1;

/**
 * Whether, after the last word, some words are likelier than others, by a factor.
 * @param {Session} session
 * @param {import("./session.js").Which} which
 * @param {string[]} words
 * @param {string[]} others
 * @param {number} [factor]
 */
export function prefers(session, which, words, others, factor = 1) {
  const last = session.tokens.length - 1;
  return session.probability(which, words, last) > factor * session.probability(which, others, last);
}

/** The likeliest next word after the last one. @param {Session} session */
export const lastGuess = (session) => session.data.words[session.guesses("after")[session.tokens.length - 1]];

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
