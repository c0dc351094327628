"""One head of a capture: its statistics, its map, and its kept q, k, v and output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from multihead._base.arguments import integers
from multihead.errors import MultiheadError, SizeError
from multihead.layer import weights_of
from multihead.layer.outputs import Cells
from multihead.model.capture_html import head_html
from multihead.model.kept_tensors import Kept
from multihead.model.sites import Site
from multihead.model.statistics.head_statistics import HeadStatistics

if TYPE_CHECKING:
    from multihead.model.capture import Capture

LARGEST_MAP = 1 << 30
"""Default limit for one attention map, in bytes."""

_KEPT = {"qk": "queries and keys", "v": "values", "outputs": "outputs"}


@dataclass(frozen=True, repr=False)
class CapturedHead:
    """One head of a captured model."""

    heads: Capture
    site: Site
    index: int

    @property
    def name(self) -> str:
        return self.site.name(self.index)

    def __repr__(self) -> str:
        return f"{self.name} of {self.site.path}"

    def _repr_html_(self) -> str:
        return head_html(self)

    @property
    def statistics(self) -> HeadStatistics:
        return self.heads.statistics(self.site)

    def mean(self, name: str) -> float:
        """The mean of a statistic over all rows, NaN if there are none: `head.mean("entropy")`."""
        return float(self.statistics.mean(name)[self.index])

    def std(self, name: str) -> float:
        """The standard deviation of a statistic over all rows."""
        return float(self.statistics.std(name)[self.index])

    def weights(
        self, rows: Sequence[int] | int | None = None, *, call: int = -1, largest: int = LARGEST_MAP
    ) -> Float[Tensor, "batch query key"]:
        """softmax(scores) of the chosen query rows, computed on demand from the kept q and k.

        `call` selects the run of the layer, by default the latest. Raises if the map exceeds `largest` bytes.
        """
        problem = self._kept(call, "qk").problem
        assert problem is not None
        rows = rows if rows is None else integers("rows", [rows] if isinstance(rows, int) else rows)
        size = problem.coordinates
        count = size.queries if rows is None else len(rows)
        bytes_ = size.batch * count * size.keys * 4
        if bytes_ > largest:
            rows_that_fit = max(1, largest // (size.batch * size.keys * 4))
            raise SizeError(
                f"the map of {self.name} must take at most {largest / 2**30:.1f} GiB, but "
                f"{size.batch} x {count} x {size.keys} cells take {bytes_ / 2**30:.1f} GiB",
                hint=f"select rows: weights(rows=range({min(rows_that_fit, 64)})), read a statistic: "
                f"mean('entropy'), or raise the limit: weights(largest={bytes_})",
            )
        return weights_of(problem, Cells([self._local_index], rows))[:, 0]

    def output(self, call: int = -1) -> Float[Tensor, "batch query value_dim"]:
        """The captured output of the head, before W_O."""
        outputs = self._kept(call, "outputs").outputs
        assert outputs is not None
        return outputs[:, self._local_index]

    def query(self, call: int = -1) -> Float[Tensor, "batch query key_dim"]:
        """The captured queries of the head at the kernel, after rotation and norm."""
        problem = self._kept(call, "qk").problem
        assert problem is not None
        return problem.q[:, self._local_index]

    def key(self, call: int = -1) -> Float[Tensor, "batch key key_dim"]:
        """The captured keys of the head at the kernel, after rotation and norm; heads of one group share them."""
        problem = self._kept(call, "qk").problem
        assert problem is not None
        return problem.k[:, problem.groups.kv_of_head[self._local_index]]

    def value(self, call: int = -1) -> Float[Tensor, "batch key value_dim"]:
        """The captured values of the head; heads of one group share them."""
        problem = self._kept(call, "v").problem
        assert problem is not None
        return problem.v[:, problem.groups.kv_of_head[self._local_index]]

    @property
    def _local_index(self) -> int:
        """The index of the captured head in the kept tensors of this rank."""
        indices = self.heads.here(self.site, [self.index])
        if not indices:
            raise MultiheadError(
                f"{self.name} is on a different rank, and a rank keeps only its own heads of {self.site.label}",
                hint="read it on the rank that has it; statistics are on every rank",
            )
        return indices[0]

    def _kept(self, call: int, what: str) -> Kept:
        """The tensors that the capture kept of a call of this head."""
        calls = self.heads.calls(self.site)
        if not -len(calls) <= call < len(calls):
            raise MultiheadError(
                f"nothing was kept of {self.site.label}"
                if not calls
                else f"{len(calls)} calls of {self.site.label} were kept, got call {call}",
                hint=f"mh.capture(model, keep={what!r}), or multihead.model.Keep({what}=[{self.site.label!r}])",
            )
        tensors = calls[call]
        missing = tensors.outputs is None if what == "outputs" else tensors.problem is None
        missing = missing or (what == "v" and tensors.problem is not None and tensors.problem.v.shape[3] == 0)
        if missing:
            raise MultiheadError(
                f"the {_KEPT[what]} of {self.site.label} were not kept", hint=f"mh.capture(model, keep={what!r})"
            )
        return tensors
