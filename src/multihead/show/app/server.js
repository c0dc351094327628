/** Requests to the server that the page came from. */

import { byId } from "./dom.js";

/**
 * Show a fault of the connection in every view until it is over.
 * @param {string} text
 */
function showTrouble(text) {
  byId("trouble").textContent = text;
  byId("trouble").hidden = !text;
}

/**
 * @param {string} address
 * @param {RequestInit} options
 */
async function send(address, options) {
  try {
    return await fetch(address, { ...options, cache: "no-store" });
  } catch (error) {
    if (!isAbort(error)) showTrouble("The server does not answer. Is multihead serve still running?");
    throw error;
  }
}

/**
 * @param {string} path
 * @param {Record<string, string | number>} query
 * @param {AbortSignal} [signal]
 */
export async function ask(path, query, signal) {
  const parts = Object.entries(query).map(([key, value]) => [key, String(value)]);
  const response = await send(`${path}?${new URLSearchParams(parts)}`, { signal });
  if (!response.ok) {
    const message = await response.text();
    showTrouble(message);
    throw new Error(message);
  }
  showTrouble("");
  return response;
}

/**
 * @param {string} path
 * @param {Record<string, string | number>} query
 * @param {AbortSignal} [signal]
 */
export async function askBytes(path, query, signal) {
  const response = await ask(path, query, signal);
  return new Uint8Array(await response.arrayBuffer());
}

/** @param {unknown} error */
export const isAbort = (error) => error instanceof DOMException && error.name === "AbortError";

/**
 * Let the model read a text. Returns its windows and the index of the first.
 * @param {{text: string | number, decoder?: string}} input words, or the number of a text; and those of a decoder
 * @returns {Promise<{texts: import("./types.js").Text[], first: number}>}
 */
export async function sendText(input) {
  const headers = { "Content-Type": "application/json" };
  const response = await fetch("text", { method: "POST", body: JSON.stringify(input), headers });
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

/**
 * Let the model read a text with some heads scaled. Throws what the server refuses, in its words.
 * @param {import("./types.js").SwitchRequest} request
 * @param {AbortSignal} signal
 * @returns {Promise<import("./types.js").SwitchAnswer>}
 */
export async function askSwitches(request, signal) {
  const headers = { "Content-Type": "application/json" };
  const response = await send("switches", { method: "POST", body: JSON.stringify(request), headers, signal });
  if (!response.ok) throw new Error(await response.text());
  showTrouble("");
  return response.json();
}
