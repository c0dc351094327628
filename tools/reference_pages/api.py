"""The API reference: a page per public module, from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from docstring import first_line, markdown
from members import members
from signature import signature

import multihead

FOLDERS = ("layer", "model", "measures", "edit", "parallel", "errors")
DEEPER = {
    "multihead.corpus.read_inputs": ("read_inputs",),
    "multihead.corpus.read_texts": ("read_documents",),
    "multihead.corpus.documents": ("Corpus",),
    "multihead.corpus.run": ("run",),
    "multihead.corpus.accumulator": ("Accumulator",),
    "multihead.corpus.merge_tree": ("Tree", "part_range", "parts_of", "share"),
    "multihead.model.sites": ("Sites",),
    "multihead.measures.statistics_sum": ("StatisticsSum",),
    "multihead.table.column_info": ("ColumnInfo",),
    "multihead.table.compare": ("TableComparison",),
    "multihead.edit.check.curve": ("curve",),
    "multihead.show.quality_curve": ("QualityCurve", "CurveLine", "CurvePoint"),
    "multihead.show.serve": ("serve",),
    "multihead.show.terminal_head_map": ("TerminalHeadMap",),
}
"""What else the guides use, from modules whose other names are not public."""
MARK = "<!-- From the docstrings of {name}. Edit them there, then run `make reference`. -->"


def pages() -> dict[str, str]:
    """The text of every page, by its path."""
    modules = _modules()
    shown = {id(value) for name, module in modules.items() for _, value in _public(module)}
    texts = {f"api/{_file(name)}": _page(name, module, shown) for name, module in modules.items()}
    return {"api/README.md": _index(modules), **texts}


def _modules() -> dict[str, ModuleType]:
    """The public modules, by the name that they are imported by."""
    values = {name: getattr(multihead, name) for name in multihead.__all__}
    nested = {f"multihead.{name}": value for name, value in values.items() if inspect.ismodule(value)}
    folders = {f"multihead.{name}": import_module(f"multihead.{name}") for name in FOLDERS}
    inside = {
        f"{path}.{name}": value for path, folder in folders.items() for name, value in _values(folder)
        if inspect.ismodule(value)
    }  # fmt: skip
    deeper = {path: import_module(path) for path in DEEPER}
    return {"multihead": multihead, **nested, **folders, **inside, **deeper}


def _values(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The public names of a module."""
    names = DEEPER.get(module.__name__) or module.__all__
    yield from ((name, getattr(module, name)) for name in names)


def _public(module: ModuleType) -> list[tuple[str, Any]]:
    return [(n, x) for n, x in _values(module) if inspect.isclass(x) or inspect.isfunction(x)]


def _file(module: str) -> str:
    return f"{module.removeprefix('multihead.')}.md"


def _index(modules: dict[str, ModuleType]) -> str:
    lines = [MARK.format(name="the public modules"), "", "# API", ""]
    lines += [
        "Every public name, by the module that it is imported from. `import multihead as mh` has the first.",
        "",
    ]
    for name, module in modules.items():
        lines += [f"## [`{name}`]({_file(name)})", "", first_line(module), ""]
        lines += [f"- [`{n}`]({_file(name)}#{n.lower()}): {first_line(x)}" for n, x in _public(module)]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _page(name: str, module: ModuleType, shown: set[int]) -> str:
    """The page of a module; a class that functions return follows the last of them, unless it is public itself."""
    parts = [MARK.format(name=name), f"# `{name}`", markdown(module)]
    entries = _public(module)
    last = {id(kind): index for index, (_, value) in enumerate(entries) for kind in _results(value)}
    for index, (public, value) in enumerate(entries):
        parts.append(_entry(f"{'mh' if module is multihead else name.rpartition('.')[2]}.{public}", public, value))
        parts += [_result(x) for x in _results(value) if id(x) not in shown and last[id(x)] == index]
    return "\n\n".join(parts) + "\n"


def _entry(call: str, name: str, value: Any) -> str:
    is_protocol = getattr(value, "_is_protocol", False)
    code = "" if is_protocol else f"```py\n{signature(call, value)}\n```"
    parts = [f"## `{name}`", code, markdown(value), members(value) if inspect.isclass(value) else ""]
    return "\n\n".join(part for part in parts if part)


def _result(kind: type) -> str:
    """A class that users get and do not make: without the signature of its constructor."""
    parts = [f"## `{kind.__name__}`", f"In `{kind.__module__}`.", markdown(kind), members(kind)]
    return "\n\n".join(part for part in parts if part)


def _results(value: Any) -> list[type]:
    """The classes of multihead that a function returns, and those that one gets from them by index."""
    if not inspect.isfunction(value):
        return []
    returned = _returned(value)
    indexed = [x for kind in returned if "__getitem__" in vars(kind) for x in _returned(kind.__getitem__)]
    return list(dict.fromkeys([*returned, *indexed]))


def _returned(function: Any) -> list[type]:
    names = re.findall(r"\w+", str(inspect.signature(function).return_annotation))
    values = [inspect.unwrap(function).__globals__.get(name) for name in names]
    return [kind for kind in values if inspect.isclass(kind) and kind.__module__.startswith("multihead.")]
