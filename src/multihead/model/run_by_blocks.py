"""Run models block by block: a run starts at the current stop and ends in front of the next block.

A stop is a module that runs once: a block, or a module inside one, such as the output projection. Stops are worked
on in order, and work on a stop changes nothing that ran before it. Of every batch the module outputs that later
code still reads are kept, in front of a block most often one hidden state, and they answer the calls of these
modules in the next run (see `rerun_from_attention`). `fronts_of` finds out which outputs are read, for all stops
from one run on a small example, and a second run, stop by stop with NaN in place of all other outputs, verifies
it. Where it does not hold, and for batches that do not fit in the cache, models run from their beginning.

>>> import torch
>>> from torch import nn
>>> from multihead.model.run_by_blocks import BlockRun
>>> from multihead.model.forward import Forward
>>> block = nn.TransformerEncoderLayer(12, 3, batch_first=True)
>>> model = nn.TransformerEncoder(block, 5, enable_nested_tensor=False).eval()
>>> batch, example = {"src": torch.randn(2, 7, 12)}, {"src": torch.randn(1, 3, 12)}
>>> run = BlockRun([model], [f"layers.{i}" for i in range(5)], example)
>>> run.advance("layers.3")
>>> forward = Forward(model)
>>> with forward.listening():
...     _ = run(forward, batch), run(forward, batch)             # the second run skips three blocks
>>> run.cache.size == 2 * 4 * 2 * 7 * 12                         # bytes: the inputs of layers.3 and of layers.4
True
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from multihead._base.nested_tensors import tensors_in
from multihead.model.activation_cache import SPARE, ActivationCache, activation_bytes
from multihead.model.compiled import inner
from multihead.model.forward import Forward, StopForward
from multihead.model.model_inputs import plain_inputs
from multihead.model.rerun_from_attention import ModuleCall, ModuleCalls, Returned, modules_beside, repeat_batch

Inputs = Mapping[str, Any]
State = dict[ModuleCall, Returned]
"""The calls that have returned in front of a stop; outputs that nothing reads later are blank."""
Fronts = Mapping[str, frozenset[ModuleCall]]
"""Stop → the earlier calls whose outputs a run from there reads, in the order of the run."""


def blocks_of(paths: Sequence[str]) -> dict[str, str]:
    """The block of each attention: the largest module that holds it and no other; "" if that is the model."""
    blocks: dict[str, str] = {}
    for path in paths:
        parts = path.split(".")
        around = [".".join(parts[:n]) for n in range(1, len(parts) + 1)]
        alone = [p for p in around if not any(_within(other, p) for other in paths if other != path)]
        blocks[path] = alone[0] if alone and len(set(paths)) > 1 else ""
    return blocks


@dataclass
class _Kept:
    """The state of one batch in front of a stop."""

    inputs: Inputs  # referenced, so no other object gets the id of one of them
    stop: str
    state: State


class BlockRun:
    """Runs models of one structure on the same batches, from stop to stop.

    `advance` names the stop to work on. Weights in front of it must not change any more; after a change behind it,
    call `weights_changed`.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        blocks: Sequence[str],
        example: Inputs,
        *,
        fronts: Fronts | None = None,
        activation_cache_bytes: int | None = None,
    ) -> None:
        """`fronts`: those of `fronts_of`, where they are known; they may have stops inside the blocks."""
        self.models = list(models)
        if activation_cache_bytes is None:
            activation_cache_bytes = activation_bytes(self.models[0])
        self.cache = ActivationCache(activation_cache_bytes)
        if fronts is None:
            fronts = fronts_of(self.models[0], blocks, example) if activation_cache_bytes else {}
        self.fronts = fronts
        self._order = {stop: index for index, stop in enumerate(fronts)}
        self._blocks = [stop for stop in fronts if stop in blocks]
        self._stops = [""] * len(self.models)
        """of each model; "": its beginning"""
        self._modules = [_tracked(model, list(fronts)) for model in self.models]

    def advance(self, stop: str, model: nn.Module | None = None) -> None:
        """Start runs by blocks at `stop`: all models, or one of them inside the block that all have reached."""
        for index, one in enumerate(self.models):
            if (model is None or one is model) and self._stops[index] != stop:
                self._advance(index, stop)
        if model is None:
            for key in self.cache.names():  # values of the block that was left
                if isinstance(key, tuple) and key[0] not in ("state", "next"):
                    self.cache.drop(key)

    def _advance(self, index: int, stop: str) -> None:
        """Move one model to a stop, and its cached states with it."""
        before, self._stops[index] = self._stops[index], stop
        later = not before or self._order.get(before, len(self._order)) < self._order.get(stop, -1)
        for key in [k for k in self.cache.names() if isinstance(k, tuple) and k[:2] == ("next", index)]:
            if later and self._order[self.cache.get(key).stop] <= self._order[stop]:
                self.cache.move(key, ("state", *key[1:]))
        if not later:  # the states are behind the new stop
            for key in self.cache.names():
                if isinstance(key, tuple) and key[0] in ("state", "next") and key[1] == index:
                    self.cache.drop(key)

    @property
    def continues(self) -> bool:
        """Whether a run from the current stop ends in front of a block."""
        return self._end(0) is not None

    def _end(self, index: int) -> str | None:
        """The first block behind the current stop of a model."""
        position = self._order.get(self._stops[index])
        return None if position is None else next((b for b in self._blocks if self._order[b] > position), None)

    def weights_changed(self, model: nn.Module) -> None:
        """Weights behind the current stop of the run are different now, and so are the states behind it."""
        index = self._index(model)
        for key in self.cache.names():
            if isinstance(key, tuple) and key[:2] == ("next", index):
                self.cache.drop(key)

    def __call__(self, forward: Forward, batch: Inputs) -> Any:
        """Run one of the models on a batch, inside `Forward.listening`, as far as the end of the current block."""
        index = self._index(forward.model)
        if index is None or self._stops[index] not in self.fronts:
            return forward.run(batch)
        inputs = plain_inputs(inner(forward.model), batch)  # equal for every mapping that holds the same tensors
        key = (index, *((name, id(x)) for name, x in inputs.items()))
        kept: _Kept | None = self.cache.get(("state", *key))
        run = _Segment(self._modules[index], {} if kept is None else kept.state, self.fronts, self._end(index))
        with run.installed():
            output = forward.run(batch)
        start, here = -1 if kept is None else self._order[kept.stop], self._order[self._stops[index]]
        passed = [stop for stop in reversed(run.states) if self._order[stop] > start]
        for kind, stops in (
            ("state", [stop for stop in passed if self._order[stop] <= here]),
            ("next", [stop for stop in passed if self._order[stop] > here]),
        ):
            for stop in stops:  # the last one that there is room for
                state = _only(run.states[stop], self.fronts[stop])
                share = 1.0 if stop in self._blocks else SPARE
                if self.cache.put((kind, *key), _Kept(inputs, stop, state), _bytes(state), share=share):
                    break
        return output

    def batch_key(self, batch: Inputs) -> tuple[Hashable, ...]:
        """A name of a batch, for values that the caller keeps in `cache` while a block is worked on."""
        return tuple(id(x) for x in batch.values())

    def _index(self, model: nn.Module) -> int | None:
        return next((i for i, m in enumerate(self.models) if m is model), None)


class _Segment(ModuleCalls):
    """One run: known calls are answered; it notes the state in front of every stop, and ends at one of them."""

    def __init__(self, modules: Mapping[str, nn.Module], known: State, fronts: Fronts, end: str | None) -> None:
        super().__init__(modules)
        self.known, self.fronts, self.end = known, fronts, end
        self.states: dict[str, State] = {}
        self._last = list(fronts)[-1]
        self._read = frozenset[ModuleCall]().union(*fronts.values())

    def answer(self, call: ModuleCall) -> Returned | None:
        return self.known.get(call)

    def replayed(self, call: ModuleCall, known: Returned) -> Any:
        self.returned[call] = known
        return super().replayed(call, known)

    def started(self, call: ModuleCall) -> None:
        """Stop the run in front of the next block; note the states at fronts."""
        if call[0] in self.fronts:
            self.states[call[0]] = dict(self.returned)
        if call[0] == self.end:
            raise StopForward

    def ended(self, call: ModuleCall, output: Any, inside: Sequence[ModuleCall]) -> None:
        """Keep the output of a call if a later run from a block reads it."""
        for part in inside:  # with this call answered they are not made
            del self.returned[part]
        if self._last not in self.states:
            blank = call not in self._read
            value = _blank(output) if blank else repeat_batch(output, 1, 0)
            self.returned[call] = Returned(value, dict(self.counts), blank)


# ---- where runs can start -------------------------------------------------------------------------


def fronts_of(model: nn.Module, stops: Sequence[str], example: Inputs) -> dict[str, frozenset[ModuleCall]]:
    """For each stop of a run by blocks, in order, the earlier calls whose outputs a run from there reads.

    Modules that run several times are left out. Empty if runs from stop to stop do not compute what a whole run
    does.
    """
    modules = _tracked(model, stops)
    forward = Forward(model)
    with forward.listening():
        trace = _Trace(modules, [stop for stop in stops if stop in modules])
        with trace.installed(), trace.reads:
            forward.run(example)
        fronts = trace.fronts()
        try:
            return fronts if _verified(forward, modules, fronts, example, trace) else {}
        except Exception:  # noqa: BLE001  # with NaN in place of outputs a model may do anything
            return {}


def _tracked(model: nn.Module, stops: Sequence[str]) -> dict[str, nn.Module]:
    """The stops, and the siblings of every stop and of every module around it."""
    return modules_beside(inner(model), [stop.rpartition(".")[0] for stop in stops]) if stops else {}


class _Trace(ModuleCalls):
    """Notes, in one run, what has returned in front of every stop, and which calls read which tensors."""

    def __init__(self, modules: Mapping[str, nn.Module], stops: Sequence[str]) -> None:
        super().__init__(modules)
        self.stops = set(stops)
        self.outputs: dict[ModuleCall, Any] = {}
        self.front: dict[str, list[ModuleCall]] = {}
        self.started_at: dict[str, int] = {}
        self.ended_at: dict[ModuleCall, int] = {}
        self.reads = _Reads()

    def started(self, call: ModuleCall) -> None:
        """Note where a stop starts, and which calls have ended before it."""
        self.reads.inside.append(call)
        if call[0] in self.stops:
            self.front[call[0]] = list(self.returned)
            self.started_at[call[0]] = len(self.ended_at)

    def ended(self, call: ModuleCall, output: Any, inside: Sequence[ModuleCall]) -> None:
        """Note when a call of a run by blocks has ended, and its output."""
        self.reads.inside.pop()
        for part in inside:
            del self.returned[part]
        # The tensors stay alive until the end of the trace: memory is not used twice, and addresses are names.
        self.outputs[call] = output
        self.returned[call] = Returned(None, dict(self.counts))
        self.ended_at[call] = len(self.ended_at)

    def fronts(self) -> dict[str, frozenset[ModuleCall]]:
        """For each stop of a run by blocks, the earlier calls whose outputs later code reads."""
        once = {stop: calls for stop, calls in self.front.items() if self.counts.get(stop) == 1}
        return {
            stop: frozenset(call for call in calls if self._read_after(call, self.started_at[stop]))
            for stop, calls in once.items()
        }

    def _read_after(self, call: ModuleCall, start: int) -> bool:
        """Whether a run by blocks that begins at call `start` reads this output, in a call that it makes."""
        places = {x.untyped_storage().data_ptr() for x in tensors_in(self.outputs[call])}
        return any(
            reader is None or self.ended_at.get(reader, start) >= start
            for reader, read in self.reads.by_call.items()
            if places & read
        )


_VALUES = {"item", "tolist", "numpy", "equal", "allclose", "__bool__", "__int__", "__float__", "__index__"}
"""Functions that return values of a tensor, not a tensor."""


class _Reads(TorchFunctionMode):
    """Notes which memory every function reads, by the innermost tracked call that it runs in."""

    def __init__(self) -> None:
        super().__init__()
        self.inside: list[ModuleCall] = []
        self.by_call: dict[ModuleCall | None, set[int]] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        # Shapes and dtypes do not depend on the values.
        if next(tensors_in(result), None) is not None or getattr(func, "__name__", "") in _VALUES:
            read = self.by_call.setdefault(self.inside[-1] if self.inside else None, set())
            read |= {x.untyped_storage().data_ptr() for x in tensors_in((args, kwargs or {})) if x.numel()}
        return result


def _verified(
    forward: Forward,
    modules: Mapping[str, nn.Module],
    fronts: Fronts,
    example: Inputs,
    trace: _Trace,
) -> bool:
    """Whether runs from stop to stop compute the outputs of the traced run."""
    order, state = list(fronts), State()
    for stop, end in zip(order, [*order[1:], None], strict=True):
        run = _Segment(modules, state, fronts, end)
        run.ended = _comparing(run, trace.outputs, order)
        with (
            run.installed(),
            _Reads(),
        ):  # under a mode, as in the trace: without one torch's layers take a fast path
            forward.run(example)
        if stop not in run.states or (end is not None and end not in run.states):
            return False
        state = _only(run.states[end], fronts[end]) if end is not None else state
    return True


def _comparing(run: _Segment, expected: Mapping[ModuleCall, Any], stops: Sequence[str]) -> Callable[..., None]:
    """`run.ended` that also raises unless the output of the call is the expected one."""
    ended = run.ended

    def compare(call: ModuleCall, output: Any, inside: Sequence[ModuleCall]) -> None:
        """Raise if the output of a call in a run from stop to stop is not the expected one."""
        # Modules around stops may also return blank outputs; what later stops read of them is compared there.
        around = any(stop != call[0] and _within(stop, call[0]) for stop in stops)
        if not around and not _equal(output, expected[call]):
            raise ValueError(call)
        ended(call, output, inside)

    return compare


# ---- outputs --------------------------------------------------------------------------------------


def _only(state: State, used: frozenset[ModuleCall]) -> State:
    """The calls at a block's front; unused outputs become tensors of the same shape without memory."""
    return {
        call: returned
        if call in used or returned.blank
        else Returned(_blank(returned.output), returned.counts, True)
        for call, returned in state.items()
    }


def _blank(x: Any) -> Any:
    """An output without values, for a module call that a run by blocks does not read."""
    if isinstance(x, Tensor):
        fill = float("nan") if x.is_floating_point() or x.is_complex() else 0
        return torch.full((), fill, dtype=x.dtype, device=x.device).expand(x.shape)
    if isinstance(x, Mapping):
        blanks = {name: _blank(value) for name, value in x.items()}
        return blanks if type(x) is dict else type(x)(**blanks)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*map(_blank, x))
    if isinstance(x, list | tuple):
        return type(x)(map(_blank, x))
    return x


def _bytes(state: State) -> int:
    return sum(x.untyped_storage().nbytes() for r in state.values() if not r.blank for x in tensors_in(r.output))


def _equal(a: Any, b: Any) -> bool:
    """Whether runs by blocks compute equal outputs, up to rounding."""
    one, two = list(tensors_in(a)), list(tensors_in(b))
    return len(one) == len(two) and all(
        x.shape == y.shape and (torch.equal(x, y) or (x.is_floating_point() and torch.allclose(x, y)))
        for x, y in zip(one, two, strict=True)
    )


def _within(path: str, module: str) -> bool:
    return path == module or path.startswith(f"{module}.")
