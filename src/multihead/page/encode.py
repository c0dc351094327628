"""Attention of one head as a few bytes of text: an 8-bit map, or the q and k that it follows from.

A map is kept as round(255 √p), so that p is off by at most √p/255 < 4e-3; small weights, of which there are many,
are kept best. q and k are kept at half precision (single, where scores are too large for it), linear in tokens, and
the browser computes softmax(q kᵀ) from them: only where that was found to be as near. Both are deflated (RFC 1951)
and written in base64, which holds no character that means anything in HTML.

>>> import torch
>>> from multihead.page.encode import map_from_text, map_text
>>> weights = torch.tensor([[0.9, 0.1], [0.25, 0.75]])
>>> bool((map_from_text(map_text(weights), 2, 2) - weights).abs().max() < 4e-3)
True
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

NEAR = 4e-3
"""How far a weight may be from the model's own, in either way of keeping it."""

LONG = 2048
"""Tokens from which on no map is written where q and k do: it would be larger, and n × n."""

ROWS = 256
"""Query rows that are computed at a time."""


def deflated(data: bytes) -> str:
    """Bytes as text: deflated, base64."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.b64encode(packer.compress(data) + packer.flush()).decode()


def inflated(text: str) -> bytes:
    """What `deflated` was given."""
    return zlib.decompress(base64.b64decode(text), -15)


# ---- maps -------------------------------------------------------------------------------------


def map_text(weights: Float[Tensor, "query key"]) -> str:
    """round(255 √p), row after row."""
    return deflated((weights.float().clamp(0, 1).sqrt() * 255).round().to(torch.uint8).cpu().numpy().tobytes())


def map_from_text(text: str, queries: int, keys: int) -> Float[Tensor, "query key"]:
    """The weights as the page reads them."""
    coded = torch.frombuffer(bytearray(inflated(text)), dtype=torch.uint8).view(queries, keys)
    return (coded.float() / 255) ** 2


# ---- q and k ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What each query row sees and what is added to its scores, linear in tokens.

    Row i sees the keys first[i] … end[i] − 1; `bias[key − query + queries − 1]` is added to its scores.
    """

    first: Shaped[Tensor, " query"]
    end: Shaped[Tensor, " query"]
    bias: Float[Tensor, " offset"] | None = None
    softcap: float | None = None
    sink: float | None = None


def scaled(
    q: Float[Tensor, "query dim"], k: Float[Tensor, "key dim"], scale: float, *, shift: bool
) -> tuple[Float[Tensor, "query dim"], Float[Tensor, "key dim"]]:
    """q and k as large as each other, the scale in them: what is best rounded to half precision.

    `shift`: the mean key is taken out, which adds the same to all scores of a row: no softmax sees it, and what
    remains is smaller, so that it is rounded less.
    """
    q, k = q.float() * scale, k.float()
    if shift:
        k = k - k.mean(0)
    largest = [float(x.abs().max()) if x.numel() else 0.0 for x in (q, k)]
    both = (largest[1] / largest[0]) ** 0.5 if all(largest) else 1.0
    return q * both, k / both


def weights_from(
    q: Float[Tensor, "query dim"], k: Float[Tensor, "key dim"], seen: Seen, rows: range
) -> Float[Tensor, "row key"]:
    """softmax(q kᵀ) of some rows, as the page computes it."""
    at = torch.arange(rows.start, rows.stop)
    logits = q[at].float() @ k.float().T
    if seen.softcap is not None:
        logits = seen.softcap * torch.tanh(logits / seen.softcap)
    places = torch.arange(len(k))
    if seen.bias is not None:
        logits = logits + seen.bias[places[None] - at[:, None] + len(q) - 1]
    hidden = (places < seen.first[at, None]) | (places >= seen.end[at, None])
    logits = logits.masked_fill(hidden, -torch.inf)
    top = logits.amax(1, keepdim=True).clamp_min(-1e30)
    if seen.sink is not None:
        top = top.clamp_min(seen.sink)
    parts = torch.exp(logits - top)
    total = parts.sum(1, keepdim=True) + (0.0 if seen.sink is None else torch.exp(seen.sink - top))
    return torch.where(total > 0, parts / total, torch.zeros_like(parts))


def halves_text(x: Float[Tensor, "token dim"]) -> str:
    """Half-precision numbers; all high bytes, then all low ones, which deflates better."""
    pairs = np.frombuffer(x.half().cpu().contiguous().numpy().astype("<f2").tobytes(), dtype=np.uint8).reshape(
        -1, 2
    )
    return deflated(pairs[:, ::-1].T.tobytes())


def singles_text(x: Float[Tensor, "*shape"]) -> str:
    """Single-precision numbers, little end first."""
    return deflated(x.float().cpu().contiguous().numpy().astype("<f4").tobytes())


def counts_text(x: Shaped[Tensor, " number"]) -> str:
    """Whole numbers below 2³², little end first."""
    return deflated(x.cpu().contiguous().numpy().astype("<u4").tobytes())


def shares_text(x: Float[Tensor, "row column"], low: float) -> str:
    """Numbers of low … 1 in 254 steps; 255 where there is none."""
    steps = ((x.double() - low) / (1 - low) * 254).round().clamp(0, 254)
    return deflated(torch.where(x.isnan(), 255.0, steps).to(torch.uint8).numpy().tobytes())
