/** The address: its fragment says what is shown, so that a link leads back to it. */

import { places, report } from "./report.js";

/** @typedef {import("./types.js").State} State */

/** @returns {State} */
export const currentState = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

/**
 * An integer from 0 to below `count`; null where the address has none.
 * @param {string | undefined} value
 * @param {number} count
 */
export function indexIn(value, count) {
  const index = Number(value);
  return value !== undefined && value !== "" && Number.isInteger(index) && index >= 0 && index < count ? index : null;
}

/**
 * The present fragment with some changes; undefined removes a part.
 * @param {State} changes
 */
export function link(changes) {
  const parts = Object.entries({ ...currentState(), ...changes })
    .filter(([, value]) => value !== undefined && value !== "")
    .map(([key, value]) => `${key}=${encodeURIComponent(String(value))}`);
  return `#${parts.join("&")}`;
}

/**
 * Show another state.
 * @param {State} changes
 */
export function go(changes) {
  location.hash = link(changes);
}

/**
 * Change the address and leave the page as it is.
 * @param {State} changes
 */
export function replace(changes) {
  history.replaceState(null, "", link(changes));
}

/**
 * @param {number} head
 * @returns {State}
 */
export function headState(head) {
  const { site, number } = places[head];
  const { stack, layer } = report.sites[site];
  return { stack: stack || undefined, layer: String(layer), head: String(number) };
}

/** @param {number} head */
export const headLink = (head) =>
  link({ view: undefined, kind: undefined, share: undefined, pick: undefined, second: undefined, ...headState(head) });

/** Back from a head to all of them. @type {State} */
export const ALL_HEADS = { view: "heads", layer: undefined, head: undefined, second: undefined, row: undefined };

/**
 * The head of an address, by its number in the original model; null where there is none.
 * @param {State} state
 */
export function headIn(state) {
  if (state.layer === undefined || state.head === undefined) return null;
  const head = places.findIndex(({ site, number }) => {
    const { layer, stack } = report.sites[site];
    return String(layer) === state.layer && (stack || "") === (state.stack || "") && String(number) === state.head;
  });
  return head < 0 ? null : head;
}
