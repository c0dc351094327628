/** What kinds of heads are called, and what they do: the words come from the data. */

import { report } from "./report.js";

/** @param {string} kind */
const textOf = (kind) => (Object.hasOwn(report.kind_texts, kind) ? report.kind_texts[kind] : null);

/** What a kind is called where there is little room. @param {string} kind */
export const kindLabel = (kind) => textOf(kind)?.label ?? kind;

/** What a head of a kind does, in a sentence. @param {string} kind */
export const kindSentence = (kind) => textOf(kind)?.sentence ?? "";
