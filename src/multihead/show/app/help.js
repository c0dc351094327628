/** The "?" beside a term: a button that opens its definition. Works with pointer, touch and keyboard. */

import { announce, el } from "./dom.js";
import { sentence } from "./format.js";
import { GLOSSARY, kindLabel, kindSentence } from "./glossary.js";
import { column, report } from "./report.js";
import { sharesNamed } from "./shares.js";

const box = el("div", { id: "definition", role: "note", hidden: true });
/** @type {HTMLElement | null} */
let opener = null;

function close() {
  opener?.setAttribute("aria-expanded", "false");
  opener = null;
  box.hidden = true;
}

/**
 * @param {HTMLElement} button
 * @param {string} term
 * @param {string} text
 */
function open(button, term, text) {
  close();
  opener = button;
  button.setAttribute("aria-expanded", "true");
  box.replaceChildren(el("b", {}, term), el("p", {}, text));
  document.body.append(box);
  box.hidden = false;
  const at = button.getBoundingClientRect();
  const { width, height } = box.getBoundingClientRect();
  const left = Math.max(8, Math.min(at.left - 12, document.documentElement.clientWidth - width - 8));
  const below = at.bottom + 6 + height <= window.innerHeight || at.top < height + 6;
  box.style.left = `${left + window.scrollX}px`;
  box.style.top = `${(below ? at.bottom + 6 : at.top - height - 6) + window.scrollY}px`;
  announce(`${term}: ${text}`);
}

document.addEventListener("pointerdown", (event) => {
  const target = /** @type {Node} */ (event.target);
  if (opener && !box.contains(target) && !opener.contains(target)) close();
});
window.addEventListener("hashchange", close);
document.addEventListener(
  "keydown",
  (event) => {
    if (event.key !== "Escape" || !opener) return;
    event.stopPropagation(); // Escape also leads back to all heads
    opener.focus();
    close();
  },
  { capture: true },
);

/**
 * @param {string} term
 * @param {string} [text] its definition; by default that of the glossary
 */
export function help(term, text = GLOSSARY[term]) {
  const button = el("button", {
    type: "button",
    class: "help",
    "aria-label": `What is ${term}?`,
    "aria-expanded": "false",
    onclick: (/** @type {Event} */ event) => {
      event.preventDefault(); // inside a label or a summary
      event.stopPropagation();
      if (opener === button) close();
      else open(button, term, text);
    },
  });
  button.textContent = "?";
  return button;
}

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
export function kindHelp(kind) {
  return help(kindLabel(kind), kindMeaning(kind));
}

/** @param {string} kind */
export function kindMeaning(kind) {
  const known = Object.hasOwn(report.kinds, kind) ? report.kinds[kind] : null;
  const exact = known ? `${sentence(known.meaning)} Its score must be above ${known.threshold} and above chance.` : "";
  const shares = sharesNamed(kind).map(({ name, meaning }) => sentence(`${name}: ${meaning}`));
  return [...shares, kindSentence(kind), exact].filter(Boolean).join(" ");
}

/**
 * A heading with its "?".
 * @param {string} title
 * @param {string} [term]
 */
export const heading = (title, term = title.toLowerCase()) => el("h3", {}, title, " ", help(term));
