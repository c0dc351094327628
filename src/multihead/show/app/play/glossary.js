/** The terms of this page in plain words; the others are those of the report. */

import { define } from "../glossary.js";

define({
  "the language":
    "The model reads a small invented language of 214 words. “<now> <town> the keys that the man sees are new .” " +
    "is a sentence of it; <now> or <past> says the tense, <sea>, <farm> or <town> the place. Any word list " +
    "repeated is text, too.",
  "next word":
    "The model gives every word of its vocabulary a probability to come next; together they are 1. The bars show " +
    "the largest. Probabilities come from scores, also called logits, which softmax turns into shares of 1.",
  "pattern by hand":
    "Replaces the weights of the head by fixed ones: every word looks at all words so far equally, at the word " +
    "before it, or at the first word. What the head does with the words that it sees stays as trained.",
  "one head":
    "Merges the heads of the layer into one with the same matrices W_Q, W_K, W_V and W_O. Its query and key are " +
    "those of all heads side by side, so its score is the sum of their products, divided by the root of the longer " +
    "length; all parts of the vector then get the same weights. Patterns set by hand do not apply.",
  "keys/values":
    "How many sets of keys and values the heads of this layer have. With fewer sets than heads, neighbouring heads " +
    "share the mean of theirs: grouped-query attention. With one set: multi-query attention.",
  "mean loss":
    "How surprised the model is by the words of the sample texts: the mean of −log(probability of the word that " +
    "really came next), in nats. 0 is certainty; guessing among 214 words at random is 5.4. Lower is better.",
  "KV cache":
    "Memory for one word while a text is generated: its key and value in every set of every layer, two bytes per " +
    "number. Sharing keys and values among heads makes it smaller.",
  "words copied":
    "In a text that repeats itself: the share of words after the first round that are the likeliest next word. The " +
    "first word of the second round is not counted.",
  gradient:
    "The direction in which training on this text would change W_Q, and how strongly: the length of the vector of " +
    "all slopes of the loss, computed exactly by the chain rule.",
  "the computation":
    "All numbers that lead from the chosen word to the word after it, in one layer. d_model is the length of a " +
    "word's vector, d_k the length of the query, key and value of a head. Colours: blue below zero, orange above; " +
    "weights and probabilities from 0 to 1 by their square root.",
  embedding:
    "The vector that stands for a word: a row of a table that training has set. The layers add to it step by step.",
  "query, key, value":
    "Three vectors that each head makes of every word. The query of the chosen word is compared with the keys of " +
    "the words so far: their product is the score. Softmax turns scores into weights that sum to 1. The output is " +
    "the sum of the values, each times its weight.",
  W_O:
    "The matrix that mixes the outputs of all heads. Each number of the result takes a share of every number of " +
    "every head.",
});

export {};
