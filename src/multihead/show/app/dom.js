/** Elements. Text is always text, never markup. */

/**
 * @typedef {Node | string | null | undefined | Child[]} Child
 * @typedef {Record<string, string | number | boolean | null | undefined | ((event: any) => void)>} Attributes
 */

/**
 * The element of the page's HTML with this id.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no element #${id}`);
  return element;
}

/**
 * el("button", { class: "x", onclick: f }, "text", child). Attributes that are false, null or undefined are left out.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

/**
 * @param {Element} element
 * @param {Child[]} children
 */
function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child !== null && child !== undefined) element.append(child);
  }
}

/**
 * @param {string} tag
 * @param {Record<string, string | number>} [attributes]
 * @param {...(Node | string)} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return /** @type {SVGElement} */ (element);
}

/**
 * A labelled list to choose from.
 * @param {string} label
 * @param {[string, string][]} options value, text
 * @param {string} value
 * @param {(value: string) => void} change
 * @param {Child} [help]
 * @param {[string, string][]} [more] options in a group below the others
 */
export function choice(label, options, value, change, help, more = []) {
  const select = el("select", { onchange: () => change(select.value) });
  const fill = (/** @type {Element} */ box, /** @type {[string, string][]} */ some) => {
    for (const [key, text] of some) {
      const option = el("option", { value: key }, text);
      option.selected = key === value;
      box.append(option);
    }
  };
  fill(select, options);
  if (more.length) {
    const group = el("optgroup", { label: "more" });
    fill(group, more);
    select.append(group);
  }
  return el("div", { class: "choice" }, el("label", {}, el("span", {}, label), select), help);
}

/**
 * A labelled switch.
 * @param {string} label
 * @param {boolean} on
 * @param {(on: boolean) => void} change
 * @param {Child} [help]
 */
export function toggle(label, on, change, help) {
  const box = el("input", { type: "checkbox", onchange: () => change(box.checked) });
  box.checked = on;
  return el("div", { class: "toggle" }, el("label", {}, box, el("span", {}, label)), help);
}

/**
 * For screen readers.
 * @param {string} text
 */
export function announce(text) {
  byId("live").textContent = text;
}

const REST = 60; // milliseconds, longer than between two strokes of a held key

/** Resolves when a key is no longer held. */
export const rest = () => new Promise((resolve) => setTimeout(resolve, REST));

/** Resolves after the next frame. (Chromium without a screen calls `requestIdleCallback` only after its timeout.) */
export function nextFrame() {
  return new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
}

/**
 * Download a file.
 * @param {Blob} blob
 * @param {string} name
 */
export function saveFile(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/**
 * The position of the pointer on an element, in CSS pixels.
 * @param {MouseEvent} event
 * @param {Element} target
 * @returns {[number, number]}
 */
export function pointerOn(event, target) {
  const box = target.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

/**
 * The element with this selector that an event happened in.
 * @param {Event} event
 * @param {string} selector
 * @returns {HTMLElement | null}
 */
export function closest(event, selector) {
  return event.target instanceof Element ? event.target.closest(selector) : null;
}
