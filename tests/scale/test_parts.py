"""Parts of a corpus, the tree that joins them, the files they wait in, and the lock on the folder."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import multihead as mh
from multihead.corpus.checkpoint import Shelf
from multihead.corpus.lock import Lock
from multihead.corpus.merge_tree import Tree, covered, folded, outermost, parts_of, share

# ---- parts ------------------------------------------------------------------------------------


@given(st.integers(1, 5000), st.integers(1, 40), st.integers(1, 70))
def test_parts_are_all_documents_once_and_not_too_many(documents: int, unit: int, most: int) -> None:
    parts = parts_of(documents, unit=unit, most=most)
    assert [d for part in parts for d in part] == list(range(documents))
    assert len(parts) <= most
    assert all(len(part) % unit == 0 for part in parts[:-1])


@given(st.integers(1, 64), st.integers(1, 9))
def test_every_part_is_taken_by_one_rank(parts: int, ranks: int) -> None:
    taken = [share(range(parts), rank, ranks) for rank in range(ranks)]
    assert [p for mine in taken for p in mine] == list(range(parts))
    assert max(map(len, taken)) - min(map(len, taken)) <= 1


@given(st.permutations(range(13)), st.integers(1, 13))
def test_the_order_of_joining_does_not_depend_on_who_comes_first(order: list[int], parts: int) -> None:
    def joined(coming: list[int]) -> str:
        tree: Tree[str] = Tree(lambda left, right: f"({left} {right})")
        for part in coming:
            tree.put((0, part), str(part))
        return tree.whole()

    assert joined([p for p in order if p < parts]) == joined(list(range(parts)))


def test_a_rank_holds_and_sends_few_nodes() -> None:
    """2 log₂ of the parts at most, whatever the range."""
    for start in range(64):
        for stop in range(start + 1, 65):
            nodes = folded(range(start, stop))
            assert covered(nodes) == set(range(start, stop))
            assert len(nodes) <= 12
    assert folded(range(32, 64)) == [(5, 1)], "half of the parts are one node"
    assert outermost([(0, 0), (0, 1), (1, 0), (0, 5)]) == [(1, 0), (0, 5)]


def test_no_parts() -> None:
    with pytest.raises(mh.SizeError, match="0 documents do not make parts of 8"):
        parts_of(0, unit=8)


# ---- the files --------------------------------------------------------------------------------


def shelf(folder: Path, large: int = 1 << 20) -> Shelf:
    return Shelf(folder, "sum", lambda a, b: {"x": a["x"] + b["x"]}, large)


@pytest.mark.parametrize("large", [0, 1 << 20])
def test_what_is_on_disk_is_all_that_was_put(tmp_path: Path, large: int) -> None:
    first = shelf(tmp_path, large)
    for part in range(5):
        first.put((0, part), {"x": torch.tensor([2.0**part])})
    first.save()
    assert sorted(f.name for f in tmp_path.iterdir()) == ["sum-0-4.safetensors", "sum-2-0.safetensors"]
    again = shelf(tmp_path, large)
    again.earlier = again.found()
    again.take_earlier()
    again.put((0, 5), {"x": torch.tensor([32.0])})
    assert again.nodes() == [(2, 0), (1, 2)]
    assert float(again.whole()["x"]) == 63.0


def test_a_damaged_node_is_no_node(tmp_path: Path) -> None:
    first = shelf(tmp_path)
    for part in (0, 1, 2):
        first.put((0, part), {"x": torch.tensor([1.0])})
    first.save()
    file = first.file((1, 0))
    data = bytearray(file.read_bytes())
    data[-1] ^= 16
    file.write_bytes(data)
    with pytest.warns(UserWarning, match=r"sum-1-0.safetensors is damaged.*its parts are measured again"):
        assert shelf(tmp_path).found() == [(0, 2)]
    assert not file.exists()


@pytest.mark.parametrize("at", [3, 60, -3])
def test_any_byte_that_changes_is_noticed_and_the_save_before_is_used(tmp_path: Path, at: int) -> None:
    kept = shelf(tmp_path)
    for number in (1.0, 2.0):
        kept.save_part(7, {"x": torch.full((9,), number)})
    assert float(kept.load_part(7)["x"][0]) == 2.0  # type: ignore[index]
    file = kept.part_file(7)
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)
    with pytest.warns(UserWarning, match="the save before it is used"):
        assert float(kept.load_part(7)["x"][0]) == 1.0  # type: ignore[index]
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-8])
    with pytest.warns(UserWarning, match="the part begins again"):
        assert kept.load_part(7) is None


# ---- the lock ---------------------------------------------------------------------------------


def _hold(folder: Path, ready: Any) -> None:
    with Lock(folder, "run of a child"):
        ready.set()
        signal.pause()


def test_two_runs_into_one_folder(tmp_path: Path) -> None:
    with Lock(tmp_path, "run 1"):
        with pytest.raises(mh.MultiheadError, match=f"is being written to by run 1, process {os.getpid()} on "):
            Lock(tmp_path, "run 2").__enter__()
    assert not list(tmp_path.iterdir()), "nothing is left"
    with Lock(tmp_path, "run 3"):
        pass


def test_a_lock_dies_with_its_process(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    child = context.Process(target=_hold, args=(tmp_path, ready))
    child.start()
    assert ready.wait(20)
    with pytest.raises(mh.MultiheadError, match="run of a child, process"):
        Lock(tmp_path, "another").__enter__()
    child.kill()
    child.join()
    with Lock(tmp_path, "another"):
        assert (tmp_path / ".lock").read_text().startswith("another")
