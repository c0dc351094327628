/** The "?" beside a measure or a kind of the report: its definition is in the data. */

import { sentence } from "./format.js";
import { GLOSSARY } from "./glossary.js";
import { help } from "./help.js";
import { column, report } from "./report.js";
import { sharesNamed } from "./share_names.js";

/**
 * A measure of the table: plain words where the glossary has them, then its formula and unit.
 * @param {string} name
 */
export function columnHelp(name) {
  const found = column(name);
  const plain = Object.hasOwn(GLOSSARY, name) ? GLOSSARY[name] : name === report.importance ? GLOSSARY.importance : "";
  const exact = found ? `${sentence(found.meaning)}${found.unit ? ` Unit: ${found.unit}.` : ""}` : "";
  return help(name, [plain, exact].filter(Boolean).join(" "));
}

/** @param {string} kind */
export const kindHelp = (kind) => help(kind, kindMeaning(kind));

/** What a head of a kind does, in a sentence. @param {string} kind */
export const kindSentence = (kind) => (Object.hasOwn(report.kind_texts, kind) ? report.kind_texts[kind] : "");

/** @param {string} kind */
export function kindMeaning(kind) {
  const known = Object.hasOwn(report.kinds, kind) ? report.kinds[kind] : null;
  const exact = known ? `${sentence(known.meaning)} Its score must be above ${known.threshold} and above chance.` : "";
  const shares = sharesNamed(kind).map(({ name, meaning }) => sentence(`${name}: ${meaning}`));
  return [...shares, kindSentence(kind), exact].filter(Boolean).join(" ");
}
