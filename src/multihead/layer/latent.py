"""LatentAttention: keys and values of all heads from one short vector per token; a cache holds only that vector."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.arguments import (
    MOST_ITEMS,
    allocating,
    check_count,
    check_device_and_dtype,
    check_flag,
    check_instance,
    check_number,
)
from multihead._base.shapes import Keys, Queries, Values
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer import mask as masks
from multihead.layer._attend import attend
from multihead.layer._cache_buffers import AppendStep
from multihead.layer._checks import check_gate, check_positions, check_tokens
from multihead.layer._coordinates import localized
from multihead.layer._head_shard import local
from multihead.layer._kernels import try_rules
from multihead.layer._kv_store import NO_CACHE, KVStore, store_of
from multihead.layer._layer_base import AttentionLayer, collect_outputs
from multihead.layer._mask_algebra import Mask
from multihead.layer._mask_structured import ragged_lengths
from multihead.layer._plan import plan_for
from multihead.layer._problem import Groups, Problem
from multihead.layer._projections import calls_are_plain, plain_parameters, split_heads
from multihead.layer._tracing import is_compiling
from multihead.layer.cache import Cache, Cross
from multihead.layer.layer_options import linear
from multihead.layer.outputs import Ask, AttentionOutput
from multihead.layer.position import Rotary


class LatentAttention(AttentionLayer):
    """c = norm(W_D x), k_h = [W_UKʰ c ; R x], v_h = W_UVʰ c: multi-head latent attention (DeepSeek-V2, 2024).

    The heads share the rotated part of the key, R x. A cache holds (c, R x) as one kv head of size `latent_dim +
    rope_dim`, with values of size 0: Growing(), or Static(batch, 1, capacity, latent_dim + rope_dim, 0).

    There are two equivalent forms. *Expanded* computes k_h and v_h of every key. *Absorbed* attends to c itself,
    with W_UKᵀ q as the query and W_UV applied to the output: few queries over many keys, as in decoding, then read
    one short vector per key. The layer uses the form with fewer multiplications, unless you pass `absorb`.

    >>> from multihead import cache, mask
    >>> attn = LatentAttention(96, 6, latent_dim=24, nope_dim=16, rope_dim=8, value_dim=16)
    >>> kv = cache.Growing()
    >>> with torch.no_grad():
    ...     attn(torch.randn(2, 7, 96), mask=mask.causal(), cache=kv).shape
    torch.Size([2, 7, 96])

    Args:
        latent_dim: size of c (`kv_lora_rank`).
        nope_dim, rope_dim: sizes of the unrotated and rotated parts of a head's query and key.
        query_dim: size of a latent vector for the queries (`q_lora_rank`). If None, queries are projected directly.
        bias: on the down projections and on o_proj.
        scale: factor on q·k; default (nope_dim + rope_dim) ** -0.5.
    """

    input_name = "x"

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        latent_dim: int,
        nope_dim: int,
        rope_dim: int,
        value_dim: int,
        query_dim: int | None = None,
        position: Rotary | None = None,
        bias: bool = False,
        scale: float | None = None,
        dropout: float = 0.0,
        eps: float = 1e-6,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        sizes = {"d_model": d_model, "num_heads": num_heads, "latent_dim": latent_dim, "nope_dim": nope_dim}
        sizes |= {"rope_dim": rope_dim, "value_dim": value_dim}
        sizes |= {} if query_dim is None else {"query_dim": query_dim}
        for name, size in sizes.items():
            check_count(name, size, most=MOST_ITEMS if name == "num_heads" else None)
        check_number("dropout", dropout, least=0.0, most=1.0)
        check_number("eps", eps, least=0.0)
        check_flag("bias", bias)
        check_device_and_dtype(device, dtype)
        self.d_model, self.num_heads, self.latent_dim = d_model, num_heads, latent_dim
        self.nope_dim, self.rope_dim, self.value_dim = nope_dim, rope_dim, value_dim
        self.scale = (nope_dim + rope_dim) ** -0.5 if scale is None else scale
        self.dropout = dropout
        self.position = Rotary(interleaved=True) if position is None else position
        check_number("scale", self.scale)
        check_instance("position", self.position, Rotary, "a Rotary", hint="position.Rotary(interleaved=True)")
        self.position.rotated(rope_dim)

        width = num_heads * (nope_dim + rope_dim)
        with allocating(**sizes):
            self.q_down = None if query_dim is None else linear(d_model, query_dim, bias, device, dtype)
            self.q_norm = None if query_dim is None else nn.RMSNorm(query_dim, eps=eps, device=device, dtype=dtype)
            self.q_proj = linear(d_model if query_dim is None else query_dim, width, False, device, dtype)
            self.kv_down = linear(d_model, latent_dim + rope_dim, bias, device, dtype)
            self.kv_norm = nn.RMSNorm(latent_dim, eps=eps, device=device, dtype=dtype)
            self.kv_up = linear(latent_dim, num_heads * (nope_dim + value_dim), False, device, dtype)
            self.o_proj = linear(num_heads * value_dim, d_model, bias, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Redraw the weights of latent attention: Xavier-uniform matrices, zero biases, norms of one."""
        for part in self.children():
            if isinstance(part, nn.Linear):
                nn.init.xavier_uniform_(part.weight)
                if part.bias is not None:  # pyright: ignore[reportUnnecessaryComparison]  # torch's stub forgets None
                    nn.init.zeros_(part.bias)
            elif isinstance(part, nn.RMSNorm):
                part.reset_parameters()

    def forward(
        self,
        x: Float[Tensor, "*batch query d_model"],
        *,
        mask: Mask | Tensor | None = None,
        cache: Cache | None = None,
        positions: Tensor | None = None,
        head_gate: Tensor | None = None,
        ask: Ask | str | Iterable[str] | None = None,
        route: str | None = None,
        absorb: bool | None = None,
    ) -> Tensor | AttentionOutput:
        """Latent attention, called as `MultiHeadAttention` is; `absorb` forces one of the two forms."""
        if not isinstance(x, Tensor) or x.ndim != 3:  # pyright: ignore[reportUnnecessaryIsInstance]  # users
            return self._unbatched(
                x, mask=mask, cache=cache, positions=positions,
                head_gate=head_gate, ask=ask, route=route, absorb=absorb,
            )  # fmt: skip
        check_tokens(self.kv_down, "x", x, self.d_model)
        if absorb is not None:
            check_flag("absorb", absorb)
        if absorb and not self._up_is_matrix(watched=True):
            raise TypeMismatchError(
                f"absorb=True needs a kv_up that is a matrix and nothing else, got {type(self.kv_up).__name__} "
                "with a bias, hooks or a forward or weight of its own",
                hint="pass absorb=False, which calls kv_up",
            )
        if isinstance(cache, Cross):
            raise SizeError(
                "LatentAttention needs a cache for self-attention, got Cross", hint="use cache.Growing()"
            )
        mask, store = masks.of(mask), store_of(cache, self)
        if positions is not None:
            alone = store is NO_CACHE
            positions = check_positions(positions, self.position, x, alone=alone)

        q, latent = self._project(x, mask, positions, store)
        mask, coordinates, step = store.view(mask, q, latent, self)
        coordinates = localized(coordinates, self.head_shard)
        absorbed = self._absorbs(x.shape[1], coordinates.keys) if absorb is None else absorb
        heads, scores = q.shape[1], self._scores()
        groups = Groups.even(heads, 1 if absorbed else heads)
        gate = None if head_gate is None else check_gate(head_gate, coordinates)
        key_dim = (self.latent_dim if absorbed else self.nope_dim) + self.rope_dim
        plan = plan_for(
            q.new_empty((*q.shape[:3], key_dim), device="meta"), self.latent_dim if absorbed else self.value_dim,
            groups, mask, coordinates, scores, route=route,
            needs_grad=torch.is_grad_enabled() and (q.requires_grad or latent.requires_grad or store.requires_grad),
        )  # fmt: skip
        request = None if ask is None else Ask.of(ask).check(coordinates)

        if mask.by_rule and isinstance(store, Cache):
            try_rules(mask, coordinates, plan.tiles)
        if isinstance(step, AppendStep) and torch.is_grad_enabled():  # kv_up reads the stored vectors
            step.graph |= any(p.requires_grad for p in self.kv_up.parameters())
        latent, _ = store.take(latent, latent[..., :0], step)  # only now does the cache change
        q, k, v, value_up = self._absorb(q, latent) if absorbed else self._expand(q, latent)
        problem = Problem(q, k, v, groups, mask, coordinates, scores)
        out = attend(problem, plan)
        if value_up is not None:
            out = out @ value_up.mT
        if gate is not None:
            out = out * gate.to(out.dtype)
        return self._mix(out) if request is None else collect_outputs(request, problem, self._mix(out), out)

    def _project(
        self, x: Tensor, mask: Mask, positions: Tensor | None, store: KVStore
    ) -> tuple[Queries, Float[Tensor, "batch 1 query latent_and_rope"]]:
        """Queries of every head of latent attention, and (c, R x) of every token as one kv head."""
        token_positions, _ = store.positions(positions, x.shape[0], x.shape[1], x.shape[1], cross=False)
        q_input = x if self.q_down is None or self.q_norm is None else self.q_norm(self.q_down(x))
        c, rope = self.kv_down(x).split((self.latent_dim, self.rope_dim), dim=-1)
        c, shard = self.kv_norm(c), self.head_shard
        if shard is not None:  # after the replicated projections, before those of the heads
            q_input, c, rope = (shard.copy_to_ranks(part) for part in (q_input, c, rope))
        q = split_heads(self.q_proj(q_input), self.nope_dim + self.rope_dim)
        length = None
        if self.position.needs_length:
            lengths = ragged_lengths(mask, x.shape[0], x.device)
            length = self._sequence_length((q, token_positions), (q, token_positions), lengths, store, positions)
        q_nope, q_rope = q.split((self.nope_dim, self.rope_dim), dim=-1)
        q = torch.cat((q_nope, self.position(q_rope, token_positions, length)), dim=-1)
        k_rope = self.position(rope.unsqueeze(1), token_positions, length)
        return q, torch.cat((c.unsqueeze(1), k_rope), dim=-1)

    def _expand(
        self, q: Queries, latent: Float[Tensor, "batch 1 key latent_and_rope"]
    ) -> tuple[Queries, Keys, Values, None]:
        """k_h and v_h of every key, from its latent vector."""
        c, k_rope = latent.split((self.latent_dim, self.rope_dim), dim=-1)
        up = split_heads(self.kv_up(c.squeeze(1)), self.nope_dim + self.value_dim)
        k_nope, v = up.split((self.nope_dim, self.value_dim), dim=-1)
        return q, torch.cat((k_nope, k_rope.expand(-1, q.shape[1], -1, -1)), dim=-1), v, None

    def _absorb(
        self, q: Queries, latent: Float[Tensor, "batch 1 key latent_and_rope"]
    ) -> tuple[
        Float[Tensor, "batch head query latent_and_rope"],
        Float[Tensor, "batch 1 key latent_and_rope"],
        Float[Tensor, "batch 1 key latent"],
        Float[Tensor, "head value_dim latent"],
    ]:
        """W_UKᵀ q as queries of the latent vector c itself, and W_UV, to be applied to the output."""
        up = local(self.kv_up.weight).unflatten(0, (q.shape[1], -1))  # head, nope_dim + value_dim, latent_dim
        key_up, value_up = up.split((self.nope_dim, self.value_dim), dim=1)
        q_nope, q_rope = q.split((self.nope_dim, self.rope_dim), dim=-1)
        c = latent[..., : self.latent_dim]
        if is_compiling():
            c = c.clone()  # torch.cond of the NaN guard rejects operands that share memory
        return torch.cat((q_nope @ key_up, q_rope), dim=-1), latent, c, value_up

    def _absorbs(self, queries: int, keys: int) -> bool:
        """Whether absorbed latent attention multiplies less, and kv_up is a plain matrix, without LoRA."""
        if not self._up_is_matrix():
            return False
        r, head = self.latent_dim, self.nope_dim + self.value_dim
        return (keys - queries) * r * head > queries * keys * (2 * r - head)

    def _up_is_matrix(self, *, watched: bool = False) -> bool:
        """Whether kv_up(c) is W c, so that W may be absorbed."""
        up = self.kv_up
        kind = (
            nn.Linear if self.head_shard is None else type(up)
        )  # the heads of this rank have a class of their own
        parameters = plain_parameters(up, kind) if watched or calls_are_plain() else None
        if parameters is None or parameters["bias"] is not None:
            return False
        return type(local(up.weight)) in (Tensor, nn.Parameter)

    def extra_repr(self) -> str:
        text = f"{self.d_model}, {self.num_heads}, latent_dim={self.latent_dim}, nope_dim={self.nope_dim}, "
        return text + f"rope_dim={self.rope_dim}, value_dim={self.value_dim}"
