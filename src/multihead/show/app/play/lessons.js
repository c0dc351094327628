/**
 * Lessons as data: each begins with a text and ends when the learner has done every step. A step is checked by what
 * the model computes. Heads are named by the model card, never here.
 */

import { gradientNorms } from "./gradient_norms.js";
import {
  atEnd,
  firstHead,
  headsOf,
  inductionLayer,
  list,
  oneOff,
  onlyChanged,
  paired,
  percent,
  prefers,
  weightOn,
} from "./lesson_checks.js";
import { intact } from "./model.js";
import { cacheBytes, copy, headIn, keyOf } from "./settings.js";

/**
 * @typedef {import("./session.js").Session} Session
 *
 * @typedef {object} Step
 * @property {(session: Session) => string} text
 * @property {(session: Session) => boolean} done
 *
 * @typedef {object} Lesson
 * @property {string} id
 * @property {string} title
 * @property {(session: Session) => string} about
 * @property {string} text what the model reads at the start
 * @property {(session: Session) => string} head the head that is chosen at the start
 * @property {number} [token] the word that is chosen at the start; by default the last
 * @property {Step[]} steps
 * @property {(session: Session) => string} learned shown at the end
 * @property {boolean} [gradients] whether the gradients of W_Q are shown
 */

const REPEATED = Array(3).fill("whale key fat Ben men apple opened Kim today").join(" ");
const AGREEMENT = "<now> <town> the keys that the man near the door sees";
const MARKED = "<past> <sea> the ships drifted . <now> <town> the doors behind the house";

const [ONE, MANY] = [
  ["is", "was"],
  ["are", "were"],
];
const [PRESENT, PAST] = [
  ["is", "are", "opens", "open", "shines", "shine"],
  ["was", "were", "opened", "shone"],
];

/** @type {Lesson} */
const merge = {
  id: "merge",
  title: "One head or many",
  about: () =>
    "Merge the heads of a layer into one with the same W_Q, W_K, W_V and W_O. The one head adds up the scores of " +
    "all, so every part of the vector gets the same weights. When does that change the outputs?",
  text: REPEATED,
  head: (session) => headsOf(session, "induction")[0],
  token: 12,
  gradients: true,
  steps: [
    {
      text: (session) => `Merge the heads of layer ${inductionLayer(session)}: tick “one head” above its row.`,
      done: (session) => session.settings[inductionLayer(session)].merged,
    },
    {
      text: () =>
        "Find a word, not the first, where the merged head's outputs differ from those of the four heads by less " +
        "than 15 %. There, all heads look at the same words.",
      done: (session) =>
        session.settings[inductionLayer(session)].merged &&
        session.token > 0 &&
        session.difference(inductionLayer(session)) < 0.15,
    },
    {
      text: () => "Now find one where they differ by more than 50 %. Compare where the heads look, one by one.",
      done: (session) =>
        session.settings[inductionLayer(session)].merged && session.difference(inductionLayer(session)) > 0.5,
    },
    {
      text: () =>
        "Separate the heads again (Undo or Reset). The table lists how strongly training on this text would change " +
        "the W_Q of each head. Choose the head with the largest gradient in the grid.",
      done: (session) => {
        const layer = inductionLayer(session);
        if (session.changed || session.layer !== layer) return false;
        const norms = gradientNorms(session, layer, "before");
        return norms[session.head] === Math.max(...norms);
      },
    },
  ],
  learned: () =>
    "One head and many agree only where all heads share one row of weights, and the row is saturated (nearly all " +
    "weight on one word) or uniform. That is always so at the first word, which can only look at itself. Elsewhere " +
    "one pattern replaces several. The gradient shows the same: separate heads each get the gradient of their own " +
    "scores; one head gets a single score gradient, the sum over all parts, and it reaches every part of W_Q.",
};

/** @type {Lesson} */
const induction = {
  id: "induction",
  title: "Previous word and induction",
  about: () =>
    "The text repeats nine words. After the first round the model continues it by heart: two heads in two layers " +
    "work together.",
  text: REPEATED,
  head: (session) => headsOf(session, "previous")[0],
  steps: [
    {
      text: (session) =>
        `Choose one of the induction heads (${list(headsOf(session, "induction"))}) and a word of the second ` +
        `round at which it gives over half of its weight to the word after the earlier copy.`,
      done: (session) => {
        const { round, token } = session;
        const second = round > 0 && token >= round && token < 2 * round - 1;
        return (
          second &&
          headsOf(session, "induction").includes(session.headName) &&
          weightOn(session, (i) => i === token - round + 2) > 0.5
        );
      },
    },
    {
      text: () =>
        "Choose the head in an earlier layer that looks at the previous word: its map is a line beside the diagonal.",
      done: (session) => headsOf(session, "previous").includes(session.headName),
    },
    {
      text: () =>
        "Break the pair: change nothing but this head, so that the model copies at most 70 % of what it copied.",
      done: (session) =>
        session.changed &&
        onlyChanged(session, headsOf(session, "previous")) &&
        session.copied("after") <= 0.7 * session.copied("before"),
    },
    {
      text: () =>
        "Repair it by hand: switch the head on and set where it looks to “previous word”. Copying must be back at " +
        "90 % or more.",
      done: (session) =>
        onlyChanged(session, headsOf(session, "previous")) &&
        headsOf(session, "previous").some((name) => {
          const [layer, head] = headIn(name, session.sizes) ?? [0, 0];
          return session.settings[layer].heads[head].pattern === "previous";
        }) &&
        session.copied("after") >= 0.9,
    },
  ],
  learned: () =>
    "The earlier head writes into each word which word came before it. The induction heads look for the word that " +
    "“came after me last time”. Only the pattern of the first head matters: set by hand, it does as well. Some " +
    "copying survives without it, because a second head of that layer looks back, too.",
};

/** @type {Lesson} */
const agreement = {
  id: "agreement",
  title: "Agreement over distance",
  about: () =>
    "“the keys that the man near the door sees”: the verb that comes next belongs to “keys”, seven words back, " +
    "past two other nouns.",
  text: AGREEMENT,
  head: firstHead,
  steps: [
    {
      text: () =>
        "Find a head that looks from the last word back to the subject, “keys”, with more than half of its weight.",
      done: (session) =>
        atEnd(session) && !session.changed && weightOn(session, (i) => session.word(i) === "keys") > 0.5,
    },
    {
      text: () => "Switch off one head, so that “is” becomes likelier than “are” after the last word.",
      done: (session) =>
        oneOff(session) && prefers(session, "before", MANY, ONE) && prefers(session, "after", ONE, MANY),
    },
    {
      text: () => "Switch it on again. Now delete one letter of the text, so that the intact model prefers “is”.",
      done: (session) =>
        !session.changed &&
        session.text.trim().length === AGREEMENT.length - 1 &&
        prefers(session, "after", ONE, MANY, 2),
    },
  ],
  learned: (session) =>
    `${session.card.agreement} carries the number of the subject to the verb. The nouns in between are nearer, ` +
    `and it looks past them.`,
};

/** @type {Lesson} */
const delimiters = {
  id: "delimiters",
  title: "Delimiters",
  about: () =>
    "Marks such as <now> and <town> open a sentence and say its tense and place. Nearly every later word depends " +
    "on them.",
  text: MARKED,
  head: firstHead,
  steps: [
    {
      text: () =>
        "Find a head of the last layer that gives the marks of this sentence, <now> and <town>, at least 80 % of " +
        "its weight from the last word.",
      done: (session) => {
        const marks = session.tokens
          .map((_, i) => i)
          .filter((i) => i > 0 && session.data.special.includes(session.word(i)))
          .slice(-2);
        const last = atEnd(session) && session.layer === session.sizes.layers - 1;
        return last && !session.changed && weightOn(session, (i) => marks.includes(i)) >= 0.8;
      },
    },
    {
      text: () =>
        "Switch off one such head alone. The sentence says <now>, but verbs of the past must become likelier than " +
        "verbs of the present. If they do not, find a different head that looks at the marks.",
      done: (session) =>
        oneOff(session) && prefers(session, "before", PRESENT, PAST) && prefers(session, "after", PAST, PRESENT),
    },
    {
      text: () => "Reset the heads. Change one mark in the text, so that the intact model prefers the past.",
      done: (session) =>
        !session.changed && session.text.trim() !== MARKED && prefers(session, "after", PAST, PRESENT, 2),
    },
  ],
  learned: (session) =>
    `${session.card.marks} fetches tense and place from the marks. In models of human language many heads look ` +
    `at delimiters too, often to rest there; here the marks say something.`,
};

/** @type {Lesson} */
const redundancy = {
  id: "redundancy",
  title: "Redundancy",
  about: (session) =>
    `${headsOf(session, "induction").length} heads look at the word after the earlier copy: ` +
    `${list(headsOf(session, "induction"))}. How many are needed?`,
  text: REPEATED,
  head: (session) => headsOf(session, "induction")[0],
  steps: [
    {
      text: () => "Switch off one induction head. The model must still copy 90 % of the words.",
      done: (session) =>
        session.off.length === 1 &&
        headsOf(session, "induction").includes(session.off[0]) &&
        session.copied("after") >= 0.9,
    },
    {
      text: () => "Switch off all induction heads, and nothing else: it copies 10 % at most.",
      done: (session) => {
        const all = headsOf(session, "induction");
        return (
          all.every((name) => session.off.includes(name)) && onlyChanged(session, all) && session.copied("after") <= 0.1
        );
      },
    },
    {
      text: () => "Find two induction heads that are enough for 95 %: the others off.",
      done: (session) => {
        const all = headsOf(session, "induction");
        const kept = all.filter((name) => !session.changedHeads.includes(name));
        return (
          kept.length === 2 &&
          session.off.length === all.length - 2 &&
          onlyChanged(session, all) &&
          session.copied("after") >= 0.95
        );
      },
    },
  ],
  learned: () =>
    "A head that is not missed alone may still do necessary work that others do too. Importance of heads one by " +
    "one therefore misleads: to see what a group does, remove the group.",
};

/** @type {Lesson} */
const grouped = {
  id: "grouped",
  title: "Grouped-query",
  about: () =>
    "To generate text, a model stores keys and values of all earlier words (the KV cache). Heads that share them " +
    "need less memory. Here heads that share use the mean of their keys and values, without training again.",
  text: MARKED,
  head: firstHead,
  steps: [
    {
      text: () => "Give one layer a single set of keys and values. Watch the cache and the loss.",
      done: (session) => session.settings.some(({ kvHeads }) => kvHeads === 1) && session.lossGrowth() !== null,
    },
    {
      text: () =>
        "Which layer can share in pairs (2 sets) at the lowest cost? Try each layer alone, wait for its loss, and " +
        "end with the best.",
      done: (session) => {
        const tries = session.settings.map((_, layer) => ({
          key: keyOf(paired(session, layer)),
          growth: session.lossGrowth(paired(session, layer)),
        }));
        if (tries.some(({ growth }) => growth === null)) return false;
        const best = tries.reduce((one, other) => ((other.growth ?? 0) < (one.growth ?? 0) ? other : one));
        return keyOf(session.settings) === best.key;
      },
    },
    {
      text: () => "Shrink the cache to a quarter, and read what it costs.",
      done: (session) =>
        session.cacheBytes <= cacheBytes(intact(session.sizes), session.sizes) / 4 && session.lossGrowth() !== null,
    },
  ],
  learned: (session) => {
    const growth = session.lossGrowth();
    return (
      `A quarter of the cache, and the loss grows${growth === null ? "" : ` by ${percent(growth)}`}: heads ` +
      "with different jobs cannot share keys as they are. Real models are trained with shared keys and values, or " +
      "trained further after their means are taken."
    );
  },
};

/** @param {number} count @param {number} limit @returns {Step} */
const budget = (count, limit) => ({
  text: () =>
    `Switch off ${count === 1 ? "one head" : `${count} heads`}, with a loss at most ${percent(limit)} higher.`,
  done: (session) => {
    const growth = session.lossGrowth();
    return session.off.length >= count && onlyChanged(session, session.off) && growth !== null && growth <= limit;
  },
});

/** @type {Lesson} */
const pruning = {
  id: "pruning",
  title: "Pruning under a budget",
  about: (session) =>
    `Remove heads one by one. The page measures the mean loss over ${session.data.samples.length} sample texts ` +
    `each time.`,
  text: MARKED,
  head: firstHead,
  steps: [budget(1, 0.02), budget(3, 0.06), budget(5, 0.15)],
  learned: () =>
    "Heads differ widely in what they are worth, and their costs do not add up: after each removal the order " +
    "changes. That is why tools measure again, or correct the remaining heads (multihead prune does).",
};

/** @type {Lesson[]} */
export const LESSONS = [merge, induction, agreement, delimiters, redundancy, grouped, pruning];

/** Text and heads of the start. @param {Session} session @param {Lesson} lesson */
export function begin(session, lesson) {
  session.lesson = lesson.id;
  session.text = lesson.text;
  session.chosen = lesson.token ?? null;
  const place = headIn(lesson.head(session) ?? "", session.sizes);
  if (place) [session.layer, session.head] = place;
  session.settings = copy(intact(session.sizes));
  session.past = [];
}
