"""Check: numbers against closed forms and brute force, the cache in bytes, conditions, and fair timing."""

from __future__ import annotations

import copy
import math
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, BertModel, LlamaConfig, LlamaForCausalLM

import multihead as mh
from multihead.edit.checking import speed
from multihead.edit.checking.check import check, kv_bytes
from multihead.edit.checking.median import interval
from multihead.edit.checking.quality import neighbours_kept, quality
from multihead.edit.checking.speed import Timing, side_by_side
from multihead.errors import MultiheadError, SizeError

SMALL = {
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "hidden_size": 21,
    "intermediate_size": 23,
    "vocab_size": 53,
}


def bert() -> BertModel:
    torch.manual_seed(0)
    return BertModel(BertConfig(**SMALL, initializer_range=0.3), add_pooling_layer=False).eval()


def llama(kv_heads: int = 6) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=kv_heads, hidden_size=42,
                         head_dim=10, intermediate_size=34, vocab_size=53, initializer_range=0.2)  # fmt: skip
    return LlamaForCausalLM(config).eval()


def rows(count: int = 29) -> list[list[int]]:
    drawn = torch.Generator().manual_seed(1)
    return [torch.randint(1, 53, (3 + i % 11,), generator=drawn).tolist() for i in range(count)]


def without(model: nn.Module, *heads: str) -> nn.Module:
    """A copy whose heads say nothing: the reference that a cut model must equal."""
    student = copy.deepcopy(model)
    found = mh.anatomy(student)
    with torch.no_grad():
        for name in heads:
            found[name].W_O.zero_()  # type: ignore[union-attr]
    return student


# ---- quality ----------------------------------------------------------------------------------


def test_vectors_by_hand() -> None:
    model = bert()
    student = without(model, "L0H1", "L1H2")
    found = quality(model, student, rows(), batch_size=5)
    vectors = [[], []]
    apart = size = 0.0
    with torch.no_grad():
        for row in rows():
            seen = [m(input_ids=torch.tensor([row])).last_hidden_state[0].double() for m in (model, student)]
            apart, size = apart + float((seen[0] - seen[1]).square().sum()), size + float(seen[0].square().sum())
            for side, x in zip(vectors, seen, strict=True):
                side.append(x.mean(0))
    a, b = (torch.stack(side) for side in vectors)
    assert found.kind == "vectors"
    assert (found.documents, found.tokens) == (29, sum(map(len, rows())))
    assert found.numbers["cosine"][1] == pytest.approx(float(F.cosine_similarity(a, b).mean()), abs=1e-6)
    assert found.numbers["relative_error"][1] == pytest.approx(math.sqrt(apart / size), rel=1e-4)
    like = [F.normalize(x, dim=1) @ F.normalize(x, dim=1).T for x in (a, b)]
    near = [[sorted(set(range(29)) - {i}, key=lambda j: -float(s[i, j]))[:10] for i in range(29)] for s in like]
    brute = sum(len({*p} & {*q}) for p, q in zip(*near, strict=True)) / 290
    assert found.numbers["nn10"][1] == pytest.approx(brute)
    assert 0.3 < brute < 1
    assert found.numbers["cosine"][0] == found.numbers["nn10"][0] == 1.0


def test_neighbours_in_blocks_of_rows() -> None:
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(37, 5, generator=drawn)
    y = x + 0.5 * torch.randn(37, 5, generator=drawn)
    assert neighbours_kept(x, y, rows=11) == neighbours_kept(x, y)
    assert neighbours_kept(x, y) < 1
    assert neighbours_kept(x, x) == 1


def test_few_documents_have_no_neighbours() -> None:
    found = quality(bert(), bert(), rows(20))
    assert "nn10" not in found.numbers
    assert found.notes == ("nn10 needs 21 documents or more, there are 20",)


def test_perplexity_by_hand() -> None:
    model = llama()
    student = without(model, "L0H1", "L2H5")
    found = quality(model, student, rows(), batch_size=4)
    missed, count, same = [0.0, 0.0], 0, 0
    with torch.no_grad():
        for row in rows():
            logits = [m(input_ids=torch.tensor([row])).logits[0, :-1].double() for m in (model, student)]
            for side, x in enumerate(logits):
                missed[side] -= float(x.log_softmax(-1)[range(len(row) - 1), row[1:]].sum())
            count += len(row) - 1
            same += int((logits[0].argmax(-1) == logits[1].argmax(-1)).sum())
    assert found.kind == "language model"
    for got, expected in zip(found.numbers["perplexity"], missed, strict=True):
        assert got == pytest.approx(math.exp(expected / count), rel=1e-4)
    assert found.numbers["agreement"][1] == pytest.approx(same / count)


def test_other_outputs() -> None:
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**SMALL, initializer_range=0.3, num_labels=5)).eval()
    student = copy.deepcopy(model)
    with torch.no_grad():
        student.classifier.weight.mul_(2)
        student.classifier.bias.mul_(2)
    found = quality(model, student, rows())
    assert found.kind == "outputs"
    assert found.numbers["relative_error"][1] == pytest.approx(1.0, rel=1e-5)
    assert found.numbers["agreement"][1] == 1.0


def test_calibration_text_is_told_from_held_out_text(tmp_path: Path) -> None:
    model, texts = bert(), rows(40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the text is short
        first = mh.cut(model, mh.plan(model, texts[:20], remove=["L0H1"]))
        second = mh.cut(first, mh.plan(first, texts[20:30], remove=["L1H0"]))
    mh.save(second, tmp_path / "cut")
    for small, known in ((first, 20), (second, 30), (mh.load(tmp_path / "cut", model=bert()), 30)):
        found = quality(model, small, texts, batch_size=7)
        assert found.fitted_to == known
        assert any(n.startswith(f"{known} of 40 documents are calibration text of this cut") for n in found.notes)
    assert quality(model, first, texts[20:]).fitted_to == 0
    assert quality(model, first, [{"input_ids": torch.tensor(texts[3:4])}]).fitted_to == 1, "batches too"
    assert check(model, first, texts, rounds=0).plain()["fitted_to"] == 20
    named = mh.cut(model, mh.plan(model, remove=["L0H1"]), refit=False)
    assert quality(model, named, texts).notes == (), "it was made without any text"


def test_models_of_another_shape_are_refused() -> None:
    other = BertModel(BertConfig(**{**SMALL, "hidden_size": 24}), add_pooling_layer=False).eval()
    with pytest.raises(MultiheadError, match=r"the models put out shapes \(16, 13, 21\) and \(16, 13, 24\)"):
        quality(bert(), other, rows())


# ---- sizes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kv_heads", [6, 3, 2, 1])
def test_the_cache_is_measured_and_its_ratio_exact(kv_heads: int) -> None:
    ids = torch.arange(1, 18)[None]
    whole, real = kv_bytes(llama(6), {"input_ids": ids})
    part, _ = kv_bytes(llama(kv_heads), {"input_ids": ids})
    assert real
    assert whole == 3 * 2 * 6 * 17 * 10 * 4
    assert part * 6 == whole * kv_heads


def test_without_a_cache_the_keys_and_values_of_a_run_are_counted() -> None:
    assert kv_bytes(bert(), {"input_ids": torch.arange(1, 18)[None]}) == (2 * 2 * 3 * 17 * 7 * 4, False)


def test_another_model_is_no_cut_and_that_is_said() -> None:
    """Sizes are then those of each model's own attention, not of what lies at the places of the first."""
    from transformers import GPT2Config, GPT2LMHeadModel

    mine = llama(6)
    config = mine.config
    other = GPT2LMHeadModel(
        GPT2Config(n_layer=2, n_head=3, n_embd=21, vocab_size=config.vocab_size, n_positions=600)
    ).eval()
    found = check(mine, other, rows(), rounds=0)
    assert any("no cut of the original" in note for note in found.notes)
    assert found["attention_parameters"][1] == 2 * (21 * 63 + 63 + 21 * 21 + 21)
    assert not any("no cut" in note for note in check(mine, llama(2), rows(), rounds=0).notes)


def test_side_by_side() -> None:
    model, small = llama(6), llama(2)
    steps: list[str] = []
    found = check(model, small, rows(), rounds=3, progress=lambda what, *_: steps.append(what))
    gone = 3 * 2 * 4 * 10 * 42
    assert found["parameters"] == (n := sum(p.numel() for p in model.parameters()), n - gone)
    assert found["attention_parameters"] == (3 * 4 * 60 * 42, 3 * 4 * 60 * 42 - gone)
    assert found["heads"] == (18, 18)
    assert found["kv_heads"] == (18, 6)
    assert found["kv_bytes"][1] * 3 == found["kv_bytes"][0]
    assert {"quality", "speed: whole model", "speed: attention layers"} <= set(steps)
    assert (found.speed["speed_model"].tokens, found.speed["speed_attention"].tokens) == (128, 512)
    assert found.speed["speed_model"].rounds == 3
    told = repr(found)
    assert "bytes of the KV cache" in told
    assert "−66.7%" in told
    assert "whole model, 1 × 128 tokens" in told
    plain = found.plain()
    assert plain["numbers"]["kv_heads"] == {"before": 18.0, "after": 6.0}
    with pytest.raises(SizeError, match="there is no number 'nn10'\n\nhint: there are parameters, "):
        found["nn10"]


# ---- conditions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "condition, met",
    [
        ("nn10<0.8", True), ("nn10<0.7", False), ("nn10:drop>20%", True), ("cosine:relative>0.1", False),
        ("cosine:relative>1%", True), ("cosine:rise>0", False), ("parameters:relative<50%", True),
    ],
)  # fmt: skip
def test_conditions(condition: str, met: bool) -> None:
    from multihead.edit.checking.check import Check
    from multihead.edit.checking.quality import Quality

    found = Check(
        {"parameters": (100.0, 80.0)}, Quality("vectors", {"nn10": (1, 0.75), "cosine": (1, 0.95)}, 5, 9), {}
    )
    assert bool(found.findings([condition])) == met
    if condition == "nn10<0.8":
        assert found.findings([condition]) == ["nn10<0.8: 1 → 0.75"]
    with pytest.raises(SizeError, match="there is no number 'entropy'"):
        found.findings(["entropy>1"])
    with pytest.raises(SizeError, match="these are numbers"):
        found.findings(["nn10:changed"])


# ---- timing -----------------------------------------------------------------------------------


def test_rounds_are_interleaved_and_the_ratio_is_within_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that gets slower round by round changes no ratio."""
    calls: list[str] = []
    clock = [0.0]

    def job(name: str, cost: float) -> object:
        def run() -> None:
            calls.append(name)
            clock[0] += cost * (1 + len(calls))

        return run

    monkeypatch.setattr(speed.time, "perf_counter", lambda: clock[0])
    found = side_by_side("x", job("a", 3.0), job("b", 1.0), rounds=9)
    assert len(calls) == 4 + 18
    pairs = [set(calls[4 + 2 * i : 6 + 2 * i]) for i in range(9)]
    assert pairs == [{"a", "b"}] * 9
    assert calls[4::2] != ["a"] * 9, "the order is drawn"
    assert 2 < found.low <= found.ratio <= found.high < 4


def test_intervals_and_verdicts() -> None:
    assert interval([1.0, 2.0, 3.0]) == (1.0, 3.0)
    assert interval([float(i) for i in range(15)]) == (3.0, 11.0)
    told = lambda low, high: Timing("x", 1, 1, 1, 1, 1, low, high, 7).verdict
    assert [told(1.1, 2), told(0.5, 0.9), told(0.9, 1.1)] == ["faster", "slower", "no difference that can be told"]
