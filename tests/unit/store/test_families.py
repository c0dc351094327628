"""save → load gives the same bits, and again the same bytes: every family of the zoo, cut and shared unevenly."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from multihead.edit.surgery.record import record_of
from multihead.store.load import load
from multihead.store.save import save
from unit.store.cutting import bytes_of, drop, equal, mixed, outputs, same_state
from zoo import COVERING, ZOO

pytestmark = pytest.mark.fast(*COVERING)


@pytest.mark.parametrize("name", ZOO)
def test_the_same_bits_come_back(tmp_path: Path, name: str) -> None:
    entry = ZOO[name]
    model = entry.build()
    given = entry.inputs(model)
    mixed(model, given)
    before = copy.deepcopy(model.state_dict())
    save(model, tmp_path / "a")
    assert equal(list(before.values()), list(model.state_dict().values())), "saving changes nothing"
    again = load(tmp_path / "a", model=None if hasattr(model, "config") else entry.build())
    assert type(again) is type(model)
    assert not again.training
    assert same_state(again, model)
    assert record_of(again) == record_of(model)
    assert record_of(again) is not None
    batches = [given, entry.padded(model)]
    for batch in batches:
        if batch is not None:
            assert equal(outputs(again, batch), outputs(model, batch))
    save(again, tmp_path / "b")
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")


@pytest.mark.parametrize("name", ["bert", "gpt2", "gpt-neo", "llama", "t5", "torch-encoder", "multihead"])
def test_a_layer_without_heads(tmp_path: Path, name: str) -> None:
    entry = ZOO[name]
    model = entry.build()
    given = entry.inputs(model)
    drop(model, lambda i, heads, group: [] if i == 1 else list(range(heads)), given)
    assert not save(model, tmp_path / "a").stock
    again = load(tmp_path / "a", model=None if hasattr(model, "config") else entry.build())
    assert same_state(again, model)
    assert equal(outputs(again, given), outputs(model, given))
