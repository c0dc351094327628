"""The attention modules of textbooks and tutorials: read them, and stand in for them.

They agree on forward(q, k, v, mask) and on a mask of 0 and 1 where 0 hides, and differ in attribute names.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from multihead.errors import SizeError, TypeMismatchError
from multihead.layer import mask as masks
from multihead.layer.attention import MultiHeadAttention
from multihead.layer.mask import Mask

HEAD_COUNTS = ("num_heads", "n_heads", "heads", "h", "n_head", "nhead", "nheads", "num_head")


def from_module(module: nn.Module, *, num_heads: int | None = None, strict: bool = True) -> MultiHeadAttention:
    """The layer with a copy of the weights of a textbook module, recognised by its attribute names.

    The number of heads is read from `num_heads`, `n_heads`, `heads` or `h`, dropout from `dropout`. What the
    module computes with its weights cannot be read: this is right for softmax(q kᵀ / √d) v. Compare once.
    """
    from multihead.layer.interop import from_state_dict, from_torch  # they import this module

    if isinstance(module, nn.MultiheadAttention):
        return from_torch(module)
    if hasattr(module, "config"):
        raise TypeMismatchError(
            f"{type(module).__name__} has a config: it may rotate, bias or scale in ways its weights do not show",
            hint="from_state_dict(module.state_dict(), num_heads=..., position=...) lets you say so",
        )
    heads = num_heads if num_heads is not None else _head_count(module)
    attn = from_state_dict(module.state_dict(), num_heads=heads, strict=strict, dropout=_dropout(module))
    return attn.train(module.training)


def textbook_mask(mask: Tensor) -> Mask:
    """mask != 0: the textbook's mask of 0 and 1, 0 = hidden, of bool, integer or float.

    Shapes: (query, key), (batch | 1, query, key), (batch, 1, key), (batch, 1, 1, key), (batch, 1 | head, query,
    key). A row of zeros gives zeros, where a textbook's -1e9 gives the mean of all values.
    """
    if not 2 <= mask.ndim <= 4:
        raise SizeError(
            f"a textbook mask has 2 to 4 dimensions, this has shape {tuple(mask.shape)}",
            hint="(query, key), (batch, query, key), or (batch, 1, query, key); key padding is (batch, 1, 1, key)",
        )
    allowed = mask if mask.dtype == torch.bool else mask != 0
    if mask.dtype != torch.bool and not torch.compiler.is_compiling() and bool((allowed & (mask != 1)).any()):
        wrong = mask[allowed & (mask != 1)][0].item()
        raise SizeError(
            f"a textbook mask holds 0 (hidden) and 1 (visible), this holds {wrong}",
            hint="a mask that is added to the scores is mask.additive(t), passed to MultiHeadAttention",
        )
    if allowed.ndim > 2 and allowed.shape[1:-1].numel() == 1:
        return masks.padding(allowed.reshape(allowed.shape[0], allowed.shape[-1]))
    return masks.tensor(allowed)


class Textbook(nn.Module):
    """MultiHeadAttention behind the textbook's signature: forward(q, k, v, mask=None), 0 = hidden.

    It loads state dicts of every layout that `multihead.interop` knows, textbook names included; its own are
    attn.q_proj, attn.k_proj, attn.v_proj and attn.o_proj.

    >>> import torch
    >>> layer = Textbook(64, 4)
    >>> x = torch.randn(2, 7, 64)
    >>> layer(x, x, x, torch.ones(7, 7).tril()).shape
    torch.Size([2, 7, 64])
    """

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.0, *, bias: bool = True) -> None:
        super().__init__()
        self._hold(MultiHeadAttention(d_model, num_heads, bias=bias, dropout=dropout))

    @classmethod
    def holding(cls, attn: MultiHeadAttention) -> Textbook:
        """The signature around a layer that exists, for example from `from_module`."""
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._hold(attn)
        return layer.train(attn.training)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Concat(head_1..head_h) W_O, where mask == 0 hides a key from a query."""
        same = q is k and k is v
        allowed = None if mask is None else textbook_mask(mask)
        return self.attn(q, None if same else k, None if same else v, mask=allowed)

    def _hold(self, attn: MultiHeadAttention) -> None:
        self.attn = attn
        self.register_load_state_dict_pre_hook(_rename_keys)


def _rename_keys(layer: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    """Before loading: the keys of any known layout become ours."""
    from multihead.layer.interop import from_state_dict, to_state_dict  # they import this module

    assert isinstance(layer, Textbook)
    mine = {key: x for key, x in state.items() if key.startswith(prefix)}
    if mine and not any(key.startswith(f"{prefix}attn.") for key in mine):
        attn = layer.attn
        read = from_state_dict(
            mine, prefix=prefix, num_heads=attn.num_heads, num_kv_heads=attn.num_kv_heads, head_dim=attn.head_dim
        )
        for key in mine:
            del state[key]
        state.update(to_state_dict(read, prefix=f"{prefix}attn."))


def _head_count(module: nn.Module) -> int:
    found = {name: cast(object, getattr(module, name)) for name in HEAD_COUNTS if hasattr(module, name)}
    counts = {name: n for name, n in found.items() if isinstance(n, int)}
    if len(set(counts.values())) != 1:
        raise SizeError(
            f"{type(module).__name__} does not say how many heads it has: found {counts or 'none'} of "
            f"{', '.join(HEAD_COUNTS)}",
            hint="pass num_heads=",
        )
    return next(iter(counts.values()))


def _dropout(module: nn.Module) -> float:
    found: object = getattr(module, "dropout", 0.0)
    if isinstance(found, nn.Dropout):
        return found.p
    return float(found) if isinstance(found, float | int) else 0.0
