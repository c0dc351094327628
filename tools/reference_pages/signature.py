"""Signatures as people write them: annotations without quotes, one argument per line where they are many."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

WIDTH = 100


def signature(call: str, value: Any) -> str:
    """`mh.capture(model, *, keep=None) -> ...` of a function or class, over several lines if it is long."""
    arguments = list(_arguments(value))
    line = f"{call}({', '.join(arguments)}){_result(value)}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{call}(", *(f"    {argument}," for argument in arguments), f"){_result(value)}"])


def short_signature(call: str, value: Any) -> str:
    """The same in one line, without annotations if it is long."""
    line = f"{call}({', '.join(_arguments(value))}){_result(value)}"
    return (
        line if len(line) <= WIDTH else f"{call}({', '.join(_arguments(value, annotated=False))}){_result(value)}"
    )


def annotation(value: Any) -> str:
    """An annotation as in the source."""
    return value if isinstance(value, str) else inspect.formatannotation(value)


def _arguments(value: Any, *, annotated: bool = True) -> Iterator[str]:
    starred = False
    for parameter in inspect.signature(value).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        if parameter.name != "self":
            yield _argument(parameter, annotated)


def _argument(parameter: inspect.Parameter, annotated: bool) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text, equals = stars + parameter.name, "="
    if annotated and parameter.annotation is not parameter.empty:
        text, equals = f"{text}: {annotation(parameter.annotation)}", " = "
    if parameter.default is parameter.empty:
        return text
    default = repr(parameter.default)
    return text + equals + ("..." if "<" in default else default)


def _result(value: Any) -> str:
    returned = inspect.signature(value).return_annotation
    if inspect.isclass(value) or returned is inspect.Signature.empty:
        return ""
    text = annotation(returned)
    if hasattr(value, "__wrapped__") and text.startswith("Generator["):  # of contextlib.contextmanager
        text = text.replace("Generator[", "AbstractContextManager[", 1)
    return f" -> {text}"
