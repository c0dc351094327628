/** Which text is shown: those of the page, windows of a long one, and your own where a server reads it. */

import { go, indexIn } from "./address.js";
import { choice, el } from "./dom.js";
import { report } from "./report.js";
import { sendText } from "./server.js";

/**
 * @typedef {{text: string, decoder: string}} Typed
 */

/** What was typed, by the number of the text. @type {Map<number, Typed>} */
const typed = new Map();

/** Label and placeholder of a field. @type {[string, string]} */
const ONE = ["Your text", "Type or paste a text"];
/** @type {[string, string]} */
const ENCODER = ["Text for the encoder", "Text for the encoder: type or paste it"];
const DECODER = "Words that the decoder has read";

/** @param {import("./types.js").State} state the text of the address, or the first */
export function textIn(state) {
  const index = indexIn(state.text, report.texts.length) ?? -1;
  return report.texts[index] ? index : report.texts.findIndex(Boolean); // a server drops old texts: some are missing
}

/**
 * The controls for it.
 * @param {number} text the index of the one shown
 */
export function textChoice(text) {
  const { texts } = report;
  if (!texts.length) return [];
  const { source } = texts[text];
  /** @type {Map<number, number>} the first window of every text */
  const first = new Map();
  /** @type {[string, string][]} */
  const windows = [];
  texts.forEach((one, i) => {
    if (!first.has(one.source)) first.set(one.source, i);
    if (one.source === source) windows.push([String(i), `${one.window[0] + 1} of ${one.window[1]}`]);
  });
  const show = (/** @type {string} */ value) => go({ text: value, row: undefined });
  const controls = [];
  if (first.size > 1) {
    const names = [...first.values()].map((i) => /** @type {[string, string]} */ ([String(i), texts[i].name]));
    const label = report.served?.includes("text") === false ? "Input" : "Text";
    controls.push(choice(label, names, String(first.get(source)), show));
  }
  if (windows.length > 1) controls.push(choice("Window", windows, String(text), show));
  return [...controls, yourText({}, text)];
}

/**
 * A text of your own, where a server can read it.
 * @param {import("./types.js").State} [view] where to go with it; default: it is shown in this view
 * @param {number} [text] the one shown: if it was typed, it can be changed
 */
export function yourText(view = {}, text = -1) {
  const reads = report.served ?? [];
  if (!reads.length || (!reads.includes("text") && text < 0)) return null;
  const before = typed.get(text);
  const two = reads.includes("decoder");
  const area = textArea(...(two ? ENCODER : ONE), before?.text);
  const hint = reads.includes("text") ? ". Empty: the model writes its own answer" : "";
  const second = textArea(DECODER, `${DECODER}${hint}`, before?.decoder);
  const button = el("button", { type: "button", class: "primary" }, "Show this text");
  const note = el("span", { class: "dim", role: "status" });
  button.addEventListener("click", async () => {
    if (reads.includes("text") && !area.value.trim()) {
      note.textContent = "Type a text first.";
      area.focus();
      return;
    }
    button.disabled = true;
    note.textContent = "The model is reading it …";
    const answers = reads.includes("text") && !second.value.trim();
    const decoder = two && !answers ? { decoder: second.value } : {};
    const words = reads.includes("text") ? area.value : (report.texts[text].at ?? text);
    try {
      const { texts, first } = await sendText({ text: words, ...decoder });
      texts.forEach((one, i) => (report.texts[first + i] = one));
      typed.set(first, { text: area.value, decoder: second.value });
      go({ ...view, text: String(first), row: undefined });
    } catch (error) {
      note.textContent = error instanceof Error ? error.message : String(error);
    }
    button.disabled = false;
  });
  const parts = [reads.includes("text") ? area : null, two ? second : null];
  return el("details", { class: "own" }, el("summary", {}, "Try your own text"), parts, el("p", {}, button, " ", note));
}

/**
 * @param {string} label
 * @param {string} placeholder
 * @param {string} [value]
 */
function textArea(label, placeholder, value = "") {
  const area = el("textarea", { rows: "5", "aria-label": label, placeholder });
  area.value = value;
  return area;
}
