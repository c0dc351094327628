"""The statistics by name: unit, one-line meaning, and histogram scale.

Each statistic has one value per query row and head, accumulated over rows as count, mean, std, min, max and
histogram. p_ij are the clean weights of the row (before dropout, without the column of a learned sink), j its
visible keys. Masses are sums of p_ij. Shape statistics (entropy, distance, position_std, effective keys) use
p_ij / Σ_j p_ij, which differs only if the head has a learned sink; `sink` is the missing mass.
"""

from __future__ import annotations

from multihead.model.statistics.statistics_options import Statistics
from multihead.table.column_info import ColumnInfo, Scale

SATURATED = 0.99
"""A row whose largest weight is above this counts as saturated."""

SHARE = Scale(0.0, 1.0)
NATS = Scale(0.0, 16.0)
TOKENS = Scale(0.0, 2.0**20, bend=1.0)
SIGNED = Scale(-(2.0**20), 2.0**20, bend=1.0)
SCORE = Scale(-1024.0, 1024.0, bend=1.0)
LENGTH = Scale(0.0, 2.0**16, bend=2.0**-8)


MEANING: dict[str, ColumnInfo] = {
    "entropy": ColumnInfo("nats", "−Σ p log p", NATS),
    "relative_entropy": ColumnInfo(
        "share", "entropy / log(visible keys); 1 is uniform. Excludes rows of one key", SHARE
    ),
    "perplexity": ColumnInfo("keys", "exp(entropy): number of keys of an equally uncertain uniform row", TOKENS),
    "effective_keys": ColumnInfo("keys", "participation ratio 1 / Σ p²", TOKENS),
    "max_weight": ColumnInfo("share", "the largest weight of the row", SHARE),
    "saturated": ColumnInfo("share", f"1 where the largest weight is above {SATURATED}", SHARE),
    "distance": ColumnInfo("tokens", "Σ p |query position − key position|", TOKENS),
    "signed_distance": ColumnInfo("tokens", "Σ p (query position − key position); positive looks back", SIGNED),
    "position_std": ColumnInfo("tokens", "standard deviation of the key position under p", TOKENS),
    "before": ColumnInfo("share", "mass on keys before the query", SHARE),
    "after": ColumnInfo("share", "mass on keys after the query", SHARE),
    "first": ColumnInfo("share", "mass on the first real key of the sequence", SHARE),
    "self": ColumnInfo("share", "mass on the query's own position", SHARE),
    "previous": ColumnInfo("share", "mass on the position before the query", SHARE),
    "next": ColumnInfo("share", "mass on the position after the query", SHARE),
    "special": ColumnInfo("share", "mass on special tokens", SHARE),
    "same_token": ColumnInfo("share", "mass on the query's token at other positions", SHARE),
    "induction": ColumnInfo("share", "mass on keys that follow an earlier occurrence of the query's token", SHARE),
    "sink": ColumnInfo("share", "mass on the learned sink, 1 − Σ p", SHARE),
    "lse": ColumnInfo("nats", "log Σ exp(score), sinks included", SCORE),
    "logit_scale": ColumnInfo(
        "nats", "standard deviation of the visible scores, before additive masks and biases", LENGTH
    ),
    "output_norm": ColumnInfo("norm", "‖Σ p v‖, the norm of the head's output", LENGTH),
    "value_norm": ColumnInfo("norm", "Σ p ‖v‖ (Kobayashi 2020)", LENGTH),
    "visible": ColumnInfo("keys", "keys visible to the query", TOKENS),
}
"""Statistics of every head; `meanings` adds offsets and classes."""


def offset_name(offset: int) -> str:
    return f"offset{offset:+d}"


def meanings(options: Statistics) -> dict[str, ColumnInfo]:
    """The catalogue: unit and meaning of every statistic, in storage order."""
    offsets = range(-options.offsets, options.offsets + 1)
    offset_masses = {
        offset_name(o): ColumnInfo("share", f"mass on key position − query position = {o:+d}") for o in offsets
    }
    classes = {
        f"class:{name}": ColumnInfo("share", f"mass on tokens of class {name!r}", SHARE) for name in options.classes
    }
    return {**MEANING, **classes, **offset_masses}
