/** The address: its fragment says what is shown, so that a link leads back to it. */

import { places, report } from "./report.js";

/** @typedef {import("./types.js").State} State */

/** Milliseconds between changes of the address bar: Safari allows 100 in 30 s, Chrome 200 in 10 s. */
const INTERVAL = 400;

/** A fragment for the address bar, and the one that it still has. @type {{from: string, to: string} | null} */
let pending = null;
let timer = 0;

/** The present fragment: the address bar follows it a little later. */
export const fragment = () => (pending?.from === location.hash ? pending.to : location.hash);

/** @returns {State} */
export const currentState = () => Object.fromEntries(new URLSearchParams(fragment().slice(1)));

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
export const replace = (changes) => replaceFragment(link(changes));

/** @param {string} to */
export function replaceFragment(to) {
  pending = { from: location.hash, to };
  if (!timer) writeAddress();
}

/** Write the pending fragment; later ones wait for the interval. */
function writeAddress() {
  timer = pending ? window.setTimeout(writeAddress, INTERVAL) : 0;
  if (pending) history.replaceState(null, "", fragment());
  pending = null;
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
