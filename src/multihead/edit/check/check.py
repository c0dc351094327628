"""Compare a model with its cut copy: sizes, quality on held-out text, speed, all measured.

>>> import torch
>>> from transformers import GPT2Config, GPT2LMHeadModel
>>> from multihead.edit.check.check import check
>>> model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=31, n_positions=64)).eval()
>>> same = check(model, model, [[3, 1, 4, 1, 5], [9, 2, 6, 5]], rounds=0)
>>> same["agreement"], same["kv_bytes"]
((1.0, 1.0), (4096.0, 4096.0))
>>> same.findings(["perplexity:rise>0.1", "parameters:drop<1"])
['parameters:drop<1: 1 648 → 1 648']
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from multihead._base import html_fragments
from multihead._base.arguments import check_count, check_data, check_function, check_instance
from multihead._base.estimate import Estimate, ForwardCost
from multihead._base.nested_tensors import CACHES, tensors_in
from multihead._base.number_text import number
from multihead._base.plural import plural
from multihead._base.progress import Progress, check_progress, shown_progress
from multihead._base.shapes import HeadOutputs
from multihead.corpus.batches import BATCH_SIZE, Document, batches
from multihead.corpus.documents import rereadable
from multihead.corpus.language import check_language
from multihead.edit.check.metrics import METRICS, Pair, Quality, check_metric, check_pair, quality, read_condition
from multihead.edit.check.speed import Timing, attention_layers, whole_model
from multihead.edit.plan_text import table
from multihead.errors import MultiheadError
from multihead.model.anatomy import anatomy
from multihead.model.call import Call, Compute
from multihead.model.compiled import inner
from multihead.model.example_inputs import example_inputs
from multihead.model.forward import Forward
from multihead.model.layer_anatomy import Anatomy, LayerAnatomy
from multihead.table.condition import Condition

MODEL_TOKENS, ATTENTION_TOKENS = 128, 512
STARTUP, PER_ROUND = 3.0, 0.2
"""Seconds that a check takes with any model, and a round of timing."""
TITLES = ["", "original", "cut", "change"]


@dataclass(frozen=True, repr=False)
class CheckReport:
    """Metrics by name as (original, cut); `METRICS` says what each is. Speeds are (1, how many times as fast)."""

    sizes: Mapping[str, Pair]
    quality: Quality
    speed: Mapping[str, Timing]
    notes: tuple[str, ...] = ()

    @property
    def metrics(self) -> dict[str, Pair]:
        speeds = {name: (1.0, timing.ratio) for name, timing in self.speed.items()}
        return {**self.sizes, **self.quality.metrics, **speeds}

    def __getitem__(self, name: str) -> Pair:
        metrics = self.metrics
        check_metric(name, metrics)
        return metrics[name]

    def findings(self, conditions: Sequence[str | Condition]) -> list[str]:
        """The conditions that the check meets: `nn10<0.8` (of the cut model), `perplexity:relative>5%`, :drop."""
        check_instance("conditions", conditions, list | tuple, "a list", hint="['nn10<0.8']")
        met: list[str] = []
        for text in conditions:
            condition = read_condition(text, self.metrics)
            before, after = self[condition.column]
            if math.isnan(after) or condition.holds(_compared(condition, before, after)):
                written = METRICS[condition.column].format
                met.append(f"{condition!r}: {written(before)} → {written(after)}")
        return met

    # ---- showing ------------------------------------------------------------------------------

    def rows(self) -> list[list[str]]:
        """The check's table: (label, original, cut, change) of every metric."""
        rows: list[list[str]] = []
        for name, (before, after) in {**self.sizes, **self.quality.metrics}.items():
            metric = METRICS[name]
            rows.append([metric.label, metric.format(before), metric.format(after), _change(before, after)])
        for name, t in self.speed.items():
            ratio = METRICS[name].format
            rows.append(
                [
                    f"{METRICS[name].label}, {t.batch} × {plural(t.tokens, 'token')}", f"{number(t.before_ms)} ms",
                    f"{number(t.after_ms)} ms", f"{ratio(t.ratio)} ({t.low:.2f} to {t.high:.2f})",
                ]
            )  # fmt: skip
        return rows

    def lines(self) -> list[str]:
        """The check's lines below the table."""
        pooling = f", vectors pooled by {self.quality.pooling}" if self.quality.pooling else ""
        tokens = f", {plural(self.quality.tokens, 'token')}" if self.quality.tokens else ""
        text = f"quality on {plural(self.quality.documents, 'document')}{tokens}{pooling}"
        return [text, *(f"note: {n}" for n in (*self.quality.notes, *self.notes))]

    def __repr__(self) -> str:
        return "\n".join([*table(TITLES, self.rows()), *self.lines()])

    def _repr_html_(self) -> str:
        return html_fragments.table(TITLES, self.rows(), words=(0,)) + html_fragments.lines(self.lines())

    def plain(self) -> dict[str, Any]:
        """The check as JSON-compatible data."""
        metrics = {
            name: {"before": _finite(before), "after": _finite(after), "better": METRICS[name].better}
            for name, (before, after) in self.metrics.items()
        }
        judged = self.quality
        return {
            "metrics": metrics, "kind": judged.kind, "documents": judged.documents, "tokens": judged.tokens,
            "calibration_overlap": judged.calibration_overlap, "pooling": judged.pooling or None,
            "speed": {name: asdict(timing) for name, timing in self.speed.items()},
            "notes": [*judged.notes, *self.notes],
        }  # fmt: skip


def check(
    before: nn.Module,
    after: nn.Module,
    data: Iterable[Document] | Mapping[str, Any],
    *,
    tokenizer: Any = None,
    batch_size: int = BATCH_SIZE,
    max_tokens: int | None = None,
    rounds: int = 15,
    progress: bool | Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> CheckReport:
    """Measure what a cut costs and gains: sizes, quality on held-out text, and speed.

    Args:
        before: the original model.
        after: the cut model.
        data: held-out text, as `mh.measure` takes it; not the text that the cut was fitted to.
        batch_size: documents at a time.
        max_tokens: longer documents are cut into pieces of so many tokens; default: the positions of the model.
        rounds: rounds of timing; with 0, speed is not measured.
        progress: True shows bars on a terminal; a function is called with (what runs, done, total).
        say: called with a line about how long it may take.

    Returns:
        A `CheckReport`, which prints as a table: `report["perplexity"]` is (before, after),
        `report.findings(["perplexity:relative>5%"])` the conditions that are met.

    Raises:
        MultiheadError: if the models do not read the same inputs, or there is no text.

    >>> import multihead as mh
    >>> model, tokenizer = mh.embedded()
    >>> small = mh.cut(model, mh.plan(model, remove=["L0H2", "L2H0"]), refit=False)
    >>> report = mh.check(model, small, tokenizer.sample_texts()[:4], tokenizer=tokenizer, rounds=0)
    >>> report["heads"], report["perplexity"][0] < report["perplexity"][1]
    ((12.0, 10.0), True)
    """
    check_pair(before, after)
    check_data(data)
    check_count("rounds", rounds, least=0)
    check_progress(progress)
    check_function("say", say)
    layers, cut_layers = anatomy(before), _anatomy(after)
    options: dict[str, Any] = {"tokenizer": tokenizer, "batch_size": batch_size, "max_tokens": max_tokens}
    data = data if isinstance(data, Mapping) else rereadable(data)
    if not isinstance(data, Mapping):
        check_language(tokenizer, data, "the text")
    if say is not None:
        say(str(_estimate(before, data, rounds, **options)))
    with shown_progress(progress) as shown:
        judged = quality(before, after, data, progress=shown, **options)
        speed = _speed(before, after, layers, rounds, shown) if rounds else {}
    sizes, notes = _sizes(before, after, layers, cut_layers)
    return CheckReport(sizes, judged, speed, tuple(notes))


def _speed(
    before: nn.Module, after: nn.Module, layers: Anatomy, rounds: int, progress: Progress | None
) -> dict[str, Timing]:
    """The speeds in a check: of the whole models, and of their attention."""
    short, long = _inputs(before, MODEL_TOKENS), _inputs(before, ATTENTION_TOKENS)
    return {
        "speed_model": whole_model(before, after, short, rounds=rounds, progress=progress),
        "speed_attention": attention_layers(before, after, layers, long, rounds=rounds, progress=progress),
    }


def _estimate(model: nn.Module, data: Any, rounds: int, *, batch_size: int, **options: Any) -> Estimate:
    """About how long `check` takes: both models on every batch, and twice per round on examples of two lengths."""
    cost = ForwardCost.of(model, next(batches(model, data, batch_size=batch_size, **options)), Forward(model))
    timed = 2 * rounds * (MODEL_TOKENS + ATTENTION_TOKENS / 3) / max(1, cost.tokens)
    count = 1 if isinstance(data, Mapping) else sum(1 for _ in data)
    return cost.estimate(1, 2 * count / batch_size + timed, overhead=STARTUP + rounds * PER_ROUND, copies=2)


def _anatomy(model: nn.Module) -> Anatomy | None:
    """The anatomy of a cut model to check; None if its heads cannot be read from its weights."""
    try:
        return anatomy(model)
    except MultiheadError:
        return None


# ---- sizes ------------------------------------------------------------------------------------


def _sizes(
    before: nn.Module, after: nn.Module, layers: Anatomy, cut_layers: Anatomy | None
) -> tuple[dict[str, Pair], list[str]]:
    """The sizes in a check: parameters, and bytes of the KV cache."""
    models, notes = (before, after), list[str]()
    sizes = {"parameters": _pair(sum(p.numel() for p in inner(m).parameters()) for m in models)}
    after_layers = layers
    if cut_layers is not None and not {x.path for x in cut_layers} <= {x.path for x in layers}:
        after_layers = cut_layers
        notes.append(
            f"{type(inner(after)).__name__} is not a cut of this {type(inner(before)).__name__}: its attention "
            "modules have other paths"
        )
    sizes["attention_parameters"] = _pair(
        attention_parameters(m, a) for m, a in zip(models, (layers, after_layers), strict=True)
    )
    if cut_layers is not None:
        sizes["heads"] = _pair(sum(x.num_heads for x in a) for a in (layers, cut_layers))
        sizes["kv_heads"] = _pair(sum(x.num_kv_heads for x in a) for a in (layers, cut_layers))
    (old, cached), (new, _) = (kv_bytes(m, _inputs(before, MODEL_TOKENS)) for m in models)
    sizes["kv_bytes"] = (float(old), float(new))
    if not cached:
        notes.append("the model has no KV cache: its size is that of the keys and values in one forward pass")
    return sizes, notes


def attention_parameters(model: nn.Module, layers: Iterable[LayerAnatomy]) -> int:
    """The attention's parameters that a check counts: all weights of modules that hold q, k, v and o."""
    modules = {p.module for x in layers for p in x.weights.values()}
    named = inner(model).named_parameters()
    return sum(p.numel() for n, p in named if any(not m or n.startswith(f"{m}.") for m in modules))


def kv_bytes(model: nn.Module, inputs: Mapping[str, Any]) -> tuple[int, bool]:
    """(Bytes of the cache after a forward pass, True); without a cache, (bytes of keys and values in it, False)."""
    root = inner(model)
    forward = Forward(root)
    if getattr(getattr(root, "config", None), "use_cache", None) is not None:
        try:
            cache = getattr(forward({**inputs, "use_cache": True}), "past_key_values", None)
        except TypeError:  # the model takes no such argument
            cache = None
        if cache is not None and (count := sum(t.nbytes for t in tensors_in(cache, objects=CACHES))):
            return count, True
    counts: list[int] = []

    def listen(call: Call, compute: Compute) -> HeadOutputs:
        counts.append(call.problem.k.nbytes + call.problem.v.nbytes)
        return compute()

    forward(inputs, listen, required=False)
    return sum(counts), False


def _inputs(model: nn.Module, tokens: int) -> dict[str, Any]:
    """One row of `tokens` tokens, or of a different input that the model takes."""
    example = example_inputs(inner(model), tokens=tokens)
    return {n: x[:1] if isinstance(x, Tensor) and x.shape[:1] == (2,) else x for n, x in example.items()}


def _pair(counts: Iterable[int]) -> Pair:
    before, after = counts
    return float(before), float(after)


# ---- changes ----------------------------------------------------------------------------------


def _compared(condition: Condition, before: float, after: float) -> float:
    """The value that a condition of the check compares: that of the cut model, or the change."""
    if condition.how == "relative":
        return abs(after - before) / abs(before) if before else (math.inf if after else 0.0)
    return {"drop": before - after, "rise": after - before}.get(condition.how, after)


def _change(before: float, after: float) -> str:
    if before == after:
        return "same"
    change = (after - before) / before if before else math.nan
    return f"{change:+.1%}".replace("-", "−") if math.isfinite(change) else ""


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None
