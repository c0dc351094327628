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
from typing import Any

from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError
from multihead.model.active_interceptions import isolation_depth
from multihead.model.call import Call, Compute
from multihead.model.compiled import inner
from multihead.model.lazy_scores import LazyScores
from multihead.model.lazy_weights import LazyWeights
from multihead.model.model_inputs import documents_in
from multihead.model.sites import Key, Site, Sites

Change = Callable[[HeadOutputs], HeadOutputs]
"""(copy · document, head, query, value_dim) → the same shape, with some heads changed."""

ModuleForward = Callable[..., Any]
ModuleCall = tuple[str, int]
"""The path of a module, and the number of its earlier calls in the run."""
ATTENTION = ""
"""The name under which attentions are counted, among the calls of modules."""


@dataclass
class Returned:
    """The output of one module call, and the number of calls of all modules before its end."""

    output: Any
    counts: dict[str, int]
    blank: bool = False
    """whether `output` holds shapes in place of tensors"""

    @property
    def attention(self) -> int:
        return self.counts.get(ATTENTION, 0)


class ModuleCalls:
    """Counts the calls of some modules in a run, and answers those that `answer` has from an earlier run.

    Runs that only compare something with the model's own code (see `interception.isolated`) are not part of the
    run.
    """

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self.modules = modules
        self.counts: dict[str, int] = {}
        self.returned: dict[ModuleCall, Returned] = {}
        """the outermost calls that have returned, answered ones included"""

    def answer(self, call: ModuleCall) -> Returned | None:
        """The output of the call in an earlier run; if None, the module runs."""
        return None

    def replayed(self, call: ModuleCall, known: Returned) -> Any:
        """The output of an answered call. Modules may write into it: it is a copy."""
        return known.output if known.blank else repeat_batch(known.output, 1, 0)

    def started(self, call: ModuleCall) -> None:
        """A module is about to run."""

    def ended(self, call: ModuleCall, output: Any, inside: Sequence[ModuleCall]) -> None:
        """A module has run; `inside` are the recorded calls within this one."""

    @contextmanager
    def installed(self) -> Generator[None]:
        """Inside the block the module calls of a run are counted, answered or recorded."""
        depth = isolation_depth()
        named = {id(module): name for name, module in self.modules.items()}

        def replacement(module: nn.Module, forward: ModuleForward) -> ModuleForward:
            """The forward of a module in a recorded run or rerun."""
            name = named[id(module)]

            def run(*args: Any, **kwargs: Any) -> Any:
                """Answer a module call from the recording, or make it."""
                if isolation_depth() != depth:
                    return forward(*args, **kwargs)
                call = (name, self.counts.get(name, 0))
                self.counts[name] = call[1] + 1
                known = self.answer(call)
                if known is not None:
                    self.counts = dict(known.counts)
                    return self.replayed(call, known)
                self.started(call)
                before = len(self.returned)
                output = forward(*args, **kwargs)
                self.ended(call, output, list(self.returned)[before:])
                return output

            return run

        with _patched_forward(list(self.modules.values()), replacement):
            yield


@dataclass(frozen=True)
class _Rerun:
    """A run from attention number `start` on, with changed heads, on several copies of the documents."""

    start: int
    changes: Mapping[Key, Change]
    copies: int
    documents: int


class Recording(ModuleCalls):
    """One run of a model on one batch, from which later runs start in the middle.

    Memory, for one batch and every layer: the output of the block, what it computes before its attention (norm, q,
    k, v) and the outputs of the heads: about 6 · layers · tokens · width numbers, linear in tokens.
    """

    def __init__(self, model: nn.Module, known: Sites) -> None:
        """`known`: the attentions of earlier runs; modules far from all of them are not recorded."""
        paths = [site.path for site in known]
        super().__init__(modules_beside(inner(model), paths) if paths else _all_modules(inner(model)))
        self.inputs: Mapping[str, Any] = {}
        self.rows = 0
        """rows of the batch, as the first attention sees them"""
        self._sites = Sites()
        self._calls: list[Key] = []  # the attentions of the recorded run, in order
        self._heads: list[HeadOutputs] = []
        self._rerun: _Rerun | None = None

    @property
    def sites(self) -> list[Site]:
        """The attentions that ran, each once."""
        return list(self._sites)

    @property
    def width(self) -> int:
        """The largest number of values that the heads of one attention output."""
        return max((heads.numel() for heads in self._heads), default=1)

    @contextmanager
    def installed(self) -> Generator[None]:
        """Inside the block the forward of the model's modules is recorded or answered from the recording."""
        with super().installed():
            yield
        self.returned.clear()
        self._heads.clear()

    def start(self, inputs: Mapping[str, Any]) -> None:
        """Record the next run of the model, on these inputs, for reruns."""
        self.inputs, self.rows = inputs, 0
        self._sites, self._calls, self._heads, self.returned = Sites(), [], [], {}
        self.counts, self._rerun = {}, None

    def rerun(self, changes: Mapping[Key, Change], copies: int, *, whole: bool = False) -> dict[str, Any]:
        """Rerun from the first changed attention in the model's next call. Returns the inputs to call it with.

        The batch has its documents `copies` times, one copy after the other. `whole`: it starts at the beginning.
        """
        documents = documents_in(self.inputs)
        first = -1 if whole else min(self._calls.index(key) for key in changes)
        self.counts, self._rerun = {}, _Rerun(first, changes, copies, documents)
        return repeat_batch(dict(self.inputs), copies, documents)

    def listen(self, call: Call, compute: Compute) -> HeadOutputs:
        """Record the heads of an attention, or change them in a rerun."""
        position, rerun = self.counts.get(ATTENTION, 0), self._rerun
        self.counts[ATTENTION] = position + 1
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

    def answer(self, call: ModuleCall) -> Returned | None:
        known = None if self._rerun is None else self.returned.get(call)
        return known if known is not None and self._rerun and known.attention <= self._rerun.start else None

    def replayed(self, call: ModuleCall, known: Returned) -> Any:
        assert self._rerun is not None
        return repeat_batch(known.output, self._rerun.copies, self._rerun.documents)

    def ended(self, call: ModuleCall, output: Any, inside: Sequence[ModuleCall]) -> None:
        """Record the output of a module call for reruns."""
        if self._rerun is not None:
            return
        # No rerun starts inside this module after its last attention: the outputs of its parts are not needed.
        for part in inside:
            if self.returned[part].attention == self.counts.get(ATTENTION, 0):
                del self.returned[part]
        if not isinstance(output, LazyScores):  # an adapter's scores that are not computed yet belong to this run
            self.returned[call] = Returned(repeat_batch(output, 1, 0), dict(self.counts))


def modules_beside(model: nn.Module, paths: Sequence[str]) -> dict[str, nn.Module]:
    """The children of every module that contains one of the modules at these paths, by path."""
    parents = {""} | {path.rsplit(".", n)[0] for path in paths for n in range(path.count(".") + 1)}
    return {name: m for name, m in _all_modules(model).items() if name.rpartition(".")[0] in parents}


def _all_modules(model: nn.Module) -> dict[str, nn.Module]:
    return {name: module for name, module in model.named_modules() if module is not model}


@contextmanager
def _patched_forward(
    modules: Sequence[nn.Module], replacement: Callable[[nn.Module, ModuleForward], ModuleForward]
) -> Generator[None]:
    """Replace the `forward` of modules inside the block, for recordings and reruns."""
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


def repeat_batch(x: Any, copies: int, documents: int) -> Any:
    """A copy of every tensor in `x`; tensors with `documents` rows have them `copies` times, for reruns."""
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
