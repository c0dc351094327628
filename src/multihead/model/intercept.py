"""Route every attention call of a model through a listener, without modifying the model.

Attention reaches a kernel through one of three functions, and one TorchFunctionMode intercepts all of them:

- `F.scaled_dot_product_attention`, called from anywhere;
- `F.multi_head_attention_forward`, used by nn.MultiheadAttention (torch skips its fast path under a mode);
- `multihead.layer.attend`, used by our own layer and by every adapter (see `verified_adapters.py`), and
  `attend_as`, used for Hugging Face's attention interface (see `hf_interface.py`).

A mode belongs to one thread, can be nested, and is removed at the end of the block, even after an exception. The
calling module is found by walking the Python stack. Inside the block, hooks on the model read its input ids and
padding, and a hook on each attention module counts its calls (see `call_index.py`).

The first call of every attention is compared with the result of the model's own kernel, and the first output of the
model with its output outside the block (see `verify_kernel.py`, `verify_output.py`).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.overrides import TorchFunctionMode

from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError
from multihead.layer import Problem, attend
from multihead.layer._mask_algebra import Mask
from multihead.layer._mask_cells import TensorMask
from multihead.model.active_interceptions import Interception, heads_are_changed, interception
from multihead.model.attention_modules import AttentionModules
from multihead.model.call import Call, Listener
from multihead.model.call_index import CallIndex
from multihead.model.call_tokens import Inputs
from multihead.model.compiled import has_compiled_parts, inner
from multihead.model.head_sharding import head_shard_of
from multihead.model.hf_interface import through_interface
from multihead.model.kernel_arguments import attend_as, problem_of
from multihead.model.layer_labels import StackNames
from multihead.model.lazy_weights import computed_weights
from multihead.model.mask_padding import KEY_PADDING, padding_from_mask, unpadded_keys, without_ragged_padding
from multihead.model.self_or_cross import EXACT, Sequences
from multihead.model.sites import Site, original_numbers
from multihead.model.torch_mha import as_dropin, verify_dropin
from multihead.model.unseen_attention import unseen_note
from multihead.model.verified_adapters import adapted
from multihead.model.verify_kernel import verify_call
from multihead.model.verify_output import OutputProof

Unseen = Callable[[], str | None]


@contextmanager
def intercept(model: nn.Module, listener: Listener, *, sharded: bool = False) -> Generator[Unseen]:
    """Route every attention call of `model` in this thread through `listener(call, run)`, which returns the output.

    Yields a function that returns a note on the attentions that ran inside the block and were not seen, or None.
    `sharded`: the listener handles calls in which this rank has only some of the heads (see `call.head_shard`).
    """
    root = inner(model)
    with ExitStack() as stack:
        # Walked once, because __torch_function__ runs for every operation. References, so no id can be reused.
        named = list(root.named_modules())
        block = stack.enter_context(interception({id(module): module for _, module in named}))
        paths = {id(module): name.replace("_orig_mod.", "") for name, module in named}
        mode = InterceptMode(root, listener, sharded, block, paths)
        if has_compiled_parts(model):
            # Modes do not see inside a compiled graph, so run the model eagerly inside the block.
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(through_interface())
        stack.enter_context(adapted(root))
        stack.callback(root.register_forward_pre_hook(mode.begin, with_kwargs=True).remove)
        stack.callback(root.register_forward_hook(mode.end, always_call=True).remove)
        stack.callback(mode.close)
        mode.sequences.watch(root, mode.attentions)
        stack.enter_context(mode)
        yield lambda: unseen_note(mode.attentions.unseen(mode.sequences.called, mode.seen), len(mode.seen))


class InterceptMode(TorchFunctionMode):
    """Passes attention calls to the listener, and runs all other functions unchanged."""

    def __init__(
        self, model: nn.Module, listener: Listener, sharded: bool, block: Interception, paths: Mapping[int, str]
    ) -> None:
        super().__init__()
        self.listener, self.sharded, self.block, self.paths = listener, sharded, block, paths
        self.inputs = Inputs()
        self.call_index = CallIndex(lambda: block.active)
        self.sequences = Sequences(lambda: block.active)
        self.output_proof = OutputProof(model)
        self.attentions = AttentionModules.of(model)
        self.stack_names = StackNames(self.paths.values(), self.attentions.innermost)
        self.seen: set[str] = set()
        """paths of the modules that called a kernel"""

    def begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Begin to intercept a forward: pre-forward hook of the model."""
        if self.block.active:
            self.block.changed = False
            self.call_index.begin()
            self.sequences.begin()
            self.inputs.read(module, args, kwargs)
            self.output_proof.begin(args, kwargs)

    def end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> object:
        """End of an intercepted forward, a hook; returns the output. `output` is None if the forward raised."""
        if self.block.active:
            self.call_index.end()
            output = computed_weights(output)
            self.inputs.keep(output)
            if output is not None and not heads_are_changed():
                self.output_proof.end(output)
        return output

    def close(self) -> None:
        """Stop intercepting: remove all hooks and forget the inputs, as the mode is part of a reference cycle."""
        self.call_index.close()
        self.sequences.close()
        self.inputs = Inputs()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        active = self.block.active
        if func not in _INTERCEPTED or not active:  # the common case: first, for speed
            out = func(*args, **kwargs)
            if active and self.sequences.running:
                self.sequences.follow(func, args, kwargs, out)
            return out
        if func is F.scaled_dot_product_attention:
            return self._fused(func, *args, **kwargs)
        if func is attend or func is attend_as:
            return self._attend(func, *args, **kwargs)
        if func is F.multi_head_attention_forward:
            return self._torch_mha(func, args, kwargs)
        if func in _BACKWARD and (backward := _with_edges(func, *args, **kwargs)) is not None:
            with self:  # checkpointed layers run again during backward, and need the same listener
                return backward()
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
        """Intercept a call of torch's fused kernel."""

        def run() -> Tensor:
            """Run the intercepted kernel as the model called it."""
            return func(
                query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale,
                enable_gqa=enable_gqa,
            )  # fmt: skip

        caller = self._calling_module()
        if caller is None:
            return run()
        module, path = caller
        q, k, v, mask = _four_axes(query, key, value, attn_mask, module, path, grouped=enable_gqa)
        k, v = _without_repeats(k, v)
        cross = self.sequences.cross(query, key, value) or q.shape[2] > k.shape[2]
        problem = problem_of(q, k, v, mask=mask, top_left=is_causal, scale=scale, dropout=dropout_p, cross=cross)

        def compute() -> HeadOutputs:
            """Run the intercepted kernel, and verify its output on the first call of a module."""
            heads = run().reshape(*q.shape[:3], v.shape[3])
            if dropout_p == 0 and not heads_are_changed() and self.block.first(path):
                verify_call(path, problem, heads)
            return heads

        heads = self._listen(module, path, cross, problem, compute)
        out = heads.reshape(*_lead_of(query, key, value, grouped=enable_gqa), query.shape[-2], value.shape[-1])
        self.sequences.attended(query, out)
        return out

    def _torch_mha(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Intercept F.multi_head_attention_forward by the drop-in, whose `attend` is intercepted."""
        changed, self.block.changed = self.block.changed, False
        with self:  # torch disables the mode in here
            output = as_dropin(*args, **kwargs)
        caller = self._calling_module()
        if caller is not None and not heads_are_changed() and self.block.first(caller[1]):
            verify_dropin(caller[1], output[0], func, args, kwargs)
        self.block.changed |= changed
        return output

    def _attend(
        self, func: Callable[..., HeadOutputs], problem: Problem, route_or_compute: Any = None
    ) -> HeadOutputs:
        """Intercept a call of multihead's own `attend`."""
        caller = self._calling_module()
        if caller is None:
            return func(problem, route_or_compute)
        module, path = caller
        if problem.coordinates.shard is not None:
            raise MultiheadError(
                f"{path}: heads cannot be observed while the {problem.coordinates.keys} keys are split over ranks",
                hint="run the model outside multihead.parallel.context_parallel",
            )
        cross, size = problem.cross, problem.coordinates
        if not isinstance(module, EXACT):
            cross = self.sequences.cross(problem.q, problem.k, problem.v) or size.queries > size.keys
            if cross and size.query_positions is not None:  # read from the mask, as those of a static cache
                problem = replace(problem, coordinates=replace(size, query_positions=None))
        out = self._listen(module, path, cross, problem, lambda: func(problem, route_or_compute))
        self.sequences.attended(problem.q, out)
        return out

    def _listen(
        self, module: nn.Module, path: str, cross: bool, problem: Problem, run: Callable[[], HeadOutputs]
    ) -> HeadOutputs:
        """Pass an intercepted call to the listener, with its site and its tokens."""
        self.seen.add(path)
        call_index = self.call_index.of(module, path, problem.q)
        stack, layer = self.stack_names.of(path, call_index, cross=cross)
        queries, keys = self.inputs.of_call(stack, cross, problem.coordinates)
        unknown = keys.ids is None and keys.valid is None and not cross
        if unknown and (visible := unpadded_keys(problem, KEY_PADDING)) is not None:
            padded = self.inputs.padded_by_model(stack, problem.coordinates, visible)
            queries, keys = (queries, keys) if padded is None else (padded, padded)
        if queries.valid is None or keys.valid is None:
            parts: tuple[type[Mask], ...] = ()
            if isinstance(module, EXACT):
                parts = KEY_PADDING
            elif self.inputs.padded and keys.valid is None and (queries.valid is None or cross):
                # The model has made its mask from the user's: audio frames, patches.
                parts = (*KEY_PADDING, TensorMask)
            queries, keys = padding_from_mask(problem, queries, keys, cross, parts)
            queries, keys = self.inputs.without_silence(stack, cross, problem.coordinates, queries, keys)
        queries, keys = without_ragged_padding(problem, queries, keys)
        shard = head_shard_of(module, problem)
        if shard is not None and not self.sharded:
            raise MultiheadError(
                f"{path}: this function needs all {shard.all_heads} heads, but this rank has {len(shard.heads)}",
                hint="capture, measure, ablate, gate and patch support models sharded over ranks; "
                "for anything else, load the whole model on one rank",
            )
        all_heads = problem.coordinates.heads if shard is None else shard.all_heads
        numbers = original_numbers(module, all_heads)
        site = Site(path, call_index, stack, layer, all_heads, cross, numbers)
        call = Call(site, module, problem, queries, keys, shard)
        computed: list[HeadOutputs] = []

        def compute() -> HeadOutputs:
            computed.append(run())
            return computed[-1]

        heads = self.listener(call, compute)
        self.block.changed |= not any(heads is one for one in computed)
        expected = (*problem.q.shape[:3], problem.v.shape[3])
        if heads.shape != expected:
            raise MultiheadError(
                f"{path}: the listener must return shape {expected}, got {tuple(heads.shape)}",
                hint="return the result of run(), or a tensor of the same shape",
            )
        return heads

    def _calling_module(self) -> tuple[nn.Module, str] | None:
        """The module that makes the intercepted call: the innermost one running; None if not the model's call."""
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # no public equivalent
        while frame is not None:
            code = frame.f_code
            if code.co_argcount and code.co_varnames[0] == "self":
                owner = id(frame.f_locals.get("self"))
                if owner in self.paths:
                    return self.block.modules[owner], self.paths[owner]
            frame = frame.f_back
        return None


_BACKWARD = (Tensor.backward, torch.autograd.backward, torch.autograd.grad)
_INTERCEPTED = frozenset(
    {F.scaled_dot_product_attention, F.multi_head_attention_forward, attend, attend_as, *_BACKWARD}
)


def _with_edges(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[[], Any] | None:
    """The intercepted backward with graph edges in place of tensors: tensor arguments would trigger the mode again.

    None if a tensor is not part of a graph; torch itself raises the error then.
    """
    bound = inspect.signature(func).bind(*args, **kwargs)
    arguments = {{"self": "tensors", "gradient": "grad_tensors"}.get(n, n): v for n, v in bound.arguments.items()}
    for name in ("tensors", "outputs", "inputs"):
        argument = arguments.get(name)
        if argument is None:
            continue
        tensors = [argument] if isinstance(argument, Tensor) else list(argument)
        if not all(isinstance(t, Tensor) and t.requires_grad for t in tensors):
            return None
        arguments[name] = tuple(get_gradient_edge(t) for t in tensors)
    return partial(torch.autograd.backward if func is Tensor.backward else func, **arguments)


def _lead_of(q: Tensor, k: Tensor, v: Tensor, *, grouped: bool) -> tuple[int, ...]:
    """The leading axes of an intercepted output, before (query, dim): those of q, k and v, broadcast."""
    if q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:  # most calls; `broadcast_shapes` is slow
        return tuple(q.shape[:-2])
    if not grouped or q.ndim < 3:
        return torch.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    return (*torch.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3]), q.shape[-3])


def _four_axes(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, module: nn.Module, path: str, *, grouped: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Intercepted q, k, v of any leading axes as (batch, head, token, dim), and a mask that broadcasts."""
    lead = _lead_of(q, k, v, grouped=grouped)
    if len(lead) == 1:
        counts = (getattr(module, name, 0) for name in ("num_heads", "num_attention_heads", "n_head", "heads"))
        heads = next((n for n in counts if isinstance(n, int) and n > 1), 1)
        if heads > 1:
            raise MultiheadError(
                f"{path or type(module).__name__} has {heads} heads, but calls the kernel with q of shape "
                f"{tuple(q.shape)}: its first axis may hold heads or batch rows",
                hint="call the kernel with (batch, head, token, dim), or write an @multihead.model.adapter",
            )
    heads = lead[-1:] if len(lead) > 1 else (1,)
    batch = lead[:-1] if len(lead) > 1 else lead or (1,)

    def flatten_batch(x: Tensor, head_axis: tuple[int, ...]) -> Tensor:
        """x of an intercepted call over all leading axes, with the batch axes merged into one."""
        if len(lead) < 2:
            x = x.unsqueeze(-3)
        return x.expand(*batch, *head_axis, *x.shape[-2:]).reshape(-1, *head_axis, *x.shape[-2:])

    k_heads, v_heads = (x.shape[-3:-2] if grouped and len(lead) > 1 else heads for x in (k, v))
    if mask is not None:
        mask = mask.view(*[1] * max(0, 2 - mask.ndim), *mask.shape)
        if mask.ndim > 2:
            mask = mask.unsqueeze(-3) if len(lead) < 2 else mask
            mask = (
                mask.expand(*batch, *mask.shape[-3:]).reshape(-1, *mask.shape[-3:]) if mask.ndim > 3 else mask[None]
            )
    return flatten_batch(q, heads), flatten_batch(k, k_heads), flatten_batch(v, v_heads), mask


def _without_repeats(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Intercepted k and v without the copies that grouped-query models make of each KV head."""
    heads = k.shape[1]
    if heads < 2 or v.shape[1] != heads or k.numel() == 0:
        return k, v
    probe = k[0, :, -1]
    same_as_next = (probe[1:] == probe[:-1]).all(-1).tolist()
    size = next((i + 1 for i, same in enumerate(same_as_next) if not same), heads)
    if size == 1 or heads % size or not (bool(k.any()) or bool(v.any())):  # zeros are equal, but not copies
        return k, v
    for x in (k, v):
        parts = x.unflatten(1, (-1, size))
        if not torch.equal(parts[:, :, 1:], parts[:, :, :1].expand_as(parts[:, :, 1:])):
            return k, v
    return k[:, ::size], v[:, ::size]
