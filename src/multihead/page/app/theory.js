// ---- what the theory says, and what holds -----------------------------------------------------

const VERDICTS = { holds: "✓ holds", fails: "✗ fails", "holds only if": "~ conditional" };

function theoryView() {
  const { claims } = DATA;
  if (!claims) return { view: el("p", { class: "lead" }, "The statements of the theory were not tested for this page.") };
  const counts = new Map();
  claims.statements.forEach((s) => counts.set(s.verdict, (counts.get(s.verdict) || 0) + 1));
  const summary = [...counts].map(([verdict, n]) => `${n} ${verdict === "holds only if" ? "hold only in some case" : verdict === "holds" ? (n === 1 ? "holds" : "hold") : verdict === "fails" ? (n === 1 ? "fails" : "fail") : verdict}`).join(", ");
  const rows = claims.statements.map((s) => {
    const layers = Object.entries(s.layers);
    const [label, middle] = layers.find(([, f]) => f.verdict === s.verdict) || layers[0];
    const said = s.said.replace(/^(holds|fails|conditional)/, (word) => VERDICTS[word === "conditional" ? "holds only if" : word]);
    const detail = el("details", {}, el("summary", {}, s.title), el("code", {}, s.formula), el("p", {}, middle.why),
      middle.condition ? el("p", { class: "dim" }, `True when ${middle.condition}.`.replace("..", ".")) : null,
      el("table", { class: "layers" }, el("tbody", {}, layers.map(([name, f]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, VERDICTS[f.verdict] || f.verdict), el("td", {}, f.left), el("td", {}, f.right))))));
    return el("tr", { class: `verdict ${s.verdict.replaceAll(" ", "-")}`, "data-key": s.key }, el("th", { scope: "row" }, s.key), el("td", { class: "statement" }, detail), el("td", { class: "result" }, said),
      el("td", { title: label }, middle.left), el("td", {}, middle.right));
  });
  const table = el("table", { class: "claims" }, el("thead", {}, el("tr", {}, ["#", "statement", "verdict", "as computed", "as stated"].map((h) => el("th", { scope: "col" }, h)))), el("tbody", {}, rows));
  const view = el("div", {}, el("p", { class: "lead" }, `Statements about multi-head attention from papers and textbooks, both sides computed on this model: ${summary}.`),
    el("p", { class: "dim" }, claims.about), el("div", { class: "scroll wide", tabindex: "0", role: "region", "aria-label": "Statements and verdicts" }, table));
  return { view };
}
