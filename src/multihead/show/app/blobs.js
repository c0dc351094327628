/** Packed numbers: lines of base64 inside the page, deflated. */

import { byId } from "./dom.js";

/** @type {string[] | null} */
let lines = null;

/** Not yet in TypeScript's library. @type {{fromBase64?: (text: string) => Uint8Array<ArrayBuffer>}} */
const NativeBytes = /** @type {any} */ (Uint8Array);

/**
 * @param {string} base64
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
export async function inflate(base64) {
  const bytes = NativeBytes.fromBase64
    ? NativeBytes.fromBase64(base64)
    : Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  // A Response and not a Blob: the bytes of a Blob pass through a second process.
  const stream = /** @type {ReadableStream} */ (new Response(bytes).body);
  return new Uint8Array(await new Response(stream.pipeThrough(new DecompressionStream("deflate-raw"))).arrayBuffer());
}

/** The JSON of the page; its element is removed. */
export async function readData() {
  const packed = byId("data");
  const data = JSON.parse(new TextDecoder().decode(await inflate(packed.textContent ?? "")));
  packed.remove();
  return data;
}

/**
 * The bytes of a line.
 * @param {number} index
 */
export function readBlob(index) {
  lines ??= (byId("lines").textContent ?? "").split("\n");
  return inflate(lines[index]);
}

/** @param {Uint8Array} bytes */
export const floats = (bytes) =>
  new Float32Array(/** @type {ArrayBuffer} */ (bytes.buffer), bytes.byteOffset, bytes.byteLength / 4);

/** @param {Uint8Array} bytes */
export const counts = (bytes) =>
  new Uint32Array(/** @type {ArrayBuffer} */ (bytes.buffer), bytes.byteOffset, bytes.byteLength / 4);

/** By exponent: the value of the last of the ten bits of a half. */
const LAST_BIT = Float64Array.from({ length: 32 }, (_, exponent) => 2 ** ((exponent || 1) - 25));

/**
 * Half precision: all high bytes, then all low ones.
 * @param {Uint8Array} bytes
 */
export function halves(bytes) {
  const size = bytes.length / 2;
  const values = new Float32Array(size);
  for (let i = 0; i < size; i += 1) {
    const bits = (bytes[i] << 8) | bytes[size + i];
    const exponent = (bits >> 10) & 31;
    const x = ((exponent ? 1024 : 0) + (bits & 1023)) * LAST_BIT[exponent];
    values[i] = bits & 0x8000 ? -x : x;
  }
  return values;
}
