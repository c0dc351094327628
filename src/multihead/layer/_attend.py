"""Compute softmax(scores) v by a plan, and guard the output against NaN in hidden keys and values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary

from multihead._base.shapes import HeadOutputs
from multihead.layer._blocked import blocked
from multihead.layer._decode import grouped_decode
from multihead.layer._kernels import ScoreBlock, explicit, fused, sees_marked_key
from multihead.layer._plan import RoutePlan, plan_of
from multihead.layer._problem import Problem, autocast_disabled
from multihead.layer._run_tiles import TileKernel, on_block, run_tiles, zero_output
from multihead.layer._tracing import is_compiling


def attend(problem: Problem, plan: RoutePlan | None = None) -> HeadOutputs:
    """softmax(scores) v, the same values for every plan; by default the cheapest.

    A TorchFunctionMode intercepts it, as it intercepts torch's functions: `multihead.capture` is one.
    """
    if has_torch_function_unary(problem.q) and not is_compiling():
        return _intercepted(problem, plan)
    if plan is None:
        plan = plan_of(problem)
    if plan.direct and not torch.is_autocast_enabled(plan.device):
        out = F.scaled_dot_product_attention(
            problem.q, problem.k, problem.v, None, 0.0, plan.causal,
            scale=problem.scores.scale, enable_gqa=problem.groups.size != 1,
        )  # fmt: skip
        # Under the causal flag the query at its position sees each key, so NaN in a key shows in the output.
        return out if not plan.hides_keys or _finite(out) else _repaired(problem, plan)
    with autocast_disabled(problem.q.device):
        if problem.coordinates.shard is not None:
            return problem.coordinates.shard.attend(problem)
        if problem.coordinates.empty:
            return zero_output(problem.q, problem.v.shape[3])
        if not plan.hides_keys:
            return _run(problem, plan)
        return _traced(problem, plan) if is_compiling() else _guarded(problem, plan)


def _intercepted(problem: Problem, plan: RoutePlan | None) -> HeadOutputs:
    """Attend where observers listen: they get padded tensors, so their results do not depend on packing."""
    packed = problem.packed
    if packed is None:
        return handle_torch_function(attend, (problem.q,), problem, plan)
    q, k, v = (packed.pad_heads(x) for x in (problem.q, problem.k, problem.v))
    padded = replace(problem, q=q, k=k, v=v, packed=None)
    return packed.pack_heads(handle_torch_function(attend, (problem.q,), padded, None))


def _explicit_out(block: ScoreBlock) -> HeadOutputs:
    return explicit(block).out


KERNELS: dict[str, TileKernel] = {
    "folded": on_block(grouped_decode),
    "tiled": on_block(fused),
    "fused": on_block(fused),
    "blocked": blocked,
    "reference": on_block(_explicit_out),
}


def _run(problem: Problem, plan: RoutePlan) -> HeadOutputs:
    return run_tiles(problem, plan.tiles, KERNELS[plan.route])


def _guarded(problem: Problem, plan: RoutePlan) -> HeadOutputs:
    """Attend; if the output is not finite, compute it again with the non-finite keys and values cleaned.

    NaN and inf in hidden keys and values show as NaN in the output (0 · NaN), never as a wrong finite value, so
    reading the output once is enough. A hidden key may show only in the gradient of the queries, so with gradients
    the keys are read too. Where the host cannot read values (vmap) or reading would stall the device (an
    accelerator), every call is cleaned, except while a CUDA graph is captured.
    """
    if not plan.reads_output:
        capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
        return _run(problem, plan) if capturing else _cleaned(problem, plan)
    out = _run(problem, plan)
    finite = _finite(out) and (not problem.needs_grad or math.isfinite(_sum(problem.k).item()))
    return out if finite else _repaired(problem, plan)


def _repaired(problem: Problem, plan: RoutePlan) -> HeadOutputs:
    """Attend with cleaned keys and values; if the output is still not finite, compute it in fp64.

    The product of a query with a finite hidden key may overflow in fp32, and inf plus the -inf of the mask is NaN.
    """
    out = _cleaned(problem, plan)
    if _finite(out) or problem.q.dtype == torch.float64:
        return out
    wide = replace(problem, q=problem.q.double(), k=problem.k.double(), v=problem.v.double())
    return _cleaned(wide, plan_of(wide, plan.route)).to(out.dtype)


FEW_VALUES = 4096
"""Up to this many values, comparing a tensor with itself finds NaN faster than a sum."""


def _finite(out: HeadOutputs) -> bool:
    """Whether no value is NaN; for many values also whether none is inf."""
    return torch.equal(out, out) if out.numel() <= FEW_VALUES else math.isfinite(_sum(out).item())


def _sum(x: Tensor) -> Tensor:
    """A sum, not finite if any value is not; fp16 is summed in fp32, as fp16 sums overflow early."""
    x = x.detach() if x.requires_grad else x
    return x.sum(dtype=torch.float32) if x.dtype == torch.float16 else x.sum()


def _traced(problem: Problem, plan: RoutePlan) -> HeadOutputs:
    """Attend in a traced graph: keys and values are always cleaned, which needs no branch.

    Decoding on CPU branches on the output instead: the copy would take half of the time.
    """
    if plan.route != "folded" or problem.coordinates.device.type != "cpu":
        return _cleaned(problem, plan)
    out = _run(problem, plan)
    finite = torch.isfinite(out.sum())
    # Neither branch may return its input, and both must return the same strides.
    clean: Callable[[HeadOutputs], HeadOutputs] = lambda _: _copied(_cleaned(problem, plan))
    return torch.cond(finite, _copied, clean, (out,))


def _copied(x: HeadOutputs) -> HeadOutputs:
    return x.clone(memory_format=torch.contiguous_format)


def _cleaned(problem: Problem, plan: RoutePlan) -> HeadOutputs:
    """The attention output with NaN only in rows that may attend to a non-finite key or value.

    Non-finite keys and values become zeros; then rows that may attend to one become NaN.
    """
    bad = ~(torch.isfinite(problem.k).all(-1) & torch.isfinite(problem.v).all(-1))  # batch, kv_head, key
    hide = bad.unsqueeze(-1)
    clean = replace(problem, k=problem.k.masked_fill(hide, 0.0), v=problem.v.masked_fill(hide, 0.0))
    out = _run(clean, plan)
    marked = replace(clean, q=problem.q.detach()[..., :1], k=problem.k.detach()[..., :1], v=hide.to(out.dtype))
    return out.masked_fill(run_tiles(marked, plan.tiles, on_block(sees_marked_key)) > 0, torch.nan)
