"""Attention of one head as a few bytes of text: an 8-bit map, or the q and k from which the browser computes it.

A map is stored as round(255 √p), which changes a weight p by at most √p/255 < 4e-3, small weights least. q and k
are stored in half precision (single, if scores are too large for half), linear in tokens, and only if the softmax
of the stored values is as exact. Both are deflated (RFC 1951) and written in base64, which has no character with a
meaning in HTML.

>>> import torch
>>> from multihead.show.encode import map_from_text, map_text
>>> weights = torch.tensor([[0.9, 0.1], [0.25, 0.75]])
>>> bool((map_from_text(map_text(weights), 2, 2) - weights).abs().max() < 4e-3)
True
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

NEAR = 4e-3
"""The most by which a stored weight may differ from the model's."""

LONG = 2048
"""Texts of more tokens are stored as q and k where possible, never as n × n maps."""

ROWS = 256
"""Query rows that are computed at a time."""


@dataclass
class BlobTable:
    """The encoded texts of a page, which refers to them by index; equal texts are stored once."""

    texts: list[str] = field(default_factory=list[str])
    _indices: dict[str, int] = field(default_factory=dict[str, int])
    size: int = 0
    """characters"""

    def add(self, text: str) -> int:
        """The index of an encoded text, stored once."""
        if text not in self._indices:
            self._indices[text] = len(self.texts)
            self.texts.append(text)
            self.size += len(text)
        return self._indices[text]


def deflated(data: bytes) -> str:
    """Bytes as text: deflated, base64."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.b64encode(packer.compress(data) + packer.flush()).decode()


def inflated(text: str) -> bytes:
    """The inverse of `deflated`."""
    return zlib.decompress(base64.b64decode(text), -15)


# ---- maps -------------------------------------------------------------------------------------


def map_text(weights: Float[Tensor, "query key"]) -> str:
    """round(255 √p), row after row."""
    return deflated((weights.float().clamp(0, 1).sqrt() * 255).round().to(torch.uint8).cpu().numpy().tobytes())


def map_from_text(text: str, queries: int, keys: int) -> Float[Tensor, "query key"]:
    """The weights as the page decodes them."""
    coded = torch.frombuffer(bytearray(inflated(text)), dtype=torch.uint8).view(queries, keys)
    return (coded.float() / 255) ** 2


# ---- q and k ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowMask:
    """The keys that each query row sees and the bias of its scores, linear in tokens.

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
    """q and k of equal magnitude to encode, which include the scale: these lose least in half precision.

    `shift`: subtract the mean key. This adds the same to all scores of a row, which the softmax ignores, and
    the remaining values are smaller and are rounded less.
    """
    q, k = q.float() * scale, k.float()
    if shift:
        k = k - k.mean(0)
    largest = [float(x.abs().max()) if x.numel() else 0.0 for x in (q, k)]
    both = (largest[1] / largest[0]) ** 0.5 if all(largest) else 1.0
    return q * both, k / both


def weights_from(
    q: Float[Tensor, "query dim"], k: Float[Tensor, "key dim"], mask: RowMask, rows: range
) -> Float[Tensor, "row key"]:
    """The weights that the page computes from encoded q and k, softmax(q kᵀ), for some rows."""
    row = torch.arange(rows.start, rows.stop)
    logits = q[row].float() @ k.float().T
    if mask.softcap is not None:
        logits = mask.softcap * torch.tanh(logits / mask.softcap)
    key = torch.arange(len(k))
    if mask.bias is not None:
        logits = logits + mask.bias[key[None] - row[:, None] + len(q) - 1]
    hidden = (key < mask.first[row, None]) | (key >= mask.end[row, None])
    logits = logits.masked_fill(hidden, -torch.inf)
    top = logits.amax(1, keepdim=True).clamp_min(-1e30)
    if mask.sink is not None:
        top = top.clamp_min(mask.sink)
    parts = torch.exp(logits - top)
    total = parts.sum(1, keepdim=True) + (0.0 if mask.sink is None else torch.exp(mask.sink - top))
    return torch.where(total > 0, parts / total, torch.zeros_like(parts))


def halves_text(x: Float[Tensor, "token dim"]) -> str:
    """Half-precision numbers encoded as text; all high bytes, then all low ones, which deflates better."""
    pairs = np.frombuffer(x.half().cpu().contiguous().numpy().astype("<f2").tobytes(), dtype=np.uint8).reshape(
        -1, 2
    )
    return deflated(pairs[:, ::-1].T.tobytes())


def singles_text(x: Float[Tensor, "*shape"]) -> str:
    """Single-precision numbers, little end first."""
    return deflated(x.float().cpu().contiguous().numpy().astype("<f4").tobytes())


def counts_text(x: Shaped[Tensor, " number"]) -> str:
    """Integers from 0 to 2³² − 1, little end first."""
    return deflated(x.cpu().contiguous().numpy().astype("<u4").tobytes())


def shares_text(x: Float[Tensor, "row column"], low: float) -> str:
    """Numbers of low … 1 in 254 steps; 255 for NaN."""
    steps = ((x.double() - low) / (1 - low) * 254).round().clamp(0, 254)
    return deflated(torch.where(x.isnan(), 255.0, steps).to(torch.uint8).numpy().tobytes())
