"""Tiles: together they hold each query once and allow exactly what the mask allows, and leave out the rest."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cases
from multihead import mask
from multihead.layer._coordinates import Coordinates
from multihead.layer._tiles import Tile, TileMask, single_tile, tile

CPU = torch.device("cpu")


def painted(tiles: list[Tile], seen: mask.Mask, frame: Coordinates) -> tuple[torch.Tensor, torch.Tensor]:
    """(how often each query is in a tile, what the tiles allow)"""
    held = torch.zeros(frame.batch, frame.queries, dtype=torch.long)
    cells = torch.zeros(frame.batch, frame.heads, frame.queries, frame.keys, dtype=torch.bool)
    for t in tiles:
        held[t.batch, t.queries] += 1
        columns = torch.cat([torch.arange(frame.keys)[k] for k in t.keys] or [torch.arange(0)])
        rows = t.queries.stop - t.queries.start
        inside = torch.ones(1, 1, rows, len(columns), dtype=torch.bool)
        if t.mask is TileMask.CAUSAL:
            assert rows == len(columns), "the causal flag is for squares"
            inside = inside.tril()
        elif t.mask is TileMask.MASKED and len(columns):
            written = seen.allowed(frame.grid(t.batch, t.queries, t.keys))
            inside = inside if written is None else written
        block = cells[t.batch, :, t.queries]
        block[..., columns] = inside.expand(*block.shape[:3], len(columns))
    return held, cells


@given(data=st.data())
def test_tiles_are_the_mask(data: st.DataObject) -> None:
    batch, heads = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    some = st.sampled_from([1, 2, 3, 5, 7, 11])
    queries, keys = data.draw(some), data.draw(some)
    queries = keys if data.draw(st.booleans()) else queries
    seen = mask.of(data.draw(cases.looks(batch, heads, queries, keys, ragged=True))(torch.float32).mask)
    frame = Coordinates(batch, heads, queries, keys, CPU)
    largest, every = data.draw(st.sampled_from([1, 5, 12, 1000])), data.draw(st.booleans())
    tiles = tile(seen, frame, largest=largest, every=every)
    held, cells = painted(tiles, seen, frame)
    assert (held == 1).all()
    assert torch.equal(cells, seen.tensor(queries, keys, batch=batch, heads=heads))
    for t in tiles:
        _, rows, width = t.shape
        if every or t.mask is TileMask.MASKED:
            assert rows * width <= largest or rows == 1
    one = single_tile(seen, frame)
    held, cells = painted([one], seen, frame)
    assert (held == 1).all()
    assert torch.equal(cells, seen.tensor(queries, keys, batch=batch, heads=heads))


def cut(seen: mask.Mask, tokens: int, *, batch: int = 1, keys: int | None = None) -> list[Tile]:
    return tile(seen, Coordinates(batch, 1, tokens, tokens if keys is None else keys, CPU))


def cells(tiles: list[Tile]) -> int:
    return sum(t.cells for t in tiles)


class TestWorkNotDone:
    def test_a_window_is_a_band(self) -> None:
        tiles = cut(mask.window(256), 8192)
        assert cells(tiles) <= 8192 * 256 * 2
        assert max(t.shape[2] for t in tiles) < 1024

    def test_the_first_keys_are_a_range_of_their_own(self) -> None:
        last = cut(mask.window(64, first=4), 4096)[-1]
        assert last.keys[0] == slice(0, 4)
        assert len(last.keys) == 2

    def test_packed_documents_are_blocks_on_the_diagonal(self) -> None:
        tiles = cut(mask.documents(offsets=[0, 64, 128, 1024]) & mask.causal(), 1024)
        assert [t.mask for t in tiles[:2]] == [TileMask.CAUSAL] * 2
        assert cells(tiles) <= 64**2 // 2 * 2 + 896**2 * 3 // 4
        assert all(t.keys[0].start >= 128 for t in tiles[2:])

    def test_documents_alone_are_full_blocks(self) -> None:
        tiles = cut(mask.documents(offsets=[0, 100, 300]), 300)
        assert [t.mask for t in tiles] == [TileMask.FULL] * 2
        assert cells(tiles) == 100**2 + 200**2

    def test_padding_is_no_work(self) -> None:
        tiles = cut(mask.lengths([100, 7, 0]), 100, batch=3)
        assert cells(tiles) == 100 * 107
        assert all(t.mask is TileMask.FULL for t in tiles)

    def test_ragged_rows_are_no_queries_either(self) -> None:
        tiles = cut(mask.ragged([100, 7, 0]), 100, batch=3)
        assert cells(tiles) == 100 * 100 + 7 * 7

    def test_rows_that_are_alike_are_one_tile(self) -> None:
        tiles = cut(mask.lengths([9, 9, 4]), 9, batch=3)
        assert [(t.batch.start, t.batch.stop) for t in tiles] == [(0, 2), (2, 3)]

    def test_one_new_token_over_a_cache_sees_what_it_may(self) -> None:
        (one,) = tile(mask.causal() & mask.window(64), Coordinates(2, 4, 1, 1000, CPU))
        assert one.mask is TileMask.FULL
        assert one.keys == (slice(936, 1000),)

    def test_a_chunk_over_a_cache_is_full_but_for_its_end(self) -> None:
        tiles = tile(mask.causal(), Coordinates(1, 1, 10, 1000, CPU))
        assert cells(tiles) == 10 * 1000

    def test_plain_causal_is_one_flag(self) -> None:
        (one,) = cut(mask.causal(), 64)
        assert one.mask is TileMask.CAUSAL
        assert one.cells == 64 * 64 // 2
        assert single_tile(mask.causal(), Coordinates(1, 1, 512, 512, CPU)).mask is TileMask.CAUSAL
        assert single_tile(mask.causal(), Coordinates(1, 1, 511, 512, CPU)).mask is TileMask.MASKED
        assert single_tile(mask.everything(), Coordinates(1, 1, 511, 512, CPU)).mask is TileMask.FULL


@pytest.mark.parametrize("seen", [mask.everything(), mask.causal(), mask.window(700, 700), mask.lengths([1999])])
def test_blocks_stay_bounded(seen: mask.Mask) -> None:
    """For kernels that write scores out: memory linear in tokens, so no tile holds n x n."""
    tiles = tile(seen, Coordinates(1, 2, 2000, 2000, CPU), largest=1 << 16, every=True)
    assert max(t.shape[1] * t.shape[2] for t in tiles) <= 1 << 16
    assert len(tiles) < 200


def test_nothing_to_tile() -> None:
    assert tile(mask.causal(), Coordinates(0, 3, 5, 5, CPU)) == []
    assert tile(mask.lengths([]), Coordinates(0, 3, 5, 5, CPU)) == []
    assert tile(mask.causal(), Coordinates(2, 3, 0, 5, CPU)) == []
