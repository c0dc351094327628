"""Cached decoding is the full pass: any cache, any cut of the text into calls, rows of any length."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

import cases
import multihead as mh
from blocks import blocks_of
from cases import Case
from multihead import cache, mask
from multihead.errors import CacheError, SizeError

DRAWN = settings().max_examples  # of the tier: 25, 300 or 10,000


def share(of: int) -> settings:
    return settings(max_examples=max(DRAWN // of, 10))


def same(got: Tensor, want: Tensor, what: str) -> None:
    assert_close(got, want, msg=lambda said: f"{what}: {said}")


def made(kind: str, layer: mh.MultiHeadAttention, batch: int, tokens: int, window: int, first: int) -> cache.Cache:
    if kind == "static":
        sizes = (batch, layer.num_kv_heads, tokens + 3, layer.head_dim, layer.value_dim)
        return cache.Static(*sizes, dtype=layer.q_proj.weight.dtype)
    return cache.Ring(window, first=first) if kind == "ring" else cache.Growing()


def text_of(case: Case, tokens: int) -> Tensor:
    generator = torch.Generator().manual_seed(case.seed)
    return torch.randn(case.batch, tokens, case.width, generator=generator).to(case.dtype)


@st.composite
def chunks(draw: st.DrawFn, tokens: int) -> list[int]:
    """How a text is cut into calls: one token at a time, or any number at once."""
    if draw(st.booleans()):
        start = draw(st.integers(1, tokens))
        return [start] + [1] * (tokens - start)
    cut = [0, *sorted(draw(st.lists(st.integers(0, tokens), max_size=3))), tokens]
    return [b - a for a, b in itertools.pairwise(cut) if b > a]


@share(5)
@given(case=cases.cases(alone=True), kind=st.sampled_from(["growing", "static", "ring"]), data=st.data())
def test_cached_decoding_is_the_full_pass(case: Case, kind: str, data: st.DataObject) -> None:
    layer, x, tokens = case.layer(), text_of(case, case.keys), case.keys
    steps = data.draw(chunks(tokens))
    window = data.draw(st.integers(1, 7)) if kind == "ring" or data.draw(st.booleans()) else tokens
    route = data.draw(st.sampled_from([None, "reference", "fused", "folded", "blocked", "tiled"]))
    first = data.draw(st.integers(0, 2))
    ids = (torch.rand(case.batch, tokens) < 0.3).cumsum(1) if data.draw(st.booleans()) else None

    def sight(seen: int) -> mask.Mask:
        """The mask of the first `seen` tokens."""
        band = mask.causal() & mask.window(window, first=first)
        return band if ids is None else band & mask.documents(ids[:, :seen])

    gate = case.gate() if case.gate_dims in (1, 2) else None
    kept = made(kind, layer, case.batch, tokens, window, first)
    with torch.no_grad(), blocks_of(case.cells):
        want = layer(x, mask=sight(tokens), head_gate=gate)
        outs, at = [], 0
        for step in steps:
            new = x[:, at : at + step]
            call: dict[str, Any] = {"mask": sight(at + step), "cache": kept, "head_gate": gate}
            before = copy.deepcopy(kept)
            try:
                outs.append(layer(new, **call, route=route))
            except SizeError as refusal:
                assert "cannot compute this" in str(refusal)
                kept = call["cache"] = before
                outs.append(layer(new, **call))
            at += step
    same(torch.cat(outs, 1), want, f"{kind} by {steps}")
    assert kept.lengths.tolist() == [tokens] * case.batch


@share(5)
@given(case=cases.cases(alone=True), kind=st.sampled_from(["growing", "static", "ring"]), data=st.data())
def test_rows_of_a_cache_may_differ_in_length(case: Case, kind: str, data: st.DataObject) -> None:
    """Each row of a ragged batch, fed in ragged chunks, is what it is alone."""
    layer, batch, tokens = case.layer(), case.batch, case.keys
    window = data.draw(st.integers(1, 7)) if kind == "ring" else tokens
    first = data.draw(st.integers(0, 2))
    kept = made(kind, layer, batch, 3 * tokens, window, first)
    sight = mask.causal() & mask.window(window, first=first)
    fed = [0] * batch
    texts = text_of(case, 3 * tokens)
    with torch.no_grad(), blocks_of(case.cells):
        alone = [layer(row[None], mask=sight)[0] for row in texts]
        for _ in range(3):
            some = st.lists(st.integers(0, tokens), min_size=batch, max_size=batch)
            lengths = data.draw(some | st.just([tokens] * batch))
            new = torch.full((batch, tokens, case.width), torch.nan, dtype=case.dtype)  # padding is never read
            for b, n in enumerate(lengths):
                new[b, :n] = texts[b, fed[b] : fed[b] + n]
            out = layer(new, mask=sight & mask.ragged(lengths), cache=kept)
            for b, n in enumerate(lengths):
                same(out[b, :n], alone[b][fed[b] : fed[b] + n], f"{kind}, row {b}")
                fed[b] += n
    assert kept.lengths.tolist() == fed


@share(10)
@given(case=cases.cases(), calls=st.integers(1, 3))
def test_a_cross_cache_is_filled_once(case: Case, calls: int) -> None:
    if case.cross == "self":
        return
    layer, given, sight = case.layer(), case.inputs(), case.look(case.dtype)
    kept = cache.Cross()
    with torch.no_grad():
        want = layer(**given, mask=sight.mask)
        same(layer(**given, mask=sight.mask, cache=kept), want, "the first call")
        for _ in range(calls):
            same(layer(**given, mask=sight.mask, cache=kept), want, "a later call")
            same(layer(given["query"], mask=sight.mask, cache=kept), want, "a later call without a key")
        if given["key"].numel():
            with pytest.raises(CacheError, match=r"reset\(\)"):
                layer(given["query"], given["key"].clone(), mask=sight.mask, cache=kept)
