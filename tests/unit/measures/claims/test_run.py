"""All statements at once: the table, the summary over layers, JSON, and what is refused."""

from __future__ import annotations

import json

import pytest
import torch

from golden.make_minilm_statistics import model_and_batch
from multihead.errors import MultiheadError, SizeError
from multihead.statements import run
from multihead.statements.claim import Claim, Finding, short
from multihead.statements.run import claims, statements
from multihead.statements.show import table_text
from unit.measures.claims import made
from zoo import ZOO

MINE = ["1", "2", "3", "4", "5", "6", "7", "14", "15", "16"]


def test_statements_have_keys_in_order_and_no_key_twice() -> None:
    keys = [claim.key for claim in statements()]
    assert len(set(keys)) == len(keys)
    assert [k for k in keys if k in ("1", "2", "3", "4", "5", "6a", "6b", "6c", "7")] == keys[:9]


def test_a_layer_and_its_table() -> None:
    found = claims(made.orthogonal(), made.tokens(), only=MINE)
    assert found["1"].said == found["2"].said == "holds"
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
    found = claims(model, ZOO["gpt2"].inputs(model), only=["1", "16"])
    assert found["1"].said == "fails in 2 of 2"
    assert found["1"].layer in ("L0", "L1")
    assert f"({found['1'].layer})" in found.text()
    assert found.layer("L1")["1"].said == "fails"
    assert [row.layer for row in claims(model, ZOO["gpt2"].inputs(model), only=["1"], layers=[1]).rows] == ["L1"]


def test_the_middle_is_by_the_first_number_among_those_of_the_shown_verdict() -> None:
    claim = Claim("1", "t", "f", lambda subject: Finding("holds", "", "", "", ""))
    numbers = [("fails", 9.0), ("holds", 3.0), ("holds", 1.0), ("holds", 2.0)]
    rows = [run.Row(claim, f"L{i}", Finding(v, f"{x}", "", "", "", {"x": x})) for i, (v, x) in enumerate(numbers)]  # type: ignore[arg-type]
    line = run.Claims(tuple(rows), "").summary[0]
    assert (line.said, line.finding.left, line.layer) == ("holds in 3 of 4", "2.0", "L3")


def test_json_is_plain_data() -> None:
    found = claims(made.twins(), made.tokens(), only=MINE).to_json()
    text = json.dumps(found, allow_nan=False)
    back = json.loads(text)
    two = next(s for s in back["statements"] if s["key"] == "2")
    assert two["layers"]["L0"]["numbers"]["condition"] is None  # infinite
    assert two["layers"]["L0"]["verdict"] == two["verdict"] == "fails"


def test_the_same_seed_gives_the_same_numbers_and_leaves_the_global_state_alone() -> None:
    layer, x = made.layer(), made.tokens()
    state = torch.random.get_rng_state()
    first = claims(layer, x, only=MINE, seed=3).to_json()
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.rand(7)
    assert claims(layer, x, only=MINE, seed=3).to_json() == first


def test_a_statement_that_refuses_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(subject: object) -> Finding:
        raise MultiheadError("no such thing here", hint="none")

    monkeypatch.setattr(run, "statements", lambda: (Claim("1", "a", "b", refuses), *statements()[1:3]))
    found = claims(made.layer(), made.tokens())
    assert (found["1"].verdict, found["1"].finding.why) == ("not applicable", "no such thing here")
    assert found["2"].verdict == "holds"


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(SizeError, match="there is no statement '99'"):
        claims(made.layer(), made.tokens(), only=[99])
    found = claims(made.layer(), made.tokens(), only=["2"])
    with pytest.raises(SizeError, match="statement '1' was not computed"):
        found["1"]
    with pytest.raises(SizeError, match="there is no layer 'L9'"):
        found.layer("L9")


def test_one_head_one_token_and_constant_heads_have_answers() -> None:
    dead = made.layer()
    torch.nn.init.zeros_(dead.v_proj.weight)
    for layer, x in (
        (made.layer(12, 1), made.tokens()),
        (made.layer(), made.tokens(1, 1)),
        (dead, made.tokens()),
    ):
        for row in claims(layer, x, only=MINE).rows:
            assert row.finding.why
            assert row.finding.condition


def test_a_trained_model() -> None:
    """MiniLM: heads overlap more than random ones and fill the space all the same; 200 tokens are few for 6c."""
    model, batch, _ = model_and_batch()
    found = claims(model, batch, only=["1", "2", "3", "6c", "16"])
    assert found["1"].said == found["3"].said == "fails in 6 of 6"
    assert found["2"].said == "holds in 6 of 6"
    assert found["6c"].finding.right == "1920 needed"
    for row in found.rows:
        if row.claim.key == "1":
            for letter in "QKVO":
                n = row.finding.numbers
                assert n[f"smallest_angle_{letter}"] < n[f"smallest_angle_random_{letter}"]  # type: ignore[operator]


def test_progress_is_told() -> None:
    seen: list[tuple[str, int, int]] = []
    claims(made.layer(), made.tokens(), only=["2", "3"], progress=lambda *step: seen.append(step))
    assert seen == [("L0", 0, 2), ("L0", 1, 2)]


def test_numbers_are_short_and_tables_of_nothing_are_empty() -> None:
    assert [short(x) for x in (384.0, 0.01234, 1234567.0, float("inf"), -float("inf"))] == [
        "384", "0.0123", "1.23e+06", "∞", "-∞",
    ]  # fmt: skip
    assert table_text([], "nothing", 80) == "nothing\n\n\n0 statements: ."
