/** A button that copies the address of the page; where the browser does not allow it, the address to copy by hand. */

import { announce, el } from "../dom.js";

const SHOWN = 2000; // milliseconds

/**
 * @param {() => void} refresh brings the address up to date
 * @returns {HTMLElement | null} null where the page has no address, as inside a notebook
 */
export function copyLink(refresh) {
  if (location.protocol === "about:") return null;
  const button = el("button", { type: "button", id: "copylink" }, "Copy link");
  const field = el("input", { type: "text", readonly: true, hidden: true, "aria-label": "link to this state" });
  field.addEventListener("focus", () => field.select());
  field.addEventListener("blur", () => (field.hidden = true));
  let timer = 0;
  button.addEventListener("click", async () => {
    refresh();
    const copied = await copy(location.href);
    if (!copied) {
      field.value = location.href;
      field.hidden = false;
      field.focus();
      announce("Copy the link from the field.");
      return;
    }
    button.textContent = "Copied";
    announce("Link copied.");
    clearTimeout(timer);
    timer = window.setTimeout(() => (button.textContent = "Copy link"), SHOWN);
  });
  return el("span", { class: "copylink" }, field, button);
}

/**
 * Whether the text is on the clipboard now. The clipboard is missing on insecure pages, and may be refused.
 * @param {string} text
 */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
