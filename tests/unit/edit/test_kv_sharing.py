"""Heads that can share keys and values without loss do; heads that need not, stay as they are to the bit."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import multihead as mh
from multihead import mask
from multihead.edit.kv_sharing.cluster import adjacent, cluster, exchange, sharing_cost
from multihead.edit.kv_sharing.input_moments import moments_of
from multihead.edit.kv_sharing.rotary import Pairs
from multihead.edit.kv_sharing.share import share_kv
from multihead.edit.surgery.install import arranged, install
from multihead.errors import MultiheadError, SizeError
from multihead.layer import Groups
from multihead.model.head_weights import HeadWeights
from multihead.model.layer_anatomy import LayerAnatomy


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def bert(**more: Any) -> nn.Module:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=53, hidden_size=42, num_hidden_layers=1, num_attention_heads=6, intermediate_size=47, **more
    )
    return loud(BertModel(config))


def llama(kv_heads: int, **more: Any) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=53, hidden_size=42, num_hidden_layers=1, num_attention_heads=6, num_key_value_heads=kv_heads,
        intermediate_size=47, head_dim=8, **more,
    )  # fmt: skip
    return loud(LlamaForCausalLM(config))


def qwen() -> nn.Module:
    from transformers import Qwen3Config, Qwen3Model

    config = Qwen3Config(
        vocab_size=53, hidden_size=42, num_hidden_layers=1, num_attention_heads=6, num_key_value_heads=6,
        intermediate_size=47, head_dim=8,
    )  # fmt: skip
    return loud(Qwen3Model(config))


def neox() -> nn.Module:
    from transformers import GPTNeoXConfig, GPTNeoXModel

    config = GPTNeoXConfig(
        vocab_size=53, hidden_size=48, num_hidden_layers=1, num_attention_heads=6, intermediate_size=47,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    )  # fmt: skip
    return loud(GPTNeoXModel(config))


def loud(model: nn.Module) -> nn.Module:
    """fp64, weights and biases so large that nothing hides."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" not in name.lower():
                p.normal_(std=0.7 if p.ndim == 1 else 0.35)
    return model.double().eval()


def text(count: int = 12) -> list[dict[str, Tensor]]:
    return [{"input_ids": torch.randint(53, (5, 7 + i % 5))} for i in range(count)]


def first(model: nn.Module) -> tuple[LayerAnatomy, HeadWeights]:
    layer = mh.anatomy(model)[0]
    return layer, HeadWeights.of(layer)


def hidden(model: nn.Module, ids: Tensor) -> Tensor:
    out = model(input_ids=ids)
    return out.logits if hasattr(out, "logits") else out.last_hidden_state


@torch.no_grad()
def planted(model: nn.Module, twins: list[tuple[int, int]], *, turn: Pairs | None) -> None:
    """Make the keys and values of the second kv head of each pair a change of basis of the first's."""
    layer = mh.anatomy(model)[0]
    b_k, b_v = layer.b_K, layer.b_V
    for a, b in twins:
        mix = torch.randn(layer.value_dim, layer.value_dim, dtype=torch.float64)
        layer.W_V[b].copy_(mix @ layer.W_V[a])
        if b_v is not None and layer.b_O is None:  # with b_O a value bias is free
            b_v[b].copy_(mix @ b_v[a])
        if turn is None:
            mix = torch.randn(layer.key_dim, layer.key_dim, dtype=torch.float64)
        else:
            z = torch.randn(len(turn.first), 2, dtype=torch.float64)
            mix = torch.zeros(layer.key_dim, layer.key_dim, dtype=torch.float64)
            for (re, im), i, j in zip(z.tolist(), turn.first, turn.second, strict=True):
                mix[i, i], mix[i, j], mix[j, i], mix[j, j] = re, -im, im, re
        layer.W_K[b].copy_(mix @ layer.W_K[a])
        if b_k is not None and turn is not None:  # without a turn a key bias is free
            b_k[b].copy_(mix @ b_k[a])


def assert_same(got: Any, want: Any) -> None:
    for field in fields(want):
        one, other = getattr(got, field.name), getattr(want, field.name)
        if isinstance(other, Tensor):
            torch.testing.assert_close(one, other, msg=field.name)
        elif is_dataclass(other):
            assert_same(one, other)
        else:
            assert one == other, field.name


TWINS = [(0, 4), (1, 3), (2, 5)]


def test_heads_that_read_the_same_spaces_are_found_and_share_without_loss() -> None:
    model = bert()
    planted(model, TWINS, turn=None)
    layer, own = first(model)
    found = moments_of(model, layer, text())
    assert found.key_path.kind == "plain"
    clusters = cluster(layer, own, found, 3)
    assert clusters == tuple(TWINS)
    new = share_kv(own, clusters, found)
    small = copy.deepcopy(model)
    install(small, layer, arranged(new))
    ids = torch.randint(53, (3, 11))
    torch.testing.assert_close(hidden(small, ids), hidden(model, ids), rtol=1e-6, atol=1e-6)
    assert mh.anatomy(small)[0].num_kv_heads == 3


def test_without_an_output_bias_the_value_bias_stays_with_the_kv_head() -> None:
    model = nn.TransformerEncoderLayer(42, 6, 47, batch_first=True, dropout=0.0)
    model = loud(model)
    planted(model, TWINS, turn=None)
    layer, own = first(model)
    with torch.no_grad():
        assert own.b_o is not None
        layer.parameters["self_attn.out_proj.bias"].zero_()
    own = replace(own, b_o=None)
    assert own.b_v is not None
    own.b_v[4] = own.v[4] @ torch.linalg.lstsq(own.v[0], own.b_v[0][:, None]).solution[:, 0]
    found = moments_of(model, layer, [{"src": torch.randn(5, 11, 42, dtype=torch.float64)} for _ in range(9)])
    new = share_kv(own, ((0, 4), (1,), (2,), (3,), (5,)), found)
    assert new.b_o is None
    assert new.b_v is not None
    x = torch.randn(42, dtype=torch.float64)
    for h, old in ((0, 0), (4, 4)):
        was = own.o[h] @ (own.v[old] @ x + own.b_v[old])
        now = new.o[h] @ (new.v[0] @ x + new.b_v[0])
        torch.testing.assert_close(now, was, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("value_bias", [False, True])
@pytest.mark.parametrize("sums_to_one", [False, True])
def test_the_mean_of_what_is_lost_is_given_back_by_the_output_bias(value_bias: bool, sums_to_one: bool) -> None:
    model = bert()
    layer, own = first(model)
    own = own if value_bias else replace(own, b_v=None)
    found = replace(moments_of(model, layer, text()), sums_to_one=sums_to_one)
    new = share_kv(own, ((0, 3, 4), (1, 2, 5)), found)

    def mean(w: HeadWeights) -> Tensor:
        assert w.b_o is not None
        total = w.b_o.clone()
        for h, kv in enumerate(w.groups.kv_of_head):
            at = found.context_moment.block[h, :-1, -1]
            total += w.o[h] @ (w.v[kv] @ at + (0 if w.b_v is None else w.b_v[kv]))
        return total

    assert own.b_o is not None
    assert new.b_o is not None
    assert sums_to_one != torch.equal(own.b_o, new.b_o)
    if sums_to_one:
        torch.testing.assert_close(mean(new), mean(own))
    if value_bias:
        assert new.b_v is not None
        assert bool(new.b_v.any()) != sums_to_one


@pytest.mark.parametrize("bias", [False, True])
def test_rotary_keys_share_where_they_differ_by_complex_numbers(bias: bool) -> None:
    model = llama(6, attention_bias=bias)
    planted(model, TWINS, turn=Pairs.halves(0, 8, 8))
    layer, own = first(model)
    found = moments_of(model, layer, text())
    assert (found.key_path.kind, found.key_path.pairs) == ("rotary", Pairs.halves(0, 8, 8))
    clusters = cluster(layer, own, found, 3)
    assert clusters == tuple(TWINS)
    small = copy.deepcopy(model)
    install(small, layer, arranged(share_kv(own, clusters, found)))
    ids = torch.randint(53, (3, 11))
    torch.testing.assert_close(hidden(small, ids), hidden(model, ids), rtol=1e-5, atol=1e-5)


def test_a_part_that_does_not_turn_is_free() -> None:
    model = neox()
    layer, own = first(model)
    found = moments_of(model, layer, text())
    assert found.key_path.pairs == Pairs.halves(0, 4, 8)
    with torch.no_grad():  # pairs by complex numbers, the rest by any matrix
        b_k = layer.b_K
        assert b_k is not None
        for a, b in TWINS:
            mix = torch.zeros(8, 8, dtype=torch.float64)
            mix[4:, 4:] = torch.randn(4, 4)
            for i in (0, 1):
                mix[i, i], mix[i + 2, i + 2], mix[i + 2, i], mix[i, i + 2] = 0.5, 0.5, 1.5, -1.5
            layer.W_K[b].copy_(mix @ layer.W_K[a])
            b_k[b][:4] = (mix @ b_k[a])[:4]
            layer.W_V[b].copy_(layer.W_V[a])
    own = HeadWeights.of(layer)
    found = moments_of(model, layer, text())
    small = copy.deepcopy(model)
    install(small, layer, arranged(share_kv(own, tuple(TWINS), found)))
    ids = torch.randint(53, (3, 11))
    torch.testing.assert_close(hidden(small, ids), hidden(model, ids), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "groups", "cost", "norms"),
    [
        (bert, ((0, 2, 5), (1, 3, 4)), 420.52480286634716,
         (12.503469603259393, 8.463590955076818, 8.556522243009402, 12.05375806926676)),
        (lambda: llama(3), ((0, 1, 4, 5), (2, 3)), 499.47632404433153,
         (15.783537453996571, 8.453874825447473, 9.272458987455877, 15.46166475947061)),
        (qwen, ((0, 1, 5), (2, 3, 4)), 233.20333625767802,
         (15.858618375095684, 9.332041349728474, 9.337902197309482, 13.811435916028858)),
        (neox, ((0, 1, 4), (2, 3, 5)), 1144.9519442490152,
         (14.375109910848037, 8.342469545865905, 9.793642813867027, 14.610029136835218)),
    ],
    ids=["plain", "rotary", "normed", "partly rotary"],
)  # fmt: skip
def test_the_result_is_that_of_moments_of_the_full_width(
    make: Any, groups: Any, cost: float, norms: tuple[float, ...]
) -> None:
    """Values of version 0.1.0, which kept width × width moments for every head."""
    model = make()
    torch.manual_seed(0)
    layer, own = first(loud(model))
    found = moments_of(model, layer, text())
    assert cluster(layer, own, found, 2) == groups
    assert sharing_cost(own, found)(tuple(range(own.kv_heads))) == pytest.approx(cost, rel=1e-8)
    new = share_kv(own, groups, found)
    assert [float(x.norm()) for x in (new.q, new.k, new.v, new.o)] == pytest.approx(norms, rel=1e-8)


def test_as_many_kv_heads_as_there_are_is_the_identity() -> None:
    for model in (bert(), llama(6), llama(2)):
        layer, own = first(model)
        found = moments_of(model, layer, text(3))
        same = share_kv(own, cluster(layer, own, found, own.kv_heads), found)
        for field in fields(own):
            was, now = getattr(own, field.name), getattr(same, field.name)
            assert torch.equal(was, now) if isinstance(was, Tensor) else was == now, field.name


def test_of_a_grouped_model_whole_kv_heads_go_together() -> None:
    model = llama(3)
    layer, own = first(model)
    found = moments_of(model, layer, text(3))
    clusters = cluster(layer, own, found, 2)
    assert sorted(len(c) for c in clusters) == [2, 4]
    new = share_kv(own, clusters, found)
    assert new.kv_heads == 2
    alone = next(c for c in clusters if len(c) == 2)[0]
    assert torch.equal(new.k[new.groups.kv_of_head[alone]], own.k[own.groups.kv_of_head[alone]])
    with pytest.raises(
        SizeError, match=r"heads \[0, 1\] share kv head 0 and must be in one group, got groups \[0, 1\]"
    ):
        share_kv(own, ((0, 2, 4), (1, 3, 5)), found)


def test_of_heads_that_are_left_the_numbers_are_those_of_the_uncut_layer() -> None:
    model = bert()
    planted(model, TWINS, turn=None)
    layer, own = first(model)
    found = moments_of(model, layer, text())
    left = own.keep([5, 1, 3, 2])
    clusters = cluster(layer, left, found, 2)
    assert sorted(map(sorted, clusters)) == [[1, 3], [2, 5]]
    new = share_kv(left, clusters, found)
    x = torch.randn(42, dtype=torch.float64)
    for h, old in enumerate(left.origin):
        kv = new.groups.kv_of_head[h]
        torch.testing.assert_close(new.o[h] @ (new.v[kv] @ x), own.o[old] @ (own.v[old] @ x), rtol=1e-6, atol=1e-6)


def test_through_a_norm_keys_are_selected_and_values_are_free() -> None:
    model = qwen()
    layer, _ = first(model)
    with torch.no_grad():
        for a, b in TWINS:
            layer.W_K[b].copy_(layer.W_K[a])
            layer.W_V[b].copy_(torch.randn(8, 8, dtype=torch.float64) @ layer.W_V[a])
    own = HeadWeights.of(layer)
    found = moments_of(model, layer, text())
    assert found.key_path.kind == "normed"
    assert cluster(layer, own, found, 3) == tuple(TWINS)
    new = share_kv(own, tuple(TWINS), found)
    assert all(any(torch.equal(k, old) for old in own.k) for k in new.k)
    small = copy.deepcopy(model)
    install(small, layer, arranged(new))
    ids = torch.randint(53, (3, 11))
    torch.testing.assert_close(hidden(small, ids), hidden(model, ids), rtol=1e-6, atol=1e-6)


def test_a_norm_over_all_heads_says_why_not() -> None:
    from transformers import Olmo2Config, Olmo2Model

    config = Olmo2Config(
        vocab_size=53, hidden_size=48, num_hidden_layers=1, num_attention_heads=6, intermediate_size=47
    )
    model = loud(Olmo2Model(config))
    layer, own = first(model)
    found = moments_of(model, layer, text(2))
    with pytest.raises(MultiheadError, match="the norm of the keys runs over all heads at once"):
        share_kv(own, adjacent(own, 3), found)


def test_moments_are_those_of_maps_written_out() -> None:
    model = bert()
    layer, own = first(model)
    ids = torch.randint(53, (3, 11))
    real = torch.tensor([[1] * 11, [1] * 7 + [0] * 4, [1] * 2 + [0] * 9])
    found = moments_of(model, layer, [{"input_ids": ids, "attention_mask": real}])
    x = model.embeddings(ids).detach()
    assert own.b_q is not None
    assert own.b_k is not None
    q = torch.einsum("btd,hkd->bhtk", x, own.q) + own.b_q[:, None]
    k = torch.einsum("btd,hkd->bhtk", x, own.k) + own.b_k[:, None]
    p = (q @ k.mT / 7**0.5).masked_fill(real[:, None, None] == 0, -torch.inf).softmax(-1)
    one = torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)
    rows = [(b, i) for b in range(3) for i in range(11) if real[b, i]]
    context = torch.zeros(6, 43, 43, dtype=torch.float64)
    attended = torch.zeros_like(context)
    for b, i in rows:
        for h in range(6):
            mean = p[b, h, i] @ one[b]
            context[h] += torch.outer(mean, mean) / len(rows)
            attended[h] += one[b].T @ (p[b, h, i][:, None] * one[b]) / len(rows)
    assert found.tokens == len(rows)
    torch.testing.assert_close(found.context_moment.block, context)
    torch.testing.assert_close(found.attended_key_moment.block, attended)
    torch.testing.assert_close(found.key, sum(torch.outer(one[b, i], one[b, i]) for b, i in rows) / len(rows))
    assert found.key_path.scale == pytest.approx(7**-0.5)


class _Ragged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = mh.MultiHeadAttention(12, 3)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.attn(x, mask=mask.causal() & mask.ragged(lengths))


def test_moments_under_a_ragged_mask_are_those_of_each_row() -> None:
    model, x, lengths = _Ragged().eval(), torch.randn(3, 7, 12), torch.tensor([7, 2, 4])
    [layer] = mh.anatomy(model, {"x": x, "lengths": lengths})
    together = moments_of(model, layer, [{"x": x, "lengths": lengths}])
    alone = moments_of(
        model, layer, [{"x": x[i : i + 1, :n], "lengths": lengths[i : i + 1]} for i, n in enumerate(lengths)]
    )
    assert_same(together, alone)


def test_exchange_finds_the_best_of_all_partitions() -> None:
    far = torch.rand(6, 6, generator=torch.Generator().manual_seed(3))
    cost = lambda some: float(far[list(some)][:, list(some)].sum()) ** 2
    found = exchange(6, [2, 2, 2], cost)
    best = min(
        sum(map(cost, parts))
        for order in permutations(range(6))
        if len(parts := {tuple(sorted(order[i : i + 2])) for i in (0, 2, 4)}) == 3
    )
    assert sum(map(cost, found)) == pytest.approx(best)


def test_errors_say_both_values() -> None:
    model = bert()
    layer, own = first(model)
    found = moments_of(model, layer, text(2))
    with pytest.raises(SizeError, match=r"6 kv heads cannot become 7 \(L0\)\n\nhint: choose one of 1, 2, 3, 6"):
        cluster(layer, own, found, 7)
    with pytest.raises(SizeError, match=r"kv groups \(\(0, 1\),\) must hold the heads \(0, 1, 2, 3, 4, 5\)"):
        share_kv(own, ((0, 1),), found)
    with pytest.raises(MultiheadError, match=r"L0 .* did not attend to anything"):
        moments_of(model, layer, [])
    with pytest.raises(MultiheadError, match=r"L0 \(elsewhere\) did not attend"):
        moments_of(model, replace(layer, site=replace(layer.site, path="elsewhere")), text(2))


def test_the_joint_factorisation_loses_less_than_the_mean() -> None:
    model = bert()
    layer, own = first(model)
    found = moments_of(model, layer, text(40))
    clusters, ids = cluster(layer, own, found, 2), torch.randint(53, (7, 13))
    group_of = {h: g for g, heads in enumerate(clusters) for h in heads}
    joint = share_kv(own, clusters, found)
    k, v, b_k, b_v = (
        torch.stack([x[list(heads)].mean(0) for heads in clusters])
        for x in (own.k, own.v, _there(own.b_k), _there(own.b_v))
    )
    groups = Groups(tuple(group_of[h] for h in range(6)), 2)
    mean = replace(own, k=k, v=v, b_k=b_k, b_v=b_v, groups=groups, kv_origin=joint.kv_origin)
    off: list[float] = []
    for weights in (joint, mean):
        small = copy.deepcopy(model)
        install(small, layer, arranged(weights))
        off.append(float((hidden(small, ids) - hidden(model, ids)).norm().detach()))
    assert off[0] < off[1]


def _there(x: Tensor | None) -> Tensor:
    assert x is not None
    return x


def test_where_the_text_says_nothing_weights_stay_of_their_size() -> None:
    """Inputs of 5 directions in a width of 24: what the other directions would need is not made up."""
    model = nn.TransformerEncoderLayer(24, 4, batch_first=True).double().eval()
    few = torch.randn(5, 24, dtype=torch.float64)
    batches = [{"src": torch.randn(3, 11, 5, dtype=torch.float64) @ few} for _ in range(4)]
    layer = mh.anatomy(model, batches[0])[0]
    own, moments = HeadWeights.of(layer), moments_of(model, layer, batches)
    made = share_kv(own, cluster(layer, own, moments, 2), moments)
    for name in ("q", "k", "v", "o"):
        before, after = getattr(own, name), getattr(made, name)
        assert after.square().mean() < 400 * before.square().mean(), name


def test_equal_tokens_share_keys_and_values() -> None:
    """The attended inputs have no covariance but rounding, which may be negative."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    config = GPTNeoXConfig(
        vocab_size=53, hidden_size=40, num_hidden_layers=2, num_attention_heads=4, intermediate_size=34,
        initializer_range=0.3, max_position_embeddings=40,
    )  # fmt: skip
    model = GPTNeoXForCausalLM(config).eval()
    texts = [[5] * length for length in range(4, 24)]
    small = mh.cut(model, mh.plan(model, texts, kv_heads=2))
    given = torch.full((1, 9), 5)
    with torch.no_grad():
        expected, actual = model(given).logits, small(given).logits
    assert [layer.num_kv_heads for layer in mh.anatomy(small)] == [2, 2]
    torch.testing.assert_close(actual, expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_rotated_keys_are_rotated_in_every_dtype(dtype: torch.dtype) -> None:
    """transformers computes sine and cosine in fp32, also for a model in fp64."""
    model = llama(6).to(dtype)
    batch = {"input_ids": torch.randint(53, (5, 13))}
    path = moments_of(model, mh.anatomy(model)[0], [batch]).key_path
    assert (path.kind, path.pairs) == ("rotary", Pairs.halves(0, 8, 8))
