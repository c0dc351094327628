"""A sentence-transformers folder: modules.json, whose first module loads the cut model.

If stock transformers loads the weights, so does `SentenceTransformer(folder)`. Else the first module is our class
`CutTransformer` (`store/encoder.py`), which sentence-transformers imports only with `trust_remote_code=True`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from multihead.store.aux_files import MODULES, modules

OURS = "multihead.store.encoder.CutTransformer"
THEIRS = "sentence_transformers.models.Transformer"


@dataclass(frozen=True)
class SentenceFormat:
    """modules.json next to weights that a different format has written; the modules are those of `source`."""

    source: Path
    stock: bool

    def can(self) -> str | None:
        """Why a model cannot be saved in the format of sentence-transformers; None if it can."""
        listed = modules(self.source)
        if not listed:
            return f"{self.source} has no {MODULES}"
        first = listed[0]["type"]
        transformer = first.rpartition(".")[2].endswith("Transformer")
        return None if transformer else f"the first module of {MODULES} must be a Transformer, got {first}"

    def write(self, folder: Path) -> None:
        first, *others = modules(self.source)
        first = first | {"path": "", "type": self._first(first["type"])}
        (folder / MODULES).write_text(json.dumps([first, *others], indent=2) + "\n", encoding="utf-8")

    def verify(self, folder: Path) -> str | None:
        """Compare the files of the further sentence-transformers modules with the original's."""
        (first, *others), (_, *originals) = modules(folder), modules(self.source)
        if others != originals or (first["path"], self._first(first["type"])) != ("", first["type"]):
            return f"{MODULES} lists different modules"
        for module in (m for m in others if m["path"]):
            for file in (p for p in (self.source / module["path"]).rglob("*") if p.is_file()):
                copied = folder / file.relative_to(self.source)
                if not copied.is_file() or copied.read_bytes() != file.read_bytes():
                    return f"{copied.relative_to(folder)} differs from the original"
        return None

    def _first(self, kind: str) -> str:
        """The class of the first module of sentence-transformers: theirs for stock weights, ours for others."""
        if not self.stock:
            return OURS
        return THEIRS if kind == OURS else kind
