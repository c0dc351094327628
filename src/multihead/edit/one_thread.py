"""One thread at a time works on a model.

A plan and a cut hang hooks into the model, freeze its parameters for a while, and copy it. A second thread that
used it meanwhile would copy the hooks, or leave the parameters frozen.

>>> import torch
>>> from multihead.edit.one_thread import one_thread
>>> model = torch.nn.Linear(3, 2)
>>> with one_thread(model), one_thread(model):           # the same thread may enter again
...     model.in_features
3
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock, RLock
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

from multihead.model.compiled import inner

_locks: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()
_lock = Lock()
"""of `_locks`"""


@contextmanager
def one_thread(model: nn.Module) -> Generator[None]:
    """Only one thread may be inside the block; the others wait in front of it."""
    with _lock:
        lock = _locks.setdefault(inner(model), RLock())
    with lock:
        yield
