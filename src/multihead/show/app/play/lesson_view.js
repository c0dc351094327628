/** The list of lessons, the steps of the open one, and its tables. */

import { announce, closest, el } from "../dom.js";
import { formatFraction, formatNumber, formatPercent } from "../format.js";
import { help } from "../help.js";
import { gradientNorms } from "./gradient_norms.js";
import { LESSONS, begin } from "./lessons.js";
import { refill } from "./refill.js";
import { nameOf } from "./settings.js";

/** @typedef {import("./session.js").Session} Session */

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
    this.panel = el("div", { class: "lesson", tabindex: "-1" });
    /** The step to do, at the top of the window while the lesson is out of sight. */
    this.bar = el("div", { class: "stepbar", hidden: true });
    new IntersectionObserver(([entry]) => {
      this.bar.classList.toggle("needed", !entry.isIntersecting);
    }).observe(this.panel);
    this.box = el("section", { class: "lessons", "aria-label": "lessons" }, this.tabs, this.panel);
  }

  /** How many steps of a lesson are done. @param {import("./lessons.js").Lesson} lesson */
  reached({ id, steps }) {
    return Math.min(this.session.progress.get(id) ?? 0, steps.length);
  }

  get lesson() {
    return LESSONS.find(({ id }) => id === this.session.lesson) ?? null;
  }

  /** @param {string} id */
  open(id) {
    const lesson = LESSONS.find((one) => one.id === id);
    if (lesson) {
      this.session.progress.delete(id);
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
    if (!step?.done(session)) return;
    session.progress.set(lesson.id, reached + 1);
    announce(
      reached + 1 === lesson.steps.length ? `Lesson done. ${lesson.learned(session)}` : `Step ${reached + 1} done.`,
    );
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
      finished ? el("p", { class: "learned" }, el("b", {}, "Done. "), lesson.learned(session)) : "",
      lesson.gradients ? this.gradients() : "",
    );
    this.drawBar(lesson, reached);
  }

  /** What the page is for. */
  welcome() {
    const { layers, heads } = this.session.sizes;
    const first = LESSONS[0];
    const button = el("button", { type: "button", class: "primary", onclick: () => this.open(first.id) });
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

  /** Outputs and gradients of one head and of many. */
  gradients() {
    const { session } = this;
    const { layer, sizes, token } = session;
    const merged = session.settings[layer].merged;
    const [before, after] = [gradientNorms(session, layer, "before"), gradientNorms(session, layer, "after")];
    const rows = Array.from({ length: sizes.heads }, (_, h) => {
      const row = session.row("before", nameOf(layer, h));
      const key = row.indexOf(row.reduce((most, x) => Math.max(most, x)));
      const looks = `${session.word(key)} ${formatFraction(row[key])}`;
      const gradient = merged ? el("td", {}, formatNumber(after[h])) : null;
      return el(
        "tr",
        {},
        el("th", { scope: "row" }, nameOf(layer, h)),
        el("td", {}, looks),
        el("td", {}, formatNumber(before[h])),
        gradient,
      );
    });
    const head = el(
      "tr",
      {},
      el("th", { scope: "col" }, "head"),
      el("th", { scope: "col" }, "looks most at"),
      el("th", { scope: "col" }, "gradient of W_Q ", help("gradient")),
      merged ? el("th", { scope: "col" }, "its part of W_Q, merged") : null,
    );
    const apart = merged
      ? `After “${session.word(token)}”, the outputs of layer ${layer} differ by ` +
        `${formatPercent(session.difference(layer))} from those of separate heads.`
      : `Layer ${layer} has separate heads.`;
    const words = merged
      ? session.tokens.map((_, i) => {
          const text = `${session.word(i)} ${Math.round(100 * session.difference(layer, i))}`;
          return el("button", { type: "button", class: "suggestion", onclick: () => this.choose(i) }, text);
        })
      : [];
    return el(
      "div",
      { class: "beside" },
      el("p", { class: "apart" }, apart),
      merged ? el("p", { class: "dim" }, "Difference after each word, in percent:") : null,
      merged ? el("div", { class: "suggestions" }, ...words) : null,
      el("table", { class: "gradients" }, el("thead", {}, head), el("tbody", {}, ...rows)),
    );
  }
}
