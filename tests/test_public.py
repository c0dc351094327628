"""The names that people type: all there, loaded late, and no others."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import multihead as mh
import warm

PUBLIC = ["multihead", *(f"multihead.{folder}" for folder in ("layer", "model", "measures", "edit", "parallel"))]


def lists_of_names(package: ModuleType) -> dict[str, set[str]]:
    """The names that type checkers see, and those that Python loads, as the source lists them."""
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    choice = next(node for node in tree.body if isinstance(node, ast.If))
    imports = {f"{i.module}:{name.name}" for i in choice.body if isinstance(i, ast.ImportFrom) for name in i.names}
    call = next(node for node in ast.walk(tree) if isinstance(node, ast.Call))
    homes = {str(home.value) for home in call.args if isinstance(home, ast.Constant)}
    modules = {home.replace(":", "."): home for home in homes if ":" not in home}
    return {"types": {modules.get(i.replace(":", "."), i) for i in imports}, "python": homes}


@pytest.mark.parametrize("name", mh.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(mh, name) is not None
    assert name in dir(mh)


@pytest.mark.parametrize("name", PUBLIC)
def test_python_and_type_checkers_see_the_same_names(name: str) -> None:
    package = importlib.import_module(name)
    lists = lists_of_names(package)
    assert lists["python"] == lists["types"]
    assert {home.replace(":", ".").rpartition(".")[2] for home in lists["python"]} == {*package.__all__} - {
        "__version__"
    }
    assert dir(package) == sorted(package.__all__)


@pytest.mark.fast(2)
@pytest.mark.parametrize("name", PUBLIC[1:])
def test_every_name_of_a_folder_is_there(name: str) -> None:
    """Whatever was imported before: a module of the same name would replace it."""
    done = warm.run(
        f"import importlib, pkgutil, {name} as folder\n"
        "for m in pkgutil.walk_packages(folder.__path__, folder.__name__ + '.'): importlib.import_module(m.name)\n"
        "for n in folder.__all__: print(n, getattr(folder, n).__name__.rpartition('.')[2])"
    )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        public, actual = line.split()
        assert public == actual


def test_few_names_come_first() -> None:
    assert len(mh.__all__) <= 29


@pytest.mark.parametrize(
    "name",
    [
        *(f"multihead.layer.{module}" for module in ("mask", "position", "cache", "interop", "init", "dropin")),
        "multihead.show.figure", "multihead.errors",
    ],
)  # fmt: skip
def test_a_public_module_lists_its_names_only(name: str) -> None:
    module = importlib.import_module(name)
    assert dir(module) == sorted(module.__all__)
    assert all(getattr(module, public) is not None for public in module.__all__)


@pytest.mark.parametrize("name", ["mask", "position", "cache", "interop"])
def test_modules_of_the_layer_are_public(name: str) -> None:
    assert getattr(mh, name) is importlib.import_module(f"multihead.layer.{name}")


@pytest.mark.parametrize("name", PUBLIC)
def test_an_unknown_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"'{name}' has no attribute 'multi_head_attention'"):
        _ = importlib.import_module(name).multi_head_attention


def test_options_have_one_default_and_are_named() -> None:
    """Everywhere the same, and after the model and the data."""
    defaults: dict[str, set[object]] = {}
    positional: set[tuple[str, str]] = set()
    for package in map(importlib.import_module, PUBLIC):
        for name in package.__all__:
            public = getattr(package, name)
            if not inspect.isfunction(public) and not inspect.isclass(public):
                continue
            for option, parameter in inspect.signature(public).parameters.items():
                if parameter.default is not parameter.empty and option in (
                    "tokenizer",
                    "batch_size",
                    "max_tokens",
                    "seed",
                    "progress",
                ):
                    defaults.setdefault(option, set()).add(parameter.default)
                    if parameter.kind is not parameter.KEYWORD_ONLY:
                        positional.add((name, option))
    assert defaults == {
        "tokenizer": {None},
        "batch_size": {8, None},  # None: of a Calibration, as many as fit into a batch
        "max_tokens": {None},
        "seed": {0},
        "progress": {None},
    }
    assert not positional


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", PUBLIC)
def test_importing_imports_nothing_else(name: str) -> None:
    heavy = _run(
        f"import sys, {name} as package; dir(package); heavy = {{'torch', 'numpy', 'jaxtyping', 'transformers'}}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert heavy.strip() == "[]"


def test_from_import_loads_what_it_names() -> None:
    loaded = _run(
        "import sys; from multihead import mask, position, cache; "
        "print(mask.__name__, position.__name__, cache.__name__, 'transformers' in sys.modules)"
    )
    assert loaded.split() == [
        "multihead.layer.mask",
        "multihead.layer.position",
        "multihead.layer.cache",
        "False",
    ]
