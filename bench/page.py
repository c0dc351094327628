"""The page of MiniLM on 406 tokens, all 72 heads: how large it is, when the grid is there, how fast heads change.

    python bench/page.py                     # makes the page (some minutes), then opens it in Chromium
    python bench/page.py --page report.html  # a page that is there already
    python bench/page.py --peers FOLDER      # BertViz and CircuitsVis too, from pip install --target FOLDER
    python bench/page.py --quick             # 3 rounds, maps and measures alone: to see that it runs

A round is a new tab: from the start of the navigation to the grid, by the clock and in processor time of the page's
main thread, which other programs on the machine disturb less. Then arrow keys through 24 heads, 0.3 s apart; the
way back, to heads that were shown before; and a held key: 24 new heads, a key every 30 ms. A move lasts from the
key until all of that head, or of a later one, is on the screen (map, text, numbers; the small maps of a new layer,
further down, come later): until the frame after the page says that it is ready. Its processor time includes what
the page prepares for the next move. Prints a table with the limit in the last column, writes results/page.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import machine_line
from multihead.edit.check.speed import interval

RESULTS = Path(__file__).parent / "results" / "page.json"
TOKENS = 406
STEPS = {"ArrowRight": (0, 1), "ArrowDown": (1, 0), "ArrowLeft": (0, -1), "ArrowUp": (-1, 0)}
KEYS = (("ArrowRight",) * 11 + ("ArrowDown",)) * 2
BACK = (("ArrowUp",) + ("ArrowLeft",) * 11) * 2
LAYERS, HEADS = 6, 12
PAUSE, REPEAT = 0.3, 0.03
"""Seconds between keys, and between those of a held key."""

QUOTED = {"BertViz model view": 545e6, "CircuitsVis": 272e6}
"""Bytes of the same 72 maps, as --peers found them with BertViz 1.4.1 and CircuitsVis 1.43.3."""

NEW, BEFORE, HELD = (
    "until another head is there",
    "until a head shown before is there",
    "until a head is there, key held",
)
SLOWEST = ", slowest of 24"
LIMITS = {"bytes of the page": 5e6, "until the grid is there": 1.0}
LIMITS |= {work + which: 0.06 for work in (NEW, BEFORE, HELD) for which in ("", SLOWEST)}
_READY = """window.pressed = [];
window.seen = [];
addEventListener("keydown", (event) => pressed.push(event.timeStamp), { capture: true });
const frame = (then) => requestAnimationFrame(() => {  // laid out and painted, then the next task
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => then(performance.now());
  port2.postMessage(0);
});
new MutationObserver(() => {
  const { ready } = document.body.dataset;
  window.shownAt ??= performance.now();
  frame((now) => seen.push([now, ready]));
}).observe(document, { subtree: true, attributes: true, attributeFilter: ["data-ready"] });"""


@dataclass(frozen=True)
class Row:
    work: str
    contestant: str
    median: float
    low: float
    high: float
    unit: str
    rounds: int
    limit: float | None = None
    verdict: str = ""


def row(work: str, contestant: str, seen: list[float], unit: str) -> Row:
    limit = LIMITS.get(work) if contestant.startswith("ours") else None
    low, high = interval(seen) if len(seen) > 1 else (seen[0], seen[0])
    said = "" if limit is None else "reached" if high < limit else "not reached" if low > limit else "undecided"
    return Row(work, contestant, statistics.median(seen), low, high, unit, len(seen), limit, said)


# ---- the page ---------------------------------------------------------------------------------


def text_of(tokenizer: Any) -> str:
    """406 tokens of the sample that comes with the package, [CLS] and [SEP] among them."""
    from multihead.corpus.read_texts import sample

    ids = tokenizer(" ".join(sample()), add_special_tokens=False)["input_ids"]
    assert len(ids) > TOKENS, "the sample is too short"
    end = tokenizer(" ".join(sample()), add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    return " ".join(sample())[: end[TOKENS - 3][1]]


def minilm() -> tuple[Any, Any]:
    import multihead as mh

    return mh.load_pretrained("minilm")


def make(folder: Path, quick: bool) -> Path:
    """With everything else that a page holds, as `multihead report` makes it."""
    _, tokenizer = minilm()
    text = folder / "text.txt"
    text.write_text(text_of(tokenizer), encoding="utf-8")
    out = folder / "page.html"
    words = ["report", "minilm", "--text", str(text), "-o", str(out)]
    words += ["--only", "measure,kinds"] if quick else []
    subprocess.run([sys.executable, "-m", "multihead", *words], check=True, stdout=subprocess.DEVNULL)
    return out


def peers(folder: Path) -> dict[str, float]:
    """Bytes of HTML that others make of the same maps."""
    import torch

    sys.path.insert(0, str(folder))
    model, tokenizer = minilm()
    model.set_attn_implementation("eager")
    given = tokenizer(text_of(tokenizer), return_tensors="pt")
    with torch.no_grad():
        maps = model(**given, output_attentions=True).attentions
    names = tokenizer.convert_ids_to_tokens(given["input_ids"][0])
    assert len(names) == TOKENS
    found: dict[str, float] = {}
    from bertviz import model_view  # type: ignore[import-not-found]

    found["BertViz model view"] = len(model_view(maps, names, html_action="return").data.encode())
    from circuitsvis.attention import attention_heads  # type: ignore[import-not-found]

    found["CircuitsVis"] = sum(
        len(str(attention_heads(attention=layer[0], tokens=names)).encode()) for layer in maps
    )
    return found


# ---- in a browser -----------------------------------------------------------------------------


def times(file: Path, rounds: int) -> list[Row]:
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    said = os.environ.get("MULTIHEAD_CHROMIUM") or next((x for n in names if (x := shutil.which(n))), None)
    switches = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    seen: dict[tuple[str, str], list[float]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=said, args=switches)
        for _ in range(rounds):
            for key, seconds in _round(browser, file).items():
                seen.setdefault(key, []).append(seconds)
        browser.close()
    return [row(work, contestant, values, "s") for (work, contestant), values in seen.items()]


def _round(browser: Any, file: Path) -> dict[tuple[str, str], float]:
    """One new tab: {(work, clock): seconds}."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))

    page.add_init_script(_READY)
    page.goto(file.resolve().as_uri())
    page.wait_for_selector("body[data-ready]", state="attached")
    found = {
        ("until the grid is there", "ours"): page.evaluate("window.shownAt") / 1e3,
        ("until the grid is there", "ours, processor time"): busy(),
    }
    for work, start, keys, pause in (
        (NEW, (0, 0), KEYS, PAUSE),
        (BEFORE, (2, 10), BACK, PAUSE),
        (HELD, (3, 0), KEYS, REPEAT),
    ):
        page.evaluate("([layer, head]) => { location.hash = `#layer=${layer}&head=${head}`; }", start)
        page.wait_for_timeout(1500)
        before = busy()
        moves = _moves(page, start, keys, pause)
        found[work, "ours"] = statistics.median(moves)
        found[work + SLOWEST, "ours"] = max(moves)
        found[work, "ours, processor time"] = (busy() - before) / len(keys)
    page.close()
    return found


def _moves(page: Any, start: tuple[int, int], keys: tuple[str, ...], pause: float) -> list[float]:
    """Seconds from every key until its head, or that of a later key, is on the screen."""
    page.evaluate("() => { pressed.length = 0; seen.length = 0; }")
    heads = [start]
    begin = time.perf_counter()
    for n, key in enumerate(keys):
        time.sleep(max(0.0, begin + n * pause - time.perf_counter()))
        page.keyboard.press(key)
        (layer, head), (down, right) = heads[-1], STEPS[key]
        heads.append(((layer + down) % LAYERS, (head + right) % HEADS))
    page.wait_for_timeout(500)
    pressed, seen = page.evaluate("() => [pressed, seen]")
    turns = [heads.index(tuple(int(part) for part in re.findall(r"\d+", ready))) for _, ready in seen]
    assert len(pressed) == len(keys)
    assert len(set(heads)) == len(heads), "a head is named once, so its turn is known"
    shown = list(zip((now for now, _ in seen), turns, strict=True))
    return [(next(now for now, turn in shown if turn > n) - at) / 1e3 for n, at in enumerate(pressed)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--page", type=Path, help="a page that is there already")
    parser.add_argument("--peers", type=Path, help="a folder with bertviz and circuitsvis")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, default=RESULTS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = args.page or make(Path(folder), args.quick)
        size = float(file.stat().st_size)
        rows = [row("bytes of the page", "ours", [size], "bytes")]
        rows += times(file, 3 if args.quick else args.rounds)
    others = peers(args.peers) if args.peers else QUOTED
    rows += [row("bytes of the page", name, [count], "bytes") for name, count in others.items()]
    machine = machine_line()
    print(machine)
    for r in rows:
        limit = "" if r.limit is None else f"{r.limit:g}"
        spread = f"{r.low:.3g} to {r.high:.3g}"
        print(f"{r.work:52} {r.contestant:22} {r.median:10.3g} {r.unit:6} {spread:22} {limit:>8} {r.verdict}")
    data = {"machine": machine, "peers": "measured" if args.peers else "quoted", "rows": [asdict(r) for r in rows]}
    args.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
