"""Hugging Face's attention interface: temporarily route models that do not use sdpa to multihead's kernel.

Gemma 2 (softcap) and GPT-OSS (sinks) default to eager attention, which stores every map. Inside the block their
configs name multihead's function, which computes the same values in memory linear in tokens; on exit the configs
are restored. Models that use sdpa are not changed: `F.scaled_dot_product_attention` is intercepted anyway.
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

NAME = "multihead"
GROUPED = "multihead-grouped"  # of cut models, permanently: see edit/physical/kernels.py
_FIELD = "_attn_implementation_internal"
_users = 0
_lock = Lock()


@contextmanager
def through_interface(model: nn.Module) -> Generator[None]:
    """Inside the block, configs that name a kernel other than sdpa name multihead's."""
    configs = _configs_to_switch(model)
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
        _unregister()


def _configs_to_switch(model: nn.Module) -> list[Any]:
    """Configs whose modules would get a kernel from the interface that cannot be intercepted."""
    configs: dict[int, Any] = {}
    for module in model.modules():
        config = vars(module).get("config")  # faster than getattr: most modules have no config
        if config is None:
            continue
        name = getattr(config, _FIELD, None)
        source = sys.modules.get(type(module).__module__)
        if (
            isinstance(name, str)
            and name not in ("sdpa", NAME, GROUPED)
            and hasattr(source, "ALL_ATTENTION_FUNCTIONS")
        ):
            configs[id(config)] = config
    return list(configs.values())


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    global _users
    with _lock:
        _users += 1
        AttentionInterface.register(NAME, attention)
        AttentionMaskInterface.register(NAME, sdpa_mask)  # returns None where is_causal suffices


def _unregister() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface

    global _users
    with _lock:
        _users -= 1
        if not _users:  # a different block or thread may still use it
            for registry in (AttentionInterface, AttentionMaskInterface):
                registry._global_mapping.pop(NAME, None)  # pyright: ignore[reportPrivateUsage]  # there is no public unregister


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
    """An attention function as the interface defines it; returns (batch, query, head, dim) and no weights."""
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = bool(causal) and attention_mask is None and query.shape[2] > 1
    if attention_mask is not None and attention_mask.ndim == 4:
        attention_mask = attention_mask[..., : key.shape[2]]
    mask = mask_of(attention_mask)
    if position_bias is not None:
        mask = mask & masks.additive(position_bias)
    problem = problem_of(
        query, key, value, mask=mask, top_left=causal, scale=scaling, softcap=softcap, sinks=s_aux,
        dropout=dropout,
    )  # fmt: skip
    return attend(problem).transpose(1, 2), None
