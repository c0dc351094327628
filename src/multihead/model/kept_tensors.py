"""Tensors that a capture keeps from every call, in addition to statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer import Problem
from multihead.model.find_sites import find_sites
from multihead.model.sites import Sites

Which = str | Sequence[str]
"""Layers: "all", or names such as "L0" or ["L0", "decoder.L3"]."""


@dataclass(frozen=True)
class Keep:
    """Tensors that a capture keeps from every call, in addition to statistics. Layers are named L0, L1, ...

    - `qk`: queries and keys passed to the kernel, from which `weights` computes any row of any map.
    - `v`: values.
    - `outputs`: head outputs before W_O, which `mh.patch` can insert into a different run.

    >>> import torch, multihead as mh
    >>> from multihead.model import Keep
    >>> model, tokenizer = mh.embedded()
    >>> ids = torch.tensor([tokenizer("the keys that the man sees are new .")["input_ids"]])
    >>> with mh.capture(model, keep=Keep(qk=["L1"], outputs="all")) as heads:
    ...     _ = model(ids)
    >>> heads["L1H0"].weights().shape, heads["L2H3"].output().shape
    (torch.Size([1, 10, 10]), torch.Size([1, 10, 24]))
    """

    qk: Which | None = None
    v: Which | None = None
    outputs: Which | None = None

    @staticmethod
    def of(keep: Keep | str | None) -> Keep:
        """Which tensors to keep: a `Keep`, from a `Keep` or from words, "qk", "qk v outputs"."""
        if keep is None or isinstance(keep, Keep):
            return keep or Keep()
        choices = ("qk", "v", "outputs")
        if not isinstance(keep, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            raise TypeMismatchError(
                f"keep must be words or a Keep, got {keep!r}",
                hint=f"pass some of {', '.join(choices)}, or multihead.model.Keep(qk=['L3'])",
            )
        words = keep.replace(",", " ").replace("qkv", "qk v").split()
        unknown = next((w for w in words if w not in choices), None)
        if unknown is not None or not words:
            raise SizeError(
                f"unknown keep={keep!r}",
                hint=f"pass some of {', '.join(choices)}, or multihead.model.Keep(qk=['L3'])",
            )
        return Keep(**dict.fromkeys(words, "all"))

    def named_layers(self, model: nn.Module) -> Sites | None:
        """The attentions whose tensors are kept, where some are named; raises if one of them does not exist."""
        named = [
            [which] if isinstance(which, str) else which
            for which in (self.qk, self.v, self.outputs)
            if which is not None and which != "all"
        ]
        if not named:
            return None
        sites = find_sites(model)
        for labels in named:
            for label in labels:
                sites.layer(label)
        return sites

    def take(self, label: str, problem: Problem, out: HeadOutputs) -> Kept | None:
        """The tensors kept of one call of the layer `label`."""
        qk, v, outputs = (_includes(which, label) for which in (self.qk, self.v, self.outputs))
        if not (qk or v or outputs):
            return None
        values = _copy(problem.v) if v else problem.v[..., :0].detach()
        kept_problem = replace(problem, q=_copy(problem.q), k=_copy(problem.k), v=values) if qk or v else None
        return Kept(kept_problem, _copy(out) if outputs else None)


@dataclass(frozen=True)
class Kept:
    """The tensors kept from one attention call."""

    problem: Problem | None
    outputs: HeadOutputs | None


def _includes(which: Which | None, label: str) -> bool:
    if which is None or isinstance(which, str):
        return which is not None and which in ("all", label)
    return label in which


def _copy(x: Tensor) -> Tensor:
    """A detached copy, since the model may overwrite its tensors."""
    return x.detach().clone()
