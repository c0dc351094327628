"""The attention map of one head on one text, and how a terminal shows it.

>>> import multihead as mh
>>> from multihead.show.terminal_head_map import TerminalHeadMap
>>> model, tokenizer = mh.embedded()
>>> head_map = TerminalHeadMap.of(model, tokenizer, "0.2", "the cat ran")
>>> head_map.head, len(head_map.tokens) == len(head_map.weights)
('L0H2', True)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from multihead._base.charts import Heatmap
from multihead._base.number_text import number
from multihead.corpus.batches import batches
from multihead.errors import MultiheadError
from multihead.measures.statistics_sum import with_special
from multihead.model.capture import capture
from multihead.model.find_sites import find_sites
from multihead.model.forward import Forward
from multihead.model.kept_tensors import Keep
from multihead.model.sites import find
from multihead.model.statistics.statistics_options import Statistics
from multihead.model.token_limit import token_limit
from multihead.show.terminal import TerminalHeatmap
from multihead.show.tokens import Words
from multihead.table.view import STATISTICS

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class TerminalHeadMap:
    """Where one head looks in the first window of a text."""

    head: str
    tokens: list[str]
    """the keys, and the queries unless `queries` has others"""
    queries: list[str]
    weights: list[list[float]]
    statistics: dict[str, float | None]
    pieces: int
    """windows that the text takes"""

    @staticmethod
    def of(
        model: nn.Module, tokenizer: Any, head: str, text: str, max_tokens: int | None = None
    ) -> TerminalHeadMap:
        """Run the model once, for a head's map in the terminal.

        `max_tokens`: of a window of the text; default: as many as the model can read.
        """
        if tokenizer is None:
            raise MultiheadError(
                "the model has no tokenizer, so text cannot be read",
                hint="mh.capture(model, keep='qk'), then mh.figure.attention(heads['L3H7'])",
            )
        max_tokens = token_limit(model) if max_tokens is None else max_tokens
        site, index = find(head, find_sites(model))
        pieces = list(batches(model, [text], tokenizer=tokenizer, batch_size=1, max_tokens=max_tokens))
        statistics = with_special(Statistics(), tokenizer)
        with capture(model, statistics=statistics, keep=Keep(qk=[site.label])) as heads:
            Forward(model)(pieces[0])
        captured = heads[site.name(index)]
        means = {name: captured.mean(name) for name in STATISTICS}
        ids = {name: x[0].tolist() for name, x in pieces[0].items() if name.endswith("input_ids")}
        decodes = site.cross or "decoder" in site.stack.split("_")
        source = text if len(ids) == 1 else None
        queries, keys = (
            Words.of(ids["decoder_input_ids" if decoder and len(ids) > 1 else "input_ids"], tokenizer, source).shown
            for decoder in (decodes, decodes and not site.cross)
        )
        return TerminalHeadMap(
            captured.name,
            keys,
            queries,
            captured.weights()[0].float().tolist(),
            {name: None if math.isnan(mean) else mean for name, mean in means.items()},
            len(pieces),
        )

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    def _drawn(self, start: int, digits: bool) -> TerminalHeatmap:
        chart = Heatmap.attention(np.array(self.weights), self.queries, self.tokens)
        return TerminalHeatmap(chart, start=start, digits=digits)

    def print(self, console: Console, model: str, *, start: int = 0, digits: bool = False) -> None:
        """Print a head's map with its scale and the head's statistics to the terminal."""
        from rich.text import Text

        drawn = self._drawn(start, digits)
        console.print(Text(f"{model} {self.head}: each token, and where it looks", "bold"))
        console.print(drawn)
        console.print(drawn.scale(console))
        means = ", ".join(f"{name} {number(mean, 2)}" for name, mean in self.statistics.items() if mean is not None)
        for line in wrap(means, console.width, initial_indent="  ", subsequent_indent="  "):
            console.print(Text(line, "dim"))

    def notes(self, width: int, *, start: int = 0, digits: bool = False) -> Iterator[str]:
        """Notes below the head's map in the terminal, about the parts that are cut off."""
        shown = self._drawn(start, digits).shown(width)
        if self.pieces > 1:
            yield f"the text is longer than the model can read: this is the first of {self.pieces} windows of it"
        if len(shown) < len(self.tokens):
            more = f"; --from {shown.stop} shows the next" if shown.stop < len(self.tokens) else ""
            yield f"tokens {shown.start} to {shown.stop - 1} of {len(self.tokens)}, as many as fit{more}"
