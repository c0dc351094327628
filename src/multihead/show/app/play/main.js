/** The page of `multihead play`: the model, what is switched, and the views of both. */

import { readBlob, readData } from "../blobs.js";
import { setCharts } from "../charts.js";
import { byId, closest, el } from "../dom.js";
import { formatCount, formatFraction, formatPercent, plural } from "../format.js";
import { GLOSSARY } from "../glossary.js";
import { help } from "../help.js";
import { resetThemeColors } from "../palettes.js";
import { sharesNamed } from "../share_names.js";
import { ComputationView } from "./computation_view.js";
import { copyLink } from "./copy_link.js";
import "./glossary.js";
import { InputView } from "./input_view.js";
import { LessonView } from "./lesson_view.js";
import { STEPS } from "./lessons.js";
import { MapPanes } from "./map_panes.js";
import { Model, intact } from "./model.js";
import { PredictionView } from "./prediction_view.js";
import { SampleLoss } from "./sample_loss.js";
import { Session } from "./session.js";
import { nameOf } from "./settings.js";
import { HeadSwitches } from "./switches.js";
import { readWeights } from "./weights.js";

const ADDRESS_DELAY = 250; // milliseconds; browsers limit how often the address may change
const MEASURE_DELAY = 100;
const FIRST_TEXT = "<now> <town> the keys that the man near the door sees";

/** Names and values, each with a "?". */
class Facts {
  /** @param {[string, string][]} rows name, term of the glossary */
  constructor(rows) {
    this.values = new Map(rows.map(([, term]) => [term, el("dd", { "data-fact": term })]));
    this.box = el("dl", { class: "facts" });
    for (const [name, term] of rows) {
      this.box.append(el("div", {}, el("dt", {}, name, " ", help(term)), this.values.get(term)));
    }
  }

  /**
   * @param {string} term
   * @param {string | null} value null hides it
   */
  show(term, value) {
    const cell = this.values.get(term);
    if (!cell) return;
    cell.textContent = value;
    cell.parentElement?.toggleAttribute("hidden", value === null);
  }
}

/**
 * What a head of the kind of a named head does; the glossary has what decides where the others look.
 * @param {import("./session.js").Card} card
 * @param {string} name
 */
function kindMeaning({ kinds, meanings }, name) {
  return meanings[name] ?? sharesNamed(kinds[name]).map((share) => GLOSSARY[share.name]).join(" ");
}

class Page {
  /** @param {Session} session */
  constructor(session) {
    this.session = session;
    const changed = () => this.changed();
    const choose = (/** @type {number} */ token) => {
      session.chosen = token;
      changed();
    };
    this.lessons = new LessonView(session, changed);
    this.input = new InputView(session, changed);
    this.predictions = new PredictionView(session, choose);
    this.maps = new MapPanes(session, choose);
    this.computation = new ComputationView(session, (layer) => {
      session.layer = layer;
      changed();
    });
    this.switches = this.makeSwitches();
    this.undo = el("button", { type: "button", id: "undo", onclick: () => this.act(() => session.undo()) }, "Undo");
    this.redo = el("button", { type: "button", id: "redo", onclick: () => this.act(() => session.redo()) }, "Redo");
    const reset = () =>
      this.act(() => session.switch((settings) => settings.splice(0, settings.length, ...intact(session.sizes))));
    this.reset = el("button", { type: "button", id: "reset", onclick: reset }, "Reset");
    this.facts = new Facts([
      ["heads on", "head"],
      [`mean loss over ${session.data.samples.length} sample texts`, "mean loss"],
      ["KV cache", "KV cache"],
      ["words copied", "words copied"],
    ]);
    const heads = el(
      "section",
      { class: "heads", "aria-label": "heads" },
      el("div", { class: "inputtop" }, el("h2", {}, "Heads"), help("head"), this.undo, this.redo, this.reset),
      el(
        "p",
        { class: "dim caption" },
        "Click a head's name to see where it looks. Untick it to switch it off, or scale its output with the slider. ",
        help("switch"),
      ),
      this.switches.box,
      this.switches.kinds,
    );
    this.predictions.list.before(this.facts.box);
    byId("main").replaceChildren(
      this.lessons.box,
      this.lessons.bar,
      this.input.box,
      el("div", { class: "two" }, heads, this.predictions.box),
      this.maps.box,
      this.computation.box,
    );
    this.samples = new SampleLoss(
      session,
      () => this.measured(),
      () => this.lessons.removals,
    );
    this.addressTimer = 0;
    this.measureTimer = 0;
    this.frame = 0;
  }

  makeSwitches() {
    const { session } = this;
    const { layers, heads } = session.sizes;
    const names = Array.from({ length: layers }, (_, layer) =>
      Array.from({ length: heads }, (_, head) => ({
        name: nameOf(layer, head),
        kind: session.card.kinds[nameOf(layer, head)],
        meaning: kindMeaning(session.card, nameOf(layer, head)),
      })),
    );
    const set = (/** @type {(settings: import("./model.js").Settings) => void} */ change, gesture = "") =>
      this.act(() => session.switch(change, gesture));
    return new HeadSwitches(names, {
      select: (layer, head) =>
        this.act(() => {
          session.layer = layer;
          session.head = head;
        }),
      scale: (layer, head, scale, slider) => {
        const gesture = slider ? nameOf(layer, head) : "";
        set((settings) => void (settings[layer].heads[head].scale = scale), gesture);
      },
      settle: () => void (session.gesture = ""),
      pattern: (layer, head, pattern) => set((settings) => void (settings[layer].heads[head].pattern = pattern)),
      merge: (layer, merged) => set((settings) => void (settings[layer].merged = merged)),
      share: (layer, kvHeads) => set((settings) => void (settings[layer].kvHeads = kvHeads)),
    });
  }

  /** @param {() => void} change */
  act(change) {
    change();
    this.changed();
  }

  /** Show a change in the next frame: several changes in one frame are computed once. */
  changed() {
    delete document.body.dataset.ready;
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.update();
    });
  }

  update() {
    const { session } = this;
    session.compute();
    this.input.update();
    this.switches.update(session.settings, session.layer, session.head);
    this.switches.drawMaps((layer, head) => this.maps.picture(layer, head));
    this.undo.disabled = !session.past.length;
    this.redo.disabled = !session.future.length;
    this.reset.disabled = !session.changed;
    this.predictions.update();
    this.maps.update();
    this.computation.update();
    this.lessons.update();
    this.drawFacts();
    this.saveAddress();
    clearTimeout(this.measureTimer);
    this.measureTimer = window.setTimeout(() => this.measure(), MEASURE_DELAY);
    document.body.dataset.took = session.took.toFixed(1);
    document.body.dataset.ready = "play";
  }

  /** Compute what takes too long for every key. */
  measure() {
    this.lessons.measure();
    this.samples.measure();
  }

  measured() {
    this.drawFacts();
    this.lessons.update();
    this.saveAddress(); // a step may be done
  }

  saveAddress() {
    clearTimeout(this.addressTimer);
    this.addressTimer = window.setTimeout(() => this.writeAddress(), ADDRESS_DELAY);
  }

  writeAddress() {
    try {
      history.replaceState(null, "", this.session.hash);
    } catch {
      // inside a notebook the frame has no address of its own
    }
  }

  drawFacts() {
    const { session } = this;
    const all = session.sizes.layers * session.sizes.heads;
    const copied = session.copied("after");
    this.facts.show("head", `${all - session.off.length} of ${all}`);
    this.facts.show("mean loss", this.lossText());
    this.facts.show("KV cache", `${session.cacheBytes} bytes per word`);
    this.facts.show("words copied", Number.isNaN(copied) ? null : formatPercent(copied, 3));
  }

  /** The loss of the trained model, and that with the switches. */
  lossText() {
    const { session } = this;
    const [base, growth] = [session.losses.get(""), session.lossGrowth()];
    if (base === undefined) return "measuring…";
    if (growth === null) return `${formatFraction(base)} → measuring…`;
    if (!session.changed) return formatFraction(base);
    const change = `${growth >= 0 ? "+" : "−"}${formatPercent(Math.abs(growth))}`;
    return `${formatFraction(base)} → ${formatFraction(base * (1 + growth))} (${change})`;
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const key = event.key.toLowerCase();
    if (!["z", "y"].includes(key) || !(event.ctrlKey || event.metaKey)) return;
    if (closest(event, "textarea, input[type=text]")) return;
    event.preventDefault();
    const again = key === "y" || event.shiftKey;
    this.act(() => (again ? this.session.redo() : this.session.undo()));
  }

  resize() {
    this.maps.resize();
    this.computation.draw();
  }
}

/** @param {import("./session.js").Data} data */
function frame(data) {
  const { layers, heads, width, headDim, words } = data.sizes;
  /** @type {[string, string, string][]} */
  const parts = [
    [formatCount(data.parameters), "parameters", "parameters"],
    [`${plural(layers, "layer")} × ${plural(heads, "head")}`, `d_model ${width}, d_k ${headDim}`, "head"],
    [String(words), "words", "the language"],
  ];
  byId("card").replaceChildren(
    ...parts.map(([value, unit, term]) =>
      el("span", {}, el("b", {}, value), " ", el("span", { class: "few" }, `${unit} `, help(term))),
    ),
  );
  byId("foot").replaceChildren(
    el(
      "p",
      {},
      `multihead ${data.version}. The model runs in this page, which sends nothing. The URL saves words and ` +
        `switches. Ctrl+Z undoes a switch, Ctrl+Y does it again.`,
    ),
  );
}

/** @param {string} name */
function setTheme(name) {
  document.documentElement.dataset.theme = name;
  resetThemeColors();
}

async function start() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  setTheme(dark.matches ? "dark" : "light");
  if (typeof DecompressionStream === "undefined") {
    const text = "This browser is too old for this page. Use Chrome 111, Safari 16.4, Firefox 113 or a newer one.";
    byId("main").append(el("p", { class: "lead" }, text));
    return;
  }
  /** @type {import("./session.js").Data} */
  const data = await readData();
  setCharts(data.charts);
  frame(data);
  const session = new Session(data, new Model(data.sizes, readWeights(await readBlob(0), data.layout)), STEPS);
  session.text = FIRST_TEXT;
  const place = session.card.agreement.match(/\d+/g)?.map(Number);
  if (place) [session.layer, session.head] = place;
  if (location.hash.length > 1) session.restore(location.hash);
  const page = new Page(session);
  const repaint = (/** @type {string} */ name) => {
    setTheme(name);
    page.update();
  };
  const other = () => (document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  byId("tools").append(copyLink(() => page.writeAddress()) ?? "");
  byId("tools").append(el("button", { type: "button", id: "theme", onclick: () => repaint(other()) }, "Light / dark"));
  dark.addEventListener("change", () => repaint(dark.matches ? "dark" : "light"));
  window.addEventListener("hashchange", () => {
    if (location.hash !== session.hash) page.act(() => session.restore(location.hash));
  });
  window.addEventListener("keydown", (event) => page.onKey(event));
  let timer = 0;
  window.addEventListener("resize", () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => page.resize(), 80);
  });
  page.update();
  // for the console of the browser, and for tests
  Object.defineProperty(window, "multihead", { value: Object.freeze({ session, page }) });
}

start();
