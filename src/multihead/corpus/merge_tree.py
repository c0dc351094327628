"""A corpus in parts, and the order in which their states are merged.

A part is a range of documents that depends on nothing but its index, so a corpus can be read without knowing its
length. The sums of parts merge along one binary tree: node (level, i) covers the parts i·2^level to
(i + 1)·2^level − 1 and is the merge of its two halves, the left one first. So 1, 2, 3 or 4 processes end in the
same bits, whichever parts each of them read, and a process that has read neighbours holds log₂(parts) states.

>>> from multihead.corpus.merge_tree import Tree, part_range
>>> [part_range(i, unit=8) for i in (0, 63, 64, 96)]
[range(0, 8), range(504, 512), range(512, 528), range(1024, 1056)]
>>> tree = Tree(lambda left, right: f"({left}{right})")
>>> for part in (3, 0, 4, 2, 1):
...     _ = tree.put((0, part), str(part))
>>> tree.nodes
{(0, 4): '4', (2, 0): '((01)(23))'}
>>> tree.root()
'(((01)(23))4)'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from multihead.errors import SizeError

Node = tuple[int, int]
"""(level, index); nodes of level 0 are the parts themselves"""

EQUAL = 64
"""Parts of `unit` documents. Further parts double in size every half as many: their number grows as a logarithm."""

BATCHES = 16
"""Full batches of documents in one of the first parts; their documents are sorted by length among themselves."""

T = TypeVar("T")


def part_range(index: int, *, unit: int) -> range:
    """The documents under leaf `index` of the tree."""
    if index < 0 or unit < 1:
        raise SizeError(f"part {index} of {unit} documents does not exist", hint="index >= 0, unit >= 1")
    if index < EQUAL:
        return range(index * unit, (index + 1) * unit)
    half = EQUAL // 2
    doublings, position = divmod(index - EQUAL, half)
    size = unit << (doublings + 1)
    start = EQUAL * (unit << doublings) + position * size
    return range(start, start + size)


def parts_of(documents: int, *, unit: int) -> list[range]:
    """The leaves for so many documents; the last one may be short."""
    if documents < 1:
        raise SizeError(f"the corpus has {documents} documents", hint="give it one document or more")
    parts: list[range] = []
    while not parts or parts[-1].stop < documents:
        part = part_range(len(parts), unit=unit)
        parts.append(range(part.start, min(part.stop, documents)))
    return parts


def share(parts: Sequence[range], unread: Sequence[int], rank: int, size: int) -> list[int]:
    """The unread leaves for one of `size` processes: neighbours, with about as many documents as the others."""
    total = sum(len(parts[part]) for part in unread)
    mine, before = list[int](), 0
    for part in unread:
        if before * size // max(total, 1) == rank:
            mine.append(part)
        before += len(parts[part])
    return mine


def covered(nodes: Iterable[Node]) -> set[int]:
    """The parts under some nodes."""
    return {part for level, index in nodes for part in range(index << level, (index + 1) << level)}


def outermost(nodes: Iterable[Node]) -> list[Node]:
    """The nodes of the tree that lie under no other, from left to right."""
    kept: list[Node] = []
    for node in sorted(nodes, reverse=True):  # large ones first
        if not covered([node]) <= covered(kept):
            kept.append(node)
    return sorted(kept, key=first_part)


def first_part(node: Node) -> int:
    level, index = node
    return index << level


class Tree(Generic[T]):
    """Values of some nodes; the two halves of a node become the node as soon as both are there."""

    def __init__(self, merge: Callable[[T, T], T]) -> None:
        self.merge = merge
        self.nodes: dict[Node, T] = {}

    def put(self, node: Node, value: T) -> Node:
        """Add a node to the tree. Returns the node that it has become a part of."""
        level, index = node
        while (level, index ^ 1) in self.nodes:
            other = self.nodes.pop((level, index ^ 1))
            value = self.merge(value, other) if index % 2 == 0 else self.merge(other, value)
            level, index = level + 1, index // 2
        self.nodes[level, index] = value
        return level, index

    def root(self) -> T:
        """The root of the tree: all nodes, merged from left to right."""
        values = [self.nodes[node] for node in sorted(self.nodes, key=first_part)]
        merged = values[0]
        for value in values[1:]:
            merged = self.merge(merged, value)
        return merged
