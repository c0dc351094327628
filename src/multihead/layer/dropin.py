"""A drop-in replacement of nn.MultiheadAttention: same signature, masks and state dict, fewer surprises.

>>> import torch
>>> from multihead.layer.dropin import MultiheadAttention
>>> mha = MultiheadAttention(64, 4, batch_first=True)
>>> x = torch.randn(2, 7, 64)
>>> out, weights = mha(x, x, x, is_causal=True)
>>> out.shape, weights.shape
(torch.Size([2, 7, 64]), torch.Size([2, 7, 7]))

Here, and only here, True in a bool mask means *hidden*, as in torch. Differences from torch:

| call                              | torch 2.x                                       | here                       |
|-----------------------------------|-------------------------------------------------|----------------------------|
| is_causal=True, attn_mask=None    | fast path: not masked at all; otherwise an error| causal                     |
| is_causal=True with an attn_mask  | one of the two, depending on need_weights       | both                       |
| a row that sees no key            | NaN (fast path or need_weights), otherwise 0    | zeros, weights zero too    |
| need_weights                      | changes the kernel, and the mask (see above)    | never changes the output   |
| weights with dropout in training  | after dropout                                   | before dropout             |
| NaN under a hidden key            | reaches the output                              | does not                   |
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from multihead._base.arguments import (
    allocating,
    check_count,
    check_device_and_dtype,
    check_instance,
    check_number,
    check_tensor,
)
from multihead._base.lazy_names import listed_names
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer import mask as masks
from multihead.layer._attend import attend
from multihead.layer._coordinates import Coordinates
from multihead.layer._mask_algebra import Mask
from multihead.layer._mask_cells import Additive
from multihead.layer._problem import Groups, Problem, ScoreConfig
from multihead.layer.layer_options import head_dim_of
from multihead.layer.outputs import Cells, weights_of

__all__ = ["MultiheadAttention", "replace_all"]
__dir__ = listed_names(__name__)


class MultiheadAttention(nn.MultiheadAttention):
    """MultiHead(Q, K, V) = Concat(head_1..head_h) W_O, with the signature of nn.MultiheadAttention.

    A subclass with the same parameters, state dict and initial weights; only the computation differs.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        sizes = {"embed_dim": embed_dim} | {n: d for n, d in (("kdim", kdim), ("vdim", vdim)) if d is not None}
        for name, size in sizes.items():
            check_count(name, size)
        check_count("num_heads", num_heads, least=0)
        check_number("dropout", dropout, least=0.0, most=1.0)
        check_device_and_dtype(device, dtype)
        head_dim_of(embed_dim, num_heads)
        with allocating(**sizes):
            super().__init__(
                embed_dim,
                num_heads,
                dropout,
                bias,
                add_bias_kv,
                add_zero_attn,
                kdim,
                vdim,
                batch_first,
                device,
                dtype,
            )
        disable_fast_path(self)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """(out, weights or None), as from nn.MultiheadAttention: batch second unless batch_first; also unbatched.

        Args:
            key_padding_mask: (batch, key), True = hidden, or float, added to the scores of that key.
            attn_mask: (query, key) or (batch · head, query, key), True = hidden, or float, added.
            average_attn_weights: return the mean over heads (batch, query, key), otherwise one map per head.
            is_causal: hide later keys; with fewer queries than keys the last query is at the last key.
        """
        if getattr(query, "is_nested", False):
            _check_nested(query, key, attn_mask, key_padding_mask, is_causal)
            return self._forward_nested(query, key, value, need_weights, average_attn_weights, is_causal)
        _check(self, query, key, value)
        q, k, v = self._project(query, key, value)
        if query.ndim == 3:
            out, weights = self._attend(
                q, k, v, attn_mask, key_padding_mask, is_causal, need_weights, cross=key is not query
            )
        else:
            hidden = key_padding_mask.unsqueeze(0) if isinstance(key_padding_mask, Tensor) else key_padding_mask
            batch_axis = 0 if self.batch_first else 1
            q, k, v = q.unsqueeze(batch_axis), k.unsqueeze(batch_axis), v.unsqueeze(batch_axis)
            out, weights = self._attend(q, k, v, attn_mask, hidden, is_causal, need_weights, cross=key is not query)
            out, weights = out.squeeze(batch_axis), None if weights is None else weights.squeeze(0)
        return out, weights.mean(-3) if weights is not None and average_attn_weights else weights

    def _attend(
        self,
        q: Float[Tensor, "one two heads_width"],
        k: Float[Tensor, "... kv_width"],
        v: Float[Tensor, "... kv_width"],
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool,
        need_weights: bool,
        *,
        cross: bool,
        batch_first: bool | None = None,
    ) -> tuple[Float[Tensor, "one two width"], Float[Tensor, "batch head query key"] | None]:
        """Output and weights of the drop-in from the projected q, k and v."""
        batch_first = self.batch_first if batch_first is None else batch_first
        q, k, v = (_heads(x, self.head_dim, batch_first) for x in (q, k, v))
        mask = _mask(q, k, attn_mask, key_padding_mask, is_causal, extra=self._extra_keys)
        k, v = self._with_extra_keys(k, v)
        coordinates = Coordinates(q.shape[0], self.num_heads, q.shape[2], k.shape[2], q.device)
        scores = ScoreConfig(self.head_dim**-0.5, dropout=self.dropout if self.training else 0.0)
        problem = Problem(q, k, v, self._groups(), mask, coordinates, scores, cross=cross)

        heads = attend(problem)
        out = self.out_proj((heads.transpose(1, 2) if batch_first else heads.permute(2, 0, 1, 3)).flatten(2))
        weights = weights_of(problem, Cells()) if need_weights else None
        if weights is not None:
            weights = weights.roll(-self._extra_keys, dims=-1)  # torch appends the extra keys, here they come first
        return out, weights

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Q W_Q, K W_K, V W_V of the drop-in, in one product if all three have the same input."""
        packed = cast("Tensor | None", self.in_proj_weight)  # torch's annotations omit None
        bias = cast("Tensor | None", self.in_proj_bias)
        if packed is not None and query is key and key is value:
            q, k, v = F.linear(query, packed, bias).split(self._rows(), dim=-1)
            return q, k, v
        if packed is not None:
            weights = packed.split(self._rows())
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None, None, None) if bias is None else bias.split(self._rows())
        q, k, v = (F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
        return q, k, v

    def _rows(self) -> list[int]:
        """The widths of q, k and v, which differ in a cut layer (edit/surgery/patched_modules.py)."""
        return [self.embed_dim] * 3

    def _groups(self) -> Groups:
        return Groups.even(self.num_heads, self.num_heads)

    @property
    def _extra_keys(self) -> int:
        return int(self.bias_k is not None) + int(self.add_zero_attn)

    def _with_extra_keys(
        self, k: Float[Tensor, "batch head key dim"], v: Float[Tensor, "batch head key dim"]
    ) -> tuple[Float[Tensor, "batch head all dim"], Float[Tensor, "batch head all dim"]]:
        """The learned key and the zero key of nn.MultiheadAttention come first, so that other keys stay aligned."""
        batch, heads, _, dim = k.shape
        extended: list[Tensor] = []
        for x, learned in ((k, self.bias_k), (v, self.bias_v)):
            parts = [x]
            if self.add_zero_attn:
                parts.insert(0, x.new_zeros(batch, heads, 1, dim))
            if learned is not None:
                parts.insert(0, learned.to(x.dtype).view(1, heads, 1, dim).expand(batch, -1, -1, -1))
            extended.append(x if len(parts) == 1 else torch.cat(parts, dim=2))
        return extended[0], extended[1]

    def _forward_nested(
        self, query: Tensor, key: Tensor, value: Tensor, need_weights: bool, average: bool, is_causal: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Nested inputs and output, as nn.TransformerEncoder creates from padded batches. Weights are padded."""
        padded = {id(x): pad_sequence(list(x.unbind()), batch_first=True) for x in (query, key, value)}
        q, k, v = self._project(*(padded[id(x)] for x in (query, key, value)))
        sizes = torch.tensor([x.shape[0] for x in key.unbind()], device=key.device)
        hidden = torch.arange(k.shape[1], device=key.device) >= sizes[:, None]
        out, weights = self._attend(
            q, k, v, None, hidden, is_causal, need_weights, cross=key is not query, batch_first=True
        )
        rows = [row[: x.shape[0]] for row, x in zip(out, query.unbind(), strict=True)]
        nested = torch.nested.as_nested_tensor(rows, layout=query.layout)
        return nested, weights.mean(1) if weights is not None and average else weights


def replace_all(model: nn.Module) -> list[str]:
    """Replace every nn.MultiheadAttention of a model by this class, in place; return their names.

    Parameters and hooks remain the same objects, so optimizers keep working. Use it for models whose imports you
    cannot change, such as nn.Transformer.

    >>> from torch import nn
    >>> replace_all(nn.TransformerEncoderLayer(64, 4))
    ['self_attn']
    """
    check_instance(
        "model", model, nn.Module, "a torch.nn.Module", hint="replace_all(nn.Transformer()), for example"
    )
    attentions = {name: m for name, m in model.named_modules() if type(m) is nn.MultiheadAttention}
    if not attentions:
        raise TypeMismatchError(
            f"{type(model).__name__} must contain an nn.MultiheadAttention, got none (subclasses do not count)",
            hint="list its modules: [type(m).__name__ for m in model.modules()]",
        )
    for mha in attentions.values():
        mha.__class__ = MultiheadAttention
        disable_fast_path(mha)
    return list(attentions)


def disable_fast_path(mha: nn.MultiheadAttention) -> None:
    """Attach a hook that does nothing, so nn.TransformerEncoderLayer calls this module in eval mode too.

    Without a hook it uses the weights directly, on a fast path that returns unmasked output for is_causal=True
    without a mask, and NaN for rows that see no key.
    """
    mha.register_forward_pre_hook(_no_op_hook)


def _no_op_hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """A forward pre-hook that changes nothing."""


def _heads(x: Tensor, dim: int, batch_first: bool) -> Float[Tensor, "batch head token dim"]:
    split = x.unflatten(-1, (x.shape[-1] // dim, dim))
    return split.transpose(1, 2) if batch_first else split.permute(1, 2, 0, 3)


def _mask(
    q: Float[Tensor, "batch head query dim"],
    k: Float[Tensor, "batch kv_head key dim"],
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    is_causal: bool,
    *,
    extra: int,
) -> Mask:
    """Torch's two masks and the flag as one Mask, where True = may attend; the first `extra` keys are visible."""
    batch, heads, queries, keys = *q.shape[:3], k.shape[2]
    mask = masks.everything()
    if attn_mask is not None:
        shapes = [(queries, keys), (batch * heads, queries, keys)]
        _check_mask("attn_mask", attn_mask, shapes, "(query, key) or (batch * head, query, key)")
        cells = attn_mask if attn_mask.ndim == 2 else attn_mask.unflatten(0, (batch, heads))
        mask = mask & _from_hidden(cells, extra)
    if key_padding_mask is not None:
        _check_mask("key_padding_mask", key_padding_mask, [(batch, keys)], "(batch, key)")
        if key_padding_mask.dtype == torch.bool:
            mask = mask & masks.padding(~F.pad(key_padding_mask, (extra, 0)))
        else:
            mask = mask & _from_hidden(key_padding_mask[:, None, None, :], extra)
    if is_causal and queries > keys and attn_mask is None:
        raise SizeError(
            f"is_causal=True needs at least as many keys as queries, got {queries} queries and {keys} keys: "
            f"the first {queries - keys} queries precede the first key",
            hint="pass more keys, or pass the mask as attn_mask",
        )
    if is_causal and queries <= keys:  # with more queries than keys only attn_mask applies
        mask = mask & masks.causal()
    return mask


def _from_hidden(hidden: Tensor, extra: int) -> Mask:
    padded = F.pad(hidden, (extra, 0)) if extra else hidden
    # Additive, not masks.additive, which raises for NaN: torch returns NaN.
    return masks.tensor(~padded) if padded.dtype == torch.bool else Additive(padded)


def _check_mask(name: str, mask: Tensor, shapes: list[tuple[int, ...]], axes: str) -> None:
    """Raise unless a mask for nn.MultiheadAttention has a valid dtype and shape."""
    check_tensor(name, mask)
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeMismatchError(
            f"{name} must be bool (True = hidden) or float (added to the scores), got {mask.dtype}",
            hint=f"{name}.bool() if 1 marks hidden keys, {name} == 0 if 1 marks visible keys",
        )
    if tuple(mask.shape) not in shapes:
        raise SizeError(
            f"{name} must have shape {' or '.join(map(str, shapes))}, got {tuple(mask.shape)}",
            hint=f"{name} is {axes}",
        )


def _check(mha: MultiheadAttention, query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raise unless query, key and value fit nn.MultiheadAttention."""
    batch = 0 if mha.batch_first else 1
    axes = "(batch, token, width)" if mha.batch_first else "(token, batch, width)"
    weight = mha.out_proj.weight
    for name, x in (("query", query), ("key", key), ("value", value)):
        check_tensor(name, x)
    for name, x, width in (("query", query, mha.embed_dim), ("key", key, mha.kdim), ("value", value, mha.vdim)):
        if x.ndim not in (2, 3) or x.ndim != query.ndim or x.shape[-1] != width:
            raise SizeError(
                f"{name} must have width {width} and the axes of query, {tuple(query.shape)}, got {tuple(x.shape)}",
                hint=f"with batch_first={mha.batch_first} pass {axes}, or all three as (token, width)",
            )
        if x.ndim == 3 and x.shape[batch] != query.shape[batch]:
            raise SizeError(
                f"query has batch {query.shape[batch]}, {name} has batch {x.shape[batch]}",
                hint=f"with batch_first={mha.batch_first} pass {axes}",
            )
        if x.device != weight.device:
            raise TypeMismatchError(
                f"{name} is on {x.device}, the layer's weights are on {weight.device}",
                hint=f"move one of them: {name}.to({str(weight.device)!r})",
            )
        if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
            raise TypeMismatchError(
                f"{name} is {x.dtype}, the layer's weights are {weight.dtype}",
                hint=f"{name}.to({weight.dtype}), or run under torch.autocast",
            )
    if key.shape[:-1] != value.shape[:-1]:
        raise SizeError(
            f"key and value must have the same batch and tokens, got {tuple(key.shape)} and {tuple(value.shape)}",
            hint="pass one value per key",
        )


def _check_nested(
    query: Tensor, key: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool
) -> None:
    """Raise if nested inputs of the drop-in come with masks."""
    if attn_mask is not None or key_padding_mask is not None or (is_causal and query is not key):
        arguments = [
            n for n, x in (("attn_mask", attn_mask), ("key_padding_mask", key_padding_mask)) if x is not None
        ]
        raise TypeMismatchError(
            f"nested tensors take no masks, got {query.size(0)} nested queries with "
            f"{', '.join(arguments) or 'is_causal and other keys'}",
            hint="pass padded tensors to use masks",
        )
