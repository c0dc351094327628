"""Golden values of the command line: the numbers that each command prints with --json, and those inside the page.

Commands run in this process, on the embedded model and its first sample texts. Anything that depends on the machine
or the date is left out (seconds, versions, paths, file sizes), and so is every sentence.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from golden.record import Recorder
from multihead.cli import main


@cache
def _scratch() -> TemporaryDirectory[str]:
    """Where commands write their files; removed when the process ends."""
    return TemporaryDirectory(prefix="multihead-golden-")


def _run(*words: object, code: int = 0) -> Any:
    """Run a command and parse the JSON that it prints. `code` is the exit code to expect."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        ended = main([str(word) for word in words])
    if ended != code:
        raise AssertionError(f"multihead {' '.join(map(str, words))} ended with {ended}: {err.getvalue()}")
    return json.loads(out.getvalue())


def _path(name: str) -> Path:
    return Path(_scratch().name) / name


# ---- tables -----------------------------------------------------------------------------------


@cache
def _measured(name: str, documents: int, *options: str) -> tuple[Path, Any]:
    """The folder of a measured table, and the table as printed."""
    folder = _path(name)
    return folder, _run("measure", "embedded", "--limit", documents, *options, "-o", folder, "--json", "--quiet")


def _first() -> tuple[Path, Any]:
    return _measured("first", 7, "--importance", "all", "--similarity")


def _second() -> tuple[Path, Any]:
    return _measured("second", 5)


def measure(record: Recorder) -> None:
    _, table = _first()
    _record_table(record, table)


def show(record: Recorder) -> None:
    """The three heads with the highest entropy, and the attention map of one head."""
    folder, _ = _first()
    _record_table(record, _run("show", folder, "--sort", "entropy", "--top", 3, "--json"))
    drawn = _run("show", "embedded", "L1H1", "--text", "the cat ran . the cat ran .", "--json")
    record.table(["map"], {name: [x] for name, x in drawn["statistics"].items()})
    record.plain(drawn, "map", dropped=("statistics",))


def compare(record: Recorder) -> None:
    """Two tables measured on different texts, with a condition that some heads meet."""
    (first, _), (second, _) = _first(), _second()
    change = _run("compare", first, second, "--fail-if", "entropy>0.01", "--json", code=1)
    column = lambda name: record.names.canonical(name, "columns")
    for item in change["largest"]:
        record.plain(item, f"largest/{column(item['column'])}", labels=("head",))
    for item in change["changed"]:
        record.plain(item, f"changed/{item['head']}/{column(item['column'])}", labels=("before", "after"))
    for item in change["findings"]:
        record.plain(item, f"findings/{item['head']}")
    record.value("columns_before", " ".join(column(name) for name in change["columns_before"]))
    record.plain(change, dropped=("largest", "changed", "findings"))


def _record_table(record: Recorder, table: Any) -> None:
    rows = table["rows"]
    columns = [name for name in rows[0] if name not in ("name", "layer", "head")]
    record.table([row["name"] for row in rows], {name: [row[name] for row in rows] for name in columns})
    record.plain(table["about"], "about", dropped=("run",))


# ---- theory and cost --------------------------------------------------------------------------


def theory(record: Recorder) -> None:
    """Three statements; the subjects `theory-...` cover all of them."""
    found = _run("theory", "embedded", "--limit", 5, "--layer", "L0", "--only", "2,5,16", "--json")
    record.plain(found["statements"], "statements", labels=("verdict",), identity=("id",))


def cost(record: Recorder) -> None:
    """A model, a known configuration before and after grouping, and one before and after pruning."""
    asked = {
        "embedded": ("embedded", "--tokens", 96),
        "grouped": ("llama-3-8b", "--kv-heads", 2, "--batch", 3),
        "pruned": ("bert-base", "--heads", 5, "--dtype", "fp32"),
    }
    for name, words in asked.items():
        record.plain(_run("cost", *words, "--json"), name, labels=("dtype", "biases"))


# ---- cuts -------------------------------------------------------------------------------------


@cache
def _pruned() -> tuple[Path, Any]:
    folder = _path("pruned")
    return folder, _run("prune", "embedded", "--keep", 0.5, "--limit", 9, "-o", folder, "--json", "--quiet")


def prune(record: Recorder) -> None:
    _, done = _pruned()
    _record_cut(record, done)


def group(record: Recorder) -> None:
    folder = _path("grouped")
    _record_cut(record, _run("group", "embedded", "--kv-heads", 2, "--limit", 9, "-o", folder, "--json", "--quiet"))


def _record_cut(record: Recorder, done: Any) -> None:
    record.plain(done, labels=("method",), dropped=("version", "seconds"), identity=("name", "where"))


def check(record: Recorder) -> None:
    """Quality and sizes; no timing rounds, because speed depends on the machine."""
    folder, _ = _pruned()
    found = _run("check", "embedded", folder, "--limit", 7, "--rounds", 0, "--json", "--quiet")
    record.plain(found, labels=("kind",))


def curve(record: Recorder) -> None:
    out = _path("curve.svg")
    words = ("--at", "0.5", "--method", "obs", "--limit", 11, "-o", out)
    found = _run("curve", "embedded", *words, "--json", "--quiet")
    record.plain(found, labels=("shown", "method"), identity=("method", "keep"))


# ---- the report -------------------------------------------------------------------------------


@cache
def _reported() -> tuple[Any, Any]:
    """The summary that the command prints, and the data inside the page that it writes."""
    page = _path("report.html")
    parts = "measure,kinds,pairs,importance,similarity,curve,cost"  # the theory has its own subjects
    summary = _run("report", "embedded", "--limit", 7, "--only", parts, "-o", page, "--json", "--quiet")
    packed = re.search(r'id="data">([^<]*)<', page.read_text(encoding="utf-8"))
    if packed is None:
        raise AssertionError('the page has no element with id="data" any more')
    return summary, json.loads(zlib.decompress(base64.b64decode(packed[1]), -15))


def report(record: Recorder) -> None:
    summary, _ = _reported()
    for kind, heads in summary["kinds"].items():
        record.value(f"kinds/{record.names.label(kind)}", " ".join(heads))
    record.plain(summary, dropped=("kinds", "bytes"))


def page(record: Recorder) -> None:
    """Everything that the page draws except attention maps, which `show` covers."""
    _, data = _reported()
    record.table(data["heads"], {name: column["values"] for name, column in data["table"].items()})
    for kind, rule in data["kinds"].items():
        record.plain(rule, f"kinds/{record.names.label(kind)}")
    for head, pairs in data["often"].items():
        for token, looked_at, times, weight in pairs:
            record.value(f"{head}/often/{token} {looked_at}/times", times)
            record.value(f"{head}/often/{token} {looked_at}/weight", weight)
    record.value("order", " ".join(data["heads"][i] for i in data["pairs"]["order"]))
    record.value("worth", record.names.canonical(data["importance"], "columns"))
    record.plain({name: data[name] for name in ("sites", "curve", "cost")})
