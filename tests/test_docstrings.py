"""Every example in a docstring runs and prints what it says; those of the public names are complete."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re

import pytest

import multihead

MODULES = ["multihead", *(m.name for m in pkgutil.walk_packages(multihead.__path__, "multihead."))]


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_say(name: str) -> None:
    failed, _ = doctest.testmod(
        importlib.import_module(name), optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    assert failed == 0


CALLED = [name for name in multihead.__all__ if callable(getattr(multihead, name))]
FUNCTIONS = [name for name in CALLED if inspect.isfunction(getattr(multihead, name))]


@pytest.mark.parametrize("name", [name for name in multihead.__all__ if name != "__version__"])
def test_a_public_name_has_a_line_and_an_example(name: str) -> None:
    first, *rest = (inspect.getdoc(getattr(multihead, name)) or "").split("\n")
    assert first.endswith((".", ":"))
    assert rest[:1] == [""], "the first paragraph is one line"
    assert any(line.startswith(">>> ") for line in rest)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_says_what_it_returns_and_raises(name: str) -> None:
    text = inspect.getdoc(getattr(multihead, name)) or ""
    assert "\nReturns:\n" in text
    assert "\nRaises:\n" in text or name == "embedded"


@pytest.mark.parametrize("name", CALLED)
def test_documented_arguments_exist(name: str) -> None:
    text = inspect.getdoc(getattr(multihead, name)) or ""
    section = re.search(r"^Args:\n((?:    .*\n?|\n)+)", text, re.MULTILINE)
    documented = re.findall(r"^    ([a-z_]+(?:, [a-z_]+)*):", section.group(1), re.MULTILINE) if section else []
    names = [word for entry in documented for word in entry.split(", ")]
    assert set(names) <= set(inspect.signature(getattr(multihead, name)).parameters)
    assert len(names) == len(set(names))
