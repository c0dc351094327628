// ---- which heads are copies of which ----------------------------------------------------------

const ASKED = {
  correlation: "Do two heads write the same vectors?",
  cka: "Do two heads write the same, up to a rotation?",
  attention: "Do two heads look at the same tokens?",
  write: "Do two heads write into the same directions, by their weights?",
  read: "Do two heads read from the same directions, by their weights?",
};
const PAIR_VALUES = new Map();

/** (i, j) → the number of two heads, NaN where there is none. */
async function pairValues(measure) {
  if (!PAIR_VALUES.has(measure.name)) PAIR_VALUES.set(measure.name, line(measure.line));
  const bytes = await PAIR_VALUES.get(measure.name);
  const size = DATA.pairs.heads.length;
  return (i, j) => {
    const step = bytes[i * size + j];
    return step === 255 ? NaN : measure.low + (step / 254) * (1 - measure.low);
  };
}

function alikeView(state) {
  const { pairs } = DATA;
  if (!pairs) {
    const text = DATA.table && column("most_similar")
      ? "There are too many heads for a picture of all pairs; the table of heads has the most similar head of each."
      : "Similarity was not measured for this page.";
    return { view: el("p", { class: "lead" }, text) };
  }
  const measure = pairs.measures.find((m) => m.name === state.measure) || pairs.measures.find((m) => m.name === pairs.by) || pairs.measures[0];
  const layers = [...new Set(pairs.heads.map((n) => n.replace(/H\d+$/, "")))];
  const scope = layers.includes(state.scope) ? state.scope : "all";
  const clustered = state.order !== "layer";
  let order = clustered ? pairs.order : pairs.heads.map((_, i) => i);
  if (scope !== "all") order = order.filter((i) => pairs.heads[i].replace(/H\d+$/, "") === scope);
  const picture = new PairView(state, measure, order);
  const controls = el("div", { class: "controls" },
    choice("Measure", pairs.measures.map((m) => [m.name, m.name]), measure.name, (m) => go({ measure: m })),
    choice("Order", [["cluster", "alike heads together"], ["layer", "by layer"]], clustered ? "cluster" : "layer", (o) => go({ order: o === "layer" ? o : undefined })),
    choice("Heads", [["all", "all layers"], ...layers.map((l) => [l, l])], scope, (s) => go({ scope: s === "all" ? undefined : s })));
  const groups = el("section", { class: "groups" }, el("h3", {}, `Groups that write alike (${pairs.groups.length})`),
    pairs.groups.length
      ? el("ul", {}, pairs.groups.map((group) => el("li", {}, group.map((n, i) => [i ? " " : "", el("a", { href: headLink(DATA.at.get(n)) }, n)]))))
      : el("p", { class: "dim" }, "None: no two heads are near enough."),
    pairs.notes.map((n) => el("p", { class: "dim" }, n)));
  const view = el("div", {}, el("p", { class: "lead" }, ASKED[measure.name] || measure.name, el("br"), el("small", {}, `${measure.name}: ${measure.meaning}`)), controls,
    el("div", { class: "two" }, el("section", { class: "pairside" }, picture.box, picture.scale(), picture.note), groups));
  return { view, after: () => picture.start(), resize: () => picture.draw() };
}

class PairView {
  constructor(state, measure, order) {
    Object.assign(this, { measure, order });
    this.picked = state.pick ? order.indexOf(DATA.pairs.heads.indexOf(state.pick)) : -1;
    this.canvas = el("canvas", { class: "pairs", role: "img", "aria-label": "Similarity of every two heads; the list beside it names the groups." });
    this.box = el("div", { class: "pairbox" }, this.canvas);
    this.note = el("p", { class: "hover" }, "Point at a cell for its two heads; click to see them side by side.");
    this.canvas.addEventListener("pointermove", (e) => this.point(e));
    this.canvas.addEventListener("click", (e) => {
      const [i, j] = this.under(e);
      if (i === null) return;
      const [a, b] = [DATA.pairs.heads[this.order[i]], DATA.pairs.heads[this.order[j]]];
      location.hash = a === b ? headLink(DATA.at.get(a)) : link({ view: undefined, ...headPlace(DATA.at.get(a)), second: b });
    });
  }

  async start() {
    this.values = await pairValues(this.measure);
    this.draw();
    if (this.picked >= 0) this.tell(this.picked, this.picked);
  }

  under(event) {
    const [x, y] = pointer(event, this.canvas);
    const [j, i] = [Math.floor((x - GUTTER) / this.cell), Math.floor((y - GUTTER) / this.cell)];
    const inside = i >= 0 && j >= 0 && i < this.order.length && j < this.order.length;
    return inside ? [i, j] : [null, null];
  }

  point(event) {
    const [i, j] = this.under(event);
    this.canvas.style.cursor = i === null ? "default" : "pointer";
    if (i !== null) this.tell(i, j);
  }

  tell(i, j) {
    const names = DATA.pairs.heads;
    const [a, b] = [names[this.order[i]], names[this.order[j]]];
    if (a !== b) {
      this.note.textContent = `${a} and ${b}: ${this.measure.name} ${share(this.values(this.order[i], this.order[j]))}`;
      return;
    }
    const sign = this.measure.name === "attention" ? 1 : -1;
    const others = names.map((_, k) => k).filter((k) => k !== this.order[i] && !Number.isNaN(this.values(this.order[i], k)));
    others.sort((p, q) => sign * (this.values(this.order[i], p) - this.values(this.order[i], q)));
    const near = others.slice(0, 3).map((k) => `${names[k]} ${share(this.values(this.order[i], k))}`);
    this.note.textContent = `${a} is nearest to ${near.join(", ")}`;
  }

  /** 0 … 1 as colour: more alike is brighter; correlation has two ends. */
  tint(x) {
    if (Number.isNaN(x)) return css("--line");
    if (this.measure.low < 0) return inScale(BOTH_WAYS, (x + 1) / 2);
    return inScale(SCALE, this.measure.name === "attention" ? 1 - x : x);
  }

  scale() {
    const bar = el("canvas", { class: "bar", "aria-hidden": "true" });
    const context = sized(bar, 160, 10);
    for (let x = 0; x < 160; x += 1) {
      context.fillStyle = this.tint(this.measure.low + (x / 159) * (1 - this.measure.low));
      context.fillRect(x, 0, 1, 10);
    }
    const [low, high] = this.measure.name === "attention" ? ["the same", "nothing in common"] : this.measure.low < 0 ? ["opposite", "the same"] : ["nothing in common", "the same"];
    return el("p", { class: "legend" }, el("span", { class: "dim" }, low), bar, el("span", { class: "dim" }, high));
  }

  draw() {
    if (!this.values) return;
    const count = this.order.length;
    const width = Math.min(this.box.clientWidth || 600, 760);
    this.cell = Math.max(1, Math.min(40, (width - GUTTER) / count));
    const context = sized(this.canvas, GUTTER + this.cell * count, GUTTER + this.cell * count);
    for (let i = 0; i < count; i += 1) {
      for (let j = 0; j < count; j += 1) {
        context.fillStyle = this.tint(i === j ? NaN : this.values(this.order[i], this.order[j]));
        const gap = this.cell > 12 ? 1 : 0;
        context.fillRect(GUTTER + j * this.cell, GUTTER + i * this.cell, this.cell - gap + (gap ? 0 : 0.5), this.cell - gap + (gap ? 0 : 0.5));
      }
    }
    const every = Math.max(1, Math.ceil(13 / this.cell));
    context.font = `10px ${FONT}`;
    context.textBaseline = "middle";
    for (let i = 0; i < count; i += every) {
      context.fillStyle = css(i === this.picked ? "--ink" : "--dim");
      const name = DATA.pairs.heads[this.order[i]];
      context.textAlign = "right";
      context.fillText(name, GUTTER - 4, GUTTER + (i + 0.5) * this.cell);
      context.save();
      context.translate(GUTTER + (i + 0.5) * this.cell, GUTTER - 4);
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      context.fillText(name, 0, 0);
      context.restore();
    }
    if (this.picked >= 0) {
      context.strokeStyle = css("--mark");
      context.lineWidth = 1.5;
      context.strokeRect(GUTTER, GUTTER + this.picked * this.cell, this.cell * count, this.cell);
    }
  }
}
