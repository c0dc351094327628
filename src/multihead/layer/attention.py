"""MultiHeadAttention: every variant of the layer, one meaning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import overload

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.shapes import Keys, Queries
from multihead.errors import SizeError
from multihead.layer import mask as masks
from multihead.layer.apart import apart
from multihead.layer.ask import Ask, Attended, check_cells
from multihead.layer.cache import Cache, Cross
from multihead.layer.checks import check_inputs, check_known
from multihead.layer.explain import Explanation, explain
from multihead.layer.init import Init, XavierPerHead
from multihead.layer.mask_algebra import Mask
from multihead.layer.options import (
    QKNorm,
    Sinks,
    biased_projections,
    check_options,
    groups_of,
    head_dim_of,
    linear,
)
from multihead.layer.position import Position, Rotary
from multihead.layer.problem import Groups, PositionScores, Problem, Scores
from multihead.layer.ragged import Packed, pack
from multihead.layer.routes import attend, check_route
from multihead.layer.share import Share
from multihead.layer.steps import answer, gate, lift, places, remembered, split, unbatched


class MultiHeadAttention(nn.Module):
    """Concat(head_1..head_h) W_O,  head_i = softmax(Q W_Qⁱ (K W_Kⁱ)ᵀ · scale + bias, masked) V W_Vⁱ.

    Variants are objects you pass; they combine freely:

    >>> import torch, multihead as mh
    >>> from multihead import mask, position
    >>> attn = mh.MultiHeadAttention(96, 6, num_kv_heads=2, position=position.Rotary())
    >>> x = torch.randn(2, 7, 96)
    >>> attn(x, mask=mask.causal() & mask.ragged([7, 3])).shape
    torch.Size([2, 7, 96])

    Args:
        num_kv_heads: fewer key/value heads than query heads (grouped-query; 1 is multi-query).
        head_dim, value_dim: size of a head's query/key and value; by default d_model / num_heads.
        kv_of_head: the kv head that each query head reads, for uneven groups; default `head // group_size`.
        d_key, d_value: width of the key and value inputs of cross-attention.
        bias: True, False, or the projections that have one, as letters: "qkv", "o", "qv".
        scale: factor on q·k; default head_dim ** -0.5.
        softcap: scores become softcap · tanh(scores / softcap), before the mask (Gemma 2).
        dropout: on the attention weights, in training mode only.
        init: how weights are drawn (`multihead.init`); default `XavierPerHead()`.
    """

    share: Share | None = None
    """the heads that are on this rank, where `tensor_parallel_plan` has spread them over several"""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        value_dim: int | None = None,
        kv_of_head: Sequence[int] | None = None,
        d_key: int | None = None,
        d_value: int | None = None,
        d_out: int | None = None,
        bias: bool | str = True,
        position: Position | None = None,
        qk_norm: QKNorm | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        sinks: Sinks | None = None,
        dropout: float = 0.0,
        init: Init | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.d_model, self.num_heads = d_model, num_heads
        self.head_dim = head_dim_of(d_model, num_heads) if head_dim is None else head_dim
        self.value_dim = self.head_dim if value_dim is None else value_dim
        self.groups = groups_of(num_heads, num_kv_heads, kv_of_head)
        self.num_kv_heads, self.kv_of_head = self.groups.kv_heads, self.groups.kv_of_head
        self.d_key = d_model if d_key is None else d_key
        self.d_value = self.d_key if d_value is None else d_value
        self.d_out = d_model if d_out is None else d_out
        self.scale = max(self.head_dim, 1) ** -0.5 if scale is None else scale
        self.softcap, self.sinks, self.dropout = softcap, sinks, dropout
        self.position, self.qk_norm = position, qk_norm
        self.init: Init = XavierPerHead() if init is None else init
        check_options(self)

        biased = biased_projections(bias)
        kv = self.num_kv_heads
        self.q_proj = linear(d_model, num_heads * self.head_dim, "q" in biased, device, dtype)
        self.k_proj = linear(self.d_key, kv * self.head_dim, "k" in biased, device, dtype)
        self.v_proj = linear(self.d_value, kv * self.value_dim, "v" in biased, device, dtype)
        self.o_proj = linear(num_heads * self.value_dim, self.d_out, "o" in biased, device, dtype)
        self.q_norm = None if qk_norm is None else qk_norm.module(self.head_dim, device, dtype)
        self.k_norm = None if qk_norm is None else qk_norm.module(self.head_dim, device, dtype)
        self.sink_logits: nn.Parameter | None = None
        if sinks is not None:
            self.sink_logits = nn.Parameter(torch.empty(num_heads, device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw all weights anew; after `to_empty` of a layer made on the meta device this makes it whole."""
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.o_proj):
            if projection.bias is not None:  # pyright: ignore[reportUnnecessaryComparison]  # torch's stub forgets None
                nn.init.zeros_(projection.bias)
        self.init(self)
        for part in (self.q_norm, self.k_norm, self.position):
            reset = getattr(part, "reset_parameters", None)
            if reset is not None:
                reset()
        if self.sink_logits is not None and self.sinks is not None:
            nn.init.constant_(self.sink_logits, self.sinks.start)

    @overload
    def forward(
        self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, *,
        mask: Mask | Tensor | None = None, cache: Cache | None = None, positions: Tensor | None = None,
        head_gate: Tensor | None = None, ask: None = None, route: str | None = None,
    ) -> Tensor: ...  # fmt: skip

    @overload
    def forward(
        self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, *,
        mask: Mask | Tensor | None = None, cache: Cache | None = None, positions: Tensor | None = None,
        head_gate: Tensor | None = None, ask: Ask | str | Iterable[str], route: str | None = None,
    ) -> Attended: ...  # fmt: skip

    def forward(
        self,
        query: Float[Tensor, "*batch query d_model"],
        key: Float[Tensor, "*batch key d_key"] | None = None,
        value: Float[Tensor, "*batch key d_value"] | None = None,
        *,
        mask: Mask | Tensor | None = None,
        cache: Cache | None = None,
        positions: Tensor | None = None,
        head_gate: Tensor | None = None,
        ask: Ask | str | Iterable[str] | None = None,
        route: str | None = None,
    ) -> Tensor | Attended:
        """Attend. `key` left out: self-attention; `value` left out: the key again.

        Args:
            mask: a `Mask`, a bool tensor (True = may attend) or a float tensor (added to the scores).
            cache: keeps keys and values between calls; queries then stand behind what it holds.
            positions: (query,) or (batch, query), for the position encoding only; default: their places.
            head_gate: (head,), (batch, head) or (batch, head, query), multiplies each head's output.
            ask: "weights", "lse", "heads", several of them, or an `Ask`; returns `Attended`.
            route: force one of `multihead.layer.routes.ROUTES`; the result is the same.
        """
        if query.ndim == 2:
            return unbatched(self(
                query[None], lift(key), lift(value), mask=mask, cache=cache, positions=positions,
                head_gate=head_gate, ask=ask, route=route,
            ))  # fmt: skip
        asked, mask = Ask.of(ask), masks.of(mask)
        check_route(route)
        if cache is not None and key is query and (value is None or value is query):
            key = value = None
        known = isinstance(cache, Cross) and cache.filled
        caching = cache is not None and not isinstance(cache, Cross)
        check_inputs(self, query, key, value, head_gate, known=known, caching=caching)
        check_cells(asked, self.num_heads, query.shape[1])
        alone = key is None and cache is None and not route and apart() is None
        packed = pack(mask, query, positions, head_gate) if alone else None
        if packed is None:
            problem = self.problem(query, key, value, mask=mask, cache=cache, positions=positions)
        else:
            problem = self.problem(
                packed.tokens, None, None, mask=mask, cache=None, positions=packed.positions, packed=packed
            )
        heads = attend(problem, route)
        kept = None if ask is None else problem
        del problem  # unless somebody asks, q, k and v need not live through W_O
        if head_gate is not None:
            factor = gate(head_gate)
            heads = heads * (factor if self.share is None else self.share.own(factor, 1)).to(heads.dtype)
        out = self.o_proj(heads.transpose(1, 2).flatten(2))
        if packed is not None:
            out = packed.unpack(out, self.o_proj(heads.new_zeros(1, 1, heads.shape[1] * heads.shape[3])))
        if kept is None:
            return out
        if packed is not None:  # the output stays the packed one, bit for bit; the rest is looked at in full
            heads = packed.unpack_heads(heads)
            if asked.weights or asked.lse:
                kept = self.problem(query, None, None, mask=mask, cache=None, positions=positions)
        if self.share is None:
            return answer(asked, kept, out, heads)
        return self.share.answered(asked, answer(self.share.asked(asked), kept, out, heads))

    def problem(
        self,
        query: Float[Tensor, "batch query d_model"],
        key: Float[Tensor, "batch key d_key"] | None,
        value: Float[Tensor, "batch key d_value"] | None,
        *,
        mask: Mask,
        cache: Cache | None,
        positions: Tensor | None,
        packed: Packed | None = None,
    ) -> Problem:
        """Project, normalise, rotate and cache: everything up to the scores."""
        share = self.share
        if share is not None:
            query, key, value = share.inputs(query, key, value)
        q = split(self.q_proj(query), self.head_dim)
        known = cache.known if isinstance(cache, Cross) else None
        if known is not None:
            k, v = known
            check_known(self, query, k, v)
        else:
            source = query if key is None else key
            k = split(self.k_proj(source), self.head_dim)
            v = split(self.v_proj(source if value is None else value), self.value_dim)
        ask_at, key_at = places(positions, cache, q.shape[2], k.shape[2], same=key is None and known is None)
        q = self._turned(q, self.q_norm, ask_at)
        k = k if known is not None else self._turned(k, self.k_norm, key_at)
        bias = None if isinstance(self.position, Rotary) else self.position
        if bias is not None:
            elsewhere = cache is not None or key is not None or apart() is not None
            if positions is not None and packed is None and elsewhere:
                raise SizeError(
                    f"positions of shape {tuple(positions.shape)} were given with {type(bias).__name__}, "
                    f"whose keys stand elsewhere (cache, cross-attention or other ranks)",
                    hint="leave positions out: the bias then uses the places of queries and keys",
                )
            own = positions if packed is None else packed.given
            own = None if own is None else own.reshape(-1, own.shape[-1])
            mask = mask & PositionScores(bias, own, q.dtype, self._entering(bias))
        k, v, mask, frame = remembered(k, v, mask, cache, queries=q.shape[2], heads=q.shape[1])
        if packed is not None:
            frame = replace(frame, batch=packed.batch, queries=packed.width, keys=packed.width)
        mask.check(frame if share is None else replace(frame, heads=share.of))
        sinks, dropout = self.sink_logits, self.dropout if self.training else 0.0
        if share is not None:
            mask, sinks = share.mask(mask), None if sinks is None else share.own(sinks)
        scores = Scores(self.scale, self.softcap, sinks, dropout, 0 if share is None else share.heads[0])
        bounds = None if packed is None else packed.bounds
        cross = isinstance(cache, Cross) or (key is not None and key is not query)
        return Problem(q, k, v, self._local_groups(q, k), mask, frame, scores, bounds, cross)

    def explain(
        self,
        query: Float[Tensor, "*batch query d_model"],
        key: Float[Tensor, "*batch key d_key"] | None = None,
        value: Float[Tensor, "*batch key d_value"] | None = None,
        *,
        mask: Mask | Tensor | None = None,
        cache: Cache | None = None,
    ) -> Explanation:
        """Which route would run for these inputs, why not the faster ones, and what it will cost."""
        return explain(self, query, key, value, mask=masks.of(mask), cache=cache)

    @classmethod
    def from_torch(cls, mha: nn.MultiheadAttention) -> MultiHeadAttention:
        """The same layer with a copy of an nn.MultiheadAttention's weights; more in `multihead.interop`."""
        from multihead.layer import interop  # which imports this module

        return interop.from_torch(mha)

    def to_torch(self, *, batch_first: bool | None = None) -> nn.MultiheadAttention:
        """An nn.MultiheadAttention with a copy of the weights, where it can hold this layer."""
        from multihead.layer import interop  # which imports this module

        return interop.to_torch(self, batch_first=batch_first)

    def extra_repr(self) -> str:
        said = [f"{self.d_model}, {self.num_heads}"]
        if self.share is not None:
            said.append(f"heads here={list(self.share.heads)}")
        if self.num_kv_heads != self.num_heads:
            said.append(f"num_kv_heads={self.num_kv_heads}")
        if self.groups.size is None:
            said.append(f"kv_of_head={list(self.kv_of_head)}")
        said.append(f"head_dim={self.head_dim}")
        for name, default in (("value_dim", self.head_dim), ("softcap", None), ("dropout", 0.0)):
            if getattr(self, name) != default:
                said.append(f"{name}={getattr(self, name)}")
        if self.scale != self.head_dim**-0.5:
            said.append(f"scale={self.scale:g}")
        return ", ".join(said)

    def _entering(self, bias: object) -> dict[str, Tensor] | None:
        """The parameters of a position bias, each rank with the gradient of its heads; None: nothing is split."""
        if self.share is None or not isinstance(bias, nn.Module):
            return None
        return {name: self.share.entering(p) for name, p in bias.named_parameters()}

    def _turned(self, x: Tensor, norm: nn.Module | None, positions: Tensor | int) -> Tensor:
        if norm is not None and self.share is not None:
            norm = self.share.module(norm)
        if norm is not None and self.qk_norm is not None and self.qk_norm.when == "before":
            x = norm(x).to(x.dtype)  # autocast may give float32 back
        if isinstance(self.position, Rotary):
            x = self.position(x, positions)
        if norm is not None and self.qk_norm is not None and self.qk_norm.when == "after":
            x = norm(x).to(x.dtype)
        return x

    def _local_groups(self, q: Queries, k: Keys) -> Groups:
        """The groups of the heads that are here: under tensor parallelism a projection gives only some."""
        here = q.shape[1]
        if self.share is not None:
            return self.share.groups
        if here == self.num_heads:
            return self.groups
        if self.groups.size is None or self.sink_logits is not None or not isinstance(self.position, Rotary | None):
            raise SizeError(
                f"q_proj gave {here} of {self.num_heads} heads: what belongs to single heads cannot be told apart",
                hint="tensor parallelism of single projections needs even groups, and no sinks or position bias; "
                "mh.tensor_parallel_plan(module) splits whole layers, these included",
            )
        return Groups.even(here, k.shape[1])
