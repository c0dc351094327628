"""Cut a model as a plan says, block by block, each on the inputs that the cut blocks before it produce.

    keep or share heads → install → fit the maps that write into the stream → measure again

The original is not changed. Of the calibration text only token ids and the hidden states in front of the current
block are kept, these up to a bound (see `run_by_blocks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import asdict
from typing import Any

from torch import nn

from multihead._base.arguments import check_flag, check_instance, check_model
from multihead._base.progress import Progress, check_progress, shown_progress
from multihead.corpus.batches import Document
from multihead.corpus.run import Runner
from multihead.edit.calibration import Calibration, anatomy_on
from multihead.edit.distill import Distill
from multihead.edit.distill import distill as distil
from multihead.edit.kv_sharing.input_moments import moments_of
from multihead.edit.kv_sharing.share import share_kv
from multihead.edit.layer_plan import LayerPlan
from multihead.edit.one_thread import one_thread
from multihead.edit.plan import Plan
from multihead.edit.refit import BlockRefit, Fit
from multihead.edit.surgery.install import InstalledHeads, install
from multihead.edit.surgery.record import remember, texts_of
from multihead.errors import MultiheadError
from multihead.model.forward import Forward
from multihead.model.head_weights import HeadWeights
from multihead.model.layer_anatomy import LayerAnatomy


def cut(
    model: nn.Module,
    plan: Plan,
    data: Iterable[Document] | Mapping[str, Any] | Calibration | None = None,
    *,
    tokenizer: Any = None,
    refit: bool = True,
    distill: Distill | None = None,
    progress: bool | Progress | None = None,
) -> nn.Module:
    """Copy `model` without the heads that the plan removes, and fit the remaining weights to its outputs.

    Args:
        plan: of the same model, from `mh.plan`.
        data: text to fit to; by default the text that the plan was made with.
        refit: fit the remaining weights to the outputs of the original.
        distill: train the cut model for some steps at the end (`multihead.edit.Distill`); if None, do not.
        progress: True shows bars on a terminal; a function is called with (step, done, total).

    Returns:
        The smaller model. The original is unchanged.

    Raises:
        MultiheadError: if the plan is of a different model, or fitting needs text and there is none.

    >>> import multihead as mh
    >>> model, _ = mh.embedded()
    >>> small = mh.cut(model, mh.plan(model, remove=["L0H2", "L2H0"]), refit=False)
    >>> [layer.num_heads for layer in mh.anatomy(small)]
    [3, 4, 3]
    """
    check_model(model)
    _check(plan, refit, distill)
    check_progress(progress)
    with one_thread(model), shown_progress(progress) as shown:
        return _cut(model, plan, data, tokenizer, refit, distill, shown)


def _cut(
    model: nn.Module,
    plan: Plan,
    data: Iterable[Document] | Mapping[str, Any] | Calibration | None,
    tokenizer: Any,
    refit: bool,
    distill: Distill | None,
    progress: Progress | None,
) -> nn.Module:
    """Cut the model as the plan says, then fit and distil."""
    plan.check(model)
    text = plan.calibration if data is None else Calibration.of(model, data, tokenizer=tokenizer)
    layers = {layer.name: layer for layer in anatomy_on(model, text)}
    plan.check_layers(layers.values())
    first = next((i for i, part in enumerate(plan.layers) if part.changes), len(plan.layers))
    work = plan.layers[first:]  # the layers before are not reached by any change
    if text is None and work and (refit or distill is not None or any(part.groups is not None for part in work)):
        raise MultiheadError(
            "the plan has no calibration text, and the cut is fitted to text",
            hint="cut(model, plan, data), with text like the model's own; refit=False cuts heads without it",
        )
    student = deepcopy(model)
    fits: list[Fit] = []
    if text is None:
        for part in work:
            _install(student, layers[part.name], part, None, Forward.run, None)
    else:
        text.forget_other_weights()
        if text.originals.fingerprint != plan.fingerprint:  # the text may be of another model
            text.originals.clear()
        run = text.block_run(model, student)
        blocks, shares = {block.layer.path: block for block in text.blocks}, any(part.groups for part in work)
        for part in work:
            layer = layers[part.name]
            block = blocks[layer.path]
            run.advance(block.path)
            heads = _install(student, layer, part, text, run, progress)
            run.weights_changed(student)
            if refit:
                fits += BlockRefit(
                    run, block, text, heads=heads, spliced=shares, to_all=distill is None, progress=progress
                ).fit()
            text.originals.drop(block)  # later fits do not read it
        text.originals.clear()
    record: dict[str, Any] = {"fits": [fit.to_json() for fit in fits]}
    if text is not None:
        record["texts"] = [*(sketch.to_json() for sketch in texts_of(model)), text.sketch.to_json()]
        if distill is not None:
            record["distilled"] = asdict(distil(model, student, text, distill, progress=progress))
    remember(student, [], plan.to_json() | record)
    return student


def _check(plan: Any, refit: Any, distill: Any) -> None:
    """Raise for wrong arguments of `cut`."""
    check_instance("plan", plan, Plan, "a Plan", hint="plan = mh.plan(model, texts, keep=0.5)")
    check_flag("refit", refit)
    if distill is not None:
        check_instance("distill", distill, Distill, "a Distill or None", hint="multihead.edit.Distill(steps=150)")


def _install(
    student: nn.Module,
    layer: LayerAnatomy,
    part: LayerPlan,
    text: Calibration | None,
    run: Runner,
    progress: Progress | None,
) -> InstalledHeads | None:
    """Give a layer of the cut model the heads that the plan keeps, sharing keys and values as it groups them.

    Returns the new heads, or None if the layer has those of the original.
    """
    if not part.changes:
        return None
    new = HeadWeights.of(layer).keep(part.keep)
    if part.groups is not None:
        assert text is not None
        if progress is not None:
            progress(f"inputs of {layer.name}", 0, 1)
        new = share_kv(new, part.groups, moments_of(student, layer, text.fit(spliced=True), run=run))
    return install(student, layer, new, inputs=None if text is None else text.example(), run=run)
