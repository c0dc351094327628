// ---- one token, and what every head does with it ----------------------------------------------

const MOST_TOLD = 1024; // heads up to which all of them are asked

function tokensView(state) {
  const t = textOf(state);
  const view = el("div", { class: "tokensview" });
  if (!DATA.texts.length) return { view: el("p", {}, "There is no text in this page.") };
  const scene = new TokenScene(state, t);
  const way = choice("Show", [[LOOKS, "where the token looks"], [SEEN, "who looks at the token"]], scene.direction, (dir) => go({ dir: dir === LOOKS ? undefined : dir }));
  const controls = el("div", { class: "controls" }, textChoice(t), way,
    toggle("hide delimiters", state.hide === "1", (on) => go({ hide: on ? "1" : undefined }), "without special tokens; rows sum to 1 again"));
  view.append(el("p", { class: "lead" }, "Choose a token of the text. Each box is a head: the token that it ties this one to most, the darker the stronger."),
    controls, scene.reading.box, scene.said, scene.table);
  return { view, after: () => scene.start(), done: () => (scene.live = false) };
}

class TokenScene {
  constructor(state, t) {
    Object.assign(this, { state, t, live: true, turn: 0 });
    this.direction = state.dir === SEEN ? SEEN : LOOKS;
    this.words = DATA.texts[t].sequences[0];
    const fallback = this.words.special.findIndex((s, i) => !s && i > 0);
    this.token = placeIn(state.row, this.words.shown.length) ?? Math.max(0, fallback);
    this.reading = new Reading(this.words, { hover: () => {}, pick: (i) => this.choose(i), label: "Tokens of the text" });
    this.said = el("p", { class: "said", role: "status" });
    this.cells = new Map();
    const most = Math.max(...DATA.sites.map((s) => s.heads));
    const head = el("tr", {}, el("th", {}), Array.from({ length: most }, (_, h) => el("th", { scope: "col" }, String(h))));
    const rows = DATA.sites.map((site, s) => el("tr", {}, el("th", { scope: "row" }, site.label),
      Array.from({ length: site.heads }, (_, h) => {
        const at = DATA.first[s] + h;
        const box = el("a", { href: headLink(at), "aria-label": DATA.heads[at] });
        this.cells.set(at, box);
        return el("td", {}, box);
      })));
    const small = DATA.heads.length > MOST_TOLD;
    this.asked = small ? [] : DATA.heads.map((_, at) => at);
    this.table = small
      ? el("p", { class: "dim" }, `This view is for up to ${MOST_TOLD} heads; this model has ${DATA.heads.length}.`)
      : el("div", { class: "scroll wide", tabindex: "0", role: "region", "aria-label": "What every head does with the token" }, el("table", { class: "ties" }, el("thead", {}, head), el("tbody", {}, rows)));
  }

  start() {
    this.choose(this.token, true);
  }

  async choose(i, first) {
    this.token = i;
    if (!first) replace({ row: String(i) });
    this.turn += 1;
    const turn = this.turn;
    const sum = new Float32Array(this.words.shown.length);
    this.reading.paint(null, i, css("--shade"));
    let told = 0;
    for (const at of this.asked) {
      const map = await headMap(this.t, at).catch(() => null);
      if (!this.live || turn !== this.turn) return undefined;
      const mine = map && (map.rows === this.words || map.columns === this.words);
      if (!mine) continue;
      const looks = this.direction === LOOKS;
      const inside = looks ? map.rows === this.words : map.columns === this.words;
      if (!inside) continue;
      const seen = map.shaped(false, this.state.hide === "1");
      if (seen.far && !looks) return this.refuse(i);
      const weights = await lineOf(seen, looks, i).catch(() => null);
      if (!weights || !this.live || turn !== this.turn) return undefined;
      told += 1;
      this.fill(at, weights, looks ? map.columns : map.rows);
      if ((looks ? map.columns : map.rows) === this.words) weights.forEach((w, j) => (sum[j] += w));
    }
    const most = sum.map((x) => x / Math.max(1, told));
    this.reading.paint(most, i, css("--shade"));
    const verb = this.direction === LOOKS ? "Shaded: where it looks, the mean of all heads." : "Shaded: who looks at it, the mean of all heads.";
    this.said.textContent = `“${brief(this.words.shown[i], 40)}”, token ${i}. ${verb}`;
    return undefined;
  }

  refuse(i) {
    this.said.textContent = `“${brief(this.words.shown[i], 40)}”, token ${i}. On a text this long, who looks at a token is shown head by head: open one.`;
  }

  fill(at, weights, words) {
    let best = 0;
    for (let j = 1; j < weights.length; j += 1) if (weights[j] > weights[best]) best = j;
    const box = this.cells.get(at);
    const strength = Math.round(78 * Math.sqrt(weights[best]));
    box.textContent = brief(words.shown[best], 7);
    box.href = link({ view: undefined, ...headPlace(at), row: String(this.token) });
    box.title = `${DATA.heads[at]}: ${brief(words.shown[best], 60)} ${share(weights[best])}`;
    box.setAttribute("aria-label", box.title);
    box.style.backgroundColor = `color-mix(in srgb, var(--shade) ${strength}%, transparent)`;
    box.classList.toggle("strong", strength > 55);
  }
}
