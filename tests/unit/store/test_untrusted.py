"""A folder from anywhere: what is wrong in it is said, nothing of it is run, pickle is not read."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import BertModel

from multihead.errors import MultiheadError
from multihead.store import tensors
from multihead.store.load import load
from multihead.store.save import save
from unit.store.cutting import drop, uneven
from zoo import ZOO


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("untrusted") / "a"
    save(drop(ZOO["bert"].build(), uneven), folder)
    return folder


@pytest.fixture
def copied(original: Path, tmp_path: Path) -> Path:
    for file in original.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def changed(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads((folder / "multihead.json").read_text())
    change(data)
    (folder / "multihead.json").write_text(json.dumps(data))


AT = "bert.encoder.layer.1.attention.self"
STEPS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"do": "exec", "at": "", "name": "x", "value": "1"}, r"there is no step 'exec'"),
    "no such module": ({"do": "set", "at": "bert.x", "name": "a", "value": 1}, r"has no module 'bert.x'"),
    "another shape": (
        {"do": "resize", "at": f"{AT}.query", "name": "weight", "value": [10**12, 24]},
        r"query.weight was to be made \[1000000000000, 24\], the stored one has \[16, 24\]",
    ),
    "a method": ({"do": "set", "at": AT, "name": "forward", "value": 1}, r"may not set .*self.forward"),
    "something private": ({"do": "set", "at": AT, "name": "__class__", "value": 1}, r"may not set .*__class__"),
    "a value of another kind": (
        {"do": "argument", "at": AT, "name": "x", "value": 7},
        r"may not argument .* by 7",
    ),
    "an unknown patch": ({"do": "patch", "at": AT, "name": "os", "value": {}}, r"unknown patch 'os'"),
    "a parameter that is none": (
        {"do": "resize", "at": AT, "name": "x", "value": [1]},
        r"do not fit BertForMaskedLM",
    ),
    "no shape": ({"do": "resize", "at": f"{AT}.key", "name": "weight", "value": "x"}, r"may not resize .* by 'x'"),
    "fields": ({"do": "set", "at": AT, "name": "x"}, r"is damaged: .* is no step"),
    "kinds of fields": ({"do": "set", "at": 3, "name": "x", "value": 1}, r"is damaged: .* is no step"),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_that_do_not_belong_to_the_model(copied: Path, name: str) -> None:
    step, said = STEPS[name]
    changed(copied, lambda data: data["cut"]["steps"].append(step))
    with pytest.raises(MultiheadError, match=said):
        load(copied)


def test_a_step_that_is_missing(copied: Path) -> None:
    def without(data: dict[str, Any]) -> None:
        data["cut"]["steps"] = [s for s in data["cut"]["steps"] if not s["at"].endswith("query")]

    changed(copied, without)
    with pytest.raises(
        MultiheadError, match=r"self.query.\w+ of BertForMaskedLM has shape .24.*, the stored one .16"
    ):
        load(copied)


MANIFESTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "format": (lambda d: d.pop("format"), "does not describe a saved model"),
    "version": (lambda d: d.update(version=99), "is of version 99 of the format, this multihead reads 1"),
    "class": (lambda d: d.update(model="system"), "has no model 'system'"),
    "class of another kind": (lambda d: d.update(model="AutoTokenizer"), "has no model 'AutoTokenizer'"),
    "class by path": (lambda d: d.update(model="os.system"), "has no model 'os.system'"),
    "weights elsewhere": (lambda d: d.update(weights="../../secret"), "damaged: weights in '../../secret'"),
    "no steps": (lambda d: d.update(cut={}), "its steps or its plan are missing"),
    "steps that are none": (lambda d: d["cut"].update(steps=[1]), "1 is no step"),
    "kinds": (lambda d: d.update(shared=[]), r"shared is \[\], not dict"),
    "a config that is none": (
        lambda d: d.update(config={"hidden_size": 25}),
        "BertForMaskedLM cannot be built with this config: The hidden size",
    ),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_description_that_is_none(copied: Path, name: str) -> None:
    change, said = MANIFESTS[name]
    changed(copied, change)
    with pytest.raises(MultiheadError, match=said):
        load(copied)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "\ud800".encode("utf-8", "surrogatepass").decode("latin1"), "[" * 10**5]
)
def test_a_description_that_is_no_json(copied: Path, text: str) -> None:
    (copied / "multihead.json").write_text(text, encoding="latin1")
    with pytest.raises(MultiheadError, match=r"multihead.json (is not JSON|is damaged)"):
        load(copied)


def test_weights_that_are_damaged(copied: Path) -> None:
    file = copied / "multihead.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(
        MultiheadError, match=r"multihead.safetensors is damaged: .*\n\nhint: .*pickle is never read"
    ):
        load(copied)
    file.unlink()
    with pytest.raises(MultiheadError, match=r"there is no multihead.safetensors in"):
        load(copied)


class Trap:
    def __reduce__(self) -> Any:
        return pytest.fail, ("pickle was read",)


def test_pickle_is_not_read(copied: Path) -> None:
    (copied / "multihead.safetensors").unlink()
    for name in ("pytorch_model.bin", "multihead.safetensors", "multihead.bin"):
        (copied / name).write_bytes(pickle.dumps(Trap()))
    with pytest.raises(MultiheadError, match="is damaged"):
        load(copied)


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/x.safetensors", "a/b.safetensors", "weights.bin"])
def test_weights_outside_of_the_folder(tmp_path: Path, monkeypatch: Any, name: str) -> None:
    monkeypatch.setattr(tensors, "LARGEST", 5000)
    save(ZOO["bert"].build(), tmp_path / "a")
    index = tmp_path / "a" / "model.safetensors.index.json"
    data = json.loads(index.read_text())
    data["weight_map"][next(iter(data["weight_map"]))] = name
    index.write_text(json.dumps(data))
    with pytest.raises(MultiheadError, match="which is no safetensors file of its folder"):
        load(tmp_path / "a")


REMOTE = """
import sys
sys.multihead_ran_remote_code = True
from transformers import BertModel
class Odd(BertModel):
    pass
"""


def test_code_of_the_folder_runs_only_where_it_is_trusted(tmp_path: Path, monkeypatch: Any) -> None:
    import sys

    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    save(BertModel(ZOO["bert"].build().config), tmp_path / "a")  # type: ignore[arg-type]

    def odd(data: dict[str, Any]) -> None:
        data["model"] = "Odd"
        config = json.loads((tmp_path / "a" / "config.json").read_text())
        data["config"] = config | {"auto_map": {"AutoModel": "odd_code.Odd"}}

    changed(tmp_path / "a", odd)
    (tmp_path / "a" / "odd_code.py").write_text(REMOTE)
    with pytest.raises(MultiheadError, match=r"Odd in .* is made by Python code of the folder \(odd_code.Odd\)"):
        load(tmp_path / "a")
    assert not hasattr(sys, "multihead_ran_remote_code")
    try:
        assert type(load(tmp_path / "a", trust_remote_code=True)).__name__ == "Odd"
        assert hasattr(sys, "multihead_ran_remote_code")
    finally:
        vars(sys).pop("multihead_ran_remote_code", None)
