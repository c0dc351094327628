"""The layer as people use it: sizes, projections, inputs of every shape, and that one call means one thing."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import multihead as mh
import oracle
from multihead import mask, position
from multihead.errors import SizeError
from multihead.layer import QKNorm, Sinks, init
from multihead.layer._plan import ROUTES

BATCH, TOKENS, WIDTH, HEADS = 2, 7, 30, 6
LOUD = init.XavierPerHead(1.4)


def layer_of(**options: Any) -> mh.MultiHeadAttention:
    options.setdefault("init", LOUD)
    return mh.MultiHeadAttention(options.pop("d_model", WIDTH), options.pop("num_heads", HEADS), **options)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(BATCH, TOKENS, WIDTH)


class TestMade:
    def test_projections_are_plain_linears_of_these_sizes(self) -> None:
        layer = layer_of(num_kv_heads=2, head_dim=7, value_dim=11, d_key=13, d_value=17, d_out=19)
        sizes = {name: tuple(p.shape) for name, p in layer.named_parameters()}
        assert sizes == {
            "q_proj.weight": (42, 30), "q_proj.bias": (42,),
            "k_proj.weight": (14, 13), "k_proj.bias": (14,),
            "v_proj.weight": (22, 17), "v_proj.bias": (22,),
            "o_proj.weight": (19, 66), "o_proj.bias": (19,),
        }  # fmt: skip
        assert all(type(getattr(layer, f"{n}_proj")) is nn.Linear for n in "qkvo")

    def test_attributes(self) -> None:
        layer = layer_of(num_kv_heads=2)
        assert (layer.d_model, layer.num_heads, layer.num_kv_heads) == (30, 6, 2)
        assert (layer.head_dim, layer.value_dim, layer.scale) == (5, 5, 5**-0.5)
        assert layer.kv_of_head == (0, 0, 0, 1, 1, 1)
        assert (layer.softcap, layer.dropout) == (None, 0.0)

    @pytest.mark.parametrize(
        "bias, letters", [(True, "qkvo"), (False, ""), ("", ""), ("qkv", "qkv"), ("o", "o"), ("vq", "qv")]
    )
    def test_biases(self, bias: bool | str, letters: str) -> None:
        layer = layer_of(bias=bias)
        assert {n for n in "qkvo" if getattr(layer, f"{n}_proj").bias is not None} == set(letters)

    def test_what_belongs_to_a_variant_is_there_with_it_only(self) -> None:
        plain = {name for name, _ in layer_of().named_parameters()}
        full = layer_of(qk_norm=QKNorm("layer"), sinks=Sinks(2.0), position=position.RelativeBias(HEADS))
        more = {name for name, _ in full.named_parameters()} - plain
        assert more == {
            "q_norm.weight", "q_norm.bias", "k_norm.weight", "k_norm.bias", "sink_logits", "position.weight"
        }  # fmt: skip
        assert full.sink_logits is not None
        assert full.sink_logits.tolist() == [2.0] * HEADS

    def test_reads_well(self) -> None:
        layer = layer_of(kv_of_head=[0, 1, 1, 0, 1, 1], softcap=3.0, scale=0.5, dropout=0.1, value_dim=4)
        said = layer.extra_repr()
        for part in ("30, 6", "kv_of_head=[0, 1, 1, 0, 1, 1]", "softcap=3.0", "scale=0.5", "dropout=0.1"):
            assert part in said
        assert "head_dim=5" in said
        assert "value_dim=4" in said
        assert "kv" not in layer_of().extra_repr()

    def test_state_dicts_copies_and_pickles_keep_everything(self, x: Tensor) -> None:
        layer = layer_of(num_kv_heads=2, sinks=Sinks(), position=position.Rotary(dim=4), qk_norm=QKNorm())
        want = layer(x, mask=mask.causal())
        other = layer_of(num_kv_heads=2, sinks=Sinks(), position=position.Rotary(dim=4), qk_norm=QKNorm())
        other.load_state_dict(layer.state_dict())
        file = io.BytesIO()
        torch.save(layer, file)
        file.seek(0)
        for same in (other, copy.deepcopy(layer), torch.load(file, weights_only=False)):
            assert torch.equal(same(x, mask=mask.causal()), want)


class TestInputs:
    def test_self_attention_is_attention_to_itself(self, x: Tensor) -> None:
        layer = layer_of()
        assert_close(layer(x), layer(x, x, x))
        assert_close(layer(x), layer(x, x))

    def test_without_a_batch(self, x: Tensor) -> None:
        layer, seen = layer_of(num_kv_heads=2, sinks=Sinks()), mask.causal()
        want = layer(x, mask=seen, ask=["weights", "lse", "heads"])
        got = layer(x[1], mask=seen, ask=["weights", "lse", "heads"])
        for name in ("out", "weights", "lse", "heads"):
            assert_close(getattr(got, name), getattr(want, name)[1])
        assert_close(layer(x[0], x[1], x[1]), layer(x[:1], x[1:], x[1:])[0])
        assert layer(x[0]).shape == (TOKENS, WIDTH)

    @pytest.mark.parametrize("route", [None, *ROUTES])
    def test_one_token(self, route: str | None) -> None:
        layer = layer_of(num_kv_heads=2)
        x = torch.randn(BATCH, 1, WIDTH)
        want = layer.o_proj(layer.v_proj(x).unflatten(-1, (2, 5)).repeat_interleave(3, dim=2).flatten(2))
        with torch.no_grad():
            try:
                assert_close(layer(x, mask=mask.causal(), route=route), want)
            except SizeError as refusal:
                assert "cannot compute this" in refusal.message

    @pytest.mark.parametrize(
        "query, key", [((0, 7), (0, 7)), ((2, 0), (2, 0)), ((2, 0), (2, 7)), ((2, 3), (2, 0)), ((0, 0), (0, 0))]
    )
    @pytest.mark.parametrize("options", [{}, {"sinks": Sinks()}, {"softcap": 2.0}, {"num_kv_heads": 2}])
    @pytest.mark.parametrize("where", [None, "rotary", "alibi"])
    def test_nothing(
        self, query: tuple[int, int], key: tuple[int, int], options: dict[str, Any], where: str | None
    ) -> None:
        """An empty batch, no queries, no keys: the right shape, and the output bias where nothing is seen."""
        place = {"rotary": position.Rotary(dim=4), "alibi": position.ALiBi(HEADS)}.get(where or "")
        layer = layer_of(**options, position=place)
        nn.init.normal_(layer.o_proj.bias)
        q = torch.randn(*query, WIDTH, requires_grad=True)
        k = torch.randn(*key, WIDTH, requires_grad=True)
        got = layer(q, k, ask=["weights", "lse", "heads"])
        assert got.weights.shape == (query[0], HEADS, query[1], key[1])
        assert got.lse.shape == (query[0], HEADS, query[1])
        assert_close(got.out, layer.o_proj.bias.expand(*query, -1))
        got.out.sum().backward()
        assert q.grad is not None
        assert q.grad.isfinite().all()
        assert_close(layer(q, k, mask=mask.padding(torch.ones(key, dtype=torch.bool))), got.out)
        if query == key:
            assert_close(layer(q, mask=mask.causal() & mask.lengths([key[1]] * key[0])), got.out)
            assert_close(layer(q, mask=mask.causal() & mask.ragged([key[1]] * key[0])), got.out)

    @pytest.mark.parametrize("kv", [None, 0])
    @pytest.mark.parametrize("bias", [True, False])
    def test_zero_heads_give_the_output_bias(self, bias: bool, kv: int | None, x: Tensor) -> None:
        layer = mh.MultiHeadAttention(WIDTH, 0, head_dim=5, num_kv_heads=kv, bias=bias)
        want = torch.zeros(WIDTH)
        if bias:
            nn.init.normal_(layer.o_proj.bias)
            want = layer.o_proj.bias
        for seen in (None, mask.causal(), mask.ragged([7, 3])):
            assert_close(layer(x, mask=seen), want.expand_as(x))
        got = layer(x, mask=mask.causal(), ask=["weights", "lse", "heads"])
        assert got.weights.shape == (BATCH, 0, TOKENS, TOKENS)
        assert got.heads.shape == (BATCH, 0, TOKENS, 5)
        assert "0 heads" in str(layer.explain(x))
        if bias:
            layer(x).sum().backward()
            assert layer.o_proj.bias.grad is not None

    def test_lengths_and_ragged_differ_in_the_padding_only(self, x: Tensor) -> None:
        layer = layer_of()
        nn.init.normal_(layer.o_proj.bias)
        keys, both = layer(x, mask=mask.lengths([7, 3])), layer(x, mask=mask.ragged([7, 3]))
        assert_close(both[0], keys[0])
        assert_close(both[1, :3], keys[1, :3])
        assert torch.equal(both[1, 3:], layer.o_proj.bias.expand(4, -1))
        assert (keys[1, 3:] - both[1, 3:]).abs().max() > 0.01

    def test_padding_of_a_ragged_batch_is_never_read(self, x: Tensor) -> None:
        layer = layer_of(position=position.ALiBi(HEADS))
        want = layer(x, mask=mask.ragged([2, 5]))
        dirty = x.clone()
        dirty[0, 2:], dirty[1, 5:] = torch.nan, torch.inf
        dirty.requires_grad_()
        got = layer(dirty, mask=mask.ragged([2, 5]))
        assert_close(got, want)
        (grad,) = torch.autograd.grad(got.square().sum(), dirty)
        assert grad.isfinite().all()
        assert not grad[0, 2:].any()


class TestPositions:
    @pytest.mark.parametrize(
        "place", [position.Rotary(50.0, dim=4), position.ALiBi(HEADS), position.RelativeBias(HEADS)]
    )
    def test_only_distances_count(self, place: Any, x: Tensor) -> None:
        layer = layer_of(position=place)
        shifted = layer(x, mask=mask.causal(), positions=torch.arange(TOKENS) + 100)
        assert_close(shifted, layer(x, mask=mask.causal()), rtol=1e-5, atol=3e-5)
        stretched = layer(x, mask=mask.causal(), positions=torch.arange(TOKENS) * 3)
        if not isinstance(place, position.RelativeBias):  # its table starts out nearly flat
            assert (stretched - shifted).abs().max() > 0.01

    def test_positions_move_no_mask(self, x: Tensor) -> None:
        layer = layer_of(position=position.Rotary(50.0, dim=4))
        backwards, lower = torch.arange(TOKENS).flip(0), torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
        got = layer(x, mask=mask.causal(), positions=backwards)
        assert_close(got, layer(x, mask=mask.tensor(lower), positions=backwards))
        assert (got - layer(x, mask=mask.causal())).abs().max() > 0.01

    def test_positions_without_an_encoding_are_refused(self, x: Tensor) -> None:
        with pytest.raises(SizeError, match="positions"):
            layer_of()(x, positions=torch.arange(TOKENS))

    def test_one_row_of_positions_per_batch_row(self, x: Tensor) -> None:
        layer = layer_of(position=position.Rotary(50.0, dim=2))
        rows = torch.stack([torch.arange(TOKENS) * 2, torch.arange(TOKENS) + 5])
        got = layer(x, mask=mask.ragged([3, 7]), positions=rows)
        for b, n in enumerate([3, 7]):
            assert_close(got[b, :n], layer(x[b, :n], positions=rows[b, :n]))

    def test_cross_attention_stands_bottom_right(self, x: Tensor) -> None:
        layer = layer_of(position=position.Rotary(50.0, dim=4))
        full = layer(x, mask=mask.causal())
        assert_close(layer(x[:, -3:], x, mask=mask.causal()), full[:, -3:])

    def test_a_bias_whose_keys_stand_elsewhere_is_refused(self, x: Tensor) -> None:
        layer = layer_of(position=position.ALiBi(HEADS))
        with pytest.raises(SizeError, match="positions"):
            layer(x, x.clone(), positions=torch.arange(TOKENS))


class TestGate:
    def test_a_closed_gate_is_a_pruned_head(self, x: Tensor) -> None:
        layer = layer_of()
        gate = torch.ones(HEADS)
        gate[[1, 4]] = 0
        keep = [h for h in range(HEADS) if gate[h]]
        small = layer_of(num_heads=4, head_dim=5)
        take = lambda w: w.unflatten(0, (HEADS, 5))[keep].flatten(0, 1)
        with torch.no_grad():
            for name in "qkv":
                getattr(small, f"{name}_proj").weight.copy_(take(getattr(layer, f"{name}_proj").weight))
                getattr(small, f"{name}_proj").bias.copy_(take(getattr(layer, f"{name}_proj").bias))
            small.o_proj.weight.copy_(layer.o_proj.weight.unflatten(1, (HEADS, 5))[:, keep].flatten(1))
            small.o_proj.bias.copy_(layer.o_proj.bias)
        assert_close(layer(x, mask=mask.causal(), head_gate=gate), small(x, mask=mask.causal()))

    @pytest.mark.parametrize("shape", [(HEADS,), (1, HEADS), (BATCH, HEADS), (BATCH, HEADS, TOKENS), (1, HEADS, 1)])
    @pytest.mark.parametrize("seen", [None, mask.ragged([7, 2])])
    def test_each_shape_multiplies_the_heads(self, shape: tuple[int, ...], seen: Any, x: Tensor) -> None:
        layer, gate = layer_of(), torch.randn(shape)
        heads = layer(x, mask=seen, ask="heads").heads
        full = gate.view(1, -1, 1) if gate.ndim == 1 else gate.unsqueeze(-1) if gate.ndim == 2 else gate
        want = layer.o_proj((heads * full[..., None]).transpose(1, 2).flatten(2))
        assert_close(layer(x, mask=seen, head_gate=gate), want)
        assert_close(layer(x, mask=seen, head_gate=gate, ask="heads").heads, heads * full[..., None])


class TestPrecision:
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    @pytest.mark.parametrize(
        "options",
        [{}, {"sinks": Sinks()}, {"softcap": 2.0}, {"position": position.ALiBi(HEADS)}, {"value_dim": 7}],
    )
    def test_half_precision_is_close_on_every_route(self, dtype: torch.dtype, options: Any, x: Tensor) -> None:
        layer = layer_of(**options, num_kv_heads=2)
        want = layer(x[:, -1:], x, mask=mask.causal())
        half = copy.deepcopy(layer).to(dtype)
        tokens = x.to(dtype)
        with torch.no_grad():
            for route in [None, *ROUTES]:
                try:
                    got = half(tokens[:, -1:], tokens, mask=mask.causal(), route=route)
                except SizeError as refusal:
                    assert "cannot compute this" in refusal.message
                    continue
                assert got.dtype == dtype
                assert_close(got.float(), want, rtol=0.05, atol=0.05)

    @pytest.mark.parametrize("seen", [mask.causal(), mask.ragged([7, 3]), mask.additive(torch.randn(7, 7))])
    def test_autocast(self, seen: mask.Mask, x: Tensor) -> None:
        layer = layer_of(num_kv_heads=2, position=position.Rotary(dim=4), sinks=Sinks(), qk_norm=QKNorm())
        want = layer(x, mask=seen)
        with torch.autocast("cpu", torch.bfloat16):
            got = layer(x, mask=seen)
        assert got.dtype == torch.bfloat16
        assert_close(got.float(), want, rtol=0.06, atol=0.06)
        got.sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())

    def test_large_scores_do_not_overflow(self) -> None:
        layer = layer_of(scale=1e4, sinks=Sinks(50.0))
        x = torch.randn(BATCH, TOKENS, WIDTH) * 100
        for route in ("reference", "fused", "blocked"):
            assert layer(x, mask=mask.causal(), route=route).isfinite().all()


class TestTraining:
    def test_checkpointing_gives_the_same_gradients(self, x: Tensor) -> None:
        layer = layer_of(softcap=2.0, dropout=0.3)
        grads = []
        for run in (layer, lambda x, **kw: checkpoint(layer, x, use_reentrant=False, **kw)):
            torch.manual_seed(3)
            grads.append(torch.autograd.grad(run(x, mask=mask.causal()).square().sum(), list(layer.parameters())))
        for one, other in zip(*grads, strict=True):
            assert_close(one, other)

    def test_it_learns(self) -> None:
        layer = layer_of(num_kv_heads=2, position=position.Rotary(dim=4), sinks=Sinks(), qk_norm=QKNorm())
        x, want = torch.randn(4, 11, WIDTH), torch.randn(4, 11, WIDTH)
        optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
        losses = []
        for _ in range(60):
            loss = (layer(x, mask=mask.causal()) - want).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.5 * losses[0]

    def test_train_and_eval_without_dropout_are_one(self, x: Tensor) -> None:
        layer = layer_of()
        assert torch.equal(layer.train()(x, mask=mask.causal()), layer.eval()(x, mask=mask.causal()))

    def test_no_grad_and_inference_mode_are_the_same_numbers(self, x: Tensor) -> None:
        layer = layer_of(num_kv_heads=2, position=position.Rotary(dim=4))
        want = layer(x, mask=mask.causal()).detach()
        with torch.no_grad():
            assert_close(layer(x, mask=mask.causal()), want)
        with torch.inference_mode():
            assert_close(layer(x, mask=mask.causal()), want)


def test_logits_of_the_drawn_cases_are_loud() -> None:
    """Tolerances mean something only if softmax rows are not flat."""
    layer = layer_of()
    x = torch.randn(8, 31, WIDTH)
    q, k = (p(x).unflatten(-1, (HEADS, 5)).transpose(1, 2) for p in (layer.q_proj, layer.k_proj))
    assert (q @ k.mT * layer.scale).std() > 1


@pytest.mark.parametrize("group", [1, 2, 3])
def test_query_head_h_reads_kv_head_h_over_group(group: int, x: Tensor) -> None:
    layer = layer_of(num_kv_heads=HEADS // group)
    parameters = dict(layer.named_parameters())
    variant = oracle.Variant(HEADS, 5, 5, tuple(h // group for h in range(HEADS)))
    assert_close(layer(x), oracle.attention(variant, parameters, x).out)
    explicit = layer_of(kv_of_head=[h // group for h in range(HEADS)])
    explicit.load_state_dict(layer.state_dict())
    assert torch.equal(explicit(x), layer(x))
