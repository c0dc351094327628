"""The same documents and seed give the same numbers, in Python and on the command line, to the last bit."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

import multihead as mh
from multihead.cli import main
from multihead.measures.similarity import ov_circuits
from multihead.table.table import HeadTable

VOCABULARY = 41


def gpt2() -> Any:
    """The loss has no random draws."""
    sizes = {"n_layer": 2, "n_head": 3, "n_embd": 24, "n_positions": 23, "vocab_size": VOCABULARY}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, initializer_range=0.3))


def bert() -> Any:
    """Hidden states: importance draws random signs."""
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 29}
    return BertModel(BertConfig(**sizes, vocab_size=VOCABULARY, max_position_embeddings=23, initializer_range=0.3))


def documents() -> list[list[int]]:
    """47, of 1 to 40 tokens: some are longer than the models' positions, some are copies of earlier ones."""
    draw = torch.Generator().manual_seed(7)
    lengths = torch.randint(1, 41, (41,), generator=draw).tolist()
    made = [torch.randint(1, VOCABULARY, (n,), generator=draw).tolist() for n in lengths]
    for place, original in ((3, 1), (11, 1), (20, 19), (35, 2), (40, 0), (46, 45)):  # near by, and of another part
        made.insert(place, list(made[original]))
    return made


def measured(folder: Path, ids: Path, *options: object) -> HeadTable:
    """What the command line writes."""
    words = ["measure", folder, "--ids", ids, "--kinds", "--importance", "all", "--similarity", "--quiet", *options]
    out = folder.parent / "run"
    assert main([str(word) for word in (*words, "--force", "-o", out)]) == 0
    return HeadTable.load(out)


def built(build: Any) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = build().eval()
    return model


def in_python(model: nn.Module, data: Any, *, seed: int, batch_size: int) -> dict[str, HeadTable]:
    how = {"seed": seed, "batch_size": batch_size}
    return {
        "statistics": mh.measure(model, data, batch_size=batch_size),
        "kinds": mh.kinds(model, data, **how).table,
        "importance": mh.importance(model, data, method="all", **how).table,
        "similarity": mh.similarity(model, data, **how).table,
    }


@functools.cache
def tables_of(build: Any, *, seed: int, batch_size: int) -> dict[str, HeadTable]:
    """Of the model and all documents: several tests compare with them."""
    return in_python(built(build), documents(), seed=seed, batch_size=batch_size)


def differing(first: HeadTable, second: HeadTable) -> list[str]:
    """Columns of the first that the second has with other values."""
    assert first.heads == second.heads
    found: list[str] = []
    for name, values in first.columns.items():
        other = second.columns[name]
        if isinstance(values, torch.Tensor):
            assert isinstance(other, torch.Tensor), name
            equal = torch.equal(values.isnan(), other.isnan()) and torch.equal(
                values.nan_to_num(), other.nan_to_num()
            )
        else:
            equal = list(values) == list(other)
        found += [] if equal else [name]
    return found


@pytest.mark.fast("gpt2-8", "bert-3")
@pytest.mark.parametrize("batch_size", [8, 3])
@pytest.mark.parametrize("build", [gpt2, bert])
def test_python_and_the_command_line_give_the_same_numbers(build: Any, batch_size: int, tmp_path: Path) -> None:
    data = documents()
    built(build).save_pretrained(tmp_path / "model")  # type: ignore[operator]
    (tmp_path / "ids.json").write_text(json.dumps(data))
    written = measured(tmp_path / "model", tmp_path / "ids.json", "--seed", 5, "--batch-size", batch_size)
    tables = tables_of(build, seed=5, batch_size=batch_size)
    for name, table in tables.items():
        assert set(table.columns) <= set(written.columns), name
        assert differing(table, written) == [], name
    assert set(written.columns) == {column for table in tables.values() for column in table.columns}
    counts = tables["kinds"].about["kinds"]
    assert counts == written.about["stages"]["kinds"]["kinds"]
    pieces = [-(-len(document) // 23) for document in data]
    assert (counts["documents"] + counts["copies"], len(data)) == (sum(pieces), 47)
    assert counts["copies"] == sum(pieces[place] for place in (3, 11, 20, 35, 40, 46))


def test_also_where_weights_are_found_on_the_data_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some models cannot be run on an example that is made up: both run them on their first batch."""
    real = ov_circuits.anatomy

    def anatomy(model: nn.Module, *inputs: Any) -> Any:
        if not inputs:
            raise mh.MultiheadError("no example", hint="pass inputs")
        return real(model, *inputs)

    monkeypatch.setattr(ov_circuits, "anatomy", anatomy)
    model, data = gpt2().eval(), documents()
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "ids.json").write_text(json.dumps(data))
    written = measured(tmp_path / "model", tmp_path / "ids.json")
    table = mh.similarity(model, data).table
    assert not table["most_similar_write"].isnan().any()
    assert differing(table, written) == []


def test_another_seed_gives_other_draws() -> None:
    """Else the test above would say nothing about seeds."""
    model, data = built(bert), documents()
    first = tables_of(bert, seed=5, batch_size=3)
    again, other = (in_python(model, data, seed=seed, batch_size=3) for seed in (5, 6))
    for name in first:
        assert differing(first[name], again[name]) == []
    assert "driven_score" in differing(first["kinds"], other["kinds"])
    assert "importance" in differing(first["importance"], other["importance"])
    assert "ablation_zero" not in differing(first["importance"], other["importance"])


def test_a_list_a_generator_and_tensors_are_the_same_documents() -> None:
    model, data, whole = built(gpt2), documents(), tables_of(gpt2, seed=5, batch_size=8)
    for other in (tuple(data), [torch.tensor(document) for document in data]):
        for name, table in in_python(model, other, seed=5, batch_size=8).items():
            assert differing(table, whole[name]) == [], name
    once = {
        "kinds": mh.kinds(model, iter(data), seed=5).table,
        "importance": mh.importance(model, iter(data), method="all", seed=5).table,
        "similarity": mh.similarity(model, iter(data), seed=5).table,
    }
    for name, table in once.items():
        assert differing(table, whole[name]) == [], name
