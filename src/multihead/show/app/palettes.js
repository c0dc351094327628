/** Colours of the page's data (multihead._base.charts) and of its theme. */

import { charts } from "./charts.js";
import { sharesNamed } from "./share_names.js";

const STEPS = 256;

/** A kind has a colour of its own, or that of the share that names it. @param {string} kind */
export function kindColor(kind) {
  const { kinds, no_value } = charts;
  return Object.hasOwn(kinds, kind) ? kinds[kind] : (sharesNamed(kind)[0]?.colour ?? no_value);
}

/** The same as the background of a dot: of two shares, half each. @param {string} kind */
export function kindBackground(kind) {
  const [first, second] = sharesNamed(kind);
  return second ? `linear-gradient(90deg, ${first.colour} 50%, ${second.colour} 50%)` : kindColor(kind);
}

/** @param {number} index */
export const lineColor = (index) => charts.lines[index % charts.lines.length];

/** @param {string} hex */
const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

/**
 * 256 colours that pass through some: [r, g, b, r, g, b, …].
 * @param {string[]} stops
 */
function mix(stops) {
  const known = stops.map(channels);
  const colors = new Uint8Array(3 * STEPS);
  for (let i = 0; i < STEPS; i += 1) {
    const position = (i / (STEPS - 1)) * (known.length - 1);
    const low = Math.min(known.length - 2, Math.floor(position));
    for (let c = 0; c < 3; c += 1) {
      colors[3 * i + c] = Math.round(known[low][c] + (position - low) * (known[low + 1][c] - known[low][c]));
    }
  }
  return colors;
}

/** @typedef {keyof import("./types.js").Charts["ramps"]} Ramp */

/** @type {Map<Ramp, Uint8Array>} */
const ramps = new Map();

/** @param {Ramp} name */
function ramp(name) {
  let colors = ramps.get(name);
  if (!colors) {
    colors = mix(charts.ramps[name]);
    ramps.set(name, colors);
  }
  return colors;
}

/** The name of the ramp of attention weights. @returns {Ramp} */
export const weightRamp = () => (document.documentElement.dataset.theme === "dark" ? "weight-dark" : "weight");

/** The name of the ramp of numbers of both signs. @returns {Ramp} */
export const signedRamp = () => (document.documentElement.dataset.theme === "dark" ? "signed-dark" : "signed");

/**
 * The colour of a level from 0 to 1.
 * @param {Ramp} name
 * @param {number} level
 */
export function shade(name, level) {
  const colors = ramp(name);
  const i = 3 * Math.max(0, Math.min(STEPS - 1, Math.round(level * (STEPS - 1))));
  return `rgb(${colors[i]} ${colors[i + 1]} ${colors[i + 2]})`;
}

/** @type {Map<string, string>} */
const themeColors = new Map(); // a drawing asks for them hundreds of times
/** @type {Uint32Array | null} */
let mapPixels = null;

/**
 * A colour of the theme, by its CSS variable.
 * @param {string} name
 */
export function themeColor(name) {
  let color = themeColors.get(name);
  if (color === undefined) {
    color = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    themeColors.set(name, color);
  }
  return color;
}

/** The colours of a map as pixels of an image, by the code of a weight. */
export function mapColors() {
  if (!mapPixels) {
    const colors = ramp(weightRamp());
    const bytes = new Uint8Array(4 * STEPS).fill(255);
    for (let i = 0; i < STEPS; i += 1) bytes.set(colors.subarray(3 * i, 3 * i + 3), 4 * i);
    mapPixels = new Uint32Array(bytes.buffer);
  }
  return mapPixels;
}

/** After a change of the theme. */
export function resetThemeColors() {
  mapPixels = null;
  themeColors.clear();
}
