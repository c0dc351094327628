"""The model's own attention maps: what its modules return under eager attention, read by hooks.

Nothing of multihead is used here: this is what multihead is held against. A map is what the values are multiplied
with. Some models return something else as their weights: a softmax that a sink scales down later, the mean over all
heads, the diagonals of a band. There the map is computed by the model's own functions, or put into its place.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

_WORDS = ("attention", "attn")
_NOT = ("output", "mask", "pool", "norm", "rotary", "embed", "indexer", "projection", "dropout", "decoderlayer")


@dataclass
class Run:
    """One run of a model: the maps of every module that returned one, and the attention-like modules that ran."""

    maps: dict[str, list[Tensor | None]] = field(default_factory=dict[str, list[Tensor | None]])
    """one per call; None where a call returned none"""
    ran: dict[str, str] = field(default_factory=dict[str, str])  # path: class
    memory: dict[str, int] = field(default_factory=dict[str, int])
    """Modules that were given a second sequence by name, and its length."""
    by_head: Tensor | None = None
    """the weights of the last call of torch's function that averages them, per head"""

    def innermost(self) -> dict[str, list[Tensor | None]]:
        """The maps of the modules that computed them; modules around those hand them on."""
        some = {path: maps for path, maps in self.maps.items() if any(x is not None for x in maps)}
        return {
            path: maps
            for path, maps in some.items()
            if not any(other != path and inside(other, path) for other in some)
        }

    def attentions(self) -> dict[str, str]:
        """Attention-like modules that ran, innermost only: {path: class}."""
        return {p: c for p, c in self.ran.items() if not any(o != p and inside(o, p) for o in self.ran)}


def inside(path: str, outer: str) -> bool:
    return outer == "" or path == outer or path.startswith(outer + ".")


def is_map(x: object) -> bool:
    """Whether a tensor may be softmax weights (batch, head, query, key)."""
    if not isinstance(x, Tensor) or x.ndim != 4 or not x.is_floating_point() or not x.numel():
        return False
    sums = x.sum(-1)
    return bool((x >= 0).all()) and bool((sums <= 1.001).all()) and bool((sums > 0.01).any())


_MEMORY = ("encoder_hidden_states", "key_value_states", "cross_attention_states", "context", "memory")


@contextmanager
def watched(model: nn.Module) -> Generator[Run]:
    """Read every module of the model inside the block."""
    run = Run()
    handles: list[Any] = []

    def hook(path: str, kind: str) -> Any:
        def read(module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
            if attention_like(kind) and any(True for _ in module.parameters()):
                run.ran[path] = kind
            for name in _MEMORY:
                if isinstance(x := kwargs.get(name), Tensor) and x.ndim == 3:
                    run.memory[path] = x.shape[1]
            returned = output[1:] if isinstance(output, tuple | list) else ()
            weights = next((x.detach().clone() for x in returned if is_map(x)), None)
            run.maps.setdefault(path, []).append(None if weights is None else _map_of(weights, module, run))

        return read

    for path, module in model.named_modules():
        if path:
            handles.append(module.register_forward_hook(hook(path, type(module).__name__), with_kwargs=True))
    functions = AttentionInterface.get_interface, F.multi_head_attention_forward
    try:
        AttentionInterface.get_interface = _applying(functions[0])  # type: ignore[method-assign]
        F.multi_head_attention_forward = _by_head(functions[1], run)
        with torch.no_grad():
            yield run
    finally:
        AttentionInterface.get_interface, F.multi_head_attention_forward = functions  # type: ignore[method-assign]
        for handle in handles:
            handle.remove()


def _map_of(weights: Tensor, module: nn.Module, run: Run) -> Tensor:
    """The map (batch, head, query, key) that a module returned in a form of its own."""
    reach = getattr(module, "one_sided_attn_window_size", None)
    if reach is not None and weights.shape[3] == 2 * reach + 1:
        return _without_band(weights, reach)
    heads = run.by_head
    if heads is None or heads.shape != weights.shape:
        return weights
    return heads if torch.allclose(weights, heads.mean(1, keepdim=True).expand_as(weights)) else weights


def _without_band(band: Tensor, reach: int) -> Tensor:
    """(batch, query, head, 2 · reach + 1), where column i of query n is key n - reach + i, as a map."""
    queries = band.shape[1]
    full = band.new_zeros(*band.shape[:3], queries + 2 * reach)
    for n in range(queries):
        full[:, n, :, n : n + 2 * reach + 1] = band[:, n]
    return full[..., reach : reach + queries].transpose(1, 2)


def _applying(get_interface: Callable[..., Any]) -> Callable[..., Any]:
    """Attention functions return the weights that they apply to the values."""

    def get(self: Any, name: str, default: Callable[..., Any]) -> Callable[..., Any]:
        function = get_interface(self, name, default)

        def attention(module: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
            out, weights = function(module, query, key, value, *args, **kwargs)
            if is_map(weights):
                repeats, keys = query.shape[1] // value.shape[1], value.shape[2]
                result = weights[..., :keys] @ value.repeat_interleave(repeats, 1)
                if not torch.allclose(result.transpose(1, 2), out, atol=1e-4 * float(out.abs().max())):
                    unit = torch.eye(keys, dtype=value.dtype).expand(*value.shape[:2], -1, -1)
                    weights = function(module, query, key, unit, *args, **kwargs)[0].transpose(1, 2)
            return out, weights

        return attention

    return get


def _by_head(function: Callable[..., Any], run: Run) -> Callable[..., Any]:
    """torch's function, which averages its weights over the heads; the run remembers them before."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        out, weights = function(*args, **kwargs)
        run.by_head = function(*args, **kwargs | {"average_attn_weights": False})[1]
        return out, weights

    return forward


def attention_like(kind: str) -> bool:
    name = kind.lower()
    return any(word in name for word in _WORDS) and not any(word in name for word in _NOT)
