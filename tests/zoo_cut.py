"""Cut models of the zoo, and what they must give: what the whole one does, with the same numbers at the old places.

The heads that go are ablated in the whole one. `check` compares the two on a plain and on a padded batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from multihead.edit.surgery.install import install
from multihead.layer import Groups
from multihead.model.anatomy import anatomy
from multihead.model.call import Call, Compute
from multihead.model.head_weights import HeadWeights
from multihead.model.intercept import intercept
from multihead.model.layer_anatomy import LayerAnatomy
from zoo import ZOO, model

Cut = dict[str, HeadWeights]
"""{path: its new heads}"""


@cache
def layers(name: str) -> tuple[LayerAnatomy, ...]:
    """One per set of weights: ALBERT's layer is one."""
    found = anatomy(model(name), ZOO[name].inputs(model(name)))
    return tuple({layer.path: layer for layer in reversed(found)}.values())[::-1]


def outputs(of: nn.Module, batch: dict[str, Any]) -> Tensor:
    """The model's main output, flat."""
    with torch.no_grad():
        out = of(**batch)
    if isinstance(out, Tensor):
        return out
    name = next(n for n in ("logits", "logits_per_image", "last_hidden_state") if n in out)
    return out[name]


def twin_of(name: str, cut: Cut, dtype: torch.dtype = torch.float32) -> Callable[[dict[str, Any]], Tensor]:
    """What must come out: of the uncut model, with the new numbers at the old places, and what goes ablated."""
    twin = ZOO[name].build().to(dtype)
    parameters = dict(twin.named_parameters())
    gone: dict[str, list[int]] = {}
    for layer in layers(name):
        new = cut.get(layer.path)
        if new is None:
            continue
        gone[layer.path] = [h for h in range(layer.num_heads) if h not in new.origin]
        own = replace(layer, parameters={n: parameters[n] for n in layer.parameters})
        with torch.no_grad():
            for i, h in enumerate(new.origin):
                kv, old = new.groups.kv_of_head[i], layer.groups.kv_of_head[h]
                for letter, at, to in (("q", i, h), ("k", kv, old), ("v", kv, old), ("o", i, h)):
                    getattr(own, f"W_{letter.upper()}")[to].copy_(getattr(new, letter)[at])
                    bias = getattr(own, f"b_{letter.upper()}")
                    if letter != "o" and bias is not None:
                        bias[to].copy_(getattr(new, f"b_{letter}")[at])
                _same_norm(parameters, layer, new.kv_origin[kv], old)

    def listen(call: Call, run: Compute) -> Tensor:
        out = run()
        if call.path not in gone:
            return out
        return out.index_fill(1, torch.tensor(gone[call.path], dtype=torch.long), 0.0)

    def run(batch: dict[str, Any]) -> Tensor:
        with intercept(twin, listen):
            return outputs(twin, batch)

    return run


def _same_norm(parameters: dict[str, nn.Parameter], layer: LayerAnatomy, source: int, to: int) -> None:
    """Key heads that become one have one norm: that of the first."""
    for name in layer.between["k"]:
        own, size = parameters[name], layer.key_dim
        if own.numel() == layer.num_kv_heads * size:  # OLMo 2
            heads = own.view(-1, size)
            heads[to] = heads[source]
        elif f".norms.{to}." in name:  # StableLM
            own.copy_(parameters[name.replace(f".norms.{to}.", f".norms.{source}.")])


def made(name: str, choose: Callable[[LayerAnatomy, int], HeadWeights]) -> Cut:
    return {layer.path: choose(layer, i) for i, layer in enumerate(layers(name))}


def cut_model(name: str, cut: Cut, dtype: torch.dtype = torch.float32) -> nn.Module:
    small = ZOO[name].build().to(dtype)
    for layer in layers(name):
        if layer.path in cut:
            install(small, layer, cut[layer.path], inputs=_given(name, dtype))
    return small


def _given(name: str, dtype: torch.dtype) -> dict[str, Any]:
    return as_dtype(ZOO[name].inputs(model(name)), dtype)


def as_dtype(batch: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    return {k: v.to(dtype) if v.is_floating_point() else v for k, v in batch.items()}


def check(name: str, cut: Cut, dtype: torch.dtype = torch.float32) -> nn.Module:
    """The cut model equals the whole one, plain and padded; its state dict fits a skeleton with its steps."""
    small = cut_model(name, cut, dtype)
    entry, whole = ZOO[name], twin_of(name, cut, dtype)
    for batch in (entry.inputs(small), entry.padded(small)):
        if batch is None:
            continue
        batch = as_dtype(batch, dtype)
        real = _real(batch, expected := whole(batch))
        scale = float(expected.abs().max())
        close = 1e-5 * scale if dtype == torch.float32 else 1e-13 * scale
        torch.testing.assert_close(outputs(small, batch)[real], expected[real], atol=close, rtol=0)
    return small


def _real(batch: dict[str, Any], out: Tensor) -> Any:
    """The real tokens: what queries of padding give, which see nothing, is everybody's own."""
    for name, mask in batch.items():
        if "mask" in name and mask.shape == out.shape[:2]:
            return ~mask if "padding" in name else mask.bool()
    return ...


def some(heads: int, of: int, start: int) -> list[int]:
    return sorted((start + i) % of for i in range(heads))


def uneven(layer: LayerAnatomy, i: int) -> HeadWeights:
    """Another number of heads in every layer: 1, 2, ..."""
    return HeadWeights.of(layer).keep(some(1 + i % (layer.num_heads - 1), layer.num_heads, i))


def shared(layer: LayerAnatomy, i: int) -> HeadWeights:
    """All heads stay; the first kv heads become one, whose numbers are new, and its readers are not neighbours."""
    own = HeadWeights.of(layer)
    kv = max(1, layer.num_kv_heads - 1)
    to = [(k + i) % kv for k in range(layer.num_kv_heads)]
    first = [to.index(g) for g in range(kv)]
    g = torch.Generator().manual_seed(i)

    def fresh(x: Tensor | None) -> Tensor | None:
        return None if x is None else x[first] + 0.1 * torch.randn(x[first].shape, generator=g).to(x) * x.std()

    k, v = fresh(own.k), fresh(own.v)
    assert k is not None
    assert v is not None
    return replace(
        own, k=k, v=v, b_k=fresh(own.b_k), b_v=fresh(own.b_v),
        groups=Groups(tuple(to[kv_] for kv_ in own.groups.kv_of_head), kv),
        kv_origin=tuple(first),
    )  # fmt: skip
