"""Ctrl-C and SIGTERM: what was finished is not lost."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from multihead.cli.console import note

if TYPE_CHECKING:
    from multihead.corpus.checkpoint import Checkpoint
    from multihead.corpus.ranks import Ranks


class Interrupted(Exception):
    """A signal ended the run."""

    def __init__(self, number: int) -> None:
        self.signal = number


@contextmanager
def stoppable(checkpoint: Checkpoint, ranks: Ranks) -> Generator[None]:
    """Ctrl-C and SIGTERM stop after the batch at hand; a second one stops at once, with the state of before."""
    from multihead.corpus.run import Stopped

    caught: list[int] = []

    def stop(number: int, _: object) -> None:
        if caught:
            raise Interrupted(number)
        caught.append(number)
        checkpoint.stopping = True
        if ranks.leads:
            note("multihead: stopping after this batch; once more to stop at once")

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, stop) for number in numbers]
    try:
        yield
    except Stopped as stopped:
        raise Interrupted(caught[0]) from stopped
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def kind_end() -> Generator[None]:
    """Within the block SIGTERM does what Ctrl-C does, so that a batch system's end leaves what was finished."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
