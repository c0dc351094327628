"""`load_pretrained` reads folders that `save` wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from multihead.edit.surgery.record import record_of
from multihead.errors import MultiheadError
from multihead.sources.pretrained import load_pretrained
from multihead.store.save import save
from unit.store.cutting import drop, even, same_state, uneven
from zoo import ZOO


@pytest.mark.parametrize("keep", [even, uneven])
def test_a_cut_model_is_loaded(tmp_path: Path, keep: object) -> None:
    model = drop(ZOO["llama"].build(), keep)  # type: ignore[arg-type]
    save(model, tmp_path / "small")
    loaded = load_pretrained(str(tmp_path / "small"))
    assert same_state(loaded.model, model)
    assert type(loaded.model) is type(model)
    assert record_of(loaded.model) == record_of(model)
    assert (loaded.name, loaded.tokenizer) == ("small", None)


def test_in_the_dtype_that_was_asked_for(tmp_path: Path) -> None:
    save(drop(ZOO["llama"].build(), uneven), tmp_path / "small")
    loaded = load_pretrained(str(tmp_path / "small"), dtype="bfloat16").model
    assert {p.dtype for p in loaded.parameters()} == {torch.bfloat16}
    assert {b.dtype for b in loaded.buffers()} == {torch.float32}, "positions are not rounded"


def test_a_class_of_ones_own_cannot_be(tmp_path: Path) -> None:
    save(nn.Linear(3, 2), tmp_path / "small")
    with pytest.raises(MultiheadError, match="holds a model of class Linear, which transformers cannot"):
        load_pretrained(str(tmp_path / "small"))
