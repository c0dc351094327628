// ---- the text itself: its tokens shaded by weight, arcs to the strongest ----------------------

const ARCS = 5;
const LEAST_ARC = 0.04;

class Reading {
  /** `words` is a sequence of the data; `hover(i)` and `pick(i)` are called with the token's place. */
  constructor(words, { hover, pick, label }) {
    this.words = words;
    this.spans = words.shown.map((token, i) => {
      const span = el("span", {
        class: words.special[i] ? "token special" : "token", "data-i": i, role: "button", tabindex: i ? "-1" : "0",
        title: token.length > 40 ? `${token.slice(0, 400)}${token.length > 400 ? "…" : ""}` : null,
      }, brief(token, 40));
      return span;
    });
    this.arcs = svg("svg", { class: "arcs", "aria-hidden": "true" });
    this.text = el("p", { class: "tokens", "aria-label": label });
    this.spans.forEach((span, i) => this.text.append(words.glued[i] && i ? "" : " ", span));
    this.box = el("div", { class: "reading" }, this.arcs, this.text);
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

  key(event, i, pick) {
    if (i === null) return;
    if (event.key === "Enter" || event.key === " ") pick(i);
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const next = step === undefined ? undefined : this.spans[i + step];
    if (event.key !== "Enter" && event.key !== " " && step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    if (next) {
      this.spans[i].tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    }
  }

  /** Shade every token by its weight, and draw arcs from token `from` (null: none, the tokens are another text's). */
  paint(weights, from, colour) {
    const top = weights ? Math.max(1e-9, ...weights) : 1;
    this.spans.forEach((span, i) => {
      const strength = weights ? Math.sqrt(weights[i] / top) * (weights[i] > 0.001 ? 1 : 0) : 0;
      span.style.backgroundColor = strength > 0.02 ? `color-mix(in srgb, ${colour} ${Math.round(72 * strength)}%, transparent)` : "";
      span.style.color = strength > 0.35 ? "var(--ink)" : "";
      span.classList.toggle("from", i === from);
    });
    this.arcs.replaceChildren();
    if (!weights || from === null || from === undefined) return;
    const order = [...weights.keys()].filter((i) => i !== from && weights[i] >= LEAST_ARC).sort((a, b) => weights[b] - weights[a]);
    const [mine, outer] = [this.spans[from].getBoundingClientRect(), this.box.getBoundingClientRect()];
    const start = [mine.left + mine.width / 2 - outer.left, mine.top - outer.top];
    for (const i of order.slice(0, ARCS)) {
      const other = this.spans[i].getBoundingClientRect();
      const end = [other.left + other.width / 2 - outer.left, other.top - outer.top];
      const lift = Math.min(start[1], end[1]) - Math.min(34, 8 + Math.abs(end[0] - start[0]) / 9);
      this.arcs.append(svg("path", {
        d: `M${start} C${start[0]},${lift} ${end[0]},${lift} ${end}`, fill: "none", stroke: colour,
        "stroke-width": (0.8 + 3 * Math.sqrt(weights[i])).toFixed(2), "stroke-opacity": (0.35 + 0.6 * weights[i]).toFixed(2),
      }));
    }
  }
}
