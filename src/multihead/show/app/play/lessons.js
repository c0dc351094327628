/**
 * Lessons as data: each begins with a text and ends when the learner has done every step. A step is checked by what
 * the model computes.
 */

import { agreement, delimiters, induction, redundancy } from "./lessons_on_heads.js";
import { grouped, merge, pruning } from "./lessons_on_layers.js";
import { intact } from "./model.js";
import { headIn } from "./settings.js";

/**
 * @typedef {import("./session.js").Session} Session
 *
 * @typedef {object} Step
 * @property {(session: Session) => string} text
 * @property {(session: Session) => boolean} done
 * @property {boolean} [rewrites] whether the learner changes the text; all other steps need the text of the lesson
 *
 * @typedef {object} Lesson
 * @property {string} id
 * @property {string} title
 * @property {(session: Session) => string} about
 * @property {string} text what the model reads at the start
 * @property {(session: Session) => string} head the head that is chosen at the start
 * @property {number} [token] the word that is chosen at the start; by default the last
 * @property {string[]} terms explained below the first sentences
 * @property {Step[]} steps
 * @property {(session: Session) => string} learned shown at the end
 * @property {boolean} [gradients] whether the gradients of W_Q are shown
 * @property {boolean} [removals] whether the loss without each further head is shown
 */

/** The easiest first. @type {Lesson[]} */
export const LESSONS = [agreement, delimiters, induction, redundancy, merge, grouped, pruning];

/** Text and heads of the start. @param {Session} session @param {Lesson} lesson */
export function begin(session, lesson) {
  session.lesson = lesson.id;
  session.text = lesson.text;
  session.chosen = lesson.token ?? null;
  const place = headIn(lesson.head(session) ?? "", session.sizes);
  if (place) [session.layer, session.head] = place;
  session.settings = intact(session.sizes);
  session.forget();
}

/** How many steps each lesson has, by its name. */
export const STEPS = new Map(LESSONS.map(({ id, steps }) => [id, steps.length]));
