// ---- how many heads can go --------------------------------------------------------------------

const CURVE_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7d74c9", "#96631a"];

function cutView(state) {
  const { curve, cost } = DATA;
  const parts = [];
  let chart = null;
  if (curve && curve.curves.length) {
    chart = new CurveView(state, curve);
    parts.push(el("p", { class: "lead" }, `Heads are silenced together, those that are worth least first, and the model is run again. ${curve.can_go} of ${curve.curves[0].order.length} can go before ${Math.round(100 * curve.limit)} % of quality is lost. Nothing is refitted here: a real cut does better.`),
      el("div", { class: "two" }, el("section", { class: "curveside" }, chart.box), el("section", {}, chart.list)));
  } else {
    parts.push(el("p", { class: "lead" }, "The curve was not measured for this page."));
  }
  if (cost) {
    parts.push(el("section", {}, el("h3", {}, "What attention costs"), el("p", { class: "dim" }, cost.title.slice(1).join(" · ")),
      el("div", { class: "scroll wide" }, el("table", { class: "cost" }, el("thead", {}, el("tr", {}, el("th", {}), cost.heading.map((h) => el("th", { scope: "col" }, h)))),
        el("tbody", {}, cost.rows.filter(([, ...cells]) => cells.some((c) => c !== "none" && c !== NOTHING)).map(([label, ...cells]) => el("tr", {}, el("th", { scope: "row" }, label), cells.map((c) => el("td", {}, c)))))))));
  }
  return { view: el("div", { class: "cutview" }, parts), after: () => chart && chart.draw(), resize: () => chart && chart.draw() };
}

/** Quality lost against heads kept; a point is chosen by a slider, and the list says which heads are gone there. */
class CurveView {
  constructor(state, curve) {
    this.curve = curve;
    this.canvas = el("canvas", { class: "curve", role: "img", "aria-label": "Quality lost against heads kept" });
    this.total = curve.curves[0].order.length;
    const start = placeIn(state.gone, this.total + 1) ?? curve.can_go;
    this.slider = el("input", { type: "range", min: "0", max: String(this.total), value: String(start), "aria-label": "heads that go" });
    this.slider.addEventListener("input", () => {
      replace({ gone: this.slider.value });
      this.draw();
    });
    const keys = curve.curves.length > 1 ? el("p", { class: "legend" }, curve.curves.map((c, n) => {
      const dot = el("i", { class: "dot" });
      dot.style.background = CURVE_COLOURS[n % CURVE_COLOURS.length];
      return el("span", {}, dot, c.method);
    })) : el("p", { class: "legend" }, el("span", { class: "dim" }, curve.curves[0].method));
    this.frame = el("div", { class: "gridbox" }, this.canvas);
    this.box = el("div", {}, el("h3", {}, curve.unit), this.frame, el("label", { class: "slider" }, el("span", {}, "heads that go"), this.slider), keys);
    this.list = el("div", { class: "gone" });
  }

  /** Quality lost with `gone` heads less, between two measured points. */
  at(gone, points) {
    const kept = [...points].sort((a, b) => a.gone - b.gone);
    const after = kept.findIndex((p) => p.gone >= gone);
    if (after < 0) return kept[kept.length - 1].lost;
    if (after === 0 || kept[after].gone === gone) return kept[after].lost;
    const [a, b] = [kept[after - 1], kept[after]];
    return a.lost + ((gone - a.gone) / (b.gone - a.gone)) * (b.lost - a.lost);
  }

  draw() {
    const gone = Number(this.slider.value);
    const [width, height] = [Math.min(this.frame.clientWidth || 560, 720), 310];
    const [left, right, top, bottom] = [52, 12, 10, 44];
    const context = sized(this.canvas, width, height);
    const every = this.curve.curves.flatMap((c) => c.points.map((p) => Math.min(p.lost, 2)));
    const [least, most] = [Math.min(0, ...every), Math.max(0.01, this.curve.limit, ...every)];
    const x = (g) => left + (g / this.total) * (width - left - right);
    const y = (lost) => height - bottom - ((Math.min(lost, most) - least) / (most - least)) * (height - top - bottom);
    context.font = `11px ${FONT}`;
    context.fillStyle = css("--dim");
    context.strokeStyle = css("--line");
    context.lineWidth = 1;
    context.textBaseline = "middle";
    for (let k = 0; k <= 4; k += 1) {
      const lost = least + ((most - least) * k) / 4;
      context.textAlign = "right";
      context.fillText(`${Math.round(100 * lost)} %`, left - 8, y(lost));
      context.beginPath();
      context.moveTo(left, y(lost));
      context.lineTo(width - right, y(lost));
      context.stroke();
      const kept = Math.round((this.total * (4 - k)) / 4);
      context.textAlign = k === 0 ? "left" : k === 4 ? "right" : "center";
      context.fillText(String(kept), x(this.total - kept), height - bottom + 14);
    }
    context.textAlign = "center";
    context.fillText("heads kept", (left + width - right) / 2, height - 6);
    context.setLineDash([4, 4]);
    context.strokeStyle = css("--dim");
    context.beginPath();
    context.moveTo(left, y(this.curve.limit));
    context.lineTo(width - right, y(this.curve.limit));
    context.stroke();
    context.setLineDash([]);
    this.curve.curves.forEach((c, n) => {
      const points = [...c.points].sort((a, b) => a.gone - b.gone);
      context.strokeStyle = context.fillStyle = CURVE_COLOURS[n % CURVE_COLOURS.length];
      context.lineWidth = 2;
      context.beginPath();
      points.forEach((p, i) => (i ? context.lineTo(x(p.gone), y(p.lost)) : context.moveTo(x(p.gone), y(p.lost))));
      context.stroke();
      points.forEach((p) => {
        context.beginPath();
        context.arc(x(p.gone), y(p.lost), 3, 0, 7);
        context.fill();
      });
    });
    context.strokeStyle = css("--mark");
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x(gone), top);
    context.lineTo(x(gone), height - bottom);
    context.stroke();
    this.tell(gone);
  }

  tell(gone) {
    const first = this.curve.curves[0];
    const exact = first.points.find((p) => p.gone === gone);
    const lost = this.at(gone, first.points);
    const layers = DATA.sites.map((site) => {
      const mine = new Set(first.order.slice(0, gone).filter((n) => n.replace(/H\d+$/, "") === site.label));
      return el("tr", {}, el("th", { scope: "row" }, site.label), el("td", { class: "few" }, `${site.heads - mine.size} of ${site.heads}`),
        el("td", { class: "names" }, [...mine].map((n, i) => [i ? " " : "", el("a", { href: headLink(DATA.at.get(n)) }, n.replace(/^.*H/, "H"))])));
    });
    this.list.replaceChildren(
      el("p", {}, el("b", {}, `${this.total - gone} of ${this.total} heads kept`), `: ${exact ? "" : "about "}${number(100 * lost, 2)} % lost`),
      el("div", { class: "scroll" }, el("table", { class: "gonetable" }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "layer"), el("th", { scope: "col" }, "kept"), el("th", { scope: "col" }, "gone"))), el("tbody", {}, layers))));
  }
}
