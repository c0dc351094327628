"""Statistics of documents, and their values by chance.

Four controls, each for the kinds that it could imitate:

- `even`: the statistic of a head with uniform weights over its visible keys. For masses on positions and on token
  classes: the first of five keys gets a fifth by chance.
- `random`: the statistic of a head with random scores. For broadness and alignment: the softmax of any scores is
  rather broad over few keys.
- `shuffled`: the same weights, with the ids of the document permuted in all possible ways. For equal tokens: with
  c = Σ n_t (n_t − 1) / (n (n − 1)) the probability that two positions hold the same token, each cell joins equal
  tokens with probability c, so the expectation is c times the possible mass.
- `fixed-3`, …: the statistic of a head that always attends to this offset; the largest counts. Also for equal
  tokens: in a text with a period of ten tokens, attending ten tokens back is enough.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from multihead.measures.kinds.per_document import EVEN, RANDOM, DocumentSums, PerDocument, Sums
from multihead.model.statistics.meanings import offset_name
from multihead.model.statistics.statistics_options import Statistics

WINDOWS = (*range(1, 9), 12, 16)
"""Half widths of the local windows to test."""

Numbers = dict[str, Float[Tensor, " document #head"]]


def _statistic_names(options: Statistics) -> list[str]:
    """Names of the statistics that have controls, in order; offsets and windows include their size."""
    offsets = [offset_name(o) for o in range(-options.offsets, options.offsets + 1) if abs(o) > 1]
    windows = [f"window{w}" for w in WINDOWS if w <= options.offsets]
    classes = [f"class:{name}" for name in options.classes]
    positional = ["first", "delimiter", "self", "previous", "next", *offsets, *windows]
    return [*positional, "duplicate", "induction", *classes, "broad", "alignment", "quiet"]


def stream_names(options: Statistics) -> list[str]:
    """Names of all values of a document: the statistics, and their controls as `control:statistic`."""
    names = _statistic_names(options)
    fixed = [o for o in range(-options.offsets, options.offsets + 1) if o]
    return [
        *names,
        *(f"even:{name}" for name in names if name not in ("duplicate", "induction", "alignment", "quiet")),
        *(f"random:{name}" for name in ("broad", "alignment")),
        *(f"shuffled:{name}" for name in ("duplicate", "induction")),
        *(f"fixed{o:+d}:duplicate" for o in fixed),
        *(f"fixed{o:+d}:induction" for o in fixed if o < 0),  # induction only attends to earlier tokens
    ]


def streams(documents: DocumentSums, options: Statistics) -> Numbers:
    """The values of each document and head; statistics without values are absent."""
    if not documents.heads.total:
        return {}  # only padding
    statistics = _statistics(documents, documents.heads, options)
    chance = _statistics(documents, documents.chance, options)
    if "heads" in documents.lined:
        aligned = documents.lined["heads"].nan_to_num(0.0)
        statistics["alignment"] = torch.where(statistics["broad"].isnan(), torch.nan, aligned)
        chance["alignment"] = documents.lined["chance"].nan_to_num(0.0)
    statistics["quiet"] = quiet(documents.heads.share("output_norm"))
    values = dict(statistics)
    values |= {f"even:{name}": x[:, EVEN : EVEN + 1] for name, x in chance.items()}
    values |= {f"random:{name}": chance[name][:, RANDOM:] for name in ("broad", "alignment") if name in chance}
    if documents.ids is not None:
        values |= shuffled(documents) | fixed(documents, options)
    names = set(stream_names(options))
    return {name: x for name, x in values.items() if name in names}


def _statistics(documents: DocumentSums, sums: Sums, options: Statistics) -> Numbers:
    """The statistics that are compared with their controls, of every document and head."""
    available = sums.total
    values: Numbers = {"first": sums.mean("first"), "broad": sums.share("relative_entropy")}
    if options.special and "delimiter" in available:
        values["delimiter"] = sums.mean("delimiter")
    for name in options.classes:
        if f"class:{name}" in available:
            values[f"class:{name}"] = sums.mean(f"class:{name}")
    if not documents.cross:
        values["self"] = sums.share("self")
        values["previous"], values["next"] = sums.mean("previous"), sums.mean("next")
        for o in range(-options.offsets, options.offsets + 1):
            values[offset_name(o)] = sums.mean(offset_name(o))
        for w in WINDOWS:
            if w <= options.offsets:
                values[f"window{w}"] = sums.share(*(offset_name(o) for o in range(-w, w + 1)))
    if documents.ids is not None:
        values["duplicate"], values["induction"] = sums.mean("same_token"), sums.mean("induction")
    return values


def quiet(norm: PerDocument) -> PerDocument:
    """How quiet each head is in a document: 1 − ‖output‖ / median of the layer, at least 0; 1 means no output."""
    typical = norm.nanquantile(0.5, dim=-1, keepdim=True)
    share = torch.where(typical > 0, norm / typical, (norm > 0).double())
    return (1 - share).clamp(min=0.0).masked_fill(norm.isnan(), torch.nan)


def shuffled(documents: DocumentSums) -> Numbers:
    """By chance: expectation over all permutations of the ids with fixed weights, for rows that have such a key."""
    assert documents.ids is not None
    collision = torch.tensor([_collision(i[r]) for i, r in zip(documents.ids, documents.real, strict=True)])
    mass = documents.heads.total
    elsewhere = mass["before"] + mass["after"]
    earlier = mass["before"] + mass["self"] - mass["first"]  # keys up to the query, except the first
    rows = documents.heads.rows
    return {
        "shuffled:duplicate": collision.double().unsqueeze(-1) * elsewhere / rows["same_token"],
        "shuffled:induction": collision.double().unsqueeze(-1) * earlier.clamp(min=0.0) / rows["induction"],
    }


def _collision(ids: Tensor) -> float:
    """By chance: the probability that two different positions hold the same token."""
    count = ids.unique(return_counts=True)[1].double()
    n = float(len(ids))
    return float((count * (count - 1)).sum() / (n * (n - 1))) if n > 1 else 0.0


def fixed(documents: DocumentSums, options: Statistics) -> Numbers:
    """The statistics of heads that always attend to one offset, where that position is visible."""
    assert documents.ids is not None
    ids = documents.ids.masked_fill(~documents.real, -1)
    length, values = ids.shape[1], Numbers()
    padded = torch.nn.functional.pad(ids, (options.offsets + 1, options.offsets + 1), value=-2)
    for o in range(-options.offsets, options.offsets + 1):
        if not o:
            continue
        start = options.offsets + 1 + o
        keys = {"duplicate": ("same_token", padded[:, start : start + length])}
        if o < 0:
            keys["induction"] = "induction", padded[:, start - 1 : start - 1 + length]
        for name, (statistic, key) in keys.items():
            rows = documents.sees[statistic]
            hits = (key == ids) & documents.sees[offset_name(o)] & rows
            values[f"fixed{o:+d}:{name}"] = (hits.sum(-1).double() / rows.sum(-1)).unsqueeze(-1)
    return values
