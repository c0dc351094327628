"""multihead's own format: any cut of any model. `mh.load` reads it.

The weights are called multihead.safetensors: no other reader takes them for those of the original.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from multihead.store.snapshot import Snapshot
from multihead.store.verify import verify_reload


@dataclass(frozen=True)
class CustomFormat:
    """The original's config, the tensors, and multihead.json with the steps of the cut."""

    snapshot: Snapshot
    reason: str
    """why stock transformers does not load the model"""

    def can(self) -> str | None:
        return None

    def write(self, folder: Path) -> None:
        self.snapshot.write(folder, "multihead", None, self.reason)

    def verify(self, folder: Path) -> str | None:
        return verify_reload(self.snapshot, folder)
