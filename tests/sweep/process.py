"""One type per process, with limits of time and memory."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import warm

SECONDS = 40
"""Of the processor, so that a busy machine changes no verdict."""
LONGER = {"llama": 180}
"""Flex attention is compiled there."""
BYTES = 10 << 30
CODE = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[2]), int(sys.argv[2]) + 5))
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[3]), int(sys.argv[3])))
sys.path.insert(0, sys.argv[4])
import torch, transformers
torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
from sweep.checks import sweep
print("RESULT " + json.dumps(sweep(sys.argv[1], sys.argv[5:])))
"""


class Child:
    """The sweep of one type in a process of its own."""

    def __init__(self, model_type: str, checks: Iterable[str] = ()) -> None:
        seconds = LONGER.get(model_type, SECONDS)
        self.model_type, self.limit = model_type, 15 * seconds
        self.start = time.monotonic()
        tests = Path(__file__).parents[1]
        self.process = warm.start(CODE, model_type, seconds, BYTES, tests, *checks)

    @property
    def running(self) -> bool:
        return self.process.process.is_alive() and time.monotonic() - self.start < self.limit

    def result(self) -> dict[str, Any]:
        """Its verdicts; a process that died or took too long has none."""
        result: dict[str, Any] = {"type": self.model_type}
        try:
            done = self.process.wait(max(0.1, self.limit - (time.monotonic() - self.start)))
        except TimeoutError:
            return result | {"died": f"no result after {self.limit} s"}
        for line in done.stdout.splitlines():
            if line.startswith("RESULT "):
                return json.loads(line.removeprefix("RESULT "))
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
        return result | {"died": f"exit code {done.returncode}: {last[0][:300] if last else ''}"}


def sweep_all(types: Iterable[str], jobs: int, checks: Iterable[str] = ()) -> Iterator[dict[str, Any]]:
    """The verdicts of every type, as they come, `jobs` at a time."""
    waiting, running = list(types), list[Child]()
    checks = list(checks)
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(Child(waiting.pop(0), checks))
        time.sleep(0.05)
        for child in [c for c in running if not c.running]:
            running.remove(child)
            yield child.result()
