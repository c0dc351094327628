"""A cut model as a SentenceTransformer.

`SentenceTransformer(folder, trust_remote_code=True)` reads every folder that `save` wrote with a source of
sentence-transformers. `encoder(folder)` needs no such flag: it imports classes of the two libraries only.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from multihead._base.json_files import read_json_object
from multihead.errors import MultiheadError
from multihead.store.aux_files import MODULES, modules
from multihead.store.formats.sentence import OURS, THEIRS
from multihead.store.load import load
from multihead.store.save import write_model


def encoder(folder: str | Path, **options: Any) -> Any:
    """The SentenceTransformer in a folder that `save` wrote; options are those of SentenceTransformer."""
    folder = Path(folder)
    listed = modules(folder)
    if not listed:
        raise MultiheadError(f"{folder} has no {MODULES}", hint="save(..., source=a sentence-transformers folder)")
    library = _library()
    loaded: list[Any] = []
    for module in listed:
        name: str = module["type"]
        if name == OURS:
            cls: Any = _cut_transformer()
        elif name.startswith("sentence_transformers."):
            cls = library.util.import_from_string(name)
        else:
            raise MultiheadError(
                f"{folder} needs the class {name}, which is not of sentence-transformers or multihead",
                hint="SentenceTransformer(folder, trust_remote_code=True) imports it, if you trust it",
            )
        loaded.append(cls.load(str(folder), subfolder=module["path"], local_files_only=True))
    path = folder / "config_sentence_transformers.json"
    config = read_json_object(path, hint="copy it again from the original folder") if path.is_file() else {}
    for name in ("prompts", "default_prompt_name", "similarity_fn_name"):
        if config.get(name) is not None:
            options.setdefault(name, config[name])
    return library.SentenceTransformer(modules=loaded, **options)


def _library() -> Any:
    """sentence-transformers, which has the class of an encoder; raises if it is not installed."""
    try:
        return import_module("sentence_transformers")
    except ImportError as error:
        raise MultiheadError(
            "sentence-transformers is not installed", hint="pip install sentence-transformers"
        ) from error


@cache
def _cut_transformer() -> type:
    """The Transformer of sentence-transformers, with weights loaded by `mh.load`."""
    base: Any = _library().util.import_from_string(THEIRS)

    class CutTransformer(base):
        def _load_model(self, model_name_or_path: str, *_: Any, **options: Any) -> Any:
            """Load the weights of an encoder by `mh.load`."""
            folder = Path(model_name_or_path, options.get("subfolder") or "")
            dtype = options.get("dtype", options.get("torch_dtype"))
            dtype = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype  # "auto" is None
            return load(folder, dtype=dtype, trust_remote_code=bool(options.get("trust_remote_code")))

        def save(self, output_path: str, *_: Any, **__: Any) -> None:
            write_model(self.model, Path(output_path), tokenizer=self.processor)
            self.save_config(output_path)

    CutTransformer.__module__, CutTransformer.__qualname__ = __name__, "CutTransformer"
    return CutTransformer


def __getattr__(name: str) -> Any:  # built on first use: its base class may not be installed
    if name == "CutTransformer":
        return _cut_transformer()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
