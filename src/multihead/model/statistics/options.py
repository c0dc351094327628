"""What is measured of every head, and in how much memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from multihead.errors import SizeError, TypeMismatchError

BLOCK_BYTES = 32 << 20
"""Blocks of weights that stay inside a shared cache; smaller ones spend their time in calls."""


def check_statistics(statistics: object) -> None:
    """Raise unless this is None or a `Statistics`."""
    if statistics is not None and not isinstance(statistics, Statistics):
        raise TypeMismatchError(
            f"statistics must be a mh.Statistics or None, got {statistics!r}",
            hint="mh.Statistics() takes every statistic",
        )


@dataclass(frozen=True)
class Statistics:
    """Which statistics are kept beside those that every head has.

    - `offsets`: the mass on each offset key − query from −offsets to +offsets;
    - `special`: ids of delimiters and other special tokens;
    - `classes`: name → ids of its tokens, for punctuation, tags or anything else;
    - `covariance`: second moments of the outputs of all heads, (heads · value_dim)² numbers; means are always kept;
    - `block_bytes`: what the blocks in which the weights are computed may take.
    """

    offsets: int = 16
    special: Sequence[int] = ()
    classes: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    covariance: bool = False
    block_bytes: int = BLOCK_BYTES

    def __post_init__(self) -> None:
        if self.offsets < 1:
            raise SizeError(f"offsets={self.offsets} is less than 1", hint="offsets=1 measures previous and next")
        if not isinstance(self.classes, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            raise TypeMismatchError(
                f"classes must map names to token ids, got {self.classes!r}",
                hint="classes={'digits': [15, 16, 17]}",
            )
        if self.block_bytes < 1:
            raise SizeError(f"block_bytes={self.block_bytes} is no memory", hint=f"the default is {BLOCK_BYTES}")

    def state(self) -> dict[str, object]:
        """The options as plain data, for json."""
        return {
            "offsets": self.offsets,
            "special": [int(i) for i in self.special],
            "classes": {name: [int(i) for i in ids] for name, ids in self.classes.items()},
            "covariance": self.covariance,
            "block_bytes": self.block_bytes,
        }
