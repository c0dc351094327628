"""Every statement of the theory, computed on the layers of a model: two sides, a verdict, and the reason.

>>> import torch, multihead as mh
>>> from multihead.statements.theory import theory
>>> results = theory(mh.MultiHeadAttention(12, 3), torch.randn(5, 17, 12), only=["2", "16"])
>>> [(line.statement.id, line.verdict) for line in results.summary]
[('2', 'holds'), ('16', ...)]
>>> results["2"].result.rhs
'd_model 12'
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from multihead._base.arguments import check_list
from multihead._base.html_fragments import line, table
from multihead._base.plural import plural
from multihead._base.progress import Progress, check_progress, shown_progress
from multihead.errors import SizeError
from multihead.statements.catalogue import STATEMENTS
from multihead.statements.collect_samples import TOKENS, Data, layer_samples
from multihead.statements.layer_shape import LayerShape
from multihead.statements.statement import Result, Statement, Verdict
from multihead.statements.theory_text import CONDITIONAL, TheoryLine, table_text

if TYPE_CHECKING:
    from rich.text import Text


_COLOURS = {"fails": "red", "holds": "green", "conditional|not enough data|not applicable": "yellow"}


@dataclass(frozen=True)
class Row:
    """The result of one statement on one layer."""

    statement: Statement
    layer: str
    result: Result


@dataclass(frozen=True, repr=False)
class Theory:
    """Statements and their results: `results["1"]`, `results.summary`, `results.text()`, `results.to_json()`."""

    rows: tuple[Row, ...]
    about: str
    """the layers and the data, in words"""

    @property
    def summary(self) -> list[TheoryLine]:
        """One line for each statement over all layers."""
        return [_line(rows) for rows in self._by_statement().values()]

    def __getitem__(self, id: str | int) -> TheoryLine:
        """The line of one statement: results["16"]."""
        rows = self._by_statement()
        if str(id) not in rows:
            raise SizeError(f"statement {id!r} was not computed", hint=f"computed are {', '.join(rows)}")
        return _line(rows[str(id)])

    def layer(self, name: str) -> Theory:
        """The theory's results on one layer."""
        names = list(dict.fromkeys(row.layer for row in self.rows))
        if name not in names:
            raise SizeError(f"unknown layer {name!r}", hint=f"computed are {', '.join(names)}")
        return Theory(tuple(row for row in self.rows if row.layer == name), f"{name} of {self.about}")

    def text(self, width: int | None = None) -> str:
        """The table for a terminal."""
        return table_text(self.summary, self.about, width)

    def __repr__(self) -> str:
        return self.text()

    def __rich__(self) -> Text:
        """The table for a terminal, verdicts coloured."""
        from rich.text import Text  # slow to import

        table = Text(self.text())
        for verdicts, colour in _COLOURS.items():
            table.highlight_regex(rf"(?m)(?<=  )({verdicts})( in \d+ of \d+)?$", colour)
        return table

    def _repr_html_(self) -> str:
        """The theory as an HTML table of statements, for notebooks."""
        heads = ("#", "statement", "verdict", "left", "right", "why")
        lines = [
            (x.statement.id, f"{x.statement.title}: {x.statement.formula}", x.tally, x.result.lhs, x.result.rhs,
             x.result.because)
            for x in self.summary
        ]  # fmt: skip
        return line(self.about) + table(heads, lines, words=range(len(heads)))

    def to_json(self) -> dict[str, Any]:
        """The theory as plain data: a summary for each statement, and every layer's result with its numbers."""
        return {"about": self.about, "statements": [_json(rows) for rows in self._by_statement().values()]}

    def _by_statement(self) -> dict[str, list[Row]]:
        """The rows of the theory by the id of their statement."""
        rows: dict[str, list[Row]] = {}
        for row in self.rows:
            rows.setdefault(row.statement.id, []).append(row)
        return rows


def _line(rows: Sequence[Row]) -> TheoryLine:
    """One statement over layers: the most frequent verdict, and the middle layer that has it."""
    counts = Counter[Verdict](row.result.verdict for row in rows)
    verdict = counts.most_common(1)[0][0]
    with_verdict = [row for row in rows if row.result.verdict == verdict]
    middle = sorted(with_verdict, key=lambda row: _first_number(row.result))[(len(with_verdict) - 1) // 2]
    word = CONDITIONAL if verdict == "holds only if" else verdict
    tally = word if len(rows) == 1 else f"{word} in {counts[verdict]} of {len(rows)}"
    return TheoryLine(rows[0].statement, verdict, tally, middle.layer if len(rows) > 1 else "", middle.result)


def _first_number(result: Result) -> float:
    first = next((x for x in result.numbers.values() if isinstance(x, int | float)), 0.0)
    return first if first == first else 0.0  # NaN would break the order


def _json(rows: Sequence[Row]) -> dict[str, Any]:
    """One statement over layers as plain data."""
    statement, line = rows[0].statement, _line(rows)
    return {
        "id": statement.id,
        "title": statement.title,
        "formula": statement.formula,
        "holds_when": statement.holds_when,
        "verdict": line.verdict,
        "tally": line.tally,
        "layers": {row.layer: row.result.to_json() for row in rows},
    }


def theory(
    layer_or_model: nn.Module,
    data: Data | None = None,
    *,
    tokenizer: Any = None,
    only: Iterable[str | int] | None = None,
    layers: Sequence[str | int] | None = None,
    tokens: int = TOKENS,
    seed: int = 0,
    progress: bool | Progress | None = None,
) -> Theory:
    """Compute every statement of the theory on a layer, or on all attention layers of a model.

    Args:
        data: of a layer, a tensor (batch, token, d_model) or the mapping that layer(**data) takes; of a model,
            texts (with a `tokenizer`), lists of token ids, or mappings that model(**batch) takes; default, for a
            model with a tokenizer: the sample text, then the manual inside Python.
        only: the statements to compute, as ["1", "6", "T2"]; "6" is 6a, 6b and 6c; default: all.
        layers: the layers to compute them on, as ["L0", "L3"]; default: all.
        tokens: the size of the sample of `data`: sequences are added until there are so many.
        seed: for everything random: shuffles, random spans and patterns, new layers.
        progress: True shows bars on a terminal; a function is called with (layer, statements finished, statements).

    Returns:
        A `Theory`: `results["2"].verdict`, `results.summary`, `results.text()`, `results.to_json()`.

    Raises:
        SizeError: if a statement or a layer does not exist.
        TypeMismatchError: if `data` does not fit the layer or model.

    >>> import multihead as mh
    >>> model, tokenizer = mh.embedded()
    >>> texts = tokenizer.sample_texts()[:4]
    >>> results = mh.theory(model, texts, tokenizer=tokenizer, only=["2"], layers=["L0"])
    >>> results["2"].verdict, results["2"].result.rhs  # 4 heads of 24 are more than the 64 dimensions
    ('fails', 'd_model 64')
    """
    check_progress(progress)
    chosen = _chosen(only)
    rows: list[Row] = []
    sizes = Counter[str]()
    token_text = ""
    samples = layer_samples(layer_or_model, data, tokenizer=tokenizer, layers=layers, tokens=tokens, seed=seed)
    by_shape: dict[tuple[str, LayerShape], Result] = {}  # statements about shapes: once for all equal layers
    with shown_progress(progress) as report:
        for layer in samples:
            sizes[f"{layer.size_text} in {layer.d_model}"] += 1
            token_text = layer.token_text
            for done, statement in enumerate(chosen):
                if report is not None:
                    report(layer.name, done, len(chosen))
                key = (statement.id, layer.shape)
                result = by_shape.get(key) if statement.shape_only else None
                if result is None:
                    result = by_shape[key] = statement(layer)
                rows.append(Row(statement, layer.name, result))
    kinds = ", ".join(f"{n} × {size}" if n > 1 else size for size, n in sizes.items())
    layers_text = plural(sizes.total(), "layer")
    return Theory(tuple(rows), f"{type(layer_or_model).__name__}: {layers_text} ({kinds}), {token_text}")


def _chosen(only: Iterable[str | int] | None) -> list[Statement]:
    """The statements of the theory with these ids; "6" is 6a, 6b and 6c."""
    if only is None:
        return list(STATEMENTS)
    check_list("only", only, "statements", hint='["1", "6", "T2"]')
    ids = [str(id).strip() for id in only]
    known = {id for statement in STATEMENTS for id in (statement.id, statement.id.rstrip("abc"))}
    unknown = next((id for id in ids if id not in known), None)
    if unknown is not None or not ids:
        raise SizeError(
            f"unknown statement {unknown!r}" if ids else "only must name a statement, got none",
            hint=f"choose from {', '.join(statement.id for statement in STATEMENTS)}",
        )
    return [statement for statement in STATEMENTS if {statement.id, statement.id.rstrip("abc")} & set(ids)]
