"""The numbers that the package computes are the golden ones, and the comparison notices when one is not."""

from __future__ import annotations

import warnings

import pytest

from golden.compare import TOLERANCES, Tolerance, compare
from golden.record import FOLDER, Names, Recorder, Values, read_values
from golden.subjects import SUBJECTS

NEAR = Tolerance(1e-4, 1e-6)


@pytest.mark.parametrize("name", SUBJECTS)
def test_values(name: str) -> None:
    subject = SUBJECTS[name]
    found = compare(read_values(name), subject.values(Names.read()), TOLERANCES[subject.tolerance])
    if not found.fine:
        pytest.fail(f"{name}: {found}", pytrace=False)
    if found.added:
        warnings.warn(f"{name}: {len(found.added)} values are new: make golden adds them", stacklevel=1)


def test_every_file_has_a_subject() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(SUBJECTS)


@pytest.mark.parametrize("name", [name for name in SUBJECTS if name.endswith(("-refit", "-heal"))])
def test_fitting_changed_the_weights(name: str) -> None:
    """Otherwise the golden values of a fitted model would not test the fit."""
    fitted, bare = read_values(name), read_values(name.rpartition("-")[0])
    changed = compare(bare, fitted, TOLERANCES["float32"]).wrong
    layers = {wrong.path.split("/")[1].partition("H")[0] for wrong in changed if wrong.path.startswith("heads/")}
    assert len(layers) > 1, "heads of one layer at most"
    assert any(wrong.path.startswith("logits/") for wrong in changed)


# ---- the comparison notices -------------------------------------------------------------------

GOLDEN: Values = {"L0H0/entropy": 1.5, "L0H0/kind": "first", "L0H0/rank": 3, "L0H0/sink": None}


def test_the_same_values_are_fine() -> None:
    found = compare(GOLDEN, dict(GOLDEN), NEAR)
    assert found.fine
    assert str(found) == "all 4 values are unchanged"


@pytest.mark.parametrize("today", [1.5 + 1e-5, 1.5 - 1e-5, 1.5])
def test_a_rounding_error_is_fine(today: float) -> None:
    assert compare(GOLDEN, GOLDEN | {"L0H0/entropy": today}, NEAR).fine


@pytest.mark.parametrize(
    "path, today",
    [
        ("L0H0/entropy", 1.501),
        ("L0H0/entropy", -1.5),
        ("L0H0/entropy", None),
        ("L0H0/entropy", "nan"),
        ("L0H0/kind", "self"),
        ("L0H0/kind", None),
        ("L0H0/rank", 4),
        ("L0H0/rank", 3.0001),
        ("L0H0/rank", "3"),
        ("L0H0/sink", 0.0),
        ("L0H0/sink", ""),
    ],
)
def test_a_changed_value_is_named(path: str, today: float | str | None) -> None:
    found = compare(GOLDEN, GOLDEN | {path: today}, NEAR)
    assert not found.fine
    assert [wrong.path for wrong in found.wrong] == [path]
    assert f"{path}: {GOLDEN[path]!r} → {today!r}" in str(found)


def test_a_wrong_number_is_shown_with_its_difference_and_the_tolerance() -> None:
    shown = str(compare(GOLDEN, GOLDEN | {"L0H0/entropy": 1.53}, NEAR))
    assert "L0H0/entropy: 1.5 → 1.53, relative difference 0.02" in shown
    assert "relative tolerance 0.0001, absolute 1e-06" in shown


def test_the_worst_ten_are_shown() -> None:
    golden: Values = {f"value {i}": 1.0 for i in range(30)}
    shown = str(compare(golden, {path: 1.0 + 0.01 * i for i, path in enumerate(golden)}, NEAR))
    assert "29 of 30 values wrong" in shown
    assert "value 29:" in shown
    assert "value 20:" in shown
    assert "value 19:" not in shown


def test_a_value_that_is_gone_is_named() -> None:
    today = {path: x for path, x in GOLDEN.items() if path != "L0H0/kind"}
    found = compare(GOLDEN, today, NEAR)
    assert not found.fine
    assert found.gone == ["L0H0/kind"]
    assert "L0H0/kind: if it has another name today, add that to names.json" in str(found)


def test_a_new_value_is_no_failure() -> None:
    found = compare(GOLDEN, GOLDEN | {"L0H0/match": 0.2}, NEAR)
    assert found.fine
    assert "1 values are new" in str(found)


def test_no_golden_values_are_a_failure() -> None:
    assert not compare({}, {}, NEAR).fine
    assert not compare({}, dict(GOLDEN), NEAR).fine


# ---- names ------------------------------------------------------------------------------------


def _recorded(sections: dict[str, dict[str, str]], column: str, kind: str) -> Values:
    record = Recorder(Names(sections))
    record.table(["L0H0"], {column: [1.5], "kind": [kind], "rank": [3], "sink": [None]})
    return record.values


def test_names_that_are_what_they_were_need_no_entry() -> None:
    assert compare(GOLDEN, _recorded({}, "entropy", "first"), NEAR).fine


def test_a_renamed_column_and_label_are_found_by_their_entry() -> None:
    renamed = ("attention_entropy", "first token")
    assert not compare(GOLDEN, _recorded({}, *renamed), NEAR).fine
    entries = {"columns": {"entropy": "attention_entropy"}, "labels": {"first": "first token"}}
    assert compare(GOLDEN, _recorded(entries, *renamed), NEAR).fine


def test_an_entry_that_is_no_longer_true_is_noticed() -> None:
    found = compare(GOLDEN, _recorded({"columns": {"entropy": "attention_entropy"}}, "entropy", "first"), NEAR)
    assert found.gone == ["L0H0/entropy"]
    assert found.added == ["L0H0/entropy (new)"]


def test_a_new_column_may_take_an_old_name() -> None:
    record = Recorder(Names({"columns": {"entropy": "entropy_bits", "spread": "entropy"}}))
    record.table(["L0H0"], {"entropy_bits": [1.5], "entropy": [2.5], "spread": [3.5]})
    assert record.values == {"L0H0/entropy": 1.5, "L0H0/spread": 2.5, "L0H0/spread (new)": 3.5}


def test_one_entry_renames_all_columns_that_begin_alike() -> None:
    names = Names({"columns": {"offset*": "distance*"}})
    assert [names.canonical(name, "columns") for name in ("distance-3", "dist")] == ["offset-3", "dist"]


def test_a_label_may_have_a_detail_and_columns_are_no_labels() -> None:
    names = Names({"labels": {"window": "local", "holds only if": "conditional", "delimiter": "special"}})
    today = {"local ±12": "window ±12", "conditional": "holds only if", "window": "window", "L0H1": "L0H1", "": ""}
    assert {word: names.label(word) for word in today} == today
    assert names.canonical("special", "columns") == "special"


def test_a_renamed_key_is_found_by_its_entry() -> None:
    golden, today = Recorder(Names({})), Recorder(Names({"keys": {"plan": "cut_plan", "keep": "kept_heads"}}))
    golden.plain({"plan": {"keep": [0, 2], "cost": 1.5}})
    today.plain({"cut_plan": {"kept_heads": [0, 2], "cost": 1.5}})
    assert golden.values == today.values == {"plan/keep": "[0, 2]", "plan/cost": 1.5}


def test_a_renamed_parameter_is_found_by_its_entry_or_by_that_of_a_part() -> None:
    names = Names({"parameters": {"a.weight": "b.weight", "shell": "patched"}})
    assert names.parameter("b.weight") == "a.weight"
    assert names.parameter("layers.0.patched.bias") == "layers.0.shell.bias"
    assert names.parameter("layers.0.shells.bias") == "layers.0.shells.bias"


def test_two_things_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="'a' and 'b' are both called 'c'"):
        Names({"columns": {"a": "c", "b": "c"}})
    record = Recorder(Names({}))
    record.value("loss", 1.5)
    with pytest.raises(ValueError, match="loss is recorded twice"):
        record.value("loss", 2.5)


# ---- what is recorded -------------------------------------------------------------------------


def test_plain_data_gives_numbers_and_labels_but_no_sentences() -> None:
    record = Recorder(Names({}))
    found = [{"key": "2", "verdict": "holds", "why": "Every head writes.", "numbers": [1.0, float("nan")]}]
    record.plain({"found": found, "seconds": 3.5}, labels=("verdict",), dropped=("seconds",), identity=("key",))
    assert record.values == {"found/2/verdict": "holds", "found/2/numbers/0": 1.0, "found/2/numbers/1": None}


def test_the_order_of_items_with_an_identity_does_not_matter() -> None:
    one, other = Recorder(Names({})), Recorder(Names({}))
    rows = [{"name": "L0H0", "entropy": 1.5}, {"name": "L0H1", "entropy": 0.5}]
    one.plain({"rows": rows}, identity=("name",))
    other.plain({"rows": rows[::-1]}, identity=("name",))
    assert one.values == other.values
