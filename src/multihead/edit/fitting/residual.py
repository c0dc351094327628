"""See a linear map at work: what goes in, what comes out, and the residual sum s = x + c·o that takes it up.

A model has no name for its residual stream. But the map o = W z + b is seen when it is computed, and what first
uses o is seen too: an addition, maybe behind a reshape, a dropout that is off, or a scale. Where something else
comes first (a norm, as in Gemma 2), there is no sum, and that is said.

>>> import torch
>>> from multihead.edit.fitting.residual import watched
>>> model = torch.nn.TransformerEncoderLayer(12, 3, batch_first=True).eval()
>>> seen = watched(model, {"src": torch.randn(2, 7, 12)}, "linear2.weight")
>>> seen.z.shape, seen.o.shape, seen.total is not None
(torch.Size([14, 2048]), torch.Size([14, 12]), True)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Inputs
from multihead.corpus.run import Runner
from multihead.errors import MultiheadError
from multihead.model.call import Call, Compute, ragged_rows
from multihead.model.compiled import inner
from multihead.model.forward import Forward, StopForward

_ADD = {torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__, operator.add}
_MULTIPLY = {torch.mul, Tensor.mul, Tensor.mul_, Tensor.__mul__, Tensor.__rmul__, Tensor.__imul__, operator.mul}
_IN_PLACE = {Tensor.add_, Tensor.__iadd__, Tensor.mul_, Tensor.__imul__}
_COPIES = {
    Tensor.contiguous, Tensor.clone, Tensor.to, Tensor.float, Tensor.type_as, torch.clone, Tensor.reshape,
    torch.reshape, Tensor.flatten, torch.flatten, F.dropout, torch.dropout,
}  # fmt: skip


@dataclass(frozen=True)
class Passing:
    """One linear map at work on the real tokens of a batch: o = W z + b, and s = x + c·o where it was found."""

    z: Float[Tensor, "token column"]
    o: Float[Tensor, "token row"]
    total: Float[Tensor, "token row"] | None
    """s, the residual sum that first takes o up"""
    scale: float | Float[Tensor, " row"]
    """c: 1 but for layers that scale what they add"""
    kept: Int[Tensor, " token"] | None = None
    """the rows of all that went through the map, padding included, that these are; None: all"""


def watched(
    model: nn.Module, batch: Inputs, parameter: str, like: Passing | None = None, *, run: Runner = Forward.run
) -> Passing:
    """Run a model up to the linear map of `parameter` and the sum behind it; padding is left out.

    Which rows are padding is told by the attention before; where a cut has left no heads there, they are those of
    `like`, the same map in the original.
    """
    watch, tokens = _watch(model, batch, parameter, run)
    if watch.z is None or watch.o is None:
        raise MultiheadError(
            f"no linear map with the weight {parameter} was seen as the model ran",
            hint="weights that are transformed before use (quantized, fused) cannot be fitted again",
        )
    if like is not None and (not watch.z.shape[-1] or tokens.heads is None):
        keep = like.kept
    else:
        keep = _kept_rows(watch.z, tokens)
    z, o = (x.reshape(-1, x.shape[-1]) if x.numel() else x.flatten(0, -2) for x in (watch.z, watch.o))
    total = None if watch.total is None else watch.total.reshape(-1, o.shape[-1])
    if total is not None and watch.order is not None:
        back = torch.empty_like(watch.order)
        back[watch.order] = torch.arange(len(back), device=back.device)
        total = total[back]
    if keep is None:
        return Passing(z, o, total, watch.scale)
    return Passing(z[keep], o[keep], None if total is None else total[keep], watch.scale, keep)


def _watch(model: nn.Module, batch: Inputs, parameter: str, run: Runner = Forward.run) -> tuple[Watch, _Queries]:
    """Run a model until the map of `parameter` was seen, and what first uses its output."""
    root = inner(model)
    parameters = dict(root.named_parameters())
    weight = parameters.get(parameter)
    if weight is None:
        raise MultiheadError(f"the model has no parameter {parameter}", hint="was it replaced by a cut?")
    watch, tokens = Watch(weight, parameters.get(f"{parameter.rpartition('.')[0]}.bias")), _Queries()
    forward = Forward(model)
    with watch, forward.listening(tokens.listen, required=False):
        run(forward, batch)
    return watch, tokens


class Watch(TorchFunctionMode):
    """Stands on all functions: waits for the map with `weight`, then for the first that uses its output."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None = None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias
        self.z: Tensor | None = None
        self.o: Tensor | None = None
        self.total: Tensor | None = None
        self.scale: float | Tensor = 1.0
        self.order: Tensor | None = None
        """row i of the sum is row order[i] of o; None: the same"""
        self._follow: Tensor | None = None
        """what is waited for to be used: o, or a view or copy of it, scaled or summed"""
        self._base: tuple[Tensor, Tensor | None] | None = None
        """the memory that it is a view of, and the order of the rows there"""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.o is not None and func in _IN_PLACE and _same_memory(args[0], self.o):
            self.o = self.o.clone()  # it is about to be written over
        result = func(*args, **kwargs)
        if self.o is None:
            given = map_input(func, args, kwargs, self.weight)
            if given is None and not self.weight.numel() and func in _ADD and any(x is self.bias for x in args):
                given = result[..., :0]  # a layer without heads: only its bias is added
            if isinstance(result, Tensor) and given is not None:
                self.z, self.o, self._follow = given, result, result
                self._base = (result, None)
                if result.dim() < 2:
                    raise StopForward
        elif isinstance(result, Tensor) and self._follow is not None:
            self._used(func, args, kwargs, result)
        return result

    def _used(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Tensor
    ) -> None:
        """A function gave a tensor: was it the first to use what is followed?"""
        assert self._follow is not None
        given = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        if not any(_same_memory(x, self._follow) for x in given):
            return
        if func in _ADD and kwargs.get("alpha", 1) == 1 and all(x.shape == result.shape for x in given):
            if self.total is None:
                self.order = self._row_order(self._follow)
            self.total = result.clone() if func in _IN_PLACE else result
            self._follow = result  # sums of sums (parallel blocks) are followed to the last
        elif self.total is not None:
            raise StopForward
        elif func in _MULTIPLY and (factor := _factor(args, self._follow)) is not None:
            self.scale, self._follow = factor, result
            self._base = (result, self._row_order(result)) if func not in _IN_PLACE else self._base
        elif _same_memory(result, self._follow) and func not in _IN_PLACE:
            self._follow = result
        elif func in _COPIES and result.numel() == self._follow.numel():
            self._base, self._follow = (result, self._row_order(self._follow)), result
        else:
            raise StopForward

    def _row_order(self, x: Tensor) -> Tensor | None:
        """Which row of o each row of x is: x is a view of memory whose order is known."""
        assert self._base is not None
        memory, order = self._base
        if x.shape == memory.shape and x.stride() == memory.stride():
            return order
        width = memory.shape[-1]
        numbers = torch.arange(memory.numel(), device=x.device)
        rows = numbers.as_strided(x.shape, x.stride(), x.storage_offset() - memory.storage_offset())
        found = rows.reshape(-1, width)[:, 0] // width
        return found if order is None else order[found]


def map_input(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], weight: Tensor
) -> Tensor | None:
    """z, if this call computes W z (+ b) with this weight; None if it is anything else."""
    if func is F.linear:
        given, used = (*args, kwargs.get("weight"))[:2] if args else (kwargs.get("input"), kwargs.get("weight"))
    elif func in (torch.addmm, Tensor.addmm) and len(args) == 3:
        _, given, used = args
    elif (
        func in (torch.matmul, Tensor.matmul, Tensor.__matmul__, operator.matmul, torch.mm, Tensor.mm)
        and len(args) == 2
    ):
        given, used = args
    else:
        return None
    if not isinstance(given, Tensor) or not isinstance(used, Tensor):
        return None
    mine = used is weight or (used.numel() == weight.numel() and used.numel() > 0 and _same_memory(used, weight))
    return given if mine else None


def _same_memory(a: Tensor, b: Tensor) -> bool:
    if a is b:
        return True
    if a.numel() == 0 or b.numel() == 0 or a.is_sparse or b.is_sparse:
        return False
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _factor(args: tuple[Any, ...], followed: Tensor) -> float | Tensor | None:
    """What `followed` is multiplied with, if that is one number or one per output channel."""
    others = [x for x in args if not (isinstance(x, Tensor) and _same_memory(x, followed))]
    if len(others) != 1:
        return None
    (other,) = others
    if isinstance(other, int | float):
        return float(other) or None
    if isinstance(other, Tensor) and other.numel() == other.shape[-1:].numel() == followed.shape[-1]:
        return other.detach().reshape(-1) if bool((other != 0).all()) else None
    return float(other) or None if isinstance(other, Tensor) and other.numel() == 1 else None


# ---- which rows are real tokens -------------------------------------------------------------------


class _Queries:
    """Listens to attentions for the tokens of the last one: which are real, and how they lie."""

    def __init__(self) -> None:
        self.valid: Bool[Tensor, "batch query"] | None = None
        self.packed: Bool[Tensor, "batch query"] | None = None
        """the tokens of mask.ragged: W_O reads these, and one row of zeros for all padding"""
        self.heads: HeadOutputs | None = None

    def listen(self, call: Call, run: Compute) -> HeadOutputs:
        heads = run()
        self.valid, self.packed = call.queries.valid, ragged_rows(call.problem)
        self.heads = heads
        return heads


def _kept_rows(z: Tensor, tokens: _Queries) -> Int[Tensor, " row"] | None:
    """The rows of z (all axes but the last, flattened) that are real tokens, document by document; None: all."""
    if tokens.heads is None:
        return None
    documents, _, length, _ = tokens.heads.shape
    size = z.shape[:-1].numel()
    valid, packed = tokens.valid, tokens.packed
    if valid is not None and packed is not None and z.shape[:-1] == (1, int(packed.sum()) + 1):
        return valid[packed].nonzero().squeeze(1)
    if size != documents * length:
        if valid is None or bool(valid.all()):
            return None
        raise MultiheadError(
            f"{size} rows went through the linear map, {documents} × {length} tokens through the attention before",
            hint="which of them are padding cannot be told; pass documents of one length, or one at a time",
        )
    at = torch.arange(size, device=z.device)
    if _by_token(z, tokens.heads):
        at = at.view(length, documents).T.reshape(-1)
    elif valid is None:
        return None
    return at if valid is None else at[valid.reshape(-1)]


def _by_token(z: Tensor, heads: HeadOutputs) -> bool:
    """Whether rows are those of all documents for one token, then for the next: torch's own order."""
    documents, _, length, _ = heads.shape
    if z.dim() == 3 and documents != length:
        return z.shape[:2] == (length, documents)
    lying = heads.permute(2, 0, 1, 3).flatten(2)  # query, document, head · dim
    if min(documents, length) == 1 or lying.shape[-1] != z.shape[-1]:
        return False
    return torch.equal(lying.flatten(0, 1), z.reshape(-1, z.shape[-1]))


# ---- other maps that write into the stream --------------------------------------------------------


class _Maps(TorchFunctionMode):
    """Lists the parameters of linear maps in the order of the run, and None for every attention."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.names = {id(p): name for name, p in model.named_parameters()}
        self.seen: list[str | None] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for x in (*args, *(kwargs or {}).values()):
            name = self.names.get(id(x)) if isinstance(x, nn.Parameter) and x.dim() == 2 else None
            if name is not None and map_input(func, args, kwargs or {}, x) is not None:
                self.seen.append(name)
        return func(*args, **(kwargs or {}))

    def listen(self, call: Call, run: Compute) -> HeadOutputs:
        self.seen.append(None)
        return run()


def linear_maps(model: nn.Module, batch: Inputs) -> list[str | None]:
    """The weights of all linear maps in the order of the run, with None in the place of every attention."""
    root = inner(model)
    maps = _Maps(root)
    with maps:
        Forward(model)(batch, maps.listen, required=False)
    return maps.seen


def behind(model: nn.Module, batch: Inputs, parameter: str) -> list[str]:
    """The linear maps that run behind that of `parameter`, before the next attention, and add to the stream.

    Those of weights that are used more than once are left out.
    """
    seen = linear_maps(model, batch)
    if parameter not in seen:
        return []
    after = seen[seen.index(parameter) + 1 :]
    after = after[: after.index(None)] if None in after else after
    once = [name for name in after if name is not None and seen.count(name) == 1]
    return [name for name in once if _adds(*_watch(model, batch, name))]


def _adds(watch: Watch, tokens: _Queries) -> bool:
    """Whether a map gives something to the stream at every token: not so poolers, and experts that see a few."""
    if watch.z is None or watch.total is None or tokens.heads is None:
        return False
    return watch.z.shape[:-1].numel() == tokens.heads.shape[0] * tokens.heads.shape[2]
