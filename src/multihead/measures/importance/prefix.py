"""Run a model from its i-th attention on: what ended before is handed out again as it was recorded.

A head that is changed changes nothing that was computed before it. So of one clean run the outputs of the modules
around every attention are kept, and in a run that changes attention i every module call that had ended by then
returns what it returned: whole blocks, and in the block itself the norm and the projections. Attention i itself is
not computed either: its heads are known. Which modules these are is told by when they ran, not by what they are.

>>> import torch
>>> from torch import nn
>>> from multihead.measures.importance.prefix import Prefix
>>> model = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 3, batch_first=True), 5).eval()
>>> batch = {"src": torch.randn(2, 7, 12)}
>>> with torch.no_grad(), Prefix(model) as prefix:
...     whole = prefix.record(batch)
...     last = prefix.run(batch, prefix.sites[4].key, lambda heads: heads)     # four of five blocks do not run
>>> torch.equal(last, whole)
True
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError
from multihead.model.call import Call, Compute
from multihead.model.eval_mode import documents_in
from multihead.model.intercept import inner, intercept
from multihead.model.known import note, seen_sites
from multihead.model.missing import nothing_found
from multihead.model.sites import Key, Site

Change = Callable[[HeadOutputs], HeadOutputs]
"""(copy · document, head, query, value_dim) → the same with some heads changed."""


Forward = Callable[..., Any]


@dataclass
class _Ended:
    """One call of a module: what it returned, and how many calls of everything there had been by its end."""

    output: Any
    attention: int
    counts: dict[int, int]
    kept: bool = True


@dataclass(frozen=True)
class _Start:
    """A run that starts at an attention, with a change of its heads, for several copies of the documents."""

    attention: int
    key: Key
    change: Change
    copies: int
    documents: int


class Prefix:
    """A clean run of a model on one batch, and runs that start in the middle of it, all within one `with` block.

    Held are, of one batch and for every layer, the output of the block, what it computes before its attention
    (norm, q, k, v) and the outputs of the heads: some 6 · layers · tokens · width numbers, linear in tokens.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.calls: list[Key] = []
        """the attentions of the clean run, in order"""
        self._outputs: list[HeadOutputs] = []
        self._ended: dict[int, list[_Ended]] = {}
        self._clock = _Clock()
        self._start: _Start | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Prefix:
        with ExitStack() as stack:
            stack.enter_context(intercept(self.model, self._listen))
            stack.enter_context(patched_forward(self._modules(), self._stand_in))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.clear()
        self._outputs.clear()
        self._stack.close()

    @property
    def sites(self) -> list[Site]:
        """The attentions that ran, each once."""
        named = seen_sites(self.model)
        return [named[key] for key in dict.fromkeys(self.calls)]

    def record(self, batch: Mapping[str, Any]) -> Any:
        """Run the model as it is, and keep what is needed to start in its middle."""
        self.calls, self._outputs, self._ended = [], [], {}
        self._clock, self._start = _Clock(), None
        output = self.model(**batch)
        if not self.calls:
            raise nothing_found(inner(self.model), 1)
        return output

    def run(self, batch: Mapping[str, Any], key: Key, change: Change, *, copies: int = 1) -> Any:
        """The output with `change` made to the heads of the attention `key`.

        With `copies` the documents of the batch are there so many repeat_batch, one copy after the other.
        """
        size = documents_in(batch)
        self._clock, self._start = _Clock(), _Start(self.calls.index(key), key, change, copies, size)
        return self.model(**repeat_batch(dict(batch), copies, size))

    def _listen(self, call: Call, run: Compute) -> HeadOutputs:
        """One attention passes."""
        at, start = self._clock.attention, self._start
        self._clock.attention += 1
        if start is None:
            note(self.model, call)
            heads = run()
            self.calls.append(call.key)
            self._outputs.append(heads.detach().clone())
            return heads
        if at >= len(self.calls):
            raise MultiheadError(
                f"{call.path} attended once more than in the clean run", hint="does the model change as it runs?"
            )
        heads = repeat_batch(self._outputs[at], start.copies, start.documents) if at == start.attention else run()
        return start.change(heads) if self.calls[at] == start.key else heads

    def _stand_in(self, module: nn.Module, forward: Forward) -> Forward:
        """What runs in the place of a module's forward."""

        def run(*args: Any, **kwargs: Any) -> Any:
            if not torch._C._is_torch_function_enabled():  # pyright: ignore[reportPrivateUsage]  # it has no public name
                return forward(*args, **kwargs)  # an adapter compares itself with its module: no part of the run
            if self._start is None:
                return self._recorded(module, partial(forward, *args, **kwargs))
            known, turn = self._ended.get(id(module), ()), self._clock.next(module)
            if turn < len(known) and known[turn].attention <= self._start.attention and known[turn].kept:
                self._clock.go_to(known[turn].attention, known[turn].counts)
                return repeat_batch(known[turn].output, self._start.copies, self._start.documents)
            return forward(*args, **kwargs)

        return run

    def _recorded(self, module: nn.Module, forward: Forward) -> Any:
        turn, before = self._clock.next(module), {at: len(calls) for at, calls in self._ended.items()}
        mine = self._ended.setdefault(id(module), [])
        mine.append(_Ended(None, self._clock.attention, {}, kept=False))
        output = forward()
        end = self._clock.attention
        # Of what ran inside, that which ended with no attention to come is never started from: this module is.
        for at, calls in self._ended.items():
            for call in calls[before.get(at, 0) :]:
                if call.attention == end:
                    call.output, call.kept = None, False
        mine[turn] = _Ended(repeat_batch(output, 1, 0), end, dict(self._clock.counts))
        return output

    def _modules(self) -> list[nn.Module]:
        """The children of every module that an attention is in; before any was seen, all modules."""
        root = inner(self.model)
        sites = [site.path for site in seen_sites(self.model).values()]
        above = {path.rsplit(".", n)[0] for path in sites for n in range(path.count(".") + 1)} | {""}
        found = {
            id(module): module
            for name, module in root.named_modules()
            if module is not root and (not sites or name.rpartition(".")[0] in above)
        }
        return list(found.values())


@contextmanager
def patched_forward(
    modules: Sequence[nn.Module], stand_in: Callable[[nn.Module, Forward], Forward]
) -> Generator[None]:
    """Stand in for the `forward` of modules, and step aside again."""
    before = [vars(m).get("forward") for m in modules]
    try:
        for module in modules:
            module.forward = stand_in(module, module.forward)
        yield
    finally:
        for module, own in zip(modules, before, strict=True):
            vars(module).pop("forward", None)
            if own is not None:
                vars(module)["forward"] = own


class _Clock:
    """How many attentions and calls of each module there have been, those that were not run again included."""

    def __init__(self) -> None:
        self.attention = 0
        self.counts: dict[int, int] = {}

    def next(self, module: nn.Module) -> int:
        """Which call of the module this is, from 0."""
        turn = self.counts.get(id(module), 0)
        self.counts[id(module)] = turn + 1
        return turn

    def go_to(self, attention: int, counts: Mapping[int, int]) -> None:
        self.attention, self.counts = attention, dict(counts)


def repeat_batch(x: Any, copies: int, size: int) -> Any:
    """A copy of every tensor in `x`; those with `size` documents in front have all of them `copies` times."""
    if isinstance(x, Tensor):
        many = copies > 1 and x.ndim > 0 and x.shape[0] == size
        return x.detach().repeat(copies, *[1] * (x.ndim - 1)) if many else x.detach().clone()
    if isinstance(x, Mapping):
        made = {name: repeat_batch(value, copies, size) for name, value in x.items()}
        return made if type(x) is dict else type(x)(**made)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(repeat_batch(value, copies, size) for value in x))
    if isinstance(x, list | tuple):
        return type(x)(repeat_batch(value, copies, size) for value in x)
    return x


class Whole:
    """The same runs from the start, for models in which what was computed once cannot be handed out again."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def run(self, batch: Mapping[str, Any], key: Key, change: Change, *, copies: int = 1) -> Any:
        """The output with `change` made to the heads of the attention `key`."""

        def listen(call: Call, run: Compute) -> HeadOutputs:
            return change(run()) if call.key == key else run()

        with intercept(self.model, listen):
            return self.model(**repeat_batch(dict(batch), copies, documents_in(batch)))
