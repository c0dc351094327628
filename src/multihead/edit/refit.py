"""Fit the maps of a block that write into the residual stream, so that the cut model's stream is the original's.

For every writer o = W z + b, in the order of the run: z is what it reads in the cut model, and R = (s_T − s_S) / c
what the stream s behind it lacks, errors of earlier layers included. Without a residual sum, R = o_T − o_S. The
least-squares change of [W; b] is written into the cut model, and the model is measured again: where the held-out
distance at the end of the block is not smaller, the change is undone. A fit is judged by the solution that was not
fitted to the held-out tokens; once it is kept, that of all tokens is written (same λ). So the held-out tokens do
shape the inputs of later fits. Runs start at the block, or inside it at the writer (`BlockRun`): each batch passes
the original's block once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from multihead._base.plural import plural
from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Inputs
from multihead.corpus.data_parallel import shard
from multihead.edit.block_reader import BlockReader, Seen
from multihead.edit.calibration import Calibration, Progress
from multihead.edit.least_squares import NormalEquations, best_ridge
from multihead.edit.original_stream import Original
from multihead.edit.residual_block import Block, Layout, Rows, Writer
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
    distance_before: float = 0.0
    """the distance at the end of the block, measured on the model before the fit"""
    distance_after: float | None = None
    """measured with the solution that has not seen the held-out tokens; None: there was none"""

    @property
    def kept(self) -> bool:
        return self.distance_after is not None and self.distance_after < self.distance_before

    @property
    def undone(self) -> bool:
        """Written, measured, and taken back."""
        return self.distance_after is not None and not self.kept

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"kept": self.kept, "undone": self.undone}

    def __str__(self) -> str:
        what = "stream" if self.stream else "output (no residual sum found)"
        errors = f"{self.where}: {what} error {self.before:.4f}"
        if self.distance_after is None:
            return f"{errors} on held-out tokens, left as it was"
        measured = f"block distance {self.distance_before:.4f} → {self.distance_after:.4f}"
        return (
            f"{errors} → {self.after:.4f} on held-out tokens "
            f"(ridge {self.ridge:g}, {plural(self.tokens, 'token')}); {measured}"
            + (", undone" if self.undone else "")
        )


@dataclass
class _HeldOut:
    """One pass over the held-out batches."""

    sums: NormalEquations | None
    distance: float


class BlockRefit:
    """Fits the writers of one block."""

    def __init__(
        self,
        run: BlockRun,
        block: Block,
        calibration: Calibration,
        *,
        spliced: bool = False,
        to_all: bool = True,
        progress: Progress | None = None,
    ) -> None:
        """`run` has the original and the cut model, and stands at the block.

        `spliced`: fit to spliced documents too, see `Calibration.fit`.
        `to_all`: of a kept fit, write the solution of all tokens; not if something else is judged on the held-out
        tokens later.
        """
        self.run, self.block, self.calibration, self.to_all, self.progress = (
            run,
            block,
            calibration,
            to_all,
            progress,
        )
        self.original, self.student = run.models
        self.fit_batches, self.reduce_fit = shard(calibration.fit(spliced=spliced))
        self.held_batches, self.reduce_held = shard(calibration.held_out())
        self.parameters = dict(inner(self.student).named_parameters())
        hidden = isinstance(inner(self.student).get_submodule(block.layer.path), nn.MultiheadAttention)
        self._listener = _plainly if hidden else None
        """of runs of the student: torch's attention shows the product with W_O only while it is intercepted"""

    def fit(self) -> list[Fit]:
        """Refit the writers of a block, in order; returns a record of each."""
        writers = [w for w in self.block.writers if self._fits(w)]
        if not writers:
            return []
        batches = [*self.held_batches, *self.fit_batches]
        self.run_original([batch for batch in batches if self._kept(batch) is None])
        fits: list[Fit] = []
        for writer in writers:
            self._advance(writer)
            fits.append(self._fit(writer))
        return fits

    def _advance(self, writer: Writer) -> None:
        """Runs of the student start at this writer: nothing in front of it changes any more."""
        if writer.module in self.run.fronts:
            self.run.advance(writer.module, self.student)

    def _fits(self, writer: Writer) -> bool:
        """Whether the map has anything to fit: a layer without heads and without a bias has not."""
        return self.parameters[writer.parameter].numel() > 0 or self._bias(writer) is not None

    def _bias(self, writer: Writer) -> nn.Parameter | None:
        """The bias of the map to refit; None if it has none."""
        weight, home = self.parameters[writer.parameter], writer.parameter.rpartition(".")[0]
        bias = self.parameters.get(f"{home}.bias" if home else "bias")
        return (
            bias if bias is not None and bias.shape == weight.shape[1 if writer.transposed else 0 :][:1] else None
        )

    def _where(self, writer: Writer) -> str:
        own = writer.parameter == self.block.layer.weights["o"].parameter
        return self.block.layer.name if own else writer.parameter

    # ---- one fit ------------------------------------------------------------------------------

    def _fit(self, writer: Writer) -> Fit:
        """Solve, write and measure a refit; keep only what brings the model closer to the original."""
        held = self.measure(writer)
        assert held.sums is not None
        where, bias = self._where(writer), self._bias(writer)
        held.sums.check(where)
        size = held.sums.size or 1.0
        before = held.sums.missing / size
        fit = Fit(where, before, before, 0, 0.0, held.sums.columns, writer.tap is not None, held.distance)
        if not held.sums.missing:
            return fit
        sums = self.normal_equations(writer)
        sums.check(where)
        if sums.columns:
            self.calibration.check(sums.columns, where)
        ridge, change, error = best_ridge(sums, held.sums)
        fit = replace(fit, after=error / size, tokens=sums.rows, ridge=ridge)
        if change is None:
            return fit
        undo = self._write(writer, bias, change)
        fit = replace(fit, distance_after=self.measure(None).distance)
        if not fit.kept:
            undo()
        elif self.to_all:  # the held-out tokens have chosen λ and judged: now they may help
            undo()
            self._write(writer, bias, next((c for _, c in (sums + held.sums).solutions([ridge])), change))
        return fit

    def _write(self, writer: Writer, bias: nn.Parameter | None, change: Crossed) -> Callable[[], None]:
        """Write the refitted weights; returns a function that undoes it."""
        weight = self.parameters[writer.parameter]
        before = weight.detach().clone(), None if bias is None else bias.detach().clone()
        columns = change[: change.shape[0] - (bias is not None)]
        with torch.no_grad():
            weight.add_((columns if writer.transposed else columns.T).to(weight))
            if bias is not None:
                bias.add_(change[-1].to(bias))
        self.run.weights_changed(self.student)

        def undo() -> None:
            """Restore the weights before the refit."""
            with torch.no_grad():
                weight.copy_(before[0])
                if bias is not None and before[1] is not None:
                    bias.copy_(before[1])
            self.run.weights_changed(self.student)

        return undo

    # ---- passes over the text -----------------------------------------------------------------

    def normal_equations(self, writer: Writer) -> NormalEquations:
        """The normal equations of refitting a writer, over all batches."""
        sums = NormalEquations(bias=self._bias(writer) is not None)
        forward = Forward(self.student)
        with BlockReader(self.student, [writer]) as reader, forward.listening(self._listener, required=False):
            for done, batch in enumerate(self.fit_batches, start=1):
                self._add(sums, writer, reader.read(self.run, forward, batch), self._original(batch))
                if self.progress is not None:
                    self.progress(f"refit {self._where(writer)}", done, len(self.fit_batches))
        sums.all_reduce(self.reduce_fit)
        return sums

    def measure(self, writer: Writer | None) -> _HeldOut:
        """The sums of a writer to refit, and how far the end of the block is from the original's."""
        sums = None if writer is None else NormalEquations(bias=self._bias(writer) is not None)
        apart = torch.zeros(2, dtype=torch.float64)
        writers = [self._judged()] if writer is None else [writer]
        forward = Forward(self.student)
        reader = BlockReader(self.student, writers, [self.block.output])
        with reader, forward.listening(self._listener, required=False):
            for batch in self.held_batches:
                seen, original = reader.read(self.run, forward, batch), self._original(batch)
                if sums is not None and writer is not None:
                    self._add(sums, writer, seen, original)
                if self.block.output is not None and original.output is not None:
                    output = seen.taps[self.block.output]
                    ours, theirs = original.layout.rows(output, self.block.token_first), original.output
                else:
                    ours, theirs = self._stream(writers[0], seen, original), original.streams[writers[0].parameter]
                apart += torch.stack(
                    [(theirs - ours).double().square().sum(), theirs.double().square().sum()]
                ).cpu()
        if sums is not None:
            sums.all_reduce(self.reduce_held)
        self.reduce_held(apart)
        return _HeldOut(sums, float(apart[0] / (apart[1] or 1.0)))

    def _judged(self) -> Writer:
        """The writer whose own output is compared where the output of the block cannot be read."""
        return self.block.writers[-1]

    def _add(self, sums: NormalEquations, writer: Writer, seen: Seen, original: Original) -> None:
        """Add a batch to the normal equations of a refit."""
        theirs, ours = original.streams[writer.parameter], self._stream(writer, seen, original)
        if theirs.shape != ours.shape:
            raise MultiheadError(
                f"{writer.parameter} writes {tuple(theirs.shape)} in the original and {tuple(ours.shape)} in the "
                "cut model",
                hint="both must be of the same architecture, and run every token",
            )
        z = seen.inputs.get(writer.parameter)
        if z is None or not z.shape[-1]:  # a layer without heads
            rows = theirs.new_zeros(len(theirs), 0)
        else:
            rows = original.layout.rows(z, writer.token_first)
        scale = (
            writer.scale.to(theirs) if isinstance(writer.scale, Tensor) and writer.tap is not None else writer.scale
        )
        wide = torch.promote_types(theirs.dtype, torch.float32)
        missing = (theirs.to(wide) - ours.to(wide)) / (scale if writer.tap is not None else 1.0)
        sums.add(rows, missing, float(theirs.double().square().sum()))

    def _stream(self, writer: Writer, seen: Seen, original: Original) -> Rows:
        """s behind the map to refit in the cut model, or its output where there is no residual sum."""
        if writer.tap is not None:
            return original.layout.rows(seen.taps[writer.tap], writer.tap_token_first)
        o = seen.outputs.get(writer.parameter)
        if o is not None:
            return original.layout.rows(o, writer.token_first)
        bias, theirs = self._bias(writer), original.streams[writer.parameter]  # no heads: the map did not run
        return torch.zeros_like(theirs) if bias is None else bias.detach().expand_as(theirs)

    # ---- the original -------------------------------------------------------------------------

    def _original(self, batch: Inputs) -> Original:
        kept = self._kept(batch)
        return self.run_original([batch])[0] if kept is None else kept

    def _kept(self, batch: Inputs) -> Original | None:
        original = self.calibration.originals.get(self.block, batch)
        return original or self.run.cache.get(("original", self.run.batch_key(batch)))

    def run_original(self, batches: Sequence[Inputs]) -> list[Original]:
        """Run the original's block, and keep what the refits read as far as there is room."""
        layouts: list[Layout] = []

        def listen(call: Call, compute: Compute) -> HeadOutputs:
            """Read the order of rows in the original's block."""
            heads = compute()
            if call.path == self.block.layer.path:
                layouts.append(Layout.of(call, heads))
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
