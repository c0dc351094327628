"""Name what each head does, by evidence: score, threshold, chance, an interval over documents, the runners-up.

>>> import multihead as mh
>>> from multihead.measures.kinds.kinds import kinds
>>> from transformers import GPT2Config, GPT2Model
>>> model = GPT2Model(GPT2Config(n_layer=1, n_head=2, n_embd=24, vocab_size=50)).eval()
>>> found = kinds(model, [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]])
>>> found["L0H1"].kind, found["L0H1"].why
('too little data', 'an interval over documents needs 5, got 2')
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Batch, run_stage
from multihead.corpus.batches import Document, batches
from multihead.errors import MultiheadError
from multihead.measures.kinds.controls import stream_names, streams
from multihead.measures.kinds.evidence import DocumentMeans, Evidence, judge
from multihead.measures.kinds.per_document import read_documents
from multihead.measures.kinds.repeats import TOKENS, repeats
from multihead.measures.kinds.result import Kinds
from multihead.measures.kinds.shuffled import STREAMS, driven, pair_of
from multihead.measures.kinds.token_classes import as_ids, classes_of
from multihead.measures.measure import with_special
from multihead.model.call import Call, Compute
from multihead.model.call_tokens import learned_positions
from multihead.model.forward import Forward
from multihead.model.known import note, remember, seen_sites
from multihead.model.sites import Key
from multihead.model.statistics.arena import Memory
from multihead.model.statistics.options import Statistics
from multihead.table.table import HeadTable

REPEATS = 16
"""Rows of random tokens that repeat."""

ROWS = 8
"""of them that run together"""

IDS = ("input_ids", "idx", "ids", "tokens")
BESIDE = ("attention_mask", "token_type_ids", "position_ids", "labels")


def kinds(
    model: nn.Module,
    data: Iterable[Document] | Mapping[str, Any],
    *,
    tokenizer: Any = None,
    batch_size: int = 8,
    max_tokens: int | None = None,
    seed: int = 0,
    special: Sequence[int] = (),
    classes: Mapping[str, Sequence[int] | Sequence[str]] | None = None,
    offsets: int = 16,
) -> Kinds:
    """What each head of `model` does on `data`.

    Args:
        data: as for `mh.measure`. A document, or a piece of one, counts once, however long it is; take 5 or more.
        tokenizer: knows special tokens and classes (punctuation, digits, capitalised, function words, word pieces).
        special: ids of special tokens, in place of the tokenizer's.
        classes: more classes of tokens: name → ids or words.
        offsets: the largest distance that counts as one.
    """
    options = kinds_options(tokenizer, special=special, classes=classes, offsets=offsets)
    stage = KindsStage(model, options, seed=seed)
    read = batches(model, data, tokenizer=tokenizer, batch_size=batch_size, max_tokens=max_tokens)
    return run_stage(stage, read).result


def kinds_options(
    tokenizer: Any = None,
    *,
    special: Sequence[int] = (),
    classes: Mapping[str, Sequence[int] | Sequence[str]] | None = None,
    offsets: int = 16,
) -> Statistics:
    """Which tokens are special and which are of a class: what a `KindsStage` has to know."""
    named = {} if tokenizer is None else classes_of(tokenizer)
    named |= {name: as_ids(name, members, tokenizer) for name, members in (classes or {}).items()}
    return with_special(Statistics(offsets=offsets, special=special, classes=named), tokenizer)


# ---- the stage --------------------------------------------------------------------------------


@dataclass
class _Record:
    """What was seen of one attention: texts, repeated random tokens, shuffled texts."""

    heads: int
    cross: bool
    text: DocumentMeans
    repeats: DocumentMeans
    pairs: DocumentMeans


class KindsStage:
    """Takes in batches: each runs as it is, then shuffled; with the first, random tokens that repeat run too."""

    name = "kinds"
    once = True
    """a copy of a document is not read again"""

    def __init__(self, model: nn.Module, options: Statistics, *, seed: int = 0) -> None:
        self.model, self.options, self.seed = model, options, seed
        self.forward = Forward(model)
        self.streams = stream_names(options)
        self.memory = Memory()
        self.records: dict[Key, _Record] = {}
        self.steps = 0
        self.documents = 0
        self.seen: set[int] = set()
        """what each document was: a copy says nothing new, and an interval would take it for one more witness"""
        self.copies = 0
        self.alone = ""
        """why neither shuffled nor random tokens could run, if so"""

    def step(self, batch: Batch) -> None:
        name = _ids_name(batch)
        self.alone = self.alone or self._alone(batch, name)
        if not self.alone and name is not None:
            batch = self._new(batch, name)
            if not batch[name].shape[0]:
                self.steps += 1
                return
        self._read(batch, "text", self._generator(0))
        if not self.alone and name is not None:
            self._shuffled(batch, name)
            if self.steps == 0:
                self._repeated(batch, name)
        self.memory.rest()
        self.steps += 1
        self.documents += max((x.shape[0] for x in batch.values() if isinstance(x, Tensor) and x.ndim), default=0)

    def _new(self, batch: Batch, name: str) -> Batch:
        """The documents of a batch that did not come before."""
        ids, mask = batch[name], batch.get("attention_mask")
        rows: list[int] = []
        for row in range(ids.shape[0]):
            tokens = ids[row] if mask is None else ids[row][mask[row].bool()]
            digest = blake2b(tokens.cpu().numpy().tobytes(), digest_size=8).digest()
            if (known := int.from_bytes(digest, "little", signed=True)) not in self.seen:
                self.seen.add(known)
                rows.append(row)
        self.copies += ids.shape[0] - len(rows)
        if len(rows) == ids.shape[0]:
            return batch
        documents = ids.shape[:1]
        return {n: x[rows] if isinstance(x, Tensor) and x.shape[:1] == documents else x for n, x in batch.items()}

    def _generator(self, which: int) -> torch.Generator:
        """For the draws of this step: the same whenever it runs."""
        return torch.Generator().manual_seed((self.seed * 1_000_003 + self.steps) * 7 + which)

    def _alone(self, batch: Batch, name: str | None) -> str:
        if getattr(getattr(self.model, "config", None), "is_encoder_decoder", False):
            return "the model reads two sequences, which cannot be shuffled alike"
        if name is None:
            return "the model was given no token ids"
        more = [n for n, x in batch.items() if isinstance(x, Tensor) and n not in (name, *BESIDE)]
        return f"the model reads {more[0]} too, which cannot be shuffled alike" if more else ""

    def _read(self, batch: Batch, what: str, generator: torch.Generator) -> None:
        """Run the model on a batch; its documents go into `text` or `repeats`."""

        def listen(call: Call, run: Compute) -> HeadOutputs:
            out = run()
            note(self.model, call)
            record = self._record(call.key, call.problem.frame.heads, call.cross)
            found = read_documents(call, out, self.options, self.memory, generator)
            (record.text if what == "text" else record.repeats).add(streams(found, self.options))
            return out

        self.forward(batch, listen)

    def _shuffled(self, batch: Batch, name: str) -> None:
        pair, inputs = pair_of(batch, name, self.options.special, self._generator(1))

        def listen(call: Call, run: Compute) -> HeadOutputs:
            if not call.cross:
                record = self._record(call.key, call.problem.frame.heads, call.cross)
                record.pairs.add(pair.overlaps(call.problem))
            return run()

        if bool(pair.asking.any()):
            self.forward(inputs, listen)

    def _repeated(self, batch: Batch, name: str) -> None:
        """Random tokens between the special ones that the first document begins and ends with."""
        mask = batch.get("attention_mask")
        first = batch[name][0] if mask is None else batch[name][0][mask[0].bool()]
        begin, end = _around(first.tolist(), set(self.options.special))
        tokens = min(TOKENS, self._positions() - len(begin) - len(end))
        if tokens < 8:
            return
        vocabulary = self._vocabulary(batch[name])
        generator = self._generator(2)
        ids = repeats(vocabulary, rows=REPEATS, tokens=tokens, begin=begin, end=end, generator=generator)
        for some in ids.to(batch[name].device).split(ROWS):
            self._read({name: some}, "repeats", generator)

    def _positions(self) -> int:
        """How many tokens the model surely takes."""
        config = getattr(self.model, "config", None)
        named = [getattr(config, n, None) for n in ("max_position_embeddings", "n_positions")]
        return min(n for n in (learned_positions(self.model), *named, 1 << 20) if isinstance(n, int) and n > 0)

    def _vocabulary(self, ids: Tensor) -> list[int]:
        """Ordinary tokens: of the model's table, else of the batch."""
        special = set(self.options.special)
        embeddings: Any = getattr(self.model, "get_input_embeddings", None)
        size = None if embeddings is None else getattr(embeddings(), "num_embeddings", None)
        known = range(size) if isinstance(size, int) else ids.unique().tolist()
        return [i for i in known if i not in special] or list(known)

    def _record(self, key: Key, heads: int, cross: bool) -> _Record:
        if key not in self.records:
            text, again, pairs = (DocumentMeans(names, heads) for names in (self.streams, self.streams, STREAMS))
            self.records[key] = _Record(heads, cross, text, again, pairs)
        return self.records[key]

    # ---- keeping ------------------------------------------------------------------------------

    def begin(self, batch: int) -> None:
        self.steps = batch

    def end(self) -> None:
        """Documents of another part may be the same: what leaves them out is whoever reads (`once`)."""
        self.seen = set()

    @staticmethod
    def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
        sites = {(site["path"], site["call_index"]): site for site in first["sites"]}
        for site in second["sites"]:
            key = site["path"], site["call_index"]
            if key in sites:
                spreads = {
                    name: DocumentMeans.from_state(sites[key][name])
                    .merge(DocumentMeans.from_state(site[name]))
                    .state()
                    for name in ("text", "repeats", "pairs")
                }
                sites[key] = {**site, **spreads}
            else:
                sites[key] = site
        counted = {name: first[name] + second[name] for name in ("documents", "copies")}
        counted |= {"steps": max(first["steps"], second["steps"]), "alone": first["alone"] or second["alone"]}
        seen = torch.cat([first["seen"], second["seen"]]).unique()
        return {**first, **counted, "seen": seen, "sites": list(sites.values())}

    def state(self) -> dict[str, Any]:
        sites = [
            {
                "path": path,
                "call_index": call_index,
                "cross": r.cross,
                "heads": r.heads,
                "text": r.text.state(),
                "repeats": r.repeats.state(),
                "pairs": r.pairs.state(),
            }
            for (path, call_index), r in self.records.items()
        ]
        counted = {"steps": self.steps, "documents": self.documents, "alone": self.alone, "seed": self.seed}
        counted |= {"copies": self.copies, "seen": torch.tensor(sorted(self.seen), dtype=torch.long)}
        return {**counted, "options": self.options.state(), "sites": sites}

    def load(self, state: Mapping[str, Any]) -> None:
        asked, kept = (self.options.state(), self.seed), (state["options"], state["seed"])
        if asked != kept:
            raise MultiheadError(
                "the state was made with other special tokens, classes, offsets or another seed",
                hint="resume with the options that the run began with",
            )
        self.steps, self.documents, self.alone = state["steps"], state["documents"], state["alone"]
        self.copies, self.seen = state["copies"], set(state["seen"].tolist())
        self.records = {}
        for site in state["sites"]:
            key = str(site["path"]), int(site["call_index"])
            text, again, pairs = (DocumentMeans.from_state(site[n]) for n in ("text", "repeats", "pairs"))
            self.records[key] = _Record(int(site["heads"]), bool(site["cross"]), text, again, pairs)
            remember(self.model, key, int(site["heads"]), bool(site["cross"]))

    # ---- reading ------------------------------------------------------------------------------

    @property
    def result(self) -> Kinds:
        named, found = seen_sites(self.model), list[Evidence]()
        for key, record in self.records.items():
            why = self.alone or ("its keys are of another sequence" if record.cross else "")
            names = [named[key].name(h) for h in range(record.heads)]
            found += judge(names, record.text, record.repeats, driven(record.pairs, why))
        counted = {"documents": self.documents, "copies": self.copies}
        about = {**counted, "repeats": 0 if self.alone else REPEATS, "seed": self.seed}
        return Kinds(found, {"kinds": about})

    @property
    def table(self) -> HeadTable:
        return self.result.table


def _ids_name(batch: Batch) -> str | None:
    """What the batch calls its token ids: a known name, else its only table of whole numbers."""
    found = [n for n, x in batch.items() if _are_ids(x) and n not in BESIDE]
    return next((n for n in IDS if n in found), found[0] if len(found) == 1 else None)


def _are_ids(x: object) -> bool:
    return isinstance(x, Tensor) and x.ndim == 2 and x.dtype in (torch.int64, torch.int32)


def _around(ids: Sequence[int], special: set[int]) -> tuple[list[int], list[int]]:
    """The special tokens at the beginning and the end."""
    begin = next((i for i, x in enumerate(ids) if x not in special), len(ids))
    end = next((i for i, x in enumerate(reversed(ids)) if x not in special), 0)
    return list(ids[:begin]), list(ids[len(ids) - end :])
