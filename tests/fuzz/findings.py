"""What is wrong with a case: results beside those of the oracle, and errors by their cause."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

import multihead as mh
from multihead.errors import SizeError

Numbers = dict[str, Tensor]


@dataclass(frozen=True)
class Finding:
    """What is wrong with a case.

    `kind` is "wrong" or "nan" (a result), "crash" (an error of torch or Python), "refused" (a MultiheadError for a
    valid call), "accepted" (a mistake that raised no error) or "cache changed" (by a refused call).
    """

    kind: str
    what: str
    detail: str = ""
    when: str = ""

    @property
    def cause(self) -> tuple[str, str]:
        return self.kind, self.what + self.when


def distinct(found: Iterable[Finding]) -> list[Finding]:
    """Each cause once. A wrong output makes wrong gradients, which say nothing new."""
    first: dict[tuple[str, ...], Finding] = {}
    for finding in found:
        numeric = finding.kind in ("wrong", "nan")
        first.setdefault(("number", finding.when) if numeric else (finding.kind, finding.what), finding)
    return list(first.values())


def compare(got: Numbers, want: Numbers, when: str) -> Iterator[Finding]:
    """Every result within rounding of the oracle's."""
    for name, x in got.items():
        y = want[name]
        what = "gradients" if name.startswith("gradient") else re.sub(r" of call \d+", "", name)
        if x.shape != y.shape:
            yield Finding("wrong", f"shape of {what}", f"{name}: {tuple(x.shape)}, not {tuple(y.shape)}", when)
            continue
        if x.numel() == 0:
            continue
        finite = y.isfinite()
        size = max(1.0, float(y[finite].abs().max())) if finite.any() else 1.0
        slack = 1e-9 * size
        if x.dtype == torch.float32:
            error = want.get(f"error of {name}", torch.zeros(1))
            slack = 1e-5 * size + 8 * float(error[error.isfinite()].max() if error.isfinite().any() else 0.0)
        if x.isnan().any() and not y.isnan().any():
            yield Finding("nan", what, f"{int(x.isnan().sum())} of {x.numel()} in {name}", when)
        elif not torch.equal(x.isfinite(), finite) or not torch.equal(x[~finite].double(), y[~finite].double()):
            yield Finding("wrong", what, f"{name} is not finite where it should be, or the reverse", when)
        elif (
            finite.any()
            and (worst := float((x.detach().double() - y.detach().double())[finite].abs().max())) > slack
        ):
            yield Finding("wrong", what, f"{name} differs by {worst:.2g} of {size:.2g}", when)


def refuses(error: Exception, route: str | None) -> bool:
    """Whether a named route says that it cannot compute this."""
    return route is not None and isinstance(error, SizeError) and f"route={route!r}" in error.message


def error_finding(error: Exception, when: str = "") -> Finding:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/multihead/" in f.filename]
    where = f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].name}" if frames else "torch"
    message = re.sub(r"\d+", "N", re.sub(r"\[[^\]]*\]|\([^)]*\)", "…", str(error).partition("\n")[0]))[:80]
    kind = "refused" if isinstance(error, mh.MultiheadError) else "crash"
    return Finding(kind, f"{type(error).__name__}: {message} ({where})", str(error)[:300], when)
