// ---- a map on a canvas: zoom, pan, what is under the pointer ----------------------------------

const LABELS = 92; // room for tokens beside a map
const LEAST_CELL = 11; // pixels of a cell from which on its token is written beside it

class MapView {
  /** `tell(i, j)` is called with the cell under the pointer, or (null, null); `pick(i, j)` with one that is clicked. */
  constructor({ tell, pick, moved }) {
    this.tell = tell;
    this.pick = pick;
    this.moved = moved;
    this.map = null;
    this.mark = { row: null, column: null };
    this.canvas = el("canvas", { class: "map", role: "img", tabindex: "-1" });
    this.box = el("div", { class: "mapbox" }, this.canvas);
    this.pointers = new Map();
    this.canvas.addEventListener("wheel", (e) => this.wheel(e), { passive: false });
    this.canvas.addEventListener("pointerdown", (e) => this.down(e));
    this.canvas.addEventListener("pointermove", (e) => this.move(e));
    this.canvas.addEventListener("pointerup", (e) => this.up(e));
    this.canvas.addEventListener("pointercancel", (e) => this.pointers.delete(e.pointerId));
    this.canvas.addEventListener("pointerleave", () => this.tell(null, null));
    this.canvas.addEventListener("dblclick", () => this.whole());
  }

  /** Another map; `draw` shows it. */
  show(map) {
    const same = this.map && this.map.queries === map.queries && this.map.keys === map.keys;
    this.map = map;
    if (!same) this.window = { x: 0, y: 0, w: map.keys, h: map.queries };
    this.canvas.setAttribute("aria-label",
      `Attention map of ${map.name}: ${map.queries} queries down, ${map.keys} keys across. The text below has the same weights.`);
  }

  /** No map, until another is shown and drawn. */
  clear() {
    sized(this.canvas, this.canvas.clientWidth, this.canvas.clientHeight);
  }

  whole() {
    this.window = { x: 0, y: 0, w: this.map.keys, h: this.map.queries };
    this.draw();
  }

  zoom(factor, x = this.side / 2, y = this.tall / 2) {
    const { map, window: w } = this;
    const [i, j] = [w.x + (x / this.side) * w.w, w.y + (y / this.tall) * w.h];
    const wide = Math.max(Math.min(4, map.keys), Math.min(map.keys, w.w / factor));
    const high = Math.max(Math.min(4, map.queries), Math.min(map.queries, w.h / factor));
    this.window = { w: wide, h: high, x: i - (x / this.side) * wide, y: j - (y / this.tall) * high };
    this.draw();
  }

  held() {
    const { map, window: w } = this;
    w.x = Math.max(0, Math.min(map.keys - w.w, w.x));
    w.y = Math.max(0, Math.min(map.queries - w.h, w.y));
  }

  wheel(event) {
    if (!event.ctrlKey && !event.metaKey && this.window.w >= this.map.keys && event.deltaY > 0) return; // the page scrolls
    event.preventDefault();
    const [x, y] = pointer(event, this.canvas);
    this.zoom(Math.exp(-event.deltaY / 300), x - LABELS, y - LABELS);
  }

  down(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, pointer(event, this.canvas));
    this.dragged = false;
  }

  move(event) {
    const now = pointer(event, this.canvas);
    const before = this.pointers.get(event.pointerId);
    if (!before) return this.tell(...this.cellAt(now));
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId);
    if (others.length) {
      const far = (p) => Math.hypot(p[0] - others[0][1][0], p[1] - others[0][1][1]);
      this.zoom(far(now) / Math.max(1, far(before)), (now[0] + others[0][1][0]) / 2 - LABELS, (now[1] + others[0][1][1]) / 2 - LABELS);
      this.dragged = true;
    } else if (this.dragged || Math.hypot(now[0] - before[0], now[1] - before[1]) > 4) {
      this.dragged = true;
      this.window.x -= ((now[0] - before[0]) / this.side) * this.window.w;
      this.window.y -= ((now[1] - before[1]) / this.tall) * this.window.h;
      this.draw();
    } else return undefined;
    this.pointers.set(event.pointerId, now);
    return undefined;
  }

  up(event) {
    this.pointers.delete(event.pointerId);
    if (!this.dragged) {
      const [i, j] = this.cellAt(pointer(event, this.canvas));
      if (i !== null) this.pick(i, j);
    }
  }

  cellAt([x, y]) {
    const w = this.window;
    const j = Math.floor(w.x + ((x - LABELS) / this.side) * w.w);
    const i = Math.floor(w.y + ((y - LABELS) / this.tall) * w.h);
    const inside = x >= LABELS && y >= LABELS && i >= 0 && j >= 0 && i < this.map.queries && j < this.map.keys;
    return inside ? [i, j] : [null, null];
  }

  /** How wide there is room: asked once, then told, as to ask is to have the whole page laid out. */
  watch() {
    this.wide = this.box.clientWidth;
    new ResizeObserver(() => {
      const wide = this.box.clientWidth;
      if (wide === this.wide) return;
      this.wide = wide;
      this.draw();
    }).observe(this.box);
  }

  draw() {
    if (!this.map) return;
    this.held();
    if (this.wide === undefined) this.watch();
    const width = Math.min(this.wide || 560, 720);
    this.side = Math.max(80, width - LABELS);
    this.tall = Math.max(80, Math.min(1.6 * this.side, (this.side * this.map.queries) / this.map.keys));
    const context = sized(this.canvas, this.side + LABELS, this.tall + LABELS);
    const ratio = window.devicePixelRatio || 1;
    const [w, h] = [Math.round(this.side * ratio), Math.round(this.tall * ratio)];
    const { x, y, w: wide, h: high } = this.window;
    const key = [x, y, wide, high, w, h].join(" ");
    const from = this.map.far ? this.map.picture(this.window, w, h, () => this.box.isConnected && this.draw()) : this.map;
    if (from && (this.key !== key || this.drawn !== from)) {
      this.image = painted(from, from.part ? inPicture(from, this.window) : this.window, w, h); // a pointer that moves changes the marks alone
      this.key = key;
      this.drawn = from;
    }
    this.canvas.toggleAttribute("data-waiting", Boolean(this.map.asking));
    if (from) context.putImageData(this.image, Math.round(LABELS * ratio), Math.round(LABELS * ratio));
    this.frame(context);
    if (this.moved) this.moved(this.window);
  }

  frame(context) {
    const { window: w, side, tall, map } = this;
    const [cw, ch] = [side / w.w, tall / w.h];
    context.font = `11px ${FONT}`;
    context.strokeStyle = css("--line");
    context.strokeRect(LABELS - 0.5, LABELS - 0.5, side + 1, tall + 1);
    const write = (token, special, marked) => {
      context.fillStyle = css(marked ? "--ink" : special ? "--faint" : "--dim");
      context.font = `${marked ? "600 " : ""}11px ${FONT}`;
      return fitted(context, token, LABELS - 12);
    };
    context.textBaseline = "middle";
    const stepY = Math.max(1, Math.ceil(LEAST_CELL / ch));
    for (let i = Math.ceil(w.y / stepY - 1e-9) * stepY; i < w.y + w.h && i < map.queries; i += stepY) {
      const y = LABELS + (i + 0.5 - w.y) * ch;
      if (y < LABELS + 2 || y > LABELS + tall - 2) continue;
      context.textAlign = "right";
      context.fillText(write(map.rows.shown[i], map.rows.special[i], i === this.mark.row), LABELS - 6, y);
    }
    const stepX = Math.max(1, Math.ceil(LEAST_CELL / cw));
    for (let j = Math.ceil(w.x / stepX - 1e-9) * stepX; j < w.x + w.w && j < map.keys; j += stepX) {
      const x = LABELS + (j + 0.5 - w.x) * cw;
      if (x < LABELS + 2 || x > LABELS + side - 2) continue;
      context.save();
      context.translate(x, LABELS - 6);
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      context.fillText(write(map.columns.shown[j], map.columns.special[j], j === this.mark.column), 0, 0);
      context.restore();
    }
    this.marks(context, cw, ch);
  }

  marks(context, cw, ch) {
    const { window: w, side, tall } = this;
    context.save();
    context.beginPath();
    context.rect(LABELS, LABELS, side, tall);
    context.clip();
    context.strokeStyle = css("--mark");
    context.lineWidth = 1.5;
    const { row, column: j } = this.mark;
    if (row !== null) context.strokeRect(LABELS - 2, LABELS + (row - w.y) * ch, side + 4, Math.max(2, ch));
    if (j !== null) context.strokeRect(LABELS + (j - w.x) * cw, LABELS - 2, Math.max(2, cw), tall + 4);
    context.restore();
  }

  png() {
    const copy = el("canvas", { width: this.canvas.width, height: this.canvas.height });
    const context = copy.getContext("2d");
    context.fillStyle = css("--paper");
    context.fillRect(0, 0, copy.width, copy.height);
    context.drawImage(this.canvas, 0, 0);
    copy.toBlob((blob) => save(blob, `${this.map.name}.png`));
  }
}

function fitted(context, token, room) {
  let text = brief(token, 18);
  while (text.length > 2 && context.measureText(text).width > room) text = `${Array.from(text).slice(0, -2).join("")}…`;
  return text;
}

/** Part of a map as an image: cells larger than a pixel are blocks, of smaller ones the strongest is seen. */
function painted(map, window, width, height) {
  const colours = mapColours();
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const { coded, keys, queries } = map;
  const edge = (start, span, count, pixels) => {
    const made = new Int32Array(pixels + 1);
    for (let p = 0; p <= pixels; p += 1) made[p] = Math.min(count, Math.floor(start + (p / pixels) * span + 1e-9));
    return made;
  };
  const [xs, ys] = [edge(window.x, window.w, keys, width), edge(window.y, window.h, queries, height)];
  const line = new Uint8Array(width);
  let before = -1;
  for (let y = 0; y < height; y += 1) {
    const [top, bottom] = [ys[y], Math.max(ys[y] + 1, ys[y + 1])];
    const same = top === before && bottom === top + 1;
    if (!same) {
      line.fill(0);
      for (let i = top; i < bottom && i < queries; i += 1) {
        for (let x = 0, at = i * keys; x < width; x += 1) {
          let strongest = line[x];
          const last = Math.max(xs[x] + 1, xs[x + 1]);
          for (let j = xs[x]; j < last && j < keys; j += 1) if (coded[at + j] > strongest) strongest = coded[at + j];
          line[x] = strongest;
        }
      }
      before = bottom === top + 1 ? top : -1;
    }
    const to = y * width;
    if (same) pixels.copyWithin(to, to - width, to);
    else for (let x = 0; x < width; x += 1) pixels[to + x] = colours[line[x]];
  }
  return image;
}

/** A small picture of a whole map. */
function thumbnail(map, side) {
  const canvas = el("canvas", { class: "thumb", "aria-hidden": "true" });
  const context = sized(canvas, side, side);
  const ratio = window.devicePixelRatio || 1;
  const pixels = Math.round(side * ratio);
  const draw = (from) => context.putImageData(painted(from, { x: 0, y: 0, w: from.keys, h: from.queries }, pixels, pixels), 0, 0);
  if (map.far) map.small(pixels).then(draw).catch(() => {});
  else draw(map);
  return canvas;
}

/** The weights of one row as bars under the map, in the map's own window. */
function profile(canvas, weights, view, window_, colour) {
  const height = 56;
  const context = sized(canvas, view.side + LABELS, height);
  const top = Math.max(1e-9, ...weights);
  const cw = view.side / window_.w;
  context.fillStyle = css("--dim");
  context.font = `11px ${FONT}`;
  context.textAlign = "right";
  context.textBaseline = "top";
  context.fillText(share(top), LABELS - 6, 2);
  context.textBaseline = "bottom";
  context.fillText("0", LABELS - 6, height - 2);
  context.fillStyle = css("--line");
  context.fillRect(LABELS, height - 1, view.side, 1);
  context.fillStyle = colour;
  for (let j = Math.floor(window_.x); j < Math.min(weights.length, window_.x + window_.w); j += 1) {
    const tall = (weights[j] / top) * (height - 8);
    const x = LABELS + (j - window_.x) * cw;
    if (x + cw > LABELS && tall > 0.2) context.fillRect(Math.max(LABELS, x), height - 1 - tall, Math.max(1, cw - (cw > 4 ? 1 : 0)), tall);
  }
}
