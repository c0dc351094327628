"""Small tiles: cut the scores at small sizes as they would be cut at large ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from multihead.layer import blocked, routes, tiles


@contextmanager
def blocks_of(cells: int) -> Iterator[None]:
    """No tile with a written-out mask is larger than this, and no number of tiles is too many."""

    def cut(*args: Any, **kwargs: Any) -> Sequence[tiles.Tile]:
        return tiles.tile(*args, **{**kwargs, "largest": min(cells, kwargs.get("largest", cells))})

    with ExitStack() as patches:
        for module, name, value in (
            (routes, "tile", cut),
            (routes, "TILE_OVERHEAD", 0),
            (routes, "BLOCK", cells),
            (blocked, "BLOCK", cells),
        ):
            patches.enter_context(mock.patch.object(module, name, value))
        yield
