"""The pictures of docs/: every one has its code, and the ones that need no model are drawn."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
MEASURED = {"grid", "map", "layer", "alike"}
"""Need minutes of a model; their functions are tested in tests/unit/figure."""
BY_HAND = {"report"}
"""A screenshot of the page."""


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"of_docs_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def make() -> Any:
    return loaded(ROOT / "docs" / "figures" / "make.py")


def test_every_picture_is_made_by_code_and_shown(make: Any) -> None:
    drawn_elsewhere = "embedded-"  # examples/what_heads_learn.py
    there = {p.stem for p in (ROOT / "docs" / "images").glob("*.png") if not p.stem.startswith(drawn_elsewhere)}
    there -= BY_HAND
    assert there == set(make.PICTURES)
    text = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "docs").rglob("*.md"))
    assert there <= set(re.findall(r"images/([a-z-]+)\.png", text))
    assert all(p.stat().st_size < 400_000 for p in (ROOT / "docs" / "images").glob("*.png"))


@pytest.mark.parametrize("name", ["how-many-heads", "prune", "kv-cache", "fast", "entropy", "entropies"])
def test_pictures_are_drawn(make: Any, name: str, tmp_path: Path) -> None:
    assert name not in MEASURED
    make.PICTURES[name]().savefig(tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5000


def test_the_numbers_say_what_the_page_says() -> None:
    found = json.loads((ROOT / "docs" / "figures" / "how_many_heads.json").read_text())["accuracy"]
    mean = {int(h): sum(s) / len(s) for h, s in found.items()}
    best = max(mean, key=lambda h: mean[h])
    assert 1 < best < 32, "neither the fewest nor the most"
    assert mean[1] < mean[best] - 0.2
    assert mean[32] < mean[best] - 0.2


def test_the_example_of_heads_runs() -> None:
    example = loaded(ROOT / "examples" / "how_many_heads.py")
    assert 0 <= example.accuracy(4, seed=0, steps=3) <= 1
    names, values, asked, right = example.batch(example.torch.Generator().manual_seed(0), 5)
    for row in range(5):
        by_name = dict(zip(names[row].tolist(), values[row].tolist(), strict=True))
        assert [by_name[n] for n in asked[row].tolist()] == right[row].tolist()


def test_quoted_numbers_are_those_of_the_benchmarks() -> None:
    rows = {
        (name, r["work"], r["contestant"]): r
        for name in ("cut", "cut_group", "cut_speed", "layer")
        for r in json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text())["rows"]
    }
    folder = ROOT / "docs" / "questions"
    said = {p.stem: p.read_text(encoding="utf-8") for p in folder.glob("*.md")}
    assert len(said) == 4

    def quoted(page: str, number: str, key: tuple[str, str, str], of: str, scale: float = 1.0) -> None:
        row = rows[key]
        value = row[of] if of in row else row["numbers"][of]
        digits = len(number.partition(".")[2])
        assert f"{value * scale:.{digits}f}".lstrip("0") == number.lstrip("0"), (page, number, value)
        assert number in said[page]

    prune, group, fast = "how-does-head-pruning-work", "multi-head-or-grouped-query", "how-is-it-made-fast"
    quoted(prune, ".976", ("cut", "minilm/0.5", "obs + re-fit"), "cos")
    quoted(prune, ".793", ("cut", "minilm/0.5", "obs + re-fit"), "nn10")
    quoted(prune, "2.86", ("cut", "stories260K/0.75", "random + re-fit"), "perplexity")
    quoted(prune, "2.76", ("cut", "stories260K/0.75", "obs + re-fit"), "perplexity")
    quoted(prune, "3.10", ("cut", "stories260K/0.75", "gauss-newton, no re-fit"), "perplexity")
    quoted(prune, "5.14", ("cut", "stories260K/0.75", "norm, no re-fit"), "perplexity")
    quoted(
        prune,
        "1.93",
        ("cut_speed", "attention alone, 6 of 12 heads in every layer, 1 × 512 tokens", "the original"),
        "ratio",
    )
    quoted(
        prune,
        "1.20",
        ("cut_speed", "whole model, 6 of 12 heads in every layer, 1 × 128 tokens", "the original"),
        "ratio",
    )
    quoted(group, "71.6", ("cut_group", "stories260K/4→2", "mean-pool"), "perplexity")
    quoted(group, "16.5", ("cut_group", "stories260K/4→2", "mean-pool + re-fit"), "perplexity")
    quoted(group, "4.83", ("cut_group", "stories260K/4→2", "joint"), "perplexity")
    quoted(group, "3.74", ("cut_group", "stories260K/4→2", "joint + re-fit"), "perplexity")
    quoted(group, ".961", ("cut_group", "minilm/12→4", "joint + re-fit"), "cos")
    quoted(group, ".999", ("cut_group", "minilm/12→4", "joint + re-fit"), "share")
    quoted(group, "3.1", ("layer", "decode core 16k float32", "SDPA enable_gqa"), "ratio")
    quoted(group, "9.9", ("layer", "decode core 16k bfloat16", "SDPA enable_gqa"), "ratio")
    quoted(fast, "64", ("layer", "memory of a causal forward", "explicit textbook"), "ratio")
    quoted(fast, "0.46", ("layer", "forward 1x16, d 64", "hand-written SDPA"), "ratio")
