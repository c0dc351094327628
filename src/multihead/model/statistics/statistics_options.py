"""Options of head statistics: what to measure, and how much memory to use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from multihead._base.arguments import check_count
from multihead.errors import SizeError, TypeMismatchError

BLOCK_BYTES = 32 << 20
"""Larger blocks of weights exceed a shared cache; smaller ones spend their time in call overhead."""


def check_statistics(statistics: object) -> None:
    """Raise unless the option `statistics` is None or a `Statistics`."""
    if statistics is not None and not isinstance(statistics, Statistics):
        raise TypeMismatchError(
            f"statistics must be a Statistics or None, got {statistics!r}",
            hint="multihead.measures.Statistics() measures the default statistics",
        )


@dataclass(frozen=True)
class Statistics:
    """Options of the statistics measured in addition to the default ones.

    - `offsets`: measure the mass on each offset key − query from −offsets to +offsets.
    - `special`: ids of delimiters and other special tokens.
    - `classes`: name → token ids, for punctuation, tags or any other class.
    - `block_bytes`: memory bound of a block of weights.

    >>> import torch, multihead as mh
    >>> from multihead.measures import Statistics
    >>> model, tokenizer = mh.embedded()
    >>> ids = tokenizer("the keys that the man sees are new .")["input_ids"]
    >>> with mh.capture(model, statistics=Statistics(classes={"articles": [ids[1]]})) as heads:
    ...     _ = model(torch.tensor([ids]))
    >>> [name for name in heads.table().columns if "articles" in name]
    ['class:articles']
    """

    offsets: int = 16
    special: Sequence[int] = ()
    classes: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    block_bytes: int = BLOCK_BYTES

    def __post_init__(self) -> None:
        check_count("offsets", self.offsets)
        if not isinstance(self.classes, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            raise TypeMismatchError(
                f"classes must map names to token ids, got {self.classes!r}",
                hint="classes={'digits': [15, 16, 17]}",
            )
        if self.block_bytes < 1:
            raise SizeError(
                f"block_bytes must be at least 1, got {self.block_bytes}", hint=f"the default is {BLOCK_BYTES}"
            )

    def state(self) -> dict[str, object]:
        """The options of the statistics as JSON-compatible data."""
        return {
            "offsets": self.offsets,
            "special": [int(i) for i in self.special],
            "classes": {name: [int(i) for i in ids] for name, ids in self.classes.items()},
            "block_bytes": self.block_bytes,
        }
