"""Plans: what they say, how they are edited, whose they are, and what is refused before any work."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AlbertConfig, AlbertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import multihead as mh
from multihead.edit.calibration import Calibration
from multihead.edit.layer_plan import LayerPlan
from multihead.edit.make_plan import plan
from multihead.edit.plan import Plan
from multihead.edit.weight_sets import weight_sets
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.model.fingerprint import fingerprint


def gpt2(seed: int = 0) -> GPT2LMHeadModel:
    torch.manual_seed(seed)
    config = GPT2Config(n_layer=2, n_head=6, n_embd=42, vocab_size=53, n_positions=31, initializer_range=0.3)
    return GPT2LMHeadModel(config).eval()


def llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=3, hidden_size=30, head_dim=10,
                    intermediate_size=34, vocab_size=53, max_position_embeddings=64)
    ).eval()  # fmt: skip


def ids(count: int = 23, length: int = 19) -> list[list[int]]:
    drawn = torch.randint(1, 53, (count, length), generator=torch.Generator().manual_seed(3))
    return drawn.tolist()


# ---- one layer --------------------------------------------------------------------------------


def test_a_layer_counts_its_kv_heads() -> None:
    layer = LayerPlan("L0", "x", 6, 3, (0, 1, 5))
    assert layer.removed == (2, 3, 4)
    assert layer.kv_of_head == (0, 0, 1, 1, 2, 2)
    assert layer.kv_after == 2, "no kept head reads kv head 1"
    assert replace(layer, kv_of_head=(0, 1, 2, 2, 2, 0)).kv_after == 2
    assert replace(layer, groups=((0, 5), (1,))).kv_after == 2
    assert layer.changes
    assert not LayerPlan("L0", "x", 6, 3, tuple(range(6))).changes
    assert LayerPlan("L0", "x", 6, 3, tuple(range(6)), groups=((0, 1, 2, 3), (4, 5))).changes
    assert not LayerPlan("L0", "x", 6, 3, tuple(range(6)), groups=((0, 1), (2, 3), (4, 5))).changes
    assert LayerPlan("L0", "x", 6, 3, ()).kv_after == 0


@pytest.mark.parametrize(
    "given, text",
    [
        ({"keep": (0, 6)}, "keep of L3 must be different heads of its 6, got [0, 6]"),
        ({"keep": (1, 1)}, "keep of L3 must be different heads of its 6, got [1, 1]"),
        ({"keep": (0, 1), "groups": ((0,),)}, "groups of L3 must contain the kept heads [0, 1], got [0]"),
        ({"keep": (0, 1), "groups": ((0, 1), (1,))}, "got [0, 1, 1]"),
        ({"keep": (0, 1), "groups": ((0, 1), ())}, "groups of L3 must not be empty, got [(0, 1), ()]"),
        ({"keep": (0, 1), "kv_of_head": (0, 1, 2)}, "kv_of_head of L3 must be 6 of the 6 kv heads, got [0, 1, 2]"),
        ({"keep": (0, 1), "kv_of_head": (0, 1, 2, 3, 4, 6)}, "kv_of_head of L3 must be 6 of the 6 kv heads"),
    ],
)
def test_a_layer_that_cannot_be(given: dict[str, Any], text: str) -> None:
    with pytest.raises(SizeError) as said:
        LayerPlan("L3", "x", 6, 6, **given)
    assert text in str(said.value)


# ---- the whole --------------------------------------------------------------------------------


def test_removing_by_name_prints_what_goes() -> None:
    made = plan(gpt2(), remove=["L0H4", "1.2", (1, 5)])
    assert [x.keep for x in made.layers] == [(0, 1, 2, 3, 5), (0, 1, 3, 4)]
    assert (made.kept, made.heads, made.changes) == (9, 12, True)
    assert str(made).splitlines() == [
        "GPT2LMHeadModel: 9 of 12 heads kept (request: remove L0H4, L1H2, L1H5)",
        "layer  heads  removed",
        "L0     6 → 5  H4",
        "L1     6 → 4  H2, H5",
    ]
    assert repr(made) == str(made)


def test_scores_say_why() -> None:
    made = plan(gpt2(), remove=["L0H4", "L0H1"])
    told = str(replace(made, scores={f"L0H{h}": 1.5 * (6 - h) for h in range(6)}, notes=("mind the gap",)))
    assert "L0     6 → 4  H4 (3), H1 (7.5)  H5 (1.5)" in told, "cheapest first"
    assert "L1     6      –" in told
    assert told.endswith("\nnote: mind the gap")


def test_nothing_asked_for_changes_nothing() -> None:
    with pytest.warns(UserWarning, match=r"the plan changes nothing: it keeps 12 of 12 heads \(remove nothing\)"):
        made = plan(gpt2(), remove=[])
    assert not made.changes
    assert "the plan changes nothing" in str(made)
    with pytest.warns(UserWarning, match=r"the plan changes nothing: it keeps 12 of 12 heads \(keep=1\)"):
        plan(gpt2(), ids(), keep=1.0, method="random")


def test_edit_by_hand() -> None:
    first = plan(gpt2(), remove=["L0H4", "L1H2"])
    made = first.edit(remove=["L1H0"], keep="L0H4")
    assert [x.keep for x in made.layers] == [(0, 1, 2, 3, 4, 5), (1, 3, 4, 5)]
    assert made.request == "remove L0H4, L1H2, then by hand"
    assert made.edit(keep=["L1H0"]).request == made.request, "said once"
    assert first["L1"].removed == (2,), "the first is as it was"
    grouped = made.edit(groups={"L1": [[1, 5], [3, 4]]})
    assert grouped["L1"].groups == ((1, 5), (3, 4))
    assert grouped.kv_kept == 6 + 2
    assert "{1 5} {3 4}" in str(grouped)
    assert grouped.edit(remove=["L1H3", "L1H4"])["L1"].groups == ((1, 5),), "a group without members is gone"


@pytest.mark.parametrize(
    "given, text",
    [
        ({"remove": ["L0H6"]}, "L0 has 6 heads, got head 6"),
        ({"remove": ["L2H0"]}, "unknown layer in 'L2H0'"),
        ({"remove": ["seven"]}, "'seven' is not a head name"),
        ({"remove": ["L0H1"], "keep": ["0.1"]}, "L0H1 must be in remove or in keep, got both"),
        ({"groups": {"L7": [[0]]}}, "unknown layer 'L7'\n\nhint: the plan has L0, L1"),
        ({"remove": 5}, "remove must be names of heads, got the int 5"),
        ({"keep": None}, "keep must be names of heads, got None"),
        ({"groups": 5}, "groups must be a dict or None, got the int 5"),
        ({"groups": [[0, 1]]}, "groups must be a dict or None, got the list"),
        ({"groups": {"L0": 5}}, "groups of L0 must be a list of lists of heads, got the int 5"),
        ({"groups": {"L0": [5]}}, "groups of L0 must be a sequence of integers, got 5"),
        ({"groups": {"L0": [[0.5, 1]]}}, "groups of L0 must be integers, got 0.5"),
        ({"groups": {"L0": [[], [0, 1, 2, 3, 4, 5]]}}, "groups of L0 must not be empty"),
        ({"groups": {"L0": [[0, 1]]}}, "groups of L0 must contain the kept heads [0, 1, 2, 3, 4, 5], got [0, 1]"),
    ],
)
def test_edits_that_cannot_be(given: dict[str, Any], text: str) -> None:
    with pytest.raises((SizeError, TypeMismatchError)) as said:
        plan(gpt2(), remove=[]).edit(**given)
    assert text in str(said.value)


def test_a_head_that_comes_back_needs_a_group() -> None:
    made = plan(gpt2(), remove=["L0H0"]).edit(groups={"L0": [[1, 2], [3, 4, 5]]})
    with pytest.raises(SizeError, match="L0H0 must be in a group"):
        made.edit(keep="L0H0")
    back = made.edit(keep="L0H0", groups={"L0": [[0, 1, 2], [3, 4, 5]]})
    assert back["L0"].keep == tuple(range(6))


# ---- files, and whose it is -------------------------------------------------------------------


def test_json_there_and_back(tmp_path: Path) -> None:
    made = plan(gpt2(), remove=["L0H4"]).edit(groups={"L1": [[0, 1, 2], [3, 4, 5]]})
    made = replace(made, scores={"L0H4": 0.25}, notes=("a",), method="obs")
    made.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == made
    assert json.loads((tmp_path / "plan.json").read_text())["layers"][0]["keep"] == [0, 1, 2, 3, 5]


@pytest.mark.parametrize(
    "text, said",
    [
        ("{", "plan.json is not JSON"),
        ("[1]", "plan.json must hold a JSON object, got [1]"),
        ("[" * 100_000, "plan.json is not JSON"),
        ("9" * 5000, "plan.json is not JSON"),
        ("{}", "format 'multihead plan' and version 3, got None and None"),
        ('{"format": "multihead plan", "version": 1}', "version 3, got 'multihead plan' and 1"),
        ('{"format": "multihead plan", "version": 3}', "the plan has no 'layers'"),
        (
            '{"format": "multihead plan", "version": 3, "layers": 3}',
            "layers must be a list of layers, got the int 3",
        ),
    ],
)
def test_files_that_are_no_plan(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(MultiheadError) as wrong:
        Plan.load(tmp_path / "plan.json")
    assert said in str(wrong.value)


def _layer(**change: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["layers"][0].update(change)


@pytest.mark.parametrize(
    "change, text",
    [
        (_layer(keep=[0, 1.5]), "keep of L0 must be integers, got 1.5"),
        (_layer(keep=[0, 2.0]), "keep of L0 must be integers, got 2.0"),
        (_layer(keep=[0, True]), "keep of L0 must be integers, got True"),
        (_layer(keep=1.5), "keep of L0 must be a sequence of integers, got 1.5"),
        (_layer(keep=[0, 0]), "keep of L0 must be different heads of its 6, got [0, 0]"),
        (_layer(keep=[0, 6]), "keep of L0 must be different heads of its 6, got [0, 6]"),
        (_layer(keep=[-1]), "keep of L0 must be different heads of its 6, got [-1]"),
        (_layer(heads=5.5), "heads of L0 must be an integer, got 5.5"),
        (_layer(kv_heads="6"), "kv_heads of L0 must be an integer, got '6'"),
        (_layer(groups=[[0, 1, 2.5]]), "groups of L0 must be integers, got 2.5"),
        (_layer(kv_of_head=[0, 1]), "kv_of_head of L0 must be 6 of the 6 kv heads, got [0, 1]"),
        (_layer(name="L1"), "a plan must name every layer once, got 'L1' twice"),
        (
            _layer(path="transformer.h.1.attn"),
            "a plan must name every layer once, got 'transformer.h.1.attn' twice",
        ),
        (
            lambda data: data["layers"].append(data["layers"][0]),
            "a plan must name every layer once, got 'L0' twice",
        ),
        (lambda data: data["layers"][0].pop("keep"), "the plan has no 'keep'"),
        (_layer(kept=[0]), "layer L0 of the plan has an unknown field 'kept'"),
        (_layer(groups=5), "groups of L0 must be a list of lists of heads, got the int 5"),
        (_layer(groups=[[], [0, 1, 2, 3, 5]]), "groups of L0 must not be empty"),
        (_layer(name=None), "the name of a layer must be a text, got None"),
        (_layer(path=7), "path of L0 must be a text, got the int 7"),
        (_layer(heads=10**12, kv_of_head=[]), "heads of L0 must be at most 1048576, got 1000000000000"),
        (lambda data: data.update(request=None), "request must be a text, got None"),
        (lambda data: data.update(notes="a"), "notes must be a list of texts, got the str 'a'"),
        (
            lambda data: data.update(scores={"L0H1": "dear"}),
            "the score of L0H1 must be a number, got the str 'dear'",
        ),
        (lambda data: data.update(scores={"L0H1": None}), "the score of L0H1 must be a number, got None"),
    ],
)
def test_plans_with_wrong_values(tmp_path: Path, change: Callable[[dict[str, Any]], Any], text: str) -> None:
    data = plan(gpt2(), remove=["L0H4"]).to_json()
    change(data)
    (tmp_path / "plan.json").write_text(json.dumps(data))
    with pytest.raises(MultiheadError) as wrong:
        Plan.load(tmp_path / "plan.json")
    assert text in str(wrong.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(MultiheadError, match=r"there is no nowhere\.json in"):
        Plan.load(tmp_path / "nowhere.json")
    with pytest.raises(MultiheadError, match="cannot be read: Is a directory"):
        Plan.load(tmp_path)
    for path in (None, 3):
        with pytest.raises(TypeMismatchError, match="path must be the path of a file, got"):
            Plan.load(path)  # type: ignore[arg-type]
    for data in (None, [], "{}"):
        with pytest.raises(TypeMismatchError, match="data must be the object of a plan file, got"):
            Plan.from_json(data)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["", ".", "nowhere/plan.json", "file/plan.json", "a\0b", "a" * 300])
def test_files_that_cannot_be_written(tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(MultiheadError, match="the plan was not written to"):
        plan(gpt2(), remove=["L0H1"]).save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "change, text",
    [
        (_layer(name="L7"), "the layers of the plan must be L0, L1, got L7, L1"),
        (lambda data: data.update(layers=[]), "the layers of the plan must be L0, L1, got none"),
        (lambda data: data["layers"].pop(), "the layers of the plan must be L0, L1, got L0"),
        (lambda data: data["layers"].reverse(), "the layers of the plan must be L0, L1, got L1, L0"),
        (_layer(path="nowhere"), "path of L0 must be model.layers.0.self_attn, the model's, got nowhere"),
        (_layer(kv_heads=2, kv_of_head=[0, 0, 0, 1, 1, 1]), "kv_heads of L0 must be 3, the model's, got 2"),
        (_layer(kv_of_head=[0, 1, 2, 0, 1, 2]), "kv_of_head of L0 must be (0, 0, 1, 1, 2, 2), the model's, got"),
        (_layer(times_used=2), "times_used of L0 must be 1, the model's, got 2"),
        (_layer(numbers=[0, 1, 2, 3, 4, 6]), "numbers of L0 must be (0, 1, 2, 3, 4, 5), the model's, got"),
        (
            _layer(heads=5, kv_of_head=[0, 0, 1, 1, 2], keep=[0], numbers=[0, 1, 2, 3, 4]),
            "heads of L0 must be 6, the model's, got 5",
        ),
    ],
)
def test_plans_of_other_layers_are_not_cut(change: Callable[[dict[str, Any]], Any], text: str) -> None:
    model = llama()
    data = plan(model, remove=["L0H4"]).to_json()
    change(data)
    with pytest.raises(SizeError) as wrong:
        mh.cut(model, Plan.from_json(data), refit=False)
    assert text in str(wrong.value)


def test_a_plan_is_for_the_weights_it_was_made_for() -> None:
    mine, other = gpt2(0), gpt2(1)
    made = plan(mine, remove=["L0H4"])
    made.check(gpt2(0))
    with pytest.raises(MultiheadError) as said:
        made.check(other)
    assert (
        f"with fingerprint {fingerprint(mine)}, got GPT2LMHeadModel with fingerprint {fingerprint(other)}"
        in str(said.value)
    )
    with torch.no_grad():
        mine.transformer.h[0].attn.c_attn.weight[0, 0] += 1e-3
    with pytest.raises(MultiheadError, match="the plan is for"):
        made.check(mine)
    with pytest.raises(TypeMismatchError, match=r"model must be .* got None"):
        made.check(None)  # type: ignore[arg-type]


def test_layers_that_share_weights_are_one() -> None:
    torch.manual_seed(0)
    config = AlbertConfig(num_hidden_layers=3, num_attention_heads=2, hidden_size=14, intermediate_size=11,
                          embedding_size=5, vocab_size=53)  # fmt: skip
    model = AlbertModel(config).eval()
    assert [len(same) for same in weight_sets(mh.anatomy(model))] == [3]
    made = plan(model, remove=["L0H1"])
    assert (made.heads, made.kept, made["L0"].times_used) == (2, 1, 3)
    assert "L0 ×3  2 → 1  H1" in str(made)


# ---- asking -----------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0.0, -0.5, 1.01])
def test_keep_outside_of_its_range(keep: float) -> None:
    with pytest.raises(SizeError, match=r"keep must be in \(0, 1\], got"):
        plan(gpt2(), ids(), keep=keep)


@pytest.mark.parametrize(
    "given, text",
    [
        ({}, "nothing is requested"),
        (
            {"keep": 0.5, "remove": ["L0H1"]},
            "only one of keep, remove and budget may be given, got keep and remove",
        ),
        ({"keep": 0.5, "budget": "flops=0.5"}, "got keep and budget"),
        ({"keep": 0.5, "min_heads": -1}, "min_heads must be at least 0, got -1"),
        ({"keep": 0.5, "multiple_of": 0}, "multiple_of must be at least 1, got 0"),
        ({"keep": 0.5, "uniform": "yes"}, "uniform must be True or False, got 'yes'"),
        ({"keep": "half"}, "keep must be a number, got 'half'"),
        ({"keep": True}, "keep must be a number, got True"),
        ({"keep": float("nan")}, "keep must be finite, got nan"),
        ({"keep": float("inf")}, "keep must be finite, got inf"),
        ({"budget": 0.5}, "budget must be a text such as 'flops=0.8', got the float 0.5"),
        ({"kv_heads": 2.0}, "kv_heads must be an integer, got 2.0"),
        ({"kv_heads": 0}, "kv_heads must be at least 1, got 0"),
        ({"keep": 0.5, "method": "osb"}, "unknown method 'osb'\n\nhint: did you mean 'obs'?"),
        ({"keep": 0.5, "method": "norm"}, "unknown method 'norm'\n\nhint: choose one of obs, fisher, random"),
        ({"remove": ["L0H1"], "method": 3}, "unknown method 3"),
        ({"keep": 0.5, "method": ["obs"]}, "unknown method ['obs']"),
        ({"keep": 0.5, "seed": "a"}, "seed must be an integer, got 'a'"),
        ({"keep": 0.5, "seed": 1.5}, "seed must be an integer, got 1.5"),
        ({"keep": 0.5, "seed": None}, "seed must be an integer, got None"),
        ({"keep": 0.5, "seed": -1}, "seed must be at least 0, got -1"),
        ({"keep": 0.5, "progress": 5}, "progress must be True, False or a function, got the int 5"),
        ({"remove": 5}, "remove must be names of heads, got the int 5"),
        ({"remove": True}, "remove must be names of heads, got the bool True"),
    ],
)
def test_requests_that_make_no_sense(given: dict[str, Any], text: str) -> None:
    with pytest.raises((SizeError, TypeMismatchError)) as said:
        plan(gpt2(), ids(), **given)
    assert text in str(said.value)


@pytest.mark.parametrize(
    "make, kv_heads, text",
    [
        (gpt2, 4, "does not divide the 6 kv heads of L0 (transformer.h.0.attn)\n\nhint: choose one of 1, 2, 3, 6"),
        (gpt2, 12, "kv_heads=12 does not divide the 6 kv heads of L0"),
        (llama, 2, "not divide the 3 kv heads of L0 (model.layers.0.self_attn)\n\nhint: choose one of 1, 3"),
    ],
)  # fmt: skip
def test_a_kv_count_that_does_not_divide(make: Any, kv_heads: int, text: str) -> None:
    with pytest.raises(SizeError) as said:
        plan(make(), ids(), kv_heads=kv_heads)
    assert text in str(said.value)


def test_text_is_needed_to_choose() -> None:
    for request in ({"keep": 0.5}, {"kv_heads": 2}, {"budget": "flops=0.9"}):
        with pytest.raises(MultiheadError, match="data must be calibration text, got None"):
            plan(gpt2(), None, **request)  # type: ignore[arg-type]
    for data, message in ((3, "data must be documents or batches, got the int 3"), ("text", "data must be a list")):
        with pytest.raises(TypeMismatchError, match=message):
            plan(gpt2(), data, keep=0.5)  # type: ignore[arg-type]
    with pytest.raises(TypeMismatchError, match=r"model must be a torch\.nn\.Module, got None"):
        plan(None, ids(), keep=0.5)  # type: ignore[arg-type]


def test_a_calibration_belongs_to_its_model() -> None:
    with pytest.raises(MultiheadError, match="the Calibration is of a different GPT2LMHeadModel"):
        plan(gpt2(), Calibration(gpt2(1), ids()), keep=0.5)


def test_two_plans_learn_from_the_text_once() -> None:
    """Heads are scored once per Calibration; the second plan only slices and counts."""
    model, calls = gpt2(), list[int]()
    text = Calibration(model, ids())
    plan(model, text, keep=0.5)
    hook = model.register_forward_pre_hook(lambda *_: calls.append(1))
    both = [plan(model, text, keep=0.25), plan(model, text, keep=0.25, method="fisher")]
    hook.remove()
    assert not calls
    assert both[0] == plan(model, Calibration(model, ids()), keep=0.25)


@pytest.mark.parametrize("wrong", [None, "plan.json", {"keep": 0.5}, Plan])
def test_cut_needs_a_plan(wrong: Any) -> None:
    with pytest.raises(TypeMismatchError, match="plan must be a Plan, got"):
        mh.cut(gpt2(), wrong)


def test_groups_are_of_all_heads_and_equal_in_size() -> None:
    made = plan(gpt2(), ids(), kv_heads=2)
    assert made.request == "kv_heads=2"
    assert made.calibration is not None
    for layer in made.layers:
        assert layer.groups is not None
        assert sorted(map(len, layer.groups)) == [3, 3]
    assert made.kv_kept == 4


def test_of_a_grouped_model_whole_kv_heads_go_together() -> None:
    made = plan(llama(), ids(), kv_heads=1)
    assert [x.groups for x in made.layers] == [((0, 1, 2, 3, 4, 5),)] * 2


def test_as_many_kv_heads_as_there_are_is_no_change() -> None:
    with pytest.warns(UserWarning, match="the plan changes nothing"):
        assert not plan(gpt2(), ids(), kv_heads=6).changes
    with pytest.warns(UserWarning, match="the plan changes nothing"):
        assert not plan(llama(), ids(), kv_heads=3).changes


def test_a_module_without_a_config() -> None:
    encoder = nn.TransformerEncoderLayer(21, 3, batch_first=True).eval()
    made = plan(encoder, remove=["L0H1"])
    assert (made.model, made["L0"].keep) == ("TransformerEncoderLayer", (0, 2))


@pytest.mark.parametrize("asked", [{"keep": 0.5, "uniform": True}, {"kv_heads": 2}])
def test_a_cut_model_is_planned_and_cut_again(asked: dict[str, Any]) -> None:
    """Also where the heads that stayed at first are the first of the layer, and so keep their numbers."""
    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=4, n_embd=28, vocab_size=50, n_positions=40)).eval()
    texts = [[(7 * i + j * j) % 50 for j in range(30)] for i in range(40)]
    once = mh.cut(model, mh.plan(model, remove=["L0H3", "L1H2"]), texts)
    assert [x.num_heads for x in mh.anatomy(once)] == [3, 3]
    twice = mh.cut(once, mh.plan(once, remove=["L0H2", "L1H0"]), texts)
    assert [x.num_heads for x in mh.anatomy(twice)] == [2, 2]
    thrice = mh.cut(twice, mh.plan(twice, texts, **(asked if "keep" in asked else {"kv_heads": 1})))
    found = mh.anatomy(thrice)
    assert [(x.num_heads, x.num_kv_heads) for x in found] == [(1, 1) if "keep" in asked else (2, 1)] * 2


def test_quantised_weights_are_refused_with_the_reason() -> None:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    config = LlamaConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4, vocab_size=50
    )
    model = LlamaForCausalLM(config).eval()
    quantize_(model, Int8WeightOnlyConfig())
    with pytest.raises(TypeMismatchError, match=r"q_proj.*quantised weights cannot be cut"):
        plan(model, remove=["L0H1"])
    made = plan(LlamaForCausalLM(config).eval(), remove=["L0H1"])
    with pytest.raises(TypeMismatchError, match=r"q_proj.*quantised weights cannot be cut"):
        mh.cut(model, made, refit=False)
