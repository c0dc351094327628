"""Grouping of wide layers: what is held per head is bounded, and the result hardly changes by it."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import multihead as mh
from multihead._base.float64 import float64, float64_device
from multihead.edit.kv_sharing import coordinates
from multihead.edit.kv_sharing.cluster import cluster, sharing_cost
from multihead.edit.kv_sharing.coordinates import PrincipalCoordinates, leading_count
from multihead.edit.kv_sharing.input_moments import Moments, moments_of
from multihead.edit.kv_sharing.share import share_kv
from multihead.model.head_weights import HeadWeights
from multihead.model.layer_anatomy import LayerAnatomy


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


class LiveBytes(TorchDispatchMode):
    """The most bytes of tensors, made inside the block, that are alive at once."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._references: Counter[int] = Counter()
        self._bytes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, Tensor) and x.untyped_storage().data_ptr():
                self._add(x, x.untyped_storage().data_ptr())
        return out

    def _add(self, x: Tensor, storage: int) -> None:
        if not self._references[storage]:
            self._bytes[storage] = x.untyped_storage().nbytes()
            self.live += self._bytes[storage]
            self.peak = max(self.peak, self.live)
        self._references[storage] += 1
        weakref.finalize(x, self._drop, storage)

    def _drop(self, storage: int) -> None:
        self._references[storage] -= 1
        if not self._references[storage]:
            self.live -= self._bytes.pop(storage)


def layer_of(
    width: int, heads: int, batches: list[dict[str, Tensor]]
) -> tuple[nn.Module, LayerAnatomy, HeadWeights]:
    model = nn.TransformerEncoderLayer(width, heads, 32, batch_first=True).eval()
    layer = mh.anatomy(model, batches[0])[0]
    return model, layer, HeadWeights.of(layer)


def test_32_heads_of_width_4096_keep_1023_components() -> None:
    assert leading_count(32, 4096) == 1023
    assert leading_count(12, 768) == 768
    for heads, width in [(32, 4096), (64, 8192), (96, 12288)]:
        assert 8 * heads * (leading_count(heads, width) + 1) ** 2 <= coordinates.HEAD_MOMENT_BYTES < 1 << 30


@pytest.mark.fast("16-256-31")
@pytest.mark.parametrize(("heads", "width", "leading"), [(16, 256, 31), (16, 256, 127), (32, 256, 63)])
def test_the_peak_is_that_of_the_formula(
    monkeypatch: pytest.MonkeyPatch, heads: int, width: int, leading: int
) -> None:
    per_head, shared = 8 * heads * (leading + 1) ** 2, 8 * width**2
    monkeypatch.setattr(coordinates, "HEAD_MOMENT_BYTES", per_head)
    batches = [{"src": torch.randn(1, 3, width)} for _ in range(3)]  # few tokens: small activations
    model, layer, own = layer_of(width, heads, batches)
    with LiveBytes() as summing:
        moments = moments_of(model, layer, batches)
    assert moments.context_moment.block.shape == (heads, leading + 1, leading + 1)
    assert moments.context_moment.diagonal.shape == (heads, width - leading)
    kept = 2 * per_head + 2 * shared  # the moments
    with LiveBytes() as clustering:
        groups = cluster(layer, own, moments, 2)
    with LiveBytes() as sharing:
        share_kv(own, groups, moments)
    limit = 5 * per_head + 12 * shared
    assert 0.5 * limit < summing.peak < limit
    assert kept + clustering.peak < limit
    assert kept + sharing.peak < limit


def test_inputs_of_few_directions_lose_nothing_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The components that have no full moments have no variance here."""
    few = torch.randn(7, 30, dtype=torch.float64)
    batches = [{"src": torch.randn(5, 11, 7, dtype=torch.float64) @ few} for _ in range(6)]
    model = nn.TransformerEncoderLayer(30, 6, 32, batch_first=True).double().eval()
    layer = mh.anatomy(model, batches[0])[0]
    own = HeadWeights.of(layer)
    whole = moments_of(model, layer, batches)
    monkeypatch.setattr(coordinates, "HEAD_MOMENT_BYTES", 8 * 6 * 12**2)
    part = moments_of(model, layer, batches)
    assert (whole.key_coordinates.leading, part.key_coordinates.leading) == (30, 11)
    groups = cluster(layer, own, whole, 2)
    assert cluster(layer, own, part, 2) == groups
    everything = tuple(range(6))
    assert sharing_cost(own, part)(everything) == pytest.approx(sharing_cost(own, whole)(everything), rel=1e-9)
    x = torch.randn(50, 7, dtype=torch.float64) @ few
    want, got = (_outputs(share_kv(own, groups, moments), x) for moments in (whole, part))
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)


def _outputs(weights: HeadWeights, x: Tensor) -> list[Tensor]:
    """W_O v and q · k of every head."""
    kv = list(weights.groups.kv_of_head)
    q = torch.einsum("tw,hkw->htk", x, weights.q) + weights.bias("q")[:, None]
    k = torch.einsum("tw,hkw->htk", x, weights.k[kv])
    v = torch.einsum("tw,hvw->htv", x, weights.v[kv])
    scores = q @ k.mT
    return [scores - scores.mean(-1, keepdim=True), v @ weights.o.mT]


@pytest.mark.parametrize("bias", [True, False])
def test_coordinates_keep_the_products_of_maps_and_inputs(bias: bool) -> None:
    x, w = torch.randn(50, 13, dtype=torch.float64), torch.randn(3, 13, dtype=torch.float64)
    b = torch.randn(3, dtype=torch.float64) if bias else None
    principal = PrincipalCoordinates.principal(x.T @ x, 5)
    inputs, maps = principal.of(x), principal.of_maps(w, b)
    inputs = inputs if bias else torch.cat([inputs[:, :5], inputs[:, 6:]], dim=1)
    torch.testing.assert_close(inputs @ maps.T, x @ w.T + (0 if b is None else b))
    square = principal.of(x).T @ principal.of(x)
    rest = square[6:, 6:]
    torch.testing.assert_close(rest, rest.diagonal().diag())
    again, bias_again = principal.restored(maps)
    torch.testing.assert_close(again, w)
    assert (bias_again is None) == (b is None)
    if b is not None and bias_again is not None:
        torch.testing.assert_close(bias_again, b)


class _OtherWidths(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(42, 6, kdim=30, vdim=34, batch_first=True)

    def forward(self, x: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.attn(x, k, v)[0]


def other_widths() -> tuple[LayerAnatomy, HeadWeights, Moments]:
    model = _OtherWidths().double().eval()
    sizes = {"x": (5, 9, 42), "k": (5, 11, 30), "v": (5, 11, 34)}
    batches = [{name: torch.randn(size, dtype=torch.float64) for name, size in sizes.items()} for _ in range(8)]
    layer = mh.anatomy(model, batches[0])[0]
    return layer, HeadWeights.of(layer), moments_of(model, layer, batches)


def test_keys_and_values_of_different_widths_are_counted_in_one_unit() -> None:
    """Values that are twice as large cost four times as much; so do the errors of scores that mix them."""
    layer, own, moments = other_widths()
    assert not moments.same_kv
    loud = replace(own, o=2 * own.o)
    both = tuple(range(own.kv_heads))
    assert sharing_cost(loud, moments)(both) == pytest.approx(4 * sharing_cost(own, moments)(both), rel=1e-9)
    assert share_kv(own, cluster(layer, own, moments, 3), moments).k.shape == (3, 7, 30)


def test_every_tensor_is_made_on_the_device_of_the_weights() -> None:
    """Tensors that are made without naming a device are then on a different one than the weights, as on CUDA."""
    layer, own, moments = other_widths()
    wide = nn.TransformerEncoderLayer(24, 4, batch_first=True).double().eval()
    batches = [{"src": torch.randn(3, 11, 24, dtype=torch.float64)}]
    plain = mh.anatomy(wide, batches[0])[0]
    of_plain = HeadWeights.of(plain)
    with torch.device("meta"):
        share_kv(own, cluster(layer, own, moments, 2), moments)
        same = moments_of(wide, plain, batches)
        share_kv(of_plain, cluster(plain, of_plain, same, 2), same)


def test_a_device_without_fp64_sums_on_the_cpu() -> None:
    assert float64_device(torch.device("mps")) == torch.device("cpu")
    assert float64_device(torch.device("cuda", 1)) == torch.device("cuda", 1)
    assert float64(torch.ones(2, dtype=torch.float16)).dtype == torch.float64
