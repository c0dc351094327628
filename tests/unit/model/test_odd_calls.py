"""Calls of torch's kernel in every shape that it takes, and models whose inputs must not be mistaken."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import multihead as mh
import zoo
from multihead.model.call_tokens import Inputs, Sequence


class Kernel(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, **options)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize(
    ("q", "k", "mask"),
    [
        ((2, 3, 5, 4), (2, 3, 7, 4), None),
        ((1, 3, 5, 4), (2, 3, 7, 4), None),  # q broadcasts over the batch
        ((2, 3, 5, 4), (1, 3, 7, 4), (1, 1, 5, 7)),
        ((2, 1, 5, 4), (2, 3, 7, 4), None),  # one query head on three key heads
        ((2, 3, 5, 4), (2, 3, 7, 4), (5, 7)),
        ((2, 3, 5, 4), (2, 3, 7, 4), (2, 1, 1, 7)),
        ((2, 3, 5, 4), (2, 3, 7, 4), (3, 1, 7)),
        ((2, 2, 3, 5, 4), (2, 2, 3, 7, 4), (2, 1, 1, 5, 7)),
        ((2, 2, 3, 5, 4), (2, 2, 3, 7, 4), (3, 5, 7)),
        ((5, 4), (7, 4), None),
        ((2, 5, 4), (2, 7, 4), (2, 5, 7)),  # no axis of heads
    ],
)
def test_shapes(q: tuple[int, ...], k: tuple[int, ...], mask: tuple[int, ...] | None) -> None:
    model, one, two, three = Kernel(), drawn(*q), drawn(*k), drawn(*k)
    options: dict[str, Any] = {}
    if mask is not None:
        options["attn_mask"] = torch.rand(*mask) > 0.3
        options["attn_mask"][..., 0] = True
    expected = model(one, two, three, **options)
    with mh.capture(model, keep="qk v outputs") as heads:
        got = model(one, two, three, **options)
    assert torch.equal(got, expected)
    rows = torch.stack([head.weights() @ head.value() for head in heads], dim=1)
    torch.testing.assert_close(rows.reshape(expected.shape), expected)


def test_heads_that_cannot_be_told_are_refused() -> None:
    class Flat(Kernel):
        num_heads = 3

    x = drawn(6, 5, 4)
    with (
        pytest.raises(mh.MultiheadError, match=r"Flat has 3 heads, .* q of shape \(6, 5, 4\)"),
        mh.capture(model := Flat()),
    ):
        model(x, x, x)


# ---- whose tokens -----------------------------------------------------------------------------


def test_a_decoder_without_ids_does_not_take_the_encoders() -> None:
    model, ids = zoo.ZOO["bart"].build(), torch.randint(5, 90, (2, 7))
    kept = torch.ones_like(ids)
    kept[1, 3:] = 0
    with torch.no_grad(), mh.capture(model) as heads:
        model(input_ids=ids, attention_mask=kept, labels=torch.randint(5, 90, (2, 7)))
    assert heads.statistics("decoder.L0").rows == 14
    assert heads.statistics("encoder.L0").rows == 10
    assert heads["decoder.L0H0"].statistics.count("same_token")[0] == 0


def test_padding_of_torch_transformers() -> None:
    model = nn.Transformer(12, 3, 1, 1, 24, batch_first=True).eval()
    source, target = torch.randn(2, 5, 12), torch.randn(2, 4, 12)
    hidden, later = torch.zeros(2, 5, dtype=torch.bool), torch.zeros(2, 4, dtype=torch.bool)
    hidden[1, 3:], later[1, 1:] = True, True
    with torch.no_grad(), mh.capture(model) as heads:
        model(source, target, src_key_padding_mask=hidden, tgt_key_padding_mask=later)
    assert [heads.statistics(label).rows for label in ("encoder.L0", "decoder.L0", "cross.L0")] == [8, 5, 5]


def test_integers_that_are_no_tokens() -> None:
    model = zoo.ZOO["bert"].build()
    vectors = torch.randn(2, 5, model.config.hidden_size)  # type: ignore[union-attr]
    with torch.no_grad(), mh.capture(model) as heads:
        model(inputs_embeds=vectors, attention_mask=torch.ones(2, 5).long())
    assert heads["L0H0"].statistics.count("same_token")[0] == 0


def test_two_caches_in_turn() -> None:
    model = zoo.ZOO["llama"].build()
    a, b = torch.full((1, 4), 7), torch.full((1, 4), 9)
    with torch.no_grad(), mh.capture(model) as heads:
        first = model(input_ids=a, use_cache=True).past_key_values
        model(input_ids=b, use_cache=True)
        model(input_ids=a[:, :1], past_key_values=first)
    with torch.no_grad(), mh.capture(model) as apart:
        model(input_ids=b)
        model(input_ids=torch.full((1, 5), 7))
    for one, other in zip(heads, apart, strict=True):
        assert one.mean("same_token") == pytest.approx(other.mean("same_token"), rel=1e-4)


def test_a_beam_search_does_not_guess() -> None:
    model = zoo.ZOO["llama"].build()
    ids = torch.randint(5, 90, (2, 6))
    with torch.no_grad(), mh.capture(model) as heads:
        model.generate(  # type: ignore[operator]
            input_ids=ids, attention_mask=torch.ones_like(ids), num_beams=3, max_new_tokens=4, do_sample=False,
            eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
    found = heads["L0H0"].statistics
    assert found.count("entropy")[0] > found.count("same_token")[0] > 0


def test_a_window_that_slides_has_no_first_token() -> None:
    model = zoo.ZOO["mistral"].build()
    ids = torch.randint(5, 90, (1, 5))
    with torch.no_grad(), mh.capture(model) as heads:
        out = model.generate(  # type: ignore[operator]
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=9, do_sample=False,
            eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
    with torch.no_grad(), mh.capture(model) as whole:
        model(input_ids=out[:, :-1])
    for name in ("entropy", "first", "same_token", "induction", "distance"):
        for one, other in zip(heads, whole, strict=True):
            assert one.mean(name) == pytest.approx(other.mean(name), rel=1e-4, abs=1e-6), name


def test_a_static_cache_through_the_interface() -> None:
    from transformers import StaticCache

    model = zoo.ZOO["gemma2"].build()
    cache = StaticCache(config=model.config, max_cache_len=17)  # type: ignore[arg-type]
    ids = torch.randint(5, 90, (2, 11))
    with torch.no_grad(), mh.capture(model) as heads:
        model(input_ids=ids[:, :7], past_key_values=cache)
        model(input_ids=ids[:, 7:], past_key_values=cache)
    with torch.no_grad(), mh.capture(model) as whole:
        model(input_ids=ids)
    assert heads.tokens == whole.tokens == 22
    for one, other in zip(heads, whole, strict=True):
        assert one.mean("distance") == pytest.approx(other.mean("distance"), rel=1e-4)


def test_another_thread_does_not_change_whose_tokens() -> None:
    model = zoo.ZOO["llama"].build()
    ids = torch.randint(5, 90, (1, 6))

    def interrupt(*_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            thread = threading.Thread(target=lambda: model(input_ids=ids[:, :2], attention_mask=torch.zeros(1, 2)))
            thread.start()
            thread.join()

    with torch.no_grad(), mh.capture(model) as alone:
        model(input_ids=ids)
    with torch.no_grad(), mh.capture(model) as heads:
        handle = model.model.layers[0].register_forward_pre_hook(interrupt)  # type: ignore[index, union-attr]
        model(input_ids=ids)
        handle.remove()
    assert heads.tokens == alone.tokens == 6
    assert heads["L1H0"].mean("same_token") == alone["L1H0"].mean("same_token")


def test_self_attention_by_any_name() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.multihead_attn = nn.MultiheadAttention(12, 3, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.multihead_attn(x, x, x)[0]

    model = Named().eval()
    with torch.no_grad(), mh.capture(model) as heads:
        model(torch.randn(2, 5, 12))
    assert not heads.sites[0].cross


def test_looking_for_heads_leaves_running_averages_alone() -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn = nn.MultiheadAttention(12, 3, batch_first=True)
            self.norm = nn.BatchNorm1d(12)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(self.attn(x, x, x)[0].mT)

    model = Normed().train()
    mh.ablate(model, "L0H1")
    assert int(model.norm.num_batches_tracked or 0) == 0
    assert all(m.training for m in model.modules())


def test_a_cache_that_is_gone_is_not_taken_for_a_new_one() -> None:
    """Python may give the id of a dead cache to the next object."""

    class Cache:
        pass

    inputs, first = Inputs(), Cache()
    inputs.sequences = {"": Sequence(torch.tensor([[1, 2, 3]]))}
    inputs.keep(type("Output", (), {"past_key_values": first}))
    assert inputs._history(first) == inputs.sequences
    (entry,) = inputs.histories.values()
    inputs.sequences = {}
    other = Cache()
    inputs.histories[id(other)] = entry  # as if it had the id of the first
    assert inputs._history(other) == {}
    del first, entry
    gc.collect()
    inputs.histories.pop(id(other))
    assert inputs.histories == {}, "nothing is held of a cache that is gone"
