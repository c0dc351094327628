"""A folder from anywhere: what is wrong in it is said, nothing of it is run, pickle is not read."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from transformers import BertModel

from multihead.errors import MultiheadError, SizeError
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
    """Change multihead.json, and give it and all files the checksums of a folder that is not damaged."""
    data = json.loads((folder / "multihead.json").read_text())
    change(data)
    data["checksums"] = {name: sha256((folder / name).read_bytes()).hexdigest() for name in data["checksums"]}
    data.pop("checksum", None)
    data["checksum"] = sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    (folder / "multihead.json").write_text(json.dumps(data))


AT = "bert.encoder.layer.1.attention.self"
STEPS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"do": "exec", "at": "", "name": "x", "value": "1"}, r"unknown step 'exec'"),
    "no such module": ({"do": "set", "at": "bert.x", "name": "a", "value": 1}, r"has no module 'bert.x'"),
    "another shape": (
        {"do": "resize", "at": f"{AT}.query", "name": "weight", "value": [10**12, 24]},
        r"query.weight of BertForMaskedLM has shape \(1000000000000, 24\), the stored one \(16, 24\)",
    ),
    "a method": ({"do": "set", "at": AT, "name": "forward", "value": 1}, r"must not set BertSelfAttention.forward"),
    "something private": (
        {"do": "set", "at": AT, "name": "__class__", "value": 1},
        r"must not set BertSelfAttention.__class__",
    ),
    "a value of another kind": (
        {"do": "argument", "at": AT, "name": "x", "value": 7},
        r"value of step argument .* got 7",
    ),
    "an unknown patch": ({"do": "patch", "at": AT, "name": "os", "value": {}}, r"unknown patch 'os'"),
    "a parameter that is none": (
        {"do": "resize", "at": AT, "name": "x", "value": [1]},
        r"do not fit BertForMaskedLM",
    ),
    "no shape": (
        {"do": "resize", "at": f"{AT}.key", "name": "weight", "value": "x"},
        r"value of step resize .* got 'x'",
    ),
    "fields": ({"do": "set", "at": AT, "name": "x"}, r"is damaged: a step must be"),
    "kinds of fields": ({"do": "set", "at": 3, "name": "x", "value": 1}, r"is damaged: a step must be"),
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
    "an older version": (lambda d: d.update(version=1), "version 1 of the format .*reads version 2"),
    "version": (
        lambda d: d.update(version=99),
        r"version 99 of the format \(multihead .*\), this multihead reads version 2",
    ),
    "class": (lambda d: d.update(model="system"), "has no model 'system'"),
    "class of another kind": (lambda d: d.update(model="AutoTokenizer"), "has no model 'AutoTokenizer'"),
    "class by path": (lambda d: d.update(model="os.system"), "has no model 'os.system'"),
    "weights elsewhere": (
        lambda d: d.update(weights="../../secret"),
        "damaged: weights must be model or multihead, got '../../secret'",
    ),
    "no steps": (lambda d: d.update(cut={}), "its steps or its plan are missing"),
    "steps that are none": (lambda d: d["cut"].update(steps=[1]), "a step must be .* got 1"),
    "kinds": (lambda d: d.update(shared=[]), r"shared must be a dict, got \[\]"),
    "values of shared": (lambda d: d.update(shared={"a": [1]}), "shared must map names to texts"),
    "texts": (lambda d: d["cut"].update(plan={"texts": 5}), "its texts are not sketches"),
    "a text": (lambda d: d["cut"].update(plan={"texts": [{}]}), "its texts are not sketches"),
    "pooling": (lambda d: d.update(pooling=["median"]), "unknown pooling mode 'median'"),
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
    with pytest.raises(MultiheadError, match=r"multihead.json (is not JSON|must hold a JSON object)"):
        load(copied)


@pytest.mark.parametrize("kept", [0, 7, 8, 100, 3000, -100, -1])
def test_truncated_weights(copied: Path, kept: int) -> None:
    file = copied / "multihead.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(MultiheadError, match=r"multihead.safetensors is damaged: .*SHA-256"):
        load(copied)
    changed(copied, lambda _: None)
    with pytest.raises(MultiheadError, match=r"multihead.safetensors is damaged: .*\n\nhint: .*pickle is never"):
        load(copied)
    file.unlink()
    with pytest.raises(MultiheadError, match=r"there is no multihead.safetensors in"):
        load(copied)


@pytest.mark.parametrize("place", [20, 0.3, 0.999])
def test_a_flipped_bit_in_the_weights(copied: Path, place: float) -> None:
    file = copied / "multihead.safetensors"
    data = bytearray(file.read_bytes())
    data[int(place * len(data)) if place < 1 else int(place)] ^= 4
    file.write_bytes(data)
    with pytest.raises(MultiheadError, match=r"multihead.safetensors is damaged: .*SHA-256"):
        load(copied)


def test_a_flipped_bit_in_the_buffers(tmp_path: Path) -> None:
    model = ZOO["llama"].build()
    model.model.rotary_emb.inv_freq.mul_(0.5)  # type: ignore[union-attr,operator]
    save(model, tmp_path / "a")
    file = tmp_path / "a" / "buffers.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    with pytest.raises(MultiheadError, match=r"buffers.safetensors is damaged: .*SHA-256"):
        load(tmp_path / "a")


@pytest.mark.parametrize("text", ["[]", "[" * 100_000, "{"])
def test_a_generation_config_that_is_none(tmp_path: Path, text: str) -> None:
    save(ZOO["llama"].build(), tmp_path / "a")
    (tmp_path / "a" / "generation_config.json").write_text(text)
    changed(tmp_path / "a", lambda data: None)
    with pytest.raises(MultiheadError, match=r"generation_config.json (is not JSON|must hold a JSON object)"):
        load(tmp_path / "a")


def test_a_changed_config(copied: Path) -> None:
    """Another activation fits every shape, and computes something else."""
    file = copied / "config.json"
    text = file.read_text()
    assert '"hidden_act": "gelu"' in text
    file.write_text(text.replace('"hidden_act": "gelu"', '"hidden_act": "relu"'))
    with pytest.raises(MultiheadError, match=r"config.json is damaged: .*SHA-256"):
        load(copied)


def test_a_changed_digit_in_the_description(copied: Path) -> None:
    file = copied / "multihead.json"
    text = file.read_text()
    assert '"value": [16, 24]' in text
    file.write_text(text.replace('"value": [16, 24]', '"value": [17, 24]', 1))
    with pytest.raises(MultiheadError, match=r"multihead.json is damaged: its checksum"):
        load(copied)


@pytest.mark.parametrize("where", ["a step", "the config"])
def test_sizes_that_contradict_the_weights(copied: Path, where: str) -> None:
    """All shapes fit; the model would fail when it is run."""

    def contradict(data: dict[str, Any]) -> None:
        if where == "a step":
            step = {"do": "set", "at": AT, "name": "attention_head_size", "value": 7}
            data["cut"]["steps"].append(step)
        else:
            data["config"] = json.loads((copied / "config.json").read_text()) | {"num_attention_heads": 2}

    changed(copied, contradict)
    with pytest.raises(SizeError, match=r"BertForMaskedLM in .* has sizes that do not fit its weights"):
        load(copied)


def test_an_error_names_the_versions_that_differ(copied: Path) -> None:
    def later(data: dict[str, Any]) -> None:
        data["versions"]["transformers"] = "99.1"
        data["cut"]["steps"].append({"do": "turn", "at": "", "name": "x", "value": 1})

    changed(copied, later)
    with pytest.raises(MultiheadError, match=r"unknown step 'turn' .*saved with transformers 99.1, this is \d"):
        load(copied)


class Trap:
    def __reduce__(self) -> Any:
        return pytest.fail, ("pickle was read",)


def test_pickle_is_not_read(copied: Path) -> None:
    (copied / "multihead.safetensors").unlink()
    for name in ("pytorch_model.bin", "multihead.safetensors", "multihead.bin"):
        (copied / name).write_bytes(pickle.dumps(Trap()))
    changed(copied, lambda _: None)
    with pytest.raises(MultiheadError, match="is damaged"):
        load(copied)


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/x.safetensors", "a/b.safetensors", "weights.bin"])
def test_weights_outside_of_the_folder(tmp_path: Path, monkeypatch: Any, name: str) -> None:
    monkeypatch.setattr(tensors, "MAX_FILE_BYTES", 5000)
    save(ZOO["bert"].build(), tmp_path / "a")
    index = tmp_path / "a" / "model.safetensors.index.json"
    data = json.loads(index.read_text())
    data["weight_map"][next(iter(data["weight_map"]))] = name
    index.write_text(json.dumps(data))
    changed(tmp_path / "a", lambda _: None)
    with pytest.raises(MultiheadError, match="must be a safetensors file in its folder"):
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
        data["model"], data["origin"] = "Odd", "auto_map"
        config = json.loads((tmp_path / "a" / "config.json").read_text())
        data["config"] = config | {"auto_map": {"AutoModel": "odd_code.Odd"}}

    changed(tmp_path / "a", odd)
    (tmp_path / "a" / "odd_code.py").write_text(REMOTE)
    with pytest.raises(MultiheadError, match=r"Odd needs the Python code in .* \(odd_code.Odd\)"):
        load(tmp_path / "a")
    assert not hasattr(sys, "multihead_ran_remote_code")
    try:
        assert type(load(tmp_path / "a", trust_remote_code=True)).__name__ == "Odd"
        assert hasattr(sys, "multihead_ran_remote_code")
        (tmp_path / "a" / "odd_code.py").unlink()
        with pytest.raises(MultiheadError, match=r"the Python code of Odd \(odd_code.Odd\) does not load"):
            load(tmp_path / "a", trust_remote_code=True)
    finally:
        vars(sys).pop("multihead_ran_remote_code", None)


class _Tokenizer:
    """Writes two files, one of them in a folder."""

    def save_pretrained(self, folder: Path) -> None:
        (folder / "vocab.txt").write_text("[PAD]\nthe\nhead\n")
        (folder / "words").mkdir()
        (folder / "words" / "more.json").write_text("[1, 2]")


@pytest.mark.parametrize("name", ["vocab.txt", "words/more.json", "generation_config.json"])
def test_every_file_that_was_saved_is_checked(tmp_path: Path, name: str) -> None:
    """A model that gets the ids of other words computes nonsense, and no weight is wrong."""
    save(ZOO["gpt2"].build(), tmp_path / "a", tokenizer=_Tokenizer())
    load(tmp_path / "a")
    file = tmp_path / "a" / name
    file.write_bytes(file.read_bytes()[:-2] + b"?\n")
    with pytest.raises(MultiheadError, match=rf"{name} is damaged: .*SHA-256"):
        load(tmp_path / "a")
    file.unlink()
    with pytest.raises(MultiheadError, match=f"there is no {name} in"):
        load(tmp_path / "a")


def test_checksums_are_of_files_in_the_folder(copied: Path) -> None:
    data = json.loads((copied / "multihead.json").read_text())
    data.pop("checksum")
    data["checksums"]["../secret"] = ""
    data["checksum"] = sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    (copied / "multihead.json").write_text(json.dumps(data))
    with pytest.raises(MultiheadError, match=r"names '\.\./secret', which must be inside"):
        load(copied)
