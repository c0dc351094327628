"""The names of the statistics: unit, one line of meaning, and the scale of the histogram.

Each is a number per query row and head; what is kept of it is count, mean, std, min, max and a histogram over rows.
p_ij are the clean weights of the row (before dropout, without the column of a learned sink), j its visible keys.
Masses are sums of p_ij as they stand. What describes the shape of the row (entropy, distance, spread, effective
keys) is taken of p_ij / Σ_j p_ij: the same without a sink; with one, `sink` says how much is missing.
"""

from __future__ import annotations

from multihead.model.statistics.options import Statistics
from multihead.table.meaning import Meaning, Scale

SATURATED = 0.99
"""A row whose largest weight is above this counts as saturated."""

SHARE = Scale(0.0, 1.0)
NATS = Scale(0.0, 16.0)
TOKENS = Scale(0.0, 2.0**20, bend=1.0)
SIGNED = Scale(-(2.0**20), 2.0**20, bend=1.0)
SCORE = Scale(-1024.0, 1024.0, bend=1.0)
LENGTH = Scale(0.0, 2.0**16, bend=2.0**-8)


MEANING: dict[str, Meaning] = {
    "entropy": Meaning("nats", "−Σ p log p", NATS),
    "relative_entropy": Meaning(
        "share", "entropy / log(visible keys); 1 is uniform. Rows of one key do not count", SHARE
    ),
    "perplexity": Meaning("keys", "exp(entropy): the uniform row that is as uncertain", TOKENS),
    "effective_keys": Meaning("keys", "participation ratio 1 / Σ p²", TOKENS),
    "max_weight": Meaning("share", "the largest weight of the row", SHARE),
    "saturated": Meaning("share", f"1 where the largest weight is above {SATURATED}", SHARE),
    "distance": Meaning("tokens", "Σ p |query place − key place|", TOKENS),
    "signed_distance": Meaning("tokens", "Σ p (query place − key place); above 0 looks back", SIGNED),
    "spread": Meaning("tokens", "standard deviation of the key's place under p", TOKENS),
    "before": Meaning("share", "mass on keys before the query", SHARE),
    "after": Meaning("share", "mass on keys after the query", SHARE),
    "first": Meaning("share", "mass on the first real key of the sequence", SHARE),
    "self": Meaning("share", "mass on the query's own place", SHARE),
    "previous": Meaning("share", "mass on the place before the query", SHARE),
    "next": Meaning("share", "mass on the place after the query", SHARE),
    "special": Meaning("share", "mass on special tokens", SHARE),
    "same_token": Meaning("share", "mass on the query's token at other places", SHARE),
    "induction": Meaning("share", "mass on keys that follow an earlier occurrence of the query's token", SHARE),
    "sink": Meaning("share", "mass on the learned sink, 1 − Σ p", SHARE),
    "lse": Meaning("nats", "log Σ exp(score), sinks included", SCORE),
    "logit_scale": Meaning(
        "nats", "standard deviation of the visible scores, before what masks and biases add", LENGTH
    ),
    "output_norm": Meaning("norm", "‖Σ p v‖, the length of the head's output", LENGTH),
    "value_norm": Meaning("norm", "Σ p ‖v‖ (Kobayashi 2020)", LENGTH),
    "visible": Meaning("keys", "keys that the mask lets the query see", TOKENS),
}
"""What every head has; `meanings` adds offsets and classes."""


def offset_name(offset: int) -> str:
    return f"offset{offset:+d}"


def meanings(options: Statistics) -> dict[str, Meaning]:
    """Every statistic by name, in the order in which it is kept."""
    offsets = range(-options.offsets, options.offsets + 1)
    far = {offset_name(o): Meaning("share", f"mass on key place − query place = {o:+d}") for o in offsets}
    classes = {
        f"class:{name}": Meaning("share", f"mass on tokens of class {name!r}", SHARE) for name in options.classes
    }
    return {**MEANING, **classes, **far}
