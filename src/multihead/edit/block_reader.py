"""Read z and o of linear maps, and the residual stream at taps, in runs of a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

from multihead.corpus.accumulator import Inputs
from multihead.corpus.run import Runner
from multihead.edit.residual_block import Tap, Writer
from multihead.edit.residual_writers import MapReader, tap_value
from multihead.errors import MultiheadError
from multihead.model.compiled import inner
from multihead.model.forward import Forward, StopForward


@dataclass
class Seen:
    """What one run showed."""

    inputs: dict[str, Tensor]
    """z of the maps, by parameter"""
    outputs: dict[str, Tensor]
    """o of the maps, by parameter"""
    taps: dict[Tap, Tensor]


class BlockReader:
    """Reads the maps of some writers, the stream behind them and further taps."""

    def __init__(
        self,
        model: nn.Module,
        writers: Sequence[Writer],
        taps: Iterable[Tap | None] = (),
        *,
        to_the_end: bool = False,
    ) -> None:
        """`to_the_end`: runs do not stop when all is read."""
        parameters = dict(inner(model).named_parameters())
        weights = {w.parameter: parameters[w.parameter] for w in writers}
        self.model, self.to_the_end = inner(model), to_the_end
        self.taps = {tap for tap in (*(w.tap for w in writers), *taps) if tap is not None}
        self.maps = {name for name, p in weights.items() if p.numel()}
        self.reader = MapReader(weights, self._map_ran)
        self.seen = Seen({}, {}, {})
        self._stack = ExitStack()

    def __enter__(self) -> BlockReader:
        for tap in self.taps:
            module = self.model.get_submodule(tap.module)
            hook = partial(self._passed, tap)
            handle = (
                module.register_forward_pre_hook(hook, with_kwargs=True)
                if tap.side == "input"
                else module.register_forward_hook(hook, with_kwargs=True)
            )
            self._stack.callback(handle.remove)
        self._stack.enter_context(self.reader)
        self.clear()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def clear(self) -> None:
        """A run begins."""
        self.seen = Seen({}, {}, {})

    def read(self, run: Runner, forward: Forward, batch: Inputs) -> Seen:
        """Read a block: run it on a batch."""
        self.clear()
        run(forward, batch)
        unread = self.unread()
        if unread:
            raise MultiheadError(
                f"{unread[0]} was not seen as the model ran",
                hint="weights that are transformed before use (quantized, fused) cannot be fitted: refit=False",
            )
        return self.seen

    def unread(self) -> list[str]:
        """What the run has not shown."""
        taps = [str(tap) for tap in self.taps if tap not in self.seen.taps]
        return taps + [name for name in self.maps if name not in self.seen.inputs]

    def _map_ran(self, name: str, z: Tensor, o: Tensor, transposed: bool) -> None:
        self.seen.inputs[name], self.seen.outputs[name] = z.detach(), o.detach().clone()
        self._stop()

    def _passed(
        self, tap: Tap, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any = None
    ) -> None:
        """Keep a value that passes a tap of the block."""
        value = tap_value(tap, args, kwargs, output)
        if value is not None and tap not in self.seen.taps:
            self.seen.taps[tap] = value.detach().clone()  # later code may write into it
            self._stop()

    def _stop(self) -> None:
        """End the run when all of the block was read, unless it must show the input of the next one."""
        if self.to_the_end:
            return
        if self.taps <= self.seen.taps.keys() and self.maps <= self.seen.inputs.keys():
            raise StopForward
