"""What a capture keeps of every call, beside statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer.problem import Problem
from multihead.model.find_sites import find_sites
from multihead.model.sites import Sites

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

    def named_layers(self, model: nn.Module) -> Sites | None:
        """The attentions of the model where some layers are named; raises if one of them does not exist."""
        asked = [
            [which] if isinstance(which, str) else which
            for which in (self.qk, self.v, self.outputs)
            if which is not None and which != "all"
        ]
        if not asked:
            return None
        sites = find_sites(model)
        for labels in asked:
            for label in labels:
                sites.layer(label)
        return sites

    def take(self, label: str, problem: Problem, out: HeadOutputs) -> Kept | None:
        """What is kept of one call of the layer `label`."""
        qk, v, outputs = (_wanted(which, label) for which in (self.qk, self.v, self.outputs))
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


def _wanted(which: Which | None, label: str) -> bool:
    if which is None or isinstance(which, str):
        return which is not None and which in ("all", label)
    return label in which


def _own(x: Tensor) -> Tensor:
    """A copy: the model may write into its own tensors later."""
    return x.detach().clone()
