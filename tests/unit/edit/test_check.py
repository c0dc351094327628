"""Check: numbers against closed forms and brute force, the cache in bytes, conditions, and fair timing."""

from __future__ import annotations

import copy
import math
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import BertConfig, BertForSequenceClassification, BertModel, LlamaConfig, LlamaForCausalLM

import multihead as mh
from multihead.edit.calibration import Calibration
from multihead.edit.check import metrics, speed
from multihead.edit.check.check import CheckReport, check, kv_bytes
from multihead.edit.check.metrics import METRICS, Quality, neighbours_kept, quality
from multihead.edit.check.speed import Timing, interval, side_by_side, synchronize
from multihead.errors import MultiheadError, SizeError
from unit.model.encoder_folder import encoder_folder

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
    assert found.metrics["cosine"][1] == pytest.approx(float(F.cosine_similarity(a, b).mean()), abs=1e-6)
    assert found.metrics["relative_error"][1] == pytest.approx(math.sqrt(apart / size), rel=1e-4)
    like = [F.normalize(x, dim=1) @ F.normalize(x, dim=1).T for x in (a, b)]
    near = [[sorted(set(range(29)) - {i}, key=lambda j: -float(s[i, j]))[:10] for i in range(29)] for s in like]
    brute = sum(len({*p} & {*q}) for p, q in zip(*near, strict=True)) / 290
    assert found.metrics["nn10"][1] == pytest.approx(brute)
    assert 0.3 < brute < 1
    assert found.metrics["cosine"][0] == found.metrics["nn10"][0] == 1.0


def test_neighbours_in_blocks_of_rows() -> None:
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(37, 5, generator=drawn)
    y = x + 0.5 * torch.randn(37, 5, generator=drawn)
    assert neighbours_kept(x, y, rows=11) == neighbours_kept(x, y)
    assert neighbours_kept(x, y) < 1
    assert neighbours_kept(x, x) == 1


def test_few_documents_have_no_neighbours() -> None:
    found = quality(bert(), bert(), rows(20))
    assert "nn10" not in found.metrics
    assert found.notes == ("nn10 needs at least 21 documents, got 20",)


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
    for got, expected in zip(found.metrics["perplexity"], missed, strict=True):
        assert got == pytest.approx(math.exp(expected / count), rel=1e-4)
    assert found.metrics["agreement"][1] == pytest.approx(same / count)


def test_documents_of_one_token_have_no_perplexity_and_a_note_says_so() -> None:
    model, one = llama(), [[i] for i in range(1, 9)]
    found = quality(model, model, one)
    assert "perplexity" not in found.metrics
    assert found.notes == ("no document has two tokens, so no token is predicted and perplexity is not measured",)
    longer = quality(model, model, [*one, [3, 1, 4]], batch_size=8)
    assert longer.kind == "language model", "the longest document decides, in whichever batch it is"


def test_perplexity_of_a_model_with_nan_is_nan_and_a_note_says_so() -> None:
    model, student = llama(), llama()
    with torch.no_grad():
        student.model.norm.weight[0] = math.nan
    report = check(model, student, rows(3), rounds=0)
    assert math.isnan(report["perplexity"][1])
    assert any("NaN" in note for note in report.quality.notes)
    assert "nan%" not in repr(report)


def test_other_outputs() -> None:
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**SMALL, initializer_range=0.3, num_labels=5)).eval()
    student = copy.deepcopy(model)
    with torch.no_grad():
        student.classifier.weight.mul_(2)
        student.classifier.bias.mul_(2)
    found = quality(model, student, rows())
    assert found.kind == "outputs"
    assert found.metrics["relative_error"][1] == pytest.approx(1.0, rel=1e-5)
    assert found.metrics["agreement"][1] == 1.0


def test_calibration_text_is_recognised(tmp_path: Path) -> None:
    model, texts = bert(), rows(40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the text is short
        first = mh.cut(model, mh.plan(model, texts[:20], remove=["L0H1"]))
        second = mh.cut(first, mh.plan(first, texts[20:30], remove=["L1H0"]))
    mh.save(second, tmp_path / "cut")
    for small, known in ((first, 20), (second, 30), (mh.load(tmp_path / "cut", model=bert()), 30)):
        found = quality(model, small, texts, batch_size=7)
        assert found.calibration_overlap == known
        assert any(n.startswith(f"{known} of 40 documents are calibration text of this cut") for n in found.notes)
    assert quality(model, first, texts[20:]).calibration_overlap == 0
    assert quality(model, first, [{"input_ids": torch.tensor(texts[3:4])}]).calibration_overlap == 1, "batches too"
    assert check(model, first, texts, rounds=0).plain()["calibration_overlap"] == 20
    named = mh.cut(model, mh.plan(model, remove=["L0H1"]), refit=False)
    assert quality(model, named, texts).notes == (), "it was made without any text"


def test_calibration_text_is_recognised_in_pieces_of_any_length() -> None:
    """Whole documents are compared: where they are cut into pieces depends on max_tokens."""
    model = bert()
    texts = [[(7 * i + j * j) % 53 for j in range(29)] for i in range(24)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the text is short
        text = Calibration(model, texts[:20], max_tokens=17)
        small = mh.cut(model, mh.plan(model, text, remove=["L0H1"]))
    for max_tokens in (None, 11, 17, 29):
        found = quality(model, small, texts, max_tokens=max_tokens)
        assert found.calibration_overlap == 20, max_tokens
        assert any("20 of 24 documents are calibration text" in note for note in found.notes)


class _Largest(TorchDispatchMode):
    """The largest tensor of each dtype that operations return, views of other tensors not counted."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[torch.dtype, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else (out,):
            if isinstance(x, torch.Tensor) and not func.is_view:
                self.values[x.dtype] = max(self.values.get(x.dtype, 0), x.numel())
        return out


@pytest.mark.parametrize("kind", ["_LanguageModel", "_Outputs", "_Vectors"])
def test_logits_are_widened_in_blocks(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 × 512 × 128k logits in fp64 are 8.4 GB: no copy of them all exists, in any dtype."""
    monkeypatch.setattr(metrics, "BLOCK", 1000)
    batch, tokens, width = 5, 37, 211
    drawn = torch.Generator().manual_seed(0)
    old, new = torch.randn(2, batch, tokens, width, generator=drawn).bfloat16()
    inputs = {"input_ids": torch.randint(0, width, (batch, tokens), generator=drawn)}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    inputs["attention_mask"][2, 31:] = 0
    compare = getattr(metrics, kind)(bert())
    with _Largest() as largest:
        compare.add(inputs, old, new)
    assert torch.float64 not in largest.values
    most = batch * tokens * width if kind == "_Vectors" else 1000  # pooling reads all hidden states
    assert max(n for dtype, n in largest.values.items() if dtype.is_floating_point) <= most
    found, _ = compare.metrics()
    real = inputs["attention_mask"].bool()
    if kind == "_LanguageModel":
        labels = inputs["input_ids"][:, 1:][real[:, 1:]]
        expected = [F.cross_entropy(x[:, :-1][real[:, 1:]].double(), labels).exp() for x in (old, new)]
        assert found["perplexity"] == pytest.approx([float(x) for x in expected], rel=1e-6)
    else:
        old, new = old[real].double(), new[real].double()
        assert found["relative_error"][1] == pytest.approx(float((new - old).norm() / old.norm()), rel=1e-6)


@pytest.mark.parametrize("mode", ["cls", "max"])
def test_encoders_are_judged_by_their_own_pooling(mode: str, tmp_path: Path) -> None:
    model = encoder_folder(tmp_path, {"pooling_mode": mode})
    student = without(model, "L0H1", "L1H2")
    found = quality(model, student, rows(), batch_size=5)
    vectors: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    with torch.no_grad():
        for row in rows():
            for side, m in zip(vectors, (model, student), strict=True):
                hidden = m(input_ids=torch.tensor([row])).last_hidden_state[0]
                side.append(hidden[0] if mode == "cls" else hidden.amax(0))
    expected = F.cosine_similarity(torch.stack(vectors[0]), torch.stack(vectors[1])).mean()
    assert found.metrics["cosine"][1] == pytest.approx(float(expected), abs=1e-6)
    assert found.pooling == mode
    assert f"vectors pooled by {mode}" in repr(check(model, student, rows(), rounds=0))


def test_models_of_another_shape_are_refused() -> None:
    other = BertModel(BertConfig(**{**SMALL, "hidden_size": 24}), add_pooling_layer=False).eval()
    with pytest.raises(MultiheadError, match=r"shape, got \(8, 10, 21\) and \(8, 10, 24\)"):
        quality(bert(), other, rows())


@pytest.mark.parametrize(
    "change, expected",
    [
        ({"before": None}, "before must be a torch.nn.Module, got None"),
        ({"after": "minilm"}, "after must be a torch.nn.Module, got the str 'minilm'"),
        ({"data": None}, "data must be documents or batches, got None"),
        ({"data": "a text"}, "data must be a list of texts, got one text"),
        ({"data": 5}, "data must be documents or batches, got the int 5"),
        ({"data": []}, "nothing to measure: no documents"),
        ({"tokenizer": 5}, "tokenizer must be callable"),
        ({"rounds": -1}, "rounds must be at least 0, got -1"),
        ({"rounds": "3"}, "rounds must be an integer, got '3'"),
        ({"batch_size": "8"}, "batch_size must be an integer, got '8'"),
        ({"max_tokens": 1.5}, "max_tokens must be an integer, got 1.5"),
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ({"progress": 5}, "progress must be True, False or a function, got the int 5"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], expected: str) -> None:
    arguments = {"before": bert(), "after": bert(), "data": rows(), "rounds": 0} | change
    with pytest.raises(MultiheadError, match=re.escape(expected)):
        check(**arguments)


@pytest.mark.parametrize("name", [None, 5, ["nn10"]])
def test_names_of_metrics_are_text(name: Any) -> None:
    model = bert()
    with pytest.raises(MultiheadError, match="the name of a metric must be a text, got"):
        check(model, model, rows(), rounds=0)[name]


def test_two_vocabularies_are_refused() -> None:
    other = BertModel(BertConfig(**{**SMALL, "vocab_size": 47}), add_pooling_layer=False).eval()
    with pytest.raises(SizeError, match="same vocabulary, got 53 and 47 token embeddings"):
        check(bert(), other, rows(), rounds=0)


def test_check_is_a_function_beside_the_folder_of_this_name() -> None:
    import multihead.edit.check.check

    assert mh.check is multihead.edit.check.check.check


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


def test_a_different_model_is_noted() -> None:
    """Sizes are then those of each model's own attention, not of what lies at the places of the first."""
    from transformers import GPT2Config, GPT2LMHeadModel

    mine = llama(6)
    config = mine.config
    other = GPT2LMHeadModel(
        GPT2Config(n_layer=2, n_head=3, n_embd=21, vocab_size=config.vocab_size, n_positions=600)
    ).eval()
    found = check(mine, other, rows(), rounds=0)
    assert any("is not a cut of this LlamaForCausalLM" in note for note in found.notes)
    assert found["attention_parameters"][1] == 2 * (21 * 63 + 63 + 21 * 21 + 21)
    assert not any("not a cut" in note for note in check(mine, llama(2), rows(), rounds=0).notes)


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
    assert "KV cache" in told
    assert "−66.7%" in told
    assert "whole model, 1 × 128 tokens" in told
    plain = found.plain()
    assert plain["metrics"]["kv_heads"] == {"before": 18.0, "after": 6.0, "better": "lower"}
    with pytest.raises(SizeError, match="nn10 was not measured\n\nhint: measured: parameters, "):
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
    found = CheckReport(
        {"parameters": (100.0, 80.0)}, Quality("vectors", {"nn10": (1, 0.75), "cosine": (1, 0.95)}, 5, 9), {}
    )
    assert bool(found.findings([condition])) == met
    if condition == "nn10<0.8":
        assert found.findings([condition]) == ["nn10<0.8: 1 → 0.75"]
    with pytest.raises(SizeError, match="unknown metric 'entropy'"):
        found.findings(["entropy>1"])
    with pytest.raises(SizeError, match="metric with a number"):
        found.findings(["nn10:changed"])


@pytest.mark.parametrize(
    "conditions, expected",
    [
        ("nn10<0.8", "conditions must be a list, got the str 'nn10<0.8'"),
        (None, "conditions must be a list, got None"),
        (0.8, "conditions must be a list, got the float 0.8"),
        ([0.8], "a condition must be text, got the float 0.8"),
        (["cosin<0.8"], "unknown metric 'cosin'\n\nhint: did you mean cosine?"),
        (["foo<0.8"], "unknown metric 'foo'\n\nhint: the metrics are parameters, "),
        (["speed_model<1"], "speed_model was not measured\n\nhint: timing needs rounds of 1 or more"),
        (["cosine=high"], "cosine=high must compare a metric with a number"),
        (["cosine"], "'cosine' is not a condition"),
    ],
)
def test_wrong_conditions(conditions: Any, expected: str) -> None:
    report = CheckReport({}, Quality("vectors", {"cosine": (1, 0.95)}, 5, 9), {})
    with pytest.raises(MultiheadError, match=re.escape(expected)):
        report.findings(conditions)


@pytest.mark.parametrize(
    "name, before, after, lost",
    [
        ("perplexity", 20.0, 21.0, 0.05), ("nn10", 1.0, 0.75, 0.25), ("cosine", 1.0, 0.9, 0.1),
        ("relative_error", 0.0, 0.2, 0.2), ("kv_bytes", 100.0, 40.0, -60.0), ("speed_model", 1.0, 1.5, -0.5),
    ],
)  # fmt: skip
def test_which_way_is_better(name: str, before: float, after: float, lost: float) -> None:
    assert METRICS[name].lost(before, after) == pytest.approx(lost)


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


def test_the_clock_waits_for_the_device() -> None:
    """On paper, without an accelerator: the function is chosen by the type of the device."""
    assert synchronize(torch.device("cpu"))() is None
    assert synchronize(torch.device("meta"))() is None
    assert synchronize(torch.device("mps")) is torch.mps.synchronize
    with pytest.raises((AssertionError, RuntimeError), match=r"(?i)cuda"):
        synchronize(torch.device("cuda", 99))()


def test_queued_work_is_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that only queues: its work costs time when it is waited for."""
    clock, queue = [0.0], list[float]()
    monkeypatch.setattr(speed.time, "perf_counter", lambda: clock[0])

    def wait() -> None:
        clock[0] += sum(queue)
        queue.clear()

    found = side_by_side("x", lambda: queue.append(3.0), lambda: queue.append(1.0), rounds=7, wait=wait)
    assert (found.ratio, found.low, found.high) == (3.0, 3.0, 3.0)
    assert (found.before_ms, found.after_ms) == (3000.0, 1000.0)


def test_intervals_and_verdicts() -> None:
    assert interval([1.0, 2.0, 3.0]) == (1.0, 3.0)
    assert interval([float(i) for i in range(15)]) == (3.0, 11.0)
    told = lambda low, high: Timing("x", 1, 1, 1, 1, 1, low, high, 7).verdict
    assert [told(1.1, 2), told(0.5, 0.9), told(0.9, 1.1)] == ["faster", "slower", "no measurable difference"]
