"""The folder of a run that can be resumed: a lock, the state until the run ends, then the table.

    table.json      the result
    state/          the state so far (see `checkpoint`), until the result is written

>>> import tempfile
>>> from pathlib import Path
>>> from multihead.corpus.ranks import Ranks
>>> from multihead.corpus.run_folder import RunFolder
>>> with tempfile.TemporaryDirectory() as home:
...     with RunFolder(Path(home) / "run", Ranks.alone()).opened() as folder:
...         checkpoint, table = folder.checkpoint({"model": "a"})
...         checkpoint.folder.name, table
('state', None)
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multihead._base.arguments import check_flag, check_number
from multihead._base.atomic_files import check_writable
from multihead.corpus.checkpoint import EVERY, Checkpoint, check_identity
from multihead.corpus.lock import locked
from multihead.corpus.ranks import TIMEOUT, Ranks, job, restarted
from multihead.errors import MultiheadError
from multihead.table.table import HeadTable

STATE, TABLE = "state", "table.json"


def check_run_options(*, resume: object, force: object, save_every: object, rank_timeout: object = TIMEOUT) -> None:
    """Raise unless these options of a run are valid; the run may have no folder."""
    check_flag("resume", resume)
    check_flag("force", force)
    check_number("save_every", save_every, least=0)
    check_number("rank_timeout", rank_timeout, above=0)
    if resume and force:
        raise MultiheadError("resume continues a run and force starts again", hint="choose one of them")


@dataclass(frozen=True)
class RunFolder:
    """Where a run saves its state and its table.

    Args:
        resume: continue a run that was stopped, or return the table of a finished one.
        force: start again, replacing the contents of the folder.
        save_every: seconds between two saves of the state.
    """

    path: Path
    ranks: Ranks
    resume: bool = False
    force: bool = False
    save_every: float = EVERY
    say: Callable[[str], None] = lambda text: None

    def check(self) -> None:
        """Raise unless a run may write here; nothing is loaded yet."""
        check_run_options(resume=self.resume, force=self.force, save_every=self.save_every)
        if self.path.exists() and not self.path.is_dir():
            raise MultiheadError(f"{self.path} is a file", hint="pass a folder")
        if self.ranks.leads:
            self._check_contents()

    def _check_contents(self) -> None:
        """Raise if the run folder holds a run that is neither resumed nor overwritten."""
        if self.resumes() or self.force:
            return
        if (self.path / STATE).exists():
            raise MultiheadError(
                f"{self.path} holds a run that was stopped",
                hint="resume=True continues it, force=True starts again",
            )
        if (self.path / TABLE).exists():
            raise MultiheadError(
                f"{self.path} holds a table", hint="force=True measures again, or choose a different folder"
            )

    def resumes(self) -> bool:
        """Whether the run continues: on request, or because torchrun has restarted it (--max-restarts).

        Not every machine learns of a restart, but the state in the folder names the job that began it.
        """
        try:
            begun = json.loads((self.path / STATE / "run.json").read_bytes()).get("job", "")
        except (OSError, ValueError):
            begun = ""
        return self.resume or restarted() or (begun != "" and begun == job())

    @contextmanager
    def opened(self) -> Generator[RunFolder]:
        """Create and lock the folder while the block runs. A new one that is still empty at its end is removed."""

        def prepare() -> None:
            """Create, lock and check the run folder."""
            check_writable(self.path / TABLE)
            self.path.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(self.path))
            self._check_contents()  # again: another run may have ended meanwhile
            if self.force and not self.resumes():
                shutil.rmtree(self.path / STATE, ignore_errors=True)

        self.check()
        is_new = self.ranks.leads and not self.path.exists()
        try:
            with ExitStack() as stack:
                self.ranks.on_rank_zero(prepare)
                yield self
        finally:
            if is_new and self.path.is_dir() and not any(self.path.iterdir()):
                self.path.rmdir()

    def checkpoint(self, identity: Mapping[str, Any]) -> tuple[Checkpoint, HeadTable | None]:
        """Where the run folder is to save, resumed if there is a state; and the table of an equal finished run."""
        checkpoint, file = Checkpoint(self.path / STATE, identity, every=self.save_every), self.path / TABLE

        def look() -> str:
            """Which the run folder holds: a state, a table, or neither."""
            if checkpoint.file.exists():
                checkpoint.resume()
                return "state"
            if file.exists() and not self.force:
                check_identity(HeadTable.load(file).about.get("run", {}), checkpoint.identity, file)
                return "table"
            if self.resume:
                self.say(f"{self.path} holds no run to resume: starting a new one")
            return ""

        state = self.ranks.on_rank_zero(look)
        if state == "state":
            checkpoint.resume()
        return checkpoint, HeadTable.load(file) if state == "table" else None

    def finish(self, checkpoint: Checkpoint, table: HeadTable) -> Path:
        """Write the table of the run folder, and delete the states."""
        file = self.path / TABLE
        table.save(file)
        checkpoint.forget()
        for left in (*self.path.glob(f".{TABLE}.*.part"), *self.path.glob(".stdin-*")):
            left.unlink(missing_ok=True)
        return file
