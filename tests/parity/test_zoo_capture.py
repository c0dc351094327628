"""Every architecture of the zoo: its attention is seen and explains its output, and nothing is left behind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import multihead as mh
from multihead.layer import weights_of
from multihead.layer.outputs import Cells
from multihead.model.call import Call, Compute
from multihead.model.intercept import intercept
from zoo import COVERING, ZOO, Batch, Entry

pytestmark = pytest.mark.fast(*COVERING)


def output(result: Any) -> Tensor:
    """The tensor that a model's call is about."""
    if isinstance(result, Tensor):
        return result
    for name in ("logits", "last_hidden_state", "logits_per_image"):
        if getattr(result, name, None) is not None:
            return getattr(result, name)
    return result[0]


def real(batch: Batch, out: Tensor) -> Tensor:
    """The output at real tokens: what a model writes at padding is nobody's business."""
    mask = batch.get("decoder_attention_mask", batch.get("attention_mask"))
    if "decoder_input_ids" in batch:
        mask = batch.get("decoder_attention_mask")
    flat = isinstance(mask, Tensor) and mask.ndim == 2 and mask.shape == out.shape[:2]
    return out[mask.bool()] if flat and mask is not None else out


def batches(entry: Entry) -> list[Batch]:
    return [entry.batch(padded) for padded in ((False, True) if entry.padding else (False,))]


def traces(model: nn.Module) -> list[object]:
    """Whatever a capture might leave on a model."""
    kept: list[object] = []
    for name, module in model.named_modules():
        hooks = [len(v) for k, v in vars(module).items() if k.endswith("_hooks") and isinstance(v, dict)]
        kept.append((name, sorted(vars(module)), hooks))
        kept.append(getattr(getattr(module, "config", None), "_attn_implementation", None))
    return kept


@pytest.mark.parametrize("name", ZOO)
@torch.no_grad()
def test_capture(name: str) -> None:
    entry = ZOO[name]
    model = entry.build()
    for batch in batches(entry):
        before, expected = traces(model), output(model(**batch))
        seen: list[Call] = []

        def listen(call: Call, run: Compute, seen: list[Call] = seen) -> Tensor:
            seen.append(call)
            heads = run()
            problem = call.problem
            assert heads.shape == (*problem.q.shape[:3], problem.v.shape[3])
            # What was seen (mask, scale, softcap, bias, sinks) explains what the kernel gave.
            v = problem.groups.expand(problem.v)
            if problem.packed is None:
                again = weights_of(problem, Cells()) @ v
                good = torch.ones(problem.coordinates.batch, problem.coordinates.queries, dtype=torch.bool)
                good = good if call.queries.valid is None else call.queries.valid
                assert_close(again.transpose(1, 2)[good], heads.transpose(1, 2)[good], rtol=1e-4, atol=1e-4)
            return heads

        with intercept(model, listen):
            got = output(model(**batch))
        assert_close(real(batch, got), real(batch, expected), rtol=1e-4, atol=1e-4)
        assert traces(model) == before
        assert torch.equal(output(model(**batch)), expected)  # the same bits as before
        assert len(seen) == sum(stack.sites * stack.turns for stack in entry.stacks)
        for cross in (False, True):
            mine = [c.problem for c in seen if c.cross is cross]
            want = [s for s in entry.stacks if s.cross is cross]
            found = {(p.coordinates.heads, p.groups.kv_heads, p.q.shape[3]) for p in mine}
            assert found == {(s.heads, s.kv_heads, s.head_dim) for s in want}


@pytest.mark.parametrize("name", ZOO)
@torch.no_grad()
def test_statistics_and_maps(name: str) -> None:
    entry = ZOO[name]
    model = entry.build()
    for batch in batches(entry):
        with mh.capture(model, keep="qk") as heads:
            model(**batch)
        assert len(heads) == sum(s.sites * s.turns * s.heads for s in entry.stacks)
        for head in heads:
            if heads.calls(head.site)[-1].problem.packed is None:  # type: ignore[union-attr]
                weights = head.weights().double()
                problem = heads.calls(head.site)[-1].problem
                assert problem is not None
                ours = head.statistics
                if problem.scores.sinks is None and not ours.padding and not ours.empty.any():
                    entropy = -torch.special.xlogy(weights, weights).sum(-1)
                    assert head.mean("entropy") == pytest.approx(entropy.mean().item(), rel=1e-4, abs=1e-5)
            assert head.mean("max_weight") > 0


@pytest.mark.parametrize("name", ZOO)
@torch.no_grad()
def test_silence(name: str) -> None:
    """A ablated head gives nothing, the others in its layer give what they gave; then all is as before."""
    entry = ZOO[name]
    model = entry.build()
    batch = batches(entry)[-1]
    before = output(model(**batch))
    with mh.capture(model, statistics=None, keep="outputs") as plain:
        model(**batch)
    for site in plain.sites:
        head = site.heads - 1
        with mh.ablate(model, [site.name(head)]), mh.capture(model, statistics=None, keep="outputs") as heads:
            after = output(model(**batch))
        own = heads.calls(site)[-1].outputs
        was = plain.calls(site)[-1].outputs
        assert own is not None
        assert was is not None
        assert own[:, head].abs().max() == 0
        assert was[:, head].abs().max() > 0
        assert_close(own[:, :head], was[:, :head])
        assert not torch.allclose(after, before)
    assert torch.equal(output(model(**batch)), before)
