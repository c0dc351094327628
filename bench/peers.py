"""The contestants, each given our weights so that it computes the same function.

No biases anywhere: x-transformers has none. HF's LlamaAttention always rotates, so where the work has no
rotation it is given the angle 0 (and does that much more).
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multihead import MultiHeadAttention

HAND, TORCH, XT, TUNE, LLAMA, EXPLICIT, FLAX = (
    "hand-written SDPA", "nn.MultiheadAttention", "x-transformers", "torchtune", "HF LlamaAttention",
    "explicit textbook", "flax nnx",
)  # fmt: skip
NAMES = (HAND, TORCH, XT, TUNE, LLAMA, EXPLICIT, FLAX)

Rotation = tuple[Tensor, Tensor]


class HandWritten(nn.Module):
    """One fused qkv linear and F.scaled_dot_product_attention: what one writes without any library."""

    def __init__(
        self, ours: MultiHeadAttention, causal: bool = False, rotation: Rotation | None = None, *,
        mask: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads, self.kv_heads, self.dropout = ours.num_heads, ours.num_kv_heads, ours.dropout
        self.causal, self.rotation, self.mask = causal, rotation, mask
        self.sizes = [p.out_features for p in (ours.q_proj, ours.k_proj, ours.v_proj)]
        self.qkv = _linear(torch.cat([ours.q_proj.weight, ours.k_proj.weight, ours.v_proj.weight]))
        self.out = _linear(ours.o_proj.weight)

    def forward(self, x: Tensor) -> Tensor:
        out = F.scaled_dot_product_attention(
            *self.project(x), attn_mask=self.mask, is_causal=self.causal,
            dropout_p=self.dropout if self.training else 0.0, enable_gqa=self.heads != self.kv_heads,
        )  # fmt: skip
        return self.out(out.transpose(1, 2).flatten(2))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(x).split(self.sizes, -1)
        q, k, v = (_split(q, self.heads), _split(k, self.kv_heads), _split(v, self.kv_heads))
        if self.rotation is not None:
            q, k = _rotated(q, self.rotation), _rotated(k, self.rotation)
        return q, k, v


class HandWrittenDecoder(HandWritten):
    """The same, one token at a time, over keys and values that are allocated once."""

    def __init__(self, ours: MultiHeadAttention, k: Tensor, v: Tensor, rotation: Rotation) -> None:
        super().__init__(ours, rotation=rotation)
        self.seen = k.shape[2]
        self.k, self.v = F.pad(k, (0, 0, 0, 16)), F.pad(v, (0, 0, 0, 16))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x)
        end = self.seen + 1
        self.k[:, :, self.seen : end], self.v[:, :, self.seen : end] = k, v
        out = F.scaled_dot_product_attention(q, self.k[:, :, :end], self.v[:, :, :end], enable_gqa=True)
        return self.out(out.transpose(1, 2).flatten(2))


class Textbook(nn.Module):
    """softmax(q kᵀ / √d) v with every weight written down and kept, as in the tutorials."""

    def __init__(self, ours: MultiHeadAttention, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = ours.num_heads, causal
        self.q_linear, self.k_linear = _linear(ours.q_proj.weight), _linear(ours.k_proj.weight)
        self.v_linear, self.out = _linear(ours.v_proj.weight), _linear(ours.o_proj.weight)
        self.dropout = nn.Dropout(ours.dropout)
        self.weights: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (_split(linear(x), self.heads) for linear in (self.q_linear, self.k_linear, self.v_linear))
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if self.causal:
            seen = torch.ones(tokens, tokens, dtype=torch.bool).tril()
            scores = scores.masked_fill(~seen, float("-inf"))
        weights = self.dropout(torch.softmax(scores, dim=-1))
        self.weights = weights.detach()
        return self.out((weights @ v).transpose(1, 2).reshape(batch, tokens, -1))


class TorchLayer(nn.Module):
    """nn.MultiheadAttention(need_weights=False); its mask polarity is the other way round."""

    def __init__(self, ours: MultiHeadAttention, causal: bool, tokens: int, padding: Tensor | None = None) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(
            ours.d_model, ours.num_heads, dropout=ours.dropout, bias=False, batch_first=True
        )
        with torch.no_grad():
            self.layer.in_proj_weight.copy_(torch.cat([ours.q_proj.weight, ours.k_proj.weight, ours.v_proj.weight]))
            self.layer.out_proj.weight.copy_(ours.o_proj.weight)
        self.padding = padding
        # The mask must be given even where the flag says it all.
        self.hidden = torch.ones(tokens, tokens, dtype=torch.bool).triu(1) if causal else None

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.layer(
            x, x, x, need_weights=False, attn_mask=self.hidden, is_causal=self.hidden is not None,
            key_padding_mask=self.padding,
        )  # fmt: skip
        return out


def x_transformers_layer(ours: MultiHeadAttention, causal: bool) -> nn.Module:
    from x_transformers import Attention

    theirs = Attention(
        ours.d_model, heads=ours.num_heads, dim_head=ours.head_dim, value_dim_head=ours.value_dim, causal=causal,
        flash=True, dropout=ours.dropout,
    )  # fmt: skip
    return _given(
        theirs, {theirs.to_q: ours.q_proj, theirs.to_k: ours.k_proj, theirs.to_v: ours.v_proj,
                 theirs.to_out: ours.o_proj},
    )  # fmt: skip


def torchtune_layer(ours: MultiHeadAttention, causal: bool) -> Callable[[Tensor], Tensor]:
    """Its file alone: the package's import wants an old torchao and a dozen packages that go unused here."""
    if "torchtune.modules.attention" not in sys.modules:
        spec = importlib.util.find_spec("torchtune")
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError("torchtune is not installed (pip install --no-deps torchtune)")
        for name in ("torchtune", "torchtune.modules", "torchtune.utils"):
            package = ModuleType(name)
            package.__path__ = [str(Path(spec.origin).parent.parent / name.replace(".", "/"))]
            sys.modules[name] = package
    from torchtune.modules.attention import MultiHeadAttention as Theirs

    layer = Theirs(
        embed_dim=ours.d_model, num_heads=ours.num_heads, num_kv_heads=ours.num_kv_heads, head_dim=ours.head_dim,
        q_proj=_linear(ours.q_proj.weight), k_proj=_linear(ours.k_proj.weight), v_proj=_linear(ours.v_proj.weight),
        output_proj=_linear(ours.o_proj.weight), is_causal=causal, attn_dropout=ours.dropout,
    )  # fmt: skip
    return _SelfAttention(layer)


class _SelfAttention(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, x)


def llama_layer(
    ours: MultiHeadAttention, causal: bool, rotation: Rotation, cache: object = None
) -> Callable[[Tensor], Tensor]:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaAttention

    config = LlamaConfig(
        hidden_size=ours.d_model, num_attention_heads=ours.num_heads, num_key_value_heads=ours.num_kv_heads,
        head_dim=ours.head_dim, attention_dropout=ours.dropout, attn_implementation="sdpa",
    )  # fmt: skip
    layer = LlamaAttention(config, layer_idx=0).to(ours.q_proj.weight.dtype)
    layer.is_causal = causal
    _given(layer, {getattr(layer, n): getattr(ours, n) for n in ("q_proj", "k_proj", "v_proj", "o_proj")})
    return _Llama(layer, rotation, cache)


class _Llama(nn.Module):
    def __init__(self, layer: nn.Module, rotation: Rotation, cache: object) -> None:
        super().__init__()
        self.layer, self.rotation, self.cache = layer, rotation, cache

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.layer(x, position_embeddings=self.rotation, attention_mask=None, past_key_values=self.cache)
        return out


def flax_job(
    ours: MultiHeadAttention, causal: bool, x: Tensor, grad: Tensor | None
) -> Callable[[], tuple[object, ...]]:
    """flax.nnx on the CPU through XLA, in this process; returns (out,) or (out, gradient of x)."""
    import jax
    import jax.numpy as jnp
    from flax import nnx

    d, h = ours.d_model, ours.num_heads
    layer = nnx.MultiHeadAttention(
        num_heads=h, in_features=d, use_bias=False, decode=False, dropout_rate=ours.dropout,
        broadcast_dropout=False, rngs=nnx.Rngs(0),
    )  # fmt: skip
    for theirs, weight in ((layer.query, ours.q_proj), (layer.key, ours.k_proj), (layer.value, ours.v_proj)):
        theirs.kernel = nnx.Param(jnp.asarray(weight.weight.detach().numpy().T.reshape(d, h, -1)))
    layer.out.kernel = nnx.Param(jnp.asarray(ours.o_proj.weight.detach().numpy().T.reshape(h, -1, d)))
    graph, state = nnx.split(layer)

    def forward(state: object, x: object, key: object, deterministic: bool) -> object:
        attend = nnx.merge(graph, state)
        return attend(x, is_causal=causal, deterministic=deterministic, rngs=nnx.Rngs(dropout=key))

    def step(state: object, x: object, g: object, key: object, deterministic: bool) -> object:
        out, back = jax.vjp(lambda s, y: forward(s, y, key, deterministic), state, x)
        return out, back(g)

    run = jax.jit(forward if grad is None else step, static_argnames="deterministic")
    inputs = [jnp.asarray(t.detach().numpy()) for t in ([x] if grad is None else [x, grad])]
    keys = iter(jax.random.split(jax.random.key(0), 10_000))
    training = bool(ours.dropout) and ours.training

    def job() -> tuple[object, ...]:
        result = jax.block_until_ready(run(state, *inputs, next(keys), deterministic=not training))
        return (result,) if grad is None else (result[0], result[1][1])

    return job


def rotation_of(
    tokens: int, head_dim: int, *, start: int = 0, base: float = 10000.0, still: bool = False
) -> Rotation:
    """cos and sin (1, tokens, head_dim), halves layout; `still`: the angle 0."""
    rate = base ** (-torch.arange(0, head_dim, 2).double() / head_dim) * (0.0 if still else 1.0)
    angle = torch.outer(torch.arange(start, start + tokens).double(), rate).repeat(1, 2)[None]
    return angle.cos().float(), angle.sin().float()


def _rotated(x: Tensor, rotation: Rotation) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * rotation[0][:, None] + torch.cat([-second, first], dim=-1) * rotation[1][:, None]


def _split(x: Tensor, heads: int) -> Tensor:
    """(batch, tokens, heads * dim) -> (batch, heads, tokens, dim)"""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def _given(theirs: nn.Module, pairs: dict[nn.Module, nn.Module]) -> nn.Module:
    with torch.no_grad():
        for mine, source in pairs.items():
            mine.weight.copy_(source.weight)
    return theirs


def _linear(weight: Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype)
    linear.weight = nn.Parameter(weight.detach().clone())
    return linear
