"""Parts of a corpus, the tree that joins them, the files they wait in, and the lock on the folder."""

from __future__ import annotations

import math
import multiprocessing
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import multihead as mh
from multihead.corpus.checkpoint import Checkpoint, Nodes
from multihead.corpus.lock import locked
from multihead.corpus.merge_tree import Tree, covered, outermost, part_range, parts_of, share
from multihead.errors import SizeError

# ---- parts ------------------------------------------------------------------------------------


@given(st.integers(1, 5000), st.integers(1, 40))
def test_parts_are_all_documents_once_and_not_too_many(documents: int, unit: int) -> None:
    parts = parts_of(documents, unit=unit)
    assert [d for part in parts for d in part] == list(range(documents))
    assert len(parts) <= 64 + 32 * max(0.0, math.ceil(math.log2(documents / (64 * unit))))
    assert all(part == part_range(i, unit=unit) for i, part in enumerate(parts[:-1]))
    assert all(len(part) % unit == 0 for part in parts[:-1])


@given(st.integers(1, 5000), st.integers(1, 9), st.data())
def test_every_part_is_read_by_one_rank(documents: int, ranks: int, data: st.DataObject) -> None:
    parts = parts_of(documents, unit=3)
    unread = sorted(data.draw(st.sets(st.integers(0, len(parts) - 1), min_size=1)))
    read = [share(parts, unread, rank, ranks) for rank in range(ranks)]
    assert [part for mine in read for part in mine] == unread
    sizes = [sum(len(parts[part]) for part in mine) for mine in read]
    assert max(sizes) - sum(sizes) / ranks <= max(len(part) for part in parts)


@given(st.permutations(range(13)), st.integers(1, 13))
def test_the_order_of_joining_does_not_depend_on_who_comes_first(order: list[int], parts: int) -> None:
    def joined(coming: list[int]) -> str:
        tree: Tree[str] = Tree(lambda left, right: f"({left} {right})")
        for part in coming:
            tree.put((0, part), str(part))
        return tree.root()

    assert joined([p for p in order if p < parts]) == joined(list(range(parts)))


def test_a_rank_holds_few_nodes() -> None:
    """2 log₂ of the parts at most, whatever the range."""
    for start in range(64):
        for stop in range(start + 1, 65):
            tree: Tree[None] = Tree(lambda _, __: None)
            for part in range(start, stop):
                tree.put((0, part), None)
            assert covered(tree.nodes) == set(range(start, stop))
            assert len(tree.nodes) <= 12
    assert outermost([(0, 0), (0, 1), (1, 0), (0, 5)]) == [(1, 0), (0, 5)]


def test_no_parts() -> None:
    with pytest.raises(SizeError, match="0 documents"):
        parts_of(0, unit=8)


# ---- the files --------------------------------------------------------------------------------


def nodes(folder: Path, large: int = 1 << 20) -> Nodes:
    folder.mkdir(exist_ok=True)
    return Nodes("sum", lambda a, b: {"x": a["x"] + b["x"]}, Checkpoint(folder, {}), large)


@pytest.mark.parametrize("large", [0, 1 << 20])
def test_what_is_on_disk_is_all_that_was_put(tmp_path: Path, large: int) -> None:
    first = nodes(tmp_path, large)
    for part in range(5):
        first.put((0, part), {"x": torch.tensor([2.0**part])})
    first.save()
    assert sorted(f.name for f in tmp_path.iterdir()) == ["sum-0-4.safetensors", "sum-2-0.safetensors"]
    again = nodes(tmp_path, large)
    again.gather(again.found())
    again.put((0, 5), {"x": torch.tensor([32.0])})
    assert sorted(again.tree.nodes) == [(1, 2), (2, 0)]
    assert float(again.root()["x"]) == 63.0
    again.finish()
    assert [f.name for f in tmp_path.iterdir()] == ["sum-root.safetensors"]
    assert again.finished()


def _damage(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def test_a_damaged_node_is_not_used(tmp_path: Path) -> None:
    first = nodes(tmp_path)
    for part in (0, 1, 2):
        first.put((0, part), {"x": torch.tensor([1.0])})
    first.save()
    file = first.file((1, 0))
    _damage(file, -1)
    with pytest.warns(UserWarning, match=r"sum-1-0.safetensors is damaged.*its parts are read again"):
        assert nodes(tmp_path).found() == [(0, 2)]
    assert not file.exists()


@pytest.mark.parametrize("at", [3, 60, -3])
def test_any_byte_that_changes_is_noticed_and_the_part_is_read_again(tmp_path: Path, at: int) -> None:
    kept = nodes(tmp_path)
    for number in (1.0, 2.0):
        kept.save_part(7, {"x": torch.full((9,), number)})
    assert float(kept.load_part(7)["x"][0]) == 2.0  # type: ignore[index]
    _damage(kept.part_file(7), at)
    with pytest.warns(UserWarning, match="the part is read again"):
        assert kept.load_part(7) is None


def test_a_damaged_root_runs_the_pass_again(tmp_path: Path) -> None:
    kept = nodes(tmp_path)
    kept.put((0, 0), {"x": torch.tensor([1.0])})
    kept.finish()
    _damage(kept.root_file, -1)
    with pytest.warns(UserWarning, match="the pass sum runs again"):
        assert not kept.finished()
    assert not kept.root_file.exists()


# ---- the lock ---------------------------------------------------------------------------------


def _hold(folder: Path, ready: Any) -> None:
    with locked(folder):
        ready.set()
        signal.pause()


def test_two_runs_into_one_folder(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(mh.MultiheadError, match="is in use by another run"):
        locked(tmp_path).__enter__()
    with locked(tmp_path):
        pass


def test_a_lock_dies_with_its_process(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    child = context.Process(target=_hold, args=(tmp_path, ready))
    child.start()
    assert ready.wait(20)
    with pytest.raises(mh.MultiheadError, match="is in use by another run"):
        locked(tmp_path).__enter__()
    child.kill()
    child.join()
    with locked(tmp_path):
        pass
