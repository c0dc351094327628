"""Build attention heads, see them in any PyTorch model, measure them, and cut the ones you do not need.

>>> import multihead as mh
>>> from multihead import cache, mask, position

A name is loaded when it is first used: `import multihead` itself imports nothing else, torch included.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:  # for type checkers and editors; _HOME says the same to Python
    from multihead import dropin, figure
    from multihead.edit.check.report import check
    from multihead.edit.cut import cut
    from multihead.edit.distill import Distill
    from multihead.edit.plan import Plan
    from multihead.edit.planning import plan
    from multihead.errors import AnatomyError, CacheError, MultiheadError, SizeError, TypeMismatchError
    from multihead.layer import cache, init, interop, mask, position
    from multihead.layer.attention import MultiHeadAttention
    from multihead.layer.latent import LatentAttention
    from multihead.layer.options import QKNorm, Sinks
    from multihead.layer.outputs import Ask, AttentionOutput, Cells
    from multihead.measures.cost.cost import cost
    from multihead.measures.importance.importance import importance
    from multihead.measures.kinds.kinds import kinds
    from multihead.measures.measure import measure
    from multihead.measures.similarity.similarity import similarity
    from multihead.measures.syntax.syntax import syntax
    from multihead.model.adapters import adapter
    from multihead.model.anatomy import anatomy
    from multihead.model.capture import capture
    from multihead.model.interventions import ablate, gate, patch
    from multihead.model.keep import Keep
    from multihead.model.statistics.options import Statistics
    from multihead.page.build import report
    from multihead.parallel.context import context_parallel
    from multihead.parallel.tensor import tensor_parallel_plan
    from multihead.sources.embedded.load import embedded
    from multihead.statements.run import claims
    from multihead.store.load import load
    from multihead.store.save import save
    from multihead.table.table import HeadTable

__all__ = [
    "MultiHeadAttention",
    "LatentAttention",
    "mask",
    "position",
    "cache",
    "init",
    "interop",
    "dropin",
    "QKNorm",
    "Sinks",
    "Ask",
    "Cells",
    "AttentionOutput",
    "capture",
    "Keep",
    "Statistics",
    "measure",
    "HeadTable",
    "kinds",
    "syntax",
    "importance",
    "similarity",
    "claims",
    "cost",
    "anatomy",
    "ablate",
    "gate",
    "patch",
    "adapter",
    "embedded",
    "plan",
    "Plan",
    "cut",
    "Distill",
    "check",
    "save",
    "load",
    "report",
    "tensor_parallel_plan",
    "context_parallel",
    "figure",
    "MultiheadError",
    "SizeError",
    "TypeMismatchError",
    "CacheError",
    "AnatomyError",
    "__version__",
]

# Each public name and the module that it lives in, or that it is.
_HOME = {
    "MultiHeadAttention": "multihead.layer.attention",
    "LatentAttention": "multihead.layer.latent",
    "mask": "multihead.layer.mask",
    "position": "multihead.layer.position",
    "cache": "multihead.layer.cache",
    "init": "multihead.layer.init",
    "interop": "multihead.layer.interop",
    "dropin": "multihead.dropin",
    "QKNorm": "multihead.layer.options",
    "Sinks": "multihead.layer.options",
    "Ask": "multihead.layer.outputs",
    "Cells": "multihead.layer.outputs",
    "AttentionOutput": "multihead.layer.outputs",
    "capture": "multihead.model.capture",
    "Keep": "multihead.model.keep",
    "Statistics": "multihead.model.statistics.options",
    "measure": "multihead.measures.measure",
    "HeadTable": "multihead.table.table",
    "kinds": "multihead.measures.kinds.kinds",
    "syntax": "multihead.measures.syntax.syntax",
    "importance": "multihead.measures.importance.importance",
    "similarity": "multihead.measures.similarity.similarity",
    "claims": "multihead.statements.run",
    "cost": "multihead.measures.cost.cost",
    "anatomy": "multihead.model.anatomy",
    "ablate": "multihead.model.interventions",
    "gate": "multihead.model.interventions",
    "patch": "multihead.model.interventions",
    "adapter": "multihead.model.adapters",
    "embedded": "multihead.sources.embedded.load",
    "plan": "multihead.edit.planning",
    "Plan": "multihead.edit.plan",
    "cut": "multihead.edit.cut",
    "Distill": "multihead.edit.distill",
    "check": "multihead.edit.check.report",
    "save": "multihead.store.save",
    "load": "multihead.store.load",
    "report": "multihead.page.build",
    "tensor_parallel_plan": "multihead.parallel.tensor",
    "context_parallel": "multihead.parallel.context",
    "figure": "multihead.figure",
    "MultiheadError": "multihead.errors",
    "SizeError": "multihead.errors",
    "TypeMismatchError": "multihead.errors",
    "CacheError": "multihead.errors",
    "AnatomyError": "multihead.errors",
}

# Names that are modules themselves; `capture` and `anatomy` are functions of modules that are named like them.
_MODULES = ("mask", "position", "cache", "init", "interop", "dropin", "figure")


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(_HOME[name])
    value: object = home if name in _MODULES else getattr(home, name)
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
