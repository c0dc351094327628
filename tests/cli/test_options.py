"""Options and the library agree: every option is an argument of a library function, with the same default."""

from __future__ import annotations

import inspect
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from inspect import get_annotations
from typing import Any

import pytest

import multihead as mh
from multihead.cli.check import CheckOptions
from multihead.cli.group import GroupOptions
from multihead.cli.measure import PartOptions, RunOptions
from multihead.cli.options import BatchOptions, FileOptions, LoadOptions, Options, TextOptions, option, positional
from multihead.cli.prune import PruneOptions
from multihead.cli.prune_and_group import FitOptions
from multihead.cli.theory import StatementOptions
from multihead.corpus.documents import Corpus
from multihead.corpus.read_texts import read_documents
from multihead.edit.check.curve import curve
from multihead.errors import MultiheadError

# Options whose value is translated, and those of output.
TRANSLATED = {
    "cut",
    "kinds",
    "similarity",
    "importance",
    "method",
    "no_refit",
    "out",
    "force",
}


@pytest.mark.parametrize(
    ("options", "function"),
    [
        (LoadOptions, mh.load_pretrained),
        (TextOptions, read_documents),
        (FileOptions, read_documents),
        (BatchOptions, Corpus.__init__),
        (BatchOptions, mh.measure),
        (BatchOptions, mh.kinds),
        (BatchOptions, mh.importance),
        (BatchOptions, mh.similarity),
        (BatchOptions, mh.report),
        (BatchOptions, mh.check),
        (PartOptions, mh.measure),
        (RunOptions, mh.measure),
        (PruneOptions, mh.plan),
        (GroupOptions, mh.plan),
        (CheckOptions, mh.check),
        (FitOptions, curve),
        (StatementOptions, mh.theory),
    ],
)
def test_an_option_is_an_argument_with_the_same_default(
    options: type[Options], function: Callable[..., Any]
) -> None:
    parameters = inspect.signature(function).parameters
    for one in fields(options):  # type: ignore[arg-type]
        if one.name in TRANSLATED or one.name not in get_annotations(options):
            continue
        assert one.name in parameters, one.name
        default = one.default if one.default is not MISSING else None
        expected = parameters[one.name].default
        assert default == expected or (default == () and expected in (None, ())), one.name


@dataclass(frozen=True, kw_only=True)
class Some(Options, title="some"):
    file: str | None = positional("a file", default=None)
    out: str = option(MISSING, "the folder", required=True)
    count: int = option(3, "how many", least=1, metavar="N")
    share: float | None = option(None, "10% of it", type=float, least=0)
    names: tuple[str, ...] = option((), "names")
    fast: bool = option(False, "fast")
    safe: bool = option(True, "safe")


def parsed(*words: str) -> Some:
    parser = ArgumentParser()
    Some.add(parser)
    return Some.of(parser.parse_args(["--out", "x", *words]))


def test_what_is_typed_and_what_is_not() -> None:
    assert parsed() == Some(out="x")
    assert parsed("--count", "5", "--share", "0.5", "--names", "a", "--names", "b", "--fast", "--no-safe") == Some(
        out="x", count=5, share=0.5, names=("a", "b"), fast=True, safe=False
    )
    assert parsed("x", "--fast") == Some(out="x", file="x", fast=True)
    assert parsed("x", "--fast").typed == {"out", "file", "fast"}
    parser = ArgumentParser()
    Some.add(parser)
    assert vars(parser.parse_args(["--out", "x", "--fast"])) == {"out": "x", "fast": True}, "only what was typed"
    assert "how many (default: 3)" in parser.format_help()
    assert "10% of it" in parser.format_help()
    assert "the folder\n" in parser.format_help(), "a required option has no default"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--count", "0"), "--count must be at least 1, got 0"),
        (("--share", "-1"), "--share must be at least 0, got -1"),
        (("--share", "nan"), "--share must be at least 0, got nan"),
    ],
)
def test_numbers_that_are_too_small(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(MultiheadError, match=message):
        parsed(*words)
