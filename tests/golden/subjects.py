"""The subjects of the golden values: what records each one, and its tolerance.

All calls into the package are in `models` and in the modules imported here. When a function or an argument of the
package is renamed, edit those. When a column, a JSON key, a label or a parameter is renamed, add a line to
names.json.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from golden import captures, commands, cuts, layers, measures
from golden.models import FLOAT32
from golden.record import Names, Recorder, Values


@dataclass(frozen=True)
class Subject:
    """`fill` calls the package and records the results; `tolerance` is a key of `compare.TOLERANCES`."""

    fill: Callable[[Recorder], None]
    tolerance: str

    def values(self, names: Names) -> Values:
        record = Recorder(names)
        self.fill(record)
        return record.values


def _of(model: str, fill: Callable[..., None], *, solved: bool = False, **options: Any) -> Subject:
    """A subject about one model.

    Args:
        solved: the values depend on eigenvectors, least squares or training, or on intermediate float32 values.
    """
    tolerance = "float32" if model in FLOAT32 else "solved" if solved else "float64"
    return Subject(partial(fill, name=model, **options), tolerance)


MODELS = ("embedded", "minilm", "gpt2", "llama", "bert", "t5")
CAPTURED = {"gpt2": "L0", "llama": "L1", "bert": "L0", "t5": "cross.L1", "gpt-oss": "L0"}
"""Models that are captured, and the layer in which a head is intervened on."""
CUT = {"embedded": 2, "gpt2": 1, "llama": 1, "bert": 2}
"""Models that are cut, and the number of kv heads that grouping leaves in every layer."""

COMMANDS = (
    commands.measure, commands.show, commands.compare, commands.theory, commands.cost, commands.prune,
    commands.group, commands.check, commands.curve, commands.report, commands.page,
)  # fmt: skip
LAYERS = (
    layers.heads, layers.positions, layers.masks, layers.scores, layers.routes, layers.caches, layers.latent,
    layers.long,
)  # fmt: skip

SUBJECTS: dict[str, Subject] = {
    **{f"capture-{m}": _of(m, captures.capture) for m in CAPTURED},
    **{f"intervene-{m}": _of(m, captures.intervene, layer=layer) for m, layer in CAPTURED.items()},
    **{f"measure-{m}": _of(m, measures.measure) for m in (*MODELS, "gpt-oss")},
    # Solved: the random heads that kinds are compared with are drawn in float32.
    **{f"kinds-{m}": _of(m, measures.kinds, solved=True) for m in MODELS},
    # MiniLM on two sentences only: ablating each of its 72 heads twice is slow.
    **{f"importance-{m}": _of(m, measures.importance, documents=2 if m == "minilm" else None) for m in MODELS},
    "importance-bert-masked": _of("bert", measures.importance_of_masked_words),
    **{f"similarity-{m}": _of(m, measures.similarity) for m in MODELS},
    "syntax-minilm": _of("minilm", measures.syntax),
    # Statements about sizes are tested on LLaMA only. Statement 14 ablates every head, too slow for MiniLM.
    "theory-embedded": _of("embedded", measures.theory, layers=["L1"], but=measures.OF_SIZES),
    "theory-minilm": _of("minilm", measures.theory, layers=["L2"], but=(*measures.OF_SIZES, "14")),
    "theory-gpt2": _of("gpt2", measures.theory, layers=["L1"], but=measures.OF_SIZES, solved=True),
    "theory-llama": _of("llama", measures.theory, layers=["L1"], students=True, solved=True),
    "theory-bert": _of("bert", measures.theory, layers=["L0"], but=measures.OF_SIZES, solved=True),
    "theory-t5": _of("t5", measures.theory, layers=["encoder.L1", "cross.L1"], but=measures.OF_SIZES, solved=True),
    "plans-llama": _of("llama", cuts.plans, solved=True),
    **{f"prune-{m}": _of(m, cuts.prune, refit=False) for m in CUT},
    **{f"prune-{m}-refit": _of(m, cuts.prune, refit=True, solved=True) for m in CUT},
    "prune-llama-refit-heal": _of("llama", cuts.prune, refit=True, steps=7, solved=True),
    **{f"group-{m}": _of(m, cuts.group, kv_heads=n, refit=False, solved=True) for m, n in CUT.items()},
    **{f"group-{m}-refit": _of(m, cuts.group, kv_heads=n, refit=True, solved=True) for m, n in CUT.items()},
    **{f"command-{fill.__name__}": Subject(fill, "float32") for fill in COMMANDS},
    **{f"layer-{fill.__name__}": Subject(fill, "float64") for fill in LAYERS},
}
