"""Small calls that once went wrong: a wrong result, NaN, an error of torch, a cache changed by a refused call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.testing import assert_close

import multihead as mh
from multihead import cache, mask, position
from multihead.errors import SizeError
from multihead.layer import LatentAttention, _rotary, init

ROUTES = ("folded", "tiled", "fused", "blocked", "reference")


@pytest.fixture(autouse=True)
def _double(fp64: None) -> None:
    """Everything in float64."""


def layer(heads: int = 2, **options: Any) -> mh.MultiHeadAttention:
    return mh.MultiHeadAttention(8, heads, init=init.XavierPerHead(1.4), **options).eval()


def r(*shape: int) -> Tensor:
    return torch.randn(shape)


def written_out(attn: mh.MultiHeadAttention, x: Tensor, allowed: Tensor, **options: Any) -> Tensor:
    """Self-attention under a mask that is given cell by cell."""
    return attn(x, mask=mask.tensor(allowed), route="reference", **options)


def below(lengths: list[int], keys: int) -> Tensor:
    """(batch, 1, 1, key): key < lengths[batch]"""
    return (torch.arange(keys) < torch.tensor(lengths)[:, None])[:, None, None, :]


def padded(lengths: list[int], tokens: int) -> Tensor:
    """(batch, 1, query, key): both are real tokens"""
    return below(lengths, tokens) & below(lengths, tokens).mT


def by_route(attn: mh.MultiHeadAttention, x: Tensor, **options: Any) -> dict[str | None, Tensor]:
    """The output of every route that can compute this."""
    outs: dict[str | None, Tensor] = {}
    for route in (None, *ROUTES):
        try:
            outs[route] = attn(x, **options, route=route)
        except SizeError as refusal:
            assert f"route={route!r}" in refusal.message
    assert None in outs
    return outs


def contents(kept: cache.Cache) -> dict[str, Any]:
    return {name: x.clone() if isinstance(x, Tensor) else x for name, x in vars(kept).items()}


# ---- the scale --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, -0.3])
def test_a_scale_of_zero_or_less_under_a_causal_mask(scale: float) -> None:
    attn, x = layer(scale=scale), r(1, 3, 8)
    want = written_out(attn, x, torch.ones(3, 3, dtype=torch.bool).tril())
    assert want.isfinite().all()
    for route, out in by_route(attn, x, mask=mask.causal()).items():
        assert_close(out, want, msg=lambda said, route=route: f"{route}: {said}")


# ---- documents and ragged batches ---------------------------------------------------------------------


@torch.no_grad()
def test_documents_in_a_cache() -> None:
    attn, x, kept = layer(), r(1, 10, 8), cache.Growing()
    seen = mask.causal() & mask.documents([0] * 8 + [1] * 2)
    attn(x[:, :8], mask=mask.causal(), cache=kept)
    assert_close(attn(x[:, 8:], mask=seen, cache=kept), attn(x[:, 8:], mask=mask.causal()))


def test_ragged_and_lengths() -> None:
    attn, x = layer(), r(2, 7, 8)
    want = written_out(attn, x, padded([5, 2], 7) & below([0, 2], 7))
    assert_close(attn(x, mask=mask.ragged([5, 2]) & mask.lengths([0, 2])), want)


def test_ragged_and_padding() -> None:
    attn, x, real = layer(), r(2, 7, 8), torch.tensor([[False] * 5 + [True] * 2, [True] * 7])
    want = written_out(attn, x, padded([5, 2], 7) & real[:, None, None, :])
    assert_close(attn(x, mask=mask.ragged([5, 2]) & mask.padding(real)), want)


def test_ragged_and_documents_without_an_id() -> None:
    attn, x, ids = layer(), r(2, 7, 8), torch.tensor([[-1] * 7, [0, 1, 1, 1, 1, 1, 1]])
    same = (ids[:, :, None] == ids[:, None, :]) & (ids >= 0)[:, :, None]
    want = written_out(attn, x, padded([5, 2], 7) & same[:, None])
    assert_close(attn(x, mask=mask.ragged([5, 2]) & mask.documents(ids)), want)


def test_ragged_twice() -> None:
    attn, x = layer(), r(2, 7, 8)
    want = written_out(attn, x, padded([3, 2], 7))
    assert_close(attn(x, mask=mask.ragged([5, 2]) & mask.ragged([3, 4])), want)


@torch.no_grad()
def test_ragged_twice_in_a_cache_stores_the_tokens_that_both_call_real() -> None:
    attn, x, kept = layer(), r(2, 7, 8), cache.Growing()
    attn(x, mask=mask.ragged([5, 2]) & mask.ragged([3, 4]), cache=kept)
    assert kept.lengths.tolist() == [3, 2]


@torch.no_grad()
def test_ragged_and_documents_in_a_cache_that_holds_a_token() -> None:
    attn, x, kept = layer(), r(1, 4, 8), cache.Growing()
    attn(x[:, :1], cache=kept)
    out = attn(x[:, 1:], mask=mask.ragged([1]) & mask.documents([0, 0]), cache=kept)
    assert kept.lengths.tolist() == [2]
    assert_close(out[:, :1], attn(x[:, :2])[:, 1:])
    assert_close(out[:, 1:], attn.o_proj.bias.expand(1, 2, 8))


# ---- positions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [position.ALiBi(2), position.RelativeBias(2)], ids=["alibi", "relative"])
def test_no_tokens_with_explicit_positions(where: Any) -> None:
    assert layer(position=where)(r(1, 0, 8), positions=torch.arange(0)).shape == (1, 0, 8)


@pytest.mark.parametrize(
    "where", [position.Rotary(), position.ALiBi(2), position.RelativeBias(2)], ids=["rotary", "alibi", "relative"]
)
def test_positions_are_those_of_the_keys_too_where_the_key_is_the_query(where: Any) -> None:
    attn, x, at = layer(position=where), r(1, 5, 8), torch.tensor([0, 3, 4, 9, 11])
    want = attn(x, positions=at)
    assert_close(attn(x, x, positions=at), want)
    assert_close(attn(x, x, x, positions=at), want)
    row = x[0]
    assert_close(attn(row, row, row, positions=at), want[0])


DYNAMIC = position.Rotary(scaling=position.DynamicNTK(2.0, 4))


def test_dynamic_ntk_takes_the_length_of_the_longest_row_of_a_ragged_batch() -> None:
    """Padding has no position: the result is that of a batch without it."""
    attn, x = layer(position=DYNAMIC), r(2, 9, 8)
    want = attn(x[:, :6], mask=mask.ragged([6, 5]))
    for route, out in by_route(attn, x, mask=mask.ragged([6, 5])).items():
        assert_close(out[:, :6], want, msg=lambda said, route=route: f"{route}: {said}")


def test_dynamic_ntk_turns_queries_and_keys_by_the_same_frequencies() -> None:
    """The length of a call is one more than its largest position, of the queries or of the keys.

    A query at 11 makes the length 12, as twelve keys do. The last nine keys are hidden, so the rest must agree.
    """
    attn, query, keys = layer(position=DYNAMIC), r(1, 1, 8), r(1, 12, 8)
    want = attn(query, keys, mask=mask.lengths([3]))
    assert_close(attn(query, keys[:, :3], positions=torch.tensor([11])), want)


# ---- caches -----------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("kind", ["padding", "tensor", "additive"])
def test_a_ring_that_overflows_with_rows_of_different_lengths(kind: str) -> None:
    """It is a growing cache under a window, also for masks that are written key by key."""
    attn, x = layer(), r(2, 6, 8)
    real = torch.tensor([[True, False, True, True, False, True], [True, False, True, False, True, True]])
    seen = {
        "padding": mask.padding(real),
        "tensor": mask.tensor(real[:, None, None, :]),
        "additive": mask.additive(torch.zeros(2, 1, 1, 6).masked_fill(~real[:, None, None, :], -torch.inf)),
    }[kind]
    ring, grown, band = cache.Ring(4), cache.Growing(), mask.window(4)
    for kept in (ring, grown):
        attn(x[:, :3], mask=band & mask.ragged([3, 1]), cache=kept)
    assert_close(attn(x[:, 3:], mask=seen, cache=ring), attn(x[:, 3:], mask=band & seen, cache=grown))


@torch.no_grad()
def test_unbatched_self_attention_of_three_arguments_with_a_cache() -> None:
    attn, x, kept = layer(), r(5, 8), cache.Growing()
    assert_close(attn(x, x, x, cache=kept), attn(x))
    assert kept.length == 5


Call = Callable[[mh.MultiHeadAttention, Tensor, cache.Cache], object]

REFUSED: dict[str, tuple[dict[str, Any], Call]] = {
    "a route that cannot": ({"softcap": 5.0}, lambda a, x, kept: a(x, cache=kept, route="fused")),
    "a rule of numbers": ({}, lambda a, x, kept: a(x, cache=kept, mask=mask.where(lambda b, h, q, k: q - k))),
    "a rule of another shape": (
        {},
        lambda a, x, kept: a(x, cache=kept, mask=mask.where(lambda b, h, q, k: torch.ones(7, 1, dtype=torch.bool))),
    ),
    "a rule that gives no tensor": (
        {},
        lambda a, x, kept: a(x, cache=kept, mask=mask.where(lambda b, h, q, k: True)),  # type: ignore[arg-type,return-value]
    ),
    "a mask on meta": (
        {},
        lambda a, x, kept: a(x, cache=kept, mask=mask.tensor(torch.ones(3, 3, dtype=torch.bool, device="meta"))),
    ),
    "padding on meta": (
        {},
        lambda a, x, kept: a(x, cache=kept, mask=mask.padding(torch.ones(1, 3, dtype=torch.bool, device="meta"))),
    ),
    "lengths on meta": (
        {},
        lambda a, x, kept: a(x, cache=kept, mask=mask.lengths(torch.ones(1, dtype=torch.long, device="meta"))),
    ),
    "a gate on meta": ({}, lambda a, x, kept: a(x, cache=kept, head_gate=torch.ones(2, device="meta"))),
}


@torch.no_grad()
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("kind", ["growing", "static", "ring"])
def test_a_refused_call_leaves_the_cache_as_it_was(name: str, kind: str) -> None:
    options, call = REFUSED[name]
    attn, x = layer(**options), r(1, 3, 8)
    kept = {"growing": cache.Growing(), "static": cache.Static(1, 2, 9, 4), "ring": cache.Ring(5)}[kind]
    before = contents(kept)
    with pytest.raises(mh.MultiheadError):
        call(attn, x, kept)
    assert_close(contents(kept), before)
    assert kept.lengths.tolist() == ([0] if kind == "static" else [])
    assert_close(attn(x, cache=kept), attn(x, mask=mask.window(5)) if kind == "ring" else attn(x))


@torch.no_grad()
@pytest.mark.parametrize(
    "wrong",
    [
        {"mask": mask.lengths([9])},
        {"mask": mask.where(lambda b, h, q, k: q - k)},
        {"mask": torch.ones(3, 9, dtype=torch.bool)},
        {"head_gate": torch.ones(2, device="meta")},
    ],
    ids=["lengths", "rule", "mask", "gate"],
)
def test_a_refused_call_does_not_fill_a_cross_cache(wrong: dict[str, Any]) -> None:
    """Else the next call answers for the keys of the refused one."""
    attn, x, kept = layer(), r(1, 3, 8), cache.Cross()
    with pytest.raises(mh.MultiheadError):
        attn(x, r(1, 5, 8), cache=kept, **wrong)
    assert not kept.filled
    keys = r(1, 5, 8)
    assert_close(attn(x, keys, cache=kept), attn(x, keys))


@torch.no_grad()
def test_a_cross_cache_refuses_another_key() -> None:
    attn, x, keys, kept = layer(), r(1, 3, 8), r(1, 5, 8), cache.Cross()
    want = attn(x, keys, cache=kept)
    assert_close(attn(x, keys, cache=kept), want)
    assert_close(attn(x, cache=kept), want)
    with pytest.raises(mh.MultiheadError, match=r"reset\(\)"):
        attn(x, r(1, 5, 8), cache=kept)
    keys.add_(1)
    with pytest.raises(mh.MultiheadError, match=r"reset\(\)"):
        attn(x, keys, cache=kept)


@torch.no_grad()
def test_a_refused_call_of_latent_attention_leaves_the_cache_as_it_was() -> None:
    attn, kept = LatentAttention(8, 2, latent_dim=4, nope_dim=4, rope_dim=2, value_dim=4), cache.Growing()
    with pytest.raises(mh.MultiheadError):
        attn(r(1, 3, 8), cache=kept, head_gate=torch.ones(5))
    assert kept.lengths.tolist() == []


@pytest.mark.parametrize(
    "call",
    [
        lambda attn: attn(r(1, 3, 8).float()),
        lambda attn: attn(r(1, 3, 8).long()),
        lambda attn: attn(r(1, 3, 8), head_gate=torch.ones(5)),
    ],
    ids=["dtype", "integers", "gate"],
)
def test_latent_attention_refuses_a_wrong_dtype_and_a_wrong_gate(call: Callable[[nn.Module], object]) -> None:
    with pytest.raises(mh.MultiheadError):
        call(LatentAttention(8, 2, latent_dim=4, nope_dim=4, rope_dim=2, value_dim=4))


# ---- torch.func -------------------------------------------------------------------------------------------


def test_vmap_over_stacked_parameters() -> None:
    layers, x = [layer(), layer()], r(2, 3, 8)
    parameters, buffers = stack_module_state(layers)  # type: ignore[arg-type]

    def call(parameters: Any, buffers: Any) -> Tensor:
        return functional_call(layers[0], (parameters, buffers), (x,), {"mask": mask.causal()})

    want = torch.stack([attn(x, mask=mask.causal()) for attn in layers])
    assert_close(vmap(call)(parameters, buffers), want)


TRANSFORMED: dict[str, Callable[[], tuple[mh.MultiHeadAttention, mask.Mask]]] = {
    "ragged": lambda: (layer(), mask.causal() & mask.ragged([2])),
    "softcap": lambda: (layer(softcap=5.0), mask.causal()),
    "learned ALiBi": lambda: (layer(position=position.ALiBi(2, learned=True)), mask.causal()),
    "RelativeBias": lambda: (layer(position=position.RelativeBias(2)), mask.causal()),
    "ragged and softcap": lambda: (layer(softcap=5.0), mask.causal() & mask.ragged([2])),
    "ragged and learned ALiBi": lambda: (layer(position=position.ALiBi(2, learned=True)), mask.ragged([2])),
    "ragged and RelativeBias": lambda: (layer(position=position.RelativeBias(2)), mask.ragged([2])),
}


def gradients(attn: mh.MultiHeadAttention, x: Tensor, seen: mask.Mask) -> dict[str, Tensor]:
    grads = torch.autograd.grad(attn(x, mask=seen, route="reference").square().sum(), list(attn.parameters()))
    return dict(zip(dict(attn.named_parameters()), grads, strict=True))


@pytest.mark.parametrize("name", TRANSFORMED)
def test_func_grad_and_per_sample_gradients(name: str) -> None:
    attn, seen = TRANSFORMED[name]()
    parameters, xs = {n: p.detach() for n, p in attn.named_parameters()}, r(3, 1, 4, 8)

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(attn, parameters, (x,), {"mask": seen}).square().sum()

    want = [gradients(attn, x, seen) for x in xs]
    assert_close(grad(loss)(parameters, xs[0]), want[0])
    got = vmap(grad(loss), in_dims=(None, 0))(parameters, xs)
    assert_close(got, {n: torch.stack([one[n] for one in want]) for n in parameters})


# ---- masks ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Changing:
    """A mask of a tensor, and the values that the tensor is changed to."""

    make: Callable[[Tensor], mask.Mask]
    first: Tensor
    then: Tensor


CHANGING = {
    "prefix": Changing(mask.prefix, torch.tensor([1, 4]), torch.tensor([5, 2])),
    "lengths": Changing(mask.lengths, torch.tensor([1, 4]), torch.tensor([6, 2])),
    "ragged": Changing(mask.ragged, torch.tensor([2, 3]), torch.tensor([6, 5])),
    "padding": Changing(
        mask.padding,
        torch.tensor([[True, True, False, False, False, False]] * 2),
        torch.tensor([[False, True, True, False, True, True]] * 2),
    ),
    "documents": Changing(mask.documents, torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 1, 1, 1, 2, 2])),
    "offsets": Changing(
        lambda offsets: mask.documents(offsets=offsets), torch.tensor([0, 3, 6]), torch.tensor([0, 1, 6])
    ),
}


@torch.no_grad()
@pytest.mark.parametrize("name", CHANGING)
def test_a_mask_that_is_changed_in_place(name: str) -> None:
    """Every route sees the new numbers."""
    kind, attn, x = CHANGING[name], layer(value_dim=5), r(2, 6, 8)
    held = kind.first.clone()
    seen = kind.make(held)
    by_route(attn, x, mask=seen)
    held.copy_(kind.then)
    want = attn(x, mask=kind.make(kind.then), route="reference")
    for route, out in by_route(attn, x, mask=seen).items():
        assert_close(out, want, msg=lambda said, route=route: f"{route}: {said}")


def test_nan_in_an_additive_mask_is_refused_or_shows() -> None:
    scores = torch.zeros(3, 3)
    scores[1, 0] = torch.nan
    for route in (None, *ROUTES):
        try:
            out = layer()(r(1, 3, 8), mask=mask.additive(scores), route=route)
        except mh.MultiheadError:
            continue
        assert out[0, 1].isnan().all(), f"{route}: the score is hidden"


def test_a_two_dimensional_mask_is_query_by_key() -> None:
    attn, x = layer(), r(3, 3, 8)
    allowed = torch.tensor([[True, False, False], [True, True, False], [False, True, True]])
    assert_close(attn(x, mask=allowed), attn(x, mask=allowed[None, None].expand(3, 1, 3, 3)))
    with pytest.raises(SizeError, match=r"mask\.padding"):
        attn(r(2, 3, 8), mask=torch.ones(2, 3, dtype=torch.bool))


def test_a_float_mask_of_zeros_and_ones_is_refused() -> None:
    attn, x = layer(), r(1, 3, 8)
    assert_close(attn(x, mask=torch.zeros(3, 3)), attn(x))
    with pytest.raises(mh.MultiheadError, match="bool"):
        attn(x, mask=torch.ones(3, 3).tril())


def test_more_document_ids_than_keys_are_refused() -> None:
    with pytest.raises(SizeError, match="3 keys"):
        layer()(r(1, 3, 8), mask=mask.documents([0, 0, 1, 1]))


# ---- ragged batches and the modules of the layer --------------------------------------------------------------


@pytest.mark.parametrize("lengths", [[8, 8], [8, 3]], ids=["full", "padded"])
@pytest.mark.parametrize("ask", [None, "weights"])
def test_every_projection_runs_once_whatever_the_lengths_are(lengths: list[int], ask: str | None) -> None:
    attn = layer()
    ran: dict[str, int] = dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj"), 0)
    mixed: list[torch.Size] = []
    for name in ran:

        def count(_: nn.Module, inputs: tuple[Tensor], __: Tensor, name: str = name) -> None:
            ran[name] += 1
            if name == "o_proj":
                mixed.append(inputs[0].shape)

        attn.get_submodule(name).register_forward_hook(count)  # type: ignore[arg-type]
    attn(r(2, 8, 8), mask=mask.causal() & mask.ragged(lengths), **({} if ask is None else {"ask": ask}))
    assert set(ran.values()) == {1}, ran
    assert mixed == [(1, sum(lengths) + 1, 8)]  # the real tokens, and one row for all of the padding


def test_weights_under_ragged_are_those_behind_the_output() -> None:
    """Also where a projection draws numbers, as LoRA with dropout does."""
    attn = layer(bias=False, num_kv_heads=1)
    attn.q_proj.register_forward_hook(lambda _, __, out: nn.functional.dropout(out, 0.5))  # type: ignore[arg-type]
    x = r(2, 8, 8)
    found = attn(x, mask=mask.ragged([8, 3]), ask="weights")
    heads = found.weights @ attn.v_proj(x).unsqueeze(1)
    assert_close(found.out, attn.o_proj(heads.transpose(1, 2).flatten(2)))


def test_captured_heads_of_a_ragged_batch_have_the_shape_of_the_batch() -> None:
    attn, x = layer(), r(2, 8, 8)
    with mh.capture(attn, keep="qk") as heads:
        attn(x, mask=mask.causal() & mask.ragged([8, 3]))
    head = heads["L0H0"]
    assert head.query().shape == (2, 8, 4)
    assert_close(head.weights(), attn(x, mask=mask.causal() & mask.ragged([8, 3]), ask="weights").weights[:, 0])


# ---- rotary tables --------------------------------------------------------------------------------------------


@dataclass
class Halved:
    """A scaling of one's own, which Python cannot hash."""

    by: list[float]
    gain: float = 1.0

    def frequencies(self, base: float, dim: int, rounded: Callable[[float], float] = float) -> list[float]:
        return [rounded(base ** (-i / dim) * self.by[0]) for i in range(0, dim, 2)]


def test_a_scaling_that_cannot_be_hashed() -> None:
    attn = layer(position=position.Rotary(scaling=Halved([0.5])))
    same = layer(position=position.Rotary(scaling=position.Linear(2.0)))
    same.load_state_dict(attn.state_dict())
    x = r(1, 5, 8)
    assert_close(attn(x), same(x))


def test_the_rotary_table_in_use_is_kept() -> None:
    """Of the tables that are remembered, the one used longest ago is dropped."""
    attn, x = layer(position=position.Rotary(31.0)), r(1, 3, 8)
    attn(x)
    tables = _rotary._TABLES._entries
    mine = next(reversed(tables.values()))
    for base in range(_rotary._TABLES.size):
        position.Rotary(40.0 + base)(r(1, 2, 3, 4), 0)
        attn(x)
    assert any(table is mine for table in tables.values())


def test_an_alternative_to_ragged_is_not_packed() -> None:
    """The padding of one part of `|` is real in the other, so no token may be dropped."""
    attn, x = layer(), r(2, 5, 8)
    either = mask.ragged([4, 2]) | mask.lengths([1, 5])
    assert not either.ragged
    want = written_out(attn, x, padded([4, 2], 5) | below([1, 5], 5).expand(-1, -1, 5, -1))
    for route, out in by_route(attn, x, mask=either).items():
        assert_close(out, want, msg=f"route {route}")


@pytest.mark.parametrize(
    "options", [{}, {"bias": False}, {"num_kv_heads": 1}, {"value_dim": 6}, {"bias": "qo"}, {"bias": "v"}]
)
@pytest.mark.parametrize("learning", [False, True])
def test_one_product_for_q_k_and_v_is_the_same_as_three(options: dict[str, Any], learning: bool) -> None:
    attn, x = layer(4, **options), r(2, 3, 8)
    separate = [nn.Module.register_forward_hook(p, lambda *_: None) for p in (attn.q_proj, attn.k_proj)]
    with torch.set_grad_enabled(learning):
        want = attn(x, mask=mask.causal())  # a hook sees every projection, so each is called
        for hook in separate:
            hook.remove()
        assert_close(attn(x, mask=mask.causal()), want)
