"""ΔW = (ZᵀZ + λ·mean(diag)·I)⁻¹ ZᵀR: what a cut took away, given back by the weights that are left.

Z is what goes into W_O in the *cut* model, R what is missing of the original's residual stream behind it (see
`gather`). The ridge pulls towards the weights as they are, not towards 0, and leaves the bias alone. λ is the one
of `ridges` that is best on the held-out documents; where none makes them better, the weights stay. With λ chosen,
the held-out documents are fitted to as well: their sums are there already. Not so where healing follows, which they
are to judge: what was fitted to them would look best before the first step.

>>> import copy, torch, multihead as mh
>>> from multihead.edit.fitting.calibration import Calibration
>>> from multihead.edit.fitting.refit import Refit, refit
>>> from multihead.model.head_weights import HeadWeights
>>> model = torch.nn.TransformerEncoderLayer(12, 3, batch_first=True).eval()
>>> text = Calibration(model, [{"src": torch.randn(8, 29, 12)} for _ in range(8)])
>>> layer, cut = mh.anatomy(model, {"src": torch.randn(1, 3, 12)})[0], copy.deepcopy(model)
>>> with torch.no_grad():
...     _ = cut.self_attn.out_proj.weight.mul_(0.5)          # something that can be given back
>>> own = HeadWeights.of(mh.anatomy(cut, {"src": torch.randn(1, 3, 12)})[0])
>>> new, fitted = refit(model, cut, layer, own, text, Refit())
>>> fitted.kept, fitted.after < 0.01 * fitted.before
(True, True)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead.corpus.run import Runner
from multihead.edit.fitting.calibration import Calibration
from multihead.edit.fitting.gather import Sums, gather
from multihead.edit.fitting.residual import behind
from multihead.errors import MultiheadError, SizeError
from multihead.model.anatomy import LayerAnatomy
from multihead.model.compiled import inner
from multihead.model.forward import Forward
from multihead.model.head_weights import HeadWeights
from multihead.model.statistics.cross_moments import Crossed

RIDGES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
RANK_TO = 2048
"""Up to so many columns the rank is computed; beyond, it is said to be at most the tokens."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Refit:
    """How weights are fitted again.

    `ridges`: the λ to choose from, relative to the mean of diag(ZᵀZ). `behind`: fit also the other linear maps that
    write into the stream behind a cut layer, up to the next attention (down projections of feed-forwards). `hold`:
    bytes of hidden states that may be held between fits, so that a layer need not start from the model's beginning;
    None: as many as its weights have, at least 1 GB; 0: nothing is held. `to_all`: with λ chosen, fit to the
    held-out documents too.
    """

    ridges: tuple[float, ...] = RIDGES
    behind: bool = True
    hold: int | None = None
    to_all: bool = True

    def __post_init__(self) -> None:
        if not self.ridges or min(self.ridges) <= 0:
            raise SizeError(
                f"ridges={self.ridges} must be one or more numbers above 0",
                hint="relative to the mean of diag(ZᵀZ): 0.1 is a good one; without a ridge few tokens fit noise",
            )
        if self.hold is not None and self.hold < 0:
            raise SizeError(
                f"hold={self.hold} bytes", hint="0 holds nothing; left out, as many as the weights take"
            )


@dataclass(frozen=True)
class Fitted:
    """What a fit did. Errors are Σ‖R‖² on held-out tokens, as a share of the size of what R is missing from.

    `after` is that of a fit which has not seen them.
    """

    where: str
    before: float
    after: float
    tokens: int
    ridge: float
    """the λ that was taken; 0 where nothing was changed"""
    rank: int
    columns: int
    kept: bool
    stream: bool
    """whether the residual sum was found; else only the map's own output was fitted"""

    def __str__(self) -> str:
        what = "stream" if self.stream else "output (no residual sum found)"
        if not self.kept:
            return f"{self.where}: left as it was, {what} error {self.before:.4f} on held-out tokens"
        rank = "" if self.rank == self.columns else f", rank {self.rank} of {self.columns}"
        return (
            f"{self.where}: {what} error {self.before:.4f} → {self.after:.4f} on held-out tokens "
            f"(ridge {self.ridge:g}, {self.tokens} tokens{rank})"
        )


def refit(
    teacher: nn.Module,
    student: nn.Module,
    layer: LayerAnatomy,
    new: HeadWeights,
    calibration: Calibration,
    options: Refit | None = None,
    *,
    run: Runner = Forward.run,
    progress: Progress | None = None,
) -> tuple[HeadWeights, Fitted]:
    """The o and b_o of `new`, which is installed in `student`, fitted to what the teacher does.

    b_o only where the layer has one. Nothing is written into the student.
    """
    options = options or Refit()
    part = layer.weights["o"]
    weight = dict(inner(student).named_parameters()).get(part.parameter)
    if weight is None:
        raise MultiheadError(f"the cut model has no {part.parameter}", hint="install keeps the name of W_O")
    if not new.heads and new.b_o is None:  # nothing is left that could be fitted
        return new, Fitted(layer.name, 0.0, 0.0, 0, 0.0, 0, 0, kept=False, stream=False)
    columns = columns_of(weight.detach() if part.axis == 1 else weight.detach().T, new, layer.name)
    change, fitted = _fit(
        teacher, student, part.parameter, new.b_o is not None, calibration, options, layer.name, run, progress
    )
    if not fitted.kept:
        return new, fitted
    dims = new.o.shape[2]
    rows = torch.tensor(columns, dtype=torch.long, device=change.device)
    o = new.o + change[rows].view(new.heads, dims, new.o.shape[1]).mT.to(new.o)
    b_o = None if new.b_o is None else new.b_o + change[-1].to(new.b_o)
    return replace(new, o=o, b_o=b_o), fitted


def correct(
    teacher: nn.Module,
    student: nn.Module,
    layer: LayerAnatomy,
    calibration: Calibration,
    options: Refit | None = None,
    *,
    run: Runner = Forward.run,
    progress: Progress | None = None,
) -> list[Fitted]:
    """Fit, in place, the linear maps of the student that write into the stream behind `layer`, in order.

    Their shapes stay. Maps that the model uses more than once are left alone.
    """
    options = options or Refit()
    if not options.behind:
        return []
    found: list[Fitted] = []
    for name in behind(student, calibration.example(), layer.weights["o"].parameter):
        found.append(fit_map(teacher, student, name, calibration, options, run=run, progress=progress))
    return found


def fit_map(
    teacher: nn.Module,
    student: nn.Module,
    parameter: str,
    calibration: Calibration,
    options: Refit | None = None,
    *,
    run: Runner = Forward.run,
    progress: Progress | None = None,
) -> Fitted:
    """Fit one linear map of the student, in place: W and, where its module has one, the bias."""
    weight, bias = _map(student, parameter)
    change, fitted = _fit(
        teacher, student, parameter, bias is not None, calibration, options or Refit(), parameter, run, progress
    )
    if fitted.kept:
        columns = change[:-1] if bias is not None else change
        with torch.no_grad():
            weight.add_((columns if _transposed(student, parameter, columns) else columns.T).to(weight))
            if bias is not None:
                bias.add_(change[-1].to(bias))
    return fitted


def _map(model: nn.Module, parameter: str) -> tuple[nn.Parameter, nn.Parameter | None]:
    home, _, _ = parameter.rpartition(".")
    module: Any = inner(model).get_submodule(home)
    bias = getattr(module, "bias", None)
    return dict(inner(model).named_parameters())[parameter], bias if isinstance(bias, nn.Parameter) else None


def _transposed(model: nn.Module, parameter: str, change: Crossed) -> bool:
    """Whether the weight is (column, row), as in Hugging Face's Conv1D."""
    module, _, _ = parameter.rpartition(".")
    weight = dict(inner(model).named_parameters())[parameter]
    if weight.shape[0] != weight.shape[1]:
        return weight.shape == change.shape
    return not isinstance(inner(model).get_submodule(module), nn.Linear)


def _fit(
    teacher: nn.Module,
    student: nn.Module,
    parameter: str,
    bias: bool,
    calibration: Calibration,
    options: Refit,
    where: str,
    run: Runner,
    progress: Progress | None,
) -> tuple[Crossed, Fitted]:
    """The change of [W; b] that is best on held-out tokens."""
    total = len(calibration)

    def told(done: int) -> None:
        if progress is not None:
            progress(f"refit {where}", done, total)

    sums = gather(teacher, student, parameter, calibration.fit(), bias=bias, run=run, progress=told)
    held = gather(teacher, student, parameter, calibration.held_out(), bias=bias, run=run)
    columns, rank = len(sums.zz) - bias, _rank(sums)
    if columns:
        calibration.check(columns, where)
    ridge, change = 0.0, torch.zeros_like(sums.zr)
    best = held.missing
    for λ, candidate in solutions(sums, options.ridges):
        error = held.error(candidate)
        if error < best * (1 - 1e-9):
            ridge, change, best = λ, candidate, error
    if ridge and options.to_all:  # what was held out has judged: now it may help
        ((_, change),) = solutions(sums + held, (ridge,))
    size = held.size or 1.0
    fitted = Fitted(
        where, held.missing / size, best / size, sums.tokens, ridge, rank, columns, ridge > 0, sums.stream
    )
    if rank < columns:
        said = f"kept as it is but for a ridge of {ridge:g}" if ridge else "and stays as it was"
        warnings.warn(
            f"{sums.tokens} calibration tokens say something about {rank} of {columns} directions in {where}: "
            f"the rest is {said}",
            stacklevel=4,
        )
    return change, fitted


def solutions(sums: Sums, ridges: tuple[float, ...]) -> Iterator[tuple[float, Crossed]]:
    """(λ, (ZᵀZ + λ·mean(diag)·I)⁻¹ ZᵀR): the bias is not pulled."""
    count = len(sums.zz) - sums.bias
    if len(sums.zz) == 0:
        return
    diagonal = sums.zz.diagonal()[:count]
    mean = float(diagonal.mean()) if count else 0.0
    for ridge in ridges if count else ridges[:1]:
        zz = sums.zz.clone()
        zz.diagonal()[:count] += ridge * mean
        factor, failed = torch.linalg.cholesky_ex(zz)
        if not int(failed):
            yield ridge, torch.cholesky_solve(sums.zr, factor)


def _rank(sums: Sums) -> int:
    """Directions of z that the tokens tell apart."""
    count = len(sums.zz) - sums.bias
    if count == 0:
        return 0
    if count > RANK_TO:
        return min(count, sums.tokens)
    values = torch.linalg.eigvalsh(sums.zz[:count, :count])
    return int((values > values.max() * count * torch.finfo(torch.float32).eps ** 2).sum())


def columns_of(weight: Float[Tensor, "row column"], new: HeadWeights, where: str) -> list[int]:
    """The columns of W_O that each head of `new` has, told by their numbers: heads may lie in any order."""
    count, dims = new.heads, new.o.shape[2]
    if weight.shape[1] != count * dims:
        raise SizeError(
            f"W_O of {where} has {weight.shape[1]} columns, {count} heads of {dims} need {count * dims}",
            hint="install the new weights before they are fitted",
        )
    stored = weight.unflatten(1, (count, dims)).transpose(0, 1) if count else weight[None, :, :0]
    free = list(range(count))
    columns: list[int] = []
    for h in range(count):
        at = next((j for j in free if torch.equal(stored[j], new.o[h].to(stored))), None)
        if at is None:
            raise MultiheadError(
                f"head {h} of {where} is not in the cut model's W_O", hint="install the new weights first"
            )
        free.remove(at)
        columns += range(at * dims, (at + 1) * dims)
    return columns
