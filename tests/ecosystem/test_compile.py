"""torch.compile(fullgraph=True): one graph, no breaks, the numbers and gradients of eager mode.

Most cases run the traced graph itself (backend aot_eager); a few go through the C++ that inductor writes.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

import multihead as mh
from ecosystem.variants import HEADS, TOKENS, VARIANTS, WIDTH, Variant, tensors_of
from multihead import cache, mask, position
from multihead.layer import Sinks
from multihead.layer.latent import LatentAttention


@pytest.fixture(autouse=True)
def _fresh(fp64: None) -> Any:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def assert_same(result: Any, expected: Any) -> None:
    torch.testing.assert_close(tensors_of(result), tensors_of(expected), equal_nan=True)


def gradients(result: Any, inputs: tuple[Tensor, ...], attn: torch.nn.Module) -> list[Tensor]:
    wanted = [t for t in (*inputs, *attn.parameters()) if t.requires_grad]
    finite = [t.masked_fill(t == -torch.inf, 0.0) for t in tensors_of(result)]  # the lse of a row without keys
    return list(torch.autograd.grad(sum(t.square().sum() for t in finite), wanted))


# Their parts are in other variants; the export tests trace them too.
ELSEWHERE = {"unbatched", "positions", "window both ways", "sinks without a mask", "lengths as a list"}


@pytest.mark.fast("grouped rotary")
@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in ELSEWHERE])
def test_one_graph_equals_eager(name: str) -> None:
    variant, counter = VARIANTS[name], CompileCounterWithBackend("aot_eager")
    attn = variant.layer()
    inputs = tuple(t.requires_grad_() if t.is_floating_point() else t for t in variant.inputs())
    compiled = torch.compile(variant.call, fullgraph=True, backend=counter)
    result, expected = compiled(attn, *inputs), variant.call(attn, *inputs)
    assert_same(result, expected)
    for got, want in zip(gradients(result, inputs, attn), gradients(expected, inputs, attn), strict=True):
        torch.testing.assert_close(got, want)
    assert counter.frame_count == 1


def test_a_mask_from_outside_is_an_argument() -> None:
    """Masks are often made once and passed in; the graph then reads their tensors, not their numbers."""
    attn, x, counter = VARIANTS["plain"].layer(), torch.randn(3, TOKENS, WIDTH), CompileCounterWithBackend("eager")
    compiled = torch.compile(attn, fullgraph=True, backend=counter)
    for graphs, rule in enumerate((lambda real: mask.causal() & mask.padding(real), mask.padding), start=1):
        for _ in range(2):
            made = rule(torch.rand(3, TOKENS) > 0.3)
            assert_same(compiled(x, mask=made), attn(x, mask=made))
        assert counter.frame_count == graphs, "other padding runs in the same graph"


DYNAMIC = {
    "plain": VARIANTS["plain"],
    "grouped rotary": VARIANTS["grouped rotary"],
    "ALiBi": VARIANTS["ALiBi"],
    "value size, sinks": Variant(VARIANTS["window"].call, {"head_dim": 4, "value_dim": 7, "sinks": Sinks(1.0)}),
    "lengths": Variant(lambda attn, x, n: attn(x, mask=mask.causal() & mask.lengths(n))),
}
SIZES = ((3, 11), (2, 17), (5, 7))


@pytest.mark.fast("lengths")
@pytest.mark.parametrize("name", DYNAMIC)
def test_one_graph_serves_all_sizes(name: str) -> None:
    variant, counter = DYNAMIC[name], CompileCounterWithBackend("eager")
    attn = variant.layer()
    compiled = torch.compile(variant.call, fullgraph=True, backend=counter)
    for batch, tokens in SIZES:
        lengths = (torch.randint(0, tokens + 1, (batch,)),) if name == "lengths" else ()
        inputs = (torch.randn(batch, tokens, WIDTH), *lengths)
        torch._dynamo.mark_dynamic(inputs[0], [0, 1])  # an error if a size is made a constant
        for t in lengths:
            torch._dynamo.mark_dynamic(t, 0)
        assert_same(compiled(attn, *inputs), variant.call(attn, *inputs))
    assert counter.frame_count == 1


def test_sizes_and_numbers_may_be_symbols() -> None:
    """dynamic=True makes symbols of the layer's float attributes as well; the backward follows."""
    variant, counter = VARIANTS["softcap"], CompileCounterWithBackend("aot_eager")
    attn, graphs = variant.layer(), 0
    compiled = torch.compile(variant.call, fullgraph=True, dynamic=True, backend=counter)
    for batch, tokens in SIZES:
        inputs = (torch.randn(batch, tokens, WIDTH, requires_grad=True),)
        result, expected = compiled(attn, *inputs), variant.call(attn, *inputs)
        assert_same(result, expected)
        for got, want in zip(gradients(result, inputs, attn), gradients(expected, inputs, attn), strict=True):
            torch.testing.assert_close(got, want)
        graphs = graphs or counter.frame_count  # torch may trace the first size twice
        assert counter.frame_count == graphs, f"compiled again for {batch} x {tokens}"


def test_dropout_in_training() -> None:
    """Random in training, unbiased: many rows that are alike average to what eval mode gives."""
    attn = VARIANTS["causal"].layer(dropout=0.4)
    compiled = torch.compile(VARIANTS["causal"].call, fullgraph=True, backend="aot_eager")
    x = torch.randn(1, TOKENS, WIDTH).expand(1500, -1, -1)
    out = compiled(attn, x)
    assert not torch.equal(out, compiled(attn, x))
    assert out.std(dim=0)[1:].min() > 0.01
    attn.eval()
    mean, spread = out.mean(dim=0), out.std(dim=0) / 1500**0.5
    assert ((mean - attn(x[:1], mask=mask.causal())[0]).abs() < 5 * spread + 1e-9).all()
    assert_same(compiled(attn, x[:3]), attn(x[:3], mask=mask.causal()))


def test_hidden_nan_stays_hidden_and_seen_nan_shows() -> None:
    attn = VARIANTS["causal"].layer()
    compiled = torch.compile(VARIANTS["causal"].call, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, TOKENS, WIDTH)
    clean = attn(x, mask=mask.causal())
    x[0, 6], x[1, 9] = torch.nan, torch.inf
    out = compiled(attn, x)
    torch.testing.assert_close(out[0, :6], clean[0, :6])
    torch.testing.assert_close(out[1, :9], clean[1, :9])
    assert out[0, 6:].isnan().all()
    assert out[1, 9:].isnan().all()
    out[0, :6].sum().backward()
    assert all(p.grad is not None and p.grad[: WIDTH // 2].isfinite().all() for p in (attn.o_proj.bias,))


# ---- decoding -----------------------------------------------------------------------------------

DECODERS: dict[str, dict[str, Any]] = {
    "grouped rotary": {"num_kv_heads": 2, "head_dim": 8, "position": position.Rotary()},
    "ALiBi": {"position": position.ALiBi(HEADS)},
    "relative bias": {"position": position.RelativeBias(HEADS, bidirectional=False), "head_dim": 4, "value_dim": 7},
    "sinks, softcap": {"sinks": Sinks(1.0), "softcap": 3.0},
}


def static_for(attn: mh.MultiHeadAttention, rows: int = 2, capacity: int = 71) -> cache.Static:
    return cache.Static(rows, attn.num_kv_heads, capacity, attn.head_dim, attn.value_dim)


@pytest.mark.fast("grouped rotary")
@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_static_cache_decodes_in_two_graphs(name: str) -> None:
    """One graph for the prompt, one for every step after it."""
    attn, counter = Variant(lambda: None, DECODERS[name]).layer(), CompileCounterWithBackend("eager")
    step = torch.compile(lambda x, kept: attn(x, mask=mask.causal(), cache=kept), fullgraph=True, backend=counter)
    x = torch.randn(2, TOKENS, WIDTH)
    want = attn(x, mask=mask.causal())
    kept = static_for(attn)
    parts = [step(part, kept) for part in x.split([4] + [1] * (TOKENS - 4), dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), want)
    assert counter.frame_count == 2
    kept.reset()  # the prompt in eager mode, the steps compiled
    parts = [attn(x[:, :4], mask=mask.causal(), cache=kept)] + [
        step(x[:, i : i + 1], kept) for i in range(4, TOKENS)
    ]
    torch.testing.assert_close(torch.cat(parts, dim=1), want)
    assert counter.frame_count == 2


@torch.no_grad()
def test_rows_of_a_static_cache_may_differ() -> None:
    attn = VARIANTS["causal"].layer()
    step = torch.compile(
        lambda x, n, kept: attn(x, mask=mask.causal() & mask.ragged(n), cache=kept), fullgraph=True, backend="eager"
    )
    x, kept = torch.randn(2, TOKENS, WIDTH), static_for(attn)
    first = step(x[:, :5], torch.tensor([5, 3]), kept)
    rest = torch.stack([x[0, 5:9], x[1, 3:7]])
    then = step(rest, torch.tensor([4, 4]), kept)
    want = attn(x, mask=mask.causal())
    torch.testing.assert_close(torch.cat([first[0], then[0]]), want[0, :9])
    torch.testing.assert_close(torch.cat([first[1, :3], then[1]]), want[1, :7])


@torch.no_grad()
def test_nan_in_a_slot_not_yet_filled_is_not_seen() -> None:
    """A compiled step looks at all slots, those of an earlier text included."""
    attn = VARIANTS["causal"].layer()
    step = torch.compile(
        lambda x, kept: attn(x, mask=mask.causal(), cache=kept), fullgraph=True, backend="aot_eager"
    )
    x, kept = torch.randn(2, TOKENS, WIDTH), static_for(attn)
    kept.append(*(torch.full((2, HEADS, 40, attn.head_dim), torch.nan) for _ in "kv"))
    kept.reset()
    parts = [step(part, kept) for part in x.split(1, dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), attn(x, mask=mask.causal()))
    x[1] = torch.nan
    assert step(x[:, :1], kept)[1].isnan().all()


@torch.no_grad()
def test_latent_attention_decodes() -> None:
    attn = LatentAttention(WIDTH, HEADS, latent_dim=7, nope_dim=5, rope_dim=4, value_dim=6)
    x = torch.randn(2, TOKENS, WIDTH)
    want = attn(x, mask=mask.causal())
    counter = CompileCounterWithBackend("eager")
    step = torch.compile(lambda x, kept: attn(x, mask=mask.causal(), cache=kept), fullgraph=True, backend=counter)
    kept = cache.Static(2, 1, 71, 7 + 4, 0)
    parts = [step(part, kept) for part in x.split([4] + [1] * (TOKENS - 4), dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), want)
    assert counter.frame_count == 2


# ---- inductor -----------------------------------------------------------------------------------


def test_inductor_trains() -> None:
    variant = VARIANTS["grouped rotary"]
    attn, (x,) = variant.layer(), variant.inputs()
    x.requires_grad_()
    result, expected = torch.compile(variant.call, fullgraph=True)(attn, x), variant.call(attn, x)
    assert_same(result, expected)
    for got, want in zip(gradients(result, (x,), attn), gradients(expected, (x,), attn), strict=True):
        torch.testing.assert_close(got, want)


@torch.no_grad()
def test_inductor_masks() -> None:
    variant = VARIANTS["documents"]
    attn, inputs = variant.layer(), variant.inputs()
    assert_same(torch.compile(variant.call, fullgraph=True)(attn, *inputs), variant.call(attn, *inputs))


@torch.no_grad()
def test_inductor_decodes() -> None:
    attn = Variant(lambda: None, DECODERS["grouped rotary"]).layer()
    step = torch.compile(lambda x, kept: attn(x, mask=mask.causal(), cache=kept), fullgraph=True)
    x, kept = torch.randn(2, TOKENS, WIDTH), static_for(attn)
    parts = [attn(x[:, :7], mask=mask.causal(), cache=kept)] + [
        step(x[:, i : i + 1], kept) for i in range(7, TOKENS)
    ]
    torch.testing.assert_close(torch.cat(parts, dim=1), attn(x, mask=mask.causal()))
