// ---- one head: its map, the text, and beside them what is known of it -------------------------

const LOOKS = "looks";
const SEEN = "seen";
const MOST_AHEAD = 1e6; // cells of a map up to which the next ones are made ahead

function headView(state, at) {
  const second = state.second && DATA.at.has(state.second) ? DATA.at.get(state.second) : null;
  const shown = new HeadScene(state, at, second, textOf(state));
  return { view: shown.view, after: () => shown.start(), resize: () => shown.redraw(), done: () => shown.stop(), move: (next, to) => shown.move(next, to) };
}

/** All that an address says beside the head and the token. */
const manner = ({ stack, layer, head, row, ...rest }) => JSON.stringify(rest);

function headTop(state, at, second) {
  const name = DATA.heads[at];
  const chip = column("kind") ? el("span", { class: "chip" }, kindCell(at)) : null;
  const step = (move, sign, said) => {
    const to = neighbour(DATA.places[at], move);
    return el("a", { href: headLink(to), class: "step", title: `${DATA.heads[to]} (${said})`, "aria-label": `${said}: ${DATA.heads[to]}` }, sign);
  };
  return el("div", { class: "headtop" },
    el("h2", {}, name),
    second === null ? null : el("span", { class: "beside" }, `beside ${DATA.heads[second]}`),
    chip,
    el("span", { class: "steps" }, step([0, -1], "←", "head before"), step([0, 1], "→", "next head"), step([-1, 0], "↑", "layer before"), step([1, 0], "↓", "next layer")),
    el("a", { href: link({ view: "heads", layer: undefined, head: undefined, second: undefined, row: undefined }), class: "back" }, "all heads"));
}

class HeadScene {
  constructor(state, at, second, t) {
    Object.assign(this, { state, at, second, t, live: true, turn: 0, pinned: null, row: null });
    this.direction = state.dir === SEEN ? SEEN : LOOKS;
    const heads = second === null ? [at] : [at, second];
    this.panes = heads.map((head) => this.pane(head));
    this.text = el("div", { class: "textside" });
    this.side = second === null ? headPanel(at, this) : el("div", { class: "pair" }, pairNumbers(at, second));
    this.top = headTop(state, at, second);
    this.strip = new LayerStrip(at, t);
    this.beside = this.other();
    this.view = el("div", { class: "headview" }, this.top,
      el("div", { class: second === null ? "scene" : "scene both" },
        el("div", { class: "mapside" }, this.controls(), el("div", { class: "panes" }, this.panes.map((p) => p.box)), this.text), this.side),
      this.strip.box);
  }

  pane(head) {
    const say_ = el("p", { class: "cellnote" });
    const bars = el("canvas", { class: "profile", "aria-hidden": "true" });
    const view = new MapView({
      tell: (i, j) => this.point(i, j),
      pick: (i, j) => this.pin(this.direction === LOOKS ? i : j),
      moved: () => this.profiles(),
    });
    const name = this.second === null ? null : el("h3", {}, `${DATA.heads[head]} `, el("small", {}, kindName(head)));
    const zoom = el("div", { class: "zoom" },
      el("button", { type: "button", "aria-label": "zoom in", onclick: () => view.zoom(1.6) }, "+"),
      el("button", { type: "button", "aria-label": "zoom out", onclick: () => view.zoom(1 / 1.6) }, "−"),
      el("button", { type: "button", onclick: () => view.whole() }, "whole"),
      el("button", { type: "button", onclick: () => view.png() }, "PNG"));
    const box = el("div", { class: "pane" }, name, view.box, bars, el("div", { class: "under" }, zoom, say_));
    return { head, view, bars, note: say_, box };
  }

  /** The choice of a head to be seen beside this one. */
  other() {
    const twin = cell("most_similar", this.at);
    const names = [...(twin ? [twin] : []), ...DATA.places.map((p, i) => [p, i]).filter(([p]) => p.site === DATA.places[this.at].site).map(([, i]) => DATA.heads[i])];
    const list = el("datalist", { id: "others" }, [...new Set(names)].filter((n) => n !== DATA.heads[this.at]).map((n) => el("option", { value: n })));
    const other = el("input", { list: "others", placeholder: twin ? `e.g. ${twin}` : "head", size: "9", "aria-label": "compare with head", autocomplete: "off" });
    other.value = this.state.second || "";
    other.addEventListener("change", () => go({ second: DATA.at.has(other.value.trim()) ? other.value.trim() : undefined }));
    return el("label", { class: "choice" }, el("span", {}, "Beside"), other, list);
  }

  controls() {
    const { state } = this;
    const lengths = DATA.texts.length && DATA.texts[this.t].lengths;
    return el("div", { class: "controls" }, textChoice(this.t), this.beside,
      toggle("norm-weighted", state.norm === "1", (on) => go({ norm: on ? "1" : undefined }), `each weight times ‖${lengths || "v"}‖, the length of what that token adds; rows sum to 1 again (Kobayashi et al. 2020)`),
      toggle("hide delimiters", state.hide === "1", (on) => go({ hide: on ? "1" : undefined }), "without special tokens; rows sum to 1 again"));
  }

  async start() {
    const maps = await Promise.all(this.panes.map((p) => headMap(this.t, p.head))).catch(() => [null]);
    if (this.live) this.take(maps);
  }

  /** Another head in the place of this one: what is the same for both stays where it is. Null: all has to be made anew. */
  move(state, at) {
    const pane = this.panes[0];
    const stays = this.second === null && this.readings && !pane.map.far && manner(state) === manner(this.state);
    return stays ? this.turnTo(state, at) : null;
  }

  async turnTo(state, at) {
    Object.assign(this, { state, at, turn: this.turn + 1 });
    const { turn } = this;
    const late = setTimeout(() => turn === this.turn && this.panes[0].view.clear(), 80); // no map is seen under another's name
    const map = await headMap(this.t, at).catch(() => null);
    clearTimeout(late);
    if (!this.live || turn !== this.turn) return;
    this.panes[0].head = at;
    const open = this.side.querySelector("details[open]") !== null;
    const fresh = { top: headTop(state, at, null), side: headPanel(at, this, open), beside: this.other() };
    for (const [name, made] of Object.entries(fresh)) {
      this[name].replaceWith(made);
      this[name] = made;
    }
    this.strip.turnTo(at);
    this.take([map]);
  }

  /** The maps are here. */
  take(maps) {
    if (!maps[0]) {
      this.readings = null;
      this.text.replaceChildren(el("p", { class: "dim" }, DATA.served ? "The map of this head did not come." : "The map of this head is not in this page."));
      this.panes.forEach((p) => p.box.remove());
      return;
    }
    this.panes.forEach((pane, n) => {
      pane.map = maps[n] && maps[n].shaped(this.state.norm === "1", this.state.hide === "1");
      if (pane.map) pane.view.show(pane.map);
    });
    const map = this.panes[0].map;
    const aimed = this.row === this.pinned ? null : this.row;
    this.pinned = placeIn(this.state.row, this.direction === LOOKS ? map.queries : map.keys);
    this.row = aimed ?? this.pinned;
    if (!this.readings || this.read[0] !== map.rows || this.read[1] !== map.columns) this.words();
    this.paint();
    if (this.onMap) this.onMap(maps[0]);
    if (this.second === null && !DATA.served && map.queries * map.keys <= MOST_AHEAD) this.ahead();
  }

  /** The maps that the arrows lead to are made while nothing else is to be done. */
  async ahead() {
    const { turn } = this;
    for (const step of [[0, 1], [1, 0], [0, -1], [-1, 0]]) {
      await idle();
      if (!this.live || turn !== this.turn) return;
      await headMap(this.t, neighbour(DATA.places[this.at], step)).catch(() => null);
    }
  }

  stop() {
    this.live = false;
    this.panes.forEach((p) => p.map && p.map.far && p.map.rest());
  }

  redraw() {
    this.paint();
  }

  words() {
    const map = this.panes[0].map;
    Object.assign(this, { read: [map.rows, map.columns], row: this.pinned, cell: null });
    const handlers = { hover: (i) => this.aim(i), pick: (i) => this.pin(i) };
    const choose = (way) => go({ dir: way === LOOKS ? undefined : way });
    const way = el("fieldset", { class: "way" }, el("legend", { class: "quiet" }, "Direction"),
      [[LOOKS, "where a token looks"], [SEEN, "who looks at a token"]].map(([key, text]) => {
        const radio = el("input", { type: "radio", name: "way", value: key, onchange: () => choose(key) });
        radio.checked = key === this.direction;
        return el("label", {}, radio, text);
      }));
    this.readings = map.square
      ? { one: new Reading(map.rows, { ...handlers, label: "Tokens of the text" }) }
      : { rows: new Reading(map.rows, { ...handlers, label: "Tokens that look" }), columns: new Reading(map.columns, { ...handlers, label: "Tokens that are looked at" }) };
    this.said = el("p", { class: "said" });
    const note = DATA.texts[this.t].note;
    this.text.replaceChildren(el("div", { class: "texttop" }, el("h3", {}, this.second === null ? "Text" : `Text, as ${DATA.heads[this.at]} reads it`), way), note ? el("p", { class: "dim" }, sentence(note)) : "",
      ...Object.values(this.readings).map((r) => r.box), this.said);
  }

  /** The pointer is on a token, or on none: the pinned one counts again. */
  aim(i) {
    this.row = i === null ? this.pinned : i;
    this.paint();
  }

  pin(i) {
    const same = this.pinned === i;
    this.pinned = same ? null : i;
    this.row = this.pinned;
    replace({ row: same ? undefined : String(i) });
    this.paint();
  }

  point(i, j) {
    this.cell = i === null ? null : [i, j];
    this.aim(i === null ? null : this.direction === LOOKS ? i : j);
  }

  /** The weights that are shown of a map: of row i, or of column i. */
  weights(map, i) {
    return this.direction === LOOKS ? map.row(i) : map.column(i);
  }

  paint() {
    if (!this.readings) return;
    const looks = this.direction === LOOKS;
    const { row } = this;
    for (const pane of this.panes) {
      if (!pane.map) continue;
      pane.view.mark = looks ? { row, column: null } : { row: null, column: row };
      pane.view.draw();
      pane.note.textContent = this.cellSaid(pane.map);
    }
    const map = this.panes[0].map;
    const colour = css("--shade");
    const weights = row === null ? null : this.weights(map, row);
    if (row !== null && !weights) this.bring(row);
    if (this.readings.one) this.readings.one.paint(weights, row, colour);
    else {
      this.readings[looks ? "columns" : "rows"].paint(weights, null, colour);
      this.readings[looks ? "rows" : "columns"].paint(null, row, colour);
    }
    this.said.textContent = row === null ? "Point at a token, in the text or on the map; click to hold it." : weights ? this.rowSaid(map, row, weights) : `“${brief((looks ? map.rows : map.columns).shown[row], 24)}”, token ${row}: on its way …`;
  }

  /** The weights of a token are not here: they are asked for, once the pointer rests, and painted when they come. */
  bring(row) {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(async () => {
      if (!this.live || row !== this.row) return;
      const kind = this.direction === LOOKS ? "row" : "column";
      await Promise.all(this.panes.map((p) => p.map && p.map.bring(kind, row))).catch(() => {});
      if (this.live && row === this.row && this.weights(this.panes[0].map, row)) this.paint();
    }, this.pinned === row ? 0 : 70);
  }

  cellSaid(map) {
    if (!this.cell) return " ";
    const [i, j] = this.cell;
    if (!map.row(i)) return " ";
    return `“${brief(map.rows.shown[i], 16)}” → “${brief(map.columns.shown[j], 16)}” ${map.row(i)[j].toFixed(3)}`;
  }

  rowSaid(map, i, weights) {
    const [own, others] = this.direction === LOOKS ? [map.rows, map.columns] : [map.columns, map.rows];
    const order = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, 6).filter((j) => weights[j] >= 0.005);
    const parts = order.map((j) => `“${brief(others.shown[j], 16)}” ${share(weights[j])}`).join(", ");
    const verb = this.direction === LOOKS ? "looks at" : "is looked at by";
    return `“${brief(own.shown[i], 24)}”, token ${i}, ${verb} ${parts || "no token much"}`;
  }

  profiles() {
    if (this.row === null || this.direction !== LOOKS) {
      this.panes.forEach((p) => (p.bars.style.visibility = "hidden")); // its room stays, so that nothing moves
      return;
    }
    for (const pane of this.panes) {
      if (!pane.map) continue;
      const weights = pane.map.row(this.row);
      pane.bars.style.visibility = weights ? "visible" : "hidden";
      if (weights) profile(pane.bars, weights, pane.view, pane.view.window, css("--accent"));
    }
  }
}

// ---- all heads of the layer, small ------------------------------------------------------------

class LayerStrip {
  constructor(at, t) {
    Object.assign(this, { t, box: el("section", { class: "strip" }) });
    this.fill(at);
  }

  turnTo(at) {
    if (DATA.places[at].site === this.site) this.mark(at);
    else this.fill(at);
  }

  fill(at) {
    this.site = DATA.places[at].site;
    const { label, heads } = DATA.sites[this.site];
    this.slots = Array.from({ length: heads }, (_, h) => {
      const head = DATA.first[this.site] + h;
      return el("a", { "data-at": head, "aria-label": `${DATA.heads[head]} ${kindName(head)}` }, el("span", { class: "hole" }), el("span", { class: "name" }, `H${h}`));
    });
    this.box.setAttribute("aria-label", `Heads of ${label}`);
    this.box.replaceChildren(el("h3", {}, `All heads of ${label}`), el("div", { class: "slots" }, this.slots));
    this.mark(at);
    const seen = new IntersectionObserver(async (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting || !DATA.texts.length) continue;
        seen.unobserve(entry.target);
        const map = await headMap(this.t, Number(entry.target.dataset.at)).catch(() => null);
        if (map && entry.target.isConnected) entry.target.querySelector(".hole").replaceChildren(thumbnail(map, 84));
      }
    }, { rootMargin: "100px" });
    setTimeout(() => this.slots.forEach((slot) => slot.isConnected && seen.observe(slot)), 60);
  }

  mark(at) {
    for (const slot of this.slots) {
      slot.href = headLink(Number(slot.dataset.at));
      slot.className = Number(slot.dataset.at) === at ? "slot on" : "slot";
    }
  }
}
