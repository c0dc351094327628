"""A table of heads: its rows and columns, what joins, how it is kept, shown, and compared."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import multihead as mh
import zoo
from multihead.errors import SizeError, TypeMismatchError
from multihead.model.statistics.meanings import SHARE
from multihead.table.column_info import ColumnInfo
from multihead.table.condition import Condition
from multihead.table.table import HeadTable

HEADS = ("L0H0", "L0H1", "L0H2", "L1H0", "L1H1")
NAN = math.nan


def table(**change: Any) -> HeadTable:
    made = HeadTable(
        HEADS,
        {
            "entropy": torch.tensor([0.1, 2.5, 1 / 3, NAN, -0.0], dtype=torch.float64),
            "kind": ("broad", "previous", "", "dead", 'broad <&"é'),
            "worth": torch.tensor([math.inf, 1e-308, -math.inf, 5.0, 7.0], dtype=torch.float64),
        },
        {
            "entropy": ColumnInfo("nats", "−Σ p log p", SHARE),
            "kind": ColumnInfo("", "what it looks at"),
            "worth": ColumnInfo("nats", "loss without it"),
        },
        {"entropy": {"L1H0": "no row of finite numbers that sees a key"}},
        {"model": "a model", "tokens": 13, "options": {"batch": [1, 2.5, None, True]}},
    )
    return replace(made, **change)


# ---- rows and columns -------------------------------------------------------------------------


def test_a_row_and_a_column() -> None:
    one = table()
    assert len(one) == len(list(one)) == 5
    assert one.row("L0H1") == {
        "name": "L0H1", "layer": 0, "head": 1, "entropy": 2.5, "kind": "previous", "worth": 1e-308,
    }  # fmt: skip
    assert one.row("0.1") == one.row("L0H1")
    assert one["kind"][3] == "dead"
    assert one["entropy"].dtype == torch.float64
    assert "worth" in one
    assert one.why("entropy", "1.0") == "no row of finite numbers that sees a key"
    assert one.why("entropy", "L0H0") == ""


def test_stacks_are_told_apart() -> None:
    two = HeadTable(("encoder.L0H1", "decoder.L0H1"), {"x": torch.ones(2)}, {"x": ColumnInfo("", "")})
    assert two.row("decoder.L0H1") == {"name": "decoder.L0H1", "stack": "decoder", "layer": 0, "head": 1, "x": 1.0}
    with pytest.raises(SizeError, match=r"'0.1' is in 2 stacks: encoder.L0H1, decoder.L0H1"):
        two.row("0.1")


def test_what_is_not_there() -> None:
    with pytest.raises(SizeError, match="unknown column 'entropie'") as caught:
        table()["entropie"]
    assert caught.value.hint == "did you mean entropy?"
    with pytest.raises(SizeError, match="unknown head 'L9H0'"):
        table().row("L9H0")
    with pytest.raises(SizeError, match="'H3' is not a head name"):
        table().row("H3")
    with pytest.raises(TypeMismatchError, match="column 'kind' holds words, not numbers"):
        table().top("kind")


def test_a_table_that_does_not_fit() -> None:
    meaning = {"x": ColumnInfo("", "")}
    with pytest.raises(SizeError, match=r"column 'x' .* 3 heads, got 2"):
        HeadTable(("L0H0", "L0H1", "L0H2"), {"x": torch.ones(2)}, meaning)
    with pytest.raises(SizeError, match="column 'x' has no meaning"):
        HeadTable(("L0H0",), {"x": torch.ones(1)}, {})
    with pytest.raises(SizeError, match="head 'L0H0' is in the table twice"):
        HeadTable(("L0H0", "L0H0"), {"x": torch.ones(2)}, meaning)
    with pytest.raises(SizeError, match="a column cannot be named 'layer'"):
        HeadTable(("L0H0",), {"layer": torch.ones(1)}, {"layer": ColumnInfo("", "")})


def test_equal_is_equal_to_the_last_bit() -> None:
    assert table() == table()
    assert table() != table(about={})
    assert table() != table(reasons={})
    shifted = table().columns["entropy"].clone()
    shifted[1] += 2e-16 * 2.5
    assert table() != table(columns={**table().columns, "entropy": shifted})
    assert table() != table(columns={**table().columns, "kind": ("",) * 5})
    assert table() != 3


# ---- choosing ---------------------------------------------------------------------------------


def test_sort_puts_what_has_no_number_last_both_ways() -> None:
    assert table().sort("entropy").heads == ("L1H1", "L0H0", "L0H2", "L0H1", "L1H0")
    down = table().sort("entropy", descending=True)
    assert down.heads == ("L0H1", "L0H2", "L0H0", "L1H1", "L1H0")
    assert down.reasons == table().reasons
    assert table().sort("kind").heads == ("L0H0", "L1H1", "L1H0", "L0H1", "L0H2")
    assert table().sort("worth")["worth"].tolist() == [-math.inf, 1e-308, 5.0, 7.0, math.inf]


def test_sort_agrees_with_a_plain_sort_however_many_numbers_are_missing() -> None:
    torch.manual_seed(7)
    numbers = torch.randn(101, dtype=torch.float64)
    numbers[torch.rand(101) < 0.3] = NAN
    one = HeadTable(tuple(f"L{i}H0" for i in range(101)), {"x": numbers}, {"x": ColumnInfo("", "")})
    there = sorted(x for x in numbers.tolist() if not math.isnan(x))
    for descending in (False, True):
        got = one.sort("x", descending=descending)["x"]
        assert got[: len(there)].tolist() == (there[::-1] if descending else there)
        assert bool(got[len(there) :].isnan().all())
    assert one.top("x", 7)["x"].tolist() == there[:-8:-1]
    assert len(one.top("x", 200)) == len(there)


def test_top() -> None:
    assert table().top("entropy", 2).heads == ("L0H1", "L0H2")
    assert len(table().top("entropy")) == 4, "one has no number"
    assert table().top("entropy", 2).reasons == {}
    with pytest.raises(SizeError, match=r"count must be .* 1, got 0"):
        table().top("entropy", 0)


def test_filter() -> None:
    assert table().filter("entropy<1").heads == ("L0H0", "L0H2", "L1H1")
    assert table().filter("entropy<1", "kind!=broad").heads == ("L0H2", "L1H1")
    assert table().filter("kind=previous").heads == ("L0H1",)
    assert table().filter("layer=0", "head>=1").heads == ("L0H1", "L0H2")
    assert table().filter(lambda row: row["layer"] == 1, "worth>=7").heads == ("L1H1",)
    assert table().filter(heads=["1.1", "L0H0"]).heads == ("L1H1", "L0H0")
    assert len(table().filter("entropy>100")) == 0
    with pytest.raises(SizeError, match="kind>1 compares numbers, column 'kind' holds words"):
        table().filter("kind>1")
    with pytest.raises(mh.MultiheadError, match="entropy:drop>1 needs two tables"):
        table().filter("entropy:drop>1")


def test_select() -> None:
    some = table().select(["worth"])
    assert list(some.columns) == ["worth"]
    assert some.reasons == {}
    assert list(table().select(["kind", "entropy"]).columns) == ["kind", "entropy"]


@pytest.mark.parametrize(
    "text, parts",
    [
        ("entropy>0.1", ("entropy", "", ">", 0.1)),
        (" entropy : x >= 1e-3", ("entropy : x", "", ">=", 1e-3)),
        ("offset+1:drop<5%", ("offset+1", "drop", "<", 0.05)),
        ("class:noun:rise>.5", ("class:noun", "rise", ">", 0.5)),
        ("kind==previous", ("kind", "", "=", "previous")),
        ("kind:changed", ("kind", "changed", ">", 0.0)),
        ("kind:changed>3", ("kind", "changed", ">", 3.0)),
    ],
)
def test_conditions(text: str, parts: tuple[Any, ...]) -> None:
    got = Condition.of(text)
    assert (got.column, got.how, got.op, got.value) == parts
    assert Condition.of(repr(got)) == got


@pytest.mark.parametrize("text", ["entropy", ">3", "", "entropy:drop", "entropy>much", "entropy:drop=x", "a<nan"])
def test_what_is_no_condition(text: str) -> None:
    with pytest.raises(mh.MultiheadError, match="is not a"):
        Condition.of(text)


# ---- joining ----------------------------------------------------------------------------------


def test_join_goes_by_the_name_of_the_head() -> None:
    turned = HeadTable(HEADS[::-1], {"n": torch.arange(5.0)}, {"n": ColumnInfo("", "")}, {}, {"seed": 3})
    both = table().join(turned)
    assert both["n"].tolist() == [4, 3, 2, 1, 0]
    assert list(both.columns) == ["entropy", "kind", "worth", "n"]
    assert both.about == {**table().about, "seed": 3}
    assert both.reasons == table().reasons
    with pytest.raises(SizeError, match="column 'entropy' is in both tables"):
        both.join(table())
    fewer = HeadTable(HEADS[:2] + ("L7H7",), {"n": torch.ones(3)}, {"n": ColumnInfo("", "")})
    with pytest.raises(SizeError, match="only in the first L0H2, L1H0, L1H1; only in the second L7H7"):
        table().join(fewer)


def test_join_keeps_what_both_tables_say_about_their_measurement() -> None:
    def one(column: str, about: dict[str, Any]) -> HeadTable:
        return HeadTable(HEADS, {column: torch.ones(5)}, {column: ColumnInfo("", "")}, {}, about)

    first = one("a", {"model": "m", "documents": 7, "tokens": 70, "notes": ["eval mode", "few tokens"]})
    second = one("b", {"model": "m", "documents": 5, "tokens": 50, "seed": 3, "notes": ["few tokens", "sketched"]})
    third = one("c", {"tokens": 9})
    both = first.join(second)
    assert both.about == {
        "model": "m", "documents": 7, "tokens": 70, "seed": 3, "notes": ["eval mode", "few tokens", "sketched"],
        "joined": [{"documents": 5, "tokens": 50}],
    }  # fmt: skip
    assert both.join(third).about["joined"] == [{"documents": 5, "tokens": 50}, {"tokens": 9}]
    grouped = first.join(second.join(third))
    assert grouped.about["documents"] == 7
    assert grouped.about["joined"] == [{"documents": 5, "tokens": 50}, {"tokens": 9}]
    assert "joined" not in first.join(one("d", {"documents": 7, "notes": []})).about
    assert first.about["notes"] == ["eval mode", "few tokens"], "the tables themselves do not change"


# ---- keeping ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["heads.json", "heads.parquet"])
def test_files_hold_the_table_exactly(tmp_path: Path, name: str) -> None:
    file = table().save(tmp_path / "new" / name)
    again = HeadTable.load(file)
    assert again == table()
    assert math.copysign(1, again["entropy"][4]) == -1, "also the sign of zero"
    assert again.meaning["entropy"].scale == SHARE
    assert [p.name for p in file.parent.iterdir()] == [name], "nothing is left beside it"
    before = file.read_bytes()
    assert again.save(file).read_bytes() == before


def test_an_empty_table_and_one_of_stacks(tmp_path: Path) -> None:
    empty = table().filter("entropy>100")
    stacks = HeadTable(("encoder.L0H1", "cross.L0H1"), {"x": torch.tensor([NAN, NAN])}, {"x": ColumnInfo("", "")})
    for one in (empty, stacks):
        for name in ("a.json", "a.parquet"):
            assert HeadTable.load(one.save(tmp_path / name)) == one


def test_a_folder_holds_a_table(tmp_path: Path) -> None:
    assert table().save(tmp_path).name == "table.json"
    assert HeadTable.load(tmp_path) == table()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    with pytest.raises(mh.MultiheadError, match=r"there is no table.json in .*other.*notes.txt"):
        HeadTable.load(tmp_path / "other")
    with pytest.raises(mh.MultiheadError, match=r"no such file or folder: .*nowhere"):
        HeadTable.load(tmp_path / "nowhere")


def test_json_is_strict_and_easy_to_read(tmp_path: Path) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    data = json.loads(table().to_json(), parse_constant=refuse)
    assert data["rows"][3] == {
        "name": "L1H0", "layer": 1, "head": 0, "entropy": None, "kind": "dead", "worth": 5.0,
    }  # fmt: skip
    assert data["reasons"]["entropy"]["L1H0"].startswith("no row")
    assert data["columns"][0]["unit"] == "nats"
    with pytest.raises(mh.MultiheadError, match="value that JSON cannot represent"):
        table(about={"model": torch.nn.Linear(2, 2)}).to_json()
    with pytest.raises(mh.MultiheadError, match="value that JSON cannot represent"):
        table(about={"x": NAN}).to_json()


def test_bad_files(tmp_path: Path) -> None:
    def load(name: str, data: bytes) -> None:
        (tmp_path / name).write_bytes(data)
        HeadTable.load(tmp_path / name)

    with pytest.raises(mh.MultiheadError, match="is not JSON"):
        load("a.json", b"{")
    with pytest.raises(mh.MultiheadError, match="is JSON, but not a head table"):
        load("a.json", b"[1]")
    with pytest.raises(mh.MultiheadError, match="is not text"):
        load("a.json", b"\xff\xfe\x00")
    with pytest.raises(mh.MultiheadError, match=r"version 1, .* version 2"):
        load("a.json", table().to_json().replace('"version": 2', '"version": 1').encode())
    with pytest.raises(mh.MultiheadError, match="is damaged: KeyError: 'worth'"):
        load("a.json", table().to_json().replace(', "worth": 7.0', "").encode())
    with pytest.raises(mh.MultiheadError, match="is not Parquet"):
        load("a.parquet", b"PAR1")
    with pytest.raises(mh.MultiheadError, match=r"neither .json nor .parquet") as caught:
        load("a.pkl", b"\x80\x04N.")
    assert "never pickle" in str(caught.value.hint)
    with pytest.raises(mh.MultiheadError, match=r".json or .parquet, got .csv"):
        table().save(tmp_path / "a.csv")
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"x": [1]}), tmp_path / "b.parquet")
    with pytest.raises(mh.MultiheadError, match="is Parquet, but not a head table"):
        HeadTable.load(tmp_path / "b.parquet")


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = table().save(tmp_path)
    before = file.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        table(about={}).save(tmp_path)
    assert file.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_pandas() -> None:
    frame = table().to_pandas()
    assert list(frame.columns) == ["layer", "head", "entropy", "kind", "worth"]
    assert frame.loc["L0H1", "entropy"] == 2.5
    assert frame.loc["L1H1", "head"] == 1
    assert frame["entropy"].isna().tolist() == [False, False, False, True, False]


@pytest.mark.parametrize(
    "module, call, message",
    [
        ("pandas", lambda t, path: t.to_pandas(), "pandas is not installed"),
        ("pyarrow", lambda t, path: t.save(path / "a.parquet"), "Parquet needs pyarrow"),
    ],
)
def test_without_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, call: Any, message: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(mh.MultiheadError, match=message) as caught:
        call(table(), tmp_path)
    assert "pip install 'multihead[tables]'" in str(caught.value.hint)


# ---- showing ----------------------------------------------------------------------------------


def drawn(one: object, width: int = 100) -> str:
    console = Console(width=width, color_system=None, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(one)
    return console.export_text()


def test_text() -> None:
    lines = table().text(["kind", "entropy"]).splitlines()
    assert lines[0].split() == ["head", "kind", "entropy"]
    assert lines[3].split() == ["L0H2", "–", "0.333"]
    assert lines[4].split() == ["L1H0", "dead", "–"]
    assert repr(table()) == table().text()
    with pytest.raises(SizeError, match="unknown column 'x'"):
        table().text(["x"])


def test_rich_shows_what_fits_and_names_the_rest() -> None:
    wide = drawn(table())
    assert "nats" in wide
    assert [line.split()[0] for line in wide.splitlines() if line.strip().startswith("L")] == list(HEADS)
    narrow = drawn(table(), width=30)
    assert "kind" in narrow
    note = " ".join(narrow.split("5 heads; ")[1].split())
    assert note == "and 1 more of 3 columns: entropy"
    assert max(map(len, narrow.splitlines())) <= 30


def test_markup_in_words_is_only_text() -> None:
    words = ("[red]x", "[/]", "<b>", "a", "b")
    one = table(
        columns={**table().columns, "kind": words}, meaning={**table().meaning, "kind": ColumnInfo("<u>", '"<i>')}
    )
    assert "[red]x" in drawn(one)
    html = one._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert "<i>" not in html
    assert "<u>" not in html
    assert "no row of finite numbers that sees a key" in html


def test_a_long_table_in_a_notebook_says_what_is_left_out() -> None:
    heads = tuple(f"L{i}H0" for i in range(503))
    html = HeadTable(heads, {"x": torch.ones(503)}, {"x": ColumnInfo("", "")})._repr_html_()
    assert "503 heads, 103 not shown" in html
    assert html.count("<tr>") == 401


# ---- of a model -------------------------------------------------------------------------------


def test_what_a_model_has_no_number_for_has_a_reason() -> None:
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    made = mh.measure(zoo.ZOO["t5"].build(), {"input_ids": ids, "decoder_input_ids": ids[:, :3]})
    for name, column in made.columns.items():
        without = [h for h, x in zip(made.heads, column.tolist(), strict=True) if math.isnan(x)]
        assert set(without) == set(made.reasons.get(name, {})), name
    assert made.why("distance", "cross.L0H0") == "cross-attention: queries and keys are different sequences"
    one = mh.measure(zoo.ZOO["gpt2"].build(), [[7]])
    assert one.why("relative_entropy", "L0H0") == "no row sees more than one key"
    assert one.why("sink", "L0H0") == "the head has no learned sink"


@pytest.mark.parametrize(
    ("column", "said"),
    [(["a"], "'x' .* got a list"), ((1.0,), "'x' .* got a tuple"), (torch.ones(1, 2), r"Tensor of shape \(1, 2\)")],
)
def test_a_column_of_neither_numbers_nor_words_is_refused(column: Any, said: str) -> None:
    with pytest.raises(TypeMismatchError, match=said):
        HeadTable(("L0H0",), {"x": column}, {"x": ColumnInfo("", "")})


def test_a_file_without_rows_is_damaged(tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    file.write_text('{"format": "multihead head table", "version": 2, "columns": []}')
    with pytest.raises(mh.MultiheadError, match=r"table\.json is damaged: it has no rows"):
        HeadTable.load(file)
