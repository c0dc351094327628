"""What the original computes: the residual stream behind the writers of its blocks, which every fit compares with.

The pass over the text for the covariance shows these streams, too. `Originals` keeps those of the first batches, up
to a number of bytes, for the cut; the others take another run of the original, block by block (see `refit`).

>>> import torch, multihead as mh
>>> from transformers import GPT2Config, GPT2LMHeadModel
>>> from multihead.corpus.accumulator import Batch
>>> from multihead.corpus.run import BatchRunner
>>> from multihead.edit.original_stream import Originals
>>> from multihead.edit.residual_writers import find_blocks
>>> model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=3, n_embd=12, vocab_size=50)).eval()
>>> batch = {"input_ids": torch.randint(50, (2, 7))}
>>> (block,) = find_blocks(model, list(mh.anatomy(model)), batch)
>>> originals = Originals(model, [block], limit=10_000)
>>> BatchRunner(model, [originals]).run(Batch(batch))
>>> {name: tuple(rows.shape) for name, rows in originals.get(block, batch).streams.items()}
{'transformer.h.0.attn.c_proj.weight': (14, 12), 'transformer.h.0.mlp.c_proj.weight': (14, 12)}
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Accumulator, Batch, BatchRun, Inputs
from multihead.edit.block_reader import BlockReader, Seen
from multihead.edit.residual_block import Block, Rows, Tap, TokenLayout
from multihead.model.activation_cache import ActivationCache
from multihead.model.call import Call
from multihead.model.compiled import inner
from multihead.model.fingerprint import fingerprint
from multihead.model.model_inputs import plain_inputs


@dataclass(frozen=True)
class Original:
    """What a block of the original computes on one batch: its tokens, and the real rows of the stream."""

    layout: TokenLayout
    streams: dict[str, Rows]
    """by parameter: s behind the map, or o where no residual sum was found"""
    output: Rows | None

    @staticmethod
    def of(block: Block, layout: TokenLayout, seen: Seen) -> Original:
        """The original's residual stream behind the writers of a block."""
        rows: dict[tuple[Tap, bool], Rows] = {}

        def stream(tap: Tap, token_first: bool) -> Rows:
            """The original's stream at a tap, as rows."""
            if (tap, token_first) not in rows:  # the output is often the stream behind the last writer
                rows[tap, token_first] = layout.rows(seen.taps[tap], token_first)
            return rows[tap, token_first]

        streams = {
            w.parameter: layout.rows(seen.outputs[w.parameter], w.token_first)
            if w.tap is None
            else stream(w.tap, w.tap_token_first)
            for w in block.writers
        }
        return Original(layout, streams, None if block.output is None else stream(block.output, block.token_first))

    @property
    def bytes(self) -> int:
        tensors = {id(x): x for x in (*self.streams.values(), self.output) if x is not None}
        return sum(x.numel() * x.element_size() for x in tensors.values())


class Originals(Accumulator):
    """Keeps the `Original` of every block on the first batches of a pass."""

    name = "originals"

    def __init__(self, model: nn.Module, blocks: Sequence[Block], limit: int) -> None:
        """`limit`: in bytes."""
        super().__init__()
        self.model, self.blocks, self.fingerprint = inner(model), blocks, fingerprint(model)
        self.cache = ActivationCache(limit)
        self._layouts: dict[str, TokenLayout] = {}
        writers, outputs = [w for b in blocks for w in b.writers], [b.output for b in blocks]
        self._reader = BlockReader(model, writers, outputs, to_the_end=True)

    @contextmanager
    def watching(self) -> Generator[None]:
        self._layouts.clear()
        with self._reader:
            yield

    def add(self, call: Call, out: HeadOutputs) -> None:
        self._layouts[call.path] = TokenLayout.of(call, out)

    def end(self, batch: Batch, run: BatchRun) -> None:
        """Keep the original's streams of this batch."""
        if self._reader.unread() or any(block.layer.path not in self._layouts for block in self.blocks):
            return
        seen, layouts = self._reader.seen, self._layouts
        originals = {block.path: Original.of(block, layouts[block.layer.path], seen) for block in self.blocks}
        self._reader.clear()
        # With its inputs, so that no other tensor gets the id of one of them.
        self.cache.put(self._key(run.inputs), (originals, run.inputs), sum(x.bytes for x in originals.values()))

    def get(self, block: Block, batch: Inputs) -> Original | None:
        """What a block computes on a batch, if it was kept."""
        originals, _ = self.cache.get(self._key(batch)) or ({}, None)
        return originals.get(block.path)

    def drop(self, block: Block) -> None:
        """Free what is kept of a block."""
        for key in self.cache.names():
            originals, inputs = self.cache.get(key)
            originals.pop(block.path, None)
            self.cache.put(key, (originals, inputs), sum(x.bytes for x in originals.values()))

    def clear(self) -> None:
        for key in self.cache.names():
            self.cache.drop(key)

    def _key(self, batch: Inputs) -> Hashable:
        """All blocks of a batch are kept, or none: a run from the middle would need the states in front of it."""
        return tuple((n, id(x)) for n, x in plain_inputs(self.model, batch).items() if isinstance(x, Tensor))
