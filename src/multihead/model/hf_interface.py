"""Hugging Face's attention interface: models that would run another kernel than sdpa run ours, for a while.

Gemma 2 (softcap) and GPT-OSS (sinks) default to eager, which writes every map out. In the block their configs
name our function instead, which computes the same numbers in memory linear in tokens; afterwards they name what
they named before. A model that runs sdpa is left alone: `F.scaled_dot_product_attention` is seen anyway.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from torch import Tensor, nn

from multihead.layer import mask as masks
from multihead.layer.routes import attend
from multihead.model.kernel_arguments import mask_of, problem_of
from multihead.model.sites import is_cross

NAME = "multihead"
GROUPED = "multihead-grouped"  # of cut models, for good: see edit/physical/kernels.py
_FIELD = "_attn_implementation_internal"
_users = 0
_lock = Lock()


@contextmanager
def through_interface(model: nn.Module) -> Generator[None]:
    """Configs that name another kernel than sdpa name ours within the block."""
    configs = _configs(model)
    if not configs:
        yield
        return
    before = [(config, getattr(config, _FIELD)) for config in configs]
    _register()
    try:
        for config in configs:
            setattr(config, _FIELD, NAME)
        yield
    finally:
        for config, name in before:
            setattr(config, _FIELD, name)
        _forget()


def _configs(model: nn.Module) -> list[Any]:
    """The configs whose modules ask the interface for a kernel, and would get one that nobody sees."""
    found: dict[int, Any] = {}
    for module in model.modules():
        config = vars(module).get("config")  # not getattr: most modules have none, and would look long for it
        if config is None:
            continue
        name = getattr(config, _FIELD, None)
        home = sys.modules.get(type(module).__module__)
        if (
            isinstance(name, str)
            and name not in ("sdpa", NAME, GROUPED)
            and hasattr(home, "ALL_ATTENTION_FUNCTIONS")
        ):
            found[id(config)] = config
    return list(found.values())


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    global _users
    with _lock:
        _users += 1
        AttentionInterface.register(NAME, attention)
        AttentionMaskInterface.register(NAME, sdpa_mask)  # None where the causal flag says it all


def _forget() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface

    global _users
    with _lock:
        _users -= 1
        if not _users:  # another block, maybe in another thread, may still need it
            for registry in (AttentionInterface, AttentionMaskInterface):
                registry._global_mapping.pop(NAME, None)  # pyright: ignore[reportPrivateUsage]  # it has no way to unregister


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """(batch, query, head, dim): what the interface asks of an attention function."""
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = bool(causal) and attention_mask is None and query.shape[2] > 1
    if attention_mask is not None and attention_mask.ndim == 4:
        attention_mask = attention_mask[..., : key.shape[2]]
    mask = mask_of(attention_mask)
    if position_bias is not None:
        mask = mask & masks.additive(position_bias)
    cross = is_cross(type(module).__name__)
    problem = problem_of(
        query, key, value, mask=mask, top_left=causal, scale=scaling, softcap=softcap, sinks=s_aux,
        dropout=dropout, cross=cross,
    )  # fmt: skip
    return attend(problem).transpose(1, 2), None
