"""The other files of a model's folder: tokenizer, generation config, licence, further modules."""

from __future__ import annotations

import shutil
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from multihead._base.json_files import read_json
from multihead.errors import MultiheadError

FILES = (
    "tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json", "*.model", "*.tiktoken",
    "chat_template*", "generation_config.json", "preprocessor_config.json", "processor_config.json",
    "sentence_*_config.json", "config_sentence_transformers.json", "modules.json", "LICENSE*", "NOTICE*", "*.py",
)  # fmt: skip
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack", "*.onnx", "*.gguf", "*.pkl")
"""Never copied: the weights are those of the cut model."""
MODULES = "modules.json"


def copy_aux_files(source: Path, folder: Path) -> None:
    """Copy the files listed above, and the folders of the further modules of a sentence-transformers model."""
    if not source.is_dir():
        raise MultiheadError(
            f"there is no folder {source} to copy the tokenizer from", hint="source=None copies nothing"
        )
    first, *others = _module_folders(source)
    for place in dict.fromkeys((source, first)):  # some keep the first module in its own folder
        for file in sorted(p for p in place.iterdir() if p.is_file()):
            wanted = any(fnmatch(file.name, pattern) for pattern in FILES)
            if wanted and not any(fnmatch(file.name, pattern) for pattern in _WEIGHTS):
                shutil.copyfile(file, folder / file.name)
    for place in others:
        if place.is_dir():  # a module without options has no folder
            shutil.copytree(place, folder / place.name)


def modules(folder: Path) -> list[dict[str, Any]]:
    """The modules of a sentence-transformers folder, whose auxiliary files are copied; empty for other folders."""
    path = folder / MODULES
    if not path.is_file():
        return []
    hint = "copy it again from the original folder"
    data = read_json(path, hint=hint)
    try:
        return [{**module, "path": str(module["path"]), "type": str(module["type"])} for module in data]
    except (KeyError, TypeError) as error:
        raise MultiheadError(f"{path} is damaged: {error!r}", hint=hint) from error


def _module_folders(source: Path) -> list[Path]:
    """The folders of the modules in order; `source` itself if it lists no modules."""
    names = [m["path"] for m in modules(source)] or [""]
    for name in names:
        if Path(name).is_absolute() or len(Path(name).parts) > 1 or ".." in Path(name).parts:
            raise MultiheadError(
                f"{source / MODULES} names the folder {name!r}, which must be inside {source}",
                hint="copy the model's folder again",
            )
    return [source / name for name in names]
