"""All that a page shows, part by part; whatever was finished before a stop makes a page.

>>> from transformers import GPT2Config, GPT2LMHeadModel
>>> from multihead.page.gather import gather
>>> model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=50)).eval()
>>> found = gather(model, [[3, 1, 4, 1, 5], [9, 2, 6]], parts=("measure", "cost"))
>>> len(found.table), found.stopped, found.texts[0]["name"]
(6, False, '3 1 4 1 5')
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from torch import nn

from multihead.corpus.accumulator import Accumulator
from multihead.corpus.batches import BATCH_SIZE, Document
from multihead.corpus.documents import Corpus
from multihead.corpus.run import run
from multihead.corpus.tolerant import Tolerant
from multihead.errors import MultiheadError, SizeError
from multihead.measures.cost.cost import Cost, cost
from multihead.measures.importance.ablation import Ablation
from multihead.measures.importance.choose_loss import choose_loss
from multihead.measures.importance.gradients import Gradients
from multihead.measures.importance.importance import ranked
from multihead.measures.importance.losses import Loss
from multihead.measures.kinds.kinds import KindsMeasure, kinds_options
from multihead.measures.kinds.result import Kinds
from multihead.measures.measure import StatisticsSum, with_special
from multihead.measures.similarity.ov_circuits import OVWeights, find_weights
from multihead.measures.similarity.result import Similarity
from multihead.measures.similarity.similarity import SimilaritySum
from multihead.model.statistics.options import Statistics
from multihead.page.attended import Lines
from multihead.page.curve import quick_curve
from multihead.page.cuts import cut_curve
from multihead.page.findings import importance_column
from multihead.page.pairs import HELD, TokenPairs
from multihead.page.texts import TextMaps, read_text, windows_of
from multihead.page.words import Words
from multihead.statements.run import claims
from multihead.table.table import HeadTable

PARTS = ("measure", "kinds", "pairs", "importance", "similarity", "curve", "claims", "cost")
"""What a page may hold beside maps, in the order in which it is gathered."""

TEXTS = 3
"""Documents whose maps are shown, where no text is given."""

EXACT = 256
"""Heads up to which importance is measured by ablating each of them; with more heads, by gradients."""

WINDOWS = 8
"""Windows of one long text whose maps are kept, at most, unless told otherwise ..."""

WINDOWED = 2_000_000
"""... and characters of its maps, after which no further window is added."""

PAIRS = 10
"""Pairs of tokens of a head that are shown."""

LAYERS = 3
"""Layers that the statements of the theory are tested on: the first, the last and those between."""

TOKENS = 2048
"""Tokens that they are tested on."""

Shown = Callable[[Sequence[Document]], tuple[list[dict[str, Any]], list[dict[str, Any]]]]
"""Texts as the page has them and the attentions that ran, for documents whose maps are not kept in the page."""

Progress = Callable[[str, float, int], None]
"""Called with (part, done, total)."""


@dataclass
class Gathered:
    """What is known of a model; each part is None or empty where it was not asked for, not possible, or stopped."""

    model: dict[str, Any]
    corpus: dict[str, Any]
    sites: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    texts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    lines: Lines = field(default_factory=Lines)
    table: HeadTable | None = None
    kinds: Kinds | None = None
    similarity: Similarity | None = None
    curve: Mapping[str, Any] | None = None
    claims: Mapping[str, Any] | None = None
    cost: Cost | None = None
    notes: list[str] = field(default_factory=list[str])
    stopped: bool = False
    pairs: Mapping[str, Sequence[Sequence[Any]]] | None = None
    """of each head: (token, token it looks at, times, mean weight)"""

    @property
    def heads(self) -> list[str]:
        return [f"{site['label']}H{h}" for site in self.sites for h in range(site["heads"])]

    def join(self, table: HeadTable) -> None:
        """More columns."""
        self.table = table if self.table is None else self.table.join(table)


def gather(
    model: nn.Module,
    data: Iterable[Document] | Mapping[str, Any],
    *,
    tokenizer: Any = None,
    text: Document | Sequence[str] | None = None,
    name: str | None = None,
    corpus: str = "",
    parts: Sequence[str] = PARTS,
    importance: str = "auto",
    curve: Mapping[str, Any] | None = None,
    cut: Sequence[str] = (),
    heads: Sequence[str] | None = None,
    maps: str | Shown | None = None,
    windows: int | None = None,
    batch_size: int = BATCH_SIZE,
    max_tokens: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Gathered:
    """Run the parts one after another. After Ctrl-C what is there is given back, and `stopped` says so.

    Args:
        data: what is measured over, as for `mh.measure`.
        text: what maps are shown of: a text, or several; left out, the first documents of `data`.
        parts: some of `PARTS`.
        importance: its method, "gradient" or "ablation"; "auto" ablates every head of a model with few heads.
        curve: a curve that was measured before, in the place of the quick one; see `docs/report.md`.
        cut: methods, "obs", "fisher", "random": the model is really cut by each for the curve, and fitted again.
        heads: the heads whose maps are kept; by default all.
        maps: "maps" or "qk", in the place of the smaller; or what gives the texts where maps are served.
        windows: of a text longer than the model takes, so many windows are kept; by default as many as stay small.
    """
    wrong = sorted(set(parts) - set(PARTS))
    if wrong:
        raise SizeError(f"there is no part {wrong[0]!r} of a page", hint=f"choose some of {', '.join(PARTS)}")
    documents = [cast(Document, data)] if isinstance(data, Mapping) else list(data)
    options: dict[str, Any] = {"tokenizer": tokenizer, "batch_size": batch_size, "max_tokens": max_tokens}
    parameters = sum(p.numel() for p in model.parameters())
    found = Gathered(
        {"name": name or type(model).__name__, "class": type(model).__name__, "parameters": parameters},
        {"name": corpus, "documents": len(documents)},
        curve=curve,
    )
    work = _Work(
        model, tokenizer, documents, Corpus(model, documents, **options), found, tuple(parts), tuple(cut), seed,
        progress, importance,
    )  # fmt: skip
    shown = _shown(text, documents)
    try:
        if callable(maps):
            found.texts, found.sites = maps(shown)
        else:
            work.maps(shown, max_tokens, heads, maps, windows)
        for part in (work.heads, work.importance, work.curve, work.claims, work.cost):
            part()
    except KeyboardInterrupt:
        if not found.texts:
            raise
        found.stopped = True
    return found


def _shown(text: Any, documents: Sequence[Document]) -> list[Document]:
    if text is None:
        return list(documents[:TEXTS])
    several = isinstance(text, Sequence) and not isinstance(text, str) and all(isinstance(t, str) for t in text)
    found: list[Document] = list(text) if several else [text]
    if not found or any(isinstance(t, str) and not t.strip() for t in found):
        raise MultiheadError("there is no word in the text to show", hint="text is a text, or a list of them")
    return found


@dataclass
class _Work:
    """The parts, each of which adds its result to `found`."""

    model: nn.Module
    tokenizer: Any
    documents: Sequence[Document]
    corpus: Corpus
    found: Gathered
    parts: tuple[str, ...]
    cut: tuple[str, ...]
    seed: int
    progress: Progress | None
    method: str

    @contextmanager
    def part(self, name: str) -> Generator[None]:
        """A part that a model is not made for does not lose the others: the page says why."""
        try:
            yield
        except MultiheadError as refused:
            self.found.notes.append(f"{name}: {refused.message.partition(chr(10))[0]}")

    def tell(self, part: str, done: float, total: int) -> None:
        if self.progress is not None:
            self.progress(part, done, total)

    def telling(self, *parts: str) -> Callable[[float], None]:
        """Progress of a pass over the corpus, for all parts that share it."""
        total = self.batches

        def tell(done: float) -> None:
            for part in parts:
                self.tell(part, done, total)

        return tell

    @cached_property
    def batches(self) -> int:
        return self.corpus.count_batches()

    @cached_property
    def weights(self) -> OVWeights:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = find_weights(self.model)
            return find_weights(self.model, self.corpus.first().inputs) if found.reason else found

    @cached_property
    def loss(self) -> Loss:
        return choose_loss(None, self.model, self.corpus.first().inputs, self.tokenizer, seed=self.seed)

    def heads(self) -> None:
        """Statistics, kinds, token pairs and similarity share one forward per batch."""
        special = () if self.tokenizer is None else tuple(map(int, self.tokenizer.all_special_ids))
        count = max(1, len(self.found.heads))  # of many heads fewer pairs are held each
        statistics = StatisticsSum(with_special(Statistics(), self.tokenizer))
        kinds = KindsMeasure(self.model, kinds_options(self.tokenizer), seed=self.seed)
        pairs = TokenPairs(special, held=max(64, min(HELD, 2_000_000 // count)))
        asked: dict[str, list[Accumulator]] = {
            "measure": [statistics],
            "kinds": list(kinds.accumulators),
            "pairs": [pairs],
            "similarity": [SimilaritySum(self.weights, seed=self.seed)] if "similarity" in self.parts else [],
        }
        tolerant = {part: [Tolerant(one) for one in asked[part]] for part in asked if part in self.parts}
        if not tolerant:
            return
        accumulators = [one for some in tolerant.values() for one in some]
        run(self.model, self.corpus, accumulators, progress=self.telling(*tolerant))
        for part, some in tolerant.items():
            with self.part(part):
                for one in some:
                    if one.reason:
                        raise MultiheadError(one.reason)
                self._keep(part, [one.inner for one in some], kinds)

    def _keep(self, part: str, measured: Sequence[Any], kinds: KindsMeasure) -> None:
        """Add the result of a part."""
        if part == "measure":
            self.found.corpus["tokens"] = measured[0].capture.tokens
            self.found.join(measured[0].columns())
            self.found.notes += measured[0].notes
        elif part == "kinds":
            kinds.text, kinds.shuffled = measured
            kinds.run_repeats()
            self.found.kinds = kinds.result()
            self.found.join(self.found.kinds.table)
        elif part == "pairs":
            self.found.pairs = self._top_pairs(measured[0])
        else:
            similarity: Similarity = measured[0].result()
            self.found.similarity = similarity
            self.found.join(similarity.table)

    def _top_pairs(self, pairs: TokenPairs) -> dict[str, list[list[Any]]] | None:
        count = max(3, min(PAIRS, 20_000 // max(1, len(self.found.heads))))
        top = {head: pairs.top(head, count) for head in self.found.heads}
        ids = sorted({i for some in top.values() for pair in some for i in (pair.query, pair.key)})
        words = dict(zip(ids, Words.of(ids, self.tokenizer).shown, strict=True))
        if not ids:
            return None
        return {
            head: [[words[pair.query], words[pair.key], pair.times, round(pair.weight, 4)] for pair in some]
            for head, some in top.items()
        }

    def maps(
        self, shown: Sequence[Document], max_tokens: int | None, heads: Any, only: str | None, most: int | None
    ) -> None:
        weights = self.weights
        writes = {layer.name: list(layer.W_O) for layer in weights.layers.values()}
        if weights.reason:
            reason = f"norm-weighted attention is by the length of v, without W_O: {weights.reason}"
            self.found.notes.append(reason)
        text_maps = TextMaps(self.found.lines, writes=writes, only=only, chosen=heads)
        for at, document in enumerate(shown):
            self.tell("maps", at, len(shown))
            cut = windows_of(self.model, document, tokenizer=self.tokenizer, max_tokens=max_tokens)
            before, kept = self.found.lines.size, list[dict[str, Any]]()
            for window in cut[: WINDOWS if most is None else max(1, most)]:
                if kept and most is None and self.found.lines.size - before > WINDOWED:
                    break
                text = read_text(self.model, window, text_maps, tokenizer=self.tokenizer)
                self.found.sites = self.found.sites or text.sites
                kept.append(text.data | {"source": at})
            self.found.texts += kept
            if len(cut) > 1:
                self._windowed(kept)
            unknown = next((name for name in heads or () if name not in self.found.heads), None)
            if unknown is not None:
                ends = f"{self.found.heads[0]} to {self.found.heads[-1]}"
                raise SizeError(f"there is no head {unknown!r} to keep the map of", hint=f"heads are {ends}")
        self.tell("maps", len(shown), len(shown))

    def _windowed(self, kept: Sequence[dict[str, Any]]) -> None:
        """Say that a text was too long, and what of it is there."""
        count, name = kept[0]["window"][1], kept[0]["name"]
        some = "all" if len(kept) == count else "the first" if len(kept) == 1 else f"the first {len(kept)}"
        here = f"{some} {'is' if len(kept) == 1 else 'are'} in the page"
        self.found.notes.append(f"“{name}” is longer than the model takes at once: {count} windows, {here}")

    def importance(self) -> None:
        if "importance" not in self.parts:
            return
        with self.part("importance"):
            exact = self.method == "ablation" or (self.method == "auto" and len(self.found.heads) <= EXACT)
            measured = Ablation(self.loss) if exact else Gradients(self.loss, seed=self.seed)
            run(self.model, self.corpus, [measured], progress=self.telling("importance"))
            self.found.corpus["loss"] = self.loss.name
            self.found.join(ranked(measured.columns()))

    def curve(self) -> None:
        if "curve" not in self.parts or self.found.curve is not None:
            return
        with self.part("curve"):
            if self.cut:
                self.found.curve = cut_curve(
                    self.model,
                    self.documents,
                    tokenizer=self.tokenizer,
                    methods=self.cut,
                    seed=self.seed,
                    progress=lambda done, total: self.tell("curve", done, total),
                )
                self.found.notes += self.found.curve["notes"]
                return
            by = importance_column(self.found.table)
            if by is None or self.found.table is None:
                return
            order = self.found.table.sort(by).heads
            told = self.telling("curve")
            self.found.curve = quick_curve(self.model, self.corpus, order, self.loss, progress=told)

    def claims(self) -> None:
        if "claims" not in self.parts:
            return
        with self.part("claims"):
            self._claims()

    def _claims(self) -> None:
        labels = [site["label"] for site in self.found.sites]
        last = len(labels) - 1
        chosen = sorted({round(last * i / (LAYERS - 1)) for i in range(LAYERS)})
        layers = [labels[at] for at in chosen]

        def told(layer: str, done: int, every: int) -> None:
            self.tell("claims", layers.index(layer) * every + done, len(layers) * every)

        found = claims(
            self.model,
            self.documents,
            tokenizer=self.tokenizer,
            layers=layers,
            tokens=TOKENS,
            seed=self.seed,
            progress=told,
        )
        self.found.claims = found.to_json()

    def cost(self) -> None:
        if "cost" in self.parts:
            with self.part("cost"):
                self.found.cost = cost(self.model)
