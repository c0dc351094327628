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
from dataclasses import dataclass, field, replace
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
from multihead.model.known import note, remember, seen_sites
from multihead.model.missing import nothing_found
from multihead.model.sites import Key, Site, find
from multihead.model.statistics.arena import Memory, Scratch
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
    heads: int
    cross: bool
    share: Share | None = None
    """the heads on this rank, of which the statistics are; None: all"""
    statistics: HeadStatistics | None = None
    whole: HeadStatistics | None = None
    """of the heads of all ranks"""
    calls: list[Kept] = field(default_factory=list[Kept])


class Capture:
    """The heads of a captured model: `heads["L3H7"]` or `heads[3, 7]`; also a sequence of all of them."""

    def __init__(self, model: nn.Module, statistics: Statistics | None, keep: Keep) -> None:
        check_model(model)
        check_statistics(statistics)
        self.model = model
        self.options = statistics
        self.keep = keep
        self._records: dict[Key, _Record] = {}
        self._memory = Memory()
        # Made before the model runs, where its heads are known: what is made between two layers and stays would
        # lie in the midst of what the model's activations leave free, and keep them from using it again.
        known = seen_sites(model) if statistics is not None else {}
        self._ready = {key: HeadStatistics(site.heads, statistics, self._memory) for key, site in known.items()}

    @property
    def sites(self) -> list[Site]:
        """The attentions that ran, in order."""
        named = seen_sites(self.model)
        return [replace(named[key], heads=r.heads, cross=r.cross) for key, r in self._records.items()]

    def site(self, label: str) -> Site:
        """The attention of a label: `L3`, `decoder.L3`."""
        found = next((s for s in self.sites if s.label == label), None)
        if found is None:
            labels = ", ".join(s.label for s in self.sites)
            raise SizeError(f"there is no layer {label!r}: found {labels}", hint="layers count from 0")
        return found

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
        names = [h.name for h in self]
        shown = " ".join(names if len(names) <= 8 else [*names[:4], "...", names[-1]])
        layers = len(self.sites)
        return f"{len(names)} heads in {layers} layers, {self.tokens} tokens seen: {shown}"

    def _repr_html_(self) -> str:
        return heads_html(self)

    def table(self) -> HeadTable:
        """A row per head: the mean of every statistic."""
        return table_of(self)

    @property
    def tokens(self) -> int:
        """Query rows that the first layer's statistics are of."""
        first = next((r.statistics for r in self._records.values() if r.statistics is not None), None)
        return 0 if first is None else first.rows

    def statistics(self, layer: Site | str) -> HeadStatistics:
        """The statistics of one attention, `heads.statistics("L3")`; mergeable with those of another run."""
        site = self.site(layer) if isinstance(layer, str) else layer
        found = self._records[site.key].statistics
        if found is None:
            raise MultiheadError(
                f"no statistics of {site.label} were asked for",
                hint="mh.capture(model, statistics=mh.Statistics())",
            )
        record = self._records[site.key]
        if record.share is None:
            return found
        if record.whole is None:
            raise MultiheadError(
                f"the statistics of {site.label} are on several ranks, this one has {len(record.share.heads)} "
                f"of {record.heads} heads",
                hint="they come together at the end of the block",
            )
        return record.whole

    def here(self, site: Site, heads: Sequence[int]) -> list[int]:
        """Those of some heads of which this rank has kept q, k, v and outputs, by their place in them."""
        share = self._records[site.key].share
        return list(heads) if share is None else share.here(heads)

    def calls(self, site: Site) -> list[Kept]:
        """What was kept of one attention, call by call."""
        return self._records[site.key].calls

    def listen(self, call: Call, run: Compute) -> HeadOutputs:
        """One attention passes: it runs as it is, and what was asked for is kept."""
        out = run()
        if runs_again():
            return out
        note(self.model, call)
        key = call.key
        record = self._records.setdefault(key, _Record(call.heads, call.cross, call.share))
        if self.options is not None:
            if record.statistics is None:
                record.statistics = self._statistics(key, call.problem.frame.heads)
            record.whole = None
            record.statistics.update(call.problem, out, call.queries, call.keys, cross=call.cross)
        if self.keep != Keep():
            kept = self.keep.take(seen_sites(self.model)[key], call.problem, out)
            record.calls += [] if kept is None else [kept]
        return out

    def _statistics(self, key: Key, heads: int) -> HeadStatistics:
        made = self._ready.pop(key, None)
        return (
            made if made is not None and made.heads == heads else HeadStatistics(heads, self.options, self._memory)
        )

    @contextmanager
    def watch(self) -> Generator[None]:
        """Every attention of the model within the block is taken in; may be entered again and again."""
        ran = _Ran(inner(self.model))
        with ran, intercept(self.model, self.listen, spread=True):
            yield
        if not len(self):
            raise nothing_found(inner(self.model), ran.count)

    def finish(self) -> None:
        """Give the working memory back, and say what the numbers leave out; they stay.

        Of a model that is spread over ranks, every rank gets the statistics of all heads.
        """
        for record in self._records.values():
            if record.share is not None and record.statistics is not None and record.whole is None:
                record.whole = of_all_ranks(record.statistics, record.share)
        self._memory.rest()
        _warn_of_broken_rows(self)

    def state(self) -> dict[str, Any]:
        """The statistics so far, as tensors and plain data."""
        sites: list[dict[str, Any]] = []
        spread = next((path for (path, _), r in self._records.items() if r.share is not None), None)
        if spread is not None:
            raise MultiheadError(
                f"{spread} is spread over ranks: what a run has so far cannot be put down",
                hint="mh.measure(model, data) measures such a model in one go",
            )
        for (path, call_index), r in self._records.items():
            if r.statistics is not None:
                kept = r.statistics.state()
                kept.pop("options")  # once for all of them: classes of tokens may be long lists
                sites.append({"path": path, "call_index": call_index, "cross": r.cross, "statistics": kept})
        return {"options": None if self.options is None else self.options.state(), "sites": sites}

    @staticmethod
    def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
        """The state of one pass over what both have taken in, the first before the second."""
        options = first["options"]
        sites = {(site["path"], site["call_index"]): site for site in first["sites"]}
        for site in second["sites"]:
            key = site["path"], site["call_index"]
            if key in sites:
                both = [
                    HeadStatistics.from_state({**s["statistics"], "options": options}) for s in (sites[key], site)
                ]
                kept = both[0].merge(both[1]).state()
                kept.pop("options")
                sites[key] = {**site, "statistics": kept}
            else:
                sites[key] = site
        return {"options": options, "sites": list(sites.values())}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go back to where `state` was taken: what comes is added to the same sums."""
        mine = None if self.options is None else self.options.state()
        if mine != state["options"]:
            raise MultiheadError(
                "the state was made with other options of the statistics",
                hint="resume with the options that the run began with",
            )
        self._records.clear()
        self._memory.kept = Scratch()
        for site in state["sites"]:
            key = str(site["path"]), int(site["call_index"])
            kept = HeadStatistics.from_state({**site["statistics"], "options": state["options"]})
            again = HeadStatistics(kept.heads, self.options, self._memory).merge(kept)  # into memory apart
            self._records[key] = _Record(kept.heads, bool(site["cross"]), statistics=again)
            remember(self.model, key, kept.heads, bool(site["cross"]))


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
    heads = Capture(model, statistics, Keep.of(keep))
    heads.keep.check(model)
    with heads.watch():
        yield heads
        trained = statistics is not None and _has_active_dropout(model)
    heads.finish()
    if trained:
        warnings.warn(
            "the model is in training mode with dropout: statistics are of the clean attention weights, "
            "of activations that dropout has touched; model.eval() gives the model's own",
            stacklevel=3,
        )


class _Ran:
    """Counts how often a module runs."""

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


def _warn_of_broken_rows(heads: Capture) -> None:
    """Say which rows the statistics leave out."""
    named = {site.key: site.label for site in heads.sites}
    for key, record in heads._records.items():  # pyright: ignore[reportPrivateUsage]  # same file
        found = record.statistics
        if found is not None and found.broken.any():
            heads_hit = int((found.broken > 0).sum())
            warnings.warn(
                f"{named[key]}: up to {int(found.broken.max())} of {found.rows} rows hold NaN or inf, "
                f"in {heads_hit} of {found.heads} heads; they are counted and left out of every statistic",
                stacklevel=3,
            )
