"""Cut a model as a plan says: layer by layer, each on what the layers before it now give.

    keep → group (numbers from the cut model's own inputs) → install → fit W_O → fit what stands behind

The original is not touched. Of the calibration text token ids are held, and hidden states in front of the layer
that is worked on, up to a bound (`Refit.hold`).

>>> from transformers import GPT2Config, GPT2LMHeadModel
>>> import multihead as mh
>>> model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=4, n_embd=24, vocab_size=50)).eval()
>>> texts = [[(7 * i + j * j) % 50 for j in range(40)] for i in range(40)]
>>> small = mh.cut(model, mh.plan(model, texts, keep=0.5))
>>> sum(layer.num_heads for layer in mh.anatomy(small))
4
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import asdict, replace
from typing import Any

from torch import nn

from multihead._base.arguments import check_instance
from multihead.corpus.batches import Document
from multihead.corpus.run import Runner
from multihead.edit.fitting.calibration import Calibration, anatomy_on
from multihead.edit.fitting.heal import Heal
from multihead.edit.fitting.heal import heal as healed
from multihead.edit.fitting.refit import Fitted, Progress, Refit, correct, fit_map
from multihead.edit.fitting.refit import refit as fit_output
from multihead.edit.fitting.resume import ROOM, Resumed, blocks_of
from multihead.edit.kv_sharing.moments import moments_of
from multihead.edit.kv_sharing.share import share_kv
from multihead.edit.physical.record import remember, text_of
from multihead.edit.physical.surgery import arranged, install
from multihead.edit.plan import LayerPlan, Plan
from multihead.errors import MultiheadError
from multihead.model.anatomy import Anatomy, LayerAnatomy
from multihead.model.forward import Forward
from multihead.model.head_weights import HeadWeights

REFIT = Refit()


def cut(
    model: nn.Module,
    plan: Plan,
    data: Iterable[Document] | Mapping[str, Any] | None = None,
    *,
    tokenizer: Any = None,
    refit: Refit | None = REFIT,
    heal: Heal | None = None,
    progress: Progress | None = None,
) -> nn.Module:
    """A smaller copy of `model`, without the heads that the plan takes out.

    Args:
        data: text to fit to; left out, that which the plan was made with.
        refit: how what stays is fitted to what the original did; None: not at all.
        heal: some steps of distillation at the end; None: none.
    """
    check_instance("plan", plan, Plan, "a Plan", hint="plan = mh.plan(model, texts, keep=0.5)")
    plan.check(model)
    text = plan.calibration if data is None else Calibration(model, data, tokenizer)
    found = anatomy_on(model, text)
    seen = None if text is None else text.example()
    first = next((i for i, part in enumerate(plan.layers) if part.changes), len(plan.layers))
    work = [(part, _layer(found, part)) for part in plan.layers[first:]]  # those before see nothing of the cut
    if text is None and work and (refit is not None or heal is not None or any(part.groups for part, _ in work)):
        raise MultiheadError(
            "the plan came without its calibration text, which the cut is fitted to",
            hint="cut(model, plan, data), with text like the model's own; refit=None cuts heads without it",
        )
    if refit is not None and heal is not None:
        refit = replace(refit, to_all=False)  # what was held out has yet to judge the healing
    student = deepcopy(model)
    shared = _shared(found)
    fits: list[Fitted] = []
    runs = None if seen is None else Resumed([model, student], seen, hold=_room(model, refit))
    blocks = blocks_of([layer.path for layer in found])
    run = Forward.run if runs is None else runs
    for part, layer in work:
        if runs is not None:
            runs.go_to(blocks[layer.path])
        new = HeadWeights.of(layer)
        if part.changes:
            new = arranged(_numbers(student, layer, part, text, run, progress))
            install(student, layer, new, inputs=seen)
        if refit is None or text is None or layer.weights["o"].parameter in shared:
            continue
        if part.changes:
            new, fitted = fit_output(model, student, layer, new, text, refit, run=run, progress=progress)
            install(student, layer, new, inputs=seen)
            fits.append(fitted)
        elif refit.behind:  # it is whole, but what it reads is no longer what it was
            output = layer.weights["o"].parameter
            fits.append(fit_map(model, student, output, text, refit, run=run, progress=progress))
        fits += correct(model, student, layer, text, refit, run=run, progress=progress)
    done: dict[str, Any] = {"fits": [asdict(fit) for fit in fits]}
    if text is not None:
        done["text"] = sorted(text.document_hashes | text_of(model))
    if runs is not None:
        runs.go_to("")  # nothing is held any more
    if heal is not None and text is not None:
        done["healed"] = asdict(healed(model, student, text, heal, layers=found, progress=progress))
    remember(student, [], plan.to_json() | done)
    return student


def _numbers(
    student: nn.Module,
    layer: LayerAnatomy,
    part: LayerPlan,
    text: Calibration | None,
    run: Runner,
    progress: Progress | None,
) -> HeadWeights:
    """The heads that stay, and what they take over from those that go."""
    own = HeadWeights.of(layer)
    if part.groups is None:
        return own.keep(part.keep)
    assert text is not None
    if progress is not None:
        progress(f"inputs of {layer.name}", 0, 1)
    moments = moments_of(student, layer, text.fit(), run=run)
    return share_kv(own.keep(part.keep), part.groups, moments)


def _room(model: nn.Module, refit: Refit | None) -> int:
    """Bytes of hidden states that may be held."""
    if refit is None or refit.hold is None:
        return max(ROOM, sum(p.numel() * p.element_size() for p in model.parameters()))
    return refit.hold


def _layer(found: Anatomy, part: LayerPlan) -> LayerAnatomy:
    layer = found[part.name]
    assert isinstance(layer, LayerAnatomy)
    return layer


def _shared(found: Anatomy) -> set[str]:
    """Output projections that several attentions share: what is fitted to one would be wrong for the others."""
    counts = Counter(layer.weights["o"].parameter for layer in found)
    return {name for name, count in counts.items() if count > 1}
