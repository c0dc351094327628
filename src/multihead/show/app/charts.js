/** Palettes, scales and formats of the page's data (multihead._base.charts), for every module that draws. */

/** @type {import("./types.js").Charts} */
export let charts;

/** @param {import("./types.js").Charts} value */
export function setCharts(value) {
  charts = value;
}
