"""What a capture keeps of every call, beside statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer.problem import Problem
from multihead.model.known import sites_of
from multihead.model.sites import Site

Which = str | Sequence[str]
"""Every layer: "all"; or the named ones: "L0", ["L0", "decoder.L3"]."""


@dataclass(frozen=True)
class Keep:
    """What a capture keeps of every call, beside statistics. Layers are named L0, L1, ...

    - `qk`: queries and keys as the kernel saw them, from which `weights` gives any row of any map;
    - `v`: values too;
    - `outputs`: what each head gave, before W_O; `mh.patch` puts them into another run.
    """

    qk: Which | None = None
    v: Which | None = None
    outputs: Which | None = None

    @staticmethod
    def of(keep: Keep | str | None) -> Keep:
        """A `Keep`, from itself or from words: "qk", "qk v outputs"."""
        if keep is None or isinstance(keep, Keep):
            return keep or Keep()
        known = ("qk", "v", "outputs")
        if not isinstance(keep, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            raise TypeMismatchError(
                f"keep must be words or a mh.Keep, got {keep!r}",
                hint=f"some of {', '.join(known)}, or mh.Keep(qk=['L3'])",
            )
        words = keep.replace(",", " ").replace("qkv", "qk v").split()
        wrong = next((w for w in words if w not in known), None)
        if wrong is not None or not words:
            raise SizeError(
                f"keep={keep!r} is not known", hint=f"keep some of {', '.join(known)}, or pass mh.Keep(qk=['L3'])"
            )
        return Keep(**dict.fromkeys(words, "all"))

    def check(self, model: nn.Module) -> None:
        """Raise where a layer is named that the model does not have."""
        asked = [
            [w] if isinstance(w, str) else w
            for w in (self.qk, self.v, self.outputs)
            if w is not None and w != "all"
        ]
        named = [label for which in asked for label in which]
        if not named:
            return
        labels = [site.label for site in sites_of(model).values()]
        wrong = next((label for label in named if label not in labels), None)
        if wrong is not None:
            raise SizeError(
                f"there is no layer {wrong!r}: found {', '.join(labels)}",
                hint="layers are named as in L3, decoder.L3",
            )

    def take(self, site: Site, problem: Problem, out: HeadOutputs) -> Kept | None:
        """What is asked for of one call of the attention `site`."""
        qk, v, outputs = (_wanted(which, site) for which in (self.qk, self.v, self.outputs))
        if not (qk or v or outputs):
            return None
        values = _own(problem.v) if v else problem.v[..., :0].detach()
        kept = replace(problem, q=_own(problem.q), k=_own(problem.k), v=values) if qk or v else None
        return Kept(kept, _own(out) if outputs else None)


@dataclass(frozen=True)
class Kept:
    """What was kept of one call of one attention."""

    problem: Problem | None
    outputs: HeadOutputs | None


def _wanted(which: Which | None, site: Site) -> bool:
    if which is None or isinstance(which, str):
        return which is not None and which in ("all", site.label)
    return site.label in which


def _own(x: Tensor) -> Tensor:
    """A copy: the model may write into its own tensors later."""
    return x.detach().clone()
