"""Every Python example in the README and docs/ runs as pasted; the README is short and its numbers are measured."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from bench_results import assert_quoted, assert_rounded, results, section, tables, value
from multihead.cli.parser import parse

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[int, str]]:
    """(line number, code) of each fenced Python block of a page."""
    text = page.read_text(encoding="utf-8")
    return [(text.count("\n", 0, m.start(1)) + 1, m.group(1)) for m in BLOCK.finditer(text)]


# tests/test_learn.py runs the pages of docs/learn, and compares what they print.
LEARN = ROOT / "docs" / "learn"
EXAMPLES = {str(page.relative_to(ROOT)): page for page in PAGES if blocks(page) and page.parent != LEARN}


@pytest.mark.fast(
    *(name for name in EXAMPLES if name != "docs/reference/ecosystem.md")
)  # it compiles; so does tests/ecosystem
@pytest.mark.parametrize("page", EXAMPLES.values(), ids=EXAMPLES.keys())
def test_examples_run_as_pasted(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # an example that writes a file writes it here
    namespace: dict[str, object] = {"__name__": "__example__"}
    for line, code in blocks(page):
        # The padding makes a traceback point at the line of the page.
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)


def test_the_readme_has_an_example() -> None:
    assert blocks(ROOT / "README.md")


# ---- the README itself ------------------------------------------------------------------------

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    assert len(README.split()) <= 800
    fenced = re.findall(r"^```\w*\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert max(code.count("\n") for code in fenced) <= 12


@pytest.mark.parametrize("needed", ["make report ", "make test ", "](docs/compare.md)", "](docs/benchmarks.md)"])
def test_the_readme_shows_where_to_start(needed: str) -> None:
    assert needed in README


def test_commands_of_the_readme_exist() -> None:
    shown = re.findall(r"^(multihead|make) ([a-z-]+)(.*)$", README, re.MULTILINE)
    assert {program for program, *_ in shown} == {"multihead", "make"}
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for program, name, rest in shown:
        if program == "make":
            assert name in targets
        else:
            parse([name, *shlex.split(rest, comments=True)])


SPEED = {
    ("forward, 8 × 512", "`nn.MultiheadAttention`"): ("layer", "forward 8x512", "nn.MultiheadAttention"),
    ("decoding, 16k keys", "transformers `LlamaAttention`"): (
        "layer",
        "decode layer 16k float32",
        "HF LlamaAttention",
    ),
    ("window 256 of 8,192", "SDPA, dense mask"): ("layer", "window 256 of 8192 forward", "SDPA, dense mask"),
    ("generation, 4 layers of d 256", "hand-written SDPA"): (
        "layer",
        "small: generate 500 tokens, 4 layers of d 256, Static",
        "hand-written SDPA",
    ),
}


def test_speed_is_that_of_the_benchmarks() -> None:
    ((_, *rows),) = tables(section(README, "## Speed"))
    assert {(work, peer) for work, peer, _ in rows} == set(SPEED)
    for work, peer, quoted in rows:
        numbers = re.fullmatch(r"(\S+) \((\S+)–(\S+)\)", quoted)
        assert numbers, quoted
        for number, name in zip(numbers.groups(), ("ratio", "low", "high"), strict=True):
            assert_rounded(number, value(SPEED[work, peer], name))
    assert any(float(quoted.split()[0]) < 1 for *_, quoted in rows), "one row shows where we are slower"


PRUNED = {
    "54 of 72 heads": ("cut", "minilm/0.75", "obs + re-fit"),
    "36 of 72 heads": ("cut", "minilm/0.5", "obs + re-fit"),
    "4 of 12 KV heads": ("cut_group", "minilm/12→4", "joint + re-fit"),
    "2 of 12 KV heads": ("cut_group", "minilm/12→2", "joint + re-fit"),
}


def test_pruning_is_that_of_the_benchmarks() -> None:
    text = section(README, "## Prune")
    ((_, *rows),) = tables(text)
    assert [label for label, *_ in rows] == list(PRUNED)
    for label, *numbers in rows:
        for number, name in zip(numbers, ("cos", "nn10", "share"), strict=True):
            assert_rounded(number, value(PRUNED[label], name))
        if label.endswith("of 72 heads"):
            assert sum(results()[PRUNED[label]]["heads"]) == int(label.split()[0])
    half = "6 of 12 heads in every layer"
    assert_quoted(text, "1.93", ("cut_speed", f"attention alone, {half}, 1 × 512 tokens", "the original"))
    assert_quoted(text, "1.20", ("cut_speed", f"whole model, {half}, 1 × 128 tokens", "the original"))


def test_comparisons_are_those_of_the_benchmarks() -> None:
    """The other rows of this table are held by tests/test_peers.py."""
    text = section(README, "## Compared with")
    lens = ("see", "GPT-2 small, 2k tokens, time", "TransformerLens run_with_cache")
    assert_quoted(text, "2.6", lens)
    for number, contestant in {"4.8": "ours", "545": "BertViz model view", "272": "CircuitsVis"}.items():
        assert_quoted(text, number, ("page", "bytes of the page", contestant), "median", scale=1e-6)
