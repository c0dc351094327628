"""Make a plan: which heads go for what was asked, and which share keys and values.

>>> import multihead as mh
>>> from transformers import GPT2Config, GPT2LMHeadModel
>>> from multihead.edit.planning import plan
>>> model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=4, n_embd=24, vocab_size=50)).eval()
>>> plan(model, remove=["L0H1", "L1H3"])
GPT2LMHeadModel: 6 of 8 heads stay (asked: remove L0H1, L1H3)
layer  heads  goes
L0     4 → 3  H1
L1     4 → 3  H3
>>> texts = [[(7 * i + j * j) % 50 for j in range(40)] for i in range(40)]
>>> plan(model, texts, kv_heads=2).kv_kept
4
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from multihead.corpus.batches import Document
from multihead.corpus.run import Runner
from multihead.edit.calibration import Calibration, Progress, anatomy_on
from multihead.edit.plan import LayerPlan, Plan, distinct
from multihead.edit.sharing.group import Clusters, cluster
from multihead.edit.sharing.moments import moments_of
from multihead.errors import MultiheadError, SizeError
from multihead.model.anatomy import LayerAnatomy
from multihead.model.head_weights import HeadWeights
from multihead.table.head_names import HeadName


def plan(
    model: nn.Module,
    data: Iterable[Document] | Mapping[str, Any] | Calibration | None = None,
    *,
    tokenizer: Any = None,
    keep: float | None = None,
    remove: Iterable[HeadName] | None = None,
    kv_heads: int | None = None,
    budget: str | None = None,
    method: str = "obs",
    least: int = 0,
    uniform: bool = False,
    multiple_of: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
) -> Plan:
    """Which heads go, and which share keys and values: for `keep`, `remove` or `budget`, and `kv_heads`.

    Args:
        data: calibration text, as `measure` takes it; only named heads are removed without any.
        keep: the share of heads that stays. budget: what else may be spent, "flops=0.8" of the original's.
        kv_heads: kv heads of every layer afterwards; with `keep` or `budget`, of the heads that stay when that is
            spent: grouping then saves more than was asked for.
        least: heads that every layer keeps. uniform: all layers keep as many. multiple_of: of so many.
    """
    given = {"keep": keep, "remove": remove, "budget": budget}
    _check([n for n, x in given.items() if x is not None], keep, kv_heads, least, multiple_of)
    text = data if isinstance(data, Calibration) or data is None else Calibration(model, data, tokenizer)
    turns = distinct(anatomy_on(model, text))
    start = Plan.whole(model, (layer for same in turns for layer in same))
    if kv_heads is not None:
        _check_kv(start, kv_heads)
    if data is None and (kv_heads is not None or remove is None):
        raise MultiheadError("there is no calibration text to choose by", hint="plan(model, texts, ...)")
    if text is not None and remove is None:
        widest = max((same[0] for same in turns), key=lambda x: x.num_heads * x.value_dim)
        text.check(widest.num_heads * widest.value_dim, widest.name)
    made = replace(start, calibration=text)
    if remove is not None:
        made = _removed(made, list(remove))
    elif keep is not None or budget is not None:
        assert text is not None
        shape = {"least": least, "uniform": uniform, "multiple_of": multiple_of}
        how = {"method": method, "seed": seed, **shape}
        made = _searched(model, made, turns, text, keep, budget, progress, how)
    if kv_heads is not None:
        assert text is not None
        made = _grouped(model, made, turns, text, kv_heads, progress)
    return made


def _check(given: Sequence[str], keep: float | None, kv_heads: int | None, least: int, multiple_of: int) -> None:
    if len(given) > 1:
        raise SizeError(f"{' and '.join(given)} are given: only one of them says which heads go")
    if not given and kv_heads is None:
        raise SizeError("nothing is asked for", hint='keep=0.5, remove=["L3H7"], budget="flops=0.8" or kv_heads=4')
    if keep is not None and not 0 < keep <= 1:
        raise SizeError(f"keep={keep:g} is no share of the heads", hint="above 0 and at most 1: keep=0.5 is half")
    if least < 0 or multiple_of < 1:
        raise SizeError(f"least={least} and multiple_of={multiple_of} are no counts", hint="least=0, multiple_of=1")


def _check_kv(start: Plan, kv_heads: int) -> None:
    """The number of kv heads must divide that of every layer."""
    for layer in start.layers:
        if kv_heads < 1 or layer.kv_heads % kv_heads:
            allowed = [n for n in range(1, layer.kv_heads + 1) if layer.kv_heads % n == 0]
            raise SizeError(
                f"kv_heads={kv_heads} does not divide the {layer.kv_heads} kv heads of {layer.name} ({layer.path})",
                hint=f"choose one of {', '.join(map(str, allowed))}; plan.edit(groups=...) makes uneven groups",
            )


def _removed(start: Plan, names: Sequence[HeadName]) -> Plan:
    made = start.edit(remove=names)
    gone = [x.head(h) for x in made.layers for h in x.gone]
    return replace(made, asked=f"remove {', '.join(gone) or 'nothing'}")


def _searched(
    model: nn.Module,
    start: Plan,
    turns: Sequence[Sequence[LayerAnatomy]],
    text: Calibration,
    keep: float | None,
    budget: str | None,
    progress: Progress | None,
    how: Mapping[str, Any],
) -> Plan:
    from multihead.edit.choosing.budget import Heads, parse
    from multihead.edit.choosing.search import search

    spend = parse(budget) if budget is not None else Heads(1.0 if keep is None else keep)
    found = search(model, turns, text, budget=spend, progress=progress, **how)
    layers = tuple(replace(x, keep=tuple(sorted(found.keep[x.name]))) for x in start.layers)
    notes = list(found.notes)
    if not any(x.keep for x in layers):
        notes.append(f"no head stays: {budget or f'keep={keep:g}'} is less than the smallest choice of heads costs")
    usual = {"least": 0, "uniform": False, "multiple_of": 1}
    words = [f"{n}={how[n]}" for n, was in usual.items() if how[n] != was]
    asked = ", ".join([f"keep={keep:g}" if keep is not None else f"budget {budget}", *words])
    return replace(
        start, layers=layers, method=str(how["method"]), asked=asked, scores=dict(found.scores),
        notes=tuple(notes),
    )  # fmt: skip


def _grouped(
    model: nn.Module,
    start: Plan,
    turns: Sequence[Sequence[LayerAnatomy]],
    text: Calibration,
    kv_heads: int,
    progress: Progress | None,
) -> Plan:
    """Every layer of self-attention with `kv_heads` kv heads, or as many as heads stay."""
    layers: list[LayerPlan] = []
    notes = list(start.notes)
    runs, blocks = text.block_run(model), {block.layer.path: block.path for block in text.blocks}
    for i, (layer, same) in enumerate(zip(start.layers, turns, strict=True)):
        if progress is not None:
            progress(f"groups of {layer.name}", i, len(start.layers))
        if same[0].site.cross:
            notes.append(f"{layer.name} looks at another sequence: its kv heads stay as they are")
            layers.append(layer)
            continue
        runs.advance(blocks[layer.path])
        layers.append(_shared(model, layer, same[0], text, kv_heads, runs))
    words = f"kv_heads={kv_heads}"
    if start.asked.startswith("budget"):
        notes.append(
            f"the budget was spent on pruning, then {words} was made of what stays: less is left than asked for"
        )
    asked = words if not start.method and start.asked == "by hand" else f"{start.asked}, {words}"
    return replace(start, layers=tuple(layers), notes=tuple(notes), asked=asked)


def _shared(
    model: nn.Module, layer: LayerPlan, found: LayerAnatomy, text: Calibration, kv_heads: int, run: Runner
) -> LayerPlan:
    if layer.kv_after <= kv_heads:
        return layer
    own = HeadWeights.of(found).keep(layer.keep)
    clusters: Clusters = cluster(found, own, moments_of(model, found, text.fit(), run=run), kv_heads)
    return replace(layer, groups=clusters)
