// ---- how many heads can go --------------------------------------------------------------------

const CURVE_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7d74c9", "#96631a"];

function cutView(state) {
  const { curve, cost } = DATA;
  const parts = [];
  const table = cost ? new CostView(cost) : null;
  let chart = null;
  if (curve && curve.curves.length) {
    chart = new CurveView(state, curve, table);
    parts.push(el("p", { class: "lead" }, curveSaid(curve)),
      el("div", { class: "two" }, el("section", { class: "curveside" }, chart.box), el("section", {}, chart.list)));
  } else {
    parts.push(el("p", { class: "lead" }, "The curve was not measured for this page."));
  }
  if (table) parts.push(table.box);
  return { view: el("div", { class: "cutview" }, parts), after: () => chart && chart.draw(), resize: () => chart && chart.draw() };
}

const headCount = (curve) => curve.heads || curve.curves[0].order.length;

function curveSaid(curve) {
  const limit = `${Number((100 * curve.limit).toPrecision(3))} % of quality`;
  const goes = `${curve.prunable} of ${headCount(curve)} can go before ${limit} is lost.`;
  if (!curve.cut) return `Heads are ablated together, the least important first, and the model is run again. ${goes} Nothing is refitted here: a real cut does better.`;
  return `Every point is a model that was really cut: heads chosen by the method, what stays fitted again to ${plural(curve.fitted, "document")}, judged on ${curve.judged} others. ${goes}`;
}

/** What attention costs: now, and at the point of the curve that is chosen. */
class CostView {
  constructor(cost) {
    this.cost = cost;
    this.table = el("div", { class: "scroll wide" });
    this.box = el("section", {}, el("h3", {}, "What attention costs"), el("p", { class: "dim" }, cost.title.slice(1).join(" · ")), this.table);
    this.show();
  }

  show(point) {
    const { heading, rows } = this.cost;
    const chosen = point && point.cost;
    const titles = chosen ? [heading[0], `with ${point.kept} heads`] : heading;
    const lines = chosen ? rows.map(([label, now], i) => [label, now, point.cost[i]]) : rows;
    this.table.replaceChildren(el("table", { class: "cost" }, el("thead", {}, el("tr", {}, el("th", {}), titles.map((h) => el("th", { scope: "col" }, h)))),
      el("tbody", {}, lines.filter(([, ...cells]) => cells.some((c) => c !== "none" && c !== NOTHING)).map(([label, ...cells]) => el("tr", {}, el("th", { scope: "row" }, label), cells.map((c) => el("td", {}, c)))))));
  }
}

/** Quality lost against heads kept; a point is chosen by a slider, and the list says which heads are gone there. */
class CurveView {
  constructor(state, curve, cost) {
    Object.assign(this, { curve, cost });
    this.canvas = el("canvas", { class: "curve", role: "img", "aria-label": "Quality lost against heads kept" });
    this.total = headCount(curve);
    this.which = placeIn(state.method, curve.curves.length) || 0;
    this.points = [...this.mine.points].sort((a, b) => a.gone - b.gone);
    const start = placeIn(state.gone, this.total + 1) ?? curve.prunable;
    const [most, value] = curve.cut ? [this.points.length - 1, this.nearest(start)] : [this.total, start];
    this.slider = el("input", { type: "range", min: "0", max: String(most), value: String(value), "aria-label": "heads that go" });
    this.slider.addEventListener("input", () => {
      replace({ gone: String(this.gone) });
      this.draw();
    });
    this.frame = el("div", { class: "gridbox" }, this.canvas);
    const slider = el("label", { class: "slider" }, el("span", {}, "heads that go"), this.slider);
    this.box = el("div", {}, el("h3", {}, curve.unit), this.frame, slider, this.legend());
    this.list = el("div", { class: "gone" });
  }

  get mine() {
    return this.curve.curves[this.which];
  }

  get gone() {
    const value = Number(this.slider.value);
    return this.curve.cut ? this.points[value].gone : value;
  }

  /** The number of the measured point that is nearest. */
  nearest(gone) {
    const far = this.points.map((p) => Math.abs(p.gone - gone));
    return far.indexOf(Math.min(...far));
  }

  legend() {
    const { curves } = this.curve;
    if (curves.length === 1) return el("p", { class: "legend" }, el("span", { class: "dim" }, curves[0].method));
    return el("p", { class: "legend", role: "group", "aria-label": "method" }, curves.map((c, n) => {
      const dot = el("i", { class: "dot" });
      dot.style.background = CURVE_COLOURS[n % CURVE_COLOURS.length];
      return el("button", { type: "button", class: "key", "aria-pressed": String(n === this.which), onclick: () => go({ method: String(n), gone: String(this.gone) }) }, dot, c.method);
    }));
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
    const { gone } = this;
    const [width, height] = [Math.min(this.frame.clientWidth || 560, 720), 310];
    const [left, right, top, bottom] = [52, 12, 10, 44];
    const context = sized(this.canvas, width, height);
    const every = this.curve.curves.flatMap((c) => c.points.map((p) => Math.min(p.lost, 2)));
    const [least, most] = [Math.min(0, ...every), Math.max(0.01, this.curve.limit, ...every)];
    const x = (g) => left + (g / this.total) * (width - left - right);
    const y = (lost) => height - bottom - ((lost - least) / (most - least)) * (height - top - bottom);
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
    context.save();
    context.beginPath();
    context.rect(left, top - 4, width - left, height - top - bottom + 8); // what is lost beyond the scale leaves the frame
    context.clip();
    this.curve.curves.forEach((c, n) => {
      const points = [...c.points].sort((a, b) => a.gone - b.gone);
      context.strokeStyle = context.fillStyle = CURVE_COLOURS[n % CURVE_COLOURS.length];
      context.lineWidth = n === this.which ? 2.5 : 1.2;
      context.beginPath();
      points.forEach((p, i) => (i ? context.lineTo(x(p.gone), y(p.lost)) : context.moveTo(x(p.gone), y(p.lost))));
      context.stroke();
      points.forEach((p) => {
        context.beginPath();
        context.arc(x(p.gone), y(p.lost), 3, 0, 7);
        context.fill();
      });
    });
    context.restore();
    context.strokeStyle = css("--mark");
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x(gone), top);
    context.lineTo(x(gone), height - bottom);
    context.stroke();
    this.tell(gone);
  }

  tell(gone) {
    const exact = this.points.find((p) => p.gone === gone);
    const lost = this.at(gone, this.points);
    const went = exact && exact.heads ? exact.heads : this.mine.order.slice(0, gone);
    const layers = DATA.sites.map((site) => {
      const mine = new Set(went.filter((n) => n.replace(/H\d+$/, "") === site.label));
      return el("tr", {}, el("th", { scope: "row" }, site.label), el("td", { class: "few" }, `${site.heads - mine.size} of ${site.heads}`),
        el("td", { class: "names" }, [...mine].map((n, i) => [i ? " " : "", DATA.at.has(n) ? el("a", { href: headLink(DATA.at.get(n)) }, n.replace(/^.*H/, "H")) : n])));
    });
    this.list.replaceChildren(
      el("p", {}, el("b", {}, `${this.total - gone} of ${this.total} heads kept`), `: ${exact ? "" : "about "}${number(100 * lost, 2)} % lost`),
      ...this.sizes(exact),
      el("div", { class: "scroll" }, el("table", { class: "gonetable" }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "layer"), el("th", { scope: "col" }, "kept"), el("th", { scope: "col" }, "gone"))), el("tbody", {}, layers))));
    if (this.cost) this.cost.show(exact);
  }

  /** How large and how fast the model is that was cut. */
  sizes(point) {
    const parts = [];
    if (point && point.parameters) {
      const all = DATA.model.parameters;
      parts.push(el("p", {}, `${large(all)} parameters → ${large(point.parameters)} (${number(100 * (1 - point.parameters / all), 2)} % less)`));
    }
    if (point && point.speed) {
      const { ratio, low, high, batch, tokens, rounds, verdict } = point.speed;
      const said = verdict === "faster" || verdict === "slower" ? `${ratio.toFixed(2)} times as fast` : verdict;
      parts.push(el("p", { class: "dim" }, `The whole model on this machine: ${said} (${low.toFixed(2)} to ${high.toFixed(2)}, ${rounds} rounds side by side, ${batch} × ${tokens} tokens).`));
    }
    return parts;
  }
}
