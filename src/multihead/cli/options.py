"""Options of commands: frozen dataclasses whose fields are arguments of the command line and of a library function.

The field `batch_size` is the option `--batch-size`. Its default is written here once, and is that of the library
function (tests/cli/test_options.py compares them). The Namespace of argparse holds only options that were typed.
"""

from __future__ import annotations

import argparse
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from multihead.errors import MultiheadError
from multihead.sources.pretrained import SOURCES

if TYPE_CHECKING:
    from multihead.corpus.documents import Documents
    from multihead.sources.pretrained import Pretrained


T = TypeVar("T", bound="Options")  # not `Self`, which the annotation checks of the tests refuse


def option(default: Any, text: str, *flags: str, least: float | None = None, **arguments: Any) -> Any:
    """A field of an `Options`: default, help, flags other than its name, and arguments of `add_argument`."""
    return field(default=default, metadata={"help": text, "flags": flags, "least": least, "arguments": arguments})


class Options:
    """The base of all options."""

    @classmethod
    def add(cls, parser: Any, title: str | None = None) -> Any:
        """Add every field of the options as an argument, grouped under `title`; return the group or `parser`."""
        group = parser if title is None else parser.add_argument_group(title)
        for one in _options(cls):
            help_text, default = one.metadata["help"], one.default
            if default is not None and default != () and not isinstance(default, bool):
                help_text += f" (default: {default:g})" if isinstance(default, float) else f" (default: {default})"
            group.add_argument(
                *_flags(one), dest=one.name, default=argparse.SUPPRESS, help=help_text.replace("%", "%%"),
                **(_kind(one) | one.metadata["arguments"]),
            )  # fmt: skip
        return group

    @classmethod
    def of(cls: type[T], args: Namespace) -> T:
        """The options that were typed, and the defaults of the others."""
        typed = {one.name: getattr(args, one.name) for one in _options(cls) if hasattr(args, one.name)}
        for one in _options(cls):
            value, least = typed.get(one.name), one.metadata["least"]
            if least is not None and value is not None and not value >= least:  # true of nan, too
                raise MultiheadError(
                    f"{_flags(one)[-1]} must be at least {least:g}, got {value}",
                    hint=f"choose a number >= {least:g}",
                )
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in typed.items()})

    def arguments(self) -> dict[str, Any]:
        """As keyword arguments of a library function."""
        return dict(vars(self))


def _options(cls: type[Any]) -> Sequence[Field[Any]]:
    return [one for one in fields(cls) if "help" in one.metadata]


def _flags(one: Field[Any]) -> tuple[str, ...]:
    return one.metadata["flags"] or (f"--{one.name.replace('_', '-')}",)


def _kind(one: Field[Any]) -> dict[str, Any]:
    """How argparse reads the option, by its default and its annotation."""
    if isinstance(one.default, bool):
        return {"action": argparse.BooleanOptionalAction if one.default else "store_true"}
    if one.default == ():
        return {"action": "append"}
    kind = str(one.type).removesuffix(" | None")
    return {"type": {"int": int, "float": float, "Path": Path}.get(kind, str)}


# ---- the model --------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelOptions(Options):
    """Of `multihead.load_pretrained`."""

    device: str = option("cpu", "cpu, cuda, cuda:1 or mps")
    dtype: str = option("float32", "float32, bfloat16, float16 or float64")
    trust_remote_code: bool = option(False, "run the Python code that comes with the model")

    def load(self, source: str, call: str, *, two: bool = False) -> Pretrained:
        """Load the model by its options; it must read text, and the hint is `call`, the same in Python.

        `two`: it may be an encoder–decoder, which reads two.
        """
        from multihead.sources.pretrained import load_pretrained

        loaded = load_pretrained(source, **self.arguments())
        if not (two and reads_two_texts(loaded)):
            require_text_model(loaded, call)
        return loaded


def add_model(parser: ArgumentParser, *, default: str | None = None) -> None:
    """MODEL, which has a default or is required, and the options of loading it."""
    text = SOURCES + (f" (default: {default})" if default else "")
    parser.add_argument("model", metavar="MODEL", nargs="?" if default else None, help=text)
    ModelOptions.add(parser, "the model")


def reads_two_texts(loaded: Pretrained) -> bool:
    """Whether a model is an encoder–decoder whose two texts can be made from words."""
    from multihead.corpus.two_texts import is_encoder_decoder  # imports torch

    name = getattr(loaded.model, "main_input_name", "input_ids")
    return is_encoder_decoder(loaded.model) and name == "input_ids" and loaded.tokenizer is not None


def require_text_model(loaded: Pretrained, call: str) -> None:
    """Refuse a model that reads something else than one text; `call` does it in Python, with batches as its {}."""
    name = getattr(loaded.model, "main_input_name", "input_ids")
    if getattr(getattr(loaded.model, "config", None), "is_encoder_decoder", False):
        problem, batch = "two sequences, and the command line gives it one", f"{name!r}: ..., 'decoder_input_ids'"
    elif name != "input_ids":
        problem, batch = f"{name}, and the command line gives it text", repr(name)
    else:
        return
    raise MultiheadError(f"{loaded.name} reads {problem}", hint=f"in Python: {call.format(f'[{{{batch}: ...}}]')}")


# ---- documents --------------------------------------------------------------------------------

SAMPLE = "default: a sample in English; for embedded, in its own language"


@dataclass(frozen=True)
class TextOptions(Options):
    """Of `multihead.corpus.read.read_documents`: what is read."""

    text: tuple[str, ...] = option(
        (), "a text: a file, - for stdin, or the words themselves; may be repeated", metavar="FILE|-|TEXT"
    )
    corpus: tuple[str, ...] = option(
        (),
        "many documents: a .txt file, a .jsonl or .parquet file, each perhaps .gz or .zst, a folder of such files, "
        "or - for stdin; may be repeated",
        metavar="FILE|DIR",
    )


@dataclass(frozen=True)
class FileOptions(Options):
    """Of `multihead.corpus.read.read_documents`: how it is read."""

    ids: str | None = option(None, "token ids instead of text: JSON, a list of lists of numbers", metavar="FILE")
    column: str = option("text", "where .jsonl and .parquet files have their text", metavar="NAME")
    split: str | None = option(
        None,
        "what a document of a .txt file is: a line, a paragraph, the whole file, or auto: a paragraph if the file "
        "has blank lines, else a line (default: file for --text, else auto)",
        choices=("auto", "line", "paragraph", "file"),
    )
    limit: int | None = option(None, "read only the first N documents", least=1, metavar="N")

    def documents(
        self,
        loaded: Pretrained,
        *,
        text: Sequence[str] = (),
        corpus: Sequence[str] = (),
        counts: Mapping[str, Any] | None = None,
    ) -> Documents:
        """The documents that the options name, for a model."""
        from multihead.corpus.read import read_documents

        if loaded.tokenizer is None and self.ids is None:
            raise MultiheadError(
                f"{loaded.name} has no tokenizer, so text cannot be read",
                hint="--ids FILE: JSON lists of token ids",
            )
        return read_documents(loaded.tokenizer, text=text, corpus=corpus, counts=counts, **self.arguments())


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class CalibrationOptions(Options):
    """Text that a plan and a cut are fitted to."""

    calibration: tuple[str, ...] = option(
        (), "text like the text that the model will read: a .txt or .jsonl file, or a folder; may be repeated",
        metavar="FILE|DIR",
    )  # fmt: skip


@dataclass(frozen=True)
class HeldOutOptions(Options):
    """Text that a cut is judged on."""

    held_out: tuple[str, ...] = option(
        (), "text that the cut was not fitted to: a .txt or .jsonl file, or a folder; may be repeated",
        metavar="FILE|DIR",
    )  # fmt: skip


def add_files(parser: ArgumentParser, options: type[Options], title: str) -> None:
    """--calibration or --held-out, how they are read, and in which batches."""
    group = options.add(parser, title)
    FileOptions.add(group)
    BatchOptions.add(group)


def add_documents(parser: ArgumentParser) -> None:
    """--text, --corpus, how they are read, and in which batches."""
    add_files(parser, TextOptions, f"what the model reads ({SAMPLE})")


def uses_sample(loaded: Pretrained, files: Sequence[str], options: FileOptions) -> bool:
    """Whether the sample in English is read for want of text."""
    return not files and options.ids is None and not hasattr(loaded.tokenizer, "sample_texts")


def names(text: Sequence[str]) -> list[str]:
    """Names separated by commas or spaces."""
    return [word for part in text for word in part.replace(",", " ").split()]


# ---- output -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class OutputOptions(Options):
    """The base of the options of commands that run for a while."""

    json: bool = option(False, "print the result as JSON")
    quiet: bool = option(False, "no progress, no notes")


@dataclass(frozen=True)
class ConditionOptions(Options):
    """Of a gate for CI."""

    fail_if: tuple[str, ...] = option((), "exit 1 if it is met; may be repeated", metavar="CONDITION")


# ---- commands ---------------------------------------------------------------------------------


def add_command(commands: Any, name: str, description: str, epilog: str) -> ArgumentParser:
    """The parser of a command, with its line of help."""
    from multihead.cli import COMMANDS

    return commands.add_parser(name, help=COMMANDS[name], description=description, epilog=epilog)
