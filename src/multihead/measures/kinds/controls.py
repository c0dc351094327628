"""Statistics of documents, and what each would be by chance.

Four controls, each for the kinds that could be mistaken in its way:

- `even`: the same statistic of a head that spreads its weight over all it may see. For masses on places and on
  classes of tokens: the first of five keys gets a fifth by chance.
- `random`: the same statistic of a head with random scores. For broadness and alignment: softmax of anything is
  rather broad over few keys.
- `shuffled`: the same weights, with the ids of the document dealt to its places in all possible ways. For what is
  about equal tokens: with c = Σ n_t (n_t − 1) / (n (n − 1)) the chance that two places hold the same token, each
  cell is one of equal tokens with probability c, so the expectation is c times the mass that could be.
- `fixed-3`, …: the same statistic of a head that always looks at this offset; the best of them counts. Also for
  what is about equal tokens: in a text that repeats itself every ten tokens, looking ten back is enough.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from multihead.measures.kinds.per_document import EVEN, RANDOM, Documents, PerDocument, Sums
from multihead.model.statistics.catalogue import offset_name
from multihead.model.statistics.options import Statistics

WINDOWS = (*range(1, 9), 12, 16)
"""Half widths of the local windows that are tried."""

Numbers = dict[str, Float[Tensor, "document #head"]]


def statistic_names(options: Statistics) -> list[str]:
    """The statistics of a document, in order; masses on offsets and windows are named by their size."""
    away = [offset_name(o) for o in range(-options.offsets, options.offsets + 1) if abs(o) > 1]
    windows = [f"window{w}" for w in WINDOWS if w <= options.offsets]
    classes = [f"class:{name}" for name in options.classes]
    places = ["first", "delimiter", "self", "previous", "next", *away, *windows]
    return [*places, "duplicate", "induction", *classes, "broad", "alignment", "quiet"]


def stream_names(options: Statistics) -> list[str]:
    """Every number that is kept of a document: the statistics, and their controls as `control:statistic`."""
    names = statistic_names(options)
    fixed = [o for o in range(-options.offsets, options.offsets + 1) if o]
    return [
        *names,
        *(f"even:{name}" for name in names if name not in ("duplicate", "induction", "alignment", "quiet")),
        *(f"random:{name}" for name in ("broad", "alignment")),
        *(f"shuffled:{name}" for name in ("duplicate", "induction")),
        *(f"fixed{o:+d}:duplicate" for o in fixed),
        *(f"fixed{o:+d}:induction" for o in fixed if o < 0),  # what followed earlier is never ahead
    ]


def streams(documents: Documents, options: Statistics) -> Numbers:
    """The numbers of each document and head; a name that is not there has none."""
    if not documents.heads.total:
        return {}  # nothing but padding
    mine = _statistics(documents, documents.heads, options)
    chance = _statistics(documents, documents.chance, options)
    if "heads" in documents.lined:
        mine["alignment"], chance["alignment"] = documents.lined["heads"], documents.lined["chance"].nan_to_num(0.0)
        mine["alignment"] = torch.where(mine["broad"].isnan(), torch.nan, mine["alignment"].nan_to_num(0.0))
    mine["quiet"] = quiet(documents.heads.share("output_norm"))
    found = dict(mine)
    found |= {f"even:{name}": x[:, EVEN : EVEN + 1] for name, x in chance.items()}
    found |= {f"random:{name}": chance[name][:, RANDOM:] for name in ("broad", "alignment") if name in chance}
    if documents.ids is not None:
        found |= shuffled(documents) | fixed(documents, options)
    known = set(stream_names(options))
    return {name: x for name, x in found.items() if name in known}


def _statistics(documents: Documents, sums: Sums, options: Statistics) -> Numbers:
    there = sums.total
    found: Numbers = {"first": sums.mean("first"), "broad": sums.share("relative_entropy")}
    if options.special and "delimiter" in there:
        found["delimiter"] = sums.mean("delimiter")
    for name in options.classes:
        if f"class:{name}" in there:
            found[f"class:{name}"] = sums.mean(f"class:{name}")
    if not documents.cross:
        found["self"] = sums.share("self")
        found["previous"], found["next"] = sums.mean("previous"), sums.mean("next")
        for o in range(-options.offsets, options.offsets + 1):
            found[offset_name(o)] = sums.mean(offset_name(o))
        for w in WINDOWS:
            if w <= options.offsets:
                found[f"window{w}"] = sums.share(*(offset_name(o) for o in range(-w, w + 1)))
    if documents.ids is not None:
        found["duplicate"], found["induction"] = sums.mean("same_token"), sums.mean("induction")
    return found


def quiet(norm: PerDocument) -> PerDocument:
    """1 − ‖output‖ / the median of the layer's heads, not below 0; 1 is no output at all."""
    typical = norm.nanquantile(0.5, dim=-1, keepdim=True)
    share = torch.where(typical > 0, norm / typical, (norm > 0).double())
    return (1 - share).clamp(min=0.0).masked_fill(norm.isnan(), torch.nan)


def shuffled(documents: Documents) -> Numbers:
    """E over all ways to deal the ids to the places, weights kept; of the rows that have such a key."""
    assert documents.ids is not None
    equal = torch.tensor([_collision(i[r]) for i, r in zip(documents.ids, documents.real, strict=True)])
    mass = documents.heads.total
    elsewhere = mass["before"] + mass["after"]
    back = mass["before"] + mass["self"] - mass["first"]  # keys up to the query that follow another
    rows = documents.heads.rows
    return {
        "shuffled:duplicate": equal.double().unsqueeze(-1) * elsewhere / rows["same_token"],
        "shuffled:induction": equal.double().unsqueeze(-1) * back.clamp(min=0.0) / rows["induction"],
    }


def _collision(ids: Tensor) -> float:
    """The probability that two different places hold the same token."""
    count = ids.unique(return_counts=True)[1].double()
    n = float(len(ids))
    return float((count * (count - 1)).sum() / (n * (n - 1))) if n > 1 else 0.0


def fixed(documents: Documents, options: Statistics) -> Numbers:
    """What a head that always looks at one offset would have, where that place may be seen."""
    assert documents.ids is not None
    ids = documents.ids.masked_fill(~documents.real, -1)
    length, found = ids.shape[1], Numbers()
    padded = torch.nn.functional.pad(ids, (options.offsets + 1, options.offsets + 1), value=-2)
    for o in range(-options.offsets, options.offsets + 1):
        if not o:
            continue
        start = options.offsets + 1 + o
        there, before = padded[:, start : start + length], padded[:, start - 1 : start - 1 + length]
        hit = {"duplicate": ("same_token", there)} | ({"induction": ("induction", before)} if o < 0 else {})
        for name, (statistic, key) in hit.items():
            rows = documents.sees[statistic]
            right = (key == ids) & documents.sees[offset_name(o)] & rows
            found[f"fixed{o:+d}:{name}"] = (right.sum(-1).double() / rows.sum(-1)).unsqueeze(-1)
    return found
