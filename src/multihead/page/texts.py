"""The texts of a page: their tokens, and the attention of every head on them.

>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.page.attended import Lines
>>> from multihead.page.texts import read_text
>>> model = GPT2Model(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=50)).eval()
>>> text = read_text(model, [3, 1, 4, 1, 5], Lines())
>>> text.data["sequences"][0]["shown"], len(text.sites)
(['3', '1', '4', '1', '5'], 2)
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from multihead.errors import MultiheadError
from multihead.measures.corpus import Document, batches
from multihead.measures.stage import Batch
from multihead.model.anatomy import anatomy
from multihead.model.capture import Heads, capture
from multihead.model.inputs import learned_positions
from multihead.page.attended import Lines, attended
from multihead.page.words import Words, clear

BESIDE = ("attention_mask", "token_type_ids", "position_ids", "labels")
TITLE = 60
"""Characters of a text that name it."""


@dataclass(frozen=True)
class Text:
    """One text as the page has it, and the attentions that ran on it."""

    data: dict[str, Any]
    sites: list[dict[str, Any]]


def written_with(model: nn.Module) -> tuple[dict[str, list[Tensor]], str]:
    """W_O of every head by layer; or none, and why."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            layers = anatomy(model)
        return {layer.name: list(layer.W_O) for layer in layers}, ""
    except MultiheadError as refused:
        return {}, refused.message.partition("\n")[0]


def read_text(
    model: nn.Module,
    document: Document,
    lines: Lines,
    *,
    tokenizer: Any = None,
    writes: Mapping[str, Sequence[Tensor]] | None = None,
    max_tokens: int | None = None,
    only: str | None = None,
    chosen: Sequence[str] | None = None,
) -> Text:
    """Run the model on a document and keep where every head looks; of a longer one, on its first piece."""
    limit = learned_positions(model)
    longest = min(n for n in (limit, max_tokens, 1 << 30) if n is not None)
    cut = longest if longest < 1 << 30 else None
    pieces = list(batches(model, [document], tokenizer=tokenizer, batch_size=1, max_tokens=cut))
    batch = {n: x[:1] if isinstance(x, Tensor) and x.ndim else x for n, x in pieces[0].items()}
    with torch.no_grad(), capture(model, statistics=None, keep="qk v") as heads:
        model(**batch)
    layers = attended(heads, lines, writes=writes, only=only, chosen=chosen)
    spoken = document if isinstance(document, str) else None
    sequences, seats = _sequences(batch, heads, tokenizer, spoken)
    for layer, (rows, columns) in zip(layers, seats, strict=True):
        layer |= {"rows": rows, "columns": columns}
    name = (spoken if spoken is not None else " ".join(sequences[0].shown)) if sequences else "a text"
    data = {
        "name": _title(name),
        "note": f"the first of {len(pieces)} pieces that the text was cut into" if len(pieces) > 1 else "",
        "sequences": [asdict(words) for words in sequences],
        "layers": layers,
        "lengths": "W_O v" if writes else "v",
    }
    return Text(data, _sites(heads))


def _title(text: str) -> str:
    line = clear(" ".join(text.split()))
    return line if len(line) <= TITLE else f"{line[: TITLE - 1].rstrip()}…"


def _sites(heads: Heads) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for site in heads.sites:
        problem = heads.calls(site)[-1].problem
        assert problem is not None
        groups = list(problem.groups.kv_of_head)
        shape = {"dim": problem.q.shape[3], "kv": problem.groups.kv_heads, "kv_of_head": groups}
        place = {"label": site.label, "stack": site.stack, "layer": site.layer, "heads": site.heads}
        found.append({**place, "cross": site.cross, **shape})
    return found


def _sequences(
    batch: Batch, heads: Heads, tokenizer: Any, spoken: str | None
) -> tuple[list[Words], list[tuple[int, int]]]:
    """The sequences that were read, and which of them stands along the rows and columns of each layer's maps."""
    ids = {
        n: x[0].tolist()
        for n, x in batch.items()
        if isinstance(x, Tensor) and x.ndim == 2 and not x.is_floating_point() and n not in BESIDE
    }
    made: dict[tuple[str, int], Words] = {}

    def seat(count: int, decoding: bool) -> tuple[str, int]:
        order = sorted(ids, key=lambda n: ("decoder" in n) != decoding)
        name = next((n for n in order if len(ids[n]) == count), "")
        if (name, count) not in made:
            if name:
                made[name, count] = Words.of(ids[name], tokenizer, spoken if len(ids) == 1 else None)
            else:
                made[name, count] = Words.places(count)
        return name, count

    seats: list[tuple[tuple[str, int], tuple[str, int]]] = []
    for site in heads.sites:
        problem = heads.calls(site)[-1].problem
        assert problem is not None
        late = site.stack in ("decoder", "cross") or site.cross
        seats.append((seat(problem.frame.queries, late), seat(problem.frame.keys, late and not site.cross)))
    index = {key: at for at, key in enumerate(made)}
    return list(made.values()), [(index[rows], index[columns]) for rows, columns in seats]
