"""Build attention heads, see them in any PyTorch model, measure them, and cut the ones you do not need.

>>> import multihead as mh
>>> from multihead import cache, mask, position

These are the names that most people need. The others are in the folders: options of the layer in `multihead.layer`,
of capture in `multihead.model`, of measuring in `multihead.measures`, of cutting in `multihead.edit`; several ranks
in `multihead.parallel`, errors in `multihead.errors`. `import multihead` imports nothing else, torch included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from multihead.edit.check.check import check
    from multihead.edit.cut import cut
    from multihead.edit.make_plan import plan
    from multihead.errors import MultiheadError
    from multihead.layer import cache, interop, mask, position
    from multihead.layer.attention import MultiHeadAttention
    from multihead.measures.importance.importance import importance
    from multihead.measures.kinds.kinds import kinds
    from multihead.measures.measure import measure
    from multihead.measures.similarity.similarity import similarity
    from multihead.model.anatomy import anatomy
    from multihead.model.capture import capture
    from multihead.model.interventions import ablate, gate, patch
    from multihead.show import figure
    from multihead.show.make_report import report
    from multihead.show.play import play
    from multihead.sources.embedded.embedded import embedded
    from multihead.sources.model_cost import cost
    from multihead.sources.pretrained import load_pretrained
    from multihead.statements.theory import theory
    from multihead.store.load import load
    from multihead.store.save import save
    from multihead.table.table import HeadTable
else:
    from multihead._base.lazy_names import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        "multihead.layer.attention:MultiHeadAttention",
        "multihead.layer.mask",
        "multihead.layer.position",
        "multihead.layer.cache",
        "multihead.model.capture:capture",
        "multihead.model.anatomy:anatomy",
        "multihead.model.interventions:ablate",
        "multihead.model.interventions:gate",
        "multihead.model.interventions:patch",
        "multihead.measures.measure:measure",
        "multihead.table.table:HeadTable",
        "multihead.measures.kinds.kinds:kinds",
        "multihead.measures.importance.importance:importance",
        "multihead.measures.similarity.similarity:similarity",
        "multihead.statements.theory:theory",
        "multihead.sources.model_cost:cost",
        "multihead.edit.make_plan:plan",
        "multihead.edit.cut:cut",
        "multihead.edit.check.check:check",
        "multihead.store.save:save",
        "multihead.store.load:load",
        "multihead.sources.pretrained:load_pretrained",
        "multihead.show.make_report:report",
        "multihead.show.play:play",
        "multihead.show.figure",
        "multihead.sources.embedded.embedded:embedded",
        "multihead.layer.interop",
        "multihead.errors:MultiheadError",
    )

__all__ = [
    "MultiHeadAttention",
    "mask",
    "position",
    "cache",
    "capture",
    "anatomy",
    "ablate",
    "gate",
    "patch",
    "measure",
    "HeadTable",
    "kinds",
    "importance",
    "similarity",
    "theory",
    "cost",
    "plan",
    "cut",
    "check",
    "save",
    "load",
    "load_pretrained",
    "report",
    "play",
    "figure",
    "embedded",
    "interop",
    "MultiheadError",
    "__version__",
]
