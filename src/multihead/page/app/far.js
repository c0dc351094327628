// ---- maps that a server computes as they are asked for ----------------------------------------

const NEAR_SIDE = 2048; // tokens up to which a whole map is brought here
const PICTURE = 4096; // cells of a side of a picture that may be asked for
const LINES_HELD = 256;

async function ask(place, asked, signal) {
  let response;
  try {
    response = await fetch(`${place}?${new URLSearchParams(asked)}`, { signal, cache: "no-store" });
  } catch (wrong) {
    if (wrong.name !== "AbortError") trouble("The server does not answer. Is multihead serve still running?");
    throw wrong;
  }
  if (!response.ok) {
    const said = await response.text();
    trouble(said);
    throw new Error(said);
  }
  trouble("");
  return response;
}

const askBytes = async (...asked) => new Uint8Array(await (await ask(...asked)).arrayBuffer());

/** What went wrong between here and the server, where it is seen; nothing takes it away. */
function trouble(text) {
  byId("trouble").textContent = text;
  byId("trouble").hidden = !text;
}

async function servedMap(t, at) {
  const text = DATA.texts[t];
  const place = DATA.places[at];
  const layer = text.layers[place.site];
  const where = { text: t, layer: layer.label, head: place.head };
  const { queries, keys } = layer;
  if (Math.max(queries, keys) > NEAR_SIDE) return new FarMap(DATA.heads[at], text, layer, where);
  const map = new HeadMap(DATA.heads[at], text, layer);
  const [coded, norms] = await Promise.all([
    askBytes("map", { ...where, x: 0, y: 0, w: keys, h: queries, width: keys, height: queries }), askBytes("norms", where)]);
  return Object.assign(map, { coded, norms: floats(norms) });
}

/** One head on a text too long for its map to be here: rows, columns and pictures of parts are asked for. */
class FarMap extends HeadMap {
  constructor(name, text, layer, where) {
    super(name, text, layer);
    Object.assign(this, { where, far: true, lines: new Map(), whole: null, latest: null, others: new Map() });
  }

  get bytes() {
    return 4 * this.keys * this.lines.size + 2e6;
  }

  shaped(norm, hide) {
    const key = `${norm} ${hide}`;
    if (!norm && !hide) return this;
    if (!this.others.has(key)) {
      const made = Object.assign(Object.create(FarMap.prototype), this, { lines: new Map(), whole: null, latest: null, asking: null, stop: null });
      made.where = { ...this.where, ...(norm ? { norm: 1 } : {}), ...(hide ? { hide: 1 } : {}) };
      this.others.set(key, made);
    }
    return this.others.get(key);
  }

  /** Weights as far as they are here; null where they have to be brought. */
  row(i) {
    return this.lines.get(`row ${i}`) || null;
  }

  column(j) {
    return this.lines.get(`column ${j}`) || null;
  }

  async bring(kind, i) {
    const key = `${kind} ${i}`;
    if (!this.lines.has(key)) {
      const found = floats(await askBytes(kind, { ...this.where, i }));
      if (this.lines.size >= LINES_HELD) this.lines.delete(this.lines.keys().next().value);
      this.lines.set(key, found);
    }
    return this.lines.get(key);
  }

  /** The picture of a window, as well as it is known now; `then` is called once it is known better. */
  picture(window_, width, height, then) {
    const [x, y] = [Math.floor(window_.x), Math.floor(window_.y)];
    const w = Math.min(this.keys, Math.ceil(window_.x + window_.w - 1e-9)) - x;
    const h = Math.min(this.queries, Math.ceil(window_.y + window_.h - 1e-9)) - y;
    const part = { x, y, w, h, width: Math.min(w, width, PICTURE), height: Math.min(h, height, PICTURE) };
    const key = Object.values(part).join(" ");
    if (this.latest && this.latest.key === key) return this.latest;
    if (this.whole && this.whole.key === key) return this.whole;
    if (this.asking !== key) {
      this.rest();
      this.asking = key;
      this.waiting = setTimeout(() => this.draw(part, key, then), this.whole ? 120 : 0);
    }
    return this.whole;
  }

  async draw(part, key, then) {
    this.stop = new AbortController();
    try {
      const coded = await askBytes("map", { ...this.where, ...part }, this.stop.signal);
      this.latest = { key, part, coded, keys: part.width, queries: part.height };
      if (part.w === this.keys && part.h === this.queries) this.whole = this.latest;
      this.asking = null;
      then();
    } catch (wrong) {
      if (this.asking === key) this.asking = null;
      if (wrong.name !== "AbortError") say(wrong.message);
    }
  }

  /** Nobody looks any more: what is under way is given up. */
  rest() {
    clearTimeout(this.waiting);
    if (this.stop) this.stop.abort();
    this.asking = null;
  }

  async small(side) {
    const [width, height] = [Math.min(side, this.keys), Math.min(side, this.queries)];
    const coded = await askBytes("map", { ...this.where, x: 0, y: 0, w: this.keys, h: this.queries, width, height, thin: 1 });
    return { coded, keys: width, queries: height };
  }
}

/** The weights of a token in a map: at once, or after they were brought. */
const lineOf = async (map, looks, i) => (map.far ? map.bring(looks ? "row" : "column", i) : looks ? map.row(i) : map.column(i));

/** A window in the cells of a picture of a part. */
const inPicture = (picture, w) => {
  const { part } = picture;
  const [across, down] = [picture.keys / part.w, picture.queries / part.h];
  return { x: (w.x - part.x) * across, y: (w.y - part.y) * down, w: w.w * across, h: w.h * down };
};

// ---- which text: those of the page, windows of a long one, and one's own where a server reads it ----

/** The text that the address says, else the first. */
function textOf(state) {
  const t = placeIn(state.text, DATA.texts.length) || 0;
  return DATA.texts[t] ? t : 0;
}

/** Controls for the text; `t` is the number of the one that is shown. */
function textChoice(t) {
  const { texts } = DATA;
  if (!texts.length) return [];
  const first = new Map();
  texts.forEach((text, i) => first.has(text.source) || first.set(text.source, i));
  const own = texts[t].source;
  const to = (i) => go({ text: i, row: undefined });
  const parts = [];
  if (first.size > 1) parts.push(choice("Text", [...first.values()].map((i) => [String(i), texts[i].name]), String(first.get(own)), to));
  const windows = texts.map((text, i) => [text, i]).filter(([text]) => text.source === own);
  if (windows.length > 1) parts.push(choice("Window", windows.map(([text, i]) => [String(i), `${text.window[0] + 1} of ${text.window[1]}`]), String(t), to));
  if (DATA.served) parts.push(ownText());
  return parts;
}

function ownText() {
  const words = el("textarea", { rows: "5", "aria-label": "a text of your own", placeholder: "A text of your own" });
  const button = el("button", { type: "button" }, "Look at it");
  const note = el("span", { class: "dim", role: "status" });
  button.addEventListener("click", async () => {
    if (!words.value.trim()) return;
    button.disabled = true;
    note.textContent = "The model reads it …";
    try {
      const response = await fetch("text", { method: "POST", body: words.value, headers: { "Content-Type": "text/plain" } });
      if (!response.ok) throw new Error(await response.text());
      const { texts, first } = await response.json();
      texts.forEach((text, i) => (DATA.texts[first + i] = text));
      go({ text: String(first), row: undefined });
    } catch (wrong) {
      note.textContent = wrong.message;
    }
    button.disabled = false;
  });
  return el("details", { class: "own" }, el("summary", {}, "Another text"), words, el("p", {}, button, " ", note));
}
