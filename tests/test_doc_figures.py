"""The pictures and numbers of docs/: pictures are drawn by code, and quoted numbers are those of bench/results."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bench_results import assert_quoted, assert_rounded, results, section, tables, value

ROOT = Path(__file__).parents[1]
MEASURED = {"grid", "map", "layer", "similarity"}
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
    there = {p.stem for p in (ROOT / "docs" / "images").glob("*.png")} - BY_HAND
    assert there == set(make.PICTURES)
    text = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "docs").rglob("*.md"))
    assert there <= set(re.findall(r"images/([a-z-]+)\.png", text))
    assert all(p.stat().st_size < 400_000 for p in (ROOT / "docs" / "images").glob("*.png"))


@pytest.mark.parametrize(
    "name",
    [
        *("how-many-heads", "prune", "kv-cache", "fast", "entropy", "entropies"),
        *("attention-by-hand", "one-or-many", "kv-sharing", "attention-tiles"),
        "embedded-agreement",
    ],
)
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
    example = loaded(ROOT / "examples" / "choose_heads.py")
    assert 0 <= example.accuracy(4, seed=0, steps=3) <= 1
    names, values, asked, right = example.batch(example.torch.Generator().manual_seed(0), 5)
    for row in range(5):
        by_name = dict(zip(names[row].tolist(), values[row].tolist(), strict=True))
        assert [by_name[n] for n in asked[row].tolist()] == right[row].tolist()


def test_quoted_numbers_are_those_of_the_benchmarks() -> None:
    prune, group, fast = (
        (ROOT / "docs" / "learn" / f"{name}.md").read_text(encoding="utf-8")
        for name in ("7-pruning", "5-mha-gqa-mqa-mla", "6-fast-on-gpus")
    )
    assert_quoted(prune, ".978", ("cut", "minilm/0.5", "obs + re-fit"), "cos")
    assert_quoted(prune, ".804", ("cut", "minilm/0.5", "obs + re-fit"), "nn10")
    assert_quoted(prune, "2.86", ("cut", "stories260K/0.75", "random + re-fit"), "perplexity")
    assert_quoted(prune, "2.75", ("cut", "stories260K/0.75", "obs + re-fit"), "perplexity")
    assert_quoted(prune, "3.04", ("cut", "stories260K/0.75", "gauss-newton, no re-fit"), "perplexity")
    assert_quoted(prune, "5.14", ("cut", "stories260K/0.75", "norm, no re-fit"), "perplexity")
    assert_quoted(
        prune,
        "1.93",
        ("cut_speed", "attention alone, 6 of 12 heads in every layer, 1 × 512 tokens", "the original"),
        "ratio",
    )
    assert_quoted(
        prune,
        "1.20",
        ("cut_speed", "whole model, 6 of 12 heads in every layer, 1 × 128 tokens", "the original"),
        "ratio",
    )
    assert_quoted(group, "71.6", ("cut_group", "stories260K/4→2", "mean-pool"), "perplexity")
    assert_quoted(group, "12.4", ("cut_group", "stories260K/4→2", "mean-pool + re-fit"), "perplexity")
    assert_quoted(group, "4.83", ("cut_group", "stories260K/4→2", "joint"), "perplexity")
    assert_quoted(group, "3.54", ("cut_group", "stories260K/4→2", "joint + re-fit"), "perplexity")
    assert_quoted(group, ".963", ("cut_group", "minilm/12→4", "joint + re-fit"), "cos")
    assert_quoted(group, ".998", ("cut_group", "minilm/12→4", "joint + re-fit"), "share")
    assert_quoted(group, "3.7", ("layer", "decode core 16k float32", "SDPA enable_gqa"), "ratio")
    assert_quoted(group, "8.2", ("layer", "decode core 16k bfloat16", "SDPA enable_gqa"), "ratio")
    assert_quoted(fast, "65", ("layer", "memory of a causal forward", "explicit textbook"), "ratio")
    assert_quoted(fast, "1.03", ("layer", "small: forward 1x16, d 64, causal", "hand-written SDPA"), "ratio")


LAYER_ROWS = {
    "forward, 8 × 512": ["forward 8x512"],
    "forward, 8 × 512 causal": ["forward 8x512 causal"],
    "forward and backward, 8 × 512": ["forward+backward 8x512"],
    "forward and backward, 8 × 512 causal": ["forward+backward 8x512 causal"],
    "8 × 512 causal rotary, forward / and backward": [
        "forward 8x512 causal rotary",
        "forward+backward 8x512 causal rotary",
    ],
    "forward, 1 × 4096 causal": ["forward 1x4096 causal"],
    "dropout 0.1 training, 8 × 512 / 1 × 4096": [
        "dropout 0.1 forward+backward 8x512",
        "dropout 0.1 forward+backward 1x4096",
    ],
    "d_k 96, d_v 64 training, 8 × 512 / 1 × 4096": [
        "d_k 96, d_v 64 forward+backward 8x512",
        "d_k 96, d_v 64 forward+backward 1x4096",
    ],
    "half of the batch is padding, forward / and backward": [
        "half padding 8x512 forward",
        "half padding 8x512 forward+backward",
    ],
    "decoding, 32 heads on 8 × 128, 4k / 16k keys, whole layer": [
        "decode layer 4k float32",
        "decode layer 16k float32",
    ],
    "the same in bf16": ["decode layer 4k bfloat16", "decode layer 16k bfloat16"],
    "one small call, 1 × 16, d 64": ["forward 1x16, d 64"],
}
MASK_ROWS = {
    "window 256 of 8192, whole layer, forward / and backward": [
        "window 256 of 8192 forward",
        "window 256 of 8192 forward+backward",
    ],
    "window 256 of 8192, attention alone, forward": ["window 256 of 8192 forward core"],
    "8 packed documents of 256, whole layer, forward": ["8 documents of 256 forward"],
    "8 packed documents of 256, attention alone, forward / and backward": [
        "8 documents of 256 forward core",
        "8 documents of 256 forward+backward core",
    ],
    "decoding, attention alone, 4k / 16k keys": ["decode core 4k float32", "decode core 16k float32"],
    "the same in bf16": ["decode core 4k bfloat16", "decode core 16k bfloat16"],
}
LIMITS = {"GEMM": "GEMM roofline", "read bandwidth": "read bandwidth"}


def test_the_layer_tables_are_those_of_the_benchmarks() -> None:
    """Every cell is the rounded result, and an empty cell has no result."""
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for table, works in zip(tables(section(page, "## Layer"))[:2], (LAYER_ROWS, MASK_ROWS), strict=True):
        header, *rows = table
        assert header[-1] == "share of the limit"
        assert [row[0] for row in rows] == list(works)
        for label, *cells in rows:
            assert len(cells) == len(header) - 1
            for contestant, cell in zip(header[1:], cells, strict=True):
                share, _, limit = cell.partition(" of ")
                numbers = share.replace("*", "").split(" / ") if cell else ["–"] * len(works[label])
                for number, work in zip(numbers, works[label], strict=True):
                    key = ("layer", work, LIMITS[limit] if limit else contestant)
                    if number == "–":
                        assert key not in results(), f"{key} is missing in the table"
                    else:
                        assert_rounded(number, value(key, "ratio"))


def test_the_page_sizes_are_those_of_the_benchmarks() -> None:
    for name in ("benchmarks", "compare", "guides/report"):
        page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        assert_quoted(page, "545", ("page", "bytes of the page", "BertViz model view"), "median", scale=1e-6)
        assert_quoted(page, "272", ("page", "bytes of the page", "CircuitsVis"), "median", scale=1e-6)
