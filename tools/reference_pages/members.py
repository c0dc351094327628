"""The public members of a class: fields, properties and methods, as lists."""

from __future__ import annotations

import ast
import inspect
from dataclasses import is_dataclass
from textwrap import dedent
from typing import Any

from docstring import first_line, item, markdown
from signature import annotation, short_signature, signature

from multihead.layer._kv_store import KVStore

STORE = {name for name, value in vars(KVStore).items() if inspect.isfunction(value) and not name.startswith("_")}
"""Methods of a store of keys and values: the layer calls them, users do not."""


def members(kind: type) -> str:
    """Fields of a dataclass, properties and methods; a method with arguments to explain has a heading."""
    found = _members(kind)
    fields = _fields(kind) if is_dataclass(kind) else []
    lines, sections = list(fields), list[str]()
    for name, value in found.items():
        if isinstance(value, property) or hasattr(value, "func"):
            getter: Any = value.fget if isinstance(value, property) else value.func
            returned = inspect.signature(getter).return_annotation
            lines.append(item(f"`{name}: {annotation(returned)}`", first_line(value)))
            continue
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        call = f"{kind.__name__}.{name}" if isinstance(value, classmethod | staticmethod) else name
        if "Args:\n" in (inspect.getdoc(function) or ""):
            code = signature(call, _bound(value, function))
            text = f"### `{kind.__name__}.{name}`\n\n```py\n{code}\n```\n\n{markdown(function)}"
            sections.append(text)
        else:
            lines.append(item(f"`{short_signature(call, _bound(value, function))}`", first_line(function)))
    return "\n\n".join(["**Attributes and methods**", "\n".join(lines), *sections] if lines else sections)


def _bound(value: Any, function: Any) -> Any:
    """A class method without its `cls`."""
    return value.__get__(None, object) if isinstance(value, classmethod) else function


def _members(kind: type) -> dict[str, Any]:
    """Public members that the class or a base of this package defines, and that say what they are for."""
    found: dict[str, Any] = {}
    internal = STORE if set(dir(kind)) >= STORE else set[str]()
    for base in kind.__mro__:
        if base.__module__.startswith("multihead"):
            for name, value in vars(base).items():
                if name[0] != "_" and name not in internal and name not in found and _is_described(value):
                    found[name] = value
    return found


def _is_described(value: Any) -> bool:
    if isinstance(value, property) or (hasattr(value, "func") and hasattr(value, "attrname")):
        return True
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    return inspect.isfunction(function) and bool(function.__doc__)


def _fields(kind: type) -> list[str]:
    """Annotated fields with the string that follows each."""
    lines: list[str] = []
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("multihead"):
            continue
        body = ast.parse(dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]  # a class
        for node, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_":
                described = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                text = " ".join(str(after.value.value).split()) if described else ""  # type: ignore[union-attr]
                lines.append(item(f"`{node.target.id}: {ast.unparse(node.annotation)}`", text))
    return lines
