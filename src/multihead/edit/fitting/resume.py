"""Resume a forward pass at a block, reusing the outputs of the modules in front of it.

Layers are fitted in order, and what is fitted never changes what ran before it. So of every batch the outputs that
the rest of the run still reads are held, and a run starts in front of the block that is worked on; on its way it
leaves what the next block starts from. Of all that had ended only what something later *uses* is held, most often
one hidden state: that is found out on a small example, with tensors of NaN in the place of the others, and a
model for which the result is not the same runs from its beginning, as do batches for which there is no room.

>>> import torch
>>> from torch import nn
>>> from multihead.edit.fitting.resume import Resumed
>>> from multihead.model.forward import Forward
>>> block = nn.TransformerEncoderLayer(12, 3, batch_first=True)
>>> model = nn.TransformerEncoder(block, 5, enable_nested_tensor=False).eval()
>>> batch = {"src": torch.randn(2, 7, 12)}
>>> runs = Resumed([model], {"src": torch.randn(1, 3, 12)}, hold=1 << 20)
>>> runs.go_to("layers.3")
>>> forward = Forward(model)
>>> with forward.listening():
...     first, again = runs(forward, batch), runs(forward, batch)       # the second skips three blocks
>>> torch.equal(first, again), runs.held == 4 * 2 * 7 * 12              # bytes: one hidden state
(True, True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from multihead.corpus.accumulator import Inputs
from multihead.model.compiled import inner
from multihead.model.eval_mode import plain_inputs
from multihead.model.forward import Forward
from multihead.model.partial_run import ModuleForward, patched_forward, repeat_batch

ROOM = 1 << 30
"""Bytes of hidden states that are held if nobody says how many."""
Call = tuple[str, int]
"""A call of a module in one run: its name, and how often it had been called before."""
_Key = tuple[int, tuple[tuple[str, int], ...]]
"""A model and a batch: their number, and the identity of every input."""


def blocks_of(paths: Sequence[str]) -> dict[str, str]:
    """The block of each attention: the largest module around it that holds no other; "" where that is the model."""
    found: dict[str, str] = {}
    for path in paths:
        parts = path.split(".")
        above = [".".join(parts[:n]) for n in range(1, len(parts) + 1)]
        own = [p for p in above if not any(_within(other, p) for other in paths if other != path)]
        found[path] = own[0] if own and len(set(paths)) > 1 else ""
    return found


class Resumed:
    """Models of one structure that are run on the same batches again and again, from ever later blocks on.

    `hold` is how many bytes of states may be held, for all models and batches together; 0: every run is from the
    start. What stands before a block must not change any more once `go_to` has named the block.
    """

    def __init__(self, models: Sequence[nn.Module], example: Inputs, *, hold: int) -> None:
        self.models, self.example, self.hold = list(models), example, hold
        self.held = 0
        """bytes that are held now"""
        self._block = ""
        self._fronts: list[_Front] = []
        self._states: dict[_Key, _State] = {}

    def go_to(self, block: str) -> None:
        """From now on runs leave what `block` starts from, and start there where that is held already."""
        if block == self._block:
            return
        before, self._block = self._block, block
        found = [_front(model, self.example, block) if block and self.hold else None for model in self.models]
        self._fronts = [front for front in found if front is not None]
        if len(self._fronts) < len(found):  # no place to start from that all of them have
            self._fronts = []
        later = all(any(_within(before, name) for name in front.ended) for front in self._fronts)
        if not self._fronts or not later:  # what is held may be of what changes now
            self._states, self.held = {}, 0

    def __call__(self, forward: Forward, batch: Inputs) -> Any:
        """Run a model: all of it, or what is not held yet."""
        at = next((i for i, m in enumerate(self.models) if m is forward.model), None)
        if at is None or not self._fronts:
            return forward.run(batch)
        inputs = plain_inputs(inner(forward.model), batch)  # by whatever mapping they come, they are the same batch
        key = at, tuple((name, id(x)) for name, x in inputs.items())
        known = self._states.get(key)
        run = _Run(forward, self._block, {} if known is None else known.ended)
        output = run.of(batch)
        if run.reached and (known is None or known.block != self._block):
            self._keep(key, _State(inputs, self._block, _only(run.entries, self._fronts[at].used)))
        return output

    def _keep(self, key: _Key, new: _State) -> None:
        old = self._states.pop(key, None)
        self.held -= 0 if old is None else old.size
        if self.held + new.size <= self.hold:
            self._states[key] = new
            self.held += new.size


@dataclass
class _Ended:
    """What a call returned, and how often every module had been called when it did."""

    output: Any
    counts: dict[str, int]
    blank: bool = False
    """whether only the shape of what it returned is there"""


@dataclass
class _State:
    """What is held of one batch: everything in front of a block that is still read behind it."""

    inputs: Inputs
    """held, so that no other object gets the identity of one of them"""
    block: str
    ended: dict[Call, _Ended]

    @cached_property
    def size(self) -> int:
        """Bytes."""
        return sum(x.untyped_storage().nbytes() for e in self.ended.values() if not e.blank for x in _tensors(e))


class _Run:
    """One run: calls in `known` are answered from there; the others that end before `block` starts are kept."""

    def __init__(self, forward: Forward, block: str, known: Mapping[Call, _Ended]) -> None:
        self.forward, self.block, self.known = forward, block, known
        self.reached = False
        """whether the block was started"""
        self.entries: dict[Call, _Ended] = {}
        self._counts: dict[str, int] = {}
        above = {parent for name in (block, *(call[0] for call in known)) for parent in _above(name)}
        named = [(n, m) for n, m in inner(forward.model).named_modules() if n and n.rpartition(".")[0] in above]
        self._names = {id(module): name for name, module in named}
        self._modules = [module for _, module in named]

    def of(self, batch: Inputs) -> Any:
        with patched_forward(self._modules, self._stand_in):
            return self.forward.run(batch)

    def _stand_in(self, module: nn.Module, forward: ModuleForward) -> ModuleForward:
        name = self._names[id(module)]

        def run(*args: Any, **kwargs: Any) -> Any:
            if not torch._C._is_torch_function_enabled():  # pyright: ignore[reportPrivateUsage]  # see partial_run
                return forward(*args, **kwargs)
            call = (name, self._counts.get(name, 0))
            self._counts[name] = call[1] + 1
            if (ended := self.known.get(call)) is not None:
                self._counts = dict(ended.counts)
                self.entries[call] = ended
                return ended.output if ended.blank else repeat_batch(ended.output, 1, 0)
            if name == self.block:
                self.reached = True
            before = len(self.entries)
            output = forward(*args, **kwargs)
            if not self.reached:
                for inside in list(self.entries)[before:]:  # with this call answered they are not made
                    del self.entries[inside]
                self.entries[call] = _Ended(repeat_batch(output, 1, 0), dict(self._counts))
            return output

        return run


# ---- what is read of what had ended ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Front:
    """What stands before a block: names of the modules that have ended there, calls that are read behind it."""

    ended: frozenset[str]
    used: frozenset[Call]


def _front(model: nn.Module, example: Inputs, block: str) -> _Front | None:
    """What a run from `block` on reads; None: the model cannot start there."""
    forward = Forward(model)
    with forward.listening():
        first = _Run(forward, block, {})
        whole = first.of(example)
        if not first.reached or not first.entries:
            return None
        marked = _only(first.entries, frozenset())
        readers = _Readers(marked)
        try:
            with readers:
                _Run(forward, block, marked).of(example)
            used = frozenset(readers.read)
            again = _Run(forward, block, _only(first.entries, used)).of(example)
        except Exception:  # noqa: BLE001  # a model may do anything with numbers that are none
            return None
    ended = frozenset(name for name, _ in first.entries)
    return _Front(ended, used) if used and _equal(whole, again) else None


_NUMBERS = {"item", "tolist", "numpy", "equal", "allclose", "__bool__", "__int__", "__float__", "__index__"}
"""What gives numbers of a tensor and no tensor."""


class _Readers(TorchFunctionMode):
    """Notes which of the marked tensors any function is given."""

    def __init__(self, marked: Mapping[Call, _Ended]) -> None:
        super().__init__()
        self.marks = {
            x.untyped_storage().data_ptr(): call for call, ended in marked.items() for x in _tensors(ended)
        }
        self.read: set[Call] = set()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        # A shape or a dtype says nothing of the numbers.
        if next(_tensors(result), None) is not None or getattr(func, "__name__", "") in _NUMBERS:
            self.read |= {
                self.marks[at]
                for x in _tensors((args, kwargs or {}))
                if x.numel() and (at := x.untyped_storage().data_ptr()) in self.marks
            }
        return result


def _only(entries: Mapping[Call, _Ended], used: frozenset[Call]) -> dict[Call, _Ended]:
    """The same calls; outputs that are not used become tensors of the same shape without memory."""
    return {
        call: ended if call in used or ended.blank else _Ended(_blank(ended.output), ended.counts, blank=True)
        for call, ended in entries.items()
    }


def _blank(x: Any) -> Any:
    if isinstance(x, Tensor):
        fill = float("nan") if x.is_floating_point() or x.is_complex() else 0
        return torch.full((), fill, dtype=x.dtype, device=x.device).expand(x.shape)
    if isinstance(x, Mapping):
        made = {name: _blank(value) for name, value in x.items()}
        return made if type(x) is dict else type(x)(**made)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*map(_blank, x))
    if isinstance(x, list | tuple):
        return type(x)(map(_blank, x))
    return x


def _tensors(x: Any) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, _Ended):
        yield from _tensors(x.output)
    elif isinstance(x, Mapping):
        for value in x.values():
            yield from _tensors(value)
    elif isinstance(x, list | tuple):
        for value in x:
            yield from _tensors(value)


def _equal(a: Any, b: Any) -> bool:
    one, two = list(_tensors(a)), list(_tensors(b))
    return len(one) == len(two) > 0 and all(
        x.shape == y.shape and (torch.equal(x, y) or (x.is_floating_point() and torch.allclose(x, y)))
        for x, y in zip(one, two, strict=True)
    )


def _above(name: str) -> list[str]:
    """The modules that one is in, the model ("") first."""
    parts = name.split(".")
    return ["", *(".".join(parts[:n]) for n in range(1, len(parts)))]


def _within(path: str, module: str) -> bool:
    return path == module or path.startswith(f"{module}.")
