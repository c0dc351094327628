"""See the heads of a model as it runs: statistics of every head, and of some of them q, k, outputs or maps.

>>> import torch, multihead as mh
>>> model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(12, 3, batch_first=True), 2).eval()
>>> with mh.capture(model, keep="qk") as heads:
...     _ = model(torch.randn(2, 7, 12))
>>> heads
6 heads in 2 layers, 14 tokens seen: L0H0 L0H1 L0H2 L1H0 L1H1 L1H2
>>> heads["L1H2"].weights().shape                       # of the latest call: batch, query, key
torch.Size([2, 7, 7])
>>> bool(0 < heads["L1H2"].mean("entropy") < 2)
True
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.arguments import check_model
from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError, SizeError
from multihead.layer.apart import runs_again
from multihead.layer.ask import Cells, weights_of
from multihead.layer.share import Share
from multihead.model.call import Call, Compute
from multihead.model.capture_html import head_html, heads_html
from multihead.model.capture_table import table_of
from multihead.model.gathered_statistics import of_all_ranks
from multihead.model.intercept import inner, intercept
from multihead.model.keep import Keep, Kept
from multihead.model.missing import nothing_found
from multihead.model.sites import Key, Site, Sites, find
from multihead.model.statistics.arena import Memory
from multihead.model.statistics.head_statistics import HeadStatistics, Statistics
from multihead.model.statistics.options import check_statistics
from multihead.table.head_names import HeadName
from multihead.table.table import HeadTable

EVERY = Statistics()
"""Every statistic, as a capture takes them unless told otherwise."""

LARGEST_MAP = 1 << 30
"""Bytes of attention weights that one question may take, unless the user allows more."""


@dataclass
class _Record:
    """What a capture has of one attention."""

    share: Share | None = None
    """the heads on this rank, which the statistics are of; None: all"""
    statistics: HeadStatistics | None = None
    gathered: HeadStatistics | None = None
    """the statistics of the heads of all ranks"""
    calls: list[Kept] = field(default_factory=list[Kept])


class Capture:
    """The heads of a captured model: `heads["L3H7"]` or `heads[3, 7]`; also a sequence of all heads."""

    def __init__(self, statistics: Statistics | None, keep: Keep, named: Sites | None = None) -> None:
        """`named`: the attentions of the model, needed where `keep` names layers."""
        check_statistics(statistics)
        self.options, self.keep, self.named = statistics, keep, named
        self.sites = Sites()
        """the attentions that ran, in order"""
        self._records: dict[Key, _Record] = {}
        self._memory = Memory()

    def __getitem__(self, name: HeadName) -> Head:
        site, head = find(name, self.sites)
        return Head(self, site, head)

    def __len__(self) -> int:
        return sum(site.heads for site in self.sites)

    def __iter__(self) -> Iterator[Head]:
        return (Head(self, site, head) for site in self.sites for head in range(site.heads))

    def __contains__(self, name: HeadName) -> bool:
        try:
            self[name]
        except SizeError:
            return False
        return True

    def __repr__(self) -> str:
        names = self.sites.heads
        shown = " ".join(names if len(names) <= 8 else [*names[:4], "...", names[-1]])
        return f"{len(names)} heads in {len(self.sites)} layers, {self.tokens} tokens seen: {shown}"

    def _repr_html_(self) -> str:
        return heads_html(self)

    def table(self) -> HeadTable:
        """A row per head: the mean of every statistic."""
        return table_of(self)

    @property
    def tokens(self) -> int:
        """Query rows in the statistics of the first layer."""
        first = next((r.statistics for r in self._records.values() if r.statistics is not None), None)
        return 0 if first is None else first.rows

    def statistics(self, layer: Site | str) -> HeadStatistics:
        """The statistics of one attention, `heads.statistics("L3")`; mergeable with those of another run."""
        site = self.sites.layer(layer) if isinstance(layer, str) else layer
        record = self._records[site.key]
        if record.statistics is None:
            raise MultiheadError(
                f"the capture has no statistics of {site.label}",
                hint="mh.capture(model, statistics=mh.Statistics())",
            )
        if record.share is None:
            return record.statistics
        if record.gathered is None:
            raise MultiheadError(
                f"the statistics of {site.label} are on several ranks, this one has {len(record.share.heads)} "
                f"of {site.heads} heads",
                hint="they are gathered at the end of the block",
            )
        return record.gathered

    def here(self, site: Site, heads: Sequence[int]) -> list[int]:
        """Which of some heads this rank has, by their index in what it has kept."""
        share = self._records[site.key].share
        return list(heads) if share is None else share.here(heads)

    def calls(self, site: Site) -> list[Kept]:
        """What was kept of one attention, call by call."""
        return self._records[site.key].calls

    def add(self, call: Call, out: HeadOutputs) -> None:
        """Add one call of an attention."""
        self.sites.register(call.key, call.heads, call.cross)
        record = self._records.setdefault(call.key, _Record(call.share))
        if self.options is not None:
            if record.statistics is None:
                record.statistics = HeadStatistics(call.problem.frame.heads, self.options, self._memory)
            record.gathered = None
            record.statistics.update(call.problem, out, call.queries, call.keys, cross=call.cross)
        if self.keep != Keep():
            label = self.named[call.key].label if self.named is not None and call.key in self.named else ""
            kept = self.keep.take(label, call.problem, out)
            record.calls += [] if kept is None else [kept]

    @contextmanager
    def watch(self, model: nn.Module) -> Generator[None]:
        """Add every attention of the model inside the block."""
        ran = _RunCount(inner(model))

        def listen(call: Call, compute: Compute) -> HeadOutputs:
            out = compute()
            if not runs_again():
                self.add(call, out)
            return out

        with ran, intercept(model, listen, spread=True):
            yield
        if not len(self):
            raise nothing_found(inner(model), ran.count)

    def finish(self) -> None:
        """Release the working memory, and warn of rows that the statistics exclude.

        If the heads of the model are spread over ranks, every rank gets the statistics of all heads.
        """
        for record in self._records.values():
            if record.share is not None and record.statistics is not None and record.gathered is None:
                record.gathered = of_all_ranks(record.statistics, record.share)
        self._memory.rest()
        self._warn_of_broken_rows()

    def _warn_of_broken_rows(self) -> None:
        for site in self.sites:
            statistics = self._records[site.key].statistics
            if statistics is not None and statistics.broken.any():
                heads = int((statistics.broken > 0).sum())
                warnings.warn(
                    f"{site.label}: up to {int(statistics.broken.max())} of {statistics.rows} rows have NaN "
                    f"or inf, in {heads} of {statistics.heads} heads; they are counted, and excluded from all "
                    "statistics",
                    stacklevel=4,
                )

    # ---- merging and saving -------------------------------------------------------------------

    def merge(self, later: Capture) -> None:
        """Add the statistics of another run of the same model."""
        self.sites.merge(later.sites)
        for key, record in later._records.items():
            mine = self._records.setdefault(key, _Record())
            if mine.statistics is None:
                mine.statistics = record.statistics
            elif record.statistics is not None:
                mine.statistics.merge(record.statistics)

    def state(self) -> dict[str, Any]:
        """The statistics so far, as tensors and plain data."""
        sharded = next((site.path for site in self.sites if self._records[site.key].share is not None), None)
        if sharded is not None:
            raise MultiheadError(
                f"the heads of {sharded} are spread over ranks: the state of such a run cannot be saved",
                hint="mh.measure(model, data) measures such a model in one go",
            )
        statistics: list[dict[str, Any] | None] = []
        for site in self.sites:
            one = self._records[site.key].statistics
            statistics.append(None if one is None else one.state())
            if one is not None:
                statistics[-1].pop("options")  # type: ignore[union-attr]  # once for all: classes may be long lists
        options = None if self.options is None else self.options.state()
        return {"options": options, "sites": self.sites.state(), "statistics": statistics}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go back to `state`, in a capture with the same options."""
        if (None if self.options is None else self.options.state()) != state["options"]:
            raise MultiheadError(
                "the state was made with other options of the statistics",
                hint="resume with the options that the run began with",
            )
        self.sites, self._records, self._memory = Sites.from_state(state["sites"]), {}, Memory()
        for site, saved in zip(self.sites, state["statistics"], strict=True):
            record = self._records.setdefault(site.key, _Record())
            if saved is not None:
                loaded = HeadStatistics.from_state({**saved, "options": state["options"]})
                # Into the memory that all layers of this capture share.
                record.statistics = HeadStatistics(loaded.heads, self.options, self._memory).merge(loaded)


@dataclass(frozen=True, repr=False)
class Head:
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
        """The mean of a statistic over all rows, NaN where it has none: `head.mean("entropy")`."""
        return float(self.statistics.mean(name)[self.index])

    def std(self, name: str) -> float:
        """Its standard deviation over rows."""
        return float(self.statistics.std(name)[self.index])

    def weights(
        self, rows: Sequence[int] | int | None = None, *, call: int = -1, largest: int = LARGEST_MAP
    ) -> Float[Tensor, "batch query key"]:
        """softmax(scores) of the chosen query rows, computed now from the q and k that were kept.

        `call` is which run of the layer, the latest by default. More than `largest` bytes are refused.
        """
        problem = self._kept(call, "qk").problem
        assert problem is not None
        rows = [rows] if isinstance(rows, int) else rows
        count = problem.frame.queries if rows is None else len(rows)
        bytes_ = problem.frame.batch * count * problem.frame.keys * 4
        if bytes_ > largest:
            fit = max(1, largest // (problem.frame.batch * problem.frame.keys * 4))
            raise SizeError(
                f"the map of {self.name} over {problem.frame.batch} x {count} x {problem.frame.keys} cells "
                f"would take {bytes_ / 2**30:.1f} GiB, more than {largest / 2**30:.1f} GiB",
                hint=f"ask for rows: weights(rows=range({min(fit, 64)})), a statistic: mean('entropy'), "
                f"or allow it: weights(largest={bytes_})",
            )
        if problem.packing is not None:
            raise SizeError(
                f"the rows of {self.name} were packed without padding: there is no batch x query x key map",
                hint="run the layer with mask.lengths instead of mask.ragged to see whole maps",
            )
        return weights_of(problem, Cells([self._here], rows))[:, 0]

    def output(self, call: int = -1) -> Float[Tensor, "batch query value_dim"]:
        """What the head gave, before W_O."""
        outputs = self._kept(call, "outputs").outputs
        assert outputs is not None
        return outputs[:, self._here]

    def query(self, call: int = -1) -> Float[Tensor, "batch query key_dim"]:
        """Its queries as the kernel saw them: after rotation and norm."""
        problem = self._kept(call, "qk").problem
        assert problem is not None
        return problem.q[:, self._here]

    def key(self, call: int = -1) -> Float[Tensor, "batch key key_dim"]:
        """Its keys as the kernel saw them; heads of one group share them."""
        problem = self._kept(call, "qk").problem
        assert problem is not None
        return problem.k[:, problem.groups.kv_of_head[self._here]]

    def value(self, call: int = -1) -> Float[Tensor, "batch key value_dim"]:
        """Its values; heads of one group share them."""
        problem = self._kept(call, "v").problem
        assert problem is not None
        return problem.v[:, problem.groups.kv_of_head[self._here]]

    @property
    def _here(self) -> int:
        """The place of the head in what was kept."""
        found = self.heads.here(self.site, [self.index])
        if not found:
            raise MultiheadError(
                f"{self.name} is on another rank: of {self.site.label} this one keeps only its own heads",
                hint="ask on the rank that has it; statistics are on every rank",
            )
        return found[0]

    def _kept(self, call: int, what: str) -> Kept:
        calls = self.heads.calls(self.site)
        if not -len(calls) <= call < len(calls):
            found = (
                "nothing was kept" if not calls else f"{len(calls)} calls were kept, and there is no call {call}"
            )
            raise MultiheadError(
                f"of {self.site.label} {found}",
                hint=f"mh.capture(model, keep={what!r}), or keep=mh.Keep({what}=[{self.site.label!r}])",
            )
        kept = calls[call]
        missing = kept.outputs is None if what == "outputs" else kept.problem is None
        missing = missing or (what == "v" and kept.problem is not None and kept.problem.v.shape[3] == 0)
        if missing:
            raise MultiheadError(
                f"of {self.site.label} {what} was not kept", hint=f"mh.capture(model, keep={what!r})"
            )
        return kept


@contextmanager
def capture(
    model: nn.Module,
    *,
    statistics: Statistics | None = EVERY,
    keep: Keep | str | None = None,
) -> Generator[Capture]:
    """Every attention of `model` within the block is seen; afterwards the model is as it was.

    Args:
        statistics: what to sum up, see `multihead.Statistics`; None: nothing.
        keep: "qk", "qk v", "outputs" for every layer, or a `Keep` for some; memory grows with every call.
    """
    check_model(model)
    kept = Keep.of(keep)
    heads = Capture(statistics, kept, kept.named_layers(model))
    with heads.watch(model):
        yield heads
        trained = statistics is not None and _has_active_dropout(model)
    heads.finish()
    if trained:
        warnings.warn(
            "the model is in training mode with dropout: statistics are of the clean attention weights, "
            "of activations that dropout has touched; model.eval() gives the model's own",
            stacklevel=3,
        )


class _RunCount:
    """Counts the calls of a module."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self.count = module, 0

    def __enter__(self) -> None:
        self.handle = self.module.register_forward_pre_hook(self._more)

    def __exit__(self, *_: object) -> None:
        self.handle.remove()

    def _more(self, *_: object) -> None:
        self.count += 1


def _has_active_dropout(model: nn.Module) -> bool:
    return any(m.p > 0 and m.training for m in model.modules() if isinstance(m, nn.Dropout))
