"""What heads cost in a model: a count, FLOPs per token, or bytes of the KV cache per token.

Each is linear: total = fixed + Σ_layers (query heads · per_head + kv heads in use · per_kv_head).

>>> import torch, multihead as mh
>>> from multihead.edit.budget import count_heads, parse
>>> cost = count_heads(mh.anatomy(torch.nn.TransformerEncoderLayer(24, 3, batch_first=True)))
>>> cost.total({"L0": range(3)}), cost.total({"L0": (0, 2)})
(3.0, 2.0)
>>> parse("flops=0.8")
('flops', 0.8)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from multihead._base.arguments import check_instance
from multihead.edit.calibration import Calibration
from multihead.edit.residual_writers import linear_maps
from multihead.errors import SizeError
from multihead.model.layer_anatomy import LayerAnatomy

BUDGETS = ("flops", "cache")


@dataclass(frozen=True)
class LayerCost:
    """A query head costs `per_head`, a kv head that any of them reads `per_kv_head`."""

    per_head: float
    per_kv_head: float
    kv_of_head: tuple[int, ...]

    def __call__(self, heads: Sequence[int]) -> float:
        return len(heads) * self.per_head + len({self.kv_of_head[h] for h in heads}) * self.per_kv_head


@dataclass(frozen=True)
class CostModel:
    """The cost of any choice of heads, by the names of their layers."""

    unit: str
    layers: Mapping[str, LayerCost]
    fixed: float = 0.0
    """the cost of everything else, which does not depend on the heads"""

    def total(self, kept: Mapping[str, Sequence[int]]) -> float:
        return self.fixed + sum(cost(kept[name]) for name, cost in self.layers.items())

    @property
    def of_all_heads(self) -> float:
        return self.total({name: range(len(cost.kv_of_head)) for name, cost in self.layers.items()})


def parse(budget: object) -> tuple[str, float]:
    """Parse a budget: ("flops", 0.8) of "flops=0.8"."""
    check_instance("budget", budget, str, "a text such as 'flops=0.8'", hint='budget="flops=0.8" or "cache=0.5"')
    name, _, number = str(budget).partition("=")
    name = name.strip().lower()
    try:
        share = float(number)
    except ValueError:
        share = None
    if name not in BUDGETS or share is None:
        raise SizeError(
            f"budget must be {' or '.join(f'{n}=X' for n in BUDGETS)}, got {budget!r}",
            hint="X is a share of the original: flops=0.8, cache=0.5",
        )
    if not 0 < share <= 1:
        raise SizeError(f"{name} must be in (0, 1], got {share:g}", hint=f"{name}=0.5 is half of the original")
    return name, share


def cost_model(budget: str | None, layers: Sequence[LayerAnatomy], calibration: Calibration) -> CostModel:
    """The costs that a budget limits; without a budget, the number of heads."""
    if budget == "flops":
        return flops_per_token(calibration.model, layers, calibration)
    return count_heads(layers) if budget is None else cache_bytes(layers)


def count_heads(layers: Sequence[LayerAnatomy]) -> CostModel:
    """Every query head costs 1."""
    return CostModel("heads", {x.name: LayerCost(1.0, 0.0, tuple(x.groups.kv_of_head)) for x in layers})


def cache_bytes(layers: Sequence[LayerAnatomy]) -> CostModel:
    """Bytes of cache in a budget: kv heads × (key_dim + value_dim) per token, of kv heads with a reader."""
    costs: dict[str, LayerCost] = {}
    for x in layers:
        x.require("a budget of cache bytes", direct=True)  # latent attention caches a vector that all heads share
        per_kv_head = (x.key_dim + x.value_dim) * x.W_K[0].element_size()
        costs[x.name] = LayerCost(0.0, float(per_kv_head), tuple(x.groups.kv_of_head))
    return CostModel("bytes of the KV cache per token", costs)


def flops_per_token(model: nn.Module, layers: Sequence[LayerAnatomy], calibration: Calibration) -> CostModel:
    """FLOPs per token of the whole model, at the mean length of the calibration documents.

    A head costs its rows of W_Q and its columns of W_O, a kv head its rows of W_K and W_V, a pair of tokens
    2 (key_dim + value_dim). Feed-forwards and the output layer are fixed.
    """
    length = calibration.tokens / max(calibration.documents_to_fit, 1)
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    maps = linear_maps(model, next(calibration.fit()))
    fixed = float(sum(2 * sizes[name] for name in maps if name is not None))
    costs: dict[str, LayerCost] = {}
    for x in layers:
        gate = 0 if x.W_G is None else x.W_G[0].numel()
        per_head = 2.0 * (x.key_dim * x.W_Q[0].shape[1] + x.W_O[0].shape[0] * x.value_dim + gate)
        per_kv_head = 2.0 * (x.W_K[0].shape[0] * x.W_K[0].shape[1] + x.value_dim * x.W_V[0].shape[1])
        fixed -= x.num_heads * per_head + x.num_kv_heads * per_kv_head
        pairs = 2 * length * (x.key_dim + x.value_dim)
        costs[x.name] = LayerCost(per_head + pairs, per_kv_head, tuple(x.groups.kv_of_head))
    return CostModel("FLOPs per token", costs, max(fixed, 0.0))


def check_reachable(cost: CostModel, share: float) -> None:
    """Raise if the model without any head still costs more than the budget."""
    floor = cost.fixed / cost.of_all_heads
    if floor > share:
        raise SizeError(
            f"flops={share:g} cannot be reached by removing heads: without any, the model still has {floor:.2f} of "
            "its FLOPs",
            hint=f"choose at least {floor + 0.005:.2f}",
        )
