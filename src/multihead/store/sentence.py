"""A cut model in sentence-transformers: its folder stays one of theirs.

What stock transformers can express (`Saved.plain`), `SentenceTransformer(folder)` loads by itself. For the rest
the folder names a class of ours as its first module. sentence-transformers imports a class that is not its own only
where one says so: `SentenceTransformer(folder, trust_remote_code=True)`. Or, without that flag, `encoder(folder)`
puts the same together from the classes of the two libraries and of nobody else.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from multihead.errors import MultiheadError
from multihead.store.companions import MODULES, modules

OURS = "multihead.store.sentence.CutTransformer"
THEIRS = "sentence_transformers.models.Transformer"


def adapt(folder: Path, plain: bool) -> None:
    """Make the first module of a sentence-transformers folder the one that loads these weights."""
    found = modules(folder)
    if not found:
        return
    first = found[0]
    if not first["type"].rpartition(".")[2].endswith("Transformer"):
        raise MultiheadError(
            f"the first module of {MODULES} is a {first['type']}, not a Transformer",
            hint="save without source, and put the folder together by hand",
        )
    first["path"] = ""
    if not plain:
        first["type"] = OURS
    elif first["type"] == OURS:
        first["type"] = THEIRS
    (folder / MODULES).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def encoder(folder: str | Path, **options: Any) -> Any:
    """A SentenceTransformer of a folder that `save` wrote; options are those of SentenceTransformer."""
    folder = Path(folder)
    found = modules(folder)
    if not found:
        raise MultiheadError(f"{folder} has no {MODULES}", hint="save(..., source=a sentence-transformers folder)")
    library = _library()
    made: list[Any] = []
    for module in found:
        kind: str = module["type"]
        if kind == OURS:
            cls: Any = _cut_transformer()
        elif kind.startswith("sentence_transformers."):
            cls = library.util.import_from_string(kind)
        else:
            raise MultiheadError(
                f"{folder} wants a module of the class {kind}, which neither library has",
                hint="SentenceTransformer(folder, trust_remote_code=True) imports it, if you trust it",
            )
        made.append(cls.load(str(folder), subfolder=module["path"], local_files_only=True))
    said = folder / "config_sentence_transformers.json"
    config: dict[str, Any] = json.loads(said.read_text(encoding="utf-8")) if said.is_file() else {}
    for name in ("prompts", "default_prompt_name", "similarity_fn_name"):
        if config.get(name) is not None:
            options.setdefault(name, config[name])
    return library.SentenceTransformer(modules=made, **options)


def _library() -> Any:
    try:
        return import_module("sentence_transformers")
    except ImportError as missing:
        raise MultiheadError(
            "sentence-transformers is not installed", hint="pip install sentence-transformers"
        ) from missing


@cache
def _cut_transformer() -> type:
    """Their Transformer, with the weights loaded by `multihead.store.load`."""
    base: Any = _library().util.import_from_string(THEIRS)

    class CutTransformer(base):
        def _load_model(self, model_name_or_path: str, *_: Any, **options: Any) -> Any:
            from multihead.store.load import load

            folder = Path(model_name_or_path, options.get("subfolder") or "")
            said = options.get("dtype", options.get("torch_dtype"))
            dtype = getattr(torch, said, None) if isinstance(said, str) else said  # "auto" is none
            return load(folder, dtype=dtype, trust_remote_code=bool(options.get("trust_remote_code")))

        def save(self, output_path: str, *_: Any, **__: Any) -> None:
            from multihead.store.save import put

            put(self.model, Path(output_path), tokenizer=self.processor)
            self.save_config(output_path)

    CutTransformer.__module__, CutTransformer.__qualname__ = __name__, "CutTransformer"
    return CutTransformer


def __getattr__(name: str) -> Any:  # the class has a base that may not be installed, and is made when asked for
    if name == "CutTransformer":
        return _cut_transformer()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
