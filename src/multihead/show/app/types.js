/**
 * The data of a page, as multihead.show.report_page writes it, and the shapes that the views share.
 *
 * @typedef {object} Site one attention layer
 * @property {string} label "L3", "encoder.L3", "cross.L3"
 * @property {string} stack "encoder", "decoder", or "" where there is one stack
 * @property {number} layer
 * @property {number} heads
 * @property {number} kv number of key/value heads
 *
 * @typedef {object} Column a measure of every head, in the order of `Report.heads`
 * @property {string} unit
 * @property {string} meaning
 * @property {(number | string | null)[]} values
 * @property {Record<string, string[]>} why a reason → the heads that have no value for it
 *
 * @typedef {object} Sequence the tokens along one side of a map
 * @property {string[]} shown
 * @property {boolean[]} joined_to_previous joined to the previous token, without a space
 * @property {boolean[]} special
 *
 * @typedef {object} StoredMap where the attention of a head is kept: as a map, as q and k, or on the server
 * @property {number} [map]
 * @property {number} [q]
 * @property {number} [k]
 * @property {number} [dim]
 * @property {boolean} [wide] single precision, otherwise half
 * @property {number} [first] the first key that each query sees
 * @property {number} [end] the key after the last one
 * @property {number} [bias] added to the scores, by distance
 * @property {number} [softcap]
 * @property {number} [sink]
 * @property {boolean} [served]
 *
 * @typedef {object} TextLayer
 * @property {string} label
 * @property {number} queries
 * @property {number} keys
 * @property {number} rows the sequence along the rows
 * @property {number} columns the sequence along the columns
 * @property {number | null} norms
 * @property {(StoredMap | null)[]} heads
 *
 * @typedef {object} Text
 * @property {string} name
 * @property {string} note which window it is, and which words the model does not have
 * @property {[number, number]} window which window of how many
 * @property {number} source windows of one text have the same
 * @property {number} [at] the number of a served text
 * @property {Sequence[]} sequences
 * @property {TextLayer[]} layers
 * @property {string} lengths the vector whose length weights the norm-weighted map: "W_O v" or "v"
 *
 * @typedef {object} PairMeasure
 * @property {string} name
 * @property {string} meaning
 * @property {number} low the smallest possible value; the largest is 1
 * @property {number} line the blob with its values
 *
 * @typedef {object} Pairs
 * @property {string[]} heads
 * @property {PairMeasure[]} measures
 * @property {number[]} order similar heads next to each other
 * @property {string[][]} groups
 * @property {string} by
 * @property {string[]} notes
 *
 * @typedef {object} Speed
 * @property {number} ratio
 * @property {number} low
 * @property {number} high
 * @property {number} batch
 * @property {number} tokens
 * @property {number} rounds
 * @property {string} verdict
 *
 * @typedef {object} CurvePoint
 * @property {number} kept
 * @property {number} gone
 * @property {number} lost share of the quality
 * @property {string[]} [heads] the removed heads
 * @property {number} [parameters]
 * @property {string[] | null} [cost]
 * @property {Speed} [speed]
 *
 * @typedef {object} CurveLine
 * @property {string} method
 * @property {CurvePoint[]} points
 * @property {string[]} order
 *
 * @typedef {object} Curve
 * @property {CurveLine[]} curves
 * @property {string} unit
 * @property {number} limit the share of quality that may be lost
 * @property {number} prunable
 * @property {boolean} [cut] every point is a model that was pruned and refitted
 * @property {number} [heads]
 * @property {number} [fitted]
 * @property {number} [judged]
 *
 * @typedef {object} Cost
 * @property {string[]} title
 * @property {string[]} heading
 * @property {string[][]} rows
 *
 * @typedef {object} LayerVerdict
 * @property {string} verdict
 * @property {string} lhs
 * @property {string} rhs
 * @property {string} because
 *
 * @typedef {object} Statement
 * @property {string} id
 * @property {string} title
 * @property {string} formula
 * @property {string} holds_when
 * @property {string} verdict
 * @property {string} tally
 * @property {Record<string, LayerVerdict>} layers
 *
 * @typedef {object} Share one of the five shares of log n
 * @property {string} name
 * @property {string} colour
 * @property {string} meaning one line
 * @property {string} one what a head does in which it leads
 *
 * @typedef {object} Charts palettes and formats, the same in every face of the report
 * @property {Record<string, string>} kinds
 * @property {Share[]} shares
 * @property {string} two_lead in the legend: heads in which two shares lead
 * @property {string[]} lines
 * @property {Record<"weight" | "weight-dark" | "measure" | "signed" | "signed-dark", string[]>} ramps
 * @property {string} no_value
 * @property {number} weight_exponent
 * @property {[number, number]} size diameters of the least and the most important head, in cells
 * @property {{size: [number, number], hole: number, centre: number}} ring the same of a ring; the others of the ring
 * @property {{missing: string, digits: number, plain: [number, number], fraction_digits: number,
 *   prefixes: string[]}} format
 *
 * @typedef {object} Report
 * @property {string} version
 * @property {string} made
 * @property {Charts} charts
 * @property {{name: string, class: string, parameters: number}} model
 * @property {{name: string, documents: number, tokens?: number, loss?: string}} corpus
 * @property {boolean} stopped
 * @property {string[] | null} served what its server reads: "text", "decoder"; null of a file
 * @property {string[]} notes
 * @property {{text: string, link: string}[]} findings
 * @property {Site[]} sites
 * @property {string[]} heads names; a head of a pruned model keeps its original one
 * @property {Record<string, Column> | null} table
 * @property {string | null} importance the column of importance
 * @property {Record<string, {meaning: string, threshold: number, shares: string[]}>} kinds a head has a kind only
 * if one of its `shares` leads
 * @property {Record<string, string>} kind_texts what a head of each kind does
 * @property {Record<string, string> | null} why the evidence for each head's kind
 * @property {Record<string, [string, string, number, number][]> | null} often
 * @property {Pairs | null} pairs
 * @property {Curve | null} curve
 * @property {{about: string, statements: Statement[]} | null} theory
 * @property {Cost | null} cost
 * @property {Text[]} texts
 *
 * @typedef {object} SwitchRequest
 * @property {number} text the number of a served text
 * @property {Record<string, number>} scales factors of heads, in [0, 1]
 * @property {number} [token] where predictions are listed
 * @property {string} [head] the head whose map is returned
 *
 * @typedef {object} SwitchAnswer `top` and `changed` of models that predict tokens or classes, the cosines of others
 * @property {"next" | "masked" | "classes" | "vector"} reading
 * @property {string[]} shown
 * @property {number} token
 * @property {string | null} map 255 √p, deflated
 * @property {{id: number, word: string, before: number, after: number}[]} [top]
 * @property {number | null} [actual] the token that stands in the text
 * @property {{token: number, before: string, after: string}[]} [changed]
 * @property {number} [rows] how many predictions there are: one for each token, or one
 * @property {number} [cosine] of the vectors of the input, before and after
 * @property {number} [change] how far the vector of the input moved, relative to its length
 * @property {number[] | null} [cosines] of the vectors of its tokens
 * @property {string} [vector] what the vector of the text is
 *
 * @typedef {Record<string, string | undefined>} State the parts of the address
 *
 * @typedef {object} View what stands below the tabs
 * @property {HTMLElement} element
 * @property {() => void | Promise<void>} [start] called once the element is in the document
 * @property {() => void} [resize]
 * @property {() => void} [stop] called before another view replaces it
 * @property {(state: State, head: number) => Promise<void> | null} [moveTo] show another head in place, if it can
 *
 * @typedef {{x: number, y: number, w: number, h: number}} Window a part of a map, in cells
 */

export {};
