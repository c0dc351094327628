"""The heads of a layer that are on this rank, where tensor parallelism has spread them over several.

What every rank holds alike goes into the heads by `entering`, and what the heads give comes together by `joined`
(Shoeybi et al. 2019, Megatron-LM): one sum over the ranks on the way forward, one on the way back.

    entering: x → x,          dx = Σ_ranks dx_rank
    joined:   x → Σ_ranks x,  dx_rank = dx
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from multihead.layer.ask import Ask, Attended, Cells
from multihead.layer.mask_algebra import Mask, conjunction
from multihead.layer.mask_views import HeadsOf
from multihead.layer.problem import Groups

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def entering(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """The same x; its gradient is summed over the ranks, each of which has a part of it."""
    if not (torch.is_grad_enabled() and x.requires_grad):
        return x
    from torch.distributed.tensor import DTensor, Partial, Replicate

    whole = DTensor.from_local(x, mesh, [Replicate()], run_check=False)
    return whole.to_local(grad_placements=[Partial()])


def joined(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """The sum over the ranks, on every rank."""
    from torch.distributed.tensor import DTensor, Partial, Replicate

    parts = DTensor.from_local(x, mesh, [Partial()], run_check=False)
    return parts.redistribute(placements=[Replicate()]).to_local()


@dataclass(frozen=True)
class Share:
    """Query heads `heads` of `of` and kv heads `kv_heads` of `kv_of`, by their numbers in the whole layer."""

    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    of: int
    kv_of: int
    groups: Groups
    """of the heads that are here, numbered from 0"""
    mesh: DeviceMesh

    def __deepcopy__(self, memo: object) -> Share:
        return self  # a copy of a layer is split over the same ranks

    def here(self, heads: Sequence[int]) -> list[int]:
        """Those of some heads that are on this rank, by their place among the heads here."""
        return [self.heads.index(h) for h in heads if h in self.heads]

    def entering(self, x: Tensor) -> Tensor:
        """The same x; its gradient is summed over the ranks, each of which has that of its own heads."""
        return entering(x, self.mesh)

    def joined(self, x: Tensor) -> Tensor:
        """The sum over the ranks, on every rank."""
        return joined(x, self.mesh)

    def inputs(
        self, query: Tensor, key: Tensor | None, value: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Queries, keys and values entering; what is one tensor stays one."""
        entered = {id(x): self.entering(x) for x in (query, key, value) if x is not None}
        return entered[id(query)], entered.get(id(key)), entered.get(id(value))

    def module(self, part: nn.Module) -> Any:
        """A module that all heads go through, its parameters entering: a norm of q and k."""
        entered = {name: self.entering(p) for name, p in part.named_parameters()}
        return lambda *args: functional_call(part, entered, args)  # pyright: ignore[reportUnknownLambdaType]

    def own(self, x: Float[Tensor, "..."], dim: int = 0) -> Float[Tensor, "..."]:
        """Of numbers that every rank has for all heads along `dim`, those of the heads here."""
        if x.shape[dim] == 1 != self.of:
            return x  # one number for all
        return self.entering(x).index_select(dim, torch.tensor(self.heads, device=x.device))

    def mask(self, mask: Mask) -> Mask:
        """The mask as the heads here see it."""
        return conjunction([HeadsOf(part, self.heads) if part.per_head else part for part in mask.parts()])

    def asked(self, asked: Ask) -> Ask:
        """What this rank has to answer of a question about all heads."""
        cells = asked.weights
        if not isinstance(cells, Cells) or cells.heads is None:
            return asked
        return Ask(Cells(self.here([h % self.of for h in cells.heads]), cells.rows), asked.lse, asked.heads)

    def answered(self, asked: Ask, found: Attended) -> Attended:
        """The answers of all ranks together, on every rank."""
        cells = asked.weights
        rows = range(self.of)
        if isinstance(cells, Cells) and cells.heads is not None:
            rows = [h % self.of for h in cells.heads]
        weights = None if found.weights is None else self._spread(found.weights, rows)
        lse = None if found.lse is None else self._spread(found.lse, range(self.of))
        heads = None if found.heads is None else self._spread(found.heads, range(self.of))
        return Attended(found.out, weights, lse, heads)

    def _spread(self, mine: Tensor, heads: Sequence[int]) -> Tensor:
        """(batch, heads here, ...) → (batch, heads, ...), by a sum with zeros for the heads elsewhere."""
        places = [at for at, head in enumerate(heads) if head in self.heads]
        whole = mine.new_zeros(mine.shape[0], len(heads), *mine.shape[2:])
        at = torch.tensor(places, dtype=torch.long, device=mine.device)
        return self.joined(whole.index_copy(1, at, mine))


class _Part(nn.Linear):
    """A projection of which this rank uses what belongs to its heads; a Linear changes its class to become one."""

    share: Share
    rows: Tensor | None
    """which rows of the weight belong to the heads here; None: it holds only those"""
    part: tuple[int, Tensor] | None
    """(axis, which of its places are here) of a weight that is no DTensor and holds a part; None: it is whole"""

    def here(self, x: Tensor | None) -> Tensor | None:
        """The numbers of the heads here."""
        if x is None:
            return None
        if self.rows is not None:
            return self.share.entering(local(x)).index_select(0, self.rows.to(x.device))
        return local(x)


class HeadRows(_Part):
    """x W_hᵀ + b_h of the heads h on this rank: column-wise parallel, by whole heads."""

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, cast(Tensor, self.here(self.weight)), self.here(self.bias))


class HeadColumns(_Part):
    """Σ_ranks x_h W_hᵀ + b: row-wise parallel, by whole heads; the bias is added once, to the sum."""

    def forward(self, input: Tensor) -> Tensor:
        out = self.share.joined(F.linear(input, local(self.weight)))
        return out if self.bias is None else out + local(self.bias)  # pyright: ignore[reportUnnecessaryComparison]  # torch's stub forgets None


def local(x: Tensor) -> Tensor:
    """The part of a DTensor that is on this rank; a plain tensor as it is."""
    if type(x) in (Tensor, nn.Parameter):
        return x
    from torch.distributed.tensor import DTensor  # asked by class: torch.compile finds no to_local by getattr

    return x.to_local() if isinstance(x, DTensor) else x
