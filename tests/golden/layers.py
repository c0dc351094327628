"""Golden values of the attention layer: outputs, log-sum-exp and gradients of every variant, in float64.

Weights and inputs come from fixed seeds. They are scaled so that attention logits have a standard deviation of
about 2: nothing hides in a flat softmax. Sizes are prime and different where the variant allows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn

import multihead as mh
from golden.record import Names, Recorder, whole_numbers
from multihead import cache, mask, position
from multihead.layer import LatentAttention, QKNorm, Sinks

BATCH, TOKENS, WIDTH = 3, 11, 17
HEAD = 6
"""size of a head; even, for rotary positions"""
KEYS = 13
"""number of keys in cross-attention"""
GAIN = 1.4
"""standard deviation of queries and keys for unit inputs; that of the logits is its square"""


# ---- one call ---------------------------------------------------------------------------------


def heads(record: Recorder) -> None:
    """Numbers and sizes of heads, kv groups, biases, cross-attention, gates."""
    _call(record, "multi-head", _layer(5))
    _call(record, "one head", _layer(1))
    _call(record, "no bias", _layer(5, bias=False))
    _call(record, "bias of q and v", _layer(5, bias="qv"))
    _call(record, "grouped", _layer(6, num_kv_heads=2))
    _call(record, "multi-query", _layer(5, num_kv_heads=1))
    _call(record, "uneven groups", _layer(5, num_kv_heads=3, kv_of_head=[2, 0, 0, 1, 0]))
    _call(record, "other value size", _layer(5, value_dim=3))
    _call(record, "other output width", _layer(5, d_out=19))
    _call(record, "cross-attention", _layer(5, d_key=7, d_value=5), {"key": (KEYS, 7), "value": (KEYS, 5)})
    _call(record, "cross-attention without a value", _layer(6, num_kv_heads=3, d_key=7), {"key": (KEYS, 7)})
    _call(record, "head gate", _layer(5), head_gate=whole_numbers((BATCH, 5, TOKENS), seed=5))


def positions(record: Recorder) -> None:
    """Rotary in both layouts and all scalings, ALiBi, and the relative bias of T5."""
    causal = mask.causal()
    turned = {
        "rotary in halves": position.Rotary(),
        "rotary in pairs": position.Rotary(500.0, interleaved=True),
        "rotary of some dimensions": position.Rotary(dim=4),
        "rotary, linear scaling": position.Rotary(scaling=position.Linear(2.5)),
        "rotary, NTK scaling": position.Rotary(scaling=position.NTK(2.5)),
        "rotary, dynamic NTK scaling": position.Rotary(scaling=position.DynamicNTK(2.5, 7)),
        "rotary, YaRN scaling": position.Rotary(scaling=position.YaRN(2.5, 7)),
        "rotary, Llama 3 scaling": position.Rotary(scaling=position.Llama3(8.0, 1.0, 4.0, 7)),
    }
    for name, rotary in turned.items():
        _call(record, name, _layer(4, num_kv_heads=2, position=rotary), mask=causal)
    gaps = torch.tensor([[3 + i + i // 2 for i in range(TOKENS)]] * BATCH) + torch.arange(BATCH)[:, None]
    _call(record, "rotary at given positions", _layer(5, position=position.Rotary()), positions=gaps)
    _call(record, "ALiBi", _layer(4, position=position.ALiBi(4)), mask=causal)
    _call(record, "ALiBi of 5 heads", _layer(5, position=position.ALiBi(5)), mask=causal)
    _call(record, "learned ALiBi", _layer(5, position=position.ALiBi(5, learned=True)), mask=causal)
    both, one = (position.RelativeBias(5, buckets=6, max_distance=9, bidirectional=b) for b in (True, False))
    _call(record, "T5 bias both ways", _layer(5, position=both))
    _call(record, "T5 bias backwards", _layer(5, position=one), mask=causal)


def masks(record: Recorder) -> None:
    """Every kind of mask, and rows that see no key."""
    ids = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2, 2, -1, -1]] * BATCH).roll(1, 0)
    holes = whole_numbers((BATCH, TOKENS), seed=7) > -0.4
    cells = whole_numbers((BATCH, 1, TOKENS, TOKENS), seed=11) > -0.3
    empty = cells.clone()
    empty[1, :, 4] = False
    added = whole_numbers((5, TOKENS, TOKENS), seed=13)[None]
    visible = {
        "causal": mask.causal(),
        "window": mask.window(4),
        "window both ways, first token stays": mask.window(3, 2, first=1),
        "documents by id": mask.documents(ids) & mask.causal(),
        "documents by offset": mask.documents(offsets=[0, 3, 8, TOKENS]),
        "lengths": mask.lengths([TOKENS, 7, 2]),
        "padding with holes": mask.padding(holes),
        "ragged": mask.ragged([TOKENS, 5, 2]) & mask.causal(),
        "prefix": mask.prefix([2, 5, 0]),
        "tensor": mask.tensor(cells),
        "tensor with an empty row": mask.tensor(empty),
        "a row of length 0": mask.lengths([TOKENS, 0, 3]),
        "rule by head": mask.where(lambda b, h, q, k: (q - k + h) % 3 != 0),
        "either of two": mask.causal() | mask.window(1, 3),
        "additive": mask.additive(added),
    }
    for name, seen in visible.items():
        _call(record, name, _layer(5), mask=seen)
    learned = added.clone().requires_grad_()
    _call(record, "learned additive", _layer(5), mask=mask.additive(learned), learned={"mask": learned})


def scores(record: Recorder) -> None:
    """Scale, QK norm, softcap, sinks and dropout, alone and combined."""
    causal = mask.causal()
    _call(record, "scale", _layer(5, scale=0.7))
    _call(record, "softcap", _layer(5, softcap=1.5), mask=causal)
    _call(record, "sinks", _layer(5, sinks=Sinks()), mask=causal)
    _call(record, "sinks and empty rows", _layer(5, sinks=Sinks()), mask=mask.lengths([TOKENS, 0, 3]))
    _call(record, "RMS norm before rotary", _layer(5, qk_norm=QKNorm(), position=position.Rotary()))
    _call(record, "RMS norm after rotary", _layer(5, qk_norm=QKNorm(when="after"), position=position.Rotary()))
    _call(record, "layer norm", _layer(5, qk_norm=QKNorm("layer")))
    everything = _layer(
        6, num_kv_heads=2, value_dim=5, position=position.Rotary(dim=4), qk_norm=QKNorm(), softcap=2.0,
        sinks=Sinks(), scale=0.6,
    )  # fmt: skip
    _call(record, "everything", everything, mask=mask.causal() & mask.window(5) & mask.lengths([TOKENS, 7, 3]))
    dropping = _layer(5, dropout=0.3).train()
    torch.manual_seed(17)
    _call(record, "dropout", dropping, mask=causal, route="reference")
    torch.manual_seed(17)
    _call(record, "dropout in blocks", dropping, mask=causal, route="blocked")


def routes(record: Recorder) -> None:
    """The same inputs through every route; `folded` is for few queries and has no gradient."""
    seen = mask.causal() & mask.window(7) & mask.lengths([TOKENS, 8, 5])
    for route in ("tiled", "fused", "blocked", "reference"):
        _call(record, route, _layer(6, num_kv_heads=2), mask=seen, route=route)
    layer = _layer(6, num_kv_heads=2, d_key=WIDTH)
    query, key = (whole_numbers((BATCH, n, WIDTH), seed=n) for n in (2, KEYS))
    with torch.no_grad():
        for route in ("folded", "fused", "blocked", "reference"):
            record.tensor(f"few queries/{route}/output", layer(query, key, route=route))


def long(record: Recorder) -> None:
    """Inputs large enough to be split: masks into tiles, scores into blocks, rotations into blocks."""
    tokens = 1031
    visible = {
        "causal": mask.causal() & mask.lengths([tokens]),
        "window": mask.window(97),
        "documents": mask.documents(offsets=[0, 211, 577, tokens]) & mask.causal(),
    }
    for name, seen in visible.items():
        _call(record, name, _layer(4, num_kv_heads=2), batch=1, tokens=tokens, mask=seen)
        _call(record, f"{name}, softcap", _layer(4, num_kv_heads=2, softcap=1.5), batch=1, tokens=tokens, mask=seen)
    for name, interleaved in (("rotary in halves", False), ("rotary in pairs", True)):
        x = whole_numbers((2, 5, 1361, 10), seed=47).requires_grad_()
        turned = position.Rotary(interleaved=interleaved)(x)
        turned.backward(whole_numbers(x.shape, seed=53))
        record.tensor(f"{name}/output", turned)
        record.tensor(f"{name}/gradient", x.grad)


# ---- caches -----------------------------------------------------------------------------------


def caches(record: Recorder) -> None:
    """A prompt of several tokens, then decoding of one or a few tokens at a time."""
    causal, window = mask.causal(), mask.window(4)
    sizes = {"batch": BATCH, "kv_heads": 2, "capacity": TOKENS, "key_dim": HEAD, "dtype": torch.float64}
    rotary = position.Rotary()
    _decode(record, "growing", _layer(6, num_kv_heads=2, position=rotary), cache.Growing(), causal)
    _decode(record, "static", _layer(6, num_kv_heads=2, position=rotary), cache.Static(**sizes), causal)
    _decode(record, "ring", _layer(6, num_kv_heads=2, position=rotary), cache.Ring(4), window)
    streaming = mask.window(4, first=2)
    _decode(record, "ring with first tokens", _layer(6, num_kv_heads=2), cache.Ring(4, first=2), streaming)
    _decode(record, "ALiBi", _layer(5, position=position.ALiBi(5)), cache.Growing(), causal)
    both = _layer(6, num_kv_heads=2, sinks=Sinks(), softcap=1.5, qk_norm=QKNorm())
    _decode(record, "softcap, sinks and norm", both, cache.Growing(), causal)
    latent = _latent(query_dim=None)
    _decode(record, "latent", latent, cache.Growing(), causal)
    _ragged(record, "rows of different lengths", _layer(6, num_kv_heads=2, position=rotary))
    _cross(record, "cross", _layer(5, d_key=7))


def _decode(record: Recorder, name: str, layer: nn.Module, kept: mh.cache.Cache, seen: mask.Mask) -> None:
    x = whole_numbers((BATCH, TOKENS, WIDTH), seed=23)
    with torch.no_grad():
        steps = [layer(part, mask=seen, cache=kept) for part in x.split([5, 1, 1, 3, 1], dim=1)]
    record.tensor(f"{name}/output", torch.cat(steps, 1))


def _ragged(record: Recorder, name: str, layer: nn.Module) -> None:
    """Prompts of different lengths in one batch, decoded together."""
    x, kept = whole_numbers((BATCH, TOKENS, WIDTH), seed=29), cache.Growing()
    with torch.no_grad():
        begin = layer(x[:, :7], mask=mask.causal() & mask.ragged([7, 4, 2]), cache=kept)
        then = [layer(x[:, i : i + 1], mask=mask.causal(), cache=kept) for i in range(7, TOKENS)]
    record.tensor(f"{name}/output", torch.cat([begin, *then], 1))


def _cross(record: Recorder, name: str, layer: nn.Module) -> None:
    """Cross-attention: the keys and values of the other sequence are computed once."""
    x, memory = whole_numbers((BATCH, TOKENS, WIDTH), seed=31), whole_numbers((BATCH, KEYS, 7), seed=37)
    kept = cache.Cross()
    with torch.no_grad():
        steps = [layer(part, memory, cache=kept) for part in x.split([5, 3, 3], dim=1)]
    record.tensor(f"{name}/output", torch.cat(steps, 1))


# ---- latent attention -------------------------------------------------------------------------


def latent(record: Recorder) -> None:
    """Both forms of latent attention, with and without latent queries."""
    for name, query_dim in (("queries at once", None), ("latent queries", 8)):
        for form, absorb in (("absorbed", True), ("expanded", False)):
            layer = _latent(query_dim)
            _call(record, f"{name}, {form}", layer, mask=mask.causal(), absorb=absorb, first="x")


def _latent(query_dim: int | None) -> nn.Module:
    layer = LatentAttention(
        WIDTH, 5, latent_dim=7, nope_dim=4, rope_dim=2, value_dim=3, query_dim=query_dim, bias=True
    )
    return _drawn(layer)


# ---- what they share --------------------------------------------------------------------------


def _layer(num_heads: int, **options: Any) -> nn.Module:
    return _drawn(mh.MultiHeadAttention(WIDTH, num_heads, **{"head_dim": HEAD} | options))


@torch.no_grad()
def _drawn(layer: nn.Module) -> nn.Module:
    """The layer in float64. The seed of every weight is its canonical name; no norm is 1 and no bias is 0."""
    names = Names.read()
    for name, x in layer.double().named_parameters():
        seed = crc32(names.parameter(name).encode())
        if x.dim() < 2:
            x.add_(whole_numbers(x.shape, seed, 0.4))
        else:
            x.copy_(whole_numbers(x.shape, seed, GAIN * x.shape[1] ** -0.5))
    return layer.eval()


def _call(
    record: Recorder,
    name: str,
    layer: nn.Module,
    others: Mapping[str, tuple[int, int]] | None = None,
    *,
    batch: int = BATCH,
    tokens: int = TOKENS,
    first: str = "query",
    learned: Mapping[str, Tensor] | None = None,
    **options: Any,
) -> None:
    """Output, log-sum-exp, and the gradients of a random projection of the output.

    Args:
        others: further inputs, by name, with their (tokens, width).
        first: the name of the layer's first argument.
        learned: further tensors whose gradients are recorded.
    """
    sizes = {first: (tokens, WIDTH), **(others or {})}
    inputs = {n: whole_numbers((batch, *size), seed=41 + i) for i, (n, size) in enumerate(sizes.items())}
    for x in inputs.values():
        x.requires_grad_()
    found = layer(**inputs, **options, ask="lse")
    record.tensor(f"{name}/output", found.out)
    record.tensor(f"{name}/log-sum-exp", found.lse)
    found.out.backward(whole_numbers(found.out.shape, seed=43))
    for what, x in {**inputs, **(learned or {})}.items():
        record.tensor(f"{name}/gradient of {'query' if what == first else what}", x.grad)
    record.tensors(f"{name}/gradients", {n: p.grad for n, p in layer.named_parameters()})
