// ---- the text itself: its tokens shaded by weight, arcs to the strongest ----------------------

const ARCS = 5;
const LEAST_ARC = 0.04;
const MOST_TOKENS = 2000; // of a longer text a part is shown, the one that the chosen token is in

class Reading {
  /** `words` is a sequence of the data; `hover(i)` and `pick(i)` are called with the token's place. */
  constructor(words, { hover, pick, label }) {
    Object.assign(this, { words, from: 0, spans: [] });
    this.arcs = svg("svg", { class: "arcs", "aria-hidden": "true" });
    this.text = el("p", { class: "tokens", "aria-label": label });
    this.long = words.shown.length > MOST_TOKENS;
    this.part = this.long ? el("p", { class: "part" }) : null;
    this.box = el("div", { class: "reading" }, this.arcs, this.part, this.text);
    this.fill(0);
    const place = (event) => {
      const span = event.target.closest && event.target.closest(".token");
      return span ? Number(span.dataset.i) : null;
    };
    this.text.addEventListener("pointerover", (e) => place(e) !== null && hover(place(e)));
    this.text.addEventListener("pointerleave", () => hover(null));
    this.text.addEventListener("click", (e) => place(e) !== null && pick(place(e)));
    this.text.addEventListener("focusin", (e) => place(e) !== null && hover(place(e)));
    this.text.addEventListener("keydown", (e) => this.key(e, place(e), pick));
  }

  /** The tokens, or of a long text those from a place on. */
  fill(from) {
    const { words } = this;
    this.from = from;
    const count = this.long ? Math.min(MOST_TOKENS, words.shown.length - from) : words.shown.length;
    this.spans = Array.from({ length: count }, (_, n) => {
      const i = from + n;
      const token = words.shown[i];
      return el("span", {
        class: words.special[i] ? "token special" : "token", "data-i": i, role: "button", tabindex: n ? "-1" : "0",
        title: token.length > 40 ? `${token.slice(0, 400)}${token.length > 400 ? "…" : ""}` : null,
      }, brief(token, 40));
    });
    Object.assign(this, { shades: new Int8Array(count), marked: null });
    this.text.replaceChildren(...this.spans.flatMap((span, n) => [words.glued[from + n] && n ? "" : " ", span]));
    if (!this.long) return;
    const step = (to, text) => el("button", { type: "button", disabled: to < 0 || to >= words.shown.length, onclick: () => this.move(to) }, text);
    this.part.replaceChildren(step(from - MOST_TOKENS, "earlier"), `tokens ${from} to ${from + count - 1} of ${words.shown.length}`, step(from + MOST_TOKENS, "later"));
  }

  move(from) {
    this.fill(from);
    this.paint(...(this.painted || [null, null, ""]), true);
  }

  key(event, i, pick) {
    if (i === null) return;
    if (event.key === "Enter" || event.key === " ") pick(i);
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key !== "Enter" && event.key !== " " && step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const next = step === undefined ? undefined : this.spans[i - this.from + step];
    if (next) {
      this.spans[i - this.from].tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    }
  }

  /** Shade every token by its weight, and draw arcs from token `from` (null: none, the tokens are another text's). */
  paint(weights, from, colour, stay = false) {
    const known = from !== null && from !== undefined;
    const here = (i) => i >= this.from && i < this.from + this.spans.length;
    if (this.long && known && !here(from) && !stay) this.fill(Math.floor(from / MOST_TOKENS) * MOST_TOKENS);
    this.painted = [weights, from, colour];
    const top = weights ? weights.reduce((most, w) => Math.max(most, w), 1e-9) : 1;
    this.spans.forEach((span, n) => {
      const w = weights ? weights[this.from + n] : 0;
      const strength = w > 0.001 || (w > 0 && this.long) ? Math.sqrt(w / top) : 0;
      const shade = strength > 0.02 ? Math.round(72 * strength) : 0;
      if (shade === this.shades[n]) return;
      this.shades[n] = shade;
      span.style.backgroundColor = shade ? `color-mix(in srgb, ${colour} ${shade}%, transparent)` : "";
      span.style.color = shade > 25 ? "var(--ink)" : "";
    });
    if (this.marked) this.marked.classList.remove("from");
    this.marked = known && here(from) ? this.spans[from - this.from] : null;
    if (this.marked) this.marked.classList.add("from");
    this.arcs.replaceChildren();
    if (!weights || !known || !here(from)) return;
    const order = [...weights.keys()].filter((i) => i !== from && weights[i] >= LEAST_ARC && here(i)).sort((a, b) => weights[b] - weights[a]);
    const [mine, outer] = [this.spans[from - this.from].getBoundingClientRect(), this.box.getBoundingClientRect()];
    const start = [mine.left + mine.width / 2 - outer.left, mine.top - outer.top];
    for (const i of order.slice(0, ARCS)) {
      const other = this.spans[i - this.from].getBoundingClientRect();
      const end = [other.left + other.width / 2 - outer.left, other.top - outer.top];
      const lift = Math.min(start[1], end[1]) - Math.min(34, 8 + Math.abs(end[0] - start[0]) / 9);
      this.arcs.append(svg("path", {
        d: `M${start} C${start[0]},${lift} ${end[0]},${lift} ${end}`, fill: "none", stroke: colour,
        "stroke-width": (0.8 + 3 * Math.sqrt(weights[i])).toFixed(2), "stroke-opacity": (0.35 + 0.6 * weights[i]).toFixed(2),
      }));
    }
  }
}
