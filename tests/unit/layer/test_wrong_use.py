"""Wrong use of the layer's API gives a `MultiheadError` that names the argument and its value.

Never an error of torch or of Python, never a result; and it is raised before a cache or a module is changed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.testing import assert_close

import annotation_checks
import multihead as mh
from multihead import layer as layers
from multihead.errors import CacheError
from multihead.layer import LatentAttention
from multihead.layer.dropin import MultiheadAttention, replace_all
from multihead.parallel import context_parallel, tensor_parallel_plan

WIDTH, HEADS = 24, 4
NAN, INF = math.nan, math.inf

# Any: the calls below are wrong in ways that a type checker sees too.
mask: Any = mh.mask
position: Any = mh.position
cache: Any = mh.cache
init: Any = layers.init
QKNorm: Any = layers.QKNorm
Sinks: Any = layers.Sinks
Ask: Any = layers.Ask
Cells: Any = layers.Cells
Dropin: Any = MultiheadAttention

Wrong = tuple[Callable[[], Any], str, str]
"""(call, the argument's name, its value), both of which must be in the message."""


def layer(d_model: Any = WIDTH, num_heads: Any = HEADS, **options: Any) -> Any:
    return mh.MultiHeadAttention(d_model, num_heads, **options)


def latent(**options: Any) -> Any:
    sizes: dict[str, Any] = {"latent_dim": 6, "nope_dim": 4, "rope_dim": 4, "value_dim": 5}
    return LatentAttention(**({"d_model": WIDTH, "num_heads": HEADS} | sizes | options))


def rotary_layer() -> Any:
    return layer(position=position.Rotary())


def dropin(*args: Any, **options: Any) -> Any:
    return Dropin(WIDTH, HEADS, batch_first=True)(*args, **options)


def x(tokens: int = 5) -> Tensor:
    return torch.randn(2, tokens, WIDTH)


def kv(tokens: int = 3) -> Tensor:
    return torch.randn(2, HEADS, tokens, 6)


def bools(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.bool)


def static(**options: Any) -> Any:
    return cache.Static(**({"batch": 2, "kv_heads": HEADS, "capacity": 9, "key_dim": 6} | options))


def filled(kind: Any = None) -> Any:
    kept = cache.Growing() if kind is None else kind
    with torch.no_grad():
        kept.append(kv(), kv())
    return kept


def recalled(*inputs: Any) -> Any:
    """A call with inputs that its Cross cache was not filled from."""
    attn, kept = layer(), cache.Cross()
    attn(x(), x(), cache=kept)
    return attn(x(), *inputs, cache=kept)


def wrong_at(value: float) -> Tensor:
    """An additive mask with one wrong cell."""
    scores = torch.zeros(5, 5)
    scores[3, 1] = value
    return scores


def mesh() -> DeviceMesh:
    return init_device_mesh("cpu", (1,))


# ---- sizes and options of a layer ---------------------------------------------------------------------

LAYER: list[Wrong] = [
    (lambda: layer(24.0), "d_model", "24.0"),
    (lambda: layer("24"), "d_model", "'24'"),
    (lambda: layer(None), "d_model", "None"),
    (lambda: layer(torch.tensor(24)), "d_model", "tensor(24)"),
    (lambda: layer(-24), "d_model", "-24"),
    (lambda: layer(0), "d_model", "0"),
    (lambda: layer(24, 4.0), "num_heads", "4.0"),
    (lambda: layer(24, "4"), "num_heads", "'4'"),
    (lambda: layer(24, None), "num_heads", "None"),
    (lambda: layer(24, True), "num_heads", "True"),
    (lambda: layer(24, -4), "num_heads", "-4"),
    (lambda: layer(num_kv_heads=2.0), "num_kv_heads", "2.0"),
    (lambda: layer(num_kv_heads="2"), "num_kv_heads", "'2'"),
    (lambda: layer(num_kv_heads=-2), "num_kv_heads", "-2"),
    (lambda: layer(head_dim=6.0), "head_dim", "6.0"),
    (lambda: layer(value_dim="6"), "value_dim", "'6'"),
    (lambda: layer(value_dim=2.5), "value_dim", "2.5"),
    (lambda: layer(d_key=1.5), "d_key", "1.5"),
    (lambda: layer(d_value=-1), "d_value", "-1"),
    (lambda: layer(d_out="24"), "d_out", "'24'"),
    (lambda: layer(d_out=0), "d_out", "0"),
    (lambda: layer(kv_of_head=5), "kv_of_head", "5"),
    (lambda: layer(kv_of_head="0011"), "kv_of_head", "'0011'"),
    (lambda: layer(kv_of_head=[0, 0.5, 1, 1]), "kv_of_head", "0.5"),
    (lambda: layer(kv_of_head=[0, None, 1, 1]), "kv_of_head", "None"),
    (lambda: layer(kv_of_head=[0, 0, 1, 1], num_kv_heads=2.0), "num_kv_heads", "2.0"),
    (lambda: layer(bias=None), "bias", "None"),
    (lambda: layer(bias=2), "bias", "2"),
    (lambda: layer(bias=["q"]), "bias", "['q']"),
    (lambda: layer(position="rope"), "position", "'rope'"),
    (lambda: layer(position=position.Rotary), "position", "class Rotary"),
    (lambda: layer(position=position.ALiBi), "position", "class ALiBi"),
    (lambda: layer(position=nn.Linear(2, 2)), "position", "Linear"),
    (lambda: layer(qk_norm="rms"), "qk_norm", "'rms'"),
    (lambda: layer(qk_norm=True), "qk_norm", "True"),
    (lambda: layer(qk_norm=QKNorm), "qk_norm", "class QKNorm"),
    (lambda: layer(sinks=0.5), "sinks", "0.5"),
    (lambda: layer(sinks=Sinks), "sinks", "class Sinks"),
    (lambda: layer(scale=NAN), "scale", "nan"),
    (lambda: layer(scale=-INF), "scale", "-inf"),
    (lambda: layer(scale="auto"), "scale", "'auto'"),
    (lambda: layer(scale=1j), "scale", "1j"),
    (lambda: layer(scale=torch.tensor(0.5)), "scale", "tensor(0.5000)"),
    (lambda: layer(softcap=NAN), "softcap", "nan"),
    (lambda: layer(softcap=INF), "softcap", "inf"),
    (lambda: layer(softcap="50"), "softcap", "'50'"),
    (lambda: layer(dropout=NAN), "dropout", "nan"),
    (lambda: layer(dropout="0.1"), "dropout", "'0.1'"),
    (lambda: layer(dropout=None), "dropout", "None"),
    (lambda: layer(init="xavier"), "init", "'xavier'"),
    (lambda: layer(init=5), "init", "5"),
    (lambda: layer(init=init.Xavier), "init", "class Xavier"),
    (lambda: layer(init=nn.init.xavier_uniform_), "init", "xavier_uniform_"),
    (lambda: layer(device="gpu"), "device", "'gpu'"),
    (lambda: layer(device="cpu:x"), "device", "'cpu:x'"),
    (lambda: layer(device=1.5), "device", "1.5"),
    (lambda: layer(device="xla"), "device", "xla"),
    (lambda: layer(dtype="float32"), "dtype", "'float32'"),
    (lambda: layer(dtype=float), "dtype", "class float"),
    (lambda: layer(dtype=torch.int64), "dtype", "torch.int64"),
    (lambda: layer(dtype=torch.complex64), "dtype", "torch.complex64"),
    # sizes that no machine can hold
    (lambda: layer(10**12), "d_model", "1000000000000"),
    (lambda: layer(4 * 10**20), "d_model", "4" + "0" * 20),
    (lambda: layer(10**12, 10**12), "num_heads", "1000000000000"),
    (lambda: layer(head_dim=10**15), "head_dim", "1000000000000000"),
    (lambda: layer(value_dim=10**15), "value_dim", "1000000000000000"),
    (lambda: layer(d_key=10**15), "d_key", "1000000000000000"),
    (lambda: layer(d_out=10**15), "d_out", "1000000000000000"),
]

LATENT: list[Wrong] = [
    (lambda: latent(latent_dim=6.0), "latent_dim", "6.0"),
    (lambda: latent(nope_dim="4"), "nope_dim", "'4'"),
    (lambda: latent(rope_dim=0), "rope_dim", "0"),
    (lambda: latent(query_dim=1.5), "query_dim", "1.5"),
    (lambda: latent(query_dim=0), "query_dim", "0"),
    (lambda: latent(position=position.ALiBi(HEADS)), "position", "ALiBi"),
    (lambda: latent(position=position.Rotary), "position", "class Rotary"),
    (lambda: latent(bias="q"), "bias", "'q'"),
    (lambda: latent(scale=NAN), "scale", "nan"),
    (lambda: latent(scale="1"), "scale", "'1'"),
    (lambda: latent(dropout=1.5), "dropout", "1.5"),
    (lambda: latent(dropout="0"), "dropout", "'0'"),
    (lambda: latent(eps=-1.0), "eps", "-1.0"),
    (lambda: latent(eps="1e-6"), "eps", "'1e-6'"),
    (lambda: latent(device="gpu"), "device", "'gpu'"),
    (lambda: latent(dtype="half"), "dtype", "'half'"),
    (lambda: latent(d_model=10**15), "d_model", "1000000000000000"),
    (lambda: latent(num_heads=10**15), "num_heads", "1000000000000000"),
    (lambda: latent()([[1.0]]), "x", "[[1.0]]"),
    (lambda: latent()(None), "x", "None"),
    (lambda: latent()(x().to("meta")), "x", "meta"),
    (lambda: latent()(x(), absorb="yes"), "absorb", "'yes'"),
    (lambda: latent()(x(), cache=cache.Cross()), "cache", "Cross"),
    (lambda: latent()(x(), cache=cache.Growing), "cache", "class Growing"),
    (lambda: latent()(x(), head_gate=[1.0] * HEADS), "head_gate", "[1.0, 1.0"),
]

OPTIONS: list[Wrong] = [
    (lambda: QKNorm("layernorm"), "kind", "'layernorm'"),
    (lambda: QKNorm(nn.LayerNorm), "kind", "LayerNorm"),
    (lambda: QKNorm(when="never"), "when", "'never'"),
    (lambda: QKNorm(eps=NAN), "eps", "nan"),
    (lambda: QKNorm(eps=-1e-6), "eps", "-1e-06"),
    (lambda: QKNorm(eps="1e-6"), "eps", "'1e-6'"),
    (lambda: Sinks(NAN), "init", "nan"),
    (lambda: Sinks(INF), "init", "inf"),
    (lambda: Sinks("0"), "init", "'0'"),
    (lambda: Sinks(None), "init", "None"),
    (lambda: init.Xavier(NAN), "gain", "nan"),
    (lambda: init.Xavier("1"), "gain", "'1'"),
    (lambda: init.XavierPerHead(-1.0), "gain", "-1.0"),
    (lambda: init.Normal(-0.02), "std", "-0.02"),
    (lambda: init.Normal(INF), "std", "inf"),
    (lambda: init.Normal(0.02, layers=0), "layers", "0"),
    (lambda: init.Normal(0.02, layers=2.5), "layers", "2.5"),
]

POSITION: list[Wrong] = [
    (lambda: position.Rotary("10000"), "base", "'10000'"),
    (lambda: position.Rotary(None), "base", "None"),
    (lambda: position.Rotary(NAN), "base", "nan"),
    (lambda: position.Rotary(INF), "base", "inf"),
    (lambda: position.Rotary(1.0), "base", "1.0"),
    (lambda: position.Rotary(dim="half"), "dim", "'half'"),
    (lambda: position.Rotary(dim=NAN), "dim", "nan"),
    (lambda: position.Rotary(dim=INF), "dim", "inf"),
    (lambda: position.Rotary(dim=3), "dim", "3"),
    (lambda: position.Rotary(dim=4.0), "dim", "4.0"),
    (lambda: position.Rotary(interleaved="no"), "interleaved", "'no'"),
    (lambda: position.Rotary(scaling="linear"), "scaling", "'linear'"),
    (lambda: position.Rotary(scaling=2.0), "scaling", "2.0"),
    (lambda: position.Rotary(scaling={"type": "linear", "factor": 2.0}), "scaling", "'linear'"),
    (lambda: position.Rotary(scaling=position.Linear), "scaling", "class Linear"),
    (lambda: position.Rotary(angle_dtype="float64"), "angle_dtype", "'float64'"),
    (lambda: position.Rotary(angle_dtype=torch.float16), "angle_dtype", "torch.float16"),
    (lambda: position.Rotary()([1.0]), "x", "[1.0]"),
    (lambda: position.Rotary()(kv(), [0, 1, 2]), "positions", "[0, 1, 2]"),
    (lambda: position.Rotary()(kv(), 1.5), "positions", "1.5"),
    (lambda: position.Rotary()(kv(), torch.rand(3)), "positions", "torch.float32"),
    (lambda: position.Linear("2"), "factor", "'2'"),
    (lambda: position.Linear(NAN), "factor", "nan"),
    (lambda: position.Linear(INF), "factor", "inf"),
    (lambda: position.Linear(0), "factor", "0"),
    (lambda: position.NTK(-1.0), "factor", "-1.0"),
    (lambda: position.NTK(None), "factor", "None"),
    (lambda: position.DynamicNTK(2.0, 0), "original", "0"),
    (lambda: position.DynamicNTK(2.0, 8.5), "original", "8.5"),
    (lambda: position.DynamicNTK(2.0, "8"), "original", "'8'"),
    (lambda: position.YaRN(NAN, 8), "factor", "nan"),
    (lambda: position.YaRN(2.0, None), "original", "None"),
    (lambda: position.YaRN(2.0, 8, beta_fast=NAN), "beta_fast", "nan"),
    (lambda: position.YaRN(2.0, 8, beta_fast=1.0), "beta_fast", "1.0"),
    (lambda: position.YaRN(2.0, 8, beta_slow=0.0), "beta_slow", "0.0"),
    (lambda: position.YaRN(2.0, 8, attention_factor=NAN), "attention_factor", "nan"),
    (lambda: position.YaRN(2.0, 8, truncate="no"), "truncate", "'no'"),
    (lambda: position.Llama3(8.0, 1, INF, 8), "high", "inf"),
    (lambda: position.Llama3(8.0, "1", 4, 8), "low", "'1'"),
    (lambda: position.Llama3(8.0, 4, 1, 8), "high", "1"),
    (lambda: position.Llama3(8.0, 1, 4, -8), "original", "-8"),
    (lambda: position.ALiBi(), "num_heads", "None"),
    (lambda: position.ALiBi(4.0), "num_heads", "4.0"),
    (lambda: position.ALiBi("4"), "num_heads", "'4'"),
    (lambda: position.ALiBi(-4), "num_heads", "-4"),
    (lambda: position.ALiBi(10**12), "num_heads", "1000000000000"),
    (lambda: position.ALiBi(slopes=[0.5, NAN]), "slopes", "nan"),
    (lambda: position.ALiBi(slopes=[INF]), "slopes", "inf"),
    (lambda: position.ALiBi(slopes=torch.tensor([0.5, NAN])), "slopes", "nan"),
    (lambda: position.ALiBi(slopes="0.5"), "slopes", "'0.5'"),
    (lambda: position.ALiBi(slopes=0.5), "slopes", "0.5"),
    (lambda: position.ALiBi(slopes=[[0.5]]), "slopes", "[0.5]"),
    (lambda: position.ALiBi(slopes=torch.ones(2, 2)), "slopes", "(2, 2)"),
    (lambda: position.ALiBi(2, slopes=[0.5]), "num_heads", "2"),
    (lambda: position.ALiBi(2, learned="no"), "learned", "'no'"),
    (lambda: position.ALiBi(2, learned=True, device="gpu"), "device", "'gpu'"),
    (lambda: position.ALiBi(2, learned=True, dtype=torch.int32), "dtype", "torch.int32"),
    (lambda: position.RelativeBias(4.0), "num_heads", "4.0"),
    (lambda: position.RelativeBias(None), "num_heads", "None"),
    (lambda: position.RelativeBias(10**15), "num_heads", "1000000000000000"),
    (lambda: position.RelativeBias(4, buckets=32.0), "buckets", "32.0"),
    (lambda: position.RelativeBias(4, buckets=-2), "buckets", "-2"),
    (lambda: position.RelativeBias(4, max_distance=NAN), "max_distance", "nan"),
    (lambda: position.RelativeBias(4, max_distance=10**15), "max_distance", "1000000000000000"),
    (lambda: position.RelativeBias(4, bidirectional="no"), "bidirectional", "'no'"),
    (lambda: position.RelativeBias(4, dtype="half"), "dtype", "'half'"),
]

# ---- masks ----------------------------------------------------------------------------------------------

MASK: list[Wrong] = [
    (lambda: mask.window(2.5), "left", "2.5"),
    (lambda: mask.window("3"), "left", "'3'"),
    (lambda: mask.window(None), "left", "None"),
    (lambda: mask.window(0), "left", "0"),
    (lambda: mask.window(3, -1), "right", "-1"),
    (lambda: mask.window(3, 1.5), "right", "1.5"),
    (lambda: mask.window(3, first=NAN), "first", "nan"),
    (lambda: mask.lengths(5), "lengths", "5"),
    (lambda: mask.lengths(None), "lengths", "None"),
    (lambda: mask.lengths("73"), "lengths", "'73'"),
    (lambda: mask.lengths([7, 1.5]), "lengths", "1.5"),
    (lambda: mask.lengths([True, False]), "lengths", "True"),
    (lambda: mask.lengths([[7], [3]]), "lengths", "[7]"),
    (lambda: mask.lengths(np.array([1.5], dtype=np.float32)), "lengths", "1.5"),
    (lambda: mask.lengths([torch.tensor(1.5)]), "lengths", "tensor(1.5000)"),
    (lambda: mask.lengths(torch.tensor([1.5])), "lengths", "torch.float32"),
    (lambda: mask.lengths(torch.tensor([1j])), "lengths", "torch.complex64"),
    (lambda: mask.lengths(torch.ones(2, 2, dtype=torch.long)), "lengths", "(2, 2)"),
    (lambda: mask.ragged(5), "lengths", "5"),
    (lambda: mask.ragged([7, "3"]), "lengths", "'3'"),
    (lambda: mask.prefix(2.5), "lengths", "2.5"),
    (lambda: mask.prefix(None), "lengths", "None"),
    (lambda: mask.prefix([1, None]), "lengths", "None"),
    (lambda: mask.padding([[True, False]]), "real", "[[True, False]]"),
    (lambda: mask.padding(None), "real", "None"),
    (lambda: mask.padding(torch.ones(2, 5)), "real", "torch.float32"),
    (lambda: mask.padding(bools(5)), "real", "(5,)"),
    (lambda: mask.documents(), "ids", "neither"),
    (lambda: mask.documents([0, 1], offsets=[0, 2]), "ids", "both"),
    (lambda: mask.documents([0, 0.5]), "ids", "0.5"),
    (lambda: mask.documents("001"), "ids", "'001'"),
    (lambda: mask.documents([[0, 0], [1, 1]]), "ids", "[0, 0]"),
    (lambda: mask.documents(torch.rand(4)), "ids", "torch.float32"),
    (lambda: mask.documents(torch.zeros(1, 2, 3, dtype=torch.long)), "ids", "(1, 2, 3)"),
    (lambda: mask.documents(offsets=5), "offsets", "5"),
    (lambda: mask.documents(offsets=[0, 2.5]), "offsets", "2.5"),
    (lambda: mask.documents(offsets=[1, 3]), "offsets", "[1, 3]"),
    (lambda: mask.documents(offsets=[0, 3, 2]), "offsets", "[0, 3, 2]"),
    (lambda: mask.tensor([[True]]), "allowed", "[[True]]"),
    (lambda: mask.tensor(None), "allowed", "None"),
    (lambda: mask.tensor(np.ones((5, 5), dtype=bool)), "allowed", "ndarray"),
    (lambda: mask.tensor(torch.ones(5, 5)), "allowed", "torch.float32"),
    (lambda: mask.tensor(bools(5)), "allowed", "(5,)"),
    (lambda: mask.additive([[0.0]]), "scores", "[[0.0]]"),
    (lambda: mask.additive(bools(5, 5)), "scores", "torch.bool"),
    (lambda: mask.additive(wrong_at(NAN)), "scores", "nan"),
    (lambda: mask.additive(wrong_at(INF)), "scores", "inf"),
    (lambda: layer()(x(), mask=wrong_at(NAN)), "mask", "nan"),
    (lambda: layer()(x(), mask=wrong_at(INF)), "mask", "inf"),
    (lambda: mask.where("causal"), "rule", "'causal'"),
    (lambda: mask.where(None), "rule", "None"),
    (lambda: mask.where(bools(5, 5)), "rule", "Tensor"),
    (
        lambda: layer()(x(), mask=mask.where(lambda query, key: key <= query)),
        "rule",
        "takes 2 positional arguments",
    ),
    (lambda: mask.causal() & bools(5, 5), "mask.tensor", "Tensor"),
    (lambda: bools(5, 5) & mask.causal(), "mask.tensor", "Tensor"),
    (lambda: bools(5, 5) | mask.causal(), "mask.tensor", "Tensor"),
    (lambda: np.ones((2, 2), dtype=bool) & mask.causal(), "mask", "bool"),
    (lambda: mask.causal() & None, "mask", "None"),
    (lambda: mask.causal() & mask.window, "mask", "window"),
    (lambda: mask.causal() | 5, "mask", "5"),
    (lambda: mask.causal() and mask.window(3), "causal()", "&"),
    (lambda: mask.causal() or mask.window(3), "causal()", "|"),
    (lambda: not mask.window(3), "window(3)", "not"),
    (lambda: ~mask.window(3), "window(3)", "inverted"),
    (lambda: mask.additive(torch.zeros(5, 5)) | mask.causal(), "additive(5 x 5)", "|"),
    (lambda: mask.causal().tensor(2.5), "queries", "2.5"),
    (lambda: mask.causal().tensor(-1), "queries", "-1"),
    (lambda: mask.causal().tensor(2, "3"), "keys", "'3'"),
    (lambda: mask.causal().draw(5, row=1.5), "row", "1.5"),
    (lambda: mask.causal().draw(5, head=-1), "head", "-1"),
]

# ---- calls ----------------------------------------------------------------------------------------------

CALL: list[Wrong] = [
    (lambda: layer()(None), "query", "None"),
    (lambda: layer()([[1.0]]), "query", "[[1.0]]"),
    (lambda: layer()(np.ones((1, 2, WIDTH))), "query", "ndarray"),
    (lambda: layer()(x(), [[1.0]]), "key", "list"),
    (lambda: layer()(x(), x(), np.ones(3)), "value", "ndarray"),
    (lambda: layer()(x(), [[1.0]], cache=cache.Cross()), "key", "list"),
    (lambda: layer()(x(), x(), [[1.0]], cache=cache.Cross()), "value", "list"),
    (lambda: recalled([[1.0]]), "key", "list"),
    (lambda: recalled(x()), "key", "(2, 5, 24)"),
    (lambda: recalled(None, x()), "value", "(2, 5, 24)"),
    (lambda: layer()(x(), [[1.0]], cache=cache.Growing()), "key", "list"),
    (lambda: layer()(x(), mask="causal"), "mask", "'causal'"),
    (lambda: layer()(x(), mask=mask.causal), "mask", "causal"),
    (lambda: layer()(x(), mask=np.ones((5, 5), dtype=bool)), "mask", "ndarray"),
    (lambda: layer()(x(), mask=[mask.causal()]), "mask", "[causal()]"),
    (lambda: layer()(x(), cache=cache.Growing), "cache", "class Growing"),
    (lambda: layer()(x(), cache="growing"), "cache", "'growing'"),
    (lambda: layer()(x(), cache=[cache.Growing()]), "cache", "Growing"),
    (lambda: layer()(x(), cache=True), "cache", "True"),
    (lambda: layer()(x(), cache=cache.Cross()), "key", "Cross"),
    (lambda: layer()(x(), positions=torch.arange(5)), "positions", "(5,)"),
    (lambda: rotary_layer()(x(), positions=[0, 1, 2, 3, 4]), "positions", "[0, 1, 2, 3, 4]"),
    (lambda: rotary_layer()(x(), positions=3), "positions", "3"),
    (lambda: rotary_layer()(x(), positions=torch.rand(5)), "positions", "torch.float32"),
    (lambda: rotary_layer()(x(), positions=torch.arange(5, device="meta")), "positions", "meta"),
    (lambda: layer()(x(), head_gate=[1.0] * HEADS), "head_gate", "[1.0, 1.0"),
    (lambda: layer()(x(), head_gate=0.5), "head_gate", "0.5"),
    (lambda: layer()(x(), head_gate=torch.ones(HEADS, device="meta")), "head_gate", "meta"),
    (lambda: layer()(x(), ask="weight"), "ask", "'weight'"),
    (lambda: layer()(x(), ask=True), "ask", "True"),
    (lambda: layer()(x(), ask=Ask), "ask", "class Ask"),
    (lambda: layer()(x(), ask=["lse", 5]), "ask", "5"),
    (lambda: layer()(x(), ask=[["lse"]]), "ask", "['lse']"),
    (lambda: layer()(x(), ask=[None]), "ask", "None"),
    (lambda: layer()(x(), ask=Cells(rows=[9])), "row", "9"),
    (lambda: layer()(x(), route="flash"), "route", "'flash'"),
    (lambda: layer()(x(), route=5), "route", "5"),
    (lambda: layer()(x(), route=["fused"]), "route", "['fused']"),
    (lambda: Cells(rows=[0.5]), "rows", "0.5"),
    (lambda: Cells(rows=0), "rows", "0"),
    (lambda: Cells(heads="01"), "heads", "'01'"),
    (lambda: Cells(heads=[None]), "heads", "None"),
    (lambda: Cells(heads=[True]), "heads", "True"),
    (lambda: Ask(weights="all"), "weights", "'all'"),
    (lambda: Ask(weights=Cells), "weights", "class Cells"),
    (lambda: Ask(lse="yes"), "lse", "'yes'"),
    (lambda: Ask(heads=[0]), "heads", "[0]"),
    (lambda: layer().explain(None), "query", "None"),
    (lambda: layer().explain(x(), mask="causal"), "mask", "'causal'"),
    (lambda: layer().explain(x(), cache=cache.Growing), "cache", "class Growing"),
    (lambda: layer().explain(x(), route="flash"), "route", "'flash'"),
    # other devices
    (lambda: layer()(x().to("meta")), "query", "meta"),
    (lambda: layer(device="meta")(x()), "query", "meta"),
    (lambda: layer()(x(), x().to("meta")), "key", "meta"),
    (lambda: layer()(x(), mask=bools(5, 5).to("meta")), "tensor(5 x 5)", "meta"),
    (lambda: layer()(x(), mask=torch.zeros(5, 5, device="meta")), "additive(5 x 5)", "meta"),
    (lambda: layer()(x(), mask=mask.padding(bools(2, 5).to("meta"))), "padding(2 x 5)", "meta"),
    (lambda: layer()(x(), mask=mask.lengths(torch.tensor([5, 3]).to("meta"))), "lengths", "meta"),
    (lambda: layer()(x(), mask=mask.documents(torch.zeros(5).long().to("meta"))), "documents", "meta"),
    (lambda: layer()(x(), cache=static(device="meta")), "Static", "meta"),
]

# ---- caches ---------------------------------------------------------------------------------------------

CACHE: list[Wrong] = [
    (lambda: static(batch=2.0), "batch", "2.0"),
    (lambda: static(kv_heads="4"), "kv_heads", "'4'"),
    (lambda: static(capacity=-1), "capacity", "-1"),
    (lambda: static(capacity=8.5), "capacity", "8.5"),
    (lambda: static(capacity=None), "capacity", "None"),
    (lambda: static(capacity=10**15), "capacity", "1000000000000000"),
    (lambda: static(capacity=10**25), "capacity", "1" + "0" * 25),
    (lambda: static(key_dim=NAN), "key_dim", "nan"),
    (lambda: static(value_dim=1.5), "value_dim", "1.5"),
    (lambda: static(dtype="float32"), "dtype", "'float32'"),
    (lambda: static(dtype=torch.int8), "dtype", "torch.int8"),
    (lambda: static(device="gpu"), "device", "'gpu'"),
    (lambda: cache.Ring(0), "window", "0"),
    (lambda: cache.Ring(2.5), "window", "2.5"),
    (lambda: cache.Ring("4"), "window", "'4'"),
    (lambda: cache.Ring(4, first=-1), "first", "-1"),
    (lambda: cache.Ring(4, first=0.5), "first", "0.5"),
    (lambda: cache.Ring(10**15).append(kv(), kv()), "capacity", "1000000000000000"),
    (lambda: cache.Growing().append([1.0], kv()), "k", "[1.0]"),
    (lambda: cache.Growing().append(kv(), None), "v", "None"),
    (lambda: cache.Growing().append(kv(), kv(2)), "v", "(2, 4, 2, 6)"),
    (lambda: cache.Growing().append(kv(), kv()[0]), "v", "(4, 3, 6)"),
    (lambda: cache.Growing().append(kv(), kv().double()), "v", "torch.float64"),
    (lambda: cache.Growing().append(kv(), kv().to("meta")), "v", "meta"),
    (lambda: cache.Growing().append(kv().long(), kv().long()), "k", "torch.int64"),
    (lambda: cache.Growing().append(kv(), kv(), 3), "lengths", "3"),
    (lambda: cache.Growing().append(kv(), kv(), [3, 1.5]), "lengths", "1.5"),
    (lambda: cache.Growing().append(kv(), kv(), torch.tensor([3.0, 1.5])), "lengths", "torch.float32"),
    (lambda: cache.Growing().append(kv(), kv(), [3]), "lengths", "[3]"),
    (lambda: cache.Growing().append(kv(), kv(), [3, 4]), "lengths", "[3, 4]"),
    (lambda: cache.Growing().append(kv(), kv(), "33"), "lengths", "'33'"),
    (lambda: cache.Cross().append(kv(), kv(), [3, -1]), "lengths", "-1"),
    (lambda: filled().crop(1.5), "tokens", "1.5"),
    (lambda: filled().crop(-1), "tokens", "-1"),
    (lambda: filled().crop(None), "tokens", "None"),
    (lambda: filled().crop(True), "tokens", "True"),
    (lambda: filled(cache.Ring(4)).crop("3"), "tokens", "'3'"),
    (lambda: filled(cache.Cross()).crop(0.5), "tokens", "0.5"),
    (lambda: filled().reorder([1, 0]), "index", "[1, 0]"),
    (lambda: filled().reorder(None), "index", "None"),
    (lambda: filled().reorder(torch.tensor([0.5, 1.0])), "index", "torch.float32"),
    (lambda: filled().reorder(torch.tensor([True, False])), "index", "torch.bool"),
    (lambda: filled().reorder(torch.tensor([[0, 1]])), "index", "(1, 2)"),
    (lambda: filled().reorder(torch.tensor([0, 2])), "index", "[0, 2]"),
    (lambda: filled(static()).reorder(torch.tensor([0])), "index", "1"),
    (lambda: cache.Growing().reorder(torch.tensor([0])), "index", "[0]"),
]

DROPIN: list[Wrong] = [
    (lambda: Dropin(24.0, 4), "embed_dim", "24.0"),
    (lambda: Dropin("24", 4), "embed_dim", "'24'"),
    (lambda: Dropin(24, None), "num_heads", "None"),
    (lambda: Dropin(24, 5), "num_heads", "5"),
    (lambda: Dropin(24, -4), "num_heads", "-4"),
    (lambda: Dropin(10**12, 4), "embed_dim", "1000000000000"),
    (lambda: Dropin(24, 4, dropout=NAN), "dropout", "nan"),
    (lambda: Dropin(24, 4, dropout=1.5), "dropout", "1.5"),
    (lambda: Dropin(24, 4, dropout="0.1"), "dropout", "'0.1'"),
    (lambda: Dropin(24, 4, kdim=1.5), "kdim", "1.5"),
    (lambda: Dropin(24, 4, vdim="8"), "vdim", "'8'"),
    (lambda: Dropin(24, 4, device="gpu"), "device", "'gpu'"),
    (lambda: Dropin(24, 4, dtype="half"), "dtype", "'half'"),
    (lambda: dropin(None, x(), x()), "query", "None"),
    (lambda: dropin([[1.0]], x(), x()), "query", "list"),
    (lambda: dropin(x(), None, x()), "key", "None"),
    (lambda: dropin(x(), x(), np.ones(3)), "value", "ndarray"),
    (lambda: dropin(x(), x(), x(), attn_mask=[[True]]), "attn_mask", "[[True]]"),
    (lambda: dropin(x(), x(), x(), attn_mask=mask.causal()), "attn_mask", "causal()"),
    (lambda: dropin(x(), x(), x(), key_padding_mask=[True]), "key_padding_mask", "[True]"),
    (lambda: dropin(x()[0], x()[0], x()[0], key_padding_mask=[True]), "key_padding_mask", "[True]"),
    (lambda: dropin(x(), x(), x(), attn_mask=bools(5, 5).to("meta")), "tensor(5 x 5)", "meta"),
    (lambda: replace_all(None), "model", "None"),  # type: ignore[arg-type]
    (lambda: replace_all("model"), "model", "'model'"),  # type: ignore[arg-type]
    (lambda: replace_all(nn.Transformer), "model", "class Transformer"),  # type: ignore[arg-type]
    (lambda: replace_all(nn.Linear(2, 2)), "MultiheadAttention", "Linear"),
]

PARALLEL: list[Wrong] = [
    (lambda: tensor_parallel_plan(None), "module", "None"),  # type: ignore[arg-type]
    (lambda: tensor_parallel_plan("attn"), "module", "'attn'"),  # type: ignore[arg-type]
    (lambda: tensor_parallel_plan(mh.MultiHeadAttention), "module", "class MultiHeadAttention"),  # type: ignore[arg-type]
    (lambda: tensor_parallel_plan(nn.Linear(2, 2)), "MultiHeadAttention", "Linear"),
    (lambda: context_parallel(None, 8), "mesh", "None"),  # type: ignore[arg-type]
    (lambda: context_parallel("cpu", 8), "mesh", "'cpu'"),  # type: ignore[arg-type]
    (lambda: context_parallel(DeviceMesh, 8), "mesh", "class DeviceMesh"),  # type: ignore[arg-type]
    (lambda: context_parallel(mesh(), 8.5), "tokens", "8.5"),  # type: ignore[arg-type]
    (lambda: context_parallel(mesh(), "8"), "tokens", "'8'"),  # type: ignore[arg-type]
    (lambda: context_parallel(mesh(), 1), "tokens", "1"),
    (lambda: context_parallel(mesh(), 8).split([1.0]), "x", "[1.0]"),  # type: ignore[arg-type]
    (lambda: context_parallel(mesh(), 8).join(None), "x", "None"),  # type: ignore[arg-type]
]

WRONG = [*LAYER, *LATENT, *OPTIONS, *POSITION, *MASK, *CALL, *CACHE, *DROPIN, *PARALLEL]


@pytest.fixture(scope="module", autouse=True)
def _one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(autouse=True)
def _as_users_run() -> None:
    """Annotations are not checked: every call here violates one."""
    annotation_checks.active = False


@torch.no_grad()
@pytest.mark.parametrize("call, argument, value", WRONG, ids=[f"{name}={value}" for _, name, value in WRONG])
def test_wrong_use_is_refused_by_name(call: Callable[[], Any], argument: str, value: str) -> None:
    with pytest.raises(mh.MultiheadError) as caught:
        call()
    for part in (argument, value):
        assert re.search(rf"(?<!\w){re.escape(part)}(?!\w)", str(caught.value)), f"{part!r} not in: {caught.value}"
    assert caught.value.hint


# ---- nothing is changed ---------------------------------------------------------------------------------

KINDS: dict[str, Callable[[], Any]] = {
    "growing": lambda: cache.Growing(),
    "static": lambda: static(),
    "ring": lambda: cache.Ring(4),
}

REFUSED: dict[str, Callable[[Any, Any], object]] = {
    "crop": lambda attn, kept: kept.crop(1.5),
    "reorder": lambda attn, kept: kept.reorder([1, 0]),
    "reorder by floats": lambda attn, kept: kept.reorder(torch.tensor([1.0, 0.0])),
    "append lists": lambda attn, kept: kept.append([1.0], [1.0]),
    "append other dtypes": lambda attn, kept: kept.append(kv(1), kv(1).double()),
    "append by fractions": lambda attn, kept: kept.append(kv(1), kv(1), [1, 0.5]),
    "another layer": lambda attn, kept: layer()(x(1), cache=kept),
    "a key": lambda attn, kept: attn(x(1), x(1), cache=kept),
    "a list": lambda attn, kept: attn([[1.0]], cache=kept),
    "mask": lambda attn, kept: attn(x(1), mask="causal", cache=kept),
    "NaN": lambda attn, kept: attn(x(1), mask=torch.full((1, 4), NAN), cache=kept),
    "gate": lambda attn, kept: attn(x(1), head_gate=[1.0], cache=kept),
    "route": lambda attn, kept: attn(x(1), route=["fused"], cache=kept),
    "ask": lambda attn, kept: attn(x(1), ask=[["lse"]], cache=kept),
    "cells": lambda attn, kept: attn(x(1), ask=Cells(rows=[1]), cache=kept),
    "positions": lambda attn, kept: attn(x(1), positions=torch.arange(1), cache=kept),
}


def contents(kept: Any) -> dict[str, Any]:
    return {name: v.tolist() if isinstance(v, Tensor) else v for name, v in vars(kept).items()}


@torch.no_grad()
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_call_changes_no_cache(kind: str, name: str) -> None:
    attn, kept, text = layer().eval(), KINDS[kind](), x(4)
    attn(text[:, :3], cache=kept)
    before, weights = contents(kept), [p.clone() for p in attn.parameters()]
    with pytest.raises(mh.MultiheadError):
        REFUSED[name](attn, kept)
    assert contents(kept) == before
    assert_close(list(attn.parameters()), [nn.Parameter(w) for w in weights])
    assert_close(attn(text[:, 3:], cache=kept), attn(text)[:, 3:])


@pytest.mark.parametrize("kind", [*KINDS, "cross"])
def test_one_cache_of_two_layers(kind: str) -> None:
    first, second, kept = layer(), layer(), cache.Cross() if kind == "cross" else KINDS[kind]()
    key = x(3) if kind == "cross" else None
    with torch.no_grad():
        first(x(3), key, cache=kept)
        with pytest.raises(CacheError, match="different layer"):
            second(x(3), key, cache=kept)
        del first
        with pytest.raises(CacheError, match="different layer"):
            second(x(3), key, cache=kept)


def test_a_cache_takes_floats() -> None:
    with pytest.raises(CacheError, match="int64"):
        cache.Growing().append(torch.ones(1, 2, 3, 4, dtype=torch.long), torch.ones(1, 2, 3, 4, dtype=torch.long))


def test_a_mask_cannot_be_inverted() -> None:
    with pytest.raises(mh.MultiheadError, match=r"causal\(\) cannot be inverted"):
        ~mask.causal()


@torch.no_grad()
def test_a_static_cache_of_other_values_keeps_its_lengths() -> None:
    kept = static(value_dim=5)
    with pytest.raises(CacheError, match=r"v .*\(2, 4, 5\), got \(2, 4, 6\)"):
        layer()(x(), cache=kept)
    assert kept.length == 0


# ---- a trained mask -------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", [None, "blocked", "reference"])
@pytest.mark.parametrize("value", [NAN, INF])
def test_a_trained_mask_that_diverges_shows_in_the_output(value: float, route: str | None) -> None:
    """It is not refused, as a weight is not; it never means "hidden"."""
    scores = nn.Parameter(wrong_at(value))
    for seen in (mask.everything(), mask.causal()):
        out = layer()(x(), mask=mask.additive(scores) & seen, route=route)
        assert out[:, 3].isnan().all()
        assert out[:, [0, 1, 2, 4]].isfinite().all()


@pytest.mark.parametrize("value", [NAN, INF])
def test_a_constant_mask_that_is_changed_later_shows_in_the_output(value: float) -> None:
    scores = torch.zeros(5, 5)
    seen = mask.additive(scores)
    scores[3, 1] = value
    assert layer()(x(), mask=seen)[:, 3].isnan().all()


def test_a_mask_of_nan_shows_in_the_drop_in_as_in_torch() -> None:
    text = x()
    out, _ = dropin(text, text, text, attn_mask=wrong_at(NAN))
    assert out[:, 3].isnan().all()
    assert out[:, [0, 1, 2, 4]].isfinite().all()


# ---- unusual, and right ---------------------------------------------------------------------------------


def test_lengths_of_any_integers() -> None:
    for lengths in ((n for n in (3, 2)), np.array([3, 2]), [torch.tensor(3), np.int64(2)], range(3, 1, -1)):
        assert repr(mask.lengths(lengths)) == "lengths([3, 2])"


def test_cells_and_slopes_of_any_sequence() -> None:
    assert Cells(heads=(h for h in (0, 2)), rows=np.array([1])) == Cells(heads=[0, 2], rows=(1,))
    assert position.ALiBi(slopes=np.array([0.5, 0.25], dtype=np.float32)).slopes.tolist() == [0.5, 0.25]


def test_an_additive_mask_may_hide_everything() -> None:
    out = layer(bias=False)(x(), mask=torch.full((5, 5), -INF))
    assert_close(out, torch.zeros_like(out))


def test_integers_where_floats_are_expected() -> None:
    attn = layer(scale=1, softcap=50, dropout=0, sinks=Sinks(0), qk_norm=QKNorm(eps=0))
    assert attn(x()).isfinite().all()
    assert position.Rotary(10_000, scaling=position.YaRN(2, 8, 32, 1)).base == 10_000.0


def test_a_layer_of_no_heads() -> None:
    attn = layer(num_heads=0, head_dim=6, bias=False)
    assert not attn(x()).any()
