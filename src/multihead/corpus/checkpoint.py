"""What was taken in of the parts of a corpus, in memory and on disk: checked, whole at any moment, never twice.

    STAGE-LEVEL-INDEX.safetensors      a node of the tree of parts, see `parts`: finished
    STAGE-part-INDEX.safetensors       a part that somebody is at, as of the last save
    STAGE-part-INDEX….before           the save before it

A file is written beside its name, flushed, then renamed, and carries a checksum. One that is damaged is not used:
of a part at hand the save before it is, of a finished one its parts are measured again. The end is the same.

>>> import tempfile, torch
>>> from pathlib import Path
>>> from multihead.corpus.checkpoint import Shelf
>>> with tempfile.TemporaryDirectory() as folder:
...     shelf = Shelf(Path(folder), "sum", lambda a, b: {"x": a["x"] + b["x"]})
...     for part in range(5):
...         shelf.put((0, part), {"x": torch.tensor(part)})
...     shelf.save()
...     sorted(file.name for file in Path(folder).iterdir()), shelf.whole()
(['sum-0-4.safetensors', 'sum-2-0.safetensors'], {'x': tensor(10)})
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from multihead.corpus.merge_tree import Node, Tree, covered, outermost
from multihead.corpus.state import DamagedError, load_state, save_state

ENDING = ".safetensors"
LARGE = 64 << 20
"""Bytes of a state above which it waits on disk for its other half, not in memory."""

State = Mapping[str, Any]


class Shelf:
    """The nodes of one stage that this process has; those that were saved lie in `folder`."""

    def __init__(self, folder: Path, stage: str, join: Callable[[State, State], State], large: int = LARGE) -> None:
        self.folder, self.stage, self.large, self._join = folder, stage, large, join
        self.tree: Tree[State | None] = Tree(self._joined)  # None: it is on disk
        self.saved: set[Node] = set()
        self.earlier: list[Node] = []
        """nodes that a pass before this one has left in the folder"""

    def _joined(self, left: State | None, right: State | None) -> State:
        assert left is not None and right is not None  # noqa: PT018  # `put` has read them
        return self._join(left, right)

    def put(self, node: Node, state: State) -> None:
        """Take in a node; halves of a larger one become it."""
        level, at = node
        while (level, at ^ 1) in self.tree.held:  # what lies on disk is read before it is joined
            self._held((level, at ^ 1))
            level, at = level + 1, at // 2
        made = self.tree.put(node, state)
        if size_of(self.tree.held[made]) > self.large:
            self.save()
            self.tree.held[made] = None

    def take_earlier(self) -> None:
        """Take in the nodes that lay in the folder before this pass."""
        for node in self.earlier:
            self.saved.add(node)
            self.put(node, load_state(self.file(node)))

    def nodes(self) -> list[Node]:
        return sorted(self.tree.held, key=lambda node: node[1] << node[0])

    def get(self, node: Node) -> State:
        return self._held(node)

    def _held(self, node: Node) -> State:
        state = self.tree.held[node]
        if state is None:
            state = self.tree.held[node] = load_state(self.file(node))
        return state

    def whole(self) -> State:
        """All nodes, joined from left to right."""
        for node in self.nodes():
            self._held(node)
        state = self.tree.whole()
        assert state is not None
        return state

    # ---- on disk ------------------------------------------------------------------------------

    def file(self, node: Node) -> Path:
        return self.folder / f"{self.stage}-{node[0]}-{node[1]}{ENDING}"

    @property
    def whole_file(self) -> Path:
        return self.folder / f"{self.stage}-whole{ENDING}"

    def part_file(self, part: int) -> Path:
        return self.folder / f"{self.stage}-part-{part}{ENDING}"

    def save(self) -> None:
        """Put down what is not on disk yet; the halves of what is there now are taken away after it."""
        for node, state in self.tree.held.items():
            if node not in self.saved and state is not None:
                save_state(self.file(node), state)
                self.saved.add(node)
        for node in self.saved - set(self.tree.held):
            self.file(node).unlink(missing_ok=True)
        self.saved &= set(self.tree.held)

    def found(self) -> list[Node]:
        """The finished nodes in the folder that are whole; damaged ones are taken away, with a warning."""
        good: list[Node] = []
        for file in sorted(self.folder.glob(f"{self.stage}-*-*{ENDING}")):
            level, _, at = file.name.removeprefix(f"{self.stage}-").removesuffix(ENDING).partition("-")
            if level.isdigit() and at.isdigit():
                if _load(file, "its parts are measured again") is None:
                    file.unlink()
                else:
                    good.append((int(level), int(at)))
        kept = outermost(good)
        for node in set(good) - set(kept):  # halves of a node that is there
            self.file(node).unlink(missing_ok=True)
        return kept

    def save_part(self, part: int, state: State) -> None:
        """Put down a part that somebody is at; the save before stays beside it."""
        file = self.part_file(part)
        with suppress(FileNotFoundError):
            file.replace(before(file))
        save_state(file, state)

    def load_part(self, part: int) -> State | None:
        """The latest save of a part that is whole, None if there is none."""
        file = self.part_file(part)
        if file.exists():
            found = _load(file, "the save before it is used" if before(file).exists() else "the part begins again")
            if found is not None:
                return found
        return _load(before(file), "the part begins again") if before(file).exists() else None

    def drop_part(self, part: int) -> None:
        for file in (self.part_file(part), before(self.part_file(part))):
            file.unlink(missing_ok=True)

    def sweep(self, nodes: Iterable[Node]) -> None:
        """Take away saves of parts that finished nodes are of."""
        for part in covered(nodes):
            self.drop_part(part)


def before(file: Path) -> Path:
    return file.with_name(file.name + ".before")


def _load(file: Path, then: str) -> dict[str, Any] | None:
    try:
        return load_state(file)
    except DamagedError as damaged:
        warnings.warn(f"{damaged.message}; {then}", stacklevel=4)
        return None


def size_of(state: object) -> int:
    """Bytes of the tensors of a state."""
    if isinstance(state, Tensor):
        return state.numel() * state.element_size()
    if isinstance(state, Mapping):
        return sum(map(size_of, state.values()))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(state, list | tuple):
        return sum(map(size_of, state))  # pyright: ignore[reportUnknownArgumentType]
    return 0
