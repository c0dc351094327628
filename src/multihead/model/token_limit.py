"""The number of tokens that a model accepts: its learned positions, or the length that its config names.

>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.model.token_limit import learned_positions, token_limit
>>> model = GPT2Model(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=31, n_positions=64))
>>> learned_positions(model), token_limit(model)
(64, 64)
"""

from __future__ import annotations

from torch import nn


def token_limit(model: nn.Module) -> int | None:
    """The largest number of tokens that a model accepts or was made for; None if it has no limit."""
    return learned_positions(model) or _positions_of_config(model)


def learned_positions(model: nn.Module) -> int | None:
    """The size of a model's table of learned positions; None if positions are computed."""
    limit = _positions_of_config(model)
    if limit is None:
        return None
    for name, table in model.named_modules():
        if not isinstance(table, nn.Embedding) or not ("position" in name or name.endswith("wpe")):
            continue
        if table.num_embeddings == limit and table.padding_idx is not None:
            return limit - table.padding_idx - 1  # RoBERTa: the limit includes the rows before the first position
        if table.num_embeddings in (limit, limit + 2):  # OPT and BART add two rows
            return limit
    return None


def _positions_of_config(model: nn.Module) -> int | None:
    """The number of positions that the config of a model names."""
    config = getattr(model, "config", None)
    for name in ("max_position_embeddings", "n_positions"):
        limit = getattr(config, name, None)
        if isinstance(limit, int) and limit > 0:
            return limit
    return None
