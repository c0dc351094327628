"""Ctrl-C and SIGTERM: stop a run after the current batch, with its state saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from multihead.corpus.checkpoint import Checkpoint
from multihead.corpus.run import RunStopped


class Interrupted(KeyboardInterrupt):
    """A signal has ended the run; the shell's exit code is 128 + `signal`."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.signal = number


@contextmanager
def stop_after_batch(checkpoint: Checkpoint, say: Callable[[str], None]) -> Generator[None]:
    """In the block Ctrl-C and SIGTERM stop after the current batch, and a second one at once.

    Signals are left alone outside of the main thread, where Python cannot handle them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def stop(number: int, _: object) -> None:
        """Handle a signal: stop after this batch, or at once for a second signal."""
        if received:
            raise Interrupted(number)
        received.append(number)
        checkpoint.stopping = True
        say("multihead: stopping after this batch; once more to stop at once")

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, stop) for number in numbers]
    try:
        yield
    except RunStopped as stopped:
        raise Interrupted(received[0] if received else signal.SIGINT) from stopped
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def sigterm_as_interrupt() -> Generator[list[int]]:
    """In the block SIGTERM raises `Interrupted`, so finished work is saved, as after Ctrl-C.

    Yields the list of signals that were received.
    """
    received: list[int] = []

    def stop(number: int, _: object) -> None:
        received.append(number)
        raise Interrupted(number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, before)
