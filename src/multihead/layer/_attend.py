"""softmax(scores) v by a plan, and the guard against NaN in hidden keys and values."""

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
from multihead.layer._kernels import Block, explicit, fused, sees_marked_key
from multihead.layer._plan import Plan, plan_of
from multihead.layer._problem import Problem, autocast_disabled
from multihead.layer._run_tiles import TileKernel, on_block, run_tiles, zero_output


def attend(problem: Problem, plan: Plan | None = None) -> HeadOutputs:
    """softmax(scores) v, the same values by any plan; by default the cheapest.

    Like torch's own functions it can be seen and changed by a TorchFunctionMode: `multihead.capture` is one.
    """
    if has_torch_function_unary(problem.q) and not torch.compiler.is_compiling():
        return _intercepted(problem, plan)
    if plan is None:
        plan = plan_of(problem)
    if plan.direct and not torch.is_autocast_enabled(plan.device):
        out = F.scaled_dot_product_attention(
            problem.q, problem.k, problem.v, None, 0.0, plan.causal,
            scale=problem.scores.scale, enable_gqa=problem.groups.size != 1,
        )  # fmt: skip
        # Under the causal flag every key is seen by its own query, so a bad one shows in the output.
        return out if not plan.hides or _finite(out) else _cleaned(problem, plan)
    with autocast_disabled(problem.q.device):
        if problem.coordinates.shard is not None:
            return problem.coordinates.shard.attend(problem)
        if problem.coordinates.empty:
            return zero_output(problem.q, problem.v.shape[3])
        if not plan.hides:
            return _run(problem, plan)
        return _traced(problem, plan) if torch.compiler.is_compiling() else _guarded(problem, plan)


def _intercepted(problem: Problem, plan: Plan | None) -> HeadOutputs:
    """Observers see padded tensors: what they report of a call does not depend on how it is computed."""
    packing = problem.packing
    if packing is None:
        return handle_torch_function(attend, (problem.q,), problem, plan)
    q, k, v = (packing.pad_heads(x) for x in (problem.q, problem.k, problem.v))
    padded = replace(problem, q=q, k=k, v=v, packing=None)
    return packing.pack_heads(handle_torch_function(attend, (problem.q,), padded, None))


def _explicit_out(block: Block) -> HeadOutputs:
    return explicit(block).out


KERNELS: dict[str, TileKernel] = {
    "folded": on_block(grouped_decode),
    "tiled": on_block(fused),
    "fused": on_block(fused),
    "blocked": blocked,
    "reference": on_block(_explicit_out),
}


def _run(problem: Problem, plan: Plan) -> HeadOutputs:
    return run_tiles(problem, plan.tiles, KERNELS[plan.route])


def _guarded(problem: Problem, plan: Plan) -> HeadOutputs:
    """The output, computed again without NaN and inf in hidden keys and values if it has any.

    They show as NaN in the output (0 · NaN), never as a wrong number, so reading the output once is enough. A
    hidden key may show in the gradient of the queries only. Where values cannot be read (under vmap) or reading
    would stall (an accelerator) every call is cleaned, except while a CUDA graph is captured.
    """
    if not plan.looks:
        capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
        return _run(problem, plan) if capturing else _cleaned(problem, plan)  # `explain` says so
    out = _run(problem, plan)
    finite = _finite(out) and (not problem.needs_grad or math.isfinite(_sum(problem.k).item()))
    return out if finite else _cleaned(problem, plan)


FEW = 4096
"""Up to this many values, comparing a tensor with itself is a faster search for NaN than a sum."""


def _finite(out: HeadOutputs) -> bool:
    """Whether a value is NaN; of many values, or inf."""
    return torch.equal(out, out) if out.numel() <= FEW else math.isfinite(_sum(out).item())


def _sum(x: Tensor) -> Tensor:
    """Neither finite nor a number if any value is not; a sum of fp16 overflows soon."""
    x = x.detach() if x.requires_grad else x
    return x.sum(dtype=torch.float32) if x.dtype == torch.float16 else x.sum()


def _traced(problem: Problem, plan: Plan) -> HeadOutputs:
    """The guard in a traced graph, which is kept free of branches: keys and values are cleaned beforehand.

    In decoding that copy would be half of the time, so there, on CPU, the graph does look at the output.
    """
    if plan.route != "folded" or problem.coordinates.device.type != "cpu":
        return _cleaned(problem, plan)
    out = _run(problem, plan)
    finite = torch.isfinite(out.sum())
    # Neither branch may return its input, and both must return the same strides.
    again: Callable[[HeadOutputs], HeadOutputs] = lambda _: _copied(_cleaned(problem, plan))
    return torch.cond(finite, _copied, again, (out,))


def _copied(x: HeadOutputs) -> HeadOutputs:
    return x.clone(memory_format=torch.contiguous_format)


def _cleaned(problem: Problem, plan: Plan) -> HeadOutputs:
    """The output where non-finite keys and values reach only the rows that may see them.

    Bad keys are computed as zeros; then the rows that may attend to one become NaN, as they should.
    """
    bad = ~(torch.isfinite(problem.k).all(-1) & torch.isfinite(problem.v).all(-1))  # batch, kv_head, key
    hide = bad.unsqueeze(-1)
    clean = replace(problem, k=problem.k.masked_fill(hide, 0.0), v=problem.v.masked_fill(hide, 0.0))
    out = _run(clean, plan)
    marked = replace(clean, q=problem.q.detach()[..., :1], k=problem.k.detach()[..., :1], v=hide.to(out.dtype))
    return out.masked_fill(run_tiles(marked, plan.tiles, on_block(sees_marked_key)) > 0, torch.nan)
