/** The terms of this page in plain words. What the report calls a token is a word here. */

import { define } from "../glossary.js";

define({
  head:
    "From every word, a head looks at this word and earlier ones and takes information from them. A layer has " +
    "several heads, and each looks at different words. L1H3 is head 3 of layer 1; both are counted from 0.",
  "attention map":
    "One square per pair of words. Each row is a query, the word that looks; each column is a key, a word that it " +
    "looks at. The darker the square (on a dark page, the brighter), the larger the weight.",
  weight:
    "How much a word takes from a word that it looks at, from 0 to 1. All weights from one word add up to 1. " +
    "Colours show the square root of the weight, so small weights are visible: 0.25 has the colour halfway to 1.",
  kind:
    "What a head mostly does, such as looking at the previous word, measured on sample texts and on random words " +
    "that repeat. A head that does nothing so clearly is named by what decides where it looks: position, word or " +
    "match.",
  spread: "The head looks at many words about equally.",
  rest: "The head looks mostly at the first word or at marks.",
  position: "The distance between two words decides where the head looks, not the words.",
  word: "Some words draw attention from every word.",
  match: "Both words decide: which word the head looks at depends on the word that asks.",
  "the language":
    "The model knows a small invented language of 214 words. “<now> <town> the keys that the man sees are new .” is " +
    "a sentence of it. <now> or <past> states the tense; <sea>, <farm> or <town> the place. A list of words that " +
    "repeats is also a text that the model can continue.",
  "next word":
    "The model gives every word of its vocabulary a probability to come next. All probabilities add up to 1; the " +
    "bars show the largest. The model computes a score for each word, its logit, and softmax turns scores into " +
    "probabilities.",
  "pattern by hand":
    "Replaces the weights of the head by fixed ones: from every word it looks at all words so far equally, only at " +
    "the word before, or only at the first word. The information that it takes from these words is still computed " +
    "as trained.",
  "one head":
    "Merges the heads of the layer into one that uses the same matrices W_Q, W_K, W_V and W_O. Its query is the " +
    "queries of all heads side by side, and its key their keys. Each pair of words has one score: the sum of the " +
    "heads' products, divided by the root of the longer length. All parts of the vector get the same weights. " +
    "Patterns set by hand do not apply.",
  "keys/values":
    "How many sets of keys and values the heads of this layer have. With fewer sets than heads, heads that are next " +
    "to each other share the mean of theirs: grouped-query attention. With one set it is multi-query attention.",
  "mean loss":
    "How badly the model predicts the sample texts: the mean of −log(probability of the word that really came next), " +
    "in nats. 0 means that every word was certain; guessing at random among 214 words has a loss of 5.4. Lower is " +
    "better.",
  "KV cache":
    "The memory for one word while the model writes text: its key and value, for every set of every layer, two bytes " +
    "per number. It is smaller when heads share keys and values. A set that no head reads, because they are off, is " +
    "not counted.",
  "words copied":
    "In a text that repeats itself: how many of the words after the first round the model predicts correctly. The " +
    "first word of the second round is not counted.",
  gradient:
    "The slopes of the loss on this text, one for every number in W_Q. Training moves W_Q against them. The table " +
    "shows the length of this vector: a large value means that training on this text would change the head strongly.",
  "the computation":
    "Every number between the chosen word and the word after it, in one layer. d_model is the length of a word's " +
    "vector; d_k is the length of the query, the key and the value of a head. Blue is below zero, orange above. " +
    "Weights and probabilities are shown by their square root.",
  embedding:
    "The vector that stands for a word: a row of a table that the model has learned. Each layer adds to it. " +
    "Normalized: shifted and scaled to mean 0 and standard deviation 1, then multiplied by learned weights.",
  "query, key, value":
    "Three vectors that each head computes for every word, with the matrices W_Q, W_K and W_V. The query of the " +
    "chosen word is multiplied with the key of every word so far: each product is a score. Softmax turns the scores " +
    "into weights that add up to 1. The output is the sum of the values, each times its weight.",
  W_O:
    "A matrix that combines the heads. Each head writes a short vector; side by side they are the concatenation. W_O " +
    "turns the concatenation into one vector of length d_model: each of its numbers is a weighted sum over the " +
    "outputs of all heads. This vector is added to that of the word (the residual connection), so the next layer " +
    "gets both. Point at a cell of “mixed by W_O” to see how much each head contributes.",
  "hidden layer":
    "After the heads, each vector is processed without looking at other words (the MLP). A matrix makes a longer " +
    "vector, GELU sets most of its negative numbers to nearly 0, and a second matrix makes a vector of length " +
    "d_model. This is added, too.",
});

export {};
