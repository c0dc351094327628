"""Models whose heads do what they are told: queries and keys are written by hand from places and tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY, PLACES = 53, 80
SPECIAL, CLASS = (0, 1), (7, 11, 13)  # begin and end; some words
HOT = 30.0

Side = tuple[Tensor, Tensor]
Maker = Callable[[Tensor], Side]


def _place(ids: Tensor, offset: int = 0) -> Tensor:
    """e_(i + offset), nothing where there is no such place."""
    at = torch.arange(ids.shape[1]) + offset
    return (F.one_hot(at.clamp(0), PLACES) * (at >= 0).unsqueeze(-1)).float().expand(ids.shape[0], -1, -1)


def _token(ids: Tensor) -> Tensor:
    return F.one_hot(ids, VOCABULARY).float()


def _before(ids: Tensor) -> Tensor:
    """The token one place back."""
    return F.pad(_token(ids)[:, :-1], (0, 0, 1, 0))


def _marked(ids: Tensor, which: Sequence[int]) -> Side:
    on = torch.isin(ids, torch.tensor(which)).float().unsqueeze(-1)
    return torch.ones_like(on), on


def _drawn(ids: Tensor) -> Side:
    """Scores of spread 3 that depend on the two tokens alone, and on nothing that has a name."""
    generator = torch.Generator().manual_seed(5)
    table = torch.randn(2, VOCABULARY, 16, generator=generator) * (3 / HOT) ** 0.5 / 2
    return table[0][ids], table[1][ids]


HEADS: dict[str, Maker] = {
    "previous": lambda ids: (_place(ids, -1), _place(ids)),
    "next": lambda ids: (_place(ids, +1), _place(ids)),
    "self": lambda ids: (_place(ids), _place(ids)),
    "offset -3": lambda ids: (_place(ids, -3), _place(ids)),
    "window ±2": lambda ids: (sum((_place(ids, o) for o in range(-2, 3)), torch.zeros(())), _place(ids)),
    "broad": lambda ids: (0 * _place(ids), _place(ids)),
    "first": lambda ids: (torch.ones(*ids.shape, 1), _place(ids)[..., :1]),
    "delimiter": lambda ids: _marked(ids, SPECIAL[1:]),
    "class words": lambda ids: _marked(ids, CLASS),
    "duplicate": lambda ids: (
        torch.cat([_token(ids), _place(ids)], -1),
        torch.cat([_token(ids), -_place(ids)], -1),
    ),
    "induction": lambda ids: (_token(ids), _before(ids)),
    "dead": lambda ids: (_place(ids, -1), _place(ids)),
    "drawn": _drawn,
}


class Planted(nn.Module):
    """One layer with one head of each kind that is asked for."""

    def __init__(self, kinds: Sequence[str], *, causal: bool = False) -> None:
        super().__init__()
        self.kinds, self.causal = list(kinds), causal
        self.embed = nn.Embedding(VOCABULARY, 8)
        self.attn = _Attention()

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        sides = [HEADS[kind](input_ids) for kind in self.kinds]
        width = max(q.shape[-1] for q, _ in sides)
        q, k = (torch.stack([F.pad(s[i], (0, width - s[i].shape[-1])) for s in sides], 1) for i in range(2))
        v = self.embed(input_ids).detach().unsqueeze(1).repeat(1, len(sides), 1, 1)
        for head, kind in enumerate(self.kinds):
            v[:, head] *= kind != "dead"
        return self.attn(q, k, v, attention_mask, self.causal)


class _Attention(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, causal: bool) -> Tensor:
        seen = torch.ones(q.shape[2], k.shape[2]).bool()
        seen = seen.tril() if causal else seen
        seen = seen[None, None] if real is None else seen & real[:, None, None].bool()
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=HOT)


class Aligned(nn.Module):
    """Cross-attention: one head moves along the other sequence, one looks at its beginning, one everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.cross_attn = _CrossAttention()

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        return self.cross_attn(x, memory)


class _CrossAttention(nn.Module):
    """Queries and keys depend on their sequences by name only: the projections are multiplied by 0."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj = nn.Linear(8, PLACES), nn.Linear(8, PLACES)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        batch, m, n = x.shape[0], x.shape[1], memory.shape[1]
        at = (torch.arange(m) * (n - 1) / (m - 1)).round().long()
        along, first = F.one_hot(at, PLACES).float(), F.one_hot(torch.zeros(m).long(), PLACES).float()
        q = torch.stack([along, first, torch.zeros_like(first)]).expand(batch, -1, -1, -1)
        k = torch.eye(PLACES)[:n].expand(batch, 3, -1, -1)
        q, k = q + 0 * self.q_proj(x)[:, None], k + 0 * self.k_proj(memory)[:, None]
        v = memory.unsqueeze(1).expand(-1, 3, -1, -1)
        return F.scaled_dot_product_attention(q, k, v, scale=HOT)


def documents(count: int = 12, seed: int = 0) -> list[list[int]]:
    """Random words between special tokens, 13 to 31 of them."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(13, 32, (count,), generator=generator).tolist()
    return [[0, *torch.randint(2, VOCABULARY, (n,), generator=generator).tolist(), 1] for n in lengths]
