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
  lastGuess,
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
 * @property {string[]} terms explained below the first sentences
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
const agreement = {
  id: "agreement",
  title: "Agreement over distance",
  about: () =>
    "In “the keys that the man near the door sees”, the verb that comes next belongs to “keys”, seven words back. " +
    "Two other nouns, “man” and “door”, are closer.",
  text: AGREEMENT,
  head: firstHead,
  terms: ["head", "weight"],
  steps: [
    {
      text: () =>
        "Find a head that looks from the last word, “sees”, back to the subject, “keys”, with a weight above 0.5. " +
        "Click the names of heads and read the line below the words.",
      done: (session) =>
        atEnd(session) && !session.changed && weightOn(session, (i) => session.word(i) === "keys") > 0.5,
    },
    {
      text: () =>
        "Switch off one head (untick it) to make “is” the likeliest next word. If it does not work, switch the head " +
        "on again and try a different one.",
      done: (session) => oneOff(session) && prefers(session, "before", MANY, ONE) && ONE.includes(lastGuess(session)),
    },
    {
      text: () =>
        "Switch it on again. Then delete one letter of the text to make “is” at least twice as likely as “are”.",
      done: (session) =>
        !session.changed &&
        session.text.trim().length === AGREEMENT.length - 1 &&
        prefers(session, "after", ONE, MANY, 2),
    },
  ],
  learned: (session) =>
    `${session.card.agreement} tells the verb whether its subject is one or many. It looks past the nouns in ` +
    `between, although they are closer.`,
};

/** @type {Lesson} */
const delimiters = {
  id: "delimiters",
  title: "Delimiters",
  about: () =>
    "Marks such as <now> and <town> open a sentence and state its tense and place. Nearly every later word depends " +
    "on them.",
  text: MARKED,
  head: firstHead,
  terms: ["the language", "weight"],
  steps: [
    {
      text: (session) =>
        `Find a head of layer ${session.sizes.layers - 1} that gives at least 80 % of its weight from the last word ` +
        `to the marks of this sentence, <now> and <town>.`,
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
        "Switch off one such head and nothing else. The sentence still says <now>, but verbs of the past (was, " +
        "opened) must become likelier than verbs of the present (is, opens). If they do not, try a different head " +
        "that looks at the marks.",
      done: (session) =>
        oneOff(session) && prefers(session, "before", PRESENT, PAST) && prefers(session, "after", PAST, PRESENT),
    },
    {
      text: () => "Reset the heads. Then change one mark in the text to make the trained model prefer the past.",
      done: (session) =>
        !session.changed && session.text.trim() !== MARKED && prefers(session, "after", PAST, PRESENT, 2),
    },
  ],
  learned: (session) =>
    `${session.card.marks} reads tense and place from the marks. In models of human language, too, many heads look ` +
    `at delimiters, often because they have nothing else to do. Here the marks carry information.`,
};

/** @type {Lesson} */
const induction = {
  id: "induction",
  title: "Previous word and induction",
  about: () =>
    "The text repeats nine words three times. After the first round the model predicts every word: heads of two " +
    "layers work together to copy.",
  text: REPEATED,
  head: (session) => headsOf(session, "previous")[0],
  terms: ["words copied", "attention map", "pattern by hand"],
  steps: [
    {
      text: (session) =>
        `Choose an induction head (${list(headsOf(session, "induction"))}) and a word of the second round, such as ` +
        `the second “fat”. The head must give a weight above 0.5 to the word that followed the first “fat”: “Ben”.`,
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
        "Choose the head of an earlier layer that looks at the previous word: the dark squares of its map are just " +
        "below the diagonal.",
      done: (session) => headsOf(session, "previous").includes(session.headName),
    },
    {
      text: () =>
        "Switch off this head and nothing else. The model must copy at most 70 % of the words: see “words copied” " +
        "below the heads.",
      done: (session) =>
        session.changed &&
        onlyChanged(session, headsOf(session, "previous")) &&
        session.copied("after") <= 0.7 * session.copied("before"),
    },
    {
      text: () =>
        "Repair it by hand: switch the head on and choose “previous word” in the list below the heads. The model " +
        "must copy at least 90 % again.",
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
    "The earlier head tells each word which word came before it. The induction heads use this: from the second " +
    "“fat” they look for the word that came after a “fat”. Only where the earlier head looks matters: your pattern " +
    "works as well as the trained one. Without it some copying survives, because a second head of that layer also " +
    "looks back.",
};

/** @type {Lesson} */
const redundancy = {
  id: "redundancy",
  title: "Redundancy",
  about: (session) =>
    `${headsOf(session, "induction").length} heads do the same: in a repeated text, they look at the word that ` +
    `followed the earlier copy (${list(headsOf(session, "induction"))}). How many does the model need?`,
  text: REPEATED,
  head: (session) => headsOf(session, "induction")[0],
  terms: ["words copied"],
  steps: [
    {
      text: () =>
        "Switch off one induction head. The model must still copy 90 % of the words: see “words copied” below the " +
        "heads.",
      done: (session) =>
        session.off.length === 1 &&
        headsOf(session, "induction").includes(session.off[0]) &&
        session.copied("after") >= 0.9,
    },
    {
      text: () => "Switch off all induction heads and nothing else. The model copies at most 10 %.",
      done: (session) => {
        const all = headsOf(session, "induction");
        return (
          all.every((name) => session.off.includes(name)) && onlyChanged(session, all) && session.copied("after") <= 0.1
        );
      },
    },
    {
      text: () =>
        "Find two induction heads that are enough: with all others off, the model copies at least 95 %.",
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
    "A head may do necessary work although the model does not miss it, because other heads do the same. To measure " +
    "the importance of a group, remove the whole group: one head at a time is misleading.",
};

/** @type {Lesson} */
const merge = {
  id: "merge",
  title: "One head or many",
  about: () =>
    "A layer has four heads, and each has its own weights for every word. Merge them into one head with the same " +
    "matrices: it has only one set of weights. When does that change the output?",
  text: REPEATED,
  head: (session) => headsOf(session, "induction")[0],
  token: 12,
  gradients: true,
  terms: ["query, key, value", "W_O", "one head", "gradient"],
  steps: [
    {
      text: (session) => `Merge the heads of layer ${inductionLayer(session)}: tick “one head” above them.`,
      done: (session) => session.settings[inductionLayer(session)].merged,
    },
    {
      text: () =>
        "Choose a word, not the first, at which the output of the merged head differs by less than 15 % from that " +
        "of the four heads. The differences are listed below, and the table shows where each head looks.",
      done: (session) =>
        session.settings[inductionLayer(session)].merged &&
        session.token > 0 &&
        session.difference(inductionLayer(session)) < 0.15,
    },
    {
      text: () =>
        "Now choose a word at which it differs by more than 50 %. Compare where the four heads look there.",
      done: (session) =>
        session.settings[inductionLayer(session)].merged && session.difference(inductionLayer(session)) > 0.5,
    },
    {
      text: () =>
        "Separate the heads again (Undo or Reset). The table shows the gradient of W_Q: how strongly training on " +
        "this text would change each head. Click the name of the head with the largest gradient in “Heads”.",
      done: (session) => {
        const layer = inductionLayer(session);
        if (session.changed || session.layer !== layer) return false;
        const norms = gradientNorms(session, layer, "before");
        return norms[session.head] === Math.max(...norms);
      },
    },
  ],
  learned: () =>
    "One head and many agree only where all heads have the same weights, with nearly everything on one word or the " +
    "same on every word. At the first word this is always true: it can only look at itself. Elsewhere one pattern " +
    "replaces several. The gradients differ, too: the W_Q of a separate head learns from the scores of this head. " +
    "The merged head has one score for each pair of words; its gradient is a sum over all parts of the vector, and " +
    "it changes every part of W_Q.",
};

/** @type {Lesson} */
const grouped = {
  id: "grouped",
  title: "Grouped-query attention",
  about: () =>
    "While a model writes text, it stores the key and the value of every earlier word: the KV cache. Heads that " +
    "share keys and values need a smaller cache. Here they share the mean of theirs, and the model is not trained " +
    "again.",
  text: MARKED,
  head: firstHead,
  terms: ["query, key, value", "keys/values", "KV cache", "mean loss"],
  steps: [
    {
      text: () =>
        "Give one layer a single set of keys and values: choose 1 in its list “keys/values”. Watch the KV cache and " +
        "the mean loss below the heads.",
      done: (session) => session.settings.some(({ kvHeads }) => kvHeads === 1) && session.lossGrowth() !== null,
    },
    {
      text: () =>
        "With 2 sets, heads share in pairs. Try this on each layer alone (Reset in between), wait for the loss each " +
        "time, and end with the layer that raises the loss least.",
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
      text: (session) =>
        `Shrink the cache to a quarter, ${cacheBytes(intact(session.sizes), session.sizes) / 4} bytes per word, and ` +
        `read how much the loss rises.`,
      done: (session) =>
        session.cacheBytes <= cacheBytes(intact(session.sizes), session.sizes) / 4 && session.lossGrowth() !== null,
    },
  ],
  learned: (session) => {
    const growth = session.lossGrowth();
    return (
      `With a quarter of the cache, the loss is${growth === null ? "" : ` ${percent(growth)}`} higher: heads with ` +
      "different jobs cannot share the keys that they were trained with. Real models are trained with shared keys " +
      "and values, or trained further after sharing."
    );
  },
};

/** @param {number} count @param {number} limit @returns {Step} */
const budget = (count, limit) => ({
  text: () =>
    `Switch off ${count === 1 ? "one head" : `${count} heads in all`}. The mean loss may be at most ` +
    `${percent(limit)} higher.`,
  done: (session) => {
    const growth = session.lossGrowth();
    return session.off.length >= count && onlyChanged(session, session.off) && growth !== null && growth <= limit;
  },
});

/** @type {Lesson} */
const pruning = {
  id: "pruning",
  title: "Pruning",
  about: (session) =>
    `Remove heads one by one. After each change, the page measures the mean loss over ` +
    `${session.data.samples.length} sample texts: it is below the heads. Start with heads that do the same as others.`,
  text: MARKED,
  head: firstHead,
  terms: ["mean loss"],
  steps: [budget(1, 0.02), budget(3, 0.06), budget(5, 0.15)],
  learned: () =>
    "Some heads cost little and some cost much, and the costs do not add up: after each removal, the order changes. " +
    "This is why tools measure again after each removal. multihead prune also refits the remaining heads.",
};

/** The easiest first. @type {Lesson[]} */
export const LESSONS = [agreement, delimiters, induction, redundancy, merge, grouped, pruning];

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
