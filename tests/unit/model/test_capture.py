"""What a capture keeps, gives on demand, and says when something is wrong."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import multihead as mh
import zoo
from multihead import cache, mask, position
from multihead.errors import SizeError
from multihead.model import adapter
from multihead.model.kept_tensors import Keep
from multihead.model.layer_labels import layers_of
from multihead.table.head_names import parse


def build(name: str) -> tuple[nn.Module, dict[str, Any]]:
    return zoo.ZOO[name].build(), zoo.ZOO[name].batch(False)


# ---- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["L3H7", "3.7", (3, 7)])
def test_one_head_has_several_spellings(name: Any) -> None:
    assert parse(name) == (None, 3, 7)


@pytest.mark.parametrize("name", ["decoder.L3H7", "decoder.3.7", ("decoder", 3, 7)])
def test_stacks_are_named(name: Any) -> None:
    assert parse(name) == ("decoder", 3, 7)


@pytest.mark.parametrize("name", ["L3", "", "H7L3", (1, 2, 3, 4), 5, ("a", "b")])
def test_what_is_no_name_is_refused(name: Any) -> None:
    with pytest.raises(SizeError, match="is not a head name"):
        parse(name)


def test_layers_are_the_number_that_differs() -> None:
    assert layers_of([f"decoder.block.{i}.layer.0.SelfAttention" for i in (0, 2, 5)]) == [0, 2, 5]
    assert layers_of([f"stages.{i}.blocks.{j}.attn" for i in (0, 1) for j in (0, 1)]) == [0, 1, 2, 3]


def test_stacks_of_a_translator() -> None:
    model, batch = build("t5")
    with mh.capture(model) as heads:
        model(**batch)
    assert [s.label for s in heads.sites][:4] == ["encoder.L0", "encoder.L1", "decoder.L0", "cross.L0"]
    assert heads["cross.L1H2"].site.cross
    with pytest.raises(SizeError, match=r"ambiguous: encoder\.L0, decoder\.L0, cross\.L0"):
        heads["L0H0"]


def test_an_unknown_head_is_an_error_that_lists_the_known() -> None:
    model, batch = build("gpt2")
    with mh.capture(model) as heads:
        model(**batch)
    with pytest.raises(SizeError, match=r"'L7H0'; the model has L0 \(3 heads\), L1 \(3 heads\)"):
        heads["L7H0"]
    with pytest.raises(SizeError, match="L1 has 3 heads, got head 3"):
        heads[1, 3]
    assert "L1H2" in heads
    assert "L1H3" not in heads


# ---- what is kept -----------------------------------------------------------------------------


def test_nothing_is_kept_unless_asked_for() -> None:
    model, batch = build("bert")
    with mh.capture(model) as heads:
        model(**batch)
    with pytest.raises(mh.MultiheadError, match="nothing was kept of L1") as caught:
        heads["L1H0"].weights()
    assert caught.value.hint is not None
    assert "keep='qk'" in caught.value.hint


def test_some_layers_only() -> None:
    model, batch = build("bert")
    with mh.capture(model, statistics=None, keep=Keep(qk=["L1"])) as heads:
        model(**batch)
    assert heads["L1H0"].weights().shape == (2, 11, 11)
    with pytest.raises(mh.MultiheadError, match="nothing was kept of L0"):
        heads["L0H0"].weights()
    with pytest.raises(mh.MultiheadError, match="no statistics of L1"):
        heads["L1H0"].mean("entropy")
    with (
        pytest.raises(SizeError, match="unknown layer 'L9'; the model has L0, L1"),
        mh.capture(model, keep=Keep(qk=["L9"])),
    ):
        pass
    with pytest.raises(SizeError, match="unknown keep='maps'"), mh.capture(model, keep="maps"):
        pass


def test_maps_are_what_eager_attention_gives() -> None:
    """Against transformers' own eager maps, every head, with padding."""
    from transformers import BertModel

    entry = zoo.ZOO["bert"]
    model, batch = entry.build(), entry.batch(True)
    assert isinstance(model.base_model, BertModel)
    with torch.no_grad(), mh.capture(model, keep="qk") as heads:
        model(**batch)
    model.set_attn_implementation("eager")  # type: ignore[operator]
    with torch.no_grad():
        maps = model(**batch, output_attentions=True).attentions
    real = batch["attention_mask"].bool()
    for layer, expected in enumerate(maps):
        for head in range(expected.shape[1]):
            torch.testing.assert_close(heads[layer, head].weights()[real], expected[:, head][real])


def test_rows_and_calls() -> None:
    model, batch = build("llama")
    other = {"input_ids": batch["input_ids"].flip(1)}
    with torch.no_grad(), mh.capture(model, keep="qk v outputs") as heads:
        model(**batch)
        model(**other)
    head = heads["L1H4"]
    torch.testing.assert_close(head.weights(rows=[3, -1], call=0), head.weights(call=0)[:, [3, -1]])
    assert not torch.allclose(head.weights(call=0), head.weights())
    torch.testing.assert_close(head.weights() @ head.value(), head.output())
    torch.testing.assert_close(head.key(), heads["L1H3"].key())  # one group
    assert head.query().shape == (2, 11, 4)
    with pytest.raises(mh.MultiheadError, match="2 calls of L1 were kept, got call 2"):
        head.weights(call=2)


def test_a_map_that_does_not_fit_says_so() -> None:
    model, batch = build("gpt2")
    with mh.capture(model, keep="qk") as heads:
        model(**batch)
    with pytest.raises(SizeError, match=r"the map of L0H0 .* 2 x 11 x 11 cells") as caught:
        heads["L0H0"].weights(largest=500)
    assert caught.value.hint is not None
    assert "weights(rows=range(5))" in caught.value.hint
    assert heads["L0H0"].weights(rows=range(5), largest=500).shape == (2, 5, 11)


def test_a_static_cache_may_be_written_over() -> None:
    """What was kept is of that call, also where the key tensor is a view into a cache that fills on."""
    from transformers import StaticCache

    model, batch = build("llama")
    cache = StaticCache(config=model.config, max_cache_len=17)  # type: ignore[arg-type]
    ids = batch["input_ids"]
    with torch.no_grad(), mh.capture(model, keep="qk") as heads:
        model(input_ids=ids[:, :7], past_key_values=cache)
        model(input_ids=ids[:, 7:], past_key_values=cache)
    with torch.no_grad(), mh.capture(model, keep="qk") as whole:
        model(input_ids=ids)
    for layer in (0, 1):
        first, rest = heads[layer, 2].weights(call=0), heads[layer, 2].weights(call=1)
        expected = whole[layer, 2].weights()
        torch.testing.assert_close(first[..., :7], expected[:, :7, :7])
        torch.testing.assert_close(rest[..., :11], expected[:, 7:])
        # Places are told by the mask: the statistics are those of the whole run.
    for name in ("entropy", "distance", "self", "previous", "first", "same_token", "induction"):
        for a, b in zip(heads, whole, strict=True):
            assert a.mean(name) == pytest.approx(b.mean(name), rel=1e-4, abs=1e-6), name


def test_generate_is_seen_step_by_step() -> None:
    """Statistics over prefill and decoding are those of one run over all but the last token."""
    model, batch = build("llama")
    ids = batch["input_ids"]
    with torch.no_grad(), mh.capture(model) as heads:
        out = model.generate(  # type: ignore[operator]
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=5, do_sample=False,
            eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
    with torch.no_grad(), mh.capture(model) as whole:
        model(input_ids=out[:, :-1])
    assert heads.tokens == whole.tokens == 2 * 15
    for name in ("entropy", "distance", "max_weight", "same_token", "induction", "offset-3"):
        for a, b in zip(heads, whole, strict=True):
            assert a.mean(name) == pytest.approx(b.mean(name), rel=1e-4, abs=1e-6), name


# ---- bad input --------------------------------------------------------------------------------


class ByHand(nn.Module):
    """Attention that nobody can see."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(12, 36), nn.Linear(12, 12)

    def split(self, x: Tensor) -> Tensor:
        return self.qkv(x).unflatten(-1, (3, 3, 4)).permute(2, 0, 3, 1, 4)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        return self.out(((q @ k.mT / 2).softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_no_attention_is_an_error_that_says_what_was_looked_at() -> None:
    class SelfAttention(ByHand):
        pass

    model = nn.Sequential(nn.Linear(12, 12), SelfAttention())
    with (
        pytest.raises(
            mh.MultiheadError, match=r"ran 2 times and no attention was seen.*SelfAttention \(1\)"
        ) as caught,
        mh.capture(model),
    ):
        model(torch.randn(2, 5, 12))
        model(torch.randn(2, 5, 12))
    assert caught.value.hint is not None
    assert "@multihead.model.adapter" in caught.value.hint
    with pytest.raises(mh.MultiheadError, match=r"Linear ran 1 time .*No module is named like attention"):
        linear = nn.Linear(2, 2)
        with mh.capture(linear):
            linear(torch.randn(1, 2))
    with pytest.raises(mh.MultiheadError, match="did not run inside the block"), mh.capture(model):
        pass


def test_an_adapter_shows_it() -> None:
    class Mine(ByHand):
        pass

    @adapter(Mine)
    def forward(module: Mine, attend: Any, x: Tensor) -> Tensor:
        q, k, v = module.split(x)
        return module.out(attend(q, k, v).transpose(1, 2).flatten(2))

    first = Mine()
    model, x = nn.Sequential(first, Mine()), torch.randn(2, 5, 12)
    before = model(x)
    with mh.capture(model, keep="qk") as heads:
        torch.testing.assert_close(model(x), before)
    q, k, _ = first.split(x)
    torch.testing.assert_close(heads["L0H1"].weights(), (q @ k.mT / 2).softmax(-1)[:, 1])
    with mh.ablate(model, ["L1H2"]):
        assert not torch.allclose(model(x), before)
    assert torch.equal(model(x), before)
    assert "forward" not in vars(model[0])


def test_a_wrong_adapter_is_found_out() -> None:
    class Mine(ByHand):
        pass

    @adapter(Mine)
    def forward(module: Mine, attend: Any, x: Tensor) -> Tensor:
        q, k, v = module.split(x)
        return module.out(attend(q, k, v, scale=1 / math.sqrt(12)).transpose(1, 2).flatten(2))

    only = Mine()
    nn.init.normal_(only.qkv.weight)
    model = nn.Sequential(only).eval()
    with pytest.raises(mh.MultiheadError, match=r"the adapter of Mine \(0\) must match the module"):
        with mh.capture(model):
            model(torch.randn(2, 5, 12))
    assert "forward" not in vars(model[0])


def test_silent_failures_of_transformers_are_loud() -> None:
    model, batch = build("bert")
    with pytest.raises(mh.MultiheadError, match="BertForMaskedLM ignores head_mask"), mh.capture(model):
        model(**batch, head_mask=torch.ones(2, 3))
    with pytest.raises(mh.MultiheadError, match="output_attentions must be off"), mh.capture(model):
        model(**batch, output_attentions=True)


@pytest.mark.parametrize(("name", "limit"), [("bert", 37), ("roberta", 35), ("gpt2", 37), ("opt", 37)])
def test_too_many_tokens_are_refused_before_the_run(name: str, limit: int) -> None:
    model, _ = build(name)
    fits = torch.randint(5, 90, (1, limit))
    with torch.no_grad():
        model(input_ids=fits)  # the limit is the model's own
        with mh.capture(model):
            model(input_ids=fits)
        with pytest.raises(SizeError, match=f"positions for {limit} tokens, got {limit + 1}"):
            with mh.capture(model):
                model(input_ids=torch.randint(5, 90, (1, limit + 1)))


def test_nan_is_counted_per_layer() -> None:
    model, batch = build("llama")
    with torch.no_grad():
        model.model.layers[1].self_attn.q_proj.weight[0, 0] = math.nan  # type: ignore[index, union-attr]
        with pytest.warns(UserWarning, match="L1: up to 22 of 22 rows have NaN or inf, in 1 of 6 heads"):
            with mh.capture(model) as heads:
                model(**batch)
    assert math.isfinite(heads["L0H0"].mean("entropy"))
    assert math.isfinite(heads["L1H5"].mean("entropy"))
    assert math.isnan(heads["L1H0"].mean("entropy"))


def test_training_with_dropout_says_what_it_measured() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 3, dropout=0.5, batch_first=True), 2).train()
    with (
        pytest.warns(UserWarning, match="attention weights before dropout"),
        mh.capture(model, keep="qk") as heads,
    ):
        model(torch.randn(2, 5, 12))
    torch.testing.assert_close(heads["L0H0"].weights().sum(-1), torch.ones(2, 5))


def test_rows_of_padding_are_left_out_and_counted() -> None:
    model, _ = build("bert")
    ids = torch.randint(5, 90, (3, 11))
    kept = torch.ones_like(ids)
    kept[1, 6:], kept[2] = 0, 0  # the last row is all padding
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        with mh.capture(model) as heads:
            model(input_ids=ids, attention_mask=kept)
        with mh.capture(model) as alone:
            model(input_ids=ids[:1])
            model(input_ids=ids[1:2, :6])
    assert heads.tokens == alone.tokens == 17
    found = heads.statistics(heads.sites[0])
    assert (found.padding, found.all_padding) == (16, 1)
    for name in ("entropy", "distance", "first", "same_token", "visible"):
        for a, b in zip(heads, alone, strict=True):
            assert a.mean(name) == pytest.approx(b.mean(name), rel=1e-4, abs=1e-6), name


def test_our_layer_in_all_its_ways() -> None:
    """Packed, windowed, cached and crossed: the statistics are of what the layer says it does."""
    torch.manual_seed(0)
    attn = mh.MultiHeadAttention(24, 6, num_kv_heads=2, position=position.Rotary()).eval()
    x = torch.randn(2, 13, 24)
    with torch.no_grad():
        with mh.capture(attn, keep="qk v outputs") as packed:
            attn(x, mask=mask.causal() & mask.ragged([13, 5]))
        with mh.capture(attn, keep="qk v outputs") as padded:
            attn(x, mask=mask.causal() & mask.lengths([13, 5]))
        with mh.capture(attn) as cross:
            attn(x, x[:, :7].clone())
    assert packed.tokens == padded.tokens == 18
    for a, b in zip(packed, padded, strict=True):
        assert a.mean("entropy") == pytest.approx(b.mean("entropy"), rel=1e-5)
        for tensor in ("query", "key", "value", "output", "weights"):
            of_packed, of_padded = getattr(a, tensor)(), getattr(b, tensor)()
            assert of_packed.shape == of_padded.shape, tensor
            torch.testing.assert_close(of_packed[0], of_padded[0])
            torch.testing.assert_close(of_packed[1, :5], of_padded[1, :5])
    assert (packed.statistics("L0").padding, packed.statistics("L0").empty.tolist()) == (8, [0] * 6)
    assert cross.sites[0].cross
    assert math.isnan(cross["L0H0"].mean("self"))
    assert not packed.sites[0].cross


@pytest.mark.parametrize("window", [None, 4])
def test_padding_of_ragged_chunks_in_a_cache_is_left_out(window: int | None) -> None:
    """The rows have 3 and 1 tokens, then 1 and 4 more: the last padding of row 0 is past the last key."""
    torch.manual_seed(0)
    attn, x = mh.MultiHeadAttention(24, 6, position=position.Rotary()).eval(), torch.randn(2, 7, 24)
    kept = cache.Growing() if window is None else cache.Ring(window)
    seen = mask.causal() if window is None else mask.causal() & mask.window(window)
    with torch.no_grad(), mh.capture(attn) as chunks:
        attn(x[:, :3], mask=seen & mask.ragged([3, 1]), cache=kept)
        attn(x[:, 3:], mask=seen & mask.ragged([1, 4]), cache=kept)
    with torch.no_grad(), mh.capture(attn) as alone:
        attn(x[:1, :4], mask=seen)
        attn(torch.cat([x[1:, :1], x[1:, 3:]], dim=1), mask=seen)
    assert (chunks.tokens, chunks.statistics("L0").padding) == (9, 5)
    for a, b in zip(chunks, alone, strict=True):
        for name in ("entropy", "distance", "visible", "output_norm"):
            assert a.mean(name) == pytest.approx(b.mean(name), rel=1e-4), name


class _WithCaches(nn.Module):
    def __init__(self, caches: list[cache.Cache]) -> None:
        super().__init__()
        self.attn, self.caches = mh.MultiHeadAttention(24, 6, position=position.Rotary()), caches

    def forward(self, x: Tensor, caches: list[cache.Cache] | None = None) -> Tensor:
        return self.attn(x, mask=mask.causal(), cache=(caches or self.caches)[0])


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("make", [cache.Growing, lambda: cache.Ring(4)])
def test_a_capture_adds_no_token_to_a_cache(held: bool, make: Callable[[], cache.Cache]) -> None:
    """The first run is repeated outside the interception to compare outputs; the cache must not see that run."""
    torch.manual_seed(0)
    caches, x = [make()], torch.randn(2, 5, 24)
    model, given = _WithCaches(caches if held else []).eval(), () if held else (caches,)
    with torch.no_grad(), mh.capture(model) as heads:
        chunks = [model(x[:, :3], *given), model(x[:, 3:], *given)]
    assert (caches[0].length, heads.tokens) == (5, 10)
    window = mask.causal() & mask.window(4 if isinstance(caches[0], cache.Ring) else 5)
    with torch.no_grad():
        torch.testing.assert_close(torch.cat(chunks, dim=1), model.attn(x, mask=window))


def test_a_capture_of_cross_attention_with_a_cache() -> None:
    torch.manual_seed(0)
    attn, x, memory = mh.MultiHeadAttention(24, 6).eval(), torch.randn(2, 5, 24), torch.randn(2, 7, 24)
    kept = cache.Cross()
    with torch.no_grad():
        attn(x[:, :2], memory, cache=kept)
        with mh.capture(attn) as heads:  # the run that is repeated gets a copy of the filled cache
            out = attn(x[:, 2:], memory, cache=kept)
        torch.testing.assert_close(out, attn(x[:, 2:], memory))
    assert heads.sites[0].cross


def test_keys_behind_a_prefix_are_no_padding() -> None:
    torch.manual_seed(0)
    attn, x, seen = mh.MultiHeadAttention(24, 6).eval(), torch.randn(2, 8, 24), mask.prefix([3, 2])
    with torch.no_grad(), mh.capture(attn) as by_name:
        attn(x, mask=seen)
    with torch.no_grad(), mh.capture(attn) as written_out:
        attn(x, mask=seen.tensor(8))
    assert by_name.tokens == written_out.tokens == 16
    for a, b in zip(by_name, written_out, strict=True):
        for name in ("entropy", "first", "distance", "visible"):
            assert a.mean(name) == pytest.approx(b.mean(name), rel=1e-5), name
