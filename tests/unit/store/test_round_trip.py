"""save → load gives the same bits: dtypes, ties, tables, classes of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import BertModel

import multihead as mh
from multihead.edit.sensitivity import output_distance
from multihead.edit.surgery.record import record_of, remember
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.model.pooling import Pooling, pooling_of
from multihead.store import tensors
from multihead.store.load import load
from multihead.store.save import save
from unit.model.encoder_folder import encoder_folder
from unit.store.cutting import bytes_of, drop, equal, even, outputs, same_state, uneven
from zoo import ZOO


@pytest.mark.parametrize("name", ["bert", "llama", "gemma"])
def test_a_model_that_was_not_cut_is_saved_too(tmp_path: Path, name: str) -> None:
    model = ZOO[name].build()
    saved = save(model, tmp_path / "a")
    assert (saved.stock, saved.reason) == (True, "transformers loads it")
    again = load(tmp_path / "a")
    assert same_state(again, model)
    assert record_of(again) is None


@pytest.mark.parametrize("name", ["bert", "llama", "gemma3", "gpt-j"])
def test_half_precision_stays_as_it_is(tmp_path: Path, name: str) -> None:
    """model.to() rounds also the tables of rotary positions; those that are not as a new model's are stored."""
    entry = ZOO[name]
    model = drop(entry.build(), uneven).to(torch.bfloat16)
    given = entry.inputs(model)
    save(model, tmp_path / "a")
    again = load(tmp_path / "a")
    assert {p.dtype for p in again.parameters()} == {torch.bfloat16}
    assert same_state(again, model)
    assert equal(outputs(again, given), outputs(model, given))
    save(again, tmp_path / "b")
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")
    # asked for in another dtype: the weights are, the tables of positions keep theirs
    wide = load(tmp_path / "a", dtype=torch.float64)
    assert {p.dtype for p in wide.parameters()} == {torch.float64}


def test_weights_of_several_dtypes_keep_theirs(tmp_path: Path) -> None:
    model = ZOO["llama"].build()
    model.model.layers[0].mlp.to(torch.bfloat16)  # type: ignore[union-attr,operator,index]
    save(model, tmp_path / "a")
    assert same_state(load(tmp_path / "a"), model)


@pytest.mark.parametrize("name", ["bert", "gpt2", "gemma", "t5", "bart"])
def test_tied_weights_stay_tied(tmp_path: Path, name: str) -> None:
    model = drop(ZOO[name].build(), uneven)
    save(model, tmp_path / "a")
    again = load(tmp_path / "a")
    tied = lambda m: [{n for n, q in m.named_parameters(remove_duplicate=False) if q is p} for p in m.parameters()]
    assert tied(again) == tied(model)
    assert max(map(len, tied(again))) > 1


def test_no_weight_is_stored_twice(tmp_path: Path) -> None:
    model = ZOO["gpt2"].build()
    save(model, tmp_path / "a")
    stored = sum(f.stat().st_size for f in (tmp_path / "a").glob("*.safetensors"))
    assert stored < sum(p.nbytes for p in model.parameters()) + 10_000


@pytest.mark.parametrize("keep", [even, uneven])
def test_large_models_are_stored_in_several_files(tmp_path: Path, monkeypatch: Any, keep: Any) -> None:
    model = drop(ZOO["llama"].build(), keep)
    monkeypatch.setattr(tensors, "MAX_FILE_BYTES", 10_000)
    saved = save(model, tmp_path / "a")
    stem = "model" if saved.stock else "multihead"
    files = sorted(p.name for p in (tmp_path / "a").glob("*.safetensors"))
    assert len(files) > 3
    assert files[0] == f"{stem}-00001-of-{len(files):05}.safetensors"
    assert all((tmp_path / "a" / f).stat().st_size < 10_000 + 5000 or f == files[0] for f in files)
    assert same_state(load(tmp_path / "a"), model)


def test_the_attention_function_is_kept(tmp_path: Path) -> None:
    model = drop(ZOO["llama"].build(), uneven)
    model.set_attn_implementation("eager")  # type: ignore[operator]
    given = ZOO["llama"].inputs(model)
    save(model, tmp_path / "a")
    again = load(tmp_path / "a")
    assert again.config._attn_implementation == "eager"  # type: ignore[union-attr]
    assert equal(outputs(again, given), outputs(model, given))


def test_how_to_generate_is_kept(tmp_path: Path) -> None:
    model = drop(ZOO["llama"].build(), uneven)
    model.generation_config.max_new_tokens = 5  # type: ignore[union-attr]
    save(model, tmp_path / "a")
    again = load(tmp_path / "a")
    ids = ZOO["llama"].inputs(model)["input_ids"]
    made = again.generate(ids, do_sample=False)  # type: ignore[operator]
    assert made.shape == (2, ids.shape[1] + 5)
    assert torch.equal(made, model.generate(ids, do_sample=False))  # type: ignore[operator]
    assert torch.equal(made, again.generate(ids, do_sample=False, use_cache=False))  # type: ignore[operator]


def test_a_model_in_training_is_left_in_training(tmp_path: Path) -> None:
    model = drop(ZOO["llama"].build(), even).train()
    config = model.config.to_json_string()  # type: ignore[union-attr,operator]
    assert save(model, tmp_path / "a").stock
    assert model.training
    assert model.config.to_json_string() == config  # type: ignore[union-attr,operator]
    assert not load(tmp_path / "a").training


def test_a_compiled_model_is_saved_as_itself(tmp_path: Path) -> None:
    model = drop(ZOO["bert"].build(), uneven)
    save(torch.compile(model), tmp_path / "a")  # type: ignore[arg-type]
    assert same_state(load(tmp_path / "a"), model)


def test_a_changed_table_is_stored(tmp_path: Path) -> None:
    model = ZOO["llama"].build()
    model.model.rotary_emb.inv_freq.mul_(0.5)  # type: ignore[union-attr,operator]
    save(model, tmp_path / "a")
    assert (tmp_path / "a" / "buffers.safetensors").is_file()
    assert same_state(load(tmp_path / "a"), model)
    save(ZOO["llama"].build(), tmp_path / "b")
    assert not (tmp_path / "b" / "buffers.safetensors").exists()


@pytest.mark.parametrize("mode", ["cls", "mean"])
def test_an_encoder_keeps_its_pooling(tmp_path: Path, mode: str) -> None:
    """Also without the files of sentence-transformers, and through a second save."""
    encoder_folder(tmp_path / "source", {"pooling_mode": mode})
    model = BertModel.from_pretrained(tmp_path / "source").eval()
    save(drop(model, uneven), tmp_path / "a")
    once = load(tmp_path / "a")
    assert once.config._name_or_path == str(tmp_path / "a")  # type: ignore[union-attr]
    save(once, tmp_path / "b")
    twice = load(tmp_path / "b")
    assert [pooling_of(m) for m in (once, twice)] == [Pooling((mode,))] * 2
    assert output_distance(twice, {"input_ids": torch.ones(2, 5).long()}).pooling == Pooling((mode,))
    assert str(tmp_path) not in (tmp_path / "b" / "config.json").read_text()


def test_the_plan_is_carried_along(tmp_path: Path) -> None:
    model = ZOO["gpt2"].build()
    texts = [[5 + (7 * i + j * j) % 90 for j in range(30)] for i in range(40)]
    small = mh.cut(model, mh.plan(model, texts, keep=0.5))
    save(small, tmp_path / "a")
    again = load(tmp_path / "a")
    record, own = record_of(again), record_of(small)
    assert record is not None
    assert own is not None
    assert record.steps == own.steps
    assert record.plan is not None
    assert [layer["keep"] for layer in record.plan["layers"]] == [x["keep"] for x in own.plan["layers"]]  # type: ignore
    assert same_state(again, small)
    given = ZOO["gpt2"].inputs(model)
    assert equal(outputs(again, given), outputs(small, given))


def test_a_plan_with_numbers_that_json_lacks(tmp_path: Path) -> None:
    model = ZOO["gpt2"].build()
    remember(model, [], {"scores": {"L0H0": float("nan"), "L0H1": float("inf")}, "pair": (1, 2.5)})
    save(model, tmp_path / "a")
    record = record_of(load(tmp_path / "a"))
    assert record is not None
    assert record.plan == {"scores": {"L0H0": None, "L0H1": None}, "pair": [1, 2.5]}
    remember(model, [], {"what": torch.ones(1)})
    with pytest.raises(MultiheadError, match=r"multihead.json cannot hold this: .*Tensor"):
        save(model, tmp_path / "b")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


# ---- models that transformers does not build --------------------------------------------------


class Toy(nn.Module):
    """A table that is made of a number given to it, and a tied weight."""

    def __init__(self, width: int, scale: float = 1.0) -> None:
        super().__init__()
        self.table = nn.Embedding(7, width)
        self.out = nn.Linear(width, 7, bias=False)
        self.out.weight = self.table.weight
        self.register_buffer("scale", torch.full((3,), scale), persistent=False)


def test_a_class_of_ones_own_needs_a_new_one(tmp_path: Path) -> None:
    model = Toy(5, scale=2.0)
    saved = save(model, tmp_path / "a")
    assert (saved.stock, saved.reason) == (False, "Toy is not a model of transformers")
    with pytest.raises(
        MultiheadError, match=r"holds a model of class Toy, which transformers cannot .*\n\nhint: .*model=Toy"
    ):
        load(tmp_path / "a")
    again = load(tmp_path / "a", model=Toy(5))
    assert same_state(again, model)
    assert again.out.weight is again.table.weight  # type: ignore[union-attr]


def test_a_new_one_of_other_sizes_is_refused(tmp_path: Path) -> None:
    save(Toy(5), tmp_path / "a")
    with pytest.raises(SizeError, match=r"table.weight of Toy has shape \(7, 6\), the stored one \(7, 5\)"):
        load(tmp_path / "a", model=Toy(6))
    with pytest.raises(
        MultiheadError, match=r"do not fit Linear: missing bias, weight; unknown out.weight, table.w"
    ):
        load(tmp_path / "a", model=nn.Linear(3, 3))


def test_a_model_that_others_changed_needs_a_new_one(tmp_path: Path) -> None:
    model = ZOO["bert"].build()
    model.bert.encoder.layer[0].intermediate.dense = nn.Linear(24, 17)  # type: ignore[union-attr,index]
    model.bert.encoder.layer[0].output.dense = nn.Linear(17, 24)  # type: ignore[union-attr,index]
    saved = save(model, tmp_path / "a")
    assert not saved.stock
    assert (
        "intermediate.dense.weight of BertForMaskedLM has shape (19, 24), the stored one (17, 24)" in saved.reason
    )


# ---- what cannot be saved ---------------------------------------------------------------------


def test_no_numbers_no_folder(tmp_path: Path) -> None:
    with pytest.raises(MultiheadError, match="weight is on the meta device"):
        save(nn.Linear(3, 2, device="meta"), tmp_path / "a")
    assert not any(tmp_path.iterdir())


def test_quantized_weights_are_refused(tmp_path: Path) -> None:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model = nn.Sequential(nn.Linear(32, 32))
    quantize_(model, Int8WeightOnlyConfig())
    with pytest.raises(TypeMismatchError, match=r"0.weight is a \w+, which safetensors cannot store"):
        save(model, tmp_path / "a")
    assert not any(tmp_path.iterdir())


def test_a_folder_is_kept_without_force(tmp_path: Path) -> None:
    save(Toy(5), tmp_path / "a")
    before = bytes_of(tmp_path / "a")
    with pytest.raises(MultiheadError, match="exists\n\nhint: force=True"):
        save(Toy(7), tmp_path / "a")
    assert bytes_of(tmp_path / "a") == before
    save(Toy(7), tmp_path / "a", force=True)
    assert load(tmp_path / "a", model=Toy(7)).table.weight.shape == (7, 7)  # type: ignore[union-attr]


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(MultiheadError, match="there is no folder"):
        load(tmp_path / "a")
    with pytest.raises(
        MultiheadError, match=r"there is no multihead.json in .*\n\nhint: mh.load reads folders that mh.save"
    ):
        load(tmp_path)


@pytest.mark.fast("gpt2")
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_a_model_with_a_layer_without_heads_is_read_by_everything(tmp_path: Path, name: str) -> None:
    model = ZOO[name].build()
    first, *others = mh.anatomy(model)
    texts = [[5 + (7 * i + j * j) % 90 for j in range(20)] for i in range(12)]
    save(mh.cut(model, mh.plan(model, texts, remove=first.site.names)), tmp_path / "a")
    again = load(tmp_path / "a")
    heads = sum(layer.num_heads for layer in others)
    assert sum(layer.num_heads for layer in mh.anatomy(again)) == heads
    assert mh.check(model, again, texts, rounds=0).metrics["heads"] == (heads + first.num_heads, heads)
    assert len(mh.measure(again, texts)) == heads
    assert mh.plan(again, texts, keep=0.5).heads == heads
    assert mh.report(again, texts).table is not None
