"""All statements at once: the table, the summary over layers, JSON, and what is refused."""

from __future__ import annotations

import json

import pytest
import torch

from golden.make_minilm_statistics import model_and_batch
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.statements import theory as run_theory
from multihead.statements.catalogue import STATEMENTS
from multihead.statements.direct_sum import direct_sum
from multihead.statements.layer_shape import LayerShape
from multihead.statements.statement import Comparison, Result, Side, Statement
from multihead.statements.theory import theory
from multihead.statements.theory_text import table_text
from unit.statements import made
from zoo import ZOO

MINE = ["1", "2", "3", "4", "5", "6", "7", "14", "15", "16"]


def test_statements_have_keys_in_order_and_no_key_twice() -> None:
    order = [*"12345", "6a", "6b", "6c", *map(str, range(7, 19)), "T1", "T2", "T3", "T4"]
    assert [statement.id for statement in STATEMENTS] == order


def test_a_layer_and_its_table() -> None:
    found = theory(made.orthogonal(), made.tokens(), only=MINE)
    assert found["1"].tally == found["2"].tally == "holds"
    assert found.about == "MultiHeadAttention: 1 layer (3 heads of 4 in 12), 78 tokens in 6 sequences"
    for width in (60, 80, 120, 300):
        lines = found.text(width).splitlines()
        assert all(len(line) <= min(width, 110) for line in lines)
        assert lines[0] == found.about or width < 80
    assert "12 statements: " in found.text()
    assert repr(found) == found.text()
    assert found._repr_html_().count("<tr>") == 13


def test_layers_are_counted_and_the_middle_one_is_shown() -> None:
    model = ZOO["gpt2"].build()
    found = theory(model, ZOO["gpt2"].inputs(model), only=["1", "16"])
    assert found["1"].tally == "fails in 2 of 2"
    assert found["1"].layer in ("L0", "L1")
    assert f"({found['1'].layer})" in found.text()
    assert found.layer("L1")["1"].tally == "fails"
    assert [row.layer for row in theory(model, ZOO["gpt2"].inputs(model), only=["1"], layers=[1]).rows] == ["L1"]


def test_the_middle_is_by_the_first_number_among_those_of_the_shown_verdict() -> None:
    rows = [
        run_theory.Row(direct_sum, f"L{i}", Result(Comparison(Side(f"{x}", x), "<=", Side("5", 5.0)), "", {"x": x}))
        for i, x in enumerate((9.0, 3.0, 1.0, 2.0))
    ]
    line = run_theory.Theory(tuple(rows), "").summary[0]
    assert (line.tally, line.result.lhs, line.layer) == ("holds in 3 of 4", "2.0", "L3")


def test_statements_about_the_shape_are_computed_once_for_each_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[LayerShape] = []
    flops = LayerShape.flops
    monkeypatch.setattr(
        LayerShape, "flops", lambda shape, n, *heads: (counted.append(shape), flops(shape, n, *heads))[1]
    )
    model = ZOO["gpt2"].build()
    results = theory(model, ZOO["gpt2"].inputs(model), only=["10", "11", "T1", "T4"])
    assert {row.layer for row in results.rows} == {"L0", "L1"}
    several = len(counted)
    counted.clear()
    alone = theory(model, ZOO["gpt2"].inputs(model), only=["10", "11", "T1", "T4"], layers=["L0"])
    assert several == len(counted) > 0
    assert [row.result for row in results.rows if row.layer == "L1"] == [row.result for row in alone.rows]
    assert [s.id for s in STATEMENTS if s.shape_only] == ["10", "11", "T1", "T4"]


def test_json_is_plain_data() -> None:
    found = theory(made.twins(), made.tokens(), only=MINE).to_json()
    text = json.dumps(found, allow_nan=False)
    back = json.loads(text)
    two = next(s for s in back["statements"] if s["id"] == "2")
    assert two["layers"]["L0"]["numbers"]["condition"] is None  # infinite
    assert two["layers"]["L0"]["verdict"] == two["verdict"] == "fails"


def test_the_same_seed_gives_the_same_numbers_and_leaves_the_global_state_alone() -> None:
    layer, x = made.layer(), made.tokens()
    state = torch.random.get_rng_state()
    first = theory(layer, x, only=MINE, seed=3).to_json()
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.rand(7)
    assert theory(layer, x, only=MINE, seed=3).to_json() == first


def test_a_statement_that_refuses_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(subject: object) -> Result:
        raise MultiheadError("no such thing here", hint="none")

    monkeypatch.setattr(run_theory, "STATEMENTS", (Statement("1", "a", "b", "c", refuses), direct_sum))
    found = theory(made.layer(), made.tokens())
    assert (found["1"].verdict, found["1"].result.because) == ("not applicable", "no such thing here")
    assert found["2"].verdict == "holds"


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(SizeError, match="unknown statement '99'"):
        theory(made.layer(), made.tokens(), only=[99])
    found = theory(made.layer(), made.tokens(), only=["2"])
    with pytest.raises(SizeError, match="statement '1' was not computed"):
        found["1"]
    with pytest.raises(SizeError, match="unknown layer 'L9'"):
        found.layer("L9")


def test_one_head_one_token_and_constant_heads_have_answers() -> None:
    dead = made.layer()
    torch.nn.init.zeros_(dead.v_proj.weight)
    for layer, x in (
        (made.layer(12, 1), made.tokens()),
        (made.layer(), made.tokens(1, 1)),
        (dead, made.tokens()),
    ):
        for row in theory(layer, x, only=MINE).rows:
            assert row.result.because


def test_a_trained_model() -> None:
    """MiniLM: heads overlap more than random ones and fill the space all the same; 200 tokens are few for 6c."""
    model, batch, _ = model_and_batch()
    found = theory(model, batch, only=["1", "2", "3", "6c", "16"])
    assert found["1"].tally == found["3"].tally == "fails in 6 of 6"
    assert found["2"].tally == "holds in 6 of 6"
    assert found["6c"].result.rhs == "1920 needed"
    for row in found.rows:
        if row.statement.id == "1":
            for letter in "QKVO":
                n = row.result.numbers
                assert n[f"smallest_angle_{letter}"] < n[f"smallest_angle_random_{letter}"]  # type: ignore[operator]


def test_progress_is_told() -> None:
    seen: list[tuple[str, int, int]] = []
    theory(made.layer(), made.tokens(), only=["2", "3"], progress=lambda *step: seen.append(step))
    assert seen == [("L0", 0, 2), ("L0", 1, 2)]


def test_tables_of_nothing_are_empty() -> None:
    assert table_text([], "nothing", 80) == "nothing\n\n\n0 statements: ."


# ---- wrong use ----------------------------------------------------------------------------------

WRONG = {
    "tokens": ({"tokens": 0}, SizeError, "tokens must be at least 1, got 0"),
    "a share of tokens": ({"tokens": 0.5}, TypeMismatchError, "tokens must be an integer, got 0.5"),
    "seed": ({"seed": -1}, SizeError, "seed must be at least 0, got -1"),
    "a seed that is text": ({"seed": "3"}, TypeMismatchError, "seed must be an integer, got '3'"),
    "one statement for a list": ({"only": "16"}, TypeMismatchError, "only must be a list .* got the str '16'"),
    "no statement": ({"only": []}, SizeError, "only must name a statement"),
    "an unknown statement": ({"only": ["2", "T9"]}, SizeError, "unknown statement 'T9'"),
    "one layer for a list": ({"layers": "L0"}, TypeMismatchError, "layers must be a list .* got the str 'L0'"),
    "a number for a list": ({"layers": 0}, TypeMismatchError, "layers must be a list .* got the int 0"),
    "no layer": ({"layers": []}, SizeError, "layers must not be an empty list"),
    "half a layer": ({"layers": [0.5]}, TypeMismatchError, "a layer must be .* got the float 0.5"),
    "an unknown layer": ({"layers": ["L7"]}, SizeError, "unknown layer 'L7'"),
    "tokenizer": ({"tokenizer": "gpt2"}, TypeMismatchError, "tokenizer must be callable .* got the str 'gpt2'"),
    "no data": ({"data": None}, TypeMismatchError, "data must be documents or batches, got None"),
    "one text for a list": ({"data": "a text"}, TypeMismatchError, "data must be a list of texts"),
    "a text without a tokenizer": ({"data": ["a text"]}, MultiheadError, "no tokenizer is given"),
    "nothing to read": ({"data": []}, MultiheadError, "nothing to measure"),
    "a vector": ({"data": torch.ones(5)}, SizeError, r"data must be \(batch, token, d_model\), got shape \(5,\)"),
    "no model": ({"layer_or_model": None}, TypeMismatchError, "must be a torch.nn.Module, got None"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_names_the_argument(name: str) -> None:
    arguments, error, message = WRONG[name]
    with pytest.raises(error, match=message) as raised:
        theory(**{"layer_or_model": ZOO["gpt2"].build(), "data": [[3, 1, 4], [1, 5]], **arguments})  # type: ignore[arg-type]
    assert raised.value.hint


def test_a_width_that_is_not_the_layers_is_refused() -> None:
    with pytest.raises(MultiheadError, match="12"):
        theory(made.layer(12, 3), torch.randn(2, 7, 13), only=["2"])
