/** Every term of the page in plain words. Measures and kinds add their own definition from the data. */

/** @type {Record<string, string>} */
export const GLOSSARY = {
  head:
    "From every token, a head looks at other tokens and takes information from them. A layer has several heads, and " +
    "each looks at different tokens. L3H7 is head 7 of layer 3; both are counted from 0.",
  layer: "A step of the model. Its heads work in parallel, and the next layer reads their output.",
  token: "A word or a piece of a word: the unit that the model reads.",
  parameters: "The values that training has set. M is a million, k a thousand.",
  "kv heads":
    "Heads with keys and values. Where several heads share them (grouped-query attention), there are fewer kv " +
    "heads than heads.",
  "attention map":
    "One square per pair of tokens. Each row is a query, the token that looks; each column is a key, a token that " +
    "it looks at. The darker the square (on a dark page, the brighter), the larger the weight.",
  switch:
    "Multiplies the output of a head by a factor: 1 changes nothing, 0 switches the head off, as if it were pruned. " +
    "Heads of later layers read this output, so their maps may change, too.",
  query: "The token that looks: a row of the map. The weights of a row add up to 1.",
  key: "A token that a query looks at: a column of the map.",
  shading:
    "The colour of each box shows the largest weight of its head from this token, on a square-root scale like the " +
    "maps. The shading of the text shows the mean over all heads, relative to its largest value.",
  weight:
    "How much a token takes from a token that it looks at, from 0 to 1. All weights from one token add up to 1. " +
    "Colours show the square root of the weight, so small weights are visible: 0.25 has the colour halfway to 1.",
  kind:
    "What a head mostly does, such as looking at the previous token. A head has a kind only if its score is " +
    "significantly above a threshold and above chance, measured over several documents. Otherwise its name is its " +
    "leading share with the value of the share.",
  shares:
    "Five shares explain why a head looks where it looks; they add up to 1. Spread: it looks at many tokens " +
    "equally. Rest: it looks at the first or at special tokens. Position: the distance decides. Word: the token " +
    "that it looks at decides. Match: both tokens decide. They are parts of log n, for texts of n tokens. Spread " +
    "and rest lead only where they dominate. Two shares lead where their intervals overlap or they differ by less " +
    "than 15 %.",
  "example rows":
    "Tokens with large weights in this text, and the three keys that each looks at most. Click a token to see its row.",
  score:
    "How clearly a head is of its kind, from 0 to 1: for most kinds, the share of its weight on the tokens that " +
    "define the kind. The tick is the threshold, the line the 95 % interval, the open dot the score by chance.",
  evidence:
    "Why the head has its kind, or none: the score, its 95 % interval, the threshold and the score by chance.",
  importance:
    "How much worse the model is without this head. The value after ± is half of the 95 % interval; if the " +
    "importance is below it, it may be zero.",
  "most similar": "The head with the most similar output, by CKA: 0 is unrelated, 1 is the same.",
  "most similar pairs":
    "Each line is a pair of heads among the heads that are shown, by the chosen measure. Click a pair to see both " +
    "maps side by side.",
  CKA:
    "Centered kernel alignment: how similar the outputs of two heads are, whatever their rotation. 0 is " +
    "unrelated, 1 is the same.",
  "norm-weighted":
    "Each weight is multiplied by the length of the vector that its key adds to the output, and rows sum to 1 again " +
    "(Kobayashi et al. 2020). A large weight on a token that adds nothing disappears.",
  "hide delimiters":
    "Excludes special tokens such as [CLS] and [SEP]. The weights of the other tokens are scaled to add up to 1 " +
    "again.",
  direction: "A row of the map shows where a token looks. A column shows who looks at the token.",
  distance: "How far away the keys are that a head looks at, in tokens.",
  entropy: "How widely a head spreads its weight: 0 if it looks at one token only, larger if it looks at many tokens.",
  max_weight: "The largest weight that a query gives to one key; near 1, the head looks at one token at a time.",
  first: "The share of the weight on the first token.",
  special: "The share of the weight on special tokens such as [CLS], [SEP] or the end of a text.",
  previous: "The share of the weight on the token one position back.",
  next: "The share of the weight on the token one position ahead.",
  self: "The share of the weight on the token itself.",
  same_token: "The share of the weight on other copies of the same token.",
  induction: "The share of the weight on tokens that followed an earlier copy of the same token.",
  output_norm: "The length of the head's output vector.",
  measures: "Values measured over the corpus. The “?” beside each says what it means.",
  pairs: "The tokens that the head connects most strongly: from the query to the key.",
  "by distance": "How much weight goes to keys at each distance: back on the left, ahead on the right.",
  group:
    "Heads that are, on average, more similar to each other than a threshold. One of them may replace the others.",
  pruning:
    "Removing heads from the model. The matrices get smaller, so the model needs less memory and time. Quality is " +
    "measured again with the heads removed.",
  "quality lost":
    "How much worse the model is without the removed heads, as a share: the growth of its perplexity, or the " +
    "change of its outputs if it has no vocabulary.",
  "can be pruned":
    "These heads can be removed together, and the model loses less quality than the limit (the dashed line).",
  method: "The rule that decides which heads are removed first.",
  "heads kept": "How many heads remain in the model: all of them on the left, none on the right.",
  "attention costs":
    "Parameters, arithmetic and memory of the attention layers alone, for a text of the given length. They are " +
    "computed from the sizes, not measured.",
  "cost: parameters": "The weights of the attention layers.",
  "cost: FLOPs, projections":
    "Multiplications and additions that compute queries, keys and values of every token, and mix the heads' " +
    "outputs.",
  "cost: FLOPs, attention": "Multiplications and additions that compare every query with every key and mix the values.",
  "cost: FLOPs, visible pairs only": "The same for pairs that the mask allows: about half of them in a causal model.",
  "cost: scores, if written out":
    "Memory for the attention maps of all heads if they were stored. Fast kernels never store them.",
  "cost: KV cache": "Memory for the keys and values of all earlier tokens while a text is generated.",
  "cost: decoding, FLOPs per token": "Multiplications and additions for one new token while a text is generated.",
  "cost: decoding, bytes per token": "Memory read for one new token: weights and the KV cache.",
  "cost: FLOPs per byte, all tokens":
    "Arithmetic per byte of memory traffic when the model reads a whole text at once. Above about 100, arithmetic " +
    "limits the speed; below, memory does.",
  "cost: FLOPs per byte, decoding": "The same for one new token while a text is generated.",
  "cost: crossover, tokens": "The length of text above which comparing tokens costs more than the projections.",
  "cost: crossover, visible pairs only": "The same, counting only pairs that the mask allows.",
  "as computed": "The left side of the statement, computed on this model.",
  "as stated": "The right side: the value that the statement predicts.",
  statement: "A claim about multi-head attention from a paper or a textbook. It can be true or false.",
  verdict: "Holds, fails, or holds only under a condition: both sides were computed on this model.",
};

/** Add the terms of another page. @param {Record<string, string>} terms */
export const define = (terms) => Object.assign(GLOSSARY, terms);
