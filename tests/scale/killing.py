"""Run by test_killed_ranks.py: starts ranks by fork, kills them, and says in one JSON line what came of it."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch
from measuring import measure

from multihead.errors import MultiheadError

TIMEOUT = 8.0


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def started(count: int, folder: Path, log: Path) -> list[int]:
    """The ids of `count` processes that measure together; what they say goes to LOG.RANK."""
    port, made = free_port(), list[int]()
    for rank in range(count):
        child = os.fork()
        if child:
            made.append(child)
            continue
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1"}
        os.environ["MASTER_PORT"] = str(port)
        code = 1
        with open(f"{log}.{rank}", "w") as said:  # noqa: PTH123
            os.dup2(said.fileno(), 2)
            try:
                measure(folder, timeout=TIMEOUT, quick=True)
                code = 0
            except MultiheadError as wrong:
                sys.stderr.write(f"ended: {wrong}\n")
            except BaseException:  # noqa: BLE001
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(code)
    return made


def ended(children: list[int], within: float) -> list[int | None]:
    """Exit codes, negative for signals; None for whoever had to be killed after `within` seconds."""
    codes: dict[int, int | None] = {}
    end = time.monotonic() + within
    while len(codes) < len(children):
        for child in children:
            if child not in codes:
                found, status = os.waitpid(child, os.WNOHANG)
                if found:
                    codes[child] = os.waitstatus_to_exitcode(status)
                elif time.monotonic() > end:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    codes[child] = None
        time.sleep(0.02)
    return [codes[child] for child in children]


def kill(children: list[int]) -> None:
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def saved_parts(folder: Path) -> list[Path]:
    """The latest saves of unfinished parts."""
    return list(folder.glob("state/*-part-*.safetensors"))


def wait_until_saved(folder: Path, within: float = 60.0) -> None:
    """The run is in the middle of its work then."""
    end = time.monotonic() + within
    while not saved_parts(folder):
        assert time.monotonic() < end, f"no part was saved in {folder} within {within:.0f} s"
        time.sleep(0.002)


def killed_and_resumed(root: Path, whole: bytes, seconds: float) -> dict[str, object]:
    """A rank dies at a random moment, the others are killed as torchrun does; again and again, with other ranks."""
    draw, kills, turn = random.Random(17), 0, 0
    while turn < 2 or kills < 5:  # a run may end before its moment comes
        folder, turn = root / f"killed{turn}", turn + 1
        for _ in range(4):
            count = draw.choice((1, 2, 3, 4))
            children = started(count, folder, root / "log")
            time.sleep(draw.uniform(0.1, 0.8 * seconds))
            kill([children[draw.randrange(count)]])
            kill(children)
            kills += -signal.SIGKILL in ended(children, 20)
        if not (folder / "table.json").exists():
            ended(started(2, folder, root / "log"), 150)
        if (folder / "table.json").read_bytes() != whole:
            return {"same": False, "turn": turn, "kills": kills}
    return {"same": True, "kills": kills}


def one_dies(root: Path, whole: bytes, seconds: float) -> dict[str, object]:
    """Nobody kills the others: they end by themselves, and say why; then one process goes on.

    Two runs at the same time, one that loses rank 1 and one that loses rank 0.
    """
    victims = (1, 0)
    runs = {victim: started(3, root / f"dies{victim}", root / f"dies{victim}") for victim in victims}
    for victim, children in runs.items():
        wait_until_saved(root / f"dies{victim}")
        os.kill(children[victim], signal.SIGKILL)
    codes = [code for children in runs.values() for code in ended(children, 4 * TIMEOUT)]
    said = [Path(f"{root}/dies{v}.{rank}").read_text() for v in victims for rank in range(3) if rank != v]
    for victim in victims:
        ended(started(1, root / f"dies{victim}", root / "log"), 150)
    same = all((root / f"dies{victim}" / "table.json").read_bytes() == whole for victim in victims)
    return {"same": same, "codes": codes, "said": said}


def damaged(root: Path, whole: bytes, seconds: float) -> dict[str, object]:
    """A byte of the latest save of a part is changed: the part is read again, with a warning."""
    folder = root / "damaged"
    while not saved_parts(folder):  # the part may have ended before the processes did
        children = started(2, folder, root / "log")
        wait_until_saved(folder)
        kill(children)
        ended(children, 20)
    latest = saved_parts(folder)[0]
    data = bytearray(latest.read_bytes())
    data[-5] ^= 1
    latest.write_bytes(data)
    codes = ended(started(2, folder, root / "damaged"), 150)
    said = "".join(Path(f"{root}/damaged.{rank}").read_text() for rank in range(2))
    return {"same": (folder / "table.json").read_bytes() == whole, "codes": codes, "said": said}


def main() -> None:
    root = Path(sys.argv[1])
    torch.set_num_threads(1)
    began = time.monotonic()
    codes = ended(started(1, root / "whole", root / "log"), 100)
    assert codes == [0], (root / "log.0").read_text()
    seconds = time.monotonic() - began
    whole = (root / "whole" / "table.json").read_bytes()
    checks: list[Callable[[Path, bytes, float], dict[str, object]]] = [killed_and_resumed, one_dies, damaged]
    print(json.dumps({check.__name__: check(root, whole, seconds) for check in checks} | {"seconds": seconds}))


if __name__ == "__main__":
    main()
