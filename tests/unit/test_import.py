"""Importing does nothing else: no state of Python or torch is changed, and no module needs another first."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from typing import Any

import pytest

import multihead


def told(code: str) -> Any:
    """What a fresh interpreter prints, as JSON. Warnings are errors there."""
    environment = {**os.environ, "PYTHONWARNINGS": "error", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


STATE = """
import json, os, signal, sys, threading, warnings, logging, locale
import torch
import torch.distributed.tensor.parallel  # adds a filter of warnings itself: that is torch's
def state():
    return {
        "excepthook": sys.excepthook is sys.__excepthook__,
        "stdout": sys.stdout is sys.__stdout__,
        "warning filters": len(warnings.filters),
        "log handlers": len(logging.getLogger().handlers),
        "log level": logging.getLogger().level,
        "environment": sorted(os.environ),
        "signal": str(signal.getsignal(signal.SIGINT)),
        "threads": threading.active_count(),
        "directory": os.getcwd(),
        "path": sys.path,
        "dtype": str(torch.get_default_dtype()),
        "device": str(torch.get_default_device()),
        "grad": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "torch threads": torch.get_num_threads(),
        "random": int(torch.get_rng_state().sum()),
        "precision": torch.get_float32_matmul_precision(),
        "fused kernels": [torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()],
    }
before = state()
import multihead
for name in multihead.__all__:
    getattr(multihead, name)
after = state()
print(json.dumps({k: [before[k], after[k]] for k in before if before[k] != after[k]}))
"""


def test_nothing_changes_when_everything_is_loaded() -> None:
    assert told(STATE) == {}


def test_transformers_and_friends_stay_out() -> None:
    loaded = told(
        "import json, sys, multihead as mh\n"
        "for name in mh.__all__: getattr(mh, name)\n"
        "print(json.dumps(sorted({m.partition('.')[0] for m in sys.modules})))"
    )
    assert not {"transformers", "matplotlib", "peft", "flax", "beartype", "hypothesis", "pandas"} & set(loaded)


MODULES = sorted(m.name for m in pkgutil.walk_packages(multihead.__path__, "multihead."))


@pytest.mark.fast("corpus")
@pytest.mark.parametrize("folder", sorted({name.split(".")[1] for name in MODULES}))
def test_every_module_can_be_the_first_one(folder: str) -> None:
    """A circle of imports shows only from some starting points. One interpreter, forked for each.

    It imports everything once and forgets the modules of the package: a fork then loads these and nothing else.
    """
    wrong = told(
        "import importlib, json, os, sys\n"
        f"everything, names, wrong = {MODULES!r}, {[n for n in MODULES if n.split('.')[1] == folder]!r}, []\n"
        "for name in everything: importlib.import_module(name)\n"
        "for name in [m for m in sys.modules if m.partition('.')[0] == 'multihead']: del sys.modules[name]\n"
        "for name in names:\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        try: __import__(name)\n"
        "        except BaseException: os._exit(1)\n"
        "        os._exit(0)\n"
        "    if os.waitpid(child, 0)[1]: wrong.append(name)\n"
        "print(json.dumps(wrong))"
    )
    assert wrong == []


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_is_for(name: str) -> None:
    module = __import__(name, fromlist=["_"])
    assert module.__doc__, f"{name} has no docstring"
    first = module.__doc__.strip().splitlines()[0]
    assert first.endswith((".", ":"))
