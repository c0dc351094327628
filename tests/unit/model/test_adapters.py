"""Adapters are proven on their first call: on all rows, in training mode, with a cache, with padding."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import multihead as mh
import zoo
from multihead import mask
from multihead.model import adapter
from parity.test_zoo_capture import output

HEADS, DIM = 3, 4
WIDTH = HEADS * DIM


class Cache:
    """Keys and values of all tokens so far."""

    def __init__(self) -> None:
        self.kv: tuple[Tensor, ...] | None = None

    def update(self, *kv: Tensor) -> tuple[Tensor, ...]:
        self.kv = kv if self.kv is None else tuple(torch.cat(pair, dim=2) for pair in zip(self.kv, kv, strict=True))
        return self.kv

    def __len__(self) -> int:
        return 0 if self.kv is None else self.kv[0].shape[2]


class LockedCache(Cache):
    """A cache that cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class ByHand(nn.Module):
    """softmax(q kᵀ / √d) v in plain arithmetic, with dropout, padding and a cache."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        nn.init.normal_(self.qkv.weight, std=0.4)  # neither flat nor saturated: faults show in every row
        self.p = dropout

    def split(self, x: Tensor, cache: Any = None) -> tuple[Tensor, ...]:
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, DIM)).permute(2, 0, 3, 1, 4)
        return (q, k, v) if cache is None else (q, *cache.update(k, v))

    def merge(self, z: Tensor) -> Tensor:
        return self.out(z.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor, allowed: Tensor | None = None, cache: Any = None) -> Tensor:
        q, k, v = self.split(x, cache)
        scores = q @ k.mT / math.sqrt(DIM)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -1e9)
        return self.merge(F.dropout(scores.softmax(-1), self.p, self.training) @ v)


def taught(changed: Callable[..., dict[str, Any]] | None = None) -> type[ByHand]:
    """A class with an adapter; `changed(q)` returns the options of `attend` that make it wrong."""

    class Mine(ByHand):
        pass

    @adapter(Mine)
    def forward(module: Any, attend: Any, x: Tensor, allowed: Tensor | None = None, cache: Any = None) -> Tensor:
        q, k, v = module.split(x, cache)
        options = {"mask": allowed, "dropout": module.p if module.training else 0.0}
        return module.merge(attend(q, k, v, **options | (changed(q) if changed else {})))

    return Mine


def without_a_key(q: Tensor) -> dict[str, Any]:
    """The last half of the queries misses the first key."""
    queries = q.shape[2]
    allowed = torch.ones(queries, queries, dtype=torch.bool)
    allowed[(queries + 1) // 2 :, 0] = False
    return {"mask": mask.tensor(allowed)}


def unscaled(_: Tensor) -> dict[str, Any]:
    return {"scale": 1.0}


X = torch.randn(2, 6, WIDTH, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("training", [False, True])
def test_an_adapter_that_is_wrong_in_half_of_the_rows_is_refused(training: bool) -> None:
    model = nn.Sequential(taught(without_a_key)()).train(training)
    with pytest.raises(mh.MultiheadError, match=r"of Mine \(0\) .* 6 of 12 rows differ, by up to") as caught:
        with mh.capture(model):
            model(X)
    assert caught.value.hint is not None
    assert "scale" in caught.value.hint
    assert "forward" not in vars(model[0])
    assert all(m.training == training for m in model.modules())


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_wrong_adapter_is_refused_in_training_mode(dropout: float) -> None:
    model = taught(unscaled)(dropout).train()
    with pytest.raises(mh.MultiheadError, match="the adapter of Mine must match the module"):
        with mh.capture(model):
            model(X)
    assert model.training


def test_the_proof_leaves_training_as_it_is() -> None:
    """Dropout draws the same numbers with and without the proof, and gradients are those of one call."""
    model = taught()(dropout=0.5).train()
    model.out.eval()
    results: list[tuple[Tensor, ...]] = []
    for calls in (1, 2):  # the second call of a block is not proven
        with mh.capture(model):
            for _ in range(calls):
                torch.manual_seed(7)
                model.zero_grad()
                loss = model(X).square().mean()
            loss.backward()
        assert model.qkv.weight.grad is not None
        results.append((loss.detach(), model.qkv.weight.grad.clone(), torch.random.get_rng_state()))
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))
    assert model.training
    assert not model.out.training


def test_an_adapter_that_drops_weights_in_eval_mode_is_refused() -> None:
    model = taught(lambda q: {"dropout": 0.5})(dropout=0.5).eval()
    with pytest.raises(mh.MultiheadError, match="must match the module"), mh.capture(model):
        model(X)


@pytest.mark.parametrize("training", [False, True])
def test_with_a_cache(training: bool) -> None:
    right, wrong = taught()().train(training), taught(unscaled)().train(training)
    cache = Cache()
    with torch.no_grad(), mh.capture(right) as heads:
        for step in range(3):
            right(X[:, 2 * step : 2 * step + 2], cache=cache)
    assert len(cache) == 6
    assert heads.tokens == 12
    with pytest.raises(mh.MultiheadError, match="must match the module"):
        with torch.no_grad(), mh.capture(wrong):
            wrong(X, cache=Cache())
    filled: dict[str, Any] = {"cache": Cache()}

    class InDict(ByHand):
        def forward(self, x: Tensor, state: dict[str, Any]) -> Tensor:  # type: ignore[override]
            return super().forward(x, cache=state["cache"])

    @adapter(InDict)
    def forward(module: Any, attend: Any, x: Tensor, state: dict[str, Any]) -> Tensor:
        return module.merge(attend(*module.split(x, state["cache"])))

    model = InDict().train(training)
    with torch.no_grad(), mh.capture(model):
        model(X, filled)
    assert len(filled["cache"]) == 6


def test_a_cache_that_cannot_be_copied_leaves_the_proof_to_the_next_call() -> None:
    cache = LockedCache()
    right, wrong = taught()().eval(), taught(unscaled)().eval()
    with torch.no_grad(), mh.capture(right):
        right(X, cache=cache)
        right(X)
    assert len(cache) == 6
    with torch.no_grad(), mh.capture(wrong):
        wrong(X, cache=LockedCache())
        with pytest.raises(mh.MultiheadError, match="must match the module"):
            wrong(X)


def test_rows_that_see_nothing_are_not_compared() -> None:
    """The module averages all values there, `attend` returns zeros; all other rows must agree."""
    allowed = torch.ones(2, 1, 6, 6, dtype=torch.bool)
    allowed[1, :, 4:] = allowed[1, :, :, 4:] = False
    right = taught()()
    with torch.no_grad(), mh.capture(right):
        right(X, allowed=allowed)
    wrong = taught(lambda q: {"scale": 0.4})()
    with pytest.raises(mh.MultiheadError, match="10 of 10 rows differ"), mh.capture(wrong):
        wrong(X, allowed=allowed)
    inverted = taught(lambda q: {"mask": torch.zeros(6, 6, dtype=torch.bool)})()
    with pytest.raises(mh.MultiheadError, match="hides every key from every query"), mh.capture(inverted):
        inverted(X)


def test_an_adapter_that_returns_something_else_is_refused() -> None:
    class Pair(ByHand):
        def forward(self, x: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
            return super().forward(x), None

    @adapter(Pair)
    def forward(module: Any, attend: Any, x: Tensor) -> Tensor:
        return module.merge(attend(*module.split(x)))

    model = Pair()
    with pytest.raises(mh.MultiheadError, match=r"Pair must return a tuple, .* got a Tensor"):
        with mh.capture(model):
            model(X)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_the_tolerance_is_that_of_the_dtype(dtype: torch.dtype) -> None:
    right, wrong = taught()().to(dtype), taught(lambda q: {"causal": True})().to(dtype)
    with torch.no_grad(), mh.capture(right):
        right(X.to(dtype))
    with torch.no_grad(), pytest.raises(mh.MultiheadError, match="10 of 12 rows differ"), mh.capture(wrong):
        wrong(X.to(dtype))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), mh.capture(model := taught()()):
        model(X)


@pytest.mark.parametrize("name", ["gpt-j", "gpt-neo", "bloom", "mpnet", "deberta-v2"])
def test_the_adapters_that_ship_with_us_are_proven_in_training_mode(name: str) -> None:
    entry = zoo.ZOO[name]
    model = entry.build().train()
    for batch in (entry.batch(False), entry.batch(True)):
        with warnings.catch_warnings(), torch.no_grad(), mh.capture(model) as heads:
            warnings.simplefilter("ignore")  # dropout is measured: these models train
            output(model(**batch))
        assert len(heads)
