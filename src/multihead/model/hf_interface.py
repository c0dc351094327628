"""Hugging Face's attention interface: see the attention functions of models that do not use sdpa.

Attention modules of transformers ask `ALL_ATTENTION_FUNCTIONS.get_interface(name, eager)` for their function.
"sdpa" ends in `F.scaled_dot_product_attention`, which is intercepted anyway. Any other function (eager,
flex_attention, one that the user registered) is replaced inside the block by multihead's kernel, which computes
the same values in memory linear in tokens. It gets the arguments that the model made for its own function, so the
mask is the model's own, and no config is touched. On the first call of every module both functions must agree. The
weights that an eager function returns are computed where the model reads them (see `lazy_weights.py`).
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import lru_cache, partial
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_mask

from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError
from multihead.layer import Problem, attend
from multihead.layer import mask as masks
from multihead.layer._mask_algebra import Mask
from multihead.model.active_interceptions import interception_of
from multihead.model.kernel_arguments import HIDES, attend_as, mask_of, problem_of, unobserved
from multihead.model.lazy_weights import LazyWeights
from multihead.model.verify_kernel import largest_difference

AttentionFunction = Callable[..., tuple[Tensor, Tensor | None]]

GROUPED = "multihead-grouped"
"""The attention function of cut models, see edit/surgery/kv_reuse.py; it takes its kernel from the interface."""

_UNDERSTOOD = frozenset({"scaling", "dropout", "softcap", "s_aux", "position_bias"})
_NO_EFFECT = frozenset({"kernel_options", "output_attentions"})  # on the values
_lock = Lock()
_users = 0
_original: Callable[..., AttentionFunction] | None = None


@contextmanager
def through_interface() -> Generator[None]:
    """Inside the block, intercepted modules get multihead's kernel in place of any function but sdpa."""
    transformers: Any = sys.modules.get("transformers.modeling_utils")
    if transformers is None:  # no model of transformers can exist
        yield
        return
    _install(transformers.AttentionInterface)
    try:
        yield
    finally:
        _uninstall(transformers.AttentionInterface)


def _install(interface: Any) -> None:
    """Replace `get_interface` of Hugging Face for the first user."""
    global _users, _original
    with _lock:
        _users += 1
        if _users == 1:
            _original = original = interface.get_interface

            def get_interface(self: Any, attn_implementation: str, default: AttentionFunction) -> AttentionFunction:
                """Hugging Face's `get_interface`, with multihead's kernel for intercepted modules."""
                function = original(self, attn_implementation, default)
                if attn_implementation in ("sdpa", GROUPED):
                    return function
                return partial(_attention, function, function is default)  # the default is the eager function

            interface.get_interface = get_interface


def _uninstall(interface: Any) -> None:
    """Restore `get_interface` of Hugging Face after the last user."""
    global _users, _original
    with _lock:
        _users -= 1
        if not _users:  # another block or thread may still use it
            interface.get_interface, _original = _original, None


def _attention(
    function: AttentionFunction,
    returns_weights: bool,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """The result of a Hugging Face attention function, and its weights if it is eager."""
    block = interception_of(module)
    original = partial(function, module, query, key, value, attention_mask, **options)
    if block is None:
        return original()
    _check_options(function, module, options)
    mask = _dense(attention_mask, query, key)
    problem = _problem(function, module, query, key, value, mask, options)

    def compute() -> HeadOutputs:
        """Compute the heads of a Hugging Face attention, verified on the first call."""
        heads = attend(problem)
        if mask is not None and mask.is_floating_point():
            heads = _with_empty_rows(heads, function, module, query, key, value, mask, options)
        if problem.scores.dropout == 0 and block.first((id(module), function)):
            _verify(module, heads, original)
        return heads

    heads = attend_as(problem, compute).transpose(1, 2).contiguous()
    return heads, LazyWeights(lambda: original()[1], query, key) if returns_weights else None


def _problem(
    function: AttentionFunction,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    options: dict[str, Any],
) -> Problem:
    """The problem that a Hugging Face attention function solves: the options that its code reads, and no others."""
    values = {name: options.get(name) if _reads(function, name) else None for name in _UNDERSTOOD}
    rule: Mask = mask_of(mask)
    if values["position_bias"] is not None:
        rule = rule & masks.additive(values["position_bias"])
    sinks = getattr(module, "sinks", None) if _reads(function, "sinks") else values["s_aux"]
    return problem_of(
        query, key, value, mask=rule, scale=values["scaling"], softcap=values["softcap"], sinks=sinks,
        dropout=values["dropout"] or 0.0 if module.training else 0.0,
    )  # fmt: skip


def _dense(mask: Any, query: Tensor, key: Tensor) -> Tensor | None:
    """The mask of a Hugging Face call as a tensor over its keys."""
    if isinstance(mask, BlockMask):
        batch, heads = mask.shape[:2]
        return create_mask(mask.mask_mod, batch, heads, query.shape[2], key.shape[2], str(query.device))
    if mask is None or (isinstance(mask, Tensor) and mask.ndim == 4):
        return None if mask is None else mask[..., : key.shape[2]]
    shape = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
    raise MultiheadError(
        "the mask of an attention function must be None, a BlockMask or a tensor (batch, head, query, key), got "
        f"{shape}",
        hint='use attn_implementation="sdpa" or "eager": model.set_attn_implementation("sdpa")',
    )


def _with_empty_rows(
    heads: HeadOutputs,
    function: AttentionFunction,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    options: dict[str, Any],
) -> HeadOutputs:
    """`heads`, with rows that see no key (padding on the left) as the model computes them: a mean of all values."""
    mask = mask.expand(-1, -1, query.shape[2], -1)
    empty = (mask <= HIDES).all(-1)  # batch, head, query
    if not bool(empty.any()):
        return heads
    rows = empty.any(0).any(0).nonzero()[:, 0]
    if options.get("position_bias") is not None:
        bias: Tensor = options["position_bias"]  # it may differ between heads where the mask does not
        options = options | {"position_bias": bias.expand(-1, -1, query.shape[2], -1)[:, :, rows]}
    original = function(module, query[:, :, rows], key, value, mask[:, :, rows], **options)[0].transpose(1, 2)
    return heads.index_copy(2, rows, torch.where(empty[:, :, rows, None], original, heads[:, :, rows]))


def _verify(module: nn.Module, heads: HeadOutputs, original: Callable[[], tuple[Any, ...]]) -> None:
    """Raise unless the Hugging Face attention function computes softmax(scores) v."""
    with unobserved():
        difference = largest_difference(heads, original()[0].transpose(1, 2))
    if difference is not None:
        raise MultiheadError(
            f"the attention function of {type(module).__name__} computes something else than softmax(scores) v: "
            f"the head outputs differ by {difference}",
            hint='use another attention function, model.set_attn_implementation("sdpa"), or write an adapter: '
            "@multihead.model.adapter(ItsClass)",
        )


def _check_options(function: AttentionFunction, module: nn.Module, options: dict[str, Any]) -> None:
    """Raise if a Hugging Face attention function reads an option that multihead does not know."""
    for name, value in options.items():
        known = name in _UNDERSTOOD or name in _NO_EFFECT or value is None or value is False
        if not known and _reads(function, name):
            raise MultiheadError(
                f"{type(module).__name__} passes {name}= to its attention function {_name(function)}, and "
                "multihead does not support this argument",
                hint='use another attention function, model.set_attn_implementation("sdpa"), or write an adapter: '
                f"@multihead.model.adapter({type(module).__name__})",
            )


def _reads(function: AttentionFunction, name: str) -> bool:
    """Whether the code of a function reads an argument or attribute of this name."""
    names = _names_read(function)
    return names is None or name in names


@lru_cache
def _names_read(function: AttentionFunction) -> frozenset[str] | None:
    """Names that an attention function reads: arguments, attributes, strings as in kwargs.get("s_aux"), or None"""
    if not hasattr(function, "__code__"):
        return None
    names: set[str] = set()
    for instruction in dis.get_instructions(function):
        if instruction.opname.startswith("LOAD_"):
            loaded = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
            names |= {name for name in loaded if isinstance(name, str)}
    return frozenset(names)


def _name(function: AttentionFunction) -> str:
    return getattr(function, "__name__", type(function).__name__)
