/** Lessons on layers as a whole: merged heads, shared keys and values, fewer heads. */

import { gradientNorms } from "./gradient_norms.js";
import { MARKED, REPEATED, firstHead, headsOf, inductionLayer, onlyChanged, paired, percent } from "./lesson_checks.js";
import { intact } from "./model.js";
import { cacheBytes, keyOf } from "./settings.js";

/**
 * @typedef {import("./session.js").Session} Session
 * @typedef {import("./lessons.js").Lesson} Lesson
 * @typedef {import("./lessons.js").Step} Step
 */

/** Whether the induction heads are merged and nothing else is switched. @param {Session} session */
function onlyMerged(session) {
  const settings = intact(session.sizes);
  settings[inductionLayer(session)].merged = true;
  return keyOf(session.settings) === keyOf(settings);
}

/**
 * How much each layer has raised the loss, as far as it was tried, when its heads shared in pairs.
 * @param {Session} session
 */
function triedPairs(session) {
  const tries = session.settings.flatMap((_, layer) => {
    const growth = session.lossGrowth(paired(session, layer));
    return growth === null ? [] : [`layer ${layer} ${percent(growth, 1)}`];
  });
  return tries.length ? ` Measured: ${tries.join(", ")}.` : "";
}

/** @type {Lesson} */
export const merge = {
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
      text: (session) =>
        `Merge the heads of layer ${inductionLayer(session)}: tick “one head” above them, and change ` +
        `nothing else.`,
      done: onlyMerged,
    },
    {
      text: () =>
        "Choose a word, not the first, at which the output of the merged head differs by less than 15 % from that " +
        "of the four heads. The differences are listed below, and the table shows where each head looks.",
      done: (session) =>
        onlyMerged(session) && session.token > 0 && session.difference(inductionLayer(session)) < 0.15,
    },
    {
      text: () =>
        "Now choose a word at which it differs by more than 50 %. Compare where the four heads look there.",
      done: (session) => onlyMerged(session) && session.difference(inductionLayer(session)) > 0.5,
    },
    {
      text: () =>
        "Separate the heads again (Undo or Reset). The table shows the gradient of W_Q: how strongly training on " +
        "this text would change each head. Click the name of the head with the largest gradient in “Heads”.",
      done: (session) => {
        const layer = inductionLayer(session);
        if (session.changed || session.layer !== layer) return false;
        const norms = gradientNorms(session, layer, "before");
        return norms !== null && norms[session.head] === Math.max(...norms);
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
export const grouped = {
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
        "the mean loss, under the bars of “Next word”.",
      done: (session) => session.settings.some(({ kvHeads }) => kvHeads === 1) && session.lossGrowth() !== null,
    },
    {
      text: (session) =>
        "With 2 sets, heads share in pairs. Try this on each layer alone (Reset in between), wait for the loss each " +
        `time, and end with the layer that raises the loss least.${triedPairs(session)}`,
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
        `Shrink the cache to a quarter, ${cacheBytes(intact(session.sizes), session.sizes) / 4} bytes per word, with ` +
        `every head on, and read how much the loss rises.`,
      done: (session) =>
        !session.off.length &&
        session.cacheBytes <= cacheBytes(intact(session.sizes), session.sizes) / 4 &&
        session.lossGrowth() !== null,
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
export const pruning = {
  id: "pruning",
  title: "Pruning",
  about: (session) =>
    `Remove heads one by one. After each change, the page measures the mean loss over ` +
    `${session.data.samples.length} sample texts, and how much it would rise without each further head.`,
  text: MARKED,
  head: firstHead,
  removals: true,
  terms: ["mean loss"],
  steps: [budget(1, 0.02), budget(3, 0.06), budget(5, 0.15)],
  learned: () =>
    "Some heads cost little and some cost much, and the costs do not add up: each removal changes those of the rest. " +
    "This is why tools measure again after each removal. multihead prune also refits the remaining heads.",
};

