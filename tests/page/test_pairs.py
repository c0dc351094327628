"""Strongest pairs over a corpus: the sums of a plain loop, within bounds, and on the page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import multihead as mh
from multihead.corpus.accumulator import Batch
from multihead.corpus.run import BatchRunner
from multihead.show import token_pairs as pairs_module
from multihead.show.make_report import report
from multihead.show.report import WordPair
from multihead.show.token_pairs import TokenPairs
from page.conftest import Open, Page


def _model() -> Any:
    from transformers import BertConfig, BertModel

    torch.manual_seed(2)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 8}
    return BertModel(BertConfig(vocab_size=11, initializer_range=0.5, max_position_embeddings=32, **sizes)).eval()


DOCUMENTS = [[2, 5, 6, 7, 5, 6, 3], [2, 5, 6, 9, 3], [2, 8, 8, 3]]
SPECIAL = (2, 3)


def _brute(model: Any, document: list[int]) -> dict[str, dict[tuple[int, int], list[float]]]:
    """Explicit maps, one document at a time, a loop over every row."""
    found: dict[str, dict[tuple[int, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    with torch.no_grad(), mh.capture(model, statistics=None, keep="qk") as heads:
        model(input_ids=torch.tensor([document]))
    for head in heads:
        weights = head.weights()[0]
        for i, query in enumerate(document):
            others = [j for j, key in enumerate(document) if j != i and key not in SPECIAL]
            if query in SPECIAL or not others:
                continue
            best = max(others, key=lambda j: float(weights[i, j]))
            found[head.name][query, document[best]].append(float(weights[i, best]))
    return found


@pytest.mark.parametrize("block", [pairs_module.BLOCK, 30])
def test_sums_are_those_of_a_plain_loop(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs_module, "BLOCK", block)
    model = _model()
    want: dict[str, dict[tuple[int, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    for document in DOCUMENTS:
        for name, pairs in _brute(model, document).items():
            for pair, weights in pairs.items():
                want[name][pair] += weights
    found = TokenPairs(SPECIAL)
    padded = torch.tensor([[*d, *[0] * (7 - len(d))] for d in DOCUMENTS[:2]])
    mask = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
    runner = BatchRunner(model, [found])
    runner.run(Batch({"input_ids": padded, "attention_mask": mask}, 0))
    runner.run(Batch({"input_ids": torch.tensor(DOCUMENTS[2:])}, 1))
    for name, pairs in want.items():
        got = found.top(name, 99)
        assert {(p.query, p.key): p.times for p in got} == {k: len(v) for k, v in pairs.items()}
        for p in got:
            assert p.weight == pytest.approx(sum(pairs[p.query, p.key]) / p.times, abs=1e-5)
        masses = [p.weight * p.times for p in got]
        assert masses == sorted(masses, reverse=True)
        assert found.missing(name) == 0.0
    again = TokenPairs(SPECIAL)
    again.load(found.state())
    for name in want:
        assert again.top(name, 99) == found.top(name, 99)


def test_few_are_held_and_what_is_forgotten_is_bounded() -> None:
    model = _model()
    generator = torch.Generator().manual_seed(0)
    batches = [{"input_ids": torch.randint(4, 11, (3, 23), generator=generator)} for _ in range(5)]
    few, all_ = TokenPairs(held=7), TokenPairs()
    few.name = "few"  # in one run, accumulators have different names
    runner = BatchRunner(model, [few, all_])
    for index, batch in enumerate(batches):
        runner.run(Batch(batch, index))
    for head in ("L0H0", "L1H2"):
        true = {(p.query, p.key): p.weight * p.times for p in all_.top(head, 99)}
        assert len(true) > 20
        kept = few.top(head, 99)
        assert len(kept) == 7
        assert few.missing(head) > 0
        for p in kept:
            lacks = true[p.query, p.key] - p.weight * p.times
            assert -1e-6 <= lacks <= few.missing(head) + 1e-6


def test_parts_of_a_corpus_add_up() -> None:
    """The sums of two parts, merged, are those of one pass; where pairs were forgotten, the bound still holds."""
    model = _model()
    batches = [Batch({"input_ids": torch.randint(4, 11, (3, 23))}, index) for index in range(4)]

    def found(some: Sequence[Batch], held: int = 99) -> TokenPairs:
        pairs = TokenPairs(held=held)
        runner = BatchRunner(model, [pairs])
        for batch in some:
            runner.run(batch)
        return pairs

    whole = found(batches)
    for held in (99, 7):
        first, second = found(batches[:3], held), found(batches[3:], held)
        first.merge(second)
        assert first.batches == 4
        for head in ("L0H0", "L1H2"):
            true = {(p.query, p.key): p.weight * p.times for p in whole.top(head, 99)}
            got = {(p.query, p.key): p.weight * p.times for p in first.top(head, 99)}
            if held == 99:
                assert got == pytest.approx(true)
                assert first.missing(head) == 0.0
            for pair, mass in got.items():
                assert -1e-6 <= true[pair] - mass <= first.missing(head) + 1e-6


def test_on_the_page(opened: Open, small: Page, tmp_path: Path) -> None:
    hostile = "<img src=x onerror=window.hit=1>"
    found = replace(small.found, pairs={"L1H2": [WordPair(hostile, "dog", 3, 0.6251), WordPair("a", "b", 1, 0.2)]})
    shown = opened(found.save(tmp_path / "p.html"), "layer=1&head=2")
    lines = shown.page.locator(".often li").all_inner_texts()
    assert [" ".join(line.split()) for line in lines] == ["<img src=x on… → dog 0.63 × 3", "a → b 0.20 × 1"]
    assert "over the corpus" in shown.text(".often")
    shown.go("layer=0&head=0")
    assert shown.page.locator(".often").count() == 0


def test_gathered_with_the_words_of_the_vocabulary(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    found = report(model, ["the cat sat, and the cat ran"], tokenizer=tokenizer, parts=("pairs",), heads=["L0H0"])
    assert found.pairs is not None
    assert set(found.pairs) == set(found.heads)
    spoken = {word for pairs in found.pairs.values() for a, b, _, _ in pairs for word in (a, b)}
    assert spoken <= {"the", "cat", "sat", ",", "and", "ran"}
    assert max(times for pairs in found.pairs.values() for _, _, times, _ in pairs) == 2
