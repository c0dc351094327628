/** Children that are made anew with every change. */

/**
 * Replace the children of a box. The button that has the focus is followed by the one in its place.
 * @param {Element} box
 * @param {...(Node | string)} children
 */
export function refill(box, ...children) {
  const focused = [...box.querySelectorAll("button")].findIndex((button) => button === document.activeElement);
  box.replaceChildren(...children);
  if (focused >= 0) box.querySelectorAll("button")[focused]?.focus();
}
