// ---- what the page holds ----------------------------------------------------------------------

let DATA = null;
let LINES = null;

const bytesOf = (text) =>
  Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

async function inflate(text) {
  const stream = new Response(bytesOf(text)).body.pipeThrough(new DecompressionStream("deflate-raw")); // a Blob would go by another process
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function loadData() {
  const packed = byId("data");
  DATA = JSON.parse(new TextDecoder().decode(await inflate(packed.textContent)));
  packed.remove();
  DATA.at = new Map(DATA.heads.map((name, i) => [name, i]));
  DATA.places = [];
  DATA.sites.forEach((site, s) => {
    for (let h = 0; h < site.heads; h += 1) DATA.places.push({ site: s, head: h });
  });
  DATA.first = [];
  DATA.sites.reduce((sum, site, s) => ((DATA.first[s] = sum), sum + site.heads), 0);
}

function line(at) {
  LINES = LINES || byId("lines").textContent.split("\n");
  return inflate(LINES[at]);
}

/** A column of the table, or null. */
const column = (name) => (DATA.table && Object.hasOwn(DATA.table, name) ? DATA.table[name] : null);
const cell = (name, at) => (column(name) ? column(name).values[at] : null);
const isWords = (c) => c.values.some((x) => typeof x === "string");

/** Why a number is missing, if that is known. */
function whyNone(name, at) {
  const found = column(name);
  const head = DATA.heads[at];
  if (!found || found.values[at] !== null) return "";
  return (Object.entries(found.why).find(([, heads]) => heads.includes(head)) || [""])[0];
}

const kindOf = (at) => cell("kind", at) || "";
const kindName = (at) => [kindOf(at), cell("kind_detail", at)].filter(Boolean).join(" ");
const importanceOf = (at) => (DATA.importance ? cell(DATA.importance, at) : null);

/** Half of the 95 % interval. */
const importanceError = (at) => {
  const error = DATA.importance ? cell(`${DATA.importance}_error`, at) : null;
  return error === null ? null : 1.96 * error;
};

function goingHeads() {
  const curve = DATA.curve && DATA.curve.curves[0];
  if (!curve) return new Set();
  const point = curve.points.find((p) => p.gone === DATA.curve.prunable);
  return new Set(point && point.heads ? point.heads : curve.order.slice(0, DATA.curve.prunable));
}

// ---- numbers as they were packed --------------------------------------------------------------

const floats = (bytes) => new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
const counts = (bytes) => new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);

const POWERS = Float64Array.from({ length: 32 }, (_, exponent) => 2 ** ((exponent || 1) - 25)); // of the last of ten bits

/** Half precision, high bytes first, then low ones. */
function halves(bytes) {
  const size = bytes.length / 2;
  const made = new Float32Array(size);
  for (let i = 0; i < size; i += 1) {
    const bits = (bytes[i] << 8) | bytes[size + i];
    const exponent = (bits >> 10) & 31;
    const x = ((exponent ? 1024 : 0) + (bits & 1023)) * POWERS[exponent];
    made[i] = bits & 0x8000 ? -x : x;
  }
  return made;
}

// ---- maps -------------------------------------------------------------------------------------

/** q · k of one query with the keys from `from` to `to`; four at a time, so that every number of q is read once for four. */
function products(q, k, dim, i, from, to, out) {
  const start = i * dim;
  let j = from;
  for (; j + 3 < to; j += 4) {
    let [one, two, three, four] = [0, 0, 0, 0];
    for (let a = start, b = j * dim, last = start + dim; a < last; a += 1, b += 1) {
      const x = q[a];
      one += x * k[b];
      two += x * k[b + dim];
      three += x * k[b + 2 * dim];
      four += x * k[b + 3 * dim];
    }
    out[j] = one;
    out[j + 1] = two;
    out[j + 2] = three;
    out[j + 3] = four;
  }
  for (; j < to; j += 1) {
    let sum = 0;
    for (let a = start, b = j * dim, last = start + dim; a < last; a += 1, b += 1) sum += q[a] * k[b];
    out[j] = sum;
  }
}

/** softmax(q kᵀ) of one row, from q and k. */
function rowFrom(parts, i, out) {
  const { q, k, bias, dim, softcap, sink } = parts;
  const [from, to, shift] = [parts.first[i], parts.end[i], parts.first.length - 1 - i];
  out.fill(0);
  products(q, k, dim, i, from, to, out);
  let top = sink === undefined ? -Infinity : sink;
  for (let j = from; j < to; j += 1) {
    if (softcap !== undefined) out[j] = softcap * Math.tanh(out[j] / softcap);
    if (bias) out[j] += bias[j + shift];
    if (out[j] > top) top = out[j];
  }
  let total = sink === undefined ? 0 : Math.exp(sink - top);
  for (let j = from; j < to; j += 1) total += out[j] = Math.exp(out[j] - top);
  for (let j = from; j < to; j += 1) out[j] /= total;
  return out;
}

const pause = () => new Promise((go) => setTimeout(go));

/** One head on one text: `coded` is 255 √p, row after row; `row(i)` the weights of a query, as exact as they are kept. */
class HeadMap {
  constructor(name, text, layer) {
    this.name = name;
    this.queries = layer.queries;
    this.keys = layer.keys;
    this.rows = text.sequences[layer.rows];
    this.columns = text.sequences[layer.columns];
    this.square = layer.rows === layer.columns;
  }

  static async read(name, text, layer, kept, head) {
    const map = new HeadMap(name, text, layer);
    if (kept.map !== undefined) {
      map.coded = await line(kept.map);
    } else {
      const [q, k, first, end] = await Promise.all([kept.q, kept.k, kept.first, kept.end].map(line));
      const numbers = kept.wide ? floats : halves;
      map.parts = { q: numbers(q), k: numbers(k), first: counts(first), end: counts(end), dim: kept.dim };
      if (kept.bias !== undefined) map.parts.bias = floats(await line(kept.bias));
      map.parts.softcap = kept.softcap;
      map.parts.sink = kept.sink;
      await map.compute();
    }
    if (layer.norms !== null) {
      map.norms = floats(await line(layer.norms)).subarray(head * layer.keys, (head + 1) * layer.keys);
    }
    return map;
  }

  /** All rows from q and k, a few milliseconds at a time. */
  async compute() {
    this.coded = new Uint8Array(this.queries * this.keys);
    const row = new Float32Array(this.keys);
    let since = performance.now();
    for (let i = 0; i < this.queries; i += 1) {
      rowFrom(this.parts, i, row);
      for (let j = 0, at = i * this.keys; j < this.keys; j += 1) this.coded[at + j] = 255 * Math.sqrt(row[j]) + 0.5;
      if (performance.now() - since > 40) {
        await pause();
        since = performance.now();
      }
    }
  }

  get bytes() {
    return this.coded.length + (this.parts ? 4 * (this.parts.q.length + this.parts.k.length) : 0);
  }

  row(i) {
    const out = new Float32Array(this.keys);
    if (this.parts) return rowFrom(this.parts, i, out);
    for (let j = 0; j < this.keys; j += 1) out[j] = (this.coded[i * this.keys + j] / 255) ** 2;
    return out;
  }

  /** The weights that all queries give to key j. */
  column(j) {
    const out = new Float32Array(this.queries);
    for (let i = 0; i < this.queries; i += 1) out[i] = (this.coded[i * this.keys + j] / 255) ** 2;
    return out;
  }

  /** The same with every key weighted by the length of what it adds, or without delimiters; rows sum to 1 again. */
  shaped(norm, hide) {
    const weigh = norm && this.norms;
    const drop = hide && this.columns.special.some(Boolean);
    if (!weigh && !drop) return this;
    const factor = new Float32Array(this.keys).fill(1);
    for (let j = 0; j < this.keys; j += 1) {
      if (weigh) factor[j] = this.norms[j];
      if (drop && this.columns.special[j]) factor[j] = 0;
    }
    const made = Object.create(this);
    const whole = this;
    made.row = (i) => {
      const row = whole.row(i);
      let total = 0;
      for (let j = 0; j < row.length; j += 1) total += row[j] *= factor[j];
      if (total > 0) for (let j = 0; j < row.length; j += 1) row[j] /= total;
      return row;
    };
    const coded = new Uint8Array(this.coded.length);
    for (let i = 0; i < this.queries; i += 1) {
      const at = i * this.keys;
      let total = 0;
      for (let j = 0; j < this.keys; j += 1) total += this.coded[at + j] ** 2 * factor[j];
      if (total > 0) {
        for (let j = 0; j < this.keys; j += 1) {
          coded[at + j] = Math.round(this.coded[at + j] * Math.sqrt((factor[j] / total) * 65025));
        }
      }
    }
    made.coded = coded;
    return made;
  }
}

const ROOM = 96e6;
const MAPS = new Map(); // the latest are kept, as many as fit
const COMING = new Map(); // those that are being made

/** The map of head number `at` on text number `t`; null where it is not in the page. */
async function headMap(t, at) {
  const key = `${t} ${at}`;
  if (MAPS.has(key)) {
    const found = MAPS.get(key);
    MAPS.delete(key);
    MAPS.set(key, found);
    return found;
  }
  const text = DATA.texts[t];
  const place = DATA.places[at];
  const layer = text && text.layers[place.site];
  const kept = layer && layer.heads[place.head];
  if (!kept) return null;
  if (COMING.has(key)) return COMING.get(key);
  const coming = (kept.served ? servedMap(t, at) : HeadMap.read(DATA.heads[at], text, layer, kept, place.head)).then((found) => held(key, found));
  COMING.set(key, coming);
  return coming.finally(() => COMING.delete(key));
}

function held(key, found) {
  MAPS.set(key, found);
  let sum = [...MAPS.values()].reduce((total, map) => total + map.bytes, 0);
  for (const [old, map] of MAPS) {
    if (sum <= ROOM || old === key) break;
    MAPS.delete(old);
    sum -= map.bytes;
  }
  return found;
}
