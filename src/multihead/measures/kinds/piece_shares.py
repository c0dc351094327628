"""The five shares of one attention call, by piece: log n = spread + rest + position + word + match.

A row that sees n keys with weights p has log n − H(p) = KL(p ‖ uniform). By the chain rule this is *rest*, the KL
of how much the row gives to which resting place (the first token, special tokens, a learned sink), plus (1 − r)
times the KL of its weights over the m ordinary keys, with r the mass that rests. The latter is split by log-linear
models (`projections`): what position explains, what the popularity of keys explains in addition, averaged over the
two orders (Shapley), and the match, which is what remains. The sum is exact, whatever the models are.

The best strength α of the regularisation depends on the noise in the rows of a head, and so does whether offsets or
words explain anything at all. So the split is computed for each of `VARIANTS`, and the one that explains most
over the corpus, with no share below 0, counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from multihead.layer import Problem, weights_of
from multihead.layer._problem import autocast_disabled
from multihead.layer.outputs import Cells
from multihead.measures.kinds.log_linear_fit import Marginals, VisibleKeys, fit
from multihead.model.call import Call

STRENGTHS = (1.0, 1 / 16, 1 / 256)
"""α in units of the mean row: rows that agree exactly need little, rows that choose alone need much."""

TERMS = ("position", "word", "match")
MODELS = ("position", "word", "both", "both, words alone 0", "both, position alone 0")
"""What a variant fits. A model that is worse than uniform weights alone explains 0 alone."""

VARIANTS = ("match only", *(f"{model} {i}" for i in range(len(STRENGTHS)) for model in MODELS))
STREAMS = ("spread", "rest", *(f"{variant}: {term}" for variant in VARIANTS for term in TERMS))
"""The values of a piece: shares of its Σ log n."""

EXACT = 32
"""Offsets up to here have a parameter each; beyond, two per octave."""

VALUES = 1 << 22
"""Weights held at once."""

Numbers = dict[str, Float[Tensor, "piece head"]]
Bins = Int[Tensor, "query key"]


@dataclass(frozen=True)
class PieceView:
    """What the queries of a call see."""

    visible: Bool[Tensor, "piece head_or_1 query key"]
    resting: Bool[Tensor, "piece key"]
    real: Bool[Tensor, "piece query"]
    beyond: Bool[Tensor, "piece head_or_1 query"]
    """whether a query also sees a learned sink, or padding that the model does not mask, such as silence"""

    @staticmethod
    def of(call: Call, resting: Bool[Tensor, "piece key"]) -> PieceView:
        """Which keys of each piece are visible, and which are resting places."""
        size = call.problem.coordinates
        allowed = call.problem.mask.allowed(size.grid())
        visible = torch.ones((), dtype=torch.bool, device=size.device) if allowed is None else allowed
        heads = visible.shape[1] if visible.ndim == 4 else 1
        visible = visible.expand(size.batch, heads, size.queries, size.keys)
        beyond = torch.full(
            (size.batch, heads, size.queries), call.problem.scores.sinks is not None, device=size.device
        )
        if call.keys.valid is not None:
            valid = call.keys.valid.to(size.device).expand(size.batch, size.keys)[:, None, None]
            beyond = beyond | (visible & ~valid).any(-1)
            visible = visible & valid
        return PieceView(visible, resting, call.real_rows.to(size.device).expand(size.batch, size.queries), beyond)


def resting_places(
    call: Call, special: Sequence[int], grid: tuple[int, int, int] | None
) -> Bool[Tensor, "piece key"]:
    """The resting places of pieces: the first real token and special tokens; of patches, those before the grid."""
    size = call.problem.coordinates
    shape = size.batch, size.keys
    if grid is not None:
        return (torch.arange(size.keys, device=size.device) < grid[0]).expand(shape)
    real = torch.ones(shape, dtype=torch.bool, device=size.device)
    if call.keys.valid is not None:
        real = call.keys.valid.to(size.device).expand(shape)
    resting = real & (real.cumsum(-1) == 1) & (not call.keys.dropped)
    if call.keys.ids is not None and special:
        ids = call.keys.ids.to(size.device).expand(shape)
        resting = resting | torch.isin(ids, torch.tensor(list(special), device=size.device))
    return resting


@lru_cache(maxsize=8)
def offset_bins(queries: int, keys: int, device: torch.device | None = None) -> tuple[Bins, int]:
    """The bin of every offset key − query, of sequences that end together, and the number of bins."""
    offset = torch.arange(keys, device=device) - torch.arange(keys - queries, keys, device=device)[:, None]
    return _numbered(_level(offset, EXACT))


@lru_cache(maxsize=8)
def patch_bins(prefix: int, rows: int, columns: int, device: torch.device | None = None) -> tuple[Bins, int]:
    """The bin of every pair of an offset in rows and one in columns; one for pairs with a token before the grid."""
    place = torch.arange(rows * columns, device=device)
    steps = [_level(x - x[:, None], 3) for x in (place // columns, place % columns)]
    joint = steps[0] * 1000 + steps[1]
    bins = torch.full((prefix + rows * columns,) * 2, -1_000_000, device=device)
    bins[prefix:, prefix:] = joint
    return _numbered(bins)


def _level(offset: Int[Tensor, "query key"], exact: int) -> Bins:
    far = offset.abs().clamp(min=exact + 1).double()
    beyond = exact + 1 + torch.floor(2 * torch.log2(far / (exact + 1))).long()
    return torch.where(offset.abs() > exact, beyond, offset.abs()) * offset.sign()


def _numbered(levels: Bins) -> tuple[Bins, int]:
    names, bins = levels.unique(return_inverse=True)
    return bins, len(names)


@torch.no_grad()
def piece_shares(call: Call, resting: Bool[Tensor, "piece key"], bins: tuple[Bins, int] | None) -> Numbers:
    """The streams of every piece and head; NaN where no row sees two keys."""
    with autocast_disabled(call.problem.q.device):
        view, size = PieceView.of(call, resting), call.problem.coordinates
        step = max(1, VALUES // max(size.batch * size.queries * size.keys, 1))
        step = 1 if view.visible.shape[1] > 1 else step  # heads with masks of their own see different keys
        parts = [
            _Rows.read(call.problem, view, range(h, min(h + step, size.heads)), bins).streams()
            for h in range(0, size.heads, step)
        ]
    return {name: torch.cat([part[name] for part in parts], dim=1).cpu() for name in STREAMS}


@dataclass(frozen=True)
class _Rows:
    """Sums over the rows of some heads; `half` are even and odd rows."""

    visible: Bool[Tensor, "piece query key"]
    ordinary: Bool[Tensor, "piece key"]
    log_n: Float[Tensor, "piece head"]
    rest: Float[Tensor, "piece head"]
    excess: Float[Tensor, "piece head"]
    """Σ (1 − r) KL(p' ‖ uniform)"""
    rows: Float[Tensor, "half piece head query"]
    keys: Float[Tensor, "half piece head key"]
    bins: Float[Tensor, "half piece head bin"]
    table: tuple[Bins, int] | None

    @staticmethod
    def read(problem: Problem, view: PieceView, heads: range, bins: tuple[Bins, int] | None) -> _Rows:
        """Sums over rows and keys of each piece, for its shares."""
        size = problem.coordinates
        mask_head = heads.start if view.visible.shape[1] > 1 else 0
        visible, ordinary = view.visible[:, mask_head], ~view.resting
        shape, count = (size.batch, len(heads)), 1 if bins is None else bins[1]
        zeros = partial(torch.zeros, dtype=torch.float64, device=size.device)
        log_n, rest, excess = (zeros(shape) for _ in range(3))
        rows, keys, sums = (zeros((2, *shape, width)) for width in (size.queries, size.keys, count))
        step = max(2, VALUES // max(size.batch * len(heads) * size.keys, 1) // 2 * 2)
        for start in range(0, size.queries, step):
            block = slice(start, min(start + step, size.queries))
            p = weights_of(problem, Cells(list(heads), range(block.start, block.stop))).double()
            seen, beyond = visible[:, None, block], view.beyond[:, mask_head, None, block]
            n = seen.sum(-1) + beyond.long()
            m = (seen & ordinary[:, None, None]).sum(-1).clamp(min=1)
            counts = view.real[:, None, block] & (n >= 2) & p.isfinite().all(-1)
            p = torch.where(counts[..., None] & seen, p, 0.0)
            x = p * ordinary[:, None, None]
            o, total = x.sum(-1), p.sum(-1)
            places = _xlogx(p * ~ordinary[:, None, None])
            missing = torch.where(beyond, counts.double() - total, 0.0).clamp(min=0.0)
            places, total = places + _xlogx(missing.unsqueeze(-1)), total + missing
            log = n.clamp(min=1).double().log()
            log_n += (counts * log).sum(-1)
            rest += (places + (total - o) * log + torch.special.xlogy(o, o * n / m)).sum(-1)
            excess += (_xlogx(x) - torch.special.xlogy(o, o / m)).sum(-1)
            for half in range(2):
                rows[half, ..., block][..., half::2] = o[..., half::2]
                keys[half] += x[..., half::2, :].sum(-2)
                if bins is not None:
                    index = bins[0][block][half::2].flatten()
                    sums[half].index_add_(-1, index, x[..., half::2, :].flatten(-2))
        return _Rows(visible, ordinary, log_n, rest, excess, rows, keys, sums, bins)

    def streams(self) -> Numbers:
        """The shares of every piece and head, by model."""
        explained = self._explained()
        excess, none = self.excess, torch.zeros_like(self.excess)
        gains = {"match only": (none, none, none)}
        for i in range(len(STRENGTHS)):
            position, word, both = (explained[name][i] for name in MODELS[:3])
            gains[f"position {i}"], gains[f"word {i}"] = (position, none, position), (none, word, word)
            gains[f"both {i}"] = position, word, both
            gains[f"both, words alone 0 {i}"], gains[f"both, position alone 0 {i}"] = (
                (position, none, both),
                (none, word, both),
            )
        values = {"spread": self.log_n - self.rest - excess, "rest": self.rest}
        for name, (position, word, both) in gains.items():
            values[f"{name}: position"] = (position + both - word) / 2
            values[f"{name}: word"] = (word + both - position) / 2
            values[f"{name}: match"] = excess - both
        return {name: (x / self.log_n).masked_fill(self.log_n == 0, torch.nan) for name, x in values.items()}

    def _explained(self) -> dict[str, Float[Tensor, "strength piece head"]]:
        """What each model explains, by α. Pieces share offsets if their masks differ by hidden keys only."""
        shared = self.visible.any(0)
        seen = self.visible.any(1)
        same = bool((self.visible == (shared & seen[:, None]))[self.rows.sum((0, 2)) > 0].all())
        groups = [slice(0, len(seen))] if same else [slice(b, b + 1) for b in range(len(seen))]
        parts = [self._explained_by(group, shared if same else self.visible[group.start]) for group in groups]
        return {name: torch.cat([part[name] for part in parts], dim=1) for name in parts[0]}

    def _explained_by(self, pieces: slice, visible: Bool[Tensor, "query key"]) -> dict[str, Tensor]:
        """What position, word and both explain of some pieces."""
        keys = self.ordinary[pieces] & self.visible[pieces].any(1)
        bins, count = (None, 0) if self.table is None else self.table
        layout = VisibleKeys(visible.double(), keys.double(), bins, count)
        heads, times = self.log_n.shape[1], len(STRENGTHS)
        halves = Marginals(*(x[:, pieces].transpose(1, 2).flatten(0, 1) for x in (self.rows, self.keys, self.bins)))
        train, test = halves.swapped().repeat(times), halves.repeat(times)
        unit = train.rows.sum((1, 2)) / (train.rows > 0).sum((1, 2)).clamp(min=1)
        strength = unit * torch.tensor(STRENGTHS, dtype=unit.dtype, device=unit.device).repeat_interleave(2 * heads)
        models = {"position": (True, False), "word": (False, True), "both": (True, True)}
        gains: dict[str, Tensor] = {}
        for name, (position, word) in models.items():
            position &= bins is not None
            model = fit(train.float(), layout.float(), strength.float(), position=position, word=word)
            gain = model.double().explained(test, layout).unflatten(0, (times, 2, heads)).sum(1)
            gains[name] = gain.transpose(1, 2)
        return gains


def _xlogx(p: Tensor) -> Tensor:
    """Σ p log p over the last axis."""
    return torch.special.xlogy(p, p).sum(-1)
