"""Comparisons: outputs, maps, tables, names, and what a capture could leave behind. What differs raises Wrong."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from sweep.judge import Wrong

TOLERANCE = 1e-4


def distance(a: list[Tensor], b: list[Tensor]) -> float:
    """The largest difference, relative to the largest value of its tensor."""
    if len(a) != len(b) or any(x.shape != y.shape for x, y in zip(a, b, strict=True)):
        return float("inf")
    worst = 0.0
    for x, y in zip(a, b, strict=True):
        finite = torch.isfinite(x) & (x.abs() < 1e30)
        if not torch.equal(finite, torch.isfinite(y) & (y.abs() < 1e30)):
            return float("inf")
        x, y = x[finite], y[finite]
        if x.numel():
            worst = max(worst, float((x - y).abs().max() / x.abs().max().clamp_min(1e-6)))
    return worst


def same(a: list[Tensor], b: list[Tensor], what: str, tolerance: float = TOLERANCE) -> None:
    apart = distance(a, b)
    if not apart <= tolerance:
        raise Wrong(f"{what}: off by {apart:.2g}")


def check_stacks(sites: list[Any]) -> None:
    """An encoder and a decoder are two stacks, and neither is called by the other's name."""
    for site in sites:
        parts = site.path.split(".")
        encoder = any("encoder" in part for part in parts)
        decoder = any("decoder" in part for part in parts)
        if encoder != decoder and ("decoder" if encoder else "encoder") in site.stack:
            raise Wrong(f"{site.path} is called {site.label}")
        for other in sites:
            a, b = next(((a, b) for a, b in zip(parts, other.path.split("."), strict=False) if a != b), ("", ""))
            if other.stack == site.stack and "encoder" in a and "decoder" in b:
                raise Wrong(f"{site.path} and {other.path} are one stack, {site.stack!r}")


def part_of(theirs: Tensor, ours: Tensor, index: int, several: int) -> Tensor:
    """The block of a map that one of several calls computes, where the map is block-diagonal."""
    queries, keys = ours.shape[-2:]
    if several == 1 or theirs.shape[-2:] != (several * queries, several * keys):
        return theirs
    return theirs[..., index * queries : (index + 1) * queries, index * keys : (index + 1) * keys]


def same_map(ours: Tensor, theirs: Tensor, where: str) -> None:
    if ours.shape != theirs.shape:
        if ours.numel() == theirs.numel() and ours.shape[-2:] == theirs.shape[-2:]:
            theirs = theirs.reshape(ours.shape)
        elif theirs.shape[:3] == ours.shape[:3] and theirs.shape[3] == ours.shape[3] + 1:
            theirs = theirs[..., :-1]  # the column of the sink
        elif theirs.shape[:3] == ours.shape[:3] and theirs.shape[3] < ours.shape[3]:
            ours = ours[
                ..., : theirs.shape[3]
            ]  # one softmax over its own and other keys: the model returns two parts
        else:
            raise Wrong(f"{where}: map of shape {tuple(ours.shape)}, the model's is {tuple(theirs.shape)}")
    apart = float((ours - theirs).abs().max())
    if not apart <= TOLERANCE:
        raise Wrong(f"{where}: map off by {apart:.2g}")


def same_tables(a: Any, b: Any) -> None:
    if list(a.columns) != list(b.columns) or len(a) != len(b):
        raise Wrong(f"tables of {len(a)} × {len(a.columns)} and {len(b)} × {len(b.columns)}")
    for name in a.columns:
        x, y = a[name], b[name]
        if len(x) and isinstance(x[0], str):
            if list(x) != list(y):
                raise Wrong(f"{name} differs")
            continue
        x, y = torch.as_tensor(x).double(), torch.as_tensor(y).double()
        if not torch.equal(x.isnan(), y.isnan()):
            raise Wrong(f"{name} is NaN in one of them")
        apart = (
            (x - y).nan_to_num(0, 0, 0).abs().max() / x[~x.isnan()].abs().max().clamp_min(1e-2)
            if x.numel() and (~x.isnan()).any()
            else torch.tensor(0.0)
        )
        if not float(apart) <= 1e-3:
            raise Wrong(f"{name} off by {float(apart):.2g}")


_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks_with_kwargs",
)


def state_of(model: Any) -> dict[str, Any]:
    """Everything that a capture could leave behind."""
    modules = list(model.named_modules())
    configs = [m.config for _, m in modules if hasattr(m, "config") and hasattr(m.config, "to_dict")]
    return {
        "config": [str(c.to_dict()) for c in {id(c): c for c in configs}.values()],
        "_attn_implementation": [getattr(c, "_attn_implementation", None) for c in configs],
        "hooks": [len(getattr(m, name)) for _, m in modules for name in _HOOKS],
        "attributes": [(name, sorted(vars(m))) for name, m in modules],
        "methods": [(type(m).__name__, id(type(m).forward)) for _, m in modules],
        "interface": [sorted(i._global_mapping) for i in (AttentionInterface, AttentionMaskInterface)],
        "functions": [
            id(i._global_mapping[n])
            for i in (AttentionInterface, AttentionMaskInterface)
            for n in sorted(i._global_mapping)
        ],
        "modes": torch._C._len_torch_function_stack(),
        "grad": torch.is_grad_enabled(),
    }
