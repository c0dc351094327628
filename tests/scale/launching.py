"""Two ways to start the ranks of a run: torchrun, and forks of a process that has imported torch already."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import warm

SOURCE = Path(__file__).parents[2] / "src"


def torchrun(target: Path | str, *words: object, ranks: int = 2, restarts: int = 0) -> CompletedProcess[str]:
    """Run a file, or a module by its name."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", ranks, "--max-restarts", restarts]
    launch += [
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "127.0.0.1:0",
        *(["-m"] if target == "multihead" else []),
    ]
    return subprocess.run(
        [*map(str, launch), str(target), *map(str, words)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SOURCE), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )


def forked(target: Path | str, *words: object, ranks: int = 2) -> CompletedProcess[str]:
    """The same without torchrun's own process: each rank finds the others by the variables that torchrun sets."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(ranks)}
    code = warm.COMMAND if target == "multihead" else warm.script(Path(target))
    running = [warm.start(code, *words, RANK=str(r), LOCAL_RANK=str(r), **meet) for r in range(ranks)]
    done = [rank.wait() for rank in running]
    failed = next((one.returncode for one in done if one.returncode), 0)
    out, err = ("".join(getattr(one, stream) for one in done) for stream in ("stdout", "stderr"))
    return CompletedProcess([], failed, out, err)
