"""Small tiles: cut the scores at small sizes as they would be cut at large ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from multihead._base.recent import Recent
from multihead.layer import _blocked, _plan, _tiles


@contextmanager
def blocks_of(cells: int) -> Iterator[None]:
    """No tile with a written-out mask is larger than this, and no number of tiles is too many."""

    def cut(*args: Any, **kwargs: Any) -> Sequence[_tiles.Tile]:
        return _tiles.tile(*args, **{**kwargs, "largest": min(cells, kwargs.get("largest", cells))})

    with ExitStack() as patches:
        for module, name, value in (
            (_plan, "tile", cut),
            (_plan, "TILE_OVERHEAD", 0),
            (_plan, "BLOCK", cells),
            (_blocked, "BLOCK", cells),
            (_plan, "_PLANS", Recent(64)),  # plans are kept: those of other block sizes do not count
            (_plan, "_UNMASKED", {}),
        ):
            patches.enter_context(mock.patch.object(module, name, value))
        yield
