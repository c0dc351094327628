/** Lessons on what single heads do. Heads are named by the model card, never here. */

import {
  MARKED,
  REPEATED,
  atEnd,
  firstHead,
  headsOf,
  inWords,
  lastGuess,
  list,
  oneLetterLess,
  oneMarkChanged,
  oneOff,
  onlyChanged,
  percent,
  prefers,
  weightOn,
  weightOnMarks,
} from "./lesson_checks.js";
import { headIn } from "./settings.js";

/** @typedef {import("./lessons.js").Lesson} Lesson */

const AGREEMENT = "<now> <town> the keys that the man near the door sees";

const [ONE, MANY] = [
  ["is", "was"],
  ["are", "were"],
];
const [PRESENT, PAST] = [
  ["is", "are", "opens", "open", "shines", "shine"],
  ["was", "were", "opened", "shone"],
];

/** How likely verbs of each tense are after the last word. @param {import("./session.js").Session} session */
function tenses(session) {
  const last = session.tokens.length - 1;
  const sums = [PAST, PRESENT].map(
    (verbs) => `${verbs.join(", ")}: ${percent(session.probability("after", verbs, last), 1)}`,
  );
  return `Now the sums are: ${sums.join("; ")}.`;
}

/** @type {Lesson} */
export const agreement = {
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
        "Switch it on again. Then delete one letter of the text (in the field under “Words”) to make “is” at least " +
        "twice as likely as “are”. All words must be words that the model knows.",
      rewrites: true,
      done: (session) =>
        !session.changed &&
        session.tokens.every(({ known }) => known) &&
        oneLetterLess(session.text.trim(), AGREEMENT) &&
        prefers(session, "after", ONE, MANY, 2),
    },
  ],
  learned: (session) =>
    `${session.card.agreement} tells the verb whether its subject is one or many. It looks past the nouns in ` +
    `between, although they are closer. Its kind is “${session.card.kinds[session.card.agreement]}”, because a kind ` +
    `is what a head does in random words that repeat: a head may do two jobs.`,
};

/** @type {Lesson} */
export const delimiters = {
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
      done: (session) =>
        atEnd(session) &&
        session.layer === session.sizes.layers - 1 &&
        !session.changed &&
        weightOnMarks(session, session.headName) >= 0.8,
    },
    {
      text: (session) =>
        "Switch off one such head and nothing else. The sentence still says <now>, but verbs of the past must become " +
        "likelier than verbs of the present. If they do not, try a different head that looks at the marks. " +
        tenses(session),
      done: (session) =>
        oneOff(session) &&
        weightOnMarks(session, session.off[0]) >= 0.8 &&
        prefers(session, "before", PRESENT, PAST) &&
        prefers(session, "after", PAST, PRESENT),
    },
    {
      text: (session) =>
        "Reset the heads. Then change one mark in the text (in the field under “Words”) to make verbs of the past at " +
        `least twice as likely as verbs of the present. ${tenses(session)}`,
      rewrites: true,
      done: (session) =>
        !session.changed && oneMarkChanged(session, MARKED) && prefers(session, "after", PAST, PRESENT, 2),
    },
  ],
  learned: (session) =>
    `${session.card.marks} reads the tense from the marks. In models of human language, too, many heads look at ` +
    `delimiters, often because they have nothing else to do. Here the marks carry information.`,
};

/** @type {Lesson} */
export const induction = {
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
        "Switch off this head and nothing else. The model must copy at most 70 % of the words: see “words copied”, " +
        "under the bars of “Next word”.",
      done: (session) =>
        oneOff(session) &&
        headsOf(session, "previous").includes(session.off[0]) &&
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
    "“fat” they look for the word that came after a “fat”. For copying, only where the earlier head looks matters: " +
    "your pattern restores it. It does not restore everything: the mean loss over the sample texts remains higher " +
    "than that of the trained model. Without the pattern some copying survives, because a second head of that layer " +
    "also looks back.",
};

/** @type {Lesson} */
export const redundancy = {
  id: "redundancy",
  title: "Redundancy",
  about: (session) =>
    `${inWords(headsOf(session, "induction").length)} heads do the same: in a repeated text, they look at the word ` +
    `that followed the earlier copy (${list(headsOf(session, "induction"))}). How many does the model need?`,
  text: REPEATED,
  head: (session) => headsOf(session, "induction")[0],
  terms: ["words copied"],
  steps: [
    {
      text: () =>
        "Switch off one induction head. The model must still copy 90 % of the words: see “words copied”, under the " +
        "bars of “Next word”.",
      done: (session) =>
        oneOff(session) &&
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

