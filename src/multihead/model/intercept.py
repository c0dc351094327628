"""Send every attention of a model through a listener, while the model runs as it is.

Attention reaches a kernel on few roads, and one TorchFunctionMode stands on all of them:

- `F.scaled_dot_product_attention`, called by anybody;
- `F.multi_head_attention_forward`, which is nn.MultiheadAttention (under a mode torch leaves its fast path);
- `multihead.layer.routes.attend`, which is our own layer, Hugging Face's attention interface (see
  `interface.py`) and every adapter (see `adapters.py`).

A mode belongs to one thread, nests, and is gone after the block, also after an exception. Which module calls is
read from the running frames. For the length of the block the model has hooks, which read the ids and the padding it
is called with, and each attention module has one, which counts its calls (see `call_index.py`).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from threading import get_ident, local
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.overrides import TorchFunctionMode

from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError
from multihead.layer.attention import MultiHeadAttention
from multihead.layer.frame import ALL
from multihead.layer.mask_cells import TensorMask
from multihead.layer.mask_kinds import Lengths, Padding, Ragged
from multihead.layer.problem import Problem
from multihead.layer.routes import attend
from multihead.model.adapters import adapted
from multihead.model.call import Call, Listener, Tokens
from multihead.model.call_index import CallIndex
from multihead.model.call_tokens import Inputs
from multihead.model.head_sharding import share_of
from multihead.model.hf_interface import through_interface
from multihead.model.kernel_arguments import problem_of
from multihead.model.sites import is_cross, stack_of
from multihead.model.torch_mha import as_dropin


@contextmanager
def intercept(model: nn.Module, listener: Listener, *, spread: bool = False) -> Generator[None]:
    """Every attention of `model` in this thread goes through `listener(call, run)`, which returns its output.

    `spread`: the listener knows that a rank may have only some of the heads, and reads `call.share`.
    """
    root = inner(model)
    gate = InterceptMode(root, listener, spread)
    with ExitStack() as stack:
        if _has_compiled_parts(model):
            # A compiled graph shows nothing: for the length of the block it runs as written.
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(through_interface(root))
        stack.enter_context(adapted(root))
        stack.callback(root.register_forward_pre_hook(gate.begin, with_kwargs=True).remove)
        stack.callback(root.register_forward_hook(gate.end, always_call=True).remove)
        stack.callback(gate.call_index.close)
        stack.enter_context(gate)
        yield


@contextmanager
def isolated() -> Generator[None]:
    """A block whose runs only the listeners inside it hear."""
    _depth.value = _now() + 1
    try:
        yield
    finally:
        _depth.value -= 1


_depth = local()


def _now() -> int:
    return getattr(_depth, "value", 0)


def inner(model: nn.Module) -> nn.Module:
    """The model itself, out of the wrapper that torch.compile puts around it."""
    return cast(nn.Module, getattr(model, "_orig_mod", model))


def _has_compiled_parts(model: nn.Module) -> bool:
    # Not hasattr: a module that has no such part looks for it in many places, and there are many modules.
    return any(m._compiled_call_impl is not None or "_orig_mod" in m._modules for m in model.modules())  # pyright: ignore[reportPrivateUsage]


class InterceptMode(TorchFunctionMode):
    """Hands attention to the listener, and everything else on."""

    def __init__(self, model: nn.Module, listener: Listener, spread: bool) -> None:
        super().__init__()
        self.listener, self.spread = listener, spread
        self.depth, self.thread = _now(), get_ident()
        named = list(model.named_modules())  # every torch function below costs: the tree is walked once
        self.paths = {id(m): name.replace("_orig_mod.", "") for name, m in named}
        self.modules = {id(m): m for _, m in named}  # holds them, so that an id stays theirs
        self.inputs = Inputs()
        self.call_index = CallIndex(self._active)

    def begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The model is called."""
        if self._active():
            self.call_index.begin()
            self.inputs.read(module, args, kwargs)

    def end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """The model has run, or failed: its output is None then."""
        if self._active():
            self.call_index.end()
            self.inputs.keep(output)

    def _active(self) -> bool:
        return self.depth == _now() and get_ident() == self.thread

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in _HEARD or self.depth != _now():  # every operation of the model comes by here
            return func(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            return self._fused(func, *args, **kwargs)
        if func is attend:
            return self._ours(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            with self:  # the mode is off in here; the drop-in's `attend` is to be seen
                return as_dropin(*args, **kwargs)
        if func in _BACKWARD and (call := _by_edges(func, *args, **kwargs)) is not None:
            with self:  # layers that are checkpointed run again in there, and must meet the same listener
                return call()
        return func(*args, **kwargs)

    def _fused(
        self,
        func: Callable[..., Tensor],
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        def run() -> Tensor:
            return func(
                query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale,
                enable_gqa=enable_gqa,
            )  # fmt: skip

        place = self._place()
        if place is None:
            return run()
        module, path = place
        q, k, v, mask = _four_axes(query, key, value, attn_mask, module, path, grouped=enable_gqa)
        k, v = _unrepeated(k, v)
        cross = is_cross(path) or q.shape[2] > k.shape[2]
        problem = problem_of(q, k, v, mask=mask, top_left=is_causal, scale=scale, dropout=dropout_p, cross=cross)
        heads = self._heard(module, path, cross, problem, lambda: run().reshape(*q.shape[:3], v.shape[3]))
        return heads.reshape(*lead_of(query, key, value, grouped=enable_gqa), query.shape[-2], value.shape[-1])

    def _ours(self, problem: Problem, route: str | None = None) -> HeadOutputs:
        place = self._place()
        if place is None:
            return attend(problem, route)
        module, path = place
        if problem.frame.apart is not None:
            raise MultiheadError(
                f"{path}: heads cannot be looked at while the {problem.frame.keys} keys are spread over ranks",
                hint="look at the model outside of mh.context_parallel",
            )
        told = isinstance(module, nn.MultiheadAttention | MultiHeadAttention)  # they know where their keys are from
        cross = problem.cross or (not told and is_cross(path))
        return self._heard(module, path, cross, problem, lambda: attend(problem, route))

    def _heard(
        self, module: nn.Module, path: str, cross: bool, problem: Problem, run: Callable[[], HeadOutputs]
    ) -> HeadOutputs:
        queries, keys = self.inputs.of_call(stack_of(path, cross), cross, problem.frame)
        if queries.valid is None or keys.valid is None:
            queries, keys = _by_mask(problem, queries, keys, cross)
        share = share_of(module, problem)
        if share is not None and not self.spread:
            raise MultiheadError(
                f"{path}: this rank has {len(share.heads)} of {share.of} heads, and this needs all of them at once",
                hint="capture, measure, ablate, gate and patch know models that are spread over ranks; "
                "for the rest load the model whole",
            )
        call_index = self.call_index.of(module, path, problem.q)
        call = Call(path, module, call_index, problem, queries, keys, cross, share)
        heads = self.listener(call, run)
        expected = (*problem.q.shape[:3], problem.v.shape[3])
        if heads.shape != expected:
            raise MultiheadError(
                f"the listener returned {tuple(heads.shape)} for {path}, whose heads give {expected}",
                hint="return what run() gives, or a tensor of the same shape",
            )
        return heads

    def _place(self) -> tuple[nn.Module, str] | None:
        """The innermost module of the model that is running, and its path; None if the call is not the model's."""
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # the stack has no public name
        while frame is not None:
            code = frame.f_code
            if code.co_argcount and code.co_varnames[0] == "self":
                owner = id(frame.f_locals.get("self"))
                if owner in self.paths:
                    return self.modules[owner], self.paths[owner]
            frame = frame.f_back
        return None


_BACKWARD = (Tensor.backward, torch.autograd.backward, torch.autograd.grad)
_HEARD = frozenset({F.scaled_dot_product_attention, F.multi_head_attention_forward, attend, *_BACKWARD})


def _by_edges(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[[], Any] | None:
    """The same backward pass, told by edges of the graph: given tensors, it would hand itself to the mode again.

    None where a tensor is no part of a graph, which torch has an error for.
    """
    bound = inspect.signature(func).bind(*args, **kwargs)
    given = {{"self": "tensors", "gradient": "grad_tensors"}.get(n, n): v for n, v in bound.arguments.items()}
    for name in ("tensors", "outputs", "inputs"):
        tensors = given.get(name)
        if tensors is None:
            continue
        listed = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        if not all(isinstance(t, Tensor) and t.requires_grad for t in listed):
            return None
        given[name] = tuple(get_gradient_edge(t) for t in listed)
    return partial(torch.autograd.backward if func is Tensor.backward else func, **given)


def lead_of(q: Tensor, k: Tensor, v: Tensor, *, grouped: bool) -> tuple[int, ...]:
    """All axes of the output before (query, dim): those of q, k and v, which may broadcast."""
    if q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:  # most calls; `broadcast_shapes` takes its time
        return tuple(q.shape[:-2])
    if not grouped or q.ndim < 3:
        return torch.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    return (*torch.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3]), q.shape[-3])


def _four_axes(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, module: nn.Module, path: str, *, grouped: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """q, k, v as (batch, head, token, dim) and the mask as it broadcasts over that, whatever axes are in front."""
    lead = lead_of(q, k, v, grouped=grouped)
    if len(lead) == 1:
        counts = (getattr(module, name, 0) for name in ("num_heads", "num_attention_heads", "n_head", "heads"))
        heads = next((n for n in counts if isinstance(n, int) and n > 1), 1)
        if heads > 1:
            raise MultiheadError(
                f"{path or type(module).__name__} has {heads} heads and gave q of shape {tuple(q.shape)}: "
                "which of the first axis are heads and which are batch rows cannot be told",
                hint="call the kernel with (batch, head, token, dim), or write an adapter: docs/see.md",
            )
    heads = lead[-1:] if len(lead) > 1 else (1,)
    batch = lead[:-1] if len(lead) > 1 else lead or (1,)

    def spread(x: Tensor, own: tuple[int, ...]) -> Tensor:
        """x with all axes in front of (token, dim), the batch ones made one."""
        if len(lead) < 2:
            x = x.unsqueeze(-3)
        return x.expand(*batch, *own, *x.shape[-2:]).reshape(-1, *own, *x.shape[-2:])

    shared = k.shape[-3:-2] if grouped and len(lead) > 1 else heads
    if mask is not None:
        mask = mask.view(*[1] * max(0, 2 - mask.ndim), *mask.shape)
        if mask.ndim > 2:
            mask = mask.unsqueeze(-3) if len(lead) < 2 else mask
            mask = (
                mask.expand(*batch, *mask.shape[-3:]).reshape(-1, *mask.shape[-3:]) if mask.ndim > 3 else mask[None]
            )
    return spread(q, heads), spread(k, shared), spread(v, shared), mask


def _unrepeated(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Key and value heads as the weights have them, where copies were made so that every query head has its own."""
    heads = k.shape[1]
    if heads < 2 or v.shape[1] != heads or k.numel() == 0:
        return k, v
    probe = k[0, :, -1]
    alike = (probe[1:] == probe[:-1]).all(-1).tolist()
    size = next((i + 1 for i, same in enumerate(alike) if not same), heads)
    if size == 1 or heads % size or not (bool(k.any()) or bool(v.any())):  # all zero: heads may be equal by chance
        return k, v
    for x in (k, v):
        parts = x.unflatten(1, (-1, size))
        if not torch.equal(parts[:, :, 1:], parts[:, :, :1].expand_as(parts[:, :, 1:])):
            return k, v
    return k[:, ::size], v[:, ::size]


def _by_mask(problem: Problem, queries: Tokens, keys: Tokens, cross: bool) -> tuple[Tokens, Tokens]:
    """Padding told by the mask, where the model's call did not say: a key that no query may see."""
    frame = problem.frame
    seen: Tensor | None = None
    for part in problem.mask.parts():
        if not isinstance(part, Lengths | Padding | Ragged | TensorMask):
            continue
        rows = ALL if isinstance(part, TensorMask) else slice(0, 1)
        allowed = part.allowed(frame.grid(rows=rows))
        if allowed is not None:
            some = allowed.any(2).any(1).expand(frame.batch, frame.keys)  # batch, key
            seen = some if seen is None else seen & some
    if seen is None or bool(seen.all()):
        return queries, keys
    own = (
        None if cross or frame.queries > frame.keys else seen.gather(1, frame.queries_at().expand(frame.batch, -1))
    )
    return (
        replace(queries, valid=own) if queries.valid is None else queries,
        replace(keys, valid=seen) if keys.valid is None else keys,
    )
