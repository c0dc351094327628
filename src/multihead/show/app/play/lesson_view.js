/** The list of lessons, the steps of the open one, and its tables. */

import { announce, closest, el } from "../dom.js";
import { formatFraction } from "../format.js";
import { help } from "../help.js";
import { gradientNorms, measureGradients } from "./gradient_norms.js";
import { percent } from "./lesson_checks.js";
import { LESSONS, begin } from "./lessons.js";
import { refill } from "./refill.js";
import { copy, nameOf } from "./settings.js";

/** @typedef {import("./session.js").Session} Session */

const SLOPE_DIGITS = 4;

/** @param {number | undefined} gradient undefined: not yet computed */
const slope = (gradient) => gradient?.toFixed(SLOPE_DIGITS) ?? "…";

export class LessonView {
  /**
   * @param {Session} session
   * @param {() => void} changed
   */
  constructor(session, changed) {
    this.session = session;
    this.changed = changed;
    this.tabs = el("div", { class: "lessontabs", role: "group", "aria-label": "lessons" });
    this.tabs.append(el("button", { type: "button", "data-lesson": "" }, "Free play"));
    for (const { id, title } of LESSONS) this.tabs.append(el("button", { type: "button", "data-lesson": id }, title));
    this.tabs.addEventListener("click", (event) => {
      const button = closest(event, "button[data-lesson]");
      if (button) this.open(button.dataset.lesson ?? "");
    });
    this.panel = el("div", { class: "lesson", role: "group", "aria-label": "the lesson", tabindex: "-1" });
    /** The step to do, at the top of the window while the lesson is out of sight. */
    this.bar = el("div", { class: "stepbar", hidden: true });
    new IntersectionObserver(([entry]) => {
      this.bar.classList.toggle("needed", !entry.isIntersecting);
    }).observe(this.panel);
    this.box = el("section", { class: "lessons", "aria-label": "lessons" }, this.tabs, this.panel);
  }

  /** How many steps of a lesson are done. @param {import("./lessons.js").Lesson} lesson */
  reached({ id }) {
    return this.session.progress.get(id) ?? 0;
  }

  get lesson() {
    return LESSONS.find(({ id }) => id === this.session.lesson) ?? null;
  }

  /** @param {string} id */
  open(id) {
    const lesson = LESSONS.find((one) => one.id === id);
    if (lesson) {
      if (this.reached(lesson) === lesson.steps.length) this.session.progress.delete(id);
      begin(this.session, lesson);
    } else {
      this.session.lesson = "";
    }
    this.changed();
  }

  /** @param {number} token */
  choose(token) {
    this.session.chosen = token;
    this.changed();
  }

  /** Advance past the steps that are done; each is checked once the one before it is done. */
  check() {
    const { lesson, session } = this;
    if (!lesson) return;
    const reached = this.reached(lesson);
    const step = lesson.steps[reached];
    if (!step || !(step.rewrites || session.reads(lesson.text)) || !step.done(session)) return;
    session.progress.set(lesson.id, reached + 1);
    announce(
      reached + 1 === lesson.steps.length ? `Lesson done. ${lesson.learned(session)}` : `Step ${reached + 1} done.`,
    );
  }

  /** The present switches with one more head off, for each head that is on, if the open lesson shows their loss. */
  get removals() {
    const settings = this.lesson?.removals ? this.withoutEach().flat() : [];
    return settings.filter((one) => one !== null);
  }

  /** By layer and head; null: it is off. */
  withoutEach() {
    const { settings } = this.session;
    return settings.map(({ heads }, layer) =>
      heads.map(({ scale }, head) => {
        if (scale === 0) return null;
        const without = copy(settings);
        without[layer].heads[head].scale = 0;
        return without;
      }),
    );
  }

  /** Compute what the open lesson shows and what takes too long for every key. */
  measure() {
    if (this.lesson?.gradients && measureGradients(this.session)) this.update();
  }

  update() {
    this.check();
    const { lesson, session } = this;
    for (const tab of this.tabs.querySelectorAll("button")) {
      const id = tab.dataset.lesson ?? "";
      tab.setAttribute("aria-pressed", String(id === (lesson?.id ?? "")));
      const one = LESSONS.find((other) => other.id === id);
      tab.classList.toggle("done", one !== undefined && this.reached(one) === one.steps.length);
    }
    this.bar.hidden = !lesson;
    if (!lesson) {
      refill(this.panel, ...this.welcome());
      return;
    }
    const reached = this.reached(lesson);
    const finished = reached === lesson.steps.length;
    const steps = lesson.steps.map((step, i) => {
      const state = i < reached ? "done" : i === reached ? "now" : "later";
      const sign = el(
        "span",
        { class: "sign", "aria-label": state === "done" ? "done" : null },
        state === "done" ? "✓" : `${i + 1}`,
      );
      return el(
        "li",
        { class: state, "aria-current": state === "now" ? "step" : null },
        sign,
        el("span", {}, step.text(session)),
      );
    });
    refill(
      this.panel,
      el("p", { class: "lead" }, lesson.about(session)),
      el("p", { class: "terms" }, ...lesson.terms.map((term) => el("span", {}, term, " ", help(term)))),
      el("ol", { class: "lessonsteps" }, ...steps),
      finished ? "" : this.restoring(lesson, reached),
      finished ? el("p", { class: "learned" }, el("b", {}, "Done. "), lesson.learned(session)) : "",
      lesson.gradients ? this.gradients() : "",
      lesson.removals ? this.removalTable() : "",
    );
    this.drawBar(lesson, reached);
  }

  /**
   * A way back to the words of the lesson, once they have changed.
   * @param {import("./lessons.js").Lesson} lesson
   * @param {number} reached
   */
  restoring({ text, steps }, reached) {
    const { session } = this;
    if (session.reads(text)) return "";
    const restore = () => {
      session.text = text;
      session.chosen = null;
      this.panel.focus(); // the button disappears
      this.changed();
    };
    const button = el("button", { type: "button", class: "restore", onclick: restore }, "Restore the words");
    const why = steps[reached].rewrites ? "" : "This step needs the words that the lesson began with. ";
    return el("p", { class: "restoring" }, why, button);
  }

  /** What the page is for. */
  welcome() {
    const { layers, heads } = this.session.sizes;
    const first = LESSONS[0];
    const start = () => {
      this.panel.focus(); // the button disappears
      this.open(first.id);
    };
    const button = el("button", { type: "button", class: "primary", onclick: start });
    button.append(`Start the first lesson: ${first.title}`);
    return [
      el(
        "p",
        { class: "lead" },
        `A small language model runs in this page. It reads the words below and predicts the next one. Its ` +
          `${layers * heads} heads decide which earlier words each word takes information from. Switch a head off, ` +
          `and see how the prediction changes.`,
      ),
      button,
    ];
  }

  /**
   * @param {import("./lessons.js").Lesson} lesson
   * @param {number} reached
   */
  drawBar(lesson, reached) {
    const { steps } = lesson;
    const before = reached ? el("b", { class: "passed" }, `✓ Step ${reached} done. `) : "";
    const text =
      reached < steps.length
        ? el("span", {}, el("b", {}, `Step ${reached + 1} of ${steps.length}: `), steps[reached].text(this.session))
        : el("span", {}, el("b", {}, "The lesson is done."));
    const back = () => {
      this.panel.scrollIntoView({ block: "nearest" });
      this.panel.focus({ preventScroll: true });
    };
    const show = el("button", { type: "button", "aria-label": "Show the lesson", onclick: back }, "Lesson");
    refill(this.bar, el("p", {}, before, text), show);
  }

  /** How much the loss rises without each further head. */
  removalTable() {
    const { session } = this;
    const each = this.withoutEach();
    const growths = each.map((layer) => layer.map((one) => one && session.lossGrowth(one)));
    const least = Math.min(...growths.flat().map((growth) => growth ?? Infinity));
    const rows = each.map((heads, layer) =>
      el(
        "tr",
        {},
        ...heads.flatMap((one, head) => {
          const growth = growths[layer][head];
          const text = one ? (growth === null ? "…" : percent(growth, 1)) : "off";
          const cell = growth !== null && growth === least ? el("b", {}, text) : text;
          return [el("th", { scope: "row" }, nameOf(layer, head)), el("td", {}, cell)];
        }),
      ),
    );
    return el(
      "div",
      { class: "beside" },
      el("p", { class: "dim" }, "How much higher the mean loss is with one more head off (bold: least):"),
      el("table", { class: "gradients removals" }, el("tbody", {}, ...rows)),
    );
  }

  /** Outputs and gradients of one head and of many. */
  gradients() {
    const { session } = this;
    const { layer, sizes, token } = session;
    const merged = session.settings[layer].merged;
    const [before, after] = [gradientNorms(session, layer, "before"), gradientNorms(session, layer, "after")];
    const rows = Array.from({ length: sizes.heads }, (_, h) => {
      const row = session.row("before", nameOf(layer, h));
      const key = row.indexOf(row.reduce((most, x) => Math.max(most, x)));
      const looks = `${session.named(key)} ${formatFraction(row[key])}`;
      const gradient = merged ? el("td", {}, slope(after?.[h])) : null;
      return el(
        "tr",
        {},
        el("th", { scope: "row" }, nameOf(layer, h)),
        el("td", {}, looks),
        el("td", {}, slope(before?.[h])),
        gradient,
      );
    });
    const head = el(
      "tr",
      {},
      el("th", { scope: "col" }, "head"),
      el("th", { scope: "col" }, merged ? "looks most at, if separate" : "looks most at"),
      el("th", { scope: "col" }, "gradient of W_Q ", help("gradient")),
      merged ? el("th", { scope: "col" }, "its part of W_Q, merged") : null,
    );
    const apart = merged
      ? `After ${session.named(token)}, the outputs of layer ${layer} differ by ` +
        `${percent(session.difference(layer), 1)} from those of separate heads.`
      : `Layer ${layer} has separate heads.`;
    const words = merged
      ? session.tokens.map((_, i) => {
          const text = `${session.word(i)} ${percent(session.difference(layer, i), 1)}`;
          return el("button", { type: "button", class: "suggestion", onclick: () => this.choose(i) }, text);
        })
      : [];
    return el(
      "div",
      { class: "beside" },
      el("p", { class: "apart" }, apart),
      merged ? el("p", { class: "dim" }, "Difference after each word:") : null,
      merged ? el("div", { class: "suggestions" }, ...words) : null,
      el("table", { class: "gradients" }, el("thead", {}, head), el("tbody", {}, ...rows)),
    );
  }
}
