/** One token, and where every head looks from it. */

import { go, headLink, headState, indexIn, link, replace } from "./address.js";
import { charts } from "./charts.js";
import { el, toggle } from "./dom.js";
import { formatFraction, shorten } from "./format.js";
import { SEEN, directionChoice } from "./head_view.js";
import { help } from "./help.js";
import { loadRows, loadWeights } from "./maps.js";
import { RemoteMap } from "./remote_map.js";
import { firstOf, places, report } from "./report.js";
import { textChoice, textIn } from "./text_choice.js";
import { TokenText } from "./token_text.js";

const MOST_HEADS = 1024;

/**
 * @param {import("./types.js").State} state
 * @returns {import("./types.js").View}
 */
export function tokensView(state) {
  const scene = new TokenScene(state, textIn(state));
  const change = (/** @type {boolean} */ on) => go({ hide: on ? "1" : undefined });
  const hide = toggle("hide delimiters", scene.hide, change, help("hide delimiters"));
  const controls = el("div", { class: "controls" }, textChoice(scene.text), directionChoice(scene.looks), hide);
  const lead =
    "Click a token of the text. Each box is a head and shows the token with the largest weight: the darker the box, " +
    "the larger the weight. Click a box to open its head.";
  const element = el("div", { class: "tokensview" }, el("p", { class: "lead" }, lead), controls);
  element.append(scene.tokens.box, scene.spoken, shadingBar(), scene.table);
  return { element, start: () => scene.choose(scene.token), stop: () => scene.stop() };
}

class TokenScene {
  /**
   * @param {import("./types.js").State} state
   * @param {number} text
   */
  constructor(state, text) {
    this.text = text;
    this.looks = state.dir !== SEEN;
    this.hide = state.hide === "1";
    this.live = true;
    this.turn = 0;
    this.sequence = report.texts[text].sequences[0];
    const plain = this.sequence.special.findIndex((special, i) => !special && i > 0);
    this.token = indexIn(state.row, this.sequence.shown.length) ?? Math.max(0, plain);
    const pick = (/** @type {number} */ i) => {
      replace({ row: String(i) });
      this.choose(i);
    };
    this.tokens = new TokenText(this.sequence, { hover: () => {}, pick, label: "Tokens of the text" });
    this.spoken = el("p", { class: "said", role: "status" });
    /** @type {HTMLAnchorElement[]} by head */
    this.boxes = [];
    this.table = report.heads.length > MOST_HEADS ? tooMany() : this.makeTable();
  }

  makeTable() {
    const columns = 1 + Math.max(...places.map((place) => place.number));
    const numbers = Array.from({ length: columns }, (_, h) => el("th", { scope: "col" }, String(h)));
    const corner = el("td", { class: "corner" }, "layer ↓ head →");
    const rows = report.sites.map((site, s) => {
      const cells = Array.from({ length: columns }, () => el("td"));
      for (let head = firstOf[s]; head < firstOf[s] + site.heads; head += 1) {
        const box = el("a", { href: headLink(head), "aria-label": report.heads[head] });
        this.boxes.push(box);
        cells[places[head].number].append(box);
      }
      return el("tr", {}, el("th", { scope: "row" }, site.label), cells);
    });
    const table = el("table", { class: "ties" }, el("thead", {}, el("tr", {}, corner, numbers)), el("tbody", {}, rows));
    const label = "The token with the largest weight, for every head";
    return el("div", { class: "scroll wide", tabindex: "0", role: "region", "aria-label": label }, table);
  }

  stop() {
    this.live = false;
  }

  /** @param {number} token */
  async choose(token) {
    this.token = token;
    this.turn += 1;
    const { turn, looks } = this;
    const name = `“${shorten(this.sequence.shown[token], 40)}”, token ${token}.`;
    const sum = new Float32Array(this.sequence.shown.length);
    let heads = 0;
    this.tokens.paint(null, token);
    for (let head = 0; head < this.boxes.length; head += 1) {
      const map = await loadRows(this.text, head).catch(() => null);
      if (!this.live || turn !== this.turn) return;
      const [from, to] = map ? (looks ? [map.rows, map.columns] : [map.columns, map.rows]) : [null, null];
      if (!map || !to || from !== this.sequence) continue;
      if (map instanceof RemoteMap && !looks) {
        this.spoken.textContent = `${name} On a text this long, open a head to see who looks at a token.`;
        return;
      }
      if (!looks) await map.complete();
      const weights = await loadWeights(map.reweighted(false, this.hide), looks, token).catch(() => null);
      if (!weights || !this.live || turn !== this.turn) return;
      this.showBox(head, weights, to);
      heads += 1;
      if (to === this.sequence) for (let j = 0; j < sum.length; j += 1) sum[j] += weights[j];
    }
    this.tokens.paint(sum.map((x) => x / Math.max(1, heads)), token);
    const shaded = looks ? "where it looks" : "who looks at it";
    this.spoken.textContent = `${name} Shaded: ${shaded}, the mean over all heads.`;
  }

  /**
   * @param {number} head
   * @param {Float32Array} weights
   * @param {import("./types.js").Sequence} tokens
   */
  showBox(head, weights, tokens) {
    let best = 0;
    for (let j = 1; j < weights.length; j += 1) if (weights[j] > weights[best]) best = j;
    const box = this.boxes[head];
    const strength = strengthOf(weights[best]);
    box.textContent = shorten(tokens.shown[best], 7);
    box.href = link({ view: undefined, ...headState(head), row: String(this.token) });
    box.title = `${report.heads[head]}: ${shorten(tokens.shown[best], 60)} ${formatFraction(weights[best])}`;
    box.setAttribute("aria-label", box.title);
    box.style.backgroundColor = shadeOf(strength);
    box.classList.toggle("strong", strength > 55);
  }
}

/** @param {number} weight its share of the colour, in percent: a square-root scale, and words stay readable */
const strengthOf = (weight) => Math.round(78 * weight ** charts.weight_exponent);

/** @param {number} strength */
const shadeOf = (strength) => `color-mix(in srgb, var(--shade) ${strength}%, transparent)`;

/** The colours of the boxes, with their weights. */
function shadingBar() {
  const steps = [0.01, 0.1, 0.25, 0.5, 1].map((weight) => {
    const step = el("span", {}, String(weight));
    step.style.backgroundColor = shadeOf(strengthOf(weight));
    return step;
  });
  const text = "largest weight of the head, square-root scale ";
  return el("p", { class: "shading" }, el("span", { class: "steps" }, steps), " ", text, help("shading"));
}

const tooMany = () =>
  el("p", { class: "dim" }, `This view is for up to ${MOST_HEADS} heads; this model has ${report.heads.length}.`);
