"""The processes of a run: those that torchrun started, or this one alone.

Rank 0 decides, prints and writes. Ranks exchange small messages through torch's store; their states go
through the run folder, which all of them see (`checkpoint`).

>>> from multihead.corpus.ranks import Ranks
>>> alone = Ranks.alone()
>>> alone.rank, alone.size, alone.on_rank_zero(lambda: {"documents": 7})
(0, 1, {'documents': 7})
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from multihead.errors import MultiheadError

HEARTBEAT = 2.0
"""Seconds between two heartbeats of a process."""

TIMEOUT = 120.0
"""Seconds without a heartbeat after which a process counts as dead."""

_RESUME = "run it again with resume=True, also with fewer processes"


class FollowerExit(SystemExit):
    """Rank 0 has failed and has printed why; the other ranks exit silently."""


class Ranks:
    """`rank` of `size` processes: `Ranks.started()` of torchrun, or `Ranks.alone()`."""

    def __init__(self, rank: int = 0, size: int = 1, store: Any = None, timeout: float = TIMEOUT) -> None:
        self.rank, self.size, self.timeout = rank, size, timeout
        self._store = store
        self._heartbeats: dict[int, tuple[bytes, float]] = {}
        self._messages = 0  # every rank counts the same

    @staticmethod
    def alone() -> Ranks:
        return Ranks()

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @staticmethod
    @contextmanager
    def started(timeout: float = TIMEOUT) -> Generator[Ranks]:
        """The processes that torchrun started with this one, joined over gloo; alone if it did not.

        Errors inside the block name the rank, unless it is rank 0.
        """
        if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ:
            yield Ranks.alone()
            return
        limit = timedelta(seconds=timeout)
        store, rank, size = next(rendezvous("env://", timeout=limit))
        store = PrefixStore(_agree_on_name(store, rank, size, timeout), store)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)
        ranks = Ranks(rank, size, PrefixStore("multihead", store), timeout)
        stop = threading.Event()
        beating = threading.Thread(target=ranks._beat, args=(stop,), daemon=True)
        beating.start()
        try:
            yield ranks
        except MultiheadError as error:
            if ranks.leads:
                raise
            raise MultiheadError(f"rank {rank}: {error.message}", hint=error.hint) from error
        finally:
            stop.set()
            beating.join()
            dist.destroy_process_group()

    # ---- messages -----------------------------------------------------------------------------

    def store_set(self, key: str, value: str) -> None:
        """Let the other ranks read a value of this rank."""
        if self._store is not None:
            with self._connected():
                self._store.set(f"{key}/{self.rank}", value)

    def store_get(self, key: str, rank: int) -> str | None:
        """The latest value of a rank; None if it has set none."""
        with self._connected():
            name = f"{key}/{rank}"
            return self._store.get(name).decode() if self._store.check([name]) else None

    def wait_for(self, key: str, rank: int, meanwhile: Callable[[], None] | None = None) -> str:
        """The value of a rank, once it has set one. Raises if the rank stops sending heartbeats."""
        while (value := self.store_get(key, rank)) is None:
            if meanwhile is not None:
                meanwhile()
            self._check_alive(rank)
            time.sleep(0.05)
        return value

    def gather(self, value: str, meanwhile: Callable[[], None] | None = None) -> list[str]:
        """The values of all ranks, on rank 0; an empty list on the others. Every rank must call it."""
        if self.size == 1:
            return [value]
        key = self._next_key()
        self.store_set(key, value)
        return [self.wait_for(key, rank, meanwhile) for rank in range(self.size)] if self.leads else []

    def _next_key(self) -> str:
        """A key that no message has used."""
        self._messages += 1
        return f"message {self._messages}"

    def on_rank_zero(self, act: Callable[[], Any]) -> Any:
        """Rank 0 acts, and every rank gets its result as JSON reads it back. If it fails, the others exit.

        One process gets the same result: a tuple becomes a list for it too.
        """
        if self.size == 1:
            return json.loads(json.dumps(act()))
        key = self._next_key()
        if self.leads:
            try:
                self.store_set(key, json.dumps({"result": act()}))
            except Exception:
                self.store_set(key, json.dumps({"failed": True}))
                raise
        message = json.loads(self.wait_for(key, 0))
        if "failed" in message:
            raise FollowerExit(2)
        return message["result"]

    def check_equal(self, value: Mapping[str, Any]) -> None:
        """Raise unless all ranks have the same value under every name."""
        if self.size == 1:
            return
        leader = self.on_rank_zero(lambda: dict(value))
        differing = next((name for name in value if value[name] != leader.get(name)), None)
        key = self._next_key()
        self.store_set(key, "" if differing is None else differing)
        if differing is not None:
            raise MultiheadError(
                f"rank {self.rank} has {differing} {value[differing]}, rank 0 has {leader.get(differing)}",
                hint="every node needs the same model, text and versions",
            )
        if any(self.wait_for(key, rank) for rank in range(self.size)):
            raise FollowerExit(2)

    # ---- heartbeats ---------------------------------------------------------------------------

    def _beat(self, stop: threading.Event) -> None:
        """Send heartbeats of this rank until `stop`."""
        count = 0
        while not stop.is_set():
            try:
                self._store.set(f"heartbeat/{self.rank}", str(count))
            except RuntimeError:  # the store is gone
                return
            count += 1
            stop.wait(HEARTBEAT)

    def _check_alive(self, rank: int) -> None:
        """Raise if a rank has sent no heartbeat for too long."""
        beat = (self.store_get("heartbeat", rank) or "").encode()
        now = time.monotonic()
        last, since = self._heartbeats.get(rank, (b"", now))
        self._heartbeats[rank] = beat, since if beat == last else now
        if now - self._heartbeats[rank][1] > self.timeout:
            raise MultiheadError(
                f"rank {rank} has sent no heartbeat for {self.timeout:.0f} s: it was killed or cannot be reached",
                hint=_RESUME,
            )

    @contextmanager
    def _connected(self) -> Generator[None]:
        """Turn an error of the store that ranks share into one that names the fix."""
        try:
            yield
        except RuntimeError as wrong:
            message = " ".join(str(wrong).split())
            raise MultiheadError(
                f"rank {self.rank} lost the connection to the other ranks: {message[:200]}",
                hint=f"one of them has ended or was killed; {_RESUME}",
            ) from wrong


def _agree_on_name(store: Any, rank: int, size: int, timeout: float) -> str:
    """A name for this start of the processes: keys under it are not of an earlier start.

    torchrun --max-restarts keeps its store over restarts, including the addresses of dead processes, and does not
    tell all machines the same number of restarts. So rank 0 draws a name and welcomes each rank that has read it. A
    rank that has read an old name is not welcomed, and reads again.
    """
    token, deadline = uuid4().hex, time.monotonic() + timeout
    missing = set(range(1, size)) if rank == 0 else {0}
    if rank == 0:
        store.set("multihead/leader", token)
    while missing and time.monotonic() < deadline:
        if rank == 0:
            for other in [r for r in missing if store.check([f"multihead/{token}/hello/{r}"])]:
                store.set(f"multihead/{token}/welcome/{other}", store.get(f"multihead/{token}/hello/{other}"))
                missing.remove(other)
        elif store.check(["multihead/leader"]):
            leader = store.get("multihead/leader").decode()
            store.set(f"multihead/{leader}/hello/{rank}", token)
            welcome = f"multihead/{leader}/welcome/{rank}"
            if store.check([welcome]) and store.get(welcome).decode() == token:
                return leader
        time.sleep(0.05)
    if missing:
        raise MultiheadError(
            f"timed out after {timeout:.0f} s waiting for rank {min(missing)}",
            hint="was it started, on every machine?",
        )
    return token


def restarted() -> bool:
    """Whether torchrun has restarted this process after one of them died (--max-restarts)."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def job() -> str:
    """The name of this run for torchrun (--rdzv-id), which restarts keep; "" if it has none."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "")
    return "" if name == "none" else name
