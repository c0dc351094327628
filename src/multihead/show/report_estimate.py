"""The parts of a report, and about how long they take.

>>> import multihead as mh
>>> from multihead.corpus.documents import CachedCorpus
>>> from multihead.show.report_estimate import PARTS, report_estimate
>>> model, tokenizer = mh.embedded()
>>> corpus = CachedCorpus(model, tokenizer.sample_texts(), tokenizer=tokenizer)
>>> report_estimate(model, corpus, parts=PARTS).memory > report_estimate(model, corpus, parts=()).memory
False
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from multihead._base.estimate import Estimate, ForwardCost
from multihead._base.number_text import amount
from multihead._base.plural import plural

if TYPE_CHECKING:
    from torch import nn

    from multihead.corpus.documents import CachedCorpus

PARTS = ("measure", "kinds", "pairs", "importance", "similarity", "curve", "theory", "cost")
"""The parts of a report, besides maps, in the order in which they are measured."""

SERVED_PARTS = ("measure", "kinds", "pairs", "cost")
"""The parts that a served page has by default, for a quick start."""

IMPORTANCE = ("auto", "gradient", "ablation")

EXACT = 256
"""With at most this many heads, importance="auto" ablates every head; with more, it uses gradients."""

_FORWARDS = {"measure": 3.0, "kinds": 8.0, "pairs": 3.0, "similarity": 6.0, "curve": 14.0, "theory": 25.0}
"""About how many forward passes over the documents a part takes; importance and real cuts depend on the model."""

_OVERHEAD = {"measure": 0.2, "kinds": 2.0, "importance": 0.5, "similarity": 0.5, "curve": 0.5, "theory": 10.0}
"""About how many seconds a part takes however small the model is: imports, networks that a statement trains."""


def ablates(importance: str, heads: int) -> bool:
    """Whether importance is measured by ablating every head."""
    return importance == "ablation" or (importance == "auto" and heads <= EXACT)


def announcement(
    model: nn.Module, corpus: CachedCorpus, name: str, corpus_name: str, parts: Sequence[str], **estimated: Any
) -> list[str]:
    """Lines about the parts that `mh.report` measures, and about how much time and memory they take."""
    from multihead.model.find_sites import find_sites

    heads = len(find_sites(model, corpus.first().inputs).heads)
    size = f"{plural(heads, 'head')}, {amount(sum(p.numel() for p in model.parameters()))} parameters"
    documents = f"{corpus_name or 'the data'}: {plural(corpus.document_count, 'document')}"
    estimate = report_estimate(model, corpus, parts=parts, heads=heads, **estimated)
    return [
        f"{name}: {size}; {documents}; {', '.join(('maps', *parts))}",
        f"{estimate}; Ctrl-C keeps what is finished",
    ]


def report_estimate(
    model: nn.Module,
    corpus: CachedCorpus,
    *,
    parts: Sequence[str] = PARTS,
    importance: str = "auto",
    cut: Sequence[str] = (),
    heads: int | None = None,
) -> Estimate:
    """About how long `mh.report` takes with these arguments, and how much memory; `heads` if they are counted."""
    # Here, because the command line reads PARTS for its help, and importing torch takes a second.
    from multihead.model.find_sites import find_sites
    from multihead.model.forward import Forward

    first = corpus.first().inputs
    heads = len(find_sites(model, first).heads) if heads is None else heads
    cost = ForwardCost.of(model, first, Forward(model), warmed_up=True)
    forwards = _FORWARDS | {"importance": heads / 3 if ablates(importance, heads) else 4.0}
    if cut:
        forwards["curve"] = len(cut) * 6 * (6 + 4.0 * cost.layers)
    return cost.estimate(
        sum(forwards.get(part, 0.0) for part in parts),
        corpus.count_batches(),
        overhead=sum(_OVERHEAD.get(part, 0.0) for part in parts),
        copies=2,
        every_layer=True,
    )
