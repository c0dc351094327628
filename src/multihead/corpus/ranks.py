"""The processes of a run: what torchrun started, or this one alone.

Rank 0 leads: it decides, says and writes. States go to it as bytes over gloo, whatever device the models run on, so
that what is sent can be counted: `sent` bytes of this rank, headers included.

>>> from multihead.corpus.ranks import Ranks
>>> alone = Ranks.alone()
>>> alone.rank, alone.size, alone.first(lambda: {"documents": 7})
(0, 1, {'documents': 7})
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from multihead.corpus.state import pack, unpack
from multihead.errors import MultiheadError

BEAT = 2.0
"""Seconds between two signs of life of a process."""

PATIENCE = 120.0
"""Seconds without one after which a process counts as dead."""


class FollowerError(Exception):
    """Rank 0 has failed and has said why; the others end without a word."""


class Ranks:
    """`rank` of `size` processes; `Ranks.started()` are those of torchrun, `Ranks.alone()` is one."""

    def __init__(self, rank: int = 0, size: int = 1, store: Any = None, patience: float = PATIENCE) -> None:
        self.rank, self.size, self.patience = rank, size, patience
        self.sent = 0
        """bytes that this rank gave to collectives and sends"""
        self._store = store
        self._heard: dict[int, tuple[bytes, float]] = {}
        self._turn = 0

    @staticmethod
    def alone() -> Ranks:
        return Ranks()

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @staticmethod
    @contextmanager
    def started(patience: float = PATIENCE) -> Generator[Ranks]:
        """The processes that torchrun started with this one, joined over gloo; alone if it did not."""
        if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ:
            yield Ranks.alone()
            return
        limit = timedelta(seconds=patience)
        store, rank, size = next(rendezvous("env://", timeout=limit))
        store = PrefixStore(_agreed(store, rank, size, patience), store)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)
        ranks = Ranks(rank, size, PrefixStore("multihead", store), patience)
        stop = threading.Event()
        beating = threading.Thread(target=ranks._beat, args=(stop,), daemon=True)
        beating.start()
        try:
            yield ranks
        finally:
            stop.set()
            beating.join()
            dist.destroy_process_group()

    # ---- signs of life ------------------------------------------------------------------------

    def _beat(self, stop: threading.Event) -> None:
        count = 0
        while not stop.is_set():
            try:
                self._store.set(f"beat/{self.rank}", str(count))
            except RuntimeError:  # the store is gone, and with it whoever would read this
                return
            count += 1
            stop.wait(BEAT)

    def say(self, key: str, value: int) -> None:
        """Let the others read a number of this rank."""
        if self._store is not None:
            with self._wire(0):
                self._store.set(f"{key}/{self.rank}", str(value))

    def said(self, key: str) -> dict[int, int]:
        """The latest number of each other rank that has said one."""
        with self._wire(0):
            others = [r for r in range(self.size) if r != self.rank and self._store.check([f"{key}/{r}"])]
            return {r: int(self._store.get(f"{key}/{r}")) for r in others}

    def wait_for(self, key: str, rank: int, meanwhile: Callable[[], None] | None = None) -> None:
        """Until a rank has said `key`; an error once it has shown no sign of life for too long."""
        while not self._has(f"{key}/{rank}"):
            if meanwhile is not None:
                meanwhile()
            with self._wire(0):
                beat = self._store.get(f"beat/{rank}") if self._has(f"beat/{rank}") else b""
            now, (last, when) = time.monotonic(), self._heard.get(rank, (b"", time.monotonic()))
            if beat != last:
                when = now
            self._heard[rank] = beat, when
            if now - when > self.patience:
                raise MultiheadError(
                    f"rank {rank} has shown no sign of life for {self.patience:.0f} s: it was killed, or "
                    "its machine cannot be reached",
                    hint="the same command with --resume goes on, also with fewer processes",
                )
            time.sleep(0.05)

    def _has(self, key: str) -> bool:
        with self._wire(0):
            return self._store.check([key])

    # ---- together -----------------------------------------------------------------------------

    def first(self, act: Callable[[], Any]) -> Any:
        """Rank 0 acts, and all ranks get its result as JSON gives it back; where it fails, the others end.

        One process gets the same: a tuple is a list for it too.
        """
        if self.size == 1:
            return json.loads(json.dumps(act()))
        if self.leads:
            try:
                message = json.dumps({"gave": act()}).encode()
            except Exception:
                self._spread(json.dumps({"failed": True}).encode())
                raise
            self._spread(message)
        else:
            message = self._spread(None)
        result = json.loads(message)
        if "failed" in result:
            raise FollowerError
        return result["gave"]

    def same(self, value: Mapping[str, Any]) -> None:
        """Raise unless all ranks have the same value, by name."""
        if self.size == 1:
            return
        mine, lead = dict(value), self.first(lambda: dict(value))
        odd = next((name for name in mine if mine[name] != lead.get(name)), None)
        wrong = self._any(odd is not None)
        if odd is not None:
            raise MultiheadError(
                f"rank {self.rank} has {odd} {mine[odd]}, rank 0 has {lead.get(odd)}",
                hint="every node needs the same model, text and versions",
            )
        if wrong:
            raise FollowerError

    def _any(self, wrong: bool) -> bool:
        self._turn += 1
        self.say(f"turn {self._turn}", 1)
        for rank in range(self.size):
            self.wait_for(f"turn {self._turn}", rank)
        flag = torch.tensor([int(wrong)])
        with self._wire(flag.nbytes):
            dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag.item())

    def give(
        self, key: str, count: int, states: Iterable[Mapping[str, Any]], meanwhile: Callable[[], None]
    ) -> None:
        """Send so many states to rank 0, once it is ready to `take` them; one of them is held at a time."""
        self.say(f"{key}/ready", count)
        self.wait_for(f"{key}/go {self.rank}", 0, meanwhile)
        for state in states:
            data = _tensor(pack(state))
            size = torch.tensor([data.numel()])
            with self._wire(size.nbytes + data.nbytes):
                dist.send(size, 0)
                dist.send(data, 0)

    def take(self, key: str, rank: int, meanwhile: Callable[[], None]) -> Iterator[dict[str, Any]]:
        """The states that a rank gives, one at a time."""
        self.wait_for(f"{key}/ready", rank, meanwhile)
        count = self.said(f"{key}/ready")[rank]
        self.say(f"{key}/go {rank}", 1)
        for _ in range(count):
            size = torch.zeros(1, dtype=torch.long)
            with self._wire(0):
                dist.recv(size, rank)
                data = torch.empty(int(size), dtype=torch.uint8)
                dist.recv(data, rank)
            yield unpack(data.numpy().tobytes(), f"what rank {rank} sent")

    def spread(self, state: Mapping[str, Any] | None) -> dict[str, Any]:
        """The state of rank 0, on all."""
        if self.size == 1:
            assert state is not None
            return dict(state)
        return unpack(self._spread(None if state is None else pack(state)), "what rank 0 sent")

    def _spread(self, data: bytes | None) -> bytes:
        self._turn += 1
        if self.leads:
            self.say(f"turn {self._turn}", 1)
        else:  # rank 0 may take long before it has something to say
            self.wait_for(f"turn {self._turn}", 0)
        size = torch.tensor([0 if data is None else len(data)])
        with self._wire(size.nbytes + int(size) if self.leads else 0):
            dist.broadcast(size, 0)
            sent = torch.empty(int(size), dtype=torch.uint8) if data is None else _tensor(data)
            dist.broadcast(sent, 0)
        return sent.numpy().tobytes()

    @contextmanager
    def _wire(self, size: int) -> Generator[None]:
        """So many bytes go out; an error of the wire is said in words."""
        self.sent += size
        try:
            yield
        except RuntimeError as wrong:
            said = " ".join(str(wrong).split())
            raise MultiheadError(
                f"rank {self.rank} lost the others: {said[:200]}",
                hint="one of them ended or was killed; the same command with --resume goes on",
            ) from wrong


def _agreed(store: Any, rank: int, size: int, patience: float) -> str:
    """A name that only this start of the processes has: what they write under it is not of an earlier one.

    torchrun --max-restarts keeps its store over restarts, addresses of dead processes included, and does not tell
    all machines the same number of restarts. So rank 0 draws a name, and greets each that has read it; whoever has
    read an old name is not greeted, and reads again.
    """
    mine, end = uuid4().hex, time.monotonic() + patience
    left = set(range(1, size)) if rank == 0 else {rank}
    if rank == 0:
        store.set("multihead/lead", mine)
    while left and time.monotonic() < end:
        if rank == 0:
            for other in [r for r in left if store.check([f"multihead/{mine}/hello/{r}"])]:
                store.set(f"multihead/{mine}/welcome/{other}", store.get(f"multihead/{mine}/hello/{other}"))
                left.remove(other)
        elif store.check(["multihead/lead"]):
            lead = store.get("multihead/lead").decode()
            store.set(f"multihead/{lead}/hello/{rank}", mine)
            welcome = f"multihead/{lead}/welcome/{rank}"
            if store.check([welcome]) and store.get(welcome).decode() == mine:
                return lead
        time.sleep(0.05)
    if left:
        who = f"rank {min(left)}" if rank == 0 else "rank 0"
        raise MultiheadError(
            f"{who} did not come within {patience:.0f} s", hint="was it started, on every machine?"
        )
    return mine


def _tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def restarted() -> bool:
    """Whether torchrun has started this process again after one of them died (--max-restarts)."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def job() -> str:
    """The name that torchrun has for this run (--rdzv-id), "" where it has none: restarts keep it."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "")
    return "" if name == "none" else name
