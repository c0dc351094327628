"""Options of commands: frozen dataclasses whose fields are arguments of the command line and of the library.

A command has one class, which inherits the options that it shares with others. The field `batch_size` is the option
`--batch-size`. Its default is that of the library function (tests/cli/test_options.py compares them).

>>> from argparse import ArgumentParser
>>> from multihead.cli.options import BatchOptions
>>> parser = ArgumentParser()
>>> BatchOptions.add(parser)
>>> BatchOptions.of(parser.parse_args(["--batch-size", "4"])).arguments(BatchOptions)
{'batch_size': 4, 'max_tokens': None}
"""

from __future__ import annotations

import argparse
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from inspect import get_annotations
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from multihead.cli.output import note, out, print_findings, write, write_json
from multihead.errors import MultiheadError
from multihead.sources.pretrained import SOURCES, check_source

if TYPE_CHECKING:
    from multihead.corpus.documents import Documents
    from multihead.sources.pretrained import Pretrained
    from multihead.table.condition import Condition


T = TypeVar("T", bound="Options")  # not `Self`, which the annotation checks of the tests refuse


def option(default: Any, text: str, *flags: str, least: float | None = None, **arguments: Any) -> Any:
    """A field of an `Options`: default, help, flags other than its name, and arguments of `add_argument`."""
    return field(default=default, metadata={"help": text, "flags": flags, "least": least, "arguments": arguments})


def positional(text: str, *, default: Any = MISSING, **arguments: Any) -> Any:
    """A field of an `Options` that is typed without a flag; required unless it has a default."""
    optional = {} if default is MISSING else {"nargs": "?"}
    metadata = {"help": text, "flags": None, "least": None, "arguments": optional | arguments}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The base of all options."""

    words: tuple[str, ...] = field(default=(), compare=False)
    """the command line as it was typed"""
    typed: frozenset[str] = field(default=frozenset(), compare=False)
    """the fields that were typed; the others have their defaults"""

    title = ""

    def __init_subclass__(cls, title: str = "") -> None:
        """`title`: of the group of these options in the help; without one they belong to the group before."""
        cls.title = title

    @classmethod
    def add(cls, parser: ArgumentParser) -> None:
        """Add every field as an argument: of the model first, then of the command, then of what it inherits."""
        group: Any = parser
        for base in sorted(cls.__mro__[:-1], key=lambda base: base not in (ModelOptions, LoadOptions)):
            if title := vars(base).get("title"):
                group = parser.add_argument_group(title)
            for one in _options(base):
                target = parser if one.metadata["flags"] is None else group
                action = target.add_argument(*_names(one), **_settings(one))
                action.required = one.default is MISSING  # argparse requires a last positional that takes the rest

    @classmethod
    def of(cls: type[T], args: Namespace) -> T:
        """The options that were typed, and the defaults of the others."""
        values = {name: tuple(x) if isinstance(x, list) else x for name, x in vars(args).items()}
        for one in _all_options(cls):
            value, least = values.get(one.name), one.metadata["least"]
            if least is not None and value is not None and not value >= least:  # true of nan, too
                raise MultiheadError(
                    f"{_names(one)[-1]} must be at least {least:g}, got {value}",
                    hint=f"choose a number >= {least:g}",
                )
        return cls(**values, typed=frozenset(values))

    def check(self) -> None:
        """Raise for options that contradict each other, before anything is loaded."""

    def arguments(self, cls: type[Options], *, typed: bool = False) -> dict[str, Any]:
        """The options that `cls` declares, as keyword arguments of a library function; `typed`: only such."""
        names = [one.name for one in _options(cls) if not typed or one.name in self.typed]
        return {name: getattr(self, name) for name in names}


def _all_options(cls: type[Options]) -> Sequence[Field[Any]]:
    return [one for one in fields(cls) if "help" in one.metadata]


def _options(cls: type[Options]) -> Sequence[Field[Any]]:
    """The options that a class declares, without those it inherits."""
    return [one for one in _all_options(cls) if one.name in get_annotations(cls)]


def _names(one: Field[Any]) -> tuple[str, ...]:
    flags = one.metadata["flags"]
    return (one.name,) if flags is None else flags or (f"--{one.name.replace('_', '-')}",)


def _settings(one: Field[Any]) -> dict[str, Any]:
    """Arguments of `add_argument`. The Namespace of argparse holds only options that were typed."""
    text, default = one.metadata["help"], one.default
    settings: dict[str, Any] = {"default": argparse.SUPPRESS}
    if one.metadata["flags"] is not None:
        settings["dest"] = one.name
        if default not in (MISSING, None, ()) and not isinstance(default, bool):
            text += f" (default: {default:g})" if isinstance(default, float) else f" (default: {default})"
    if isinstance(default, bool):
        settings["action"] = argparse.BooleanOptionalAction if default else "store_true"
    elif default == () and one.metadata["flags"] is not None:
        settings["action"] = "append"
    else:
        kind = str(one.type).removesuffix(" | None")
        settings["type"] = {"int": int, "float": float, "Path": Path}.get(kind, str)
    return settings | {"help": text.replace("%", "%%")} | one.metadata["arguments"]


# ---- the model --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LoadOptions(Options, title="the model"):
    """Of `multihead.load_pretrained`."""

    device: str = option("cpu", "cpu, cuda, cuda:1 or mps")
    dtype: str = option("float32", "float32, bfloat16, float16 or float64")
    trust_remote_code: bool = option(False, "run the Python code that comes with the model")

    def load(self, source: str) -> Pretrained:
        """The model and its tokenizer."""
        from multihead.sources.pretrained import load_pretrained

        return load_pretrained(source, **self.arguments(LoadOptions))


@dataclass(frozen=True, kw_only=True)
class ModelOptions(LoadOptions):
    """MODEL, and how it is loaded."""

    model: str = positional(SOURCES, metavar="MODEL")

    def check(self) -> None:
        check_source(self.model)


# ---- documents --------------------------------------------------------------------------------

SAMPLE = "default: a sample in English; for embedded, in its own language"
FILES = "a .txt or .jsonl file, or a folder; may be repeated"


@dataclass(frozen=True, kw_only=True)
class FileOptions(Options):
    """Of `multihead.corpus.read_texts.read_documents`: how it is read."""

    ids: str | None = option(None, "token ids instead of text: JSON, a list of lists of numbers", metavar="FILE")
    inputs: str | None = option(
        None,
        "inputs of a model that reads no text: a .safetensors file, whose tensors are named as the arguments of "
        "the model (pixel_values, input_features, ...) and have a row for each document; or module:function, which "
        "returns batches",
        metavar="FILE|FUNCTION",
    )
    column: str = option("text", "where .jsonl and .parquet files have their text", metavar="NAME")
    split: str | None = option(
        None,
        "what a document of a .txt file is: a line, a paragraph, the whole file, or auto: a paragraph if the file "
        "has blank lines, else a line (default: file for --text, else auto)",
        choices=("auto", "line", "paragraph", "file"),
    )
    limit: int | None = option(
        None, "read only the first N documents of each text; held-out text, too", least=1, metavar="N"
    )

    def documents(
        self,
        loaded: Pretrained,
        *,
        text: Sequence[str] = (),
        corpus: Sequence[str] = (),
        counts: Mapping[str, Any] | None = None,
    ) -> Documents:
        """The documents that the options name, for a model; without any, those that come with it."""
        from multihead.corpus.read_texts import read_documents

        arguments = self.arguments(FileOptions)
        if not (text or corpus or self.ids or self.inputs):
            arguments["inputs"] = loaded.inputs
        return read_documents(
            loaded.tokenizer, model=loaded.model, text=text, corpus=corpus, counts=counts, **arguments
        )

    def typed_data(self) -> str:
        """The typed --ids and --inputs, with a space before each, for the next command."""
        typed = {"--ids": self.ids, "--inputs": self.inputs}
        return "".join(f" {flag} {shlex.quote(source)}" for flag, source in typed.items() if source is not None)

    def is_sample(self, loaded: Pretrained, files: Sequence[str]) -> bool:
        """Whether the sample in English is read for want of text."""
        own = loaded.inputs or hasattr(loaded.tokenizer, "sample_texts")
        return not (files or self.ids or self.inputs or own)


@dataclass(frozen=True, kw_only=True)
class BatchOptions(Options):
    """Of every function that runs a model over documents."""

    batch_size: int = option(
        8, "documents at a time; of calibration text up to 64, if they are short", least=1, metavar="N"
    )
    max_tokens: int | None = option(
        None,
        "cut longer documents into pieces of N tokens (default: the positions of the model; to prune and check, at "
        "most 512)",
        least=1,
        metavar="N",
    )


@dataclass(frozen=True, kw_only=True)
class TextOptions(FileOptions, BatchOptions, title=f"what the model reads ({SAMPLE})"):
    """Of `multihead.corpus.read_texts.read_documents`: what is read."""

    text: tuple[str, ...] = option(
        (), "a text: a file, - for stdin, or the words themselves; may be repeated", metavar="FILE|-|TEXT"
    )
    corpus: tuple[str, ...] = option(
        (),
        "many documents: a .txt file, a .jsonl or .parquet file, each perhaps .gz or .zst, a folder of such files, "
        "or - for stdin; may be repeated",
        metavar="FILE|DIR",
    )


@dataclass(frozen=True, kw_only=True)
class CalibrationOptions(FileOptions, BatchOptions, title=f"calibration text ({SAMPLE})"):
    """Text that a plan and a cut are fitted to."""

    calibration: tuple[str, ...] = option(
        (), f"text like the text that the model will read: {FILES}", metavar="FILE|DIR"
    )


@dataclass(frozen=True, kw_only=True)
class HeldOutOptions(FileOptions, BatchOptions, title="held-out text"):
    """Text that a cut is judged on."""

    held_out: tuple[str, ...] = option((), f"text that the cut was not fitted to: {FILES}", metavar="FILE|DIR")


def names(text: Sequence[str]) -> list[str]:
    """Names separated by commas or spaces."""
    return [word for part in text for word in part.replace(",", " ").split()]


# ---- output -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class QuietOptions(Options):
    """Of commands that run for a while."""

    quiet: bool = option(False, "no progress, no notes")

    def say(self, text: str) -> None:
        """A line on stderr, unless --quiet."""
        if not self.quiet:
            note(text)


@dataclass(frozen=True, kw_only=True)
class JsonOptions(Options):
    """Of commands whose result a program may read."""

    json: bool = option(False, "print the result as JSON")

    def print(self, result: Any, data: Mapping[str, Any], **style: Any) -> None:
        """The result on stdout, or its data as JSON."""
        if self.json:
            write_json(data)
        elif isinstance(result, str):
            write(result)
        else:
            out().print(result, **style)


@dataclass(frozen=True, kw_only=True)
class OutputOptions(JsonOptions, QuietOptions, title="output"):
    """Of commands that run for a while and print a result."""


@dataclass(frozen=True, kw_only=True)
class ConditionOptions(JsonOptions, title="the gate"):
    """Of a gate for CI."""

    fail_if: tuple[str, ...] = option((), "exit 1 if it is met; may be repeated", metavar="CONDITION")

    def conditions(self, read: Callable[[str], Condition]) -> list[Condition]:
        """The conditions, read before the work; errors name the option."""
        conditions: list[Condition] = []
        for text in self.fail_if:
            try:
                conditions.append(read(text))
            except MultiheadError as error:
                raise MultiheadError(f"--fail-if {text}: {error.message}", hint=error.hint) from error
        return conditions

    def exit_code(self, findings: Sequence[object]) -> int:
        """1 if there are findings, which are printed unless the result is JSON."""
        if not self.json:
            print_findings(findings, self.fail_if)
        return 1 if findings else 0
