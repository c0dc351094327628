"""Wrong arguments of save and load get an error that names them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import multihead as mh
from multihead.errors import MultiheadError

WRONG: dict[str, tuple[Callable[[Any, Path], object], str]] = {
    "save None": (lambda m, out: mh.save(None, out), "model must be a torch.nn.Module, got None"),  # type: ignore
    "save a name": (lambda m, out: mh.save("gpt2", out), "model must be a .*Module, got the str 'gpt2'"),  # type: ignore
    "save a state dict": (lambda m, out: mh.save(m.state_dict(), out), "model must be a .*Module"),
    "save the class": (lambda m, out: mh.save(nn.Linear, out), "got the class Linear"),  # type: ignore[arg-type]
    "save to None": (lambda m, out: mh.save(m, None), "folder must be the path of a folder, got None"),  # type: ignore
    "save to a number": (lambda m, out: mh.save(m, 3), "folder must be the path of a folder, got the int 3"),  # type: ignore
    "save with force=1": (lambda m, out: mh.save(m, out, force=1), "force must be True or False, got 1"),  # type: ignore
    "save with a name of a tokenizer": (
        lambda m, out: mh.save(m, out, tokenizer="gpt2"),
        "tokenizer must have save_pretrained, got the str 'gpt2'",
    ),
    "save with a source that is a model": (lambda m, out: mh.save(m, out, source=m), "source must be the path"),
    "load None": (lambda m, out: mh.load(None), "folder must be the path of a folder, got None"),  # type: ignore
    "load a model": (lambda m, out: mh.load(m), "folder must be the path of a folder, got the Linear"),
    "load a file": (lambda m, out: mh.load(__file__), "is a file"),
    "load into a name": (lambda m, out: mh.load(out, model="Linear"), "model must be a torch.nn.Module or None"),  # type: ignore
    "an unknown device": (lambda m, out: mh.load(out, model=m, device="gpu"), "device='gpu' cannot be used"),
    "a device that is not here": (lambda m, out: mh.load(out, model=m, device="cuda:77"), "device='cuda:77'"),
    "no device": (lambda m, out: mh.load(out, model=m, device=None), "device must be a device, got None"),  # type: ignore
    "a device without values": (
        lambda m, out: mh.load(out, model=m, device="meta"),
        "device must hold values, got 'meta'",
    ),
    "a device by number": (
        lambda m, out: mh.load(out, model=m, device=0),
        "device must be a device, got the int 0",
    ),  # type: ignore
    "a dtype to store in": (
        lambda m, out: mh.load(out, model=m, dtype=torch.float8_e4m3fn),
        "dtype must be one that models compute in, got torch.float8_e4m3fn",
    ),
    "a name with a null character": (lambda m, out: mh.save(m, f"{out}\0"), "or hold a null character, got"),
    "an empty name": (lambda m, out: mh.save(m, ""), "folder must not be empty .*, got ''"),
    "a meta device": (
        lambda m, out: mh.load(out, device=torch.device("meta", 0)),
        "must hold values, got 'meta:0'",
    ),
    "load a long name": (lambda m, out: mh.load("a" * 5000), "the folder aaa.* cannot be read: File name too long"),
    "a long name": (lambda m, out: mh.save(m, f"{out}{'a' * 300}"), "File name too long"),
    "a dtype by name": (
        lambda m, out: mh.load(out, model=m, dtype="float16"),  # type: ignore[arg-type]
        "dtype must be a floating-point torch.dtype, got 'float16'",
    ),
    "a dtype of integers": (
        lambda m, out: mh.load(out, model=m, dtype=torch.int8),
        "dtype must be a floating-point",
    ),
    "trust by name": (
        lambda m, out: mh.load(out, model=m, trust_remote_code="yes"),  # type: ignore[arg-type]
        "trust_remote_code must be True or False",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use(tmp_path: Path, name: str) -> None:
    call, message = WRONG[name]
    with pytest.raises(MultiheadError, match=message):
        call(nn.Linear(3, 2), tmp_path / "out")
    assert not any(tmp_path.iterdir())
