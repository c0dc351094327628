"""Layers whose answer is known: orthogonal heads, twins, and outputs and maps put in by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

import multihead as mh
from multihead.statements.collect_samples import layer_samples
from multihead.statements.layer_sample import LayerSample, SequenceSample


def turn(size: int, seed: int = 0) -> Tensor:
    """A random orthogonal matrix."""
    drawn = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(size, size, generator=drawn, dtype=torch.float64))[0]


def tokens(batch: int = 6, length: int = 13, width: int = 12, seed: int = 0) -> Tensor:
    return torch.randn(batch, length, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layer(d_model: int = 12, heads: int = 3, **options: object) -> mh.MultiHeadAttention:
    torch.manual_seed(1)
    made = mh.MultiHeadAttention(d_model, heads, dtype=torch.float64, **options)  # type: ignore[arg-type]
    return made.eval()


@torch.no_grad()
def orthogonal(d_model: int = 12, heads: int = 3) -> mh.MultiHeadAttention:
    """Each projection is an orthogonal matrix: heads read and write orthogonal spaces."""
    made = layer(d_model, heads)
    for seed, linear in enumerate((made.q_proj, made.k_proj, made.v_proj, made.o_proj)):
        linear.weight.copy_(turn(d_model, seed))
    return made


@torch.no_grad()
def twins(d_model: int = 12, heads: int = 3, sign: float = 1.0) -> mh.MultiHeadAttention:
    """Head 1 is head 0 again; with `sign` -1 it takes away what head 0 adds."""
    made = layer(d_model, heads)
    for linear in (made.q_proj, made.k_proj, made.v_proj):
        rows = linear.weight.view(heads, -1, d_model)
        rows[1] = rows[0]
    columns = made.o_proj.weight.view(d_model, heads, -1)
    columns[:, 1] = sign * columns[:, 0]
    columns[:, 2:] = 0 if sign < 0 else columns[:, 2:]
    return made


def subject(made: torch.nn.Module, x: Tensor | None = None) -> LayerSample:
    [found] = layer_samples(made, tokens() if x is None else x)
    return found


def with_outputs(base: LayerSample, z: Tensor) -> LayerSample:
    """The subject with these outputs of its heads, (token, head, value_dim), as one sequence."""
    return replace(base, sequences=[_sequence(base, len(z), len(z), z.transpose(0, 1).contiguous(), None)])


def with_maps(base: LayerSample, maps: Sequence[Tensor]) -> LayerSample:
    """The subject with these maps, (head, query, key) each."""
    return replace(base, sequences=[_sequence(base, *m.shape[1:], None, m.double()) for m in maps])


def _sequence(
    base: LayerSample, queries: int, keys: int, z: Tensor | None, attention: Tensor | None
) -> SequenceSample:
    """A sequence of zeros, but for what is given."""
    zeros = lambda *shape: torch.zeros(*shape, dtype=torch.float64)
    x = zeros(queries, base.d_model)
    memory = x if queries == keys else zeros(keys, base.d_model)
    return SequenceSample(
        x,
        memory,
        zeros(base.heads, queries, base.key_dim),
        zeros(base.kv_heads, keys, base.key_dim),
        zeros(base.kv_heads, keys, base.value_dim),
        zeros(base.heads, queries, base.value_dim) if z is None else z,
        attention,
    )
