"""Rerun a model from its i-th attention on: modules that had returned before it return their recorded outputs.

Changing a head changes nothing that was computed before it. `Recording` keeps the outputs of the modules around
every attention of one run, and the outputs of the heads. In a rerun that changes attention i, every module call
that had returned by then returns its recorded output: whole blocks, and inside the block of attention i its norm
and its projections. Attention i is not computed either, because the outputs of its heads are recorded. Which
modules these are follows from the order of the run, not from their types.

>>> import torch
>>> from torch import nn
>>> from multihead.model.forward import Forward
>>> model = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 3, batch_first=True), 5).eval()
>>> forward = Forward(model)
>>> with forward.recording() as recording:
...     output = forward.run({"src": torch.randn(2, 7, 12)})
...     last = recording.sites[4]                      # four of five blocks are not computed again
...     unchanged = forward.rerun({last.key: lambda heads: heads})
>>> torch.equal(unchanged, output)
True
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError
from multihead.model.call import Call, Compute
from multihead.model.compiled import inner
from multihead.model.eval_mode import documents_in
from multihead.model.interception import interception_of
from multihead.model.lazy_scores import LazyScores
from multihead.model.lazy_weights import LazyWeights
from multihead.model.sites import Key, Site, Sites

Change = Callable[[HeadOutputs], HeadOutputs]
"""(copy · document, head, query, value_dim) → the same shape, with some heads changed."""

ModuleForward = Callable[..., Any]


@dataclass
class _Returned:
    """One call of a module: its output, and how many calls of everything had been made when it returned."""

    output: Any
    attention: int
    counts: dict[int, int]
    kept: bool = True


@dataclass(frozen=True)
class _Rerun:
    """A run from attention number `start` on, with changed heads, on several copies of the documents."""

    start: int
    changes: Mapping[Key, Change]
    copies: int
    documents: int


class Recording:
    """One run of a model on one batch, from which later runs start in the middle.

    Memory, for one batch and every layer: the output of the block, what it computes before its attention (norm, q,
    k, v) and the outputs of the heads: about 6 · layers · tokens · width numbers, linear in tokens.
    """

    def __init__(self, model: nn.Module, known: Sites) -> None:
        """`known`: the attentions of earlier runs; modules far from all of them are not recorded."""
        self.model, self.known = inner(model), known
        self.inputs: Mapping[str, Any] = {}
        self.rows = 0
        """rows of the batch, as the first attention sees them"""
        self._sites = Sites()
        self._calls: list[Key] = []  # the attentions of the recorded run, in order
        self._heads: list[HeadOutputs] = []
        self._returned: dict[int, list[_Returned]] = {}
        self._clock = _Clock()
        self._rerun: _Rerun | None = None

    @property
    def sites(self) -> list[Site]:
        """The attentions that ran, each once."""
        return list(self._sites)

    @property
    def width(self) -> int:
        """The largest number of values that the heads of one attention put out."""
        return max((heads.numel() for heads in self._heads), default=1)

    @contextmanager
    def installed(self) -> Generator[None]:
        """Inside the block the forward of the model's modules is recorded or answered from the recording."""
        with patched_forward(self._modules(), self._recorded_or_answered):
            yield
        self._returned.clear()
        self._heads.clear()

    def start(self, inputs: Mapping[str, Any]) -> None:
        """The next run of the model, on these inputs, is the one to record."""
        self.inputs, self.rows = inputs, 0
        self._sites, self._calls, self._heads, self._returned = Sites(), [], [], {}
        self._clock, self._rerun = _Clock(), None

    def rerun(self, changes: Mapping[Key, Change], copies: int, *, whole: bool = False) -> dict[str, Any]:
        """The next run of the model starts at the first changed attention. Returns the inputs to call it with.

        The batch has its documents `copies` times, one copy after the other. `whole`: it starts at the beginning.
        """
        documents = documents_in(self.inputs)
        first = -1 if whole else min(self._calls.index(key) for key in changes)
        self._clock, self._rerun = _Clock(), _Rerun(first, changes, copies, documents)
        return repeat_batch(dict(self.inputs), copies, documents)

    def listen(self, call: Call, compute: Compute) -> HeadOutputs:
        """One attention runs: record its heads, or change them."""
        position, rerun = self._clock.attention, self._rerun
        self._clock.attention += 1
        if rerun is None:
            self._sites.register(call.site)
            self.rows = self.rows or call.problem.coordinates.batch
            heads = compute()
            self._calls.append(call.key)
            self._heads.append(heads.detach().clone())
            return heads
        if position >= len(self._calls):
            raise MultiheadError(
                f"{call.path} attends more often than in the recorded run", hint="does the model change as it runs?"
            )
        recorded = position == rerun.start
        heads = repeat_batch(self._heads[position], rerun.copies, rerun.documents) if recorded else compute()
        change = rerun.changes.get(self._calls[position])
        return heads if change is None else change(heads)

    @property
    def replaying(self) -> bool:
        return self._rerun is not None

    def _recorded_or_answered(self, module: nn.Module, forward: ModuleForward) -> ModuleForward:
        def run(*args: Any, **kwargs: Any) -> Any:
            if interception_of(module) is None:  # a comparison with the model's own code: not part of the run
                return forward(*args, **kwargs)
            if self._rerun is None:
                return self._record(module, partial(forward, *args, **kwargs))
            calls, index = self._returned.get(id(module), ()), self._clock.next(module)
            if index < len(calls) and calls[index].attention <= self._rerun.start and calls[index].kept:
                self._clock.advance(calls[index].attention, calls[index].counts)
                return repeat_batch(calls[index].output, self._rerun.copies, self._rerun.documents)
            return forward(*args, **kwargs)

        return run

    def _record(self, module: nn.Module, forward: ModuleForward) -> Any:
        index, before = self._clock.next(module), {id_: len(calls) for id_, calls in self._returned.items()}
        calls = self._returned.setdefault(id(module), [])
        calls.append(_Returned(None, self._clock.attention, {}, kept=False))
        output = forward()
        end = self._clock.attention
        # No rerun starts inside this module after its last attention: the outputs of its parts are not needed.
        for id_, inside in self._returned.items():
            for call in inside[before.get(id_, 0) :]:
                if call.attention == end:
                    call.output, call.kept = None, False
        if isinstance(
            output, LazyScores
        ):  # scores of an adapter that are not computed yet: they belong to this run
            calls[index] = _Returned(None, end, dict(self._clock.counts), kept=False)
        else:
            calls[index] = _Returned(repeat_batch(output, 1, 0), end, dict(self._clock.counts))
        return output

    def _modules(self) -> list[nn.Module]:
        """The children of every module that contains an attention; all modules before the first run."""
        paths = [site.path for site in self.known]
        parents = {path.rsplit(".", n)[0] for path in paths for n in range(path.count(".") + 1)} | {""}
        modules = {
            id(module): module
            for name, module in self.model.named_modules()
            if module is not self.model and (not paths or name.rpartition(".")[0] in parents)
        }
        return list(modules.values())


@contextmanager
def patched_forward(
    modules: Sequence[nn.Module], replacement: Callable[[nn.Module, ModuleForward], ModuleForward]
) -> Generator[None]:
    """Replace the `forward` of modules inside the block."""
    before = [vars(module).get("forward") for module in modules]
    try:
        for module in modules:
            module.forward = replacement(module, module.forward)
        yield
    finally:
        for module, forward in zip(modules, before, strict=True):
            vars(module).pop("forward", None)
            if forward is not None:
                vars(module)["forward"] = forward


class _Clock:
    """Counts the attentions and the calls of each module, including those answered from the recording."""

    def __init__(self) -> None:
        self.attention = 0
        self.counts: dict[int, int] = {}

    def next(self, module: nn.Module) -> int:
        """The index of this call of the module."""
        index = self.counts.get(id(module), 0)
        self.counts[id(module)] = index + 1
        return index

    def advance(self, attention: int, counts: Mapping[int, int]) -> None:
        self.attention, self.counts = attention, dict(counts)


def repeat_batch(x: Any, copies: int, documents: int) -> Any:
    """A copy of every tensor in `x`; tensors with `documents` rows have all of them `copies` times."""
    if isinstance(x, LazyWeights):  # a copy would compute them
        return None
    if isinstance(x, Tensor):
        many = copies > 1 and x.ndim > 0 and x.shape[0] == documents
        return x.detach().repeat(copies, *[1] * (x.ndim - 1)) if many else x.detach().clone()
    if isinstance(x, Mapping):
        values = {name: repeat_batch(value, copies, documents) for name, value in x.items()}
        return values if type(x) is dict else type(x)(**values)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(repeat_batch(value, copies, documents) for value in x))
    if isinstance(x, list | tuple):
        return type(x)(repeat_batch(value, copies, documents) for value in x)
    return x
