"""`multihead group`: fewer kv heads, said, done and refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import multihead as mh
from cli.conftest import Folders, Said
from multihead.store.load import load

Multihead = Callable[..., Said]


def test_heads_share_keys_and_values(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    out = tmp_path / "grouped"
    said = multihead("group", given.gpt2, "--kv-heads", 1, "--calibration", given.corpus, "-o", out)
    assert said.code == 0, said.err
    assert "GPT2LMHeadModel: 6 of 6 heads kept, 2 of 6 kv heads (request: kv_heads=1)" in said.out
    assert "L1     3      3 → 1     {0 1 2}" in said.out
    assert f"next: multihead check {given.gpt2} {out}" in said.err
    small = mh.anatomy(load(out))
    assert [(x.num_heads, x.num_kv_heads) for x in small] == [(3, 1), (3, 1)]


def test_a_dry_run(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    words = ("group", given.gpt2, "--kv-heads", 1, "--calibration", given.corpus, "--dry-run")
    said = multihead(*words, "--json", "--plan", tmp_path / "plan.json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["plan"]["layers"][0]["groups"] == [[0, 1, 2]]
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


def test_what_is_refused(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    words = ("group", given.gpt2, "--calibration", given.corpus, "-o", tmp_path / "x")
    said = multihead(*words, "--kv-heads", 2)
    assert said.code == 2
    assert "kv_heads=2 does not divide the 3 kv heads of L0" in said.err
    assert "hint: choose one of 1, 3; the groups of an edited plan may be uneven" in said.err
    assert "nothing is requested" in multihead(*words).err
    same = multihead(*words, "--kv-heads", 3)
    assert same.code == 1
    assert "nothing to cut" in same.err
    assert not (tmp_path / "x").exists()
