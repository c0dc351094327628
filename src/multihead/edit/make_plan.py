"""Make a plan: the heads to remove for a share or a budget, and the heads to share keys and values.

>>> from transformers import GPT2Config, GPT2LMHeadModel
>>> from multihead.edit.make_plan import plan
>>> model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=4, n_embd=24, vocab_size=50)).eval()
>>> plan(model, remove=["L0H1", "L1H3"])
GPT2LMHeadModel: 6 of 8 heads kept (request: remove L0H1, L1H3)
layer  heads  removed
L0     4 → 3  H1
L1     4 → 3  H3
>>> texts = [[(7 * i + j * j) % 50 for j in range(40)] for i in range(40)]
>>> plan(model, texts, kv_heads=2).kv_kept
4
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from multihead._base.arguments import check_count, check_model, check_number, check_seed
from multihead._base.plural import plural
from multihead._base.progress import Progress, check_progress, shown_progress
from multihead.corpus.batches import Document
from multihead.edit.budget import check_reachable, cost_model, parse
from multihead.edit.calibration import Calibration, anatomy_on, calibrate
from multihead.edit.kv_sharing.cluster import cluster
from multihead.edit.kv_sharing.input_moments import moments_of
from multihead.edit.layer_plan import LayerPlan
from multihead.edit.one_thread import one_thread
from multihead.edit.plan import Plan
from multihead.edit.saliency import check_method, saliency
from multihead.edit.search import ROUNDING, PruneOrder, Shape, greedy
from multihead.errors import MultiheadError, SizeError
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
    min_heads: int = 0,
    uniform: bool = False,
    multiple_of: int = 1,
    seed: int = 0,
    progress: bool | Progress | None = None,
) -> Plan:
    """Plan which heads to remove (`keep`, `remove` or `budget`), and which share keys and values (`kv_heads`).

    Args:
        data: calibration text, as `measure` takes it; not needed to remove named heads.
        keep: the share of heads to keep, in (0, 1].
        remove: names of heads: "L3H7", "3.7" or (3, 7).
        kv_heads: the kv heads of every layer; it must divide the kv heads of the model. With `keep`, `remove` or
            `budget`, the remaining heads are grouped afterwards: a layer in which fewer remain has fewer kv heads.
        budget: "flops=0.8", a share of the model's FLOPs, or "cache=0.5", of the bytes of its KV cache.
        method: how heads are scored: "obs", the loss after the best refit without a head; "fisher", how far the
            output moves without it; "random".
        min_heads: every layer keeps at least so many heads.
        uniform: all layers keep the same number of heads.
        multiple_of: the number of heads in every layer is a multiple of it.
        seed: of `method="random"`.
        progress: True shows bars on a terminal; a function is called with (step, done, total).

    Returns:
        A `Plan`, which prints as a table, can be edited and saved, and is passed to `mh.cut`.

    Raises:
        SizeError: if the request contradicts itself, or a head does not exist.
        MultiheadError: if heads are to be chosen without text.

    >>> import multihead as mh
    >>> model, tokenizer = mh.embedded()
    >>> mh.plan(model, remove=["L0H2", "L2H0"])
    EmbeddedModel: 10 of 12 heads kept (request: remove L0H2, L2H0)
    layer  heads  removed
    L0     4 → 3  H2
    L1     4      –
    L2     4 → 3  H0
    >>> mh.plan(model, tokenizer.sample_texts(), tokenizer=tokenizer, keep=0.75).kept
    9
    """
    check_model(model)
    _check_request({"keep": keep, "remove": remove, "budget": budget}, kv_heads)
    check_method(method)
    check_seed(seed)
    check_progress(progress)
    shape = Shape(min_heads, uniform, multiple_of)
    budget_name, share = (None, keep) if budget is None else parse(budget)
    if share is not None:
        check_share("keep", share)
    if data is None and remove is None:
        raise MultiheadError(
            "data must be calibration text, got None: heads are chosen by what they do on it",
            hint="plan(model, texts, keep=0.5), with texts like those that the model will read",
        )
    with one_thread(model), shown_progress(progress) as shown:
        text = None if data is None else calibrate(model, data, tokenizer, shown)
        if text is None:
            plan = Plan.whole(model, anatomy_on(model, None))
        else:
            plan = replace(Plan.whole(model, text.anatomy), calibration=text)
        if kv_heads is not None:
            _check_kv_heads(plan, kv_heads)
        if remove is not None:
            plan = plan.edit(remove=remove)
            removed = [x.head(h) for x in plan.layers for h in x.removed]
            plan = replace(plan, request=f"remove {', '.join(removed) or 'nothing'}")
        elif text is not None:
            widest = max((x for x, *_ in text.weight_sets), key=lambda x: x.num_heads * x.value_dim)
            text.check(widest.num_heads * widest.value_dim, widest.name)
        if share is not None and text is not None:
            order = prune_order(text, [share], method=method, budget=budget_name, shape=shape, seed=seed)
            request = _request(f"keep={keep:g}" if budget is None else f"budget {budget}", shape)
            plan = apply_order(plan, order, share, method=method, request=request)
        if kv_heads is not None and text is not None:
            plan = _share_kv(plan, text, kv_heads, shown)
        if text is not None:
            text.progress = None  # the bars end here
    if not plan.changes:
        warnings.warn(
            f"the plan changes nothing: it keeps {plan.heads} of {plural(plan.heads, 'head')} ({plan.request})",
            stacklevel=2,
        )
    return plan


def prune_order(
    text: Calibration,
    shares: Sequence[float],
    *,
    method: str,
    budget: str | None = None,
    shape: Shape,
    seed: int = 0,
) -> PruneOrder:
    """The order in which a method prunes heads, as far as the smallest of some shares of a plan needs it."""
    layers = [first for first, *_ in text.weight_sets]
    shape.check({layer.name: layer.num_heads for layer in layers})
    cost = cost_model(budget, layers, text)
    for share in shares:
        check_reachable(cost, share)
    return greedy(saliency(method, text, seed=seed), cost, shape, limit=min(shares) * cost.of_all_heads)


def apply_order(start: Plan, order: PruneOrder, share: float, *, method: str, request: str) -> Plan:
    """The plan of the prefix of a prune order that keeps at most this share of the cost of all heads."""
    all_heads = order.cost.of_all_heads
    prefix = order.until(share * all_heads)
    keep, notes = prefix.keep, list(start.notes)
    if prefix.total > share * all_heads * ROUNDING:
        notes.append(f"{prefix.total / all_heads:.2f} of the {order.cost.unit} remain, more than requested")
    if empty := [name for name, heads in keep.items() if not heads]:
        notes.append(f"{', '.join(empty)} lost all heads")
    layers = tuple(replace(x, keep=keep[x.name]) for x in start.layers)
    scores = {start[layer].head(h): x for (layer, h), x in prefix.scores.items()}
    return replace(start, layers=layers, method=method, request=request, scores=scores, notes=tuple(notes))


def check_share(name: str, share: object) -> None:
    """Raise unless a plan may keep this `share`: it is in (0, 1]."""
    check_number(name, share)
    if not 0 < float(share) <= 1:  # type: ignore[arg-type]  # a number
        raise SizeError(f"{name} must be in (0, 1], got {share:g}", hint=f"{name}=0.5 is half of the heads")


def _check_request(chosen: Mapping[str, object], kv_heads: object) -> None:
    """Raise unless the arguments of `plan` request one thing, validly."""
    names = [name for name, value in chosen.items() if value is not None]
    if len(names) > 1:
        raise SizeError(
            f"only one of keep, remove and budget may be given, got {' and '.join(names)}", hint="choose one"
        )
    if not names and kv_heads is None:
        raise SizeError("nothing is requested", hint='keep=0.5, remove=["L3H7"], budget="flops=0.8" or kv_heads=4')
    if kv_heads is not None:
        check_count("kv_heads", kv_heads)


def _check_kv_heads(start: Plan, kv_heads: int) -> None:
    """Raise unless a plan can have so many kv heads in every layer."""
    for layer in start.layers:
        if layer.kv_heads % kv_heads:
            allowed = [n for n in range(1, layer.kv_heads + 1) if layer.kv_heads % n == 0]
            raise SizeError(
                f"kv_heads={kv_heads} does not divide the {layer.kv_heads} kv heads of {layer.name} "
                f"({layer.path or 'the model itself'})",
                hint=f"choose one of {', '.join(map(str, allowed))}; the groups of an edited plan may be uneven",
            )


def _request(request: str, shape: Shape) -> str:
    """The arguments of `plan` that are not the default."""
    default = Shape()
    words = [f"{n}={x}" for n, x in vars(shape).items() if x != getattr(default, n)]
    return ", ".join([request, *words])


def _share_kv(start: Plan, text: Calibration, kv_heads: int, progress: Progress | None) -> Plan:
    """The plan with `kv_heads` kv heads in every layer of self-attention, or as many as heads are kept."""
    layers: list[LayerPlan] = []
    notes, model = list(start.notes), text.model
    run, blocks = text.block_run(model), {block.layer.path: block.path for block in text.blocks}
    for i, (layer, (anatomy, *_)) in enumerate(zip(start.layers, text.weight_sets, strict=True)):
        if progress is not None:
            progress(f"groups of {layer.name}", i, len(start.layers))
        if anatomy.site.cross:
            notes.append(f"{layer.name} is cross-attention: its kv heads are not grouped")
        elif layer.kv_after > kv_heads:
            run.advance(blocks[layer.path])
            weights = HeadWeights.of(anatomy).keep(layer.keep)
            moments = moments_of(model, anatomy, text.fit(spliced=True), run=run)
            layer = replace(layer, groups=cluster(anatomy, weights, moments, kv_heads))
        layers.append(layer)
    if start.request.startswith("budget"):
        notes.append(f"the budget was spent on pruning; kv_heads={kv_heads} then saves more than it")
    request = f"kv_heads={kv_heads}"
    if start.method or start.kept < start.heads:
        request = f"{start.request}, {request}"
    return replace(start, layers=tuple(layers), notes=tuple(notes), request=request)
