"""LatentAttention: keys and values of all heads out of one short vector per token, which is all a cache keeps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead.errors import SizeError
from multihead.layer import mask as masks
from multihead.layer.ask import Ask, Attended
from multihead.layer.cache import Cache, Cross
from multihead.layer.mask_algebra import Mask
from multihead.layer.options import linear
from multihead.layer.position import Rotary
from multihead.layer.problem import Groups, Problem, Scores
from multihead.layer.routes import attend
from multihead.layer.share import HeadRows, Share, local
from multihead.layer.steps import answer, gate, places, remembered, split, unbatched


class LatentAttention(nn.Module):
    """c = norm(W_D x), k_h = [W_UKʰ c ; R x], v_h = W_UVʰ c: multi-head latent attention (DeepSeek-V2, 2024).

    The rotated part of the key, R x, is shared by the heads. A cache holds (c, R x), one kv head of
    `latent_dim + rope_dim` numbers with values of size 0: Growing(), or Static(batch, 1, capacity, that, 0).

    Two forms, one meaning. *Expanded* computes k_h and v_h of every key. *Absorbed* attends to c itself, with
    W_UKᵀ q for a query and W_UV applied to what comes out: few queries over many keys, as in decoding, then
    read one short vector per key. The one with fewer multiplications is taken; `absorb` says otherwise.

    >>> from multihead import cache, mask
    >>> attn = LatentAttention(96, 6, latent_dim=24, nope_dim=16, rope_dim=8, value_dim=16)
    >>> kept = cache.Growing()
    >>> with torch.no_grad():
    ...     attn(torch.randn(2, 7, 96), mask=mask.causal(), cache=kept).shape
    torch.Size([2, 7, 96])

    Args:
        latent_dim: size of c (`kv_lora_rank`).
        nope_dim, rope_dim: sizes of the parts of a head's query and key that do not and do turn.
        query_dim: size of a latent vector for the queries too (`q_lora_rank`); None: project them at once.
        bias: on the down projections and on o_proj.
        scale: factor on q·k; default (nope_dim + rope_dim) ** -0.5.
    """

    share: Share | None = None
    """the heads that are on this rank, where `tensor_parallel_plan` has spread them over several"""

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
        sizes = {"num_heads": num_heads, "latent_dim": latent_dim, "nope_dim": nope_dim, "value_dim": value_dim}
        for name, size in sizes.items():
            if size < 1:
                raise SizeError(f"{name}={size} is not positive", hint=f"choose {name} >= 1")
        self.d_model, self.num_heads, self.latent_dim = d_model, num_heads, latent_dim
        self.nope_dim, self.rope_dim, self.value_dim = nope_dim, rope_dim, value_dim
        self.scale = (nope_dim + rope_dim) ** -0.5 if scale is None else scale
        self.dropout = dropout
        self.position = Rotary(interleaved=True) if position is None else position
        self.position.rotated(rope_dim)

        width = num_heads * (nope_dim + rope_dim)
        self.q_down = None if query_dim is None else linear(d_model, query_dim, bias, device, dtype)
        self.q_norm = None if query_dim is None else nn.RMSNorm(query_dim, eps=eps, device=device, dtype=dtype)
        self.q_proj = linear(d_model if query_dim is None else query_dim, width, False, device, dtype)
        self.kv_down = linear(d_model, latent_dim + rope_dim, bias, device, dtype)
        self.kv_norm = nn.RMSNorm(latent_dim, eps=eps, device=device, dtype=dtype)
        self.kv_up = linear(latent_dim, num_heads * (nope_dim + value_dim), False, device, dtype)
        self.o_proj = linear(num_heads * value_dim, d_model, bias, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier-uniform matrices, zero biases, norms of one."""
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
    ) -> Tensor | Attended:
        """Attend, as `MultiHeadAttention` does; `absorb` chooses the form by hand."""
        if x.ndim == 2:
            return unbatched(self(
                x[None], mask=mask, cache=cache, positions=positions,
                head_gate=head_gate, ask=ask, route=route, absorb=absorb,
            ))  # fmt: skip
        if x.ndim != 3 or x.shape[-1] != self.d_model:
            raise SizeError(
                f"input has shape {tuple(x.shape)}, the layer takes (batch, tokens, {self.d_model})",
                hint="latent attention is self-attention: one input for queries, keys and values",
            )
        if isinstance(cache, Cross):
            raise SizeError("LatentAttention is self-attention, got a Cross cache", hint="use cache.Growing()")
        problem, values = self._problem(x, masks.of(mask), cache, positions, absorb)
        heads = attend(problem, route)
        if values is not None:
            heads = heads @ values.mT
        if head_gate is not None:
            factor = gate(head_gate)
            heads = heads * (factor if self.share is None else self.share.own(factor, 1)).to(heads.dtype)
        out = self.o_proj(heads.transpose(1, 2).flatten(2))
        if ask is None:
            return out
        asked = Ask.of(ask)
        if self.share is None:
            return answer(asked, problem, out, heads)
        return self.share.answered(asked, answer(self.share.asked(asked), problem, out, heads))

    def _problem(
        self, x: Tensor, mask: Mask, cache: Cache | None, positions: Tensor | None, absorb: bool | None
    ) -> tuple[Problem, Float[Tensor, "head value_dim latent"] | None]:
        """What to attend to, and in the absorbed form the W_UV that its output still has to go through."""
        tokens = x.shape[1]
        share, count = self.share, self.num_heads
        asking = x if self.q_down is None or self.q_norm is None else self.q_norm(self.q_down(x))
        c, turning = self.kv_down(x).split((self.latent_dim, self.rope_dim), dim=-1)
        c = self.kv_norm(c)
        if share is not None:  # behind what every rank computes alike, in front of what belongs to heads
            asking, c, turning = share.entering(asking), share.entering(c), share.entering(turning)
            count = len(share.heads)
        q = split(self.q_proj(asking), self.nope_dim + self.rope_dim)
        at, _ = places(positions, cache, tokens, tokens, same=True)
        q_nope, q_rope = q.split((self.nope_dim, self.rope_dim), dim=-1)
        q_rope = self.position(q_rope, at)
        latent = torch.cat((c.unsqueeze(1), self.position(turning.unsqueeze(1), at)), dim=-1)
        latent, _, mask, frame = remembered(latent, latent[..., :0], mask, cache, queries=tokens, heads=q.shape[1])
        mask.check(frame if share is None else replace(frame, heads=share.of))
        mask = mask if share is None else share.mask(mask)
        stream = 0 if share is None else share.heads[0]
        scores = Scores(self.scale, dropout=self.dropout if self.training else 0.0, stream=stream)
        c, k_rope = latent.split((self.latent_dim, self.rope_dim), dim=-1)
        if self._absorbs(tokens, latent.shape[2]) if absorb is None else absorb:
            up = local(self.kv_up.weight).unflatten(0, (count, -1))  # head, nope_dim + value_dim, latent_dim
            w_uk, w_uv = up.split((self.nope_dim, self.value_dim), dim=1)
            q = torch.cat((q_nope @ w_uk, q_rope), dim=-1)
            if torch.compiler.is_compiling():
                c = c.clone()  # the NaN guard of a traced graph takes no two operands that share memory
            return Problem(q, latent, c, Groups.even(count, 1), mask, frame, scores), w_uv
        up = split(self.kv_up(c.squeeze(1)), self.nope_dim + self.value_dim)
        k_nope, v = up.split((self.nope_dim, self.value_dim), dim=-1)
        q = torch.cat((q_nope, q_rope), dim=-1)
        k = torch.cat((k_nope, k_rope.expand(-1, count, -1, -1)), dim=-1)
        return Problem(q, k, v, Groups.even(count, count), mask, frame, scores), None

    def _absorbs(self, queries: int, keys: int) -> bool:
        """Whether the absorbed form multiplies less, and kv_up is a plain matrix (LoRA and quantizers are not)."""
        up = self.kv_up
        hooked = up._forward_hooks or up._forward_pre_hooks
        if type(up) not in (nn.Linear, HeadRows) or type(local(up.weight).data) is not Tensor or hooked:
            return False
        r, head = self.latent_dim, self.nope_dim + self.value_dim
        return (keys - queries) * r * head > queries * keys * (2 * r - head)

    def extra_repr(self) -> str:
        said = f"{self.d_model}, {self.num_heads}, latent_dim={self.latent_dim}, nope_dim={self.nope_dim}, "
        return said + f"rope_dim={self.rope_dim}, value_dim={self.value_dim}"
