"""`multihead show MODEL HEAD`: the map of a head in a terminal, for a person and for a program."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer

import multihead as mh
from cli.conftest import Folders, Said
from cli.test_show import BEFORE
from multihead._base.charts import Heatmap
from multihead.show.terminal import TerminalHeatmap

Multihead = Callable[..., Said]
TEXT = "the cat sat on the mat"


def weights(folder: Path, text: str, head: str) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")["input_ids"]
    with torch.no_grad(), mh.capture(model, keep="qk") as heads:
        model(input_ids=ids)
    return heads[head].weights()[0]


def heatmap(weights: torch.Tensor, words: list[str], **options: bool) -> TerminalHeatmap:
    return TerminalHeatmap(Heatmap.attention(weights.numpy(), words, words), **options)


def drawn(seen: TerminalHeatmap, width: int = 60, **options: object) -> list[str]:
    kept = io.TextIOWrapper(io.BytesIO(), encoding=str(options.pop("encoding", "utf-8")))
    console = Console(file=kept, width=width, **{"color_system": None, **options})  # type: ignore[arg-type]
    console.print(seen)
    kept.flush()
    return kept.buffer.getvalue().decode(kept.encoding).splitlines()  # type: ignore[attr-defined]


# ---- the command ------------------------------------------------------------------------------


def test_a_map_for_a_program(multihead: Multihead, given: Folders) -> None:
    said = multihead("show", given.gpt2, "1.2", "--text", TEXT, "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["head"] == "L1H2"
    assert found["tokens"] == ["[CLS]", *TEXT.split(), "[SEP]"]
    torch.testing.assert_close(torch.tensor(found["weights"]), weights(given.gpt2, TEXT, "L1H2"))
    assert found["statistics"]["entropy"] > 0
    assert found["statistics"]["next"] == 0.0


def test_a_map_for_a_person(multihead: Multihead, given: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = multihead("show", given.gpt2, "L0H1", "--text", TEXT)
    assert said.code == 0, said.err
    assert "\x1b" not in said.out, "no colours in a pipe"
    lines = said.out.splitlines()
    assert lines[0].endswith("L0H1: each token, and where it looks")
    first = next(line for line in lines if line.startswith("  [CLS] "))
    assert "██" in first, "the first token of a causal model sees itself alone"
    assert first.rstrip().endswith("→ [CLS] 1.00")
    assert "░ above 0.02" in said.out
    assert max(map(len, lines)) <= 80
    digits = multihead("show", given.gpt2, "0.1", "--text", TEXT, "--digits")
    assert "digits are tenths" in digits.out
    assert "█" not in digits.out


def test_what_does_not_fit_is_left_out_and_said(
    multihead: Multihead, given: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    long = " ".join(["the cat sat on"] * 8)
    said = multihead("show", given.gpt2, "0.1", "--text", long)
    assert said.code == 0, said.err
    assert max(map(len, said.out.splitlines()[1:-2])) <= 30
    assert "note: tokens 0 to 21 of 34, as many as fit; --from 22 shows the next" in said.err
    rest = multihead("show", given.gpt2, "0.1", "--text", long, "--from", 22)
    assert "note: tokens 22 to 33 of 34, as many as fit\n" in rest.err
    assert "[SEP]" in rest.out
    whole = multihead("show", given.gpt2, "0.1", "--text", long + long + " cat", "--json")
    assert json.loads(whole.out)["pieces"] == 2
    cut = multihead("show", given.gpt2, "0.1", "--text", long + long)
    assert "this is the first of 2 windows" in cut.err


@pytest.mark.parametrize(
    "words, line",
    [
        (["{gpt2}"], "{gpt2} is a model: name the head to draw"),
        (["{gpt2}", "9.0"], "unknown layer in '9.0'"),
        (["{gpt2}", "0.7"], "L0 has 3 heads, got head 7"),
        (["{gpt2}", "cat"], "'cat' is not a head name"),
        (["{bare}", "0.1"], "the model has no tokenizer"),
        (["{gpt2}", "0.1", "--text", "nowhere"], "no such file: 'nowhere'"),
        (
            ["{gpt2}", "0.1", "--text", "the cat", "--from", "4"],
            "--from must be less than 4, the number of tokens, got 4",
        ),
        (["nowhere", "0.1"], "there is no model"),
    ],
)
def test_bad_questions(multihead: Multihead, given: Folders, words: list[str], line: str) -> None:
    folders = {"gpt2": given.gpt2, "bare": given.bare}
    said = multihead("show", *(w.format(**folders) for w in words))
    assert said.code == 2
    assert said.err.startswith(f"multihead: {line.format(**folders)}")
    assert said.out == ""


def test_a_head_of_a_table_is_its_row(multihead: Multihead, tmp_path: Path) -> None:
    BEFORE.save(tmp_path / "a")
    said = multihead("show", tmp_path / "a", "0.1")
    assert said.code == 0, said.err
    assert "L0H1" in said.out
    assert "previous" in said.out
    assert "L0H0" not in said.out


def test_words_from_a_file(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text(TEXT + "\n")
    said = multihead("show", given.gpt2, "0.1", "--text", tmp_path / "words.txt", "--json")
    assert json.loads(said.out)["text"] == TEXT


# ---- the drawing ------------------------------------------------------------------------------

WEIGHTS = torch.tensor([[1.0, 0.0, 0.0], [0.36, 0.64, 0.0], [0.015, 0.04, 0.2]])
PLAIN = heatmap(WEIGHTS, list("abc"))


def test_shades_say_how_much() -> None:
    assert drawn(PLAIN) == [
        "    a b c ".rstrip(),
        "  a ██      → a 1.00",
        "  b ▓▓██    → b 0.64",
        "  c · ░░▒▒  → c 0.20",
    ]


def test_digits_are_tenths() -> None:
    seen = heatmap(WEIGHTS, list("abc"), digits=True)
    assert [line[4:10] for line in drawn(seen)[1:]] == ["9     ", "4 6   ", ". . 2 "]
    ascii_ = drawn(PLAIN, encoding="ascii")
    assert [line[4:10] for line in ascii_[1:]] == ["9     ", "4 6   ", ". . 2 "]
    assert ascii_[1].endswith("-> a 1.00")


def test_colours_are_of_the_weight() -> None:
    lines = drawn(PLAIN, color_system="truecolor", force_terminal=True, no_color=False)
    assert "48;2;253;231;37" in lines[1], "the brightest for 1"
    assert "48;2;68;1;84" in lines[1], "the darkest for 0"
    assert "█" not in "".join(lines)
    plain = drawn(PLAIN, color_system="truecolor", force_terminal=True, no_color=True)
    assert "48;2" not in "".join(plain)
    assert "██" in "".join(plain)


def test_wide_and_odd_letters_keep_the_columns() -> None:
    words = ["日本語", "🙂", "e\u0301te\u0301", "a" * 40, ""]
    eye = torch.eye(5)
    lines = drawn(heatmap(eye, words), width=50)
    from rich.cells import cell_len

    at = [cell_len(line.partition("██")[0]) for line in lines if "██" in line]
    assert at == [15 + 2 * i for i in range(5)]
    assert max(map(cell_len, lines)) <= 50
    narrow = drawn(heatmap(eye, words), width=18)
    assert any("□" in line for line in narrow), "a wide letter has no room in one column"


def test_labels_stand_on_the_map() -> None:
    lines = drawn(heatmap(torch.eye(2), ["abc", "d"]), width=40)
    assert [line.rstrip() for line in lines[:3]] == ["      a", "      b", "      c d"]
