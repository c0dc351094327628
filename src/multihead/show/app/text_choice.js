/** Which text is shown: those of the page, windows of a long one, and your own where a server reads it. */

import { go, indexIn } from "./address.js";
import { choice, el } from "./dom.js";
import { report } from "./report.js";
import { sendText } from "./server.js";

/** What was typed, by the number of the text. @type {Map<number, string>} */
const typed = new Map();

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
    controls.push(choice("Text", names, String(first.get(source)), show));
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
  if (!report.served) return null;
  const label = "Your text";
  const area = el("textarea", { rows: "5", "aria-label": label, placeholder: "Type or paste a text" });
  area.value = typed.get(text) ?? "";
  const button = el("button", { type: "button", class: "primary" }, "Show this text");
  const note = el("span", { class: "dim", role: "status" });
  button.addEventListener("click", async () => {
    if (!area.value.trim()) {
      note.textContent = "Type a text first.";
      area.focus();
      return;
    }
    button.disabled = true;
    note.textContent = "The model is reading it …";
    try {
      const { texts, first } = await sendText(area.value);
      texts.forEach((one, i) => (report.texts[first + i] = one));
      typed.set(first, area.value);
      go({ ...view, text: String(first), row: undefined });
    } catch (error) {
      note.textContent = error instanceof Error ? error.message : String(error);
    }
    button.disabled = false;
  });
  return el("details", { class: "own" }, el("summary", {}, "Try your own text"), area, el("p", {}, button, " ", note));
}
