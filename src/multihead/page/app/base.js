// ---- elements: text is always text, never markup ----------------------------------------------

const byId = (id) => document.getElementById(id);

/** An element: el("button", {class: "x", onclick: f}, "text", child). */
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined));
  return made;
}

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

/** A labelled choice. */
function choice(label, options, value, change) {
  const select = el("select", { onchange: () => change(select.value) });
  for (const [key, text] of options) {
    const option = el("option", { value: key }, text);
    option.selected = key === value;
    select.append(option);
  }
  return el("label", { class: "choice" }, el("span", {}, label), select);
}

function toggle(label, on, change, hint) {
  const box = el("input", { type: "checkbox", onchange: () => change(box.checked) });
  box.checked = on;
  return el("label", { class: "toggle", title: hint }, box, el("span", {}, label));
}

function say(text) {
  byId("live").textContent = text;
}

/** Once nothing else is to be done. */
const idle = () => new Promise((go) => (window.requestIdleCallback ? requestIdleCallback(go) : setTimeout(go, 100)));

function save(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// ---- numbers and words ------------------------------------------------------------------------

const NOTHING = "–";

function number(x, digits = 3) {
  if (x === null || x === undefined || Number.isNaN(x)) return NOTHING;
  if (Number.isInteger(x) && Math.abs(x) < 1e6) return String(x);
  const size = Math.abs(x);
  if (size >= 1e6 || size < 1e-3) return x.toExponential(1).replace("e+", "e");
  return String(Number(x.toPrecision(digits)));
}

const share = (x) => (x === null || x === undefined || Number.isNaN(x) ? NOTHING : x.toFixed(2));

/** A token that fits on a line; the whole of it is in its title. */
function brief(token, most = 24) {
  const letters = Array.from(token);
  return letters.length <= most ? token : `${letters.slice(0, most - 1).join("")}…`;
}

const sentence = (text) => (text ? `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}` : "");

const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

// ---- colours ----------------------------------------------------------------------------------

/** Okabe and Ito's palette and its neighbours: told apart with every kind of colour vision, on white and on black. */
const KIND_COLOURS = {
  first: "#0072b2", delimiter: "#56b4e9", self: "#b59a00", previous: "#e69f00", next: "#d55e00", offset: "#96631a",
  window: "#e8a07c", duplicate: "#cc79a7", induction: "#8f2d6b", class: "#009e73", alignment: "#44aa99",
  broad: "#7d74c9", dead: "#444b55", mixed: "#9aa3ad", "too little data": "#c3c8cf",
};
const VIRIDIS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"];
const DIVERGING = ["#3b6fb6", "#8fb3dc", "#e9edf2", "#eeb27f", "#c8601f"];

const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

/** 256 colours between some: [r, g, b, r, g, b, …]. */
function ramp(stops) {
  const known = stops.map(channels);
  const made = new Uint8Array(768);
  for (let i = 0; i < 256; i += 1) {
    const at = (i / 255) * (known.length - 1);
    const low = Math.min(known.length - 2, Math.floor(at));
    for (let c = 0; c < 3; c += 1) made[3 * i + c] = known[low][c] + (at - low) * (known[low + 1][c] - known[low][c]);
  }
  return made;
}

const SCALE = ramp(VIRIDIS);
const BOTH_WAYS = ramp(DIVERGING);
const inScale = (scale, x) => {
  const i = 3 * Math.max(0, Math.min(255, Math.round(x * 255)));
  return `rgb(${scale[i]} ${scale[i + 1]} ${scale[i + 2]})`;
};

const COLOURS = new Map(); // of the theme, which asks for them hundreds of times a drawing
function css(name) {
  if (!COLOURS.has(name)) COLOURS.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return COLOURS.get(name);
}

/** The colours of a map: paper for nothing, ink for everything; between them one hue. As pixels of an image, whole. */
let mapRamp = null;
function mapColours() {
  if (!mapRamp) {
    const known = ramp([css("--cell-0"), css("--cell-1"), css("--cell-2"), css("--cell-3")]);
    const bytes = Uint8Array.from({ length: 1024 }, (_, i) => (i % 4 === 3 ? 255 : known[3 * (i >> 2) + (i % 4)]));
    mapRamp = new Uint32Array(bytes.buffer);
  }
  return mapRamp;
}

// ---- canvases ---------------------------------------------------------------------------------

/** A canvas of CSS pixels, sharp on every screen; gives its context. */
function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [across, down] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  const context = canvas.getContext("2d");
  if (canvas.width === across && canvas.height === down && canvas.style.width && context.reset) context.reset(); // another size would be other memory
  else {
    canvas.width = across;
    canvas.height = down;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

/** Where the pointer is on an element, in CSS pixels. */
function pointer(event, target) {
  const box = target.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}
