"""The checkpoint folder of a run: the states of the parts of a corpus, from which a killed run resumes.

    run.json                               the identity of the run
    PASS-LEVEL-INDEX.safetensors           a finished node of the merge tree
    PASS-part-INDEX.safetensors            a part that is being read, as of the last save
    PASS-root.safetensors                  a finished pass

A file is written under a temporary name, flushed and renamed, and has a checksum. If a file is damaged, its parts
are read again, with the same result.

>>> import tempfile, torch
>>> from pathlib import Path
>>> from multihead.corpus.checkpoint import Checkpoint
>>> with tempfile.TemporaryDirectory() as folder:
...     checkpoint = Checkpoint(Path(folder) / "state", {"model": "a"})
...     checkpoint.begin()
...     nodes = checkpoint.nodes("sum", lambda a, b: {"x": a["x"] + b["x"]})
...     for part in range(5):
...         nodes.put((0, part), {"x": torch.tensor(part)})
...     nodes.save()
...     sorted(file.name for file in checkpoint.folder.glob("sum*")), nodes.root()
(['sum-0-4.safetensors', 'sum-2-0.safetensors'], {'x': tensor(10)})
"""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from multihead._base.atomic_files import write_atomically
from multihead.corpus.accumulator import State
from multihead.corpus.merge_tree import Node, Tree, covered, first_part, outermost
from multihead.corpus.ranks import job
from multihead.corpus.state import DamagedError, load_state, save_state
from multihead.errors import MultiheadError

SUFFIX = ".safetensors"
EVERY = 30.0
"""Seconds between two saves."""
LARGE = 64 << 20
"""A state of more bytes than this waits on disk, not in memory, for the other half of its node."""

Merge = Callable[[State, State], State]


class Checkpoint:
    """A run folder. `identity` describes the measurement as plain data; only a run with an equal one resumes it."""

    def __init__(self, folder: Path, identity: Mapping[str, Any], *, every: float = EVERY) -> None:
        self.folder, self.identity, self.every = folder, dict(identity), every
        self.stopping = False
        """if set, the run saves its state and stops after the current batch"""
        self.threads: int | None = None
        """the threads of the run that is resumed; sums over rows depend on them"""
        self._saved = time.monotonic()

    @property
    def file(self) -> Path:
        return self.folder / "run.json"

    def begin(self) -> None:
        """Create the checkpoint folder, unless a run is resumed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.file.exists():
            about = {"identity": self.identity, "threads": torch.get_num_threads(), "job": job()}
            write_atomically(self.file, json.dumps(about).encode())

    def resume(self) -> None:
        """Continue the run in the checkpoint folder; raises if the checkpoint is of a different run."""
        try:
            about = json.loads(self.file.read_bytes())
        except (OSError, ValueError) as wrong:
            raise MultiheadError(
                f"{self.file} cannot be read: {wrong}", hint="start again with force=True"
            ) from wrong
        check_identity(about["identity"], self.identity, self.folder)
        self.threads = int(about["threads"])

    def batches(self, name: str) -> int:
        """Batches of a pass that are saved in the checkpoint."""
        count = 0
        for file in self.folder.glob(f"{name}-*{SUFFIX}"):
            try:
                count += int(load_state(file)["batches"])
            except DamagedError:  # reported when it is used
                continue
        return count

    def due(self) -> bool:
        """Whether it is time to save."""
        return self.stopping or time.monotonic() - self._saved >= self.every

    def nodes(self, name: str, merge: Merge) -> Nodes:
        return Nodes(name, merge, self)

    def saved_now(self) -> None:
        self._saved = time.monotonic()

    def forget(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def check_identity(before: Mapping[str, Any], now: Mapping[str, Any], place: Path) -> None:
    """Raise unless a checkpoint is of this run; the error names the difference."""
    for name in (*before, *now):
        if before.get(name) != now.get(name):
            old, new = ("not set" if x is None else x for x in (before.get(name), now.get(name)))
            raise MultiheadError(
                f"{place} holds a run with {name} {old}, this run has {name} {new}",
                hint="resume with the same options, or start again with force=True",
            )


class Nodes:
    """The nodes of one pass that this process has, in memory and, with a checkpoint, on disk."""

    def __init__(self, name: str, merge: Merge, checkpoint: Checkpoint | None = None, large: int = LARGE) -> None:
        self.name, self.checkpoint, self.large, self._merge = name, checkpoint, large, merge
        self.tree: Tree[State | None] = Tree(self._merged)  # None if it is on disk
        self.saved: set[Node] = set()

    def _merged(self, left: State | None, right: State | None) -> State:
        assert left is not None and right is not None  # noqa: PT018  # `put` has read them
        return self._merge(left, right)

    def put(self, node: Node, state: State) -> None:
        """Save a node of the merge tree; the halves of a larger one become it."""
        level, index = node
        while (level, index ^ 1) in self.tree.nodes:  # read from disk before it is merged
            self._load((level, index ^ 1))
            level, index = level + 1, index // 2
        merged = self.tree.put(node, state)
        if self.checkpoint is not None and size_of(self.tree.nodes[merged]) > self.large:
            self.save()
            self.tree.nodes[merged] = None

    def root(self) -> State:
        """All nodes in the checkpoint, merged from left to right."""
        for node in self.tree.nodes:
            self._load(node)
        state = self.tree.root()
        assert state is not None
        return state

    def _load(self, node: Node) -> None:
        if self.tree.nodes[node] is None:
            self.tree.nodes[node] = load_state(self.file(node))

    # ---- on disk ------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        assert self.checkpoint is not None
        return self.checkpoint.folder

    def file(self, node: Node) -> Path:
        return self.folder / f"{self.name}-{node[0]}-{node[1]}{SUFFIX}"

    @property
    def root_file(self) -> Path:
        return self.folder / f"{self.name}-root{SUFFIX}"

    def part_file(self, part: int) -> Path:
        return self.folder / f"{self.name}-part-{part}{SUFFIX}"

    def save(self) -> None:
        """Write the nodes that are not on disk; then delete the halves of those that are."""
        for node, state in self.tree.nodes.items():
            if node not in self.saved and state is not None:
                save_state(self.file(node), state)
                self.saved.add(node)
        for node in self.saved - set(self.tree.nodes):
            self.file(node).unlink(missing_ok=True)
        self.saved &= set(self.tree.nodes)

    def finished(self) -> bool:
        """Whether the checkpoint holds the whole pass; a damaged root is deleted with a warning."""
        if not self.root_file.exists():
            return False
        if _read(self.root_file, f"the pass {self.name} runs again") is None:
            self.root_file.unlink()
            return False
        return True

    def found(self) -> list[Node]:
        """The finished nodes in the checkpoint folder; damaged ones and those under larger ones are deleted."""
        intact: list[Node] = []
        for file in sorted(self.folder.glob(f"{self.name}-*-*{SUFFIX}")):
            level, _, index = file.name.removeprefix(f"{self.name}-").removesuffix(SUFFIX).partition("-")
            if level.isdigit() and index.isdigit():
                if _read(file, "its parts are read again") is None:
                    file.unlink()
                else:
                    intact.append((int(level), int(index)))
        outer = outermost(intact)
        for node in set(intact) - set(outer):
            self.file(node).unlink(missing_ok=True)
        for part in covered(outer):
            self.part_file(part).unlink(missing_ok=True)
        return outer

    def gather(self, nodes: Iterable[Node]) -> None:
        """Add nodes from the checkpoint folder, of this or other processes, from left to right."""
        for node in sorted(set(nodes) - set(self.tree.nodes), key=first_part):
            self.saved.add(node)
            self.put(node, load_state(self.file(node)))

    def save_part(self, part: int, state: State) -> None:
        save_state(self.part_file(part), state)

    def load_part(self, part: int) -> State | None:
        """The last save of an unfinished part; None if there is none, or it is damaged."""
        file = self.part_file(part)
        return _read(file, "the part is read again") if file.exists() else None

    def drop_part(self, part: int) -> None:
        self.part_file(part).unlink(missing_ok=True)

    def finish(self) -> None:
        """Write the root of a pass, and delete its other checkpoints."""
        save_state(self.root_file, self.root())
        for file in self.folder.glob(f"{self.name}-*"):
            if file != self.root_file:
                file.unlink(missing_ok=True)


def _read(file: Path, consequence: str) -> dict[str, Any] | None:
    """The state in a checkpoint file; None, with a warning, if it is damaged."""
    try:
        return load_state(file)
    except DamagedError as damaged:
        warnings.warn(f"{damaged.message}; {consequence}", stacklevel=4)
        return None


def size_of(state: object) -> int:
    """Bytes of the tensors of a checkpoint."""
    if isinstance(state, Tensor):
        return state.numel() * state.element_size()
    if isinstance(state, Mapping):
        return sum(map(size_of, state.values()))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(state, list | tuple):
        return sum(map(size_of, state))  # pyright: ignore[reportUnknownArgumentType]
    return 0
