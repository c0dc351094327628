"""Fit the maps of a block that write into the residual stream, so that the cut model's stream is the original's.

For every writer o = W z + b, in the order of the run: z is what it reads in the cut model, and R = (s_T − s_S) / c
what the stream s behind it lacks, errors of earlier layers included. Without a residual sum, R = o_T − o_S. The
least-squares change of [W; b] is written into the cut model, and the model is measured: where the held-out distance
at the end of the block is not smaller, the change is undone. A fit is judged by the solution that has not seen the
held-out tokens. Then the solution of all tokens is written (same λ) and measured, too; if it does not lower the
distance, the first one is written again. So the held-out tokens do shape the inputs of later fits.

Where a layer has lost heads, W_V is fitted together with W_O (`value_refit`). Runs start at the block, or inside it
at the writer (`BlockRun`): each batch passes the original's block once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from multihead._base.progress import Progress
from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Inputs
from multihead.corpus.data_parallel import shard
from multihead.edit.block_reader import BlockReader, Seen
from multihead.edit.calibration import Calibration
from multihead.edit.fitted_map import LinearMap
from multihead.edit.least_squares import NormalEquations, best_ridge, sum_of_squares
from multihead.edit.original_stream import Original
from multihead.edit.residual_block import Block, Rows, Tap, TokenLayout, Writer
from multihead.edit.surgery.install import InstalledHeads
from multihead.edit.value_refit import ValueMap
from multihead.errors import MultiheadError
from multihead.model.activation_cache import SPARE
from multihead.model.call import Call, Compute
from multihead.model.compiled import inner
from multihead.model.forward import Forward
from multihead.model.run_by_blocks import BlockRun
from multihead.model.statistics.second_moments import Crossed


@dataclass(frozen=True)
class Fit:
    """One fit. Errors and distances are Σ‖difference‖² on held-out tokens, relative to Σ‖original‖²."""

    where: str
    before: float
    """the error of what the map is fitted to"""
    after: float
    """that error of the best solution that has not seen the held-out tokens"""
    tokens: int
    ridge: float
    """the λ of the solution; 0 if none was better"""
    columns: int
    stream: bool
    """whether the residual sum was found; else only the map's own output was fitted"""
    values: bool = False
    """whether W_V was fitted together with W_O"""
    distance_before: float = 0.0
    """the distance at the end of the block, measured on the model before the fit"""
    distance_after: float | None = None
    """measured with the solution that has not seen the held-out tokens; None if there was none"""
    distance_written: float | None = None
    """measured with the weights that stay in the model; None if those before the fit stay"""

    @property
    def kept(self) -> bool:
        return self.distance_written is not None

    @property
    def undone(self) -> bool:
        """Written, measured, and taken back."""
        return self.distance_after is not None and not self.kept

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"kept": self.kept, "undone": self.undone}


class BlockRefit:
    """Fits the writers of one block."""

    def __init__(
        self,
        run: BlockRun,
        block: Block,
        calibration: Calibration,
        *,
        heads: InstalledHeads | None = None,
        spliced: bool = False,
        to_all: bool = True,
        progress: Progress | None = None,
    ) -> None:
        """`run` has the original and the cut model, and stands at the block.

        `heads`: those of the cut model, if it has lost some here: their W_V is fitted, too.
        `spliced`: fit to spliced documents too, see `Calibration.fit`.
        `to_all`: of a kept fit, write the solution of all tokens; not if something else is judged on the held-out
        tokens later.
        """
        self.run, self.block, self.calibration, self.heads = run, block, calibration, heads
        self.to_all, self.progress = to_all, progress
        self.original, self.student = run.models
        self.fit_batches, self.reduce_fit = shard(calibration.fit(spliced=spliced))
        self.held_batches, self.reduce_held = shard(calibration.held_out())
        hidden = isinstance(inner(self.student).get_submodule(block.layer.path), nn.MultiheadAttention)
        self._listener = _plainly if hidden else None
        """of runs of the student: torch's attention shows the product with W_O only while it is intercepted"""

    def fit(self) -> list[Fit]:
        """Refit the writers of a block, in order; returns a record of each."""
        writers = [writer for writer in self.block.writers if LinearMap(self.student, writer).fits]
        if not writers:
            return []
        batches = [*self.held_batches, *self.fit_batches]
        self.run_original([batch for batch in batches if self._kept(batch) is None])
        fits: list[Fit] = []
        for writer in writers:
            fit = self._fit_values(writer)
            if fit is None or not fit.kept:
                self._advance(writer)
                fit = self._fit(LinearMap(self.student, writer))
            fits.append(fit)
        return fits

    def _advance(self, writer: Writer) -> None:
        """Runs of the student start at this writer: nothing in front of it changes any more."""
        if writer.module in self.run.fronts:
            self.run.advance(writer.module, self.student)

    def _is_output(self, writer: Writer) -> bool:
        """Whether the map is W_O of the block's attention."""
        return writer.parameter == self.block.layer.weights["o"].parameter

    # ---- one fit ------------------------------------------------------------------------------

    def _fit_values(self, writer: Writer) -> Fit | None:
        """The fit of W_V and W_O, if the layer has lost heads and the writer is its W_O."""
        layer = self.block.layer
        if self.heads is None or not self._is_output(writer) or not ValueMap.supports(layer, self.heads.weights):
            return None
        map = ValueMap(self.student, writer, layer, self.heads)
        if not map.explains(self.run, self.calibration.example()):
            return None
        return replace(self._fit(map), values=True)

    def _fit(self, map: LinearMap) -> Fit:
        """Solve, write and measure a refit; keep only what brings the model closer to the original."""
        where = self.block.layer.name if self._is_output(map.writer) else map.writer.parameter
        held, distance = self.measure(map)
        held.check(where)
        size = held.size or 1.0
        before = held.missing / size
        fit = Fit(where, before, before, 0, 0.0, map.columns, map.writer.tap is not None, distance_before=distance)
        if not held.missing:
            return fit
        sums = self.normal_equations(map, where)
        sums.check(where)
        if map.columns:
            self.calibration.check(map.columns, where)
        ridge, change, error = best_ridge(sums, held)
        fit = replace(fit, after=error / size, tokens=sums.rows, ridge=ridge)
        if change is None:
            return fit
        undo = self._write(map, change)
        after = self.distance()
        fit = replace(fit, distance_after=after)
        if not after < distance:  # true of nan, too
            undo()
            return fit
        if self.to_all:  # the held-out tokens have chosen λ and judged: now they may help
            sums.merge(held)
            del held
            for _, of_all in sums.solutions([ridge]):
                undo()
                undo = self._write(map, of_all)
                written = self.distance()
                if written < distance:
                    return replace(fit, distance_written=written)
                undo()
                self._write(map, change)
        return replace(fit, distance_written=after)

    def _write(self, map: LinearMap, change: Crossed) -> Callable[[], None]:
        """Write a solution; returns a function that undoes it."""
        undo = map.write(change)
        self.run.weights_changed(self.student)

        def undone() -> None:
            """Restore the weights before the refit."""
            undo()
            self.run.weights_changed(self.student)

        return undone

    # ---- passes over the text -----------------------------------------------------------------

    def normal_equations(self, map: LinearMap, where: str = "") -> NormalEquations:
        """The normal equations of refitting a map, over all batches."""
        sums = map.equations()
        for done, (seen, original) in enumerate(self._pass(self.fit_batches, map), start=1):
            self._add(sums, map, seen, original)
            if self.progress is not None:
                self.progress(f"refit {where}", done, len(self.fit_batches))
        sums.all_reduce(self.reduce_fit)
        return sums

    def measure(self, map: LinearMap) -> tuple[NormalEquations, float]:
        """The held-out sums of a map to refit, and how far the end of the block is from the original's."""
        sums = map.equations()
        distance = self._distance(map, lambda seen, original: self._add(sums, map, seen, original))
        sums.all_reduce(self.reduce_held)
        return sums, distance

    def distance(self) -> float:
        """How far the end of the block is from the original's, on the held-out batches."""
        return self._distance(LinearMap(self.student, self.block.writers[-1]))

    def _distance(self, map: LinearMap, add: Callable[[Seen, Original], None] | None = None) -> float:
        """The distance that a refit lowers; where the output of the block cannot be read, of the map."""
        apart = torch.zeros(2, dtype=torch.float64)
        output, rows = self.block.output, self.block.token_first
        for seen, original in self._pass(self.held_batches, map, [output]):
            if add is not None:
                add(seen, original)
            if output is not None and original.output is not None:
                ours, theirs = original.layout.rows(seen.taps[output], rows), original.output
            else:
                ours, theirs = self._stream(map, seen, original), original.streams[map.writer.parameter]
            apart += torch.tensor([sum_of_squares(theirs - ours), sum_of_squares(theirs)], dtype=torch.float64)
        self.reduce_held(apart)
        return float(apart[0] / (apart[1] or 1.0))

    def _pass(
        self, batches: Sequence[Inputs], map: LinearMap, taps: Sequence[Tap | None] = ()
    ) -> Iterator[tuple[Seen, Original]]:
        """Refit: run the block of the student on batches."""
        forward, listener = Forward(self.student), map.listener or self._listener
        reader = BlockReader(self.student, [map.writer], taps)
        with reader, map.reading(), forward.listening(listener, required=False):
            for batch in batches:
                yield reader.read(self.run, forward, batch), self._original(batch)

    def _add(self, sums: NormalEquations, map: LinearMap, seen: Seen, original: Original) -> None:
        """Add a batch to the normal equations of a refit."""
        writer = map.writer
        theirs, ours = original.streams[writer.parameter], self._stream(map, seen, original)
        if theirs.shape != ours.shape:
            raise MultiheadError(
                f"{writer.parameter} writes {tuple(theirs.shape)} in the original and {tuple(ours.shape)} in the "
                "cut model",
                hint="both must be of the same architecture, and run every token",
            )
        rows = map.rows(seen, original.layout, theirs)
        scale = (
            writer.scale.to(theirs) if isinstance(writer.scale, Tensor) and writer.tap is not None else writer.scale
        )
        wide = torch.promote_types(theirs.dtype, torch.float32)
        missing = (theirs.to(wide) - ours.to(wide)) / (scale if writer.tap is not None else 1.0)
        sums.add(rows, missing, sum_of_squares(theirs))

    def _stream(self, map: LinearMap, seen: Seen, original: Original) -> Rows:
        """s behind the map to refit in the cut model, or its output where no residual sum was found."""
        if map.writer.tap is not None:
            return original.layout.rows(seen.taps[map.writer.tap], map.writer.tap_token_first)
        return map.output(seen, original.layout, original.streams[map.writer.parameter])

    # ---- the original -------------------------------------------------------------------------

    def _original(self, batch: Inputs) -> Original:
        return self._kept(batch) or self.run_original([batch])[0]

    def _kept(self, batch: Inputs) -> Original | None:
        original = self.calibration.originals.get(self.block, batch)
        return original or self.run.cache.get(("original", self.run.batch_key(batch)))

    def run_original(self, batches: Sequence[Inputs]) -> list[Original]:
        """Run the original's block, and keep what the refits read as far as there is room."""
        layouts: list[TokenLayout] = []

        def listen(call: Call, compute: Compute) -> HeadOutputs:
            """Read the order of rows in the original's block."""
            heads = compute()
            if call.path == self.block.layer.path:
                layouts.append(TokenLayout.of(call, heads))
            return heads

        originals: list[Original] = []
        forward, output = Forward(self.original), [self.block.output]
        reader = BlockReader(self.original, self.block.writers, output, to_the_end=self.run.continues)
        with reader, forward.listening(listen, required=False):
            for batch in batches:
                layouts.clear()
                seen = reader.read(self.run, forward, batch)
                original = Original.of(self.block, layouts[-1], seen)
                key = ("original", self.run.batch_key(batch))
                self.run.cache.put(key, original, original.bytes, share=SPARE)
                originals.append(original)
        return originals


def _plainly(call: Call, compute: Compute) -> HeadOutputs:
    return compute()
