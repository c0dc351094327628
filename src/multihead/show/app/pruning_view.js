/** How many heads can be pruned, which ones, and what attention costs. */

import { go, headLink, indexIn, replace } from "./address.js";
import { FONT, fillVertical, sizeCanvas } from "./canvas.js";
import { charts } from "./charts.js";
import { el } from "./dom.js";
import { formatCount, formatNumber, formatPercent, plural } from "./format.js";
import { GLOSSARY } from "./glossary.js";
import { heading, help } from "./help.js";
import { lineColor, themeColor } from "./palettes.js";
import { indexOf, layerOf, report } from "./report.js";

/**
 * @typedef {import("./types.js").Curve} Curve
 * @typedef {import("./types.js").CurvePoint} CurvePoint
 */

const HEIGHT = 320;
const MARGIN = { left: 66, right: 12, top: 10, bottom: 46 };
const LARGEST_LOSS = 2; // a larger loss leaves the frame

/**
 * @param {import("./types.js").State} state
 * @returns {import("./types.js").View}
 */
export function pruningView(state) {
  const { curve, cost } = report;
  const costs = cost ? new CostTable(cost) : null;
  const element = el("div", { class: "cutview" });
  if (!curve?.curves.length) {
    element.append(el("p", { class: "lead" }, "The quality without some of the heads was not measured for this page."));
    if (costs) element.append(costs.element);
    return { element };
  }
  const chart = new CurveChart(state, curve, costs);
  const lead = el("p", { class: "lead" }, el("b", {}, summary(curve)), " ", help("can be pruned"), " ", method(curve));
  const list = el("section", {}, chart.list);
  element.append(lead, el("div", { class: "two" }, el("section", { class: "curveside" }, chart.element), list));
  if (costs) element.append(costs.element);
  return { element, start: () => chart.draw(), resize: () => chart.draw() };
}

/** @param {Curve} curve */
const headCount = (curve) => curve.heads ?? curve.curves[0].order.length;

/** @param {Curve} curve */
function summary(curve) {
  const limit = formatPercent(curve.limit, 3);
  if (!curve.prunable) return `No head can be pruned for less than ${limit} of quality.`;
  return `${curve.prunable} of ${headCount(curve)} heads can be pruned for less than ${limit} of quality.`;
}

/** @param {Curve} curve */
function method(curve) {
  if (!curve.cut) {
    return (
      "Heads are switched off together, the least important first, and the model is measured again. Nothing is " +
      "refitted here: real pruning (multihead prune) does better."
    );
  }
  const fitted = plural(curve.fitted ?? 0, "document");
  const judged = `its quality measured on ${curve.judged} others`;
  return `Every point is a pruned model: its weights were refitted on ${fitted}, ${judged}.`;
}

/** What attention costs: now, and at the chosen point of the curve. */
class CostTable {
  /** @param {import("./types.js").Cost} cost */
  constructor(cost) {
    this.cost = cost;
    this.table = el("div", { class: "scroll wide" });
    const title = heading("What attention costs", "attention costs");
    const sizes = el("p", { class: "dim" }, cost.title.slice(1).join(" · "));
    this.element = el("section", {}, title, sizes, this.table);
    this.show();
  }

  /** @param {CurvePoint} [point] */
  show(point) {
    const { heading: titles, rows } = this.cost;
    const after = point?.cost;
    const columns = after ? [titles[0], `with ${point.kept} heads`] : titles;
    const lines = after ? rows.map(([label, now], i) => [label, now, after[i]]) : rows;
    const none = ["none", charts.format.missing];
    const known = lines.filter(([, ...cells]) => cells.some((text) => !none.includes(text)));
    const head = el("tr", {}, el("td"), columns.map((text) => el("th", { scope: "col" }, text)));
    const body = known.map(([label, ...cells]) =>
      el("tr", {}, el("th", { scope: "row" }, label, " ", costHelp(label)), cells.map((text) => el("td", {}, text))));
    this.table.replaceChildren(el("table", { class: "cost" }, el("thead", {}, head), el("tbody", {}, body)));
  }
}

/** @param {string} label */
function costHelp(label) {
  const term = `cost: ${label}`;
  return Object.hasOwn(GLOSSARY, term) ? help(label, GLOSSARY[term]) : null;
}

/** Quality lost against heads kept. A slider chooses a point; the list names the heads removed there. */
class CurveChart {
  /**
   * @param {import("./types.js").State} state
   * @param {Curve} curve
   * @param {CostTable | null} costs
   */
  constructor(state, curve, costs) {
    this.curve = curve;
    this.costs = costs;
    this.total = headCount(curve);
    this.which = indexIn(state.method, curve.curves.length) ?? 0;
    this.line = curve.curves[this.which];
    this.points = byRemoved(this.line.points);
    const start = indexIn(state.gone, this.total + 1) ?? curve.prunable;
    // Pruned models exist at the measured points alone; switched-off heads can be any number.
    const [most, value] = curve.cut ? [this.points.length - 1, this.nearest(start)] : [this.total, start];
    this.slider = el("input", { type: "range", min: 0, max: most, value, "aria-label": "heads removed" });
    this.slider.addEventListener("input", () => {
      replace({ gone: String(this.removed) });
      this.draw();
    });
    this.canvas = el("canvas", { class: "curve", role: "img", "aria-label": "Quality lost against heads kept" });
    this.frame = el("div", { class: "gridbox" }, this.canvas);
    this.list = el("div", { class: "gone" });
    const title = el("h3", {}, `Quality lost: ${curve.unit} `, help("quality lost"));
    const slider = el("label", { class: "slider" }, el("span", {}, "heads removed"), this.slider);
    this.element = el("div", {}, title, this.frame, slider, this.legend());
  }

  get removed() {
    const value = Number(this.slider.value);
    return this.curve.cut ? this.points[value].gone : value;
  }

  /** @param {number} removed the index of the closest measured point */
  nearest(removed) {
    const gaps = this.points.map((point) => Math.abs(point.gone - removed));
    return gaps.indexOf(Math.min(...gaps));
  }

  legend() {
    const { curves } = this.curve;
    if (curves.length === 1) return el("p", { class: "legend dim" }, curves[0].method, " ", help("method"));
    const keys = curves.map((line, n) => {
      const dot = el("i", { class: "dot" });
      dot.style.background = lineColor(n);
      const pick = () => go({ method: String(n), gone: String(this.removed) });
      const pressed = String(n === this.which);
      return el("button", { type: "button", class: "key", "aria-pressed": pressed, onclick: pick }, dot, line.method);
    });
    return el("p", { class: "legend", role: "group", "aria-label": "method" }, keys, help("method"));
  }

  /** Quality lost, between two measured points. @param {number} removed */
  lossAt(removed) {
    const { points } = this;
    const after = points.findIndex((point) => point.gone >= removed);
    if (after < 0) return points[points.length - 1].lost;
    if (after === 0 || points[after].gone === removed) return points[after].lost;
    const [a, b] = [points[after - 1], points[after]];
    return a.lost + ((removed - a.gone) / (b.gone - a.gone)) * (b.lost - a.lost);
  }

  draw() {
    const { left, right, top, bottom } = MARGIN;
    const width = Math.min(this.frame.clientWidth || 560, 720);
    const context = sizeCanvas(this.canvas, width, HEIGHT);
    const losses = this.curve.curves.flatMap(({ points }) => points.map(({ lost }) => Math.min(lost, LARGEST_LOSS)));
    const [least, most] = [Math.min(0, ...losses), Math.max(0.01, this.curve.limit, ...losses)];
    const x = (/** @type {number} */ removed) => left + (removed / this.total) * (width - left - right);
    const y = (/** @type {number} */ lost) =>
      HEIGHT - bottom - ((lost - least) / (most - least)) * (HEIGHT - top - bottom);
    this.drawAxes(context, width, x, y, least, most);
    context.save();
    context.beginPath();
    context.rect(left, top - 4, width - left, HEIGHT - top - bottom + 8);
    context.clip();
    this.curve.curves.forEach((line, n) => {
      const points = byRemoved(line.points);
      context.strokeStyle = context.fillStyle = lineColor(n);
      context.lineWidth = n === this.which ? 2.5 : 1.2;
      context.beginPath();
      for (const point of points) context.lineTo(x(point.gone), y(point.lost));
      context.stroke();
      for (const point of points) {
        context.beginPath();
        context.arc(x(point.gone), y(point.lost), 3, 0, 2 * Math.PI);
        context.fill();
      }
    });
    context.restore();
    context.strokeStyle = themeColor("--mark");
    context.lineWidth = 1.5;
    strokeLine(context, x(this.removed), top, x(this.removed), HEIGHT - bottom);
    this.describe(this.removed);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} width
   * @param {(removed: number) => number} x
   * @param {(lost: number) => number} y
   * @param {number} least
   * @param {number} most
   */
  drawAxes(context, width, x, y, least, most) {
    const { left, right, bottom } = MARGIN;
    const limit = y(this.curve.limit);
    context.font = `11px ${FONT}`;
    context.fillStyle = themeColor("--dim");
    context.strokeStyle = themeColor("--line");
    context.lineWidth = 1;
    context.textBaseline = "middle";
    for (let k = 0; k <= 4; k += 1) {
      const lost = least + ((most - least) * k) / 4;
      context.textAlign = "right";
      context.fillText(`${Math.round(100 * lost)} %`, left - 8, y(lost));
      strokeLine(context, left, y(lost), width - right, y(lost));
      const kept = Math.round((this.total * (4 - k)) / 4);
      context.textAlign = k === 0 ? "left" : k === 4 ? "right" : "center";
      context.fillText(String(kept), x(this.total - kept), HEIGHT - bottom + 14);
    }
    context.textAlign = "center";
    context.fillStyle = themeColor("--ink");
    context.font = `600 12px ${FONT}`;
    context.fillText("heads kept", (left + width - right) / 2, HEIGHT - 8);
    fillVertical(context, "quality lost", 8, (MARGIN.top + HEIGHT - bottom) / 2);
    context.textAlign = "right"; // in the frame, where no other label is: at few heads all curves are far above
    context.fillStyle = themeColor("--dim");
    context.fillText(`limit ${Number((100 * this.curve.limit).toPrecision(3))} %`, width - right - 4, limit - 9);
    context.setLineDash([4, 4]);
    context.strokeStyle = themeColor("--dim");
    strokeLine(context, left, limit, width - right, limit);
    context.setLineDash([]);
  }

  /** @param {number} removed */
  describe(removed) {
    const measured = this.points.find((point) => point.gone === removed);
    const heads = measured?.heads ?? this.line.order.slice(0, removed);
    const about = measured ? "" : "about ";
    const loss = `: ${about}${formatPercent(this.lossAt(removed))} of quality lost.`;
    const count = `${plural(removed, "head")} removed, ${this.total - removed} of ${this.total} heads kept`;
    const rows = report.sites.map((site) => {
      const names = heads.filter((name) => layerOf(name) === site.label);
      const kept = el("td", { class: "few" }, `${site.heads - names.length} of ${site.heads}`);
      return el("tr", {}, el("th", { scope: "row" }, site.label), kept, el("td", { class: "names" }, headLinks(names)));
    });
    const titles = ["layer", "heads kept", "removed heads"].map((text) => el("th", { scope: "col" }, text));
    const table = el("table", { class: "gonetable" }, el("thead", {}, el("tr", {}, titles)), el("tbody", {}, rows));
    this.list.replaceChildren(
      el("p", {}, el("b", {}, count), loss),
      ...sizes(measured),
      el("div", { class: "scroll" }, table),
    );
    this.costs?.show(measured);
  }
}

/** @param {CurvePoint[]} points */
const byRemoved = (points) => [...points].sort((a, b) => a.gone - b.gone);

/** @param {string[]} names */
function headLinks(names) {
  return names.map((name, i) => {
    const head = indexOf.get(name);
    return [i ? " " : "", head === undefined ? name : el("a", { href: headLink(head) }, name)];
  });
}

/**
 * How large and how fast the pruned model is.
 * @param {CurvePoint | undefined} point
 */
function sizes(point) {
  const parts = [];
  if (point?.parameters) {
    const all = report.model.parameters;
    const less = formatPercent(1 - point.parameters / all);
    parts.push(el("p", {}, `${formatCount(all)} parameters → ${formatCount(point.parameters)} (${less} less)`));
  }
  if (point?.speed) {
    const { ratio, low, high, batch, tokens, rounds, verdict } = point.speed;
    const text = verdict === "faster" || verdict === "slower" ? `${formatNumber(ratio)} times as fast` : verdict;
    const interval = `${low.toFixed(2)} to ${high.toFixed(2)}`;
    const detail = `${interval}, ${rounds} interleaved rounds, ${batch} × ${tokens} tokens`;
    parts.push(el("p", { class: "dim" }, `The model on this machine: ${text} (${detail}).`));
  }
  return parts;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} x1
 * @param {number} y1
 * @param {number} x2
 * @param {number} y2
 */
function strokeLine(context, x1, y1, x2, y2) {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}
