"""The files that belong to a model beside its weights: tokenizer, generation config, licence, other modules."""

from __future__ import annotations

import json
import shutil
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, cast

from multihead.errors import MultiheadError

FILES = (
    "tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json", "*.model", "*.tiktoken",
    "chat_template*", "generation_config.json", "preprocessor_config.json", "processor_config.json",
    "sentence_*_config.json", "config_sentence_transformers.json", "modules.json", "LICENSE*", "NOTICE*", "*.py",
)  # fmt: skip
"""Never weights: those are the cut model's own."""
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack", "*.onnx", "*.gguf", "*.pkl")
MODULES = "modules.json"


def copy_companions(source: Path, folder: Path) -> None:
    """Copy what belongs to the model in `source`: files by name, and folders that sentence-transformers names."""
    if not source.is_dir():
        raise MultiheadError(
            f"there is no folder {source} to take the tokenizer from", hint="source=None takes none"
        )
    first, *others = _places(source)
    for place in dict.fromkeys((source, first)):  # some keep the first module in a folder of its own
        for file in sorted(p for p in place.iterdir() if p.is_file()):
            wanted = any(fnmatch(file.name, pattern) for pattern in FILES)
            if wanted and not any(fnmatch(file.name, pattern) for pattern in _WEIGHTS):
                shutil.copyfile(file, folder / file.name)
    for place in others:
        if place.is_dir():  # a module without options has none
            shutil.copytree(place, folder / place.name)


def modules(folder: Path) -> list[dict[str, Any]]:
    """The modules of a sentence-transformers folder; none: it is not one."""
    path = folder / MODULES
    if not path.is_file():
        return []
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        found = [{"path": str(m["path"]), "type": str(m["type"]), **m} for m in data]
    except (ValueError, KeyError, TypeError) as wrong:
        raise MultiheadError(f"{path} is damaged: {wrong!r}", hint="sentence-transformers wrote it") from wrong
    return cast(list[dict[str, Any]], found)


def _places(source: Path) -> list[Path]:
    """The folders of the modules, the first one's first; of a folder without modules, itself."""
    names = [m["path"] for m in modules(source)] or [""]
    for name in names:
        if Path(name).is_absolute() or len(Path(name).parts) > 1 or ".." in Path(name).parts:
            raise MultiheadError(f"{source / MODULES} names the folder {name!r}, which is not in it")
    return [source / name for name in names]
