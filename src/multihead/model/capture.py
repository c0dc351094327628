"""Observe the heads of a model as it runs: statistics of every head, and optionally their q, k, v or outputs."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from multihead._base.arguments import check_model
from multihead._base.plural import plural
from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError, SizeError
from multihead.layer._head_shard import HeadShard
from multihead.layer._kv_store import in_backward
from multihead.model.call import Call, Compute
from multihead.model.capture_html import heads_html
from multihead.model.capture_table import table_of
from multihead.model.captured_head import CapturedHead
from multihead.model.compiled import inner
from multihead.model.gather_ranks import gather_ranks
from multihead.model.intercept import intercept
from multihead.model.kept_tensors import Keep, Kept
from multihead.model.sites import Key, Site, Sites, find
from multihead.model.statistics.arena import Memory
from multihead.model.statistics.head_statistics import HeadStatistics, Statistics
from multihead.model.statistics.statistics_options import check_statistics
from multihead.model.unseen_attention import nothing_found
from multihead.table.head_names import HeadName
from multihead.table.table import HeadTable

EVERY = Statistics()
"""The statistics of a capture by default."""


@dataclass
class _Record:
    """The captured data of one attention."""

    head_shard: HeadShard | None = None
    """the heads on this rank, which the statistics cover; if None, all heads"""
    statistics: HeadStatistics | None = None
    gathered: HeadStatistics | None = None
    """the statistics of the heads of all ranks"""
    calls: list[Kept] = field(default_factory=list[Kept])


class Capture:
    """The heads of a captured model: `heads["L3H7"]` or `heads[3, 7]`; also a sequence of all heads."""

    def __init__(self, statistics: Statistics | None, keep: Keep, named: Sites | None = None) -> None:
        """`named`: the attentions of the model, needed if `keep` names layers."""
        check_statistics(statistics)
        self.options, self.keep, self.named = statistics, keep, named
        self.sites = Sites()
        """the attentions that ran, in order"""
        self._records: dict[Key, _Record] = {}
        self._memory = Memory()

    def __getitem__(self, name: HeadName) -> CapturedHead:
        site, head = find(name, self.sites)
        return CapturedHead(self, site, head)

    def __len__(self) -> int:
        return sum(site.heads for site in self.sites)

    def __iter__(self) -> Iterator[CapturedHead]:
        return (CapturedHead(self, site, head) for site in self.sites for head in range(site.heads))

    def __contains__(self, name: HeadName) -> bool:
        try:
            self[name]
        except SizeError:
            return False
        return True

    def __repr__(self) -> str:
        names = self.sites.heads
        shown = " ".join(names if len(names) <= 8 else [*names[:4], "...", names[-1]])
        heads, layers = plural(len(names), "head"), plural(len(self.sites), "layer")
        return f"{heads} in {layers}, {plural(self.tokens, 'token')} seen: {shown}"

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
        """The statistics of one attention, `heads.statistics("L3")`; those of several runs can be merged."""
        site = self.sites.layer(layer) if isinstance(layer, str) else layer
        record = self._records[site.key]
        if record.statistics is None:
            raise MultiheadError(
                f"the capture has no statistics of {site.label}",
                hint="mh.capture(model, statistics=multihead.measures.Statistics())",
            )
        if record.head_shard is None:
            return record.statistics
        if record.gathered is None:
            raise MultiheadError(
                f"the statistics of {site.label} are not gathered yet: this rank has "
                f"{len(record.head_shard.heads)} of {plural(site.heads, 'head')}",
                hint="read them after the block, which gathers them at its end",
            )
        return record.gathered

    def here(self, site: Site, heads: Sequence[int]) -> list[int]:
        """The given heads that are on this rank, as indices into its kept tensors."""
        shard = self._records[site.key].head_shard
        return list(heads) if shard is None else shard.indices(heads)

    def calls(self, site: Site) -> list[Kept]:
        """The kept tensors of one attention, call by call."""
        return self._records[site.key].calls

    def add(self, call: Call, out: HeadOutputs) -> None:
        """Add one attention call to the capture."""
        self.sites.register(call.site)
        record = self._records.setdefault(call.key, _Record(call.head_shard))
        if self.options is not None:
            if record.statistics is None:
                record.statistics = HeadStatistics(call.problem.coordinates.heads, self.options, self._memory)
            record.gathered = None
            record.statistics.update(call.problem, out, call.queries, call.keys, cross=call.cross)
        if self.keep != Keep():
            label = self.named[call.key].label if self.named is not None and call.key in self.named else ""
            tensors = self.keep.take(label, call.problem, out)
            record.calls += [] if tensors is None else [tensors]

    @contextmanager
    def watch(self, model: nn.Module) -> Generator[None]:
        """Capture every attention of the model inside the `with` block."""
        runs = _RunCount(inner(model))

        def listen(call: Call, compute: Compute) -> HeadOutputs:
            """Add an attention call to the capture."""
            out = compute()
            if not in_backward():
                self.add(call, out)
            return out

        with runs, intercept(model, listen, sharded=True) as unseen:
            yield
            note = unseen()
        if not len(self):
            raise nothing_found(inner(model), runs.count)
        if note is not None:
            warnings.warn(note, stacklevel=6)

    def finish(self) -> None:
        """Release the capture's working memory, and warn of rows that the statistics exclude.

        If the heads of the model are sharded over ranks, every rank gets the statistics of all heads.
        """
        for record in self._records.values():
            if record.head_shard is not None and record.statistics is not None and record.gathered is None:
                record.gathered = gather_ranks(record.statistics, record.head_shard)
        self._memory.rest()
        self._warn_of_broken_rows()

    def _warn_of_broken_rows(self) -> None:
        """Warn of rows with NaN or inf in the capture."""
        for site in self.sites:
            statistics = self._records[site.key].statistics
            if statistics is not None and statistics.broken.any():
                heads = int((statistics.broken > 0).sum())
                warnings.warn(
                    f"{site.label}: up to {int(statistics.broken.max())} of {statistics.rows} rows have NaN "
                    f"or inf, in {heads} of {plural(statistics.heads, 'head')}; they are counted, but excluded "
                    "from all statistics",
                    stacklevel=4,
                )

    # ---- merging and saving -------------------------------------------------------------------

    def merge(self, later: Capture) -> None:
        """Merge the capture of a later run of the same model."""
        self.sites.merge(later.sites)
        for key, later_record in later._records.items():
            record = self._records.setdefault(key, _Record(later_record.head_shard))
            if record.statistics is None:
                record.statistics = later_record.statistics
            elif later_record.statistics is not None:
                record.statistics.merge(later_record.statistics)

    def state(self) -> dict[str, Any]:
        """The state of a `Capture`: its statistics so far, as tensors and plain data.

        The state of a sharded model also holds which heads are on this rank; it cannot be saved to a file.
        """
        statistics: list[dict[str, Any] | None] = []
        for site in self.sites:
            of_site = self._records[site.key].statistics
            statistics.append(None if of_site is None else of_site.state())
            if of_site is not None:
                statistics[-1].pop("options")  # type: ignore[union-attr]  # saved once below: they may be large
        options = None if self.options is None else self.options.state()
        shards = [self._records[site.key].head_shard for site in self.sites]
        return {"options": options, "sites": self.sites.state(), "statistics": statistics, "shares": shards}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore this capture from the `state` of one with the same options."""
        if (None if self.options is None else self.options.state()) != state["options"]:
            raise MultiheadError(
                "the state was saved with different options of the statistics",
                hint="resume with the options that the run started with",
            )
        self.sites, self._records, self._memory = Sites.from_state(state["sites"]), {}, Memory()
        for site, saved, shard in zip(self.sites, state["statistics"], state["shares"], strict=True):
            record = self._records.setdefault(site.key, _Record(shard))
            if saved is not None:
                loaded = HeadStatistics.from_state({**saved, "options": state["options"]})
                # Merge into new statistics, which use the working memory that all layers of this capture share.
                record.statistics = HeadStatistics(loaded.heads, self.options, self._memory).merge(loaded)


@contextmanager
def capture(
    model: nn.Module, *, statistics: Statistics | None = EVERY, keep: Keep | str | None = None
) -> Generator[Capture]:
    """Capture every attention of `model` inside the block. The model is unchanged afterwards.

    Args:
        model: any PyTorch model. Attention is found where the model calls torch's fused attention,
            nn.MultiheadAttention, the attention interface of Hugging Face, this package, or a module with an
            adapter.
        statistics: the statistics to compute, see `multihead.measures.Statistics`; if None, none.
        keep: "qk", "qk v" or "outputs" for every layer, or a `Keep` for some; memory grows with every call.

    Returns:
        A context manager that yields a `Capture`: `heads["L1H0"]` is a head, `heads.table()` a row per head.

    Raises:
        MultiheadError: at the end of the block, if the model did not run in it, or no attention was found.

    >>> import torch, multihead as mh
    >>> model, tokenizer = mh.embedded()
    >>> ids = torch.tensor([tokenizer("the keys that the man sees are new .")["input_ids"]])
    >>> with mh.capture(model, keep="qk") as heads:
    ...     _ = model(ids)
    >>> heads["L1H0"].weights().shape  # batch, query, key
    torch.Size([1, 10, 10])
    >>> heads.table().top("previous", 1).heads
    ('L0H1',)
    """
    check_model(model)
    to_keep = Keep.of(keep)
    heads = Capture(statistics, to_keep, to_keep.named_layers(model))
    with heads.watch(model):
        yield heads
        dropouts = [m for m in model.modules() if isinstance(m, nn.Dropout)]
        has_dropout = statistics is not None and any(m.p > 0 and m.training for m in dropouts)
    heads.finish()
    if has_dropout:
        warnings.warn(
            "the model is in training mode with dropout: the statistics use attention weights before dropout, but "
            "activations after it; call model.eval() for statistics without dropout",
            stacklevel=3,
        )


class _RunCount:
    """Counts the calls of a module."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self.count = module, 0

    def __enter__(self) -> None:
        self.handle = self.module.register_forward_pre_hook(self._increment)

    def __exit__(self, *_: object) -> None:
        self.handle.remove()

    def _increment(self, *_: object) -> None:
        self.count += 1
