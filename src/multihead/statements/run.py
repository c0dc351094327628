"""Every statement of the theory, computed on the layers of a model: two sides, a verdict, and why.

>>> import torch, multihead as mh
>>> from multihead.statements.run import claims
>>> found = claims(mh.MultiHeadAttention(12, 3), torch.randn(5, 17, 12), only=["2", "16"])
>>> [(line.claim.key, line.verdict) for line in found.summary]
[('2', 'holds'), ('16', ...)]
>>> found["2"].finding.right
'd_model 12'
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from multihead._base.html import line, table
from multihead.errors import MultiheadError, SizeError
from multihead.statements import costs, information, learning, power, signals, spaces, textbook
from multihead.statements.claim import Claim, Finding, Verdict, plural
from multihead.statements.layer_sample import LayerSample
from multihead.statements.sampling import TOKENS, Data, layer_samples
from multihead.statements.show import CONDITIONAL, Line, table_text

Progress = Callable[[str, int, int], None]
"""Called before each statement: the layer's name, statements done in it, statements in all."""


@dataclass(frozen=True)
class Row:
    """What one statement came to on one layer."""

    claim: Claim
    layer: str
    finding: Finding


@dataclass(frozen=True, repr=False)
class Claims:
    """The statements and what was found: `found["1"]`, `found.summary`, `found.text()`, `found.to_json()`."""

    rows: tuple[Row, ...]
    about: str
    """the layers and the data, in words"""

    @property
    def summary(self) -> list[Line]:
        """One line for each statement over all layers."""
        keys = dict.fromkeys(row.claim.key for row in self.rows)
        return [_line([row for row in self.rows if row.claim.key == key]) for key in keys]

    def __getitem__(self, key: str) -> Line:
        """The line of one statement: found["16"]."""
        lines = self.summary
        found = next((line for line in lines if line.claim.key == key), None)
        if found is None:
            raise SizeError(
                f"statement {key!r} was not computed", hint=f"there are {', '.join(x.claim.key for x in lines)}"
            )
        return found

    def layer(self, name: str) -> Claims:
        """The findings of one layer alone."""
        names = list(dict.fromkeys(row.layer for row in self.rows))
        if name not in names:
            raise SizeError(f"there is no layer {name!r}", hint=f"computed were {', '.join(names)}")
        return Claims(tuple(row for row in self.rows if row.layer == name), f"{name} of {self.about}")

    def text(self, width: int | None = None) -> str:
        """The table for a terminal."""
        return table_text(self.summary, self.about, width)

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        heads = ("#", "statement", "verdict", "left", "right", "why")
        lines = [
            (
                x.claim.key,
                f"{x.claim.title}: {x.claim.formula}",
                x.said,
                x.finding.left,
                x.finding.right,
                x.finding.why,
            )
            for x in self.summary
        ]
        return line(self.about) + table(heads, lines, words=range(len(heads)))

    def to_json(self) -> dict[str, Any]:
        """Plain data: a summary for each statement, and every layer's finding with its numbers."""
        return {
            "about": self.about,
            "statements": [
                {
                    "key": line.claim.key,
                    "title": line.claim.title,
                    "formula": line.claim.formula,
                    "verdict": line.verdict,
                    "said": line.said,
                    "layers": {
                        row.layer: {
                            "verdict": row.finding.verdict,
                            "left": row.finding.left,
                            "right": row.finding.right,
                            "why": row.finding.why,
                            "condition": row.finding.condition,
                            "numbers": {name: _plain(x) for name, x in row.finding.numbers.items()},
                        }
                        for row in self.rows
                        if row.claim.key == line.claim.key
                    },
                }
                for line in self.summary
            ],
        }


def statements() -> tuple[Claim, ...]:
    """All statements, in the order of their numbers."""
    groups = (spaces, signals, information, learning, costs, power, textbook)
    return tuple(sorted((claim for group in groups for claim in group.CLAIMS), key=_place))


def claims(
    layer_or_model: nn.Module,
    data: Data,
    *,
    tokenizer: Any = None,
    only: Iterable[str | int] | None = None,
    layers: Sequence[str | int] | None = None,
    tokens: int = TOKENS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Claims:
    """Compute every statement on a layer, or on all attention layers of a model.

    Args:
        data: of a layer, a tensor (batch, token, d_model) or the mapping that layer(**data) takes; of a model,
            texts (with a `tokenizer`), lists of token ids, or mappings that model(**batch) takes.
        only: the statements to compute, as ["1", "6", "T2"]; "6" is 6a, 6b and 6c.
        layers: the layers to compute them on, as ["L0", "L3"].
        tokens: about how many of `data` are looked at.
    """
    chosen = _only(statements(), only)
    named = None if layers is None else [f"L{n}" if isinstance(n, int) else n for n in layers]
    rows: list[Row] = []
    about = ""
    shapes: list[str] = []
    for subject in layer_samples(layer_or_model, data, tokenizer=tokenizer, layers=named, tokens=tokens, seed=seed):
        shapes.append(_shape(subject))
        about = f"{plural(subject.tokens, 'token')} in {plural(len(subject.sequences), 'sequence')}"
        for done, claim in enumerate(chosen):
            if progress is not None:
                progress(subject.name, done, len(chosen))
            rows.append(Row(claim, subject.name, _found(claim, subject)))
    kinds = ", ".join(f"{n} × {shape}" if n > 1 else shape for shape, n in Counter(shapes).items())
    what = type(layer_or_model).__name__
    return Claims(tuple(rows), f"{what}: {plural(len(shapes), 'layer')} ({kinds}), {about}")


def _shape(subject: LayerSample) -> str:
    shared = f" over {subject.kv_heads} kv heads" if subject.kv_heads != subject.heads else ""
    return f"{subject.heads} heads of {subject.key_dim}{shared} in {subject.d_model}"


def _found(claim: Claim, subject: LayerSample) -> Finding:
    """The finding; what a layer is not made for is no reason to lose the other statements."""
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(subject.seed)
            return claim.test(subject)
    except MultiheadError as refused:
        return Finding(
            "not applicable", "–", "–", refused.message.partition("\n")[0], "the layer can be taken apart"
        )


def _only(known: Sequence[Claim], wanted: Iterable[str | int] | None) -> list[Claim]:
    if wanted is None:
        return list(known)
    keys = [str(w).strip() for w in wanted]

    def fits(claim: Claim, key: str) -> bool:
        """ "6" means 6a, 6b and 6c."""
        return claim.key == key or (claim.key[:-1] == key and claim.key[-1].isalpha())

    wrong = next((key for key in keys if not any(fits(claim, key) for claim in known)), None)
    if wrong is not None:
        raise SizeError(f"there is no statement {wrong!r}", hint=f"choose from {', '.join(c.key for c in known)}")
    return [claim for claim in known if any(fits(claim, key) for key in keys)]


def _place(claim: Claim) -> tuple[bool, int, str]:
    digits = "".join(c for c in claim.key if c.isdigit())
    return claim.key.startswith("T"), int(digits), claim.key


def _line(rows: Sequence[Row]) -> Line:
    """The most frequent verdict, and of the layers that have it the one in the middle, by the first number."""
    counts = Counter[Verdict](row.finding.verdict for row in rows)
    verdict = counts.most_common(1)[0][0]
    alike = [row for row in rows if row.finding.verdict == verdict]
    middle = sorted(alike, key=lambda row: _first(row.finding))[(len(alike) - 1) // 2]
    word = CONDITIONAL if verdict == "holds only if" else verdict
    said = word if len(rows) == 1 else f"{word} in {counts[verdict]} of {len(rows)}"
    return Line(rows[0].claim, verdict, said, middle.layer if len(rows) > 1 else "", middle.finding)


def _first(finding: Finding) -> float:
    found = next((x for x in finding.numbers.values() if isinstance(x, int | float)), 0.0)
    return found if found == found else 0.0  # NaN has no place in an order


def _plain(x: float | Sequence[float]) -> Any:
    """JSON has no NaN and no infinity."""
    if isinstance(x, int | float):
        return x if abs(x) < float("inf") else None
    return [_plain(y) for y in x]
