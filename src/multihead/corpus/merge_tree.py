"""A corpus in parts, and what was taken in of them joined in one order, whoever took it in.

A part is a range of documents. How many there are depends on the corpus alone, never on the number of processes,
and sums of parts are joined along one binary tree: node (level, i) is of the parts i·2^level … (i + 1)·2^level − 1,
and is made of its two halves, the left one first. So 1, 2, 3 or 4 processes end in the same bits, whichever parts
each had, and a process that has taken in neighbours joins them itself: it holds and sends about log₂(parts) states.

>>> from multihead.corpus.merge_tree import Tree, parts_of
>>> parts_of(100, unit=8, most=4)
[range(0, 32), range(32, 64), range(64, 96), range(96, 100)]
>>> tree = Tree(lambda left, right: f"({left}{right})")
>>> for part in (3, 0, 4, 2, 1):
...     _ = tree.put((0, part), str(part))
>>> tree.held
{(0, 4): '4', (2, 0): '((01)(23))'}
>>> tree.whole()
'(((01)(23))4)'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from multihead.errors import SizeError

Node = tuple[int, int]
"""(level, index); level 0 are the parts themselves"""

MOST = 64
"""Parts of a corpus, at most: what bounds the cost of joining them, and the processes that have work."""

BATCHES = 4
"""A part has a multiple of so many full batches of documents, but for the last."""

Kept = TypeVar("Kept")


def parts_of(documents: int, *, unit: int, most: int = MOST) -> list[range]:
    """Ranges of a multiple of `unit` documents each, at most `most` of them."""
    if documents < 1 or unit < 1 or most < 1:
        raise SizeError(
            f"{documents} documents do not make parts of {unit}, at most {most}", hint="each must be 1 at least"
        )
    size = -(-documents // (most * unit)) * unit
    return [range(start, min(start + size, documents)) for start in range(0, documents, size)]


def share(rest: Sequence[int], rank: int, size: int) -> list[int]:
    """The parts that one of `size` processes takes: neighbours, as many as the others or one more."""
    return list(rest[rank * len(rest) // size : (rank + 1) * len(rest) // size])


def covered(nodes: Iterable[Node]) -> set[int]:
    """The parts that some nodes are of."""
    return {part for level, at in nodes for part in range(at << level, (at + 1) << level)}


def folded(parts: Iterable[int]) -> list[Node]:
    """The nodes that some parts end up as, once all that can be joined is joined."""
    tree: Tree[None] = Tree(lambda _, __: None)
    for part in parts:
        tree.put((0, part), None)
    return sorted(tree.held, key=_place)


def outermost(nodes: Iterable[Node]) -> list[Node]:
    """Those that lie in no other."""
    found: list[Node] = []
    for node in sorted(nodes, reverse=True):  # large ones first
        if not covered([node]) <= covered(found):
            found.append(node)
    return sorted(found, key=_place)


class Tree(Generic[Kept]):
    """What is known of some nodes; two halves of a node become the node as soon as both are there."""

    def __init__(self, join: Callable[[Kept, Kept], Kept]) -> None:
        self.join = join
        self.held: dict[Node, Kept] = {}

    def put(self, node: Node, kept: Kept) -> Node:
        """Take in a node; the node that it has become."""
        level, at = node
        while (level, at ^ 1) in self.held:
            other = self.held.pop((level, at ^ 1))
            kept = self.join(kept, other) if at % 2 == 0 else self.join(other, kept)
            level, at = level + 1, at // 2
        self.held[level, at] = kept
        return level, at

    def whole(self) -> Kept:
        """All that is held, joined from left to right."""
        nodes = sorted(self.held, key=_place)
        kept = self.held[nodes[0]]
        for node in nodes[1:]:
            kept = self.join(kept, self.held[node])
        return kept


def _place(node: Node) -> int:
    level, at = node
    return at << level
