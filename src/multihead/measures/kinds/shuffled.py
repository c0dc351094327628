"""Position or content: shuffle the tokens of a text, and measure whether a head attends to positions or to tokens.

With π(i) the new position of token i, A the map of the text and B the map of the shuffled text, two overlaps of
rows show whether attention stays at the position or follows the token:

    position: Σ_j min(A_ij, B_ij)        content: Σ_j min(A_ij, B_π(i)π(j))

Both sum over the keys that row i sees in both orders, with A and B normalised to sum to 1 over them. A row is
weighted by the mass of A on these keys. Special tokens are not moved, and their rows do not count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Batch, Inputs, PerSite, State
from multihead.layer import Problem, weights_of
from multihead.layer._problem import autocast_disabled
from multihead.layer.outputs import Cells
from multihead.measures.kinds.document_means import ENOUGH, DocumentMeans
from multihead.measures.kinds.evidence import Driven
from multihead.measures.kinds.token_ids import KNOWN, batch_generator, token_ids_name
from multihead.model.call import Call
from multihead.model.model_inputs import is_encoder_decoder
from multihead.model.sites import Site
from multihead.model.statistics.statistics_options import Statistics

TOKENS = 128
"""Only the first tokens of longer documents are used, to keep the maps small."""

MOVED = 4
"""A document counts if at least this many of its tokens have moved."""

MARGIN = 0.1
"""The confidence interval of the difference must exceed this for a head to be driven by position or content."""

STREAMS = ("position", "content", "driven")

HEADS = 16
"""Heads whose maps are computed at once."""


class ShuffledPair:
    """A batch of documents, followed by the same documents shuffled."""

    def __init__(
        self,
        ids: Int[Tensor, "document token"],
        real: Bool[Tensor, "document token"],
        special: Sequence[int],
        generator: torch.Generator,
    ) -> None:
        movable = real & ~torch.isin(ids, torch.tensor(list(special), dtype=ids.dtype))
        shuffled, self.new_position = ids.clone(), torch.arange(ids.shape[1]).repeat(ids.shape[0], 1)
        for b in range(ids.shape[0]):
            old = movable[b].nonzero()[:, 0]
            new = old[torch.randperm(len(old), generator=generator)]
            self.new_position[b, old] = new
            shuffled[b, new] = ids[b, old]
        moved = (self.new_position != torch.arange(ids.shape[1])).sum(-1) >= MOVED
        self.counted_rows = movable & moved.unsqueeze(-1)
        self.ids = torch.cat([ids, shuffled])

    def overlaps(self, problem: Problem) -> Mapping[str, Float[Tensor, "document head"]]:
        """Both overlaps of every document and head, for one attention that ran on the pair."""
        parts = [self._overlaps(problem, range(h, min(h + HEADS, problem.coordinates.heads)))
                 for h in range(0, problem.coordinates.heads, HEADS)]  # fmt: skip
        position, content = (torch.cat(p, dim=1) for p in zip(*parts, strict=True))
        return {"position": position, "content": content, "driven": position - content}

    def _overlaps(self, problem: Problem, heads: range) -> tuple[Tensor, Tensor]:
        """Overlaps by position and by token, of rows before and after the shuffle."""
        with autocast_disabled(problem.q.device):
            maps = weights_of(problem, Cells(list(heads))).double().cpu()
        allowed = problem.mask.allowed(problem.coordinates.grid(heads=slice(heads.start, heads.stop)))
        visible = torch.ones(()).bool() if allowed is None else allowed.cpu()
        visible = visible.expand(maps.shape)
        half, n = maps.shape[0] // 2, maps.shape[2]
        a, b = maps[:half], maps[half:]
        rows = self.new_position[:, None, :, None].expand(-1, a.shape[1], -1, n)
        columns = self.new_position[:, None, None, :].expand(-1, a.shape[1], n, -1)

        def unshuffled(x: Tensor) -> Tensor:
            return x.gather(2, rows).gather(3, columns)

        common = visible[:half] & unshuffled(visible[half:])
        common &= common.sum(-1, keepdim=True) >= 2
        common &= self.counted_rows[:, None, :, None]
        weight = (a * common).sum(-1)
        return _overlap(a, b, common, weight), _overlap(a, unshuffled(b), common, weight)


def _overlap(a: Tensor, b: Tensor, common: Tensor, weight: Tensor) -> Float[Tensor, "document head"]:
    a, b = ((x * common) / (x * common).sum(-1, keepdim=True).clamp(min=1e-30) for x in (a, b))
    return (torch.minimum(a, b).sum(-1) * weight).sum(-1) / weight.sum(-1)


class ShuffledTokens(PerSite[DocumentMeans]):
    """The overlaps of every head over documents. Every batch runs once more, with a shuffled copy of each row."""

    name = "shuffled"
    forwards = 2.5

    def __init__(self, model: nn.Module, options: Statistics, *, seed: int = 0) -> None:
        super().__init__()
        self.model, self.options, self.seed = model, options, seed
        self.reason = ""
        """why tokens cannot be shuffled; "" if they can"""
        self._pair: ShuffledPair | None = None

    def inputs(self, batch: Batch) -> Inputs | None:
        """A batch and its shuffled copy; None if the tokens cannot be shuffled."""
        name = token_ids_name(batch.inputs)
        self.reason = self.reason or self._why_not(batch.inputs, name)
        if self.reason or name is None:
            return None
        inputs = batch.inputs
        if batch.repeated is not None:
            rows, documents = (~batch.repeated).nonzero()[:, 0].tolist(), inputs[name].shape[:1]
            inputs = {
                n: x[rows] if isinstance(x, Tensor) and x.shape[:1] == documents else x for n, x in inputs.items()
            }
            if not rows:
                return None
        self._pair, shuffled = _pair_of(
            inputs, name, self.options.special, batch_generator(self.seed, batch.index, 1)
        )
        return shuffled if bool(self._pair.counted_rows.any()) else None

    def _why_not(self, inputs: Inputs, name: str | None) -> str:
        """Why the tokens of a batch cannot be shuffled; "" if they can."""
        if is_encoder_decoder(self.model):
            return "the model reads two sequences, which cannot be shuffled together"
        if name is None:
            return "the inputs have no token ids"
        others = [n for n, x in inputs.items() if isinstance(x, Tensor) and n not in (name, *KNOWN)]
        return f"the model also reads {others[0]}, which cannot be shuffled together" if others else ""

    def make(self, site: Site) -> DocumentMeans:
        return DocumentMeans(STREAMS, site.heads)

    def restore(self, site: Site, state: State) -> DocumentMeans:
        return DocumentMeans.from_state(state)

    def add(self, call: Call, out: HeadOutputs) -> None:
        if not call.cross:
            assert self._pair is not None
            self.of_call(call).add(self._pair.overlaps(call.problem))

    def merge(self, later: ShuffledTokens) -> None:
        super().merge(later)
        self.reason = self.reason or later.reason

    def state(self) -> dict[str, Any]:
        return super().state() | {"reason": self.reason}

    def load(self, state: State) -> None:
        super().load(state)
        self.reason = str(state["reason"])

    def drivers(self, key: tuple[str, int], heads: int, *, cross: bool) -> list[Driven]:
        """What drives each head of one attention."""
        reason = self.reason or ("its keys come from a different sequence" if cross else "")
        return _position_or_content(self.of.get(key) or DocumentMeans(STREAMS, heads), reason)


def _position_or_content(overlaps: DocumentMeans, reason: str) -> list[Driven]:
    """By shuffled tokens: what drives each head of one attention; `reason` is why nothing was measured, or ""."""
    position, content, difference = (overlaps.mean[overlaps.index[n]].tolist() for n in STREAMS)
    half, count = (x[overlaps.index["driven"]].tolist() for x in (overlaps.half, overlaps.count))
    drivers: list[Driven] = []
    for p, c, d, h, n in zip(position, content, difference, half, count, strict=True):
        why = "" if n >= ENOUGH else reason or f"{n} documents could be shuffled, an interval needs {ENOUGH}"
        by = "" if math.isnan(h) else "position" if d - h > MARGIN else "content" if d + h < -MARGIN else "both"
        drivers.append(Driven(by, d, d - h, d + h, p, c, why))
    return drivers


def _pair_of(
    batch: Mapping[str, Any], name: str, special: Sequence[int], generator: torch.Generator
) -> tuple[ShuffledPair, dict[str, Tensor]]:
    """The pair of a batch whose token ids are the input `name`, and the model's inputs for it."""
    ids = batch[name].cpu()
    mask = batch.get("attention_mask")
    real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.cpu().bool()
    left_padded = ids.shape[1] > TOKENS and not bool(real[:, :TOKENS].any(-1).all())
    tokens = slice(-TOKENS, None) if left_padded else slice(0, TOKENS)
    pair = ShuffledPair(ids[:, tokens], real[:, tokens], special, generator)
    inputs = {name: pair.ids}
    for other in ("attention_mask", "token_type_ids", "position_ids"):
        if isinstance(batch.get(other), Tensor):
            inputs[other] = batch[other][:, tokens].repeat(2, 1)
    return pair, {n: x.to(batch[name].device) for n, x in inputs.items()}
