"""A module that runs several times within one forward of the model is several layers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import multihead as mh
import zoo
from multihead.edit.kv_sharing.input_moments import moments_of
from multihead.model import adapter
from multihead.model.call import Call, Compute
from multihead.model.intercept import intercept

WIDTH, HEADS, DEPTH, TOKENS = 12, 3, 4, 10


class Sdpa(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def split(self, x: Tensor) -> Tensor:
        return self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.scaled_dot_product_attention(*self.split(x)).transpose(1, 2).flatten(2))


class ByHand(Sdpa):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        return self.out(((q @ k.mT / 2).softmax(-1) @ v).transpose(1, 2).flatten(2))


@adapter(ByHand)
def _by_hand(module: Any, attend: Any, x: Tensor) -> Tensor:
    return module.out(attend(*module.split(x)).transpose(1, 2).flatten(2))


class TorchLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attn(x, x, x, need_weights=False)[0]


KINDS: dict[str, Callable[[], nn.Module]] = {
    "sdpa": Sdpa,
    "adapter": ByHand,
    "torch": TorchLayer,
    "torch-layer": lambda: nn.TransformerEncoderLayer(WIDTH, HEADS, 16, dropout=0.0, batch_first=True),
    "ours": lambda: mh.MultiHeadAttention(WIDTH, HEADS),
}


class Looped(nn.Module):
    """One block, DEPTH times."""

    def __init__(self, block: nn.Module, depth: int = DEPTH) -> None:
        super().__init__()
        self.block, self.depth = block, depth

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.depth):
            x = x + self.block(x)
        return x


class Unrolled(nn.Module):
    """A block of its own for every depth, with the same weights."""

    def __init__(self, looped: Looped) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(copy.deepcopy(looped.block) for _ in range(looped.depth))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x


def both(kind: str = "sdpa") -> tuple[Looped, Unrolled]:
    looped = Looped(KINDS[kind]().eval()).eval()
    return looped, Unrolled(looped).eval()


X = torch.randn(1, TOKENS, WIDTH, generator=torch.Generator().manual_seed(0))


@contextmanager
def indices(model: nn.Module) -> Iterator[list[tuple[str, int]]]:
    seen: list[tuple[str, int]] = []

    def listen(call: Call, compute: Compute) -> Tensor:
        seen.append(call.key)
        return compute()

    with intercept(model, listen):
        yield seen


# ---- which calls are layers -------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_that_is_looped_is_as_many_layers(kind: str) -> None:
    looped, unrolled = both(kind)
    with torch.no_grad(), mh.capture(looped) as heads:
        looped(X)
    with torch.no_grad(), mh.capture(unrolled) as apart:
        unrolled(X)
    assert [h.name for h in heads] == [h.name for h in apart]
    assert [heads.statistics(s).rows for s in heads.sites] == [TOKENS] * DEPTH
    for mine, other in zip(heads, apart, strict=True):
        for name in ("entropy", "output_norm", "distance"):
            assert mine.mean(name) == pytest.approx(other.mean(name), rel=1e-5), (mine.name, name)


def test_one_layer_registered_at_several_depths() -> None:
    """A list that holds one module three times, as in models that share their layers."""
    model, batch = zoo.ZOO["llama"].build(), zoo.ZOO["llama"].batch(False)
    layers = model.model.layers  # type: ignore[union-attr]
    model.model.layers = nn.ModuleList([layers[0]] * 3)  # type: ignore[index, union-attr]
    model.config.num_hidden_layers = 3  # type: ignore[union-attr]
    with torch.no_grad(), mh.capture(model) as heads:
        model(**batch, use_cache=False)
    assert [s.label for s in heads.sites] == ["L0", "L1", "L2"]
    assert {s.path for s in heads.sites} == {"model.layers.0.self_attn"}
    assert heads.tokens == 22


def test_blocks_in_turn_are_layers_in_the_order_of_the_run() -> None:
    model = Looped(nn.Sequential(Sdpa(), Sdpa()), 3)
    with torch.no_grad(), mh.capture(model) as heads:
        model(X)
    assert [(s.label, s.path, s.call_index) for s in heads.sites] == [
        (f"L{at}", f"block.{at % 2}", at // 2) for at in range(6)
    ]


def test_every_forward_counts_from_zero() -> None:
    looped, _ = both()
    with torch.no_grad(), mh.capture(looped) as outer:
        looped(X)
        with mh.capture(looped) as heads:
            for _ in range(3):
                looped(X)
    assert [heads.statistics(s).rows for s in heads.sites] == [3 * TOKENS] * DEPTH
    assert [outer.statistics(s).rows for s in outer.sites] == [4 * TOKENS] * DEPTH


def test_a_forward_that_fails_does_not_shift_the_next() -> None:
    looped, _ = both()
    calls = 0

    def fail_once(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("in the middle")

    handle = looped.block.register_forward_hook(fail_once)
    with torch.no_grad(), indices(looped) as seen:
        with pytest.raises(RuntimeError, match="in the middle"):
            looped(X)
        looped.block(X)  # outside of a forward
        looped(X)
    handle.remove()
    assert [index for _, index in seen] == [0, 1, 0, 0, 1, 2, 3]
    assert not looped.block._forward_pre_hooks


def test_generation_with_a_cache_is_one_call_per_forward() -> None:
    model = zoo.ZOO["llama"].build()
    ids = torch.randint(5, 90, (1, 5))
    with torch.no_grad(), indices(model) as seen:
        model.generate(  # type: ignore[operator]
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False,
            eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
    assert len(seen) == 2 * 4
    assert {index for _, index in seen} == {0}


def test_calls_outside_of_a_forward_of_the_model_are_one_layer() -> None:
    """model.block(x) three times may be three batches: nothing says that it is three depths."""
    looped, _ = both()
    with torch.no_grad(), mh.capture(looped) as heads:
        for _ in range(3):
            looped.block(X)
    assert [heads.statistics(s).rows for s in heads.sites] == [3 * TOKENS]


def test_chunks_within_one_call_of_the_module_are_one_layer() -> None:
    class Chunked(Sdpa):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.split(x)
            z = torch.cat([F.scaled_dot_product_attention(part, k, v) for part in q.split(4, dim=2)], dim=2)
            return self.out(z.transpose(1, 2).flatten(2))

    model = Looped(Chunked(), 2)
    with torch.no_grad(), mh.capture(model) as heads:
        model(X)
    assert [heads.statistics(s).rows for s in heads.sites] == [TOKENS] * 2


def test_calls_without_a_kernel_are_no_layers() -> None:
    class Sometimes(Sdpa):
        def forward(self, x: Tensor, attends: bool = True) -> Tensor:
            return super().forward(x) if attends else x

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Sometimes()

        def forward(self, x: Tensor) -> Tensor:
            return self.block(self.block(x, attends=False))

    model = Model()
    with torch.no_grad(), indices(model) as seen:
        model(X)
        model(X)
    assert seen == [("block", 0), ("block", 0)]


# ---- what builds on it ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_one_depth_is_ablated_alone(kind: str) -> None:
    looped, unrolled = both(kind)
    with torch.no_grad():
        with mh.ablate(looped, ["L2H1"]):
            got = looped(X)
        with mh.ablate(unrolled, ["L2H1"]):
            expected = unrolled(X)
        plain = looped(X)
    torch.testing.assert_close(got, expected)
    assert not torch.allclose(got, plain)


def test_anatomy_shows_the_same_weights_at_every_depth() -> None:
    looped, _ = both()
    layers = mh.anatomy(looped, X)
    assert [layer.name for layer in layers] == ["L0", "L1", "L2", "L3"]
    assert len({layer.W_Q[1].data_ptr() for layer in layers}) == 1


def test_moments_are_of_every_depth() -> None:
    looped, _ = both()
    layer, calls = mh.anatomy(looped, X)[0], 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    handle = looped.register_forward_hook(count)
    found = moments_of(looped, layer, [{"x": X}, {"x": 2 * X}])
    handle.remove()
    assert found.tokens == 2 * DEPTH * TOKENS
    assert calls == 1, "only the first batch runs to its end"


def test_importance_of_every_depth() -> None:
    looped, unrolled = both()

    def loss(output: Tensor, batch: Any) -> Tensor:
        return output.square().mean((1, 2))

    tables = [mh.importance(m, {"x": X}, loss=loss, method="all").table for m in (looped, unrolled)]
    for column in ("importance", "ablation_zero"):
        torch.testing.assert_close(tables[0][column], tables[1][column], rtol=1e-4, atol=1e-7)


# ---- gradient checkpointing -------------------------------------------------------------------


class Checkpointed(Looped):
    """Calls run again in the backward pass: each for itself, the first two only, or all in one go."""

    how, reentrant = "each", False

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "all":
            out: Tensor = checkpoint(super().forward, x, use_reentrant=self.reentrant)
            return out
        for depth in range(self.depth):
            if self.how == "each" or depth < 2:
                x = x + checkpoint(self.block, x, use_reentrant=self.reentrant)
            else:
                x = x + self.block(x)
        return x


@pytest.mark.fast("two-True", "all-False")
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("how", ["each", "two", "all"])
def test_gates_of_checkpointed_calls(how: str, reentrant: bool) -> None:
    looped, unrolled = both()
    model = Checkpointed(looped.block)
    model.how, model.reentrant = how, reentrant
    x = X.clone().requires_grad_(True)
    gradients: list[dict[str, float]] = []
    for one in (unrolled, model, model):
        with mh.gate(one) as gates, mh.capture(one) as heads:
            one(x).square().mean().backward()
        assert [heads.statistics(s).rows for s in heads.sites] == [TOKENS] * DEPTH
        gradients.append(gates.gradients())
    assert gradients[1] == pytest.approx(gradients[0], rel=1e-4)
    assert gradients[2] == gradients[1]
    assert len(set(gradients[0].values())) == DEPTH * HEADS


def test_a_model_that_is_checkpointed_as_a_whole() -> None:
    looped, unrolled = both()
    x = X.clone().requires_grad_(True)
    gradients: list[dict[str, float]] = []
    for one, inside in ((unrolled, False), (looped, True)):
        with mh.gate(one) as gates:
            out = checkpoint(one, x, use_reentrant=False) if inside else one(x)
            out.square().mean().backward()  # type: ignore[union-attr]
        gradients.append(gates.gradients())
    assert gradients[1] == pytest.approx(gradients[0], rel=1e-4)


def test_a_checkpointed_call_that_cannot_be_told_is_refused() -> None:
    """Two forwards, then the backward of the first: its calls are no longer known."""
    looped, _ = both()
    model = Checkpointed(looped.block)
    with mh.gate(model):
        first = model(X.clone().requires_grad_(True)).square().mean()
        model(2 * X)
        with pytest.raises(mh.MultiheadError, match="block ran 4 times in the last forward of the model"):
            first.backward()
    once = Checkpointed(looped.block, 1)  # a module that runs once needs no telling
    with mh.gate(once):
        first = once(X.clone().requires_grad_(True)).square().mean()
        once(2 * X)
        first.backward()
