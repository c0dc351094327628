"""The original and the cut model side by side: sizes, quality on held-out text, speed, all measured.

>>> import torch
>>> from transformers import GPT2Config, GPT2LMHeadModel
>>> from multihead.edit.checking.check import check
>>> model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=31, n_positions=64)).eval()
>>> same = check(model, model, [[3, 1, 4, 1, 5], [9, 2, 6, 5]], rounds=0)
>>> same["agreement"], same["kv_bytes"]
((1.0, 1.0), (4096.0, 4096.0))
>>> same.findings(["perplexity:rise>0.1", "parameters:drop<1"])
['parameters:drop<1: 1 648 → 1 648']
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from multihead._base import html
from multihead._base.shapes import HeadOutputs
from multihead.corpus.batches import Document
from multihead.edit.calibration import Progress
from multihead.edit.checking.quality import Quality, quality
from multihead.edit.checking.speed import Timing, attention_layers, whole_model
from multihead.edit.plan_text import table
from multihead.errors import MultiheadError, SizeError
from multihead.model.anatomy import Anatomy, LayerAnatomy, anatomy
from multihead.model.call import Call, Compute
from multihead.model.compiled import inner
from multihead.model.example_inputs import example_inputs
from multihead.model.forward import Forward
from multihead.table.condition import Condition

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions

MODEL_TOKENS, ATTENTION_TOKENS = 128, 512

WORDS = {
    "parameters": "parameters",
    "attention_parameters": "parameters of attention",
    "heads": "heads",
    "kv_heads": "kv heads",
    "kv_bytes": "bytes of the KV cache",
    "cosine": "cosine of pooled vectors",
    "nn10": "10 nearest neighbours kept",
    "relative_error": "relative error of the output",
    "perplexity": "perplexity",
    "agreement": "same likeliest answer",
    "speed_model": "whole model",
    "speed_attention": "attention layers alone",
}
"""Each number in words."""


@dataclass(frozen=True, repr=False)
class Check:
    """Numbers by name, (original, cut); speeds are (1, times as fast)."""

    sizes: Mapping[str, tuple[float, float]]
    quality: Quality
    speed: Mapping[str, Timing]
    notes: tuple[str, ...] = ()

    @property
    def numbers(self) -> dict[str, tuple[float, float]]:
        return {**self.sizes, **self.quality.numbers, **{n: (1.0, t.ratio) for n, t in self.speed.items()}}

    def __getitem__(self, name: str) -> tuple[float, float]:
        found = self.numbers
        if name not in found:
            raise SizeError(f"there is no number {name!r}", hint=f"there are {', '.join(found)}")
        return found[name]

    def findings(self, conditions: Sequence[str | Condition]) -> list[str]:
        """The conditions that are met: `nn10<0.8` (of the cut model), `perplexity:relative>5%`, :rise, :drop."""
        said: list[str] = []
        for given in conditions:
            asked = Condition.of(given) if isinstance(given, str) else given
            if asked.how == "changed" or isinstance(asked.value, str):
                raise SizeError(f"{asked!r}: these are numbers", hint="'nn10<0.8', 'perplexity:relative>5%'")
            before, after = self[asked.column]
            if math.isnan(after) or asked.holds(_size(asked, before, after)):
                said.append(f"{asked!r}: {_short(before)} → {_short(after)}")
        return said

    # ---- showing ------------------------------------------------------------------------------

    def rows(self) -> list[list[str]]:
        """(what, original, cut, change) of every number, in words."""
        told = [[WORDS[n], _short(a), _short(b), _change(a, b)] for n, (a, b) in self.sizes.items()]
        told += [[WORDS[n], f"{a:.4g}", f"{b:.4g}", _change(a, b)] for n, (a, b) in self.quality.numbers.items()]
        return told + [
            [
                f"{WORDS[n]}, {t.batch} × {t.tokens} tokens", f"{t.before_ms:.3g} ms", f"{t.after_ms:.3g} ms",
                f"{t.ratio:.2f}× ({t.low:.2f} to {t.high:.2f})",
            ]
            for n, t in self.speed.items()
        ]  # fmt: skip

    def lines(self) -> list[str]:
        """What the table does not say."""
        text = f"quality on {self.quality.documents} documents, {self.quality.tokens} tokens"
        return [text, *(f"note: {n}" for n in (*self.quality.notes, *self.notes))]

    def __repr__(self) -> str:
        return "\n".join([*table(["", "original", "cut", "change"], self.rows()), *self.lines()])

    def _repr_html_(self) -> str:
        titles = ["", "original", "cut", "change"]
        return html.table(titles, self.rows(), words=(0,)) + html.lines(self.lines())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        drawn.add_column("")
        for title in ("original", "cut", "change"):
            drawn.add_column(title, justify="right")
        for row in self.rows():
            drawn.add_row(*row)
        yield drawn
        for line in self.lines():
            yield Text(line, style="yellow" if line.startswith("note") else "dim")

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        numbers = {n: {"before": _plain(a), "after": _plain(b)} for n, (a, b) in self.numbers.items()}
        return {
            "numbers": numbers, "kind": self.quality.kind, "documents": self.quality.documents,
            "tokens": self.quality.tokens, "fitted_to": self.quality.fitted_to,
            "speed": {n: asdict(t) for n, t in self.speed.items()}, "notes": [*self.quality.notes, *self.notes],
        }  # fmt: skip


def check(
    before: nn.Module,
    after: nn.Module,
    data: Iterable[Document] | Mapping[str, Any],
    *,
    tokenizer: Any = None,
    batch_size: int = 16,
    max_tokens: int | None = None,
    rounds: int = 15,
    progress: Progress | None = None,
) -> Check:
    """Measure what a cut cost and what it gained. `data` is held-out text: never what the cut was fitted to.

    Args:
        rounds: of timing; 0: speed is not measured.
    """
    found, left = anatomy(before), _anatomy(after)
    apart = quality(
        before, after, data, tokenizer=tokenizer, batch_size=batch_size, max_tokens=max_tokens, progress=progress
    )
    sizes, notes = _sizes(before, after, found, left)
    speed: dict[str, Timing] = {}
    if rounds:
        speed["speed_model"] = whole_model(
            before, after, _inputs(before, MODEL_TOKENS), rounds=rounds, progress=progress
        )
        long = _inputs(before, ATTENTION_TOKENS)
        speed["speed_attention"] = attention_layers(before, after, found, long, rounds=rounds, progress=progress)
    return Check(sizes, apart, speed, tuple(notes))


def _anatomy(model: nn.Module) -> Anatomy | None:
    """The anatomy of a cut model; None where heads are made in a way that it does not follow."""
    try:
        return anatomy(model)
    except MultiheadError:
        return None


def _sizes(
    before: nn.Module, after: nn.Module, found: Anatomy, left: Anatomy | None
) -> tuple[dict[str, tuple[float, float]], list[str]]:
    both, notes = (before, after), list[str]()
    sizes = {"parameters": _both(sum(p.numel() for p in inner(m).parameters()) for m in both)}
    related = left is None or {x.path for x in left} <= {
        x.path for x in found
    }  # a cut keeps places, or empties them
    if not related:
        notes.append(
            f"this is no cut of the original: the attention of {type(inner(after)).__name__} does not lie where "
            f"that of {type(inner(before)).__name__} does"
        )
    theirs = found if related or left is None else left
    sizes["attention_parameters"] = _both(
        attention_parameters(m, a) for m, a in zip(both, (found, theirs), strict=True)
    )
    seen = [kv_bytes(m, _inputs(before, MODEL_TOKENS)) for m in both]
    if left is not None:
        sizes["heads"] = _both(sum(x.num_heads for x in a) for a in (found, left))
        sizes["kv_heads"] = _both(sum(x.num_kv_heads for x in a) for a in (found, left))
    sizes["kv_bytes"] = _both(count for count, _ in seen)
    if not seen[0][1]:
        notes.append(
            "the model keeps no cache: bytes of keys and values are those that its kernels read in one run"
        )
    return sizes, notes


def attention_parameters(model: nn.Module, layers: Iterable[LayerAnatomy]) -> int:
    """Numbers in the projections of attention: q, k, v and o, biases included, of the modules that hold them."""
    inside = {p.module for x in layers for p in x.weights.values()}
    listed = inner(model).named_parameters()
    return sum(p.numel() for n, p in listed if any(not m or n.startswith(f"{m}.") for m in inside))


def kv_bytes(model: nn.Module, inputs: Mapping[str, Any]) -> tuple[int, bool]:
    """Bytes in the cache after a run, and True; where there is none, of keys and values in the run, and False."""
    root = inner(model)
    forward = Forward(root)
    if getattr(getattr(root, "config", None), "use_cache", None) is not None:
        try:
            cache = getattr(forward({**inputs, "use_cache": True}), "past_key_values", None)
        except TypeError:  # the model takes no such argument
            cache = None
        if cache is not None and (count := sum(t.nbytes for t in _tensors(cache))):
            return count, True
    counts: list[int] = []

    def listen(call: Call, compute: Compute) -> HeadOutputs:
        counts.append(call.problem.k.nbytes + call.problem.v.nbytes)
        return compute()

    forward(inputs, listen, required=False)
    return sum(counts), False


def _tensors(cache: Any) -> Iterator[Tensor]:
    """Keys and values of a cache, however it keeps them."""
    if isinstance(cache, Tensor):
        yield cache
    elif isinstance(cache, list | tuple):
        for part in cache:  # pyright: ignore[reportUnknownVariableType]  # of anything
            yield from _tensors(part)
    else:
        for name in ("self_attention_cache", "cross_attention_cache", "layers", "keys", "values"):
            yield from _tensors(getattr(cache, name, ()))


def _inputs(model: nn.Module, tokens: int) -> dict[str, Any]:
    """One row of `tokens` tokens, or what else the model takes."""
    made = example_inputs(inner(model), tokens=tokens)
    return {n: x[:1] if isinstance(x, Tensor) and x.shape[:1] == (2,) else x for n, x in made.items()}


def _both(counts: Iterable[int]) -> tuple[float, float]:
    before, after = counts
    return float(before), float(after)


def _size(asked: Condition, before: float, after: float) -> float:
    """What a condition is about: the number of the cut model, or the change."""
    if asked.how == "relative":
        return abs(after - before) / abs(before) if before else (math.inf if after else 0.0)
    return {"drop": before - after, "rise": after - before}.get(asked.how, after)


def _short(x: float) -> str:
    return f"{x:,.0f}".replace(",", " ") if math.isfinite(x) and x == int(x) else f"{x:.4g}"


def _change(before: float, after: float) -> str:
    if before == after:
        return "same"
    return f"{(after - before) / before:+.1%}".replace("-", "−") if before else ""


def _plain(x: float) -> float | None:
    return x if math.isfinite(x) else None
