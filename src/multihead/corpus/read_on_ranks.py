"""Documents that several processes share: the first one reads and counts them, and the others get the counts.

>>> import tempfile
>>> from functools import partial
>>> from pathlib import Path
>>> from multihead.corpus.ranks import Ranks
>>> from multihead.corpus.read_texts import read_documents
>>> from multihead.corpus.read_on_ranks import read_once
>>> with tempfile.TemporaryDirectory() as folder:
...     read_once(Ranks.alone(), partial(read_documents, object()), Path(folder), text=["two words"]).count
1
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from multihead.corpus.documents import Documents
from multihead.corpus.ranks import Ranks, restarted


def read_once(
    ranks: Ranks,
    read: Callable[..., Documents],
    folder: Path,
    *,
    text: Sequence[str] = (),
    corpus: Sequence[str] = (),
) -> Documents:
    """`read(text=, corpus=, counts=)` on every rank. stdin ("-") is copied into `folder`, which all ranks see."""
    names = (*text, *corpus)
    if ranks.size > 1 and "-" in names:
        spool = folder / f".stdin-{os.environ.get('TORCHELASTIC_RUN_ID', 'run')}.txt"
        ranks.on_rank_zero(lambda: _copy_stdin(spool))
        text, corpus = ([str(spool) if name == "-" else name for name in some] for some in (text, corpus))
    first: list[Documents] = []

    def count() -> dict[str, Any]:
        first.append(read(text=text, corpus=corpus))
        return first[0].counts()

    counts = ranks.on_rank_zero(count)
    documents = first[0] if first else read(text=text, corpus=corpus, counts=counts)
    return replace(documents, name=", ".join(names)) if "-" in names else documents


def _copy_stdin(file: Path) -> None:
    """Copy stdin to a file that all ranks read."""
    if restarted() and file.exists():  # the process before has read stdin
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
