"""How much of a model a cut runs, and how often its structure is found and its weights are hashed."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

import multihead as mh
from multihead.edit import calibration
from multihead.edit.calibration import Calibration
from multihead.model import fingerprint

LAYERS = 4


def _model() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(n_layer=LAYERS, n_head=4, n_embd=24, vocab_size=50, initializer_range=0.3)
    return GPT2LMHeadModel(config).eval()


def _counted(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    own = getattr(owner, name)

    @wraps(own)
    def count(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return own(*args, **kwargs)

    monkeypatch.setattr(owner, name, count)
    return calls


def _sizes_of_maps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(weights, documents) of every linear map of a block that runs."""
    sizes: list[tuple[int, int]] = []
    own = Conv1D.forward

    def count(self: Conv1D, x: torch.Tensor) -> torch.Tensor:
        sizes.append((self.weight.numel(), x.shape[0]))
        return own(self, x)

    monkeypatch.setattr(Conv1D, "forward", count)
    return sizes


@pytest.mark.parametrize("remove", [["L0H1", "L1H0", "L2H3", "L3H2"], ["L2H0", "L2H1"]])
def test_a_cut_runs_every_map_a_few_times(remove: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model()
    data = [{"input_ids": torch.randint(50, (32, 31))} for _ in range(2)]
    text = Calibration(model, data, held_out=0.5)
    assert (len(list(text.fit())), len(list(text.held_out()))) == (1, 1)
    plan = mh.plan(model, text, remove=remove)
    sizes = _sizes_of_maps(monkeypatch)
    small: Any = mh.cut(model, plan)
    assert any(fit["kept"] for fit in small.multihead_cut.plan["fits"])
    whole = sum(p.numel() for name, p in model.named_parameters() if ".h." in name and p.ndim == 2)
    # Of both batches: the original 1; the cut model about 1 to each map. Of the held-out batch 2 to judge every
    # fit: without these tokens, and as it is written. Of the example: the writers 1, the places to start from 2,
    # and 1 to check the values that are fitted; the interception of a run repeats its first batch. It was 73.
    assert sum(size for size, _ in sizes) / whole <= 14.0
    assert sum(size for size, rows in sizes if rows > 2) / whole <= 7.5


def test_plan_cut_and_save_find_the_structure_once_and_hash_the_weights_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _model()
    texts = [[(7 * i + j * j) % 50 for j in range(40)] for i in range(40)]
    structures = _counted(calibration, "anatomy", monkeypatch)
    hashes = _counted(fingerprint, "_hash", monkeypatch)
    small = mh.cut(model, mh.plan(model, texts, keep=0.5))
    assert (len(structures), len(hashes)) == (1, 1)
    mh.save(small, tmp_path / "small")
    assert len(structures) == 1
    assert len(hashes) <= 2  # the original, and the cut model if its folder says what it holds
