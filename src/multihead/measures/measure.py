"""`mh.measure`: a table of what every head does over a corpus, with any of its parts, resumable in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import nn

from multihead._base.arguments import check_data, check_function, check_instance, check_path, check_seed
from multihead._base.estimate import Estimate, ForwardCost
from multihead._base.number_text import amount
from multihead._base.plural import plural
from multihead._base.progress import Progress, check_progress, shown_progress
from multihead.corpus.batches import BATCH_SIZE, WINDOW, Batching, Document
from multihead.corpus.checkpoint import EVERY, Checkpoint
from multihead.corpus.documents import Corpus, Documents, rereadable
from multihead.corpus.language import check_language
from multihead.corpus.ranks import TIMEOUT, Ranks
from multihead.corpus.run import Summary, with_total
from multihead.corpus.run_folder import RunFolder, check_run_options
from multihead.corpus.stopping import stop_after_batch
from multihead.errors import MultiheadError
from multihead.measures.importance.importance import RANKED_BY, ranked
from multihead.measures.measure_parts import Parts, check_parts
from multihead.measures.treebank.conllu import read_conllu
from multihead.measures.treebank.relation_kinds import named_by_relations
from multihead.measures.treebank.syntax import syntax
from multihead.model.find_sites import find_sites
from multihead.model.fingerprint import fingerprint
from multihead.model.forward import Forward
from multihead.model.statistics.statistics_options import Statistics, check_statistics
from multihead.model.token_limit import token_limit
from multihead.table.table import HeadTable

COUNTED = 2_000_000
"""Characters up to which batches are counted before the work; of longer text their number is estimated."""

Say = Callable[[str], None]


def measure(
    model: nn.Module,
    data: Iterable[Document] | Mapping[str, Any],
    *,
    tokenizer: Any = None,
    parts: str | Sequence[str] = ("statistics",),
    importance: str = "gradient",
    treebank: str | Path | None = None,
    statistics: Statistics | None = None,
    batch_size: int = BATCH_SIZE,
    max_tokens: int | None = None,
    window: int = WINDOW,
    column: str = "text",
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    save_every: float = EVERY,
    rank_timeout: float = TIMEOUT,
    name: str | None = None,
    progress: bool | Progress | None = None,
    say: Say | None = None,
    ranks: Ranks | None = None,
) -> HeadTable:
    """Measure every head over `data`: the mean of every statistic, and the columns of further parts.

    Args:
        data: texts (with a `tokenizer`), lists of token ids, or batches: mappings with the arguments of the model's
            forward. A dataset of Hugging Face is an iterable of rows; `column` is read if it holds text.
            `multihead.corpus.read_texts.read_documents` reads files.
        tokenizer: of the model, to read texts; the statistics count its special tokens apart.
        parts: "statistics" (always), "kinds", "importance", "similarity": one name, or a list.
        importance: its method, as for `mh.importance`: "gradient", "ablation" or "all".
        treebank: a file of parsed sentences (CoNLL-U), for the columns of `multihead.measures.syntax`. If the kinds
            are measured, its relations also name heads in which match leads.
        statistics: `multihead.measures.Statistics`; with a tokenizer, its special tokens are filled in.
        batch_size: documents at a time.
        max_tokens: longer documents are cut into pieces of this length; default: the positions of the model.
        window: documents are sorted by length within this many batches, to pad less; 1 keeps their order.
        seed: of shuffles and probes.
        out: a folder for the table. Until it is written, the state is saved there: Ctrl-C and SIGTERM stop after
            the current batch, and the same call with `resume=True` ends in the same table, to the last bit. Under
            torchrun, processes share the documents.
        resume: continue a run that was stopped; of a finished one, return the table.
        force: start again, replacing the contents of `out`.
        save_every: seconds between two saves of the state.
        rank_timeout: seconds without a heartbeat after which a process counts as dead.
        name: of the model, for the record in `table.about`.
        progress: True shows bars on a terminal; a function is called with (pass, batches finished, batches).
        say: called with lines about what runs and how long it may take.

    Returns:
        A `HeadTable` with a row per head.

    Raises:
        MultiheadError: if the data contains no text, a part is unknown, or `out` holds a run and neither `resume`
            nor `force` is given.
        TypeMismatchError: if a document is neither a text, token ids nor a batch.

    >>> import multihead as mh
    >>> model, tokenizer = mh.embedded()
    >>> table = mh.measure(model, tokenizer.sample_texts()[:4], tokenizer=tokenizer, parts=("statistics", "kinds"))
    >>> table.top("previous", 1).heads, table.row("L1H0")["layer"]
    (('L0H1',), 1)
    """
    check_data(data)
    parts = check_parts(parts, importance)
    check_seed(seed)
    if out is not None:
        check_path("out", out, "the path of a folder or None", hint="out='run'")
    if treebank is not None:
        check_path("treebank", treebank, hint="treebank='parsed.conllu'")
    check_instance("name", name, str | None, "a text or None", hint="name='my model'")
    check_statistics(statistics)
    check_instance("ranks", ranks, Ranks | None, "Ranks or None", hint="omit it: torchrun sets the processes")
    check_progress(progress)
    check_function("say", say)
    check_run_options(resume=resume, force=force, save_every=save_every, rank_timeout=rank_timeout)
    if out is None and (resume or force):
        raise MultiheadError("resume and force need the folder of a run, got out=None", hint="out='run'")
    check_instance("column", column, str, "a name", hint='column="text"')
    Batching(tokenizer, batch_size, max_tokens, window, column).check(model)
    say = say or (lambda text: None)
    bank = None if treebank is None else _Treebank.read(Path(treebank), tokenizer)
    options: dict[str, Any] = {
        "tokenizer": tokenizer, "batch_size": batch_size, "max_tokens": max_tokens, "window": window,
        "column": column,
    }  # fmt: skip
    chosen: dict[str, Any] = {"statistics": statistics, "importance": importance, "seed": seed}
    if out is None:
        several = set(parts) - {"statistics"} or bank is not None
        corpus = Corpus(model, rereadable(data) if several else data, **options)
        check_language(tokenizer, corpus.documents, "the text")
        measured = Parts.of(model, tokenizer, parts, lambda: corpus.first().inputs, **chosen)
        with shown_progress(progress, measured.pass_names) as shown:
            summary = measured.run(corpus, progress=with_total(shown, corpus))
        table = measured.columns() if several else measured.statistics.columns()
        if summary.padding.tokens:
            table = replace(table, about={**table.about, "batching": summary.padding.about()})
        return _finished(table, model, tokenizer, bank)
    with ExitStack() as stack:
        ranks = ranks or stack.enter_context(Ranks.started(rank_timeout))
        folder = RunFolder(Path(out), ranks, resume, force, save_every, say if ranks.leads else lambda text: None)
        folder = stack.enter_context(folder.opened())
        documents = data if isinstance(data, Documents) else _counted_documents(data)
        options["max_tokens"] = max_tokens or token_limit(model)
        corpus = Corpus(model, documents, **options)
        if ranks.leads:
            check_language(tokenizer, corpus.documents, "the text")
        measured = Parts.of(model, tokenizer, parts, lambda: corpus.first().inputs, **chosen)
        identity = _identity(model, name, documents, corpus, measured, bank, seed)
        ranks.check_equal(identity)
        checkpoint, table = folder.checkpoint(identity)
        if table is not None:
            folder.say(f"{out} is finished: {plural(len(table), 'head')}, {plural(len(table.columns), 'column')}")
            return table
        run = _FolderRun(folder, checkpoint, documents, corpus, measured)
        with shown_progress(progress if ranks.leads else None, measured.pass_names) as shown:
            table = run.table(shown)
        table = _finished(table, model, tokenizer, bank)
        if ranks.leads:
            file = folder.finish(checkpoint, table)
            folder.say(f"{plural(len(table), 'head')}, {plural(len(table.columns), 'column')} → {file}")
        return table


def _counted_documents(data: Any) -> Documents:
    held: Any = [data] if isinstance(data, Mapping) else rereadable(data)
    return Documents.of(lambda: held, "data")


def _identity(
    model: nn.Module,
    name: str | None,
    documents: Documents,
    corpus: Corpus,
    parts: Parts,
    bank: _Treebank | None,
    seed: int,
) -> dict[str, Any]:
    """What a resumed run of `mh.measure` must have in common with the stopped one, as plain data."""
    from multihead import __version__

    kind, weight = type(model).__name__, next(model.parameters(), torch.empty(0))
    return {
        "model": f"{name or kind} ({kind}, weights {fingerprint(model)})",
        "text": f"{documents.name} ({plural(documents.count, 'document')}, {documents.fingerprint})",
        "stages": parts.names,
        "batch size": corpus.batching.batch_size,
        "tokens of a piece": corpus.batching.max_tokens,
        "window": corpus.batching.window,
        "parts": len(corpus.ranges()),
        "treebank": None if bank is None else bank.name,
        "seed": seed,
        "device": weight.device.type,
        "dtype": str(weight.dtype).removeprefix("torch."),
        "multihead": __version__,
        "torch": str(torch.__version__),
    }


@dataclass(frozen=True)
class _FolderRun:
    """A run whose state is saved in a folder; every rank runs its share."""

    folder: RunFolder
    checkpoint: Checkpoint
    documents: Documents
    corpus: Corpus
    parts: Parts

    def table(self, progress: Progress | None) -> HeadTable:
        """The measured table, on every rank."""
        ranks, batches = self.folder.ranks, 1
        if ranks.leads:
            batches = self._announce()

        def report(name: str, done: float) -> None:
            if progress is not None:
                progress(name, done, batches)

        with stop_after_batch(self.checkpoint, self.folder.say):
            summary = self.parts.run(self.corpus, self.checkpoint, ranks, report)
        if summary.padding.tokens:
            self.folder.say(f"batches: {summary.padding}")
        table = self.parts.columns()
        return replace(table, about=self._about(summary) | {"stages": dict(table.about)})

    def _about(self, summary: Summary) -> dict[str, Any]:
        """What `mh.measure` notes on its table: run, sizes, versions."""
        return {
            "run": dict(self.checkpoint.identity),
            "parameters": sum(p.numel() for p in self.parts.model.parameters()),
            "documents": self.documents.count,
            "batching": summary.padding.about(),
            "tokens": self.parts.statistics.capture.tokens,
        }

    def _announce(self) -> int:
        """Say what `mh.measure` runs and how long it takes. Returns the number of batches of a pass."""
        model, ranks, documents = self.parts.model, self.folder.ranks, self.documents
        first = self.corpus.first().inputs
        heads = len(find_sites(model, first).heads)
        cost = ForwardCost.of(model, first, Forward(model), warmed_up=True)
        counted = documents.size <= COUNTED
        size = self.corpus.batching.batch_size
        batches = self.corpus.count_batches() if counted else max(1, -(-documents.count // size))
        processes, done, seconds = min(ranks.size, len(self.corpus.ranges())), 0, 0.0
        for accumulators, forwards in zip(self.parts.passes, self.parts.forwards(heads), strict=True):
            before = self.checkpoint.batches(accumulators[0].name)
            seconds += forwards * max(0, batches - before) * cost.seconds / processes
            done += before
        memory = cost.estimate(0, 0, every_layer=self.parts.every_layer).memory
        about = "" if counted else "about "
        resumed = f"resuming after {done} of {about}{batches * len(self.parts.passes)} batches; " if done else ""
        resumed += f"{ranks.size} processes; " if ranks.size > 1 else ""
        name = self.checkpoint.identity["model"].partition(" (")[0]
        text = f"{documents.name}: {plural(documents.count, 'document')} in {about}{batches} batch"
        text += "" if batches == 1 else "es"
        self.folder.say(
            f"{name}: {plural(heads, 'head')}, {amount(cost.parameters)} parameters; {text}; {self.parts.names}"
        )
        self.folder.say(f"{resumed}{Estimate(seconds, memory)}")
        if processes < ranks.size:
            self.folder.say(f"{processes} of {plural(ranks.size, 'rank')} have work: the text has too few parts")
        return batches


# ---- syntax and ranks -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Treebank:
    """Parsed sentences, read before the work begins."""

    name: str
    sentences: Any

    @staticmethod
    def read(file: Path, tokenizer: Any) -> _Treebank:
        """The treebank to measure on, checked."""
        if not file.is_file():
            raise MultiheadError(f"no such file: {file}", hint="a treebank in CoNLL-U")
        if not getattr(tokenizer, "is_fast", False):
            raise MultiheadError(
                "a treebank needs a fast tokenizer, to align its words with tokens, got "
                f"{'none' if tokenizer is None else type(tokenizer).__name__}",
                hint="load a folder with tokenizer.json, or measure without a treebank",
            )
        return _Treebank(f"{file} ({sha256(file.read_bytes()).hexdigest()[:16]})", read_conllu(file))


def _finished(table: HeadTable, model: nn.Module, tokenizer: Any, bank: _Treebank | None) -> HeadTable:
    """The measured table with the columns of a treebank, and the rank by importance."""
    if bank is not None:
        relations = syntax(model, bank.sentences, tokenizer=tokenizer).table
        table = named_by_relations(table.join(replace(relations, about={})))
    return ranked(table) if any(column in table.columns for column in RANKED_BY) else table
