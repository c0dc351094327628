"""Runs the kill suite on one broken copy of the package after another; torch is imported once.

Reads lines [folder of the copy, [check, ...]] and answers each with a line check → what it says. Every copy is
loaded in a process of its own, forked from this one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
import unittest.mock

import jaxtyping
import torch
import torch.export
import torch.fx.experimental.symbolic_shapes
import torch.onnx
import torch.utils.checkpoint

LOADED = (jaxtyping, torch, unittest.mock)  # what a copy would load as well: half a second in each of them
PATIENCE = 60  # seconds


def answer(home: str, checks: list[str]) -> str:
    sys.path.insert(0, home)
    try:
        import kill_suite

        return json.dumps(kill_suite.main(checks))
    except Exception:  # noqa: BLE001  # a copy that does not even load
        return json.dumps({"loading": f"error: {traceback.format_exc(limit=-2)}"})


def main() -> None:
    for line in sys.stdin:
        home, checks = json.loads(line)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(PATIENCE)  # a mutant may loop for ever
            os.close(read)
            with os.fdopen(write, "w") as out:
                out.write(answer(home, checks))
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as said:
            print(said.read() or json.dumps({"running": f"error: killed, or over {PATIENCE} s"}), flush=True)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
