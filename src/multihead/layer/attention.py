"""MultiHeadAttention: multi-head, grouped-query and multi-query attention with masks, positions and caches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast, overload

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.arguments import allocating, check_device_and_dtype
from multihead._base.shapes import Keys, Queries, Values
from multihead.errors import TypeMismatchError
from multihead.layer import mask as masks
from multihead.layer._attend import attend
from multihead.layer._checks import check_gate, check_inputs, check_positions, check_projections, check_tensors
from multihead.layer._coordinates import localized
from multihead.layer._head_shard import local_groups
from multihead.layer._kernels import try_rules
from multihead.layer._kv_store import NO_CACHE, KVStore, store_of
from multihead.layer._layer_base import AttentionLayer, collect_outputs
from multihead.layer._mask_algebra import Mask
from multihead.layer._mask_position import PositionScores
from multihead.layer._mask_structured import ragged_lengths
from multihead.layer._packed_batch import packed_batch
from multihead.layer._plan import plan_of
from multihead.layer._problem import Problem
from multihead.layer._projections import JointWeights, project, project_together, split_heads
from multihead.layer._rotary import Factors
from multihead.layer._torch_layer import layer_of_torch, torch_of_layer
from multihead.layer.cache import Cache, Cross
from multihead.layer.explain import Explanation, explain_call
from multihead.layer.init import Init, XavierPerHead
from multihead.layer.layer_options import (
    QKNorm,
    Sinks,
    biased_projections,
    check_options,
    check_sizes,
    groups_of,
    head_dim_of,
    linear,
)
from multihead.layer.outputs import PLAN_ONLY, Ask, AttentionOutput, PlannedCall
from multihead.layer.position import Position, Rotary

if TYPE_CHECKING:
    from typing import Self  # not at run time: the annotation checks of the tests refuse it


class MultiHeadAttention(AttentionLayer):
    """Multi-head attention; with fewer key/value heads, grouped-query or multi-query attention.

        Concat(head_1..head_h) W_O,  head_i = softmax(Q W_Qⁱ (K W_Kⁱ)ᵀ · scale + bias, masked) V W_Vⁱ

    Variants are objects you pass; they combine freely. A call returns the output, (batch, query, d_out), or with
    `ask` an `AttentionOutput`.

    >>> import torch, multihead as mh
    >>> from multihead import mask, position
    >>> attn = mh.MultiHeadAttention(96, 6, num_kv_heads=2, position=position.Rotary())
    >>> x = torch.randn(2, 7, 96)
    >>> attn(x, mask=mask.causal() & mask.ragged([7, 3])).shape
    torch.Size([2, 7, 96])
    >>> attn(x, mask=mask.causal(), ask="weights").weights.shape  # batch, head, query, key
    torch.Size([2, 6, 7, 7])

    Args:
        d_model: width of the input, and of the output unless `d_out` is given.
        num_heads: number of query heads.
        num_kv_heads: fewer key/value heads than query heads (grouped-query; 1 is multi-query).
        head_dim, value_dim: size of a head's query/key and value; by default d_model / num_heads.
        kv_of_head: the kv head that each query head reads, for uneven groups; default `head // group_size`.
        d_key, d_value: width of the key and value inputs of cross-attention.
        bias: True, False, or the projections that have one, as letters: "qkv", "o", "qv".
        position: `position.Rotary`, `position.ALiBi` or `position.RelativeBias`; default: none.
        qk_norm: a norm of every head's queries and keys (`multihead.layer.QKNorm`); default: none.
        scale: factor on q·k; default head_dim ** -0.5.
        softcap: scores become softcap · tanh(scores / softcap), before the mask (Gemma 2).
        sinks: a learned logit per head that takes part in the softmax (`multihead.layer.Sinks`); default: none.
        dropout: on the attention weights, in training mode only.
        init: how weights are drawn (`multihead.layer.init`); default `XavierPerHead()`.

    Raises:
        SizeError: if sizes do not fit together, such as num_heads that does not divide d_model.
        TypeMismatchError: if an argument has the wrong type, or an input the wrong dtype or device.
    """

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
        check_sizes(
            d_model=d_model, num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, value_dim=value_dim,
            d_key=d_key, d_value=d_value, d_out=d_out,
        )  # fmt: skip
        check_device_and_dtype(device, dtype)
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
        with allocating(
            d_model=d_model, head_dim=self.head_dim, value_dim=self.value_dim, d_key=self.d_key,
            d_value=self.d_value, d_out=self.d_out,
        ):  # fmt: skip
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
        self._joint_weights = JointWeights.of(self.q_proj, self.k_proj, self.v_proj)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> MultiHeadAttention:
        self._joint_weights = None  # `to` and its kind move the parameters; the memory can go
        return super()._apply(fn, recurse)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Redraw all weights of a `MultiHeadAttention`, for example after `to_empty` on the meta device."""
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.o_proj):
            if projection.bias is not None:  # pyright: ignore[reportUnnecessaryComparison]  # torch's stub forgets None
                nn.init.zeros_(projection.bias)
        try:
            self.init(self)
        except (AttributeError, TypeError) as error:
            raise TypeMismatchError(
                f"init must set the weights of the layer, got {self.init!r:.80}, which raised {error}",
                hint="init=multihead.layer.init.Xavier()",
            ) from error
        for part in (self.q_norm, self.k_norm, self.position):
            reset = getattr(part, "reset_parameters", None)
            if reset is not None:
                reset()
        if self.sink_logits is not None and self.sinks is not None:
            nn.init.constant_(self.sink_logits, self.sinks.init)

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
    ) -> AttentionOutput: ...  # fmt: skip

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
    ) -> Tensor | AttentionOutput | PlannedCall:
        """Attend. Without `key` this is self-attention; without `value` the key is used.

        Args:
            mask: a `Mask`, a bool tensor (True = may attend) or a float tensor (added to the scores).
            cache: keeps keys and values between calls; queries are positioned after the cached tokens.
            positions: (query,) or (batch, query), for the position encoding only; by default counted.
            head_gate: (head,), (batch, head) or (batch, head, query), multiplies each head's output.
            ask: "weights", "lse", "heads", several of these, or an `Ask`; returns an `AttentionOutput`.
            route: force one of "fused", "tiled", "folded", "blocked", "reference"; the result is the same.
        """
        if not isinstance(query, Tensor) or query.ndim != 3:  # pyright: ignore[reportUnnecessaryIsInstance]  # users
            return self._unbatched(
                query, key, value, mask=mask, cache=cache, positions=positions,
                head_gate=head_gate, ask=ask, route=route,
            )  # fmt: skip
        if key is query and (value is None or value is query) and not isinstance(cache, Cross):
            key = value = None  # self-attention, with or without a cache
        mask = mask if isinstance(mask, Mask) else masks.of(mask)
        store = self._store(cache, mask, query, key, value, route)
        known = store.known(key, value, self, query.shape[0])  # keys and values that need no projection

        q, k, v = self._project(query, key, value, known, store)  # (batch, head, token, dim)
        cross = key is not None or known is not None
        if positions is not None:
            alone = not cross and (store is NO_CACHE or store.packed is not None)
            positions = check_positions(positions, self.position, query, alone=alone)
        if self.position is not None or self.qk_norm is not None:
            q, k, mask = self._encode(q, k, mask, positions, store, cross=cross, new_keys=known is None)
        mask, coordinates, step = store.view(mask, q, k, self, (key, value))
        coordinates, scores = localized(coordinates, self.head_shard), self._scores(self.softcap, self.sink_logits)
        problem = Problem(q, k, v, local_groups(self, q, k, v), mask, coordinates, scores, cross, store.packed)
        plan = plan_of(problem, route, store)
        gate = None if head_gate is None else check_gate(head_gate, coordinates)
        request = None if ask is None else Ask.of(ask).check(coordinates)
        if request is PLAN_ONLY:
            return PlannedCall(problem, plan, known is not None)

        if mask.by_rule and isinstance(store, Cache):
            try_rules(mask, coordinates, plan.tiles)
        problem.k, problem.v = store.take(k, v, step)  # only now does a cache change
        heads = attend(problem, plan)  # softmax(q kᵀ · scale + bias) v
        if gate is not None:
            heads = heads * (gate if store.packed is None else store.packed.gate(gate)).to(heads.dtype)
        if request is not None:
            return collect_outputs(request, problem, self._mix(heads, store.packed), heads)
        del problem, q, k, v  # free memory before W_O
        return self._mix(heads, store.packed)

    def explain(
        self,
        query: Float[Tensor, "*batch query d_model"],
        key: Float[Tensor, "*batch key d_key"] | None = None,
        value: Float[Tensor, "*batch key d_value"] | None = None,
        *,
        mask: Mask | Tensor | None = None,
        cache: Cache | None = None,
        route: str | None = None,
    ) -> Explanation:
        """The route of this call, the reasons against faster routes, and the cost. Does not change a cache."""
        planned = self.forward(query, key, value, mask=mask, cache=cache, route=route, ask=PLAN_ONLY)
        assert isinstance(planned, PlannedCall)
        return explain_call(self, planned)

    @classmethod
    def from_torch(cls, mha: nn.MultiheadAttention) -> Self:
        """The same layer with a copy of an nn.MultiheadAttention's weights; always batch first.

        >>> import torch, multihead as mh
        >>> attn = mh.MultiHeadAttention.from_torch(torch.nn.MultiheadAttention(96, 6))
        >>> attn(torch.randn(2, 7, 96)).shape
        torch.Size([2, 7, 96])

        Args:
            mha: add_zero_attn becomes a sink with logit 0, which is not trained; add_bias_kv raises an error.
        """
        return layer_of_torch(cls, mha)

    def to_torch(self, *, batch_first: bool | None = None) -> nn.MultiheadAttention:
        """An nn.MultiheadAttention with a copy of the weights, if it can represent this layer.

        Args:
            batch_first: default: that of the layer passed to `from_torch`, otherwise True.
        """
        return torch_of_layer(self, batch_first=batch_first)

    def extra_repr(self) -> str:
        parts = [f"{self.d_model}, {self.num_heads}"]
        if self.head_shard is not None:
            parts.append(f"local heads={list(self.head_shard.heads)}")
        if self.num_kv_heads != self.num_heads:
            parts.append(f"num_kv_heads={self.num_kv_heads}")
        if self.groups.size is None:
            parts.append(f"kv_of_head={list(self.kv_of_head)}")
        parts.append(f"head_dim={self.head_dim}")
        for name, default in (("value_dim", self.head_dim), ("softcap", None), ("dropout", 0.0)):
            if getattr(self, name) != default:
                parts.append(f"{name}={getattr(self, name)}")
        if self.scale != self.head_dim**-0.5:
            parts.append(f"scale={self.scale:g}")
        return ", ".join(parts)

    def _store(
        self,
        cache: Cache | None,
        mask: Mask,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        route: str | None,
    ) -> KVStore:
        """Where the attention layer stores keys and values of this call; it packs a ragged batch into one row."""
        store = store_of(cache, self)
        if key is not None or value is not None:
            check_tensors(key=key, value=value)
        elif mask.ragged and store is NO_CACHE and route is None:
            return packed_batch(mask, query) or store
        return store

    def _project(
        self,
        query: Float[Tensor, "batch query d_model"],
        key: Float[Tensor, "batch key d_key"] | None,
        value: Float[Tensor, "batch key d_value"] | None,
        known: tuple[Keys, Values] | None,
        store: KVStore,
    ) -> tuple[
        Float[Tensor, "row head query_token key_dim"],
        Float[Tensor, "row kv_head key_token key_dim"],
        Float[Tensor, "row kv_head key_token value_dim"],
    ]:
        """Project the inputs: q = x W_Q, k = x W_K, v = x W_V, split into heads; a packed batch is one row."""
        separate_keys = key is not None or value is not None or self.d_key != self.d_model
        # Torch multiplies a meta tensor by a matrix on any device, so its device is checked here.
        if separate_keys or getattr(query, "is_meta", True):
            check_inputs(self, query, key, value, known=known is not None)
        modules: dict[str, Any] = self._modules  # an attribute lookup of a submodule takes half a microsecond
        q_proj, k_proj, v_proj = modules["q_proj"], modules["k_proj"], modules["v_proj"]
        try:
            source = query if store.packed is None else store.packed.pack(query)
            if key is None and known is None:
                return project_together(
                    source, q_proj, k_proj, v_proj, self.head_dim, self.value_dim, self._joint_weights
                )
            q = split_heads(project(q_proj, source), self.head_dim)
            if known is not None:
                return q, *known
            source = source if key is None else key
            k = split_heads(project(k_proj, source), self.head_dim)
            v = split_heads(project(v_proj, source if value is None else value), self.value_dim)
        except (RuntimeError, TypeError):  # self-attention is checked only if a projection fails
            check_inputs(self, query, key, value, known=known is not None)
            check_projections(self)
            raise
        return q, k, v

    def _encode(
        self,
        q: Queries,
        k: Keys,
        mask: Mask,
        positions: Tensor | None,
        store: KVStore,
        *,
        cross: bool,
        new_keys: bool,
    ) -> tuple[Queries, Keys, Mask]:
        """Normalise and rotate queries and new keys; add the bias of ALiBi or relative positions to the mask."""
        rotary = self.position if isinstance(self.position, Rotary) else None
        if rotary is not None or self.qk_norm is not None:
            query_positions, key_positions = store.positions(
                positions, q.shape[0], q.shape[2], k.shape[2], cross=cross
            )
            length = None
            if rotary is not None and rotary.needs_length:
                lengths = None if store.packed is not None else ragged_lengths(mask, q.shape[0], q.device)
                length = self._sequence_length((q, query_positions), (k, key_positions), lengths, store, positions)
            query_factors = key_factors = None if rotary is None else rotary.factors(q, query_positions, length)
            same = key_positions is query_positions and q.shape[2] == k.shape[2]
            if rotary is not None and new_keys and not same:
                key_factors = rotary.factors(k, key_positions, length)
            q = self._norm_and_rotate(q, self.q_norm, rotary, query_factors)
            k = self._norm_and_rotate(k, self.k_norm, rotary, key_factors) if new_keys else k
        if self.position is not None and not isinstance(self.position, Rotary):
            mask = mask & PositionScores(self.position, positions, q.dtype, self.head_shard)
        return q, k, mask

    def _norm_and_rotate(
        self, x: Tensor, norm: nn.Module | None, rotary: Rotary | None, factors: Factors | None
    ) -> Tensor:
        """Queries or keys of the attention layer with QK norm and rotation, in the order of the options."""
        if norm is None or self.qk_norm is None:
            return x if rotary is None or factors is None else rotary.rotate(x, factors)
        normed = norm if self.head_shard is None else cast(nn.Module, self.head_shard.module(norm))
        if self.qk_norm.when == "before":
            x = normed(x).to(x.dtype)  # autocast may return float32
        if rotary is not None and factors is not None:
            x = rotary.rotate(x, factors)
        return normed(x).to(x.dtype) if self.qk_norm.when == "after" else x
