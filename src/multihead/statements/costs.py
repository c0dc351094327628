"""Statements about cost: FLOPs (10) and memory (11), counted while a layer of these sizes runs.

>>> import torch, multihead as mh
>>> from multihead.statements.sampling import layer_samples
>>> [layer] = layer_samples(mh.MultiHeadAttention(4, 2), torch.randn(2, 64, 4))
>>> flops(layer).verdict
'holds'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from multihead.layer.attention import MultiHeadAttention
from multihead.measures.cost.cost import cost
from multihead.measures.cost.spec import Spec
from multihead.statements.claim import Claim, Finding, short
from multihead.statements.layer_sample import LayerSample

CELLS = 1 << 21
"""(head, query, key) cells of the largest map that is made to measure."""


# ---- 10 -----------------------------------------------------------------------------------------


def counted_flops(layer: MultiHeadAttention, tokens: int) -> dict[str, int]:
    """FLOPs of one sequence by torch's counter: all, and those of q kᵀ and P v alone. No number is computed."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(torch.empty(1, tokens, layer.d_model, device="meta"), route="reference")
    counts = {str(op): n for op, n in counter.get_flop_counts()["Global"].items()}
    return {"all": sum(counts.values()), "attention": counts.get("aten.bmm", 0)}


def sized(subject: LayerSample, heads: int | None = None, most: int | None = None) -> MultiHeadAttention:
    """A layer of the subject's sizes without numbers; with other `heads`, their total width stays as it is.

    Args:
        most: d_model is cut to this; what lies between the projections and W_O does not depend on it.
    """
    h = subject.heads if heads is None else heads
    own = heads is None
    return MultiHeadAttention(
        subject.d_model if most is None else min(subject.d_model, most),
        h,
        head_dim=max(subject.key_dim * subject.heads // h, 1),
        value_dim=max(subject.value_dim * subject.heads // h, 1),
        num_kv_heads=subject.kv_heads if own else None,
        kv_of_head=subject.kv_of_head if own else None,
        bias=False,
        device="meta",
    )


def spec_of(subject: LayerSample) -> Spec:
    return Spec(subject.d_model, subject.heads, subject.kv_heads, subject.key_dim, subject.value_dim)


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The slope of log value over log size."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-300)), 1)[0])


def head_counts(subject: LayerSample) -> list[int]:
    """Numbers of heads that the total width of keys and values can be cut into."""
    widths = subject.heads * subject.key_dim, subject.heads * subject.value_dim
    return [h for h in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64) if all(w % h == 0 for w in widths)]


def flops(subject: LayerSample) -> Finding:
    lengths = [64, 128, 256, 512, 1024]
    layer, spec = sized(subject), spec_of(subject)
    measured = [counted_flops(layer, n) for n in lengths]
    closed = [cost(spec, tokens=n) for n in lengths]
    exact = all(m["all"] == c.flops for m, c in zip(measured, closed, strict=True))
    in_n = exponent(lengths, [m["attention"] for m in measured])
    widths = head_counts(subject)
    by_heads = [counted_flops(sized(subject, h), 256)["all"] for h in widths]
    in_h = exponent(widths, by_heads) if len(widths) > 1 else 0.0
    own = max(s.x.shape[0] for s in subject.sequences)
    here, crossover = cost(spec, tokens=own), closed[0].crossover
    local = exponent([own, 2 * own], [c.flops for c in (here, cost(spec, tokens=2 * own))])
    if not exact or abs(in_n - 2) > 1e-6 or abs(in_h) > 1e-6:
        verdict, why = "fails", "What torch counts is not what the closed form says."
    elif own >= crossover:
        verdict, why = (
            "holds",
            "q kᵀ and P v dominate at this length, and splitting d_model into more heads is free.",
        )
    else:
        verdict = "holds only if"
        why = f"At {own} tokens the projections, h n d_model d_k, which the formula leaves out, take the most."
    return Finding(
        verdict,
        f"n^{local:.2f} at n = {own}",
        f"n^{in_n:.2f}, h^{abs(in_h):.2f}",
        why,
        f"n is above {short(math.ceil(crossover))}: weights / h(d_k + d_v), which is 2 d_model in plain attention",
        {
            "tokens": lengths,
            "flops": [m["all"] for m in measured],
            "attention_flops": [m["attention"] for m in measured],
            "closed_form": [c.flops for c in closed],
            "heads": widths,
            "flops_by_heads": by_heads,
            "exponent_in_n": in_n,
            "exponent_in_h": in_h,
            "exponent_here": local,
            "crossover": crossover,
        },
    )


# ---- 11 -----------------------------------------------------------------------------------------


class Live(TorchDispatchMode):
    """Counts the bytes of the tensors that are alive at once, those that were there before left out.

    What a kernel allocates for itself is not seen; the fused one on a CPU keeps a few blocks per thread.
    """

    def __init__(self, before: Iterator[Tensor]) -> None:
        super().__init__()
        self.before = {_place(t) for t in before}
        self.alive: dict[int, tuple[Any, int]] = {}
        self.peak = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        from torch.multiprocessing.reductions import StorageWeakRef

        out = func(*args, **(kwargs or {}))
        self.alive = {key: (ref, size) for key, (ref, size) in self.alive.items() if not ref.expired()}
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and _place(tensor) not in self.before:
                storage = tensor.untyped_storage()
                self.alive[_place(tensor)] = (StorageWeakRef(storage), storage.nbytes())
        self.peak = max(self.peak, sum(size for _, size in self.alive.values()))
        return out


def _place(tensor: Tensor) -> int:
    """Which memory a tensor lies in: views of one have the same."""
    return tensor.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]


def measured_bytes(layer: MultiHeadAttention, tokens: int, route: str | None) -> int:
    """The largest sum of bytes alive while the layer runs on one sequence."""
    x = torch.zeros(1, tokens, layer.d_model)
    with torch.no_grad(), Live(iter((*layer.parameters(), x))) as live:
        layer(x, route=route)
    return live.peak


def real(subject: LayerSample, heads: int | None = None) -> MultiHeadAttention:
    """`sized` with memory of its own, all weights 0, narrow on the outside."""
    layer = sized(subject, heads, most=256).to_empty(device="cpu")
    for p in layer.parameters():
        torch.nn.init.zeros_(p)
    return layer


def memory(subject: LayerSample) -> Finding:
    h, d_k = subject.heads, subject.key_dim
    layer = real(subject)
    most = 2 ** int(math.log2(math.sqrt(CELLS / h)))
    lengths = [n for n in (most // 8, most // 4, most // 2, most) if n >= 4]
    said: Callable[[int], float] = lambda n: 4 * h * (3 * n * d_k + n * d_k + n * n)
    explicit = [measured_bytes(layer, n, "reference") for n in lengths]
    fused = [measured_bytes(layer, n, "fused") for n in lengths]
    ratios = [e / said(n) for e, n in zip(explicit, lengths, strict=True)]
    # What remains per cell after the linear part: how many maps are alive at once.
    a, b = lengths[-2:]
    maps = (explicit[-1] / b - explicit[-2] / a) / (b - a) / (4 * h)
    in_n, fused_in_n = exponent(lengths, explicit), exponent(lengths, fused)
    if not all(0.5 <= r <= 4 for r in ratios):
        verdict, why = "fails", "The formula is off by more than a factor of four."
    elif fused_in_n > 1.5:
        verdict, why = "holds", "Both ways of computing hold a map of n m numbers per head."
    else:
        verdict = "holds only if"
        why = f"Written out, {maps:.1f} maps are alive at once (before and after the softmax); fused, none is."
    return Finding(
        verdict,
        f"{short(explicit[-1] / 1e6)} MB at n = {b}",
        f"{short(said(b) / 1e6)} MB by M",
        why + f" Growth: n^{in_n:.2f} and n^{fused_in_n:.2f}.",
        "the maps are written out; M counts q, k, v, the output and one map, the softmax needs a second",
        {
            "tokens": lengths,
            "explicit_bytes": explicit,
            "fused_bytes": fused,
            "formula_bytes": [said(n) for n in lengths],
            "maps_alive": maps,
            "exponent_explicit": in_n,
            "exponent_fused": fused_in_n,
        },
    )


CLAIMS = (
    Claim("10", "attention costs O(n²)", "C = O(h n² d_k + h n m d_k)", flops),
    Claim("11", "memory is M numbers", "M = h(3 n d_k + m d_k + n m)", memory),
)
