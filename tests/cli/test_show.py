"""`multihead show` and `multihead compare`: what people and programs read, and when a gate closes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cli.conftest import Said
from multihead._base.share_words import SHARE_NAMES, SHARES
from multihead.table.column_info import ColumnInfo
from multihead.table.table import HeadTable

Multihead = Callable[..., Said]

BEFORE = HeadTable(
    ("L0H0", "L0H1", "L1H0"),
    {"entropy": torch.tensor([0.5, 2.5, math.nan]), "kind": ("broad", "previous", "dead")},
    {"entropy": ColumnInfo("nats", "−Σ p log p"), "kind": ColumnInfo("", "what it looks at")},
    {"entropy": {"L1H0": "no row"}},
    {"run": {"model": "a model", "text": "a text"}},
)
AFTER = replace(BEFORE, columns={"entropy": torch.tensor([0.25, 2.5, math.nan]), "kind": ("broad", "next", "dead")})


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    BEFORE.save(tmp_path / "a")
    AFTER.save(tmp_path / "b")
    return tmp_path


def heads(said: Said) -> list[str]:
    assert said.code == 0, said.err
    return [line.split()[0] for line in said.out.splitlines() if line.strip().startswith("L")]


def test_rows(multihead: Multihead, runs: Path) -> None:
    assert heads(multihead("show", runs / "a")) == ["L0H0", "L0H1", "L1H0"]
    assert heads(multihead("show", runs / "a", "--sort", "entropy")) == ["L0H1", "L0H0", "L1H0"]
    assert heads(multihead("show", runs / "a", "--sort", "entropy", "--ascending")) == ["L0H0", "L0H1", "L1H0"]
    assert heads(multihead("show", runs / "a", "--sort", "kind", "--top", 2)) == ["L0H0", "L1H0"]
    assert heads(multihead("show", runs / "a", "--heads", "1.0,L0H1")) == ["L1H0", "L0H1"]
    assert heads(multihead("show", runs / "a", "--where", "entropy>1", "--where", "kind=previous")) == ["L0H1"]
    assert heads(multihead("show", runs / "a", "--where", "entropy>9")) == []


def test_the_grid_of_shares_comes_first(multihead: Multihead, tmp_path: Path) -> None:
    shares = torch.tensor([[0.1, 0.1, 0.8, 0.0, 0.0], [0.5, 0.1, 0.0, 0.2, 0.2], [math.nan] * 5])
    columns = {name: shares[:, i] for i, name in enumerate(SHARE_NAMES)}
    table = HeadTable(
        ("L0H0", "L0H1", "L1H0"),
        {**columns, "leading": ("position", "word + match", "")},
        {name: ColumnInfo("share", "") for name in (*columns, "leading")},
    )
    table.save(tmp_path / "run")
    lines = [line.rstrip() for line in multihead("show", tmp_path / "run").out.splitlines()]
    assert lines[:3] == ["      0  1", "  L0  p  wm", "  L1  ."]
    assert [line[:16] for line in lines[3:8]] == [
        f"  {share.letter}  {share.name:8}  {count}" for share, count in zip(SHARES, (0, 0, 1, 0, 0), strict=True)
    ]
    assert all(share.meaning in line for share, line in zip(SHARES, lines[3:8], strict=True))
    assert "  L0  p  wm" not in multihead("show", tmp_path / "run", "--top", 1).out, "only of all heads"


def test_columns(multihead: Multihead, runs: Path) -> None:
    said = multihead("show", runs / "a" / "table.json", "--columns", "kind")
    assert "entropy" not in said.out
    assert "previous" in said.out
    said = multihead("show", runs / "a", "--heads", "1.0", "--all")
    assert "no row" in said.out
    said = multihead("show", runs / "a", "--meaning")
    assert "what it looks at" in said.out
    assert "\x1b" not in said.out, "no colours in a pipe"


def test_json_and_files(multihead: Multihead, runs: Path) -> None:
    said = multihead("show", runs / "a", "--json", "--heads", "0.1", "--columns", "entropy")
    assert json.loads(said.out)["rows"] == [{"name": "L0H1", "layer": 0, "head": 1, "entropy": 2.5}]
    said = multihead("show", runs / "a", "-o", runs / "x.parquet")
    assert (said.code, said.out) == (0, "")
    assert HeadTable.load(runs / "x.parquet") == BEFORE
    refused = multihead("show", runs / "a", "-o", runs / "x.parquet")
    assert (refused.code, "x.parquet exists" in refused.err) == (2, True)
    assert multihead("show", runs / "a", "-o", runs / "x.parquet", "--force").code == 0


@pytest.mark.parametrize(
    "words, line",
    [
        (["nowhere"], "there is no run, no table and no model nowhere\n\nhint: RUN is a folder of multihead"),
        (["nowhere.json"], "no such file or folder: nowhere.json"),
        (["{a}", "--sort", "x"], "unknown column 'x'"),
        (["{a}", "--columns", "x"], "unknown column 'x'"),
        (["{a}", "--heads", "9.9"], "unknown head '9.9'"),
        (["{a}", "--where", "entropy"], "'entropy' is not a condition"),
        (["{a}", "--top", "0"], "--top must be at least 1, got 0"),
    ],
)
def test_bad_questions(multihead: Multihead, runs: Path, words: list[str], line: str) -> None:
    said = multihead("show", *(w.format(a=runs / "a") for w in words))
    assert said.code == 2
    assert said.err.startswith(f"multihead: {line}")
    assert said.out == ""


# ---- compare ----------------------------------------------------------------------------------


def test_without_a_condition_nothing_is_a_finding(multihead: Multihead, runs: Path) -> None:
    said = multihead("compare", runs / "a", runs / "b")
    assert said.code == 0
    assert "kind: 1 changed: L0H1 previous → next" in said.out
    assert "entropy" in said.out
    assert "A: a model on a text" in said.err


@pytest.mark.parametrize(
    "condition, found",
    [
        ("entropy>0.3", []),
        ("entropy>0.2", ["L0H0"]),
        ("entropy:drop>0.2", ["L0H0"]),
        ("entropy:rise>0.2", []),
        ("entropy:relative>=50%", ["L0H0"]),
        ("kind:changed", ["L0H1"]),
        ("kind:changed>1", []),
    ],
)
def test_a_gate(multihead: Multihead, runs: Path, condition: str, found: list[str]) -> None:
    said = multihead("compare", runs / "a", runs / "b", "--fail-if", condition)
    assert said.code == bool(found)
    assert all(f" at {head}: " in said.out for head in found)
    assert ("✓ none of the conditions is met" in said.out) == (not found)
    data = json.loads(multihead("compare", runs / "a", runs / "b", "--fail-if", condition, "--json").out)
    assert [f["head"] for f in data["findings"]] == found


def test_several_conditions(multihead: Multihead, runs: Path) -> None:
    words = ("--fail-if", "entropy>9", "--fail-if", "kind:changed", "--fail-if", "entropy>0.1")
    said = multihead("compare", runs / "a", runs / "b", *words)
    assert said.code == 1
    assert [line.split(" at ")[1][:4] for line in said.out.splitlines() if line.startswith("✗")] == ["L0H1", "L0H0"]


def test_heads_that_are_gone_close_the_gate(multihead: Multihead, runs: Path) -> None:
    AFTER.filter(heads=["L0H1"]).save(runs / "c")
    words = ("compare", runs / "a", runs / "c", "--fail-if", "entropy>9")
    said = multihead(*words)
    assert said.code == 1
    assert "✗ on one side only: L0H0, L1H0" in said.out
    assert json.loads(multihead(*words, "--json").out)["missing"] == ["L0H0", "L1H0"]
    assert multihead(*words, "--allow-missing").code == 0
    assert multihead("compare", runs / "a", runs / "c").code == 0


@pytest.mark.parametrize(
    "condition, line",
    [
        ("entropy", "--fail-if entropy: 'entropy' is not a condition"),
        ("x>1", "x>1: unknown column 'x'"),
        ("kind>1", "kind>1: a change between words has no size"),
    ],
)
def test_a_condition_that_cannot_be_asked_is_a_failure(
    multihead: Multihead, runs: Path, condition: str, line: str
) -> None:
    said = multihead("compare", runs / "a", runs / "b", "--fail-if", condition)
    assert said.code == 2
    assert said.err.startswith(f"multihead: {line}")


def test_columns_of_the_environment_are_heard_in_a_pipe(
    multihead: Multihead, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = [f"a column of a long name {i}" for i in range(9)]
    numbers = {name: torch.ones(1) for name in wide}
    HeadTable(("L0H0",), numbers, {name: ColumnInfo("", "") for name in wide}).save(runs / "wide")
    assert max(map(len, multihead("show", runs / "wide").out.splitlines())) > 60
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, multihead("show", runs / "wide").out.splitlines())) <= 60
