"""What the address of `multihead play` restores, what is undone, and text that nobody expects."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import settings

from page.conftest import Open
from page.play_page import act, press, set_head, write

VALID = (
    "text=%3Cnow%3E+%3Ctown%3E+the+keys&head=L1H3&scale=L0H1%3A0%2CL2H1%3A0.35&pattern=L0H2%3Afirst&merge=2"
    "&kv=1%3A2&token=2&lesson=agreement&done=agreement%3A2%2Credundancy%3A1"
)
JUNK = (
    *(
        "%",
        "%zz",
        "%00",
        "%F0%9F",
        "&",
        "=",
        "#",
        ",",
        ":",
        "\u202e",
        "\ud83d",
        "__proto__",
        "constructor",
        "9" * 40,
    ),
    *("L99H99", "L00H00", "L0H0:NaN", "L0H0:1e-400", "L0H0:-0", "L0H0:Infinity", "L0H0:0x1", "L0H0: ", "L0H0:2"),
    *("kv=0:0", "kv=0:4,0:1", "merge=7", "token=1e1", "token=-1", "token=%20", "lesson=__proto__", "lesson=kv"),
    *(
        "done=merge:99",
        "done=toString:3",
        "pattern=L0H0:__proto__",
        "head=L1H3%00",
        "<img src=x onerror=window.hit=1>",
    ),
)
STATE = """fragment => {
  const { session, page } = multihead;
  session.restore(`#${fragment}`);
  page.update();
  const { settings, lesson, hash, token, tokens, head, layer } = session;
  const progress = [...session.progress];
  session.restore(hash);
  return { settings, lesson, progress, token, count: tokens.length, head, layer, stable: session.hash === hash,
    finite: session.after.probabilities.every(Number.isFinite) };
}"""
STEPS = {"agreement": 3, "delimiters": 3, "induction": 4, "redundancy": 3, "merge": 4, "grouped": 3, "pruning": 3}


def _mutated(draw: random.Random) -> str:
    text = VALID
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(text) + 1)
        parts = text.split("&")
        text = draw.choice(
            [
                text[:at] + draw.choice(JUNK) + text[at:],
                text[:at] + text[at + draw.randint(1, 9) :],
                text[:at]
                + chr(draw.choice([draw.randrange(33, 127), draw.randrange(0x80, 0x2FFF)]))
                + text[at + 1 :],
                f"{text[:at]}&{draw.choice(JUNK)}{text[at:]}",
                "&".join([*draw.sample(parts, len(parts)), draw.choice(parts)]),
            ]
        )
    return text


def test_any_address_leads_to_a_valid_state(play_file: Path, opened: Open) -> None:
    shown = opened(play_file)
    draw = random.Random(7)
    for _ in range(min(500, 3 * settings().max_examples)):
        fragment = _mutated(draw).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        state = shown.page.evaluate(STATE, fragment)
        heads = [head for layer in state["settings"] for head in layer["heads"]]
        assert len(heads) == 12
        assert all(0 <= head["scale"] <= 1 for head in heads), fragment
        assert all(head["pattern"] in (None, "uniform", "previous", "first") for head in heads), fragment
        assert all(layer["kvHeads"] in (1, 2, 4) for layer in state["settings"]), fragment
        assert state["lesson"] in ("", *STEPS), fragment
        assert all(0 <= steps <= STEPS[lesson] for lesson, steps in state["progress"]), fragment
        assert 0 <= state["token"] < state["count"] <= 72, fragment
        assert state["stable"], fragment
        assert state["finite"], fragment
    assert shown.page.evaluate("window.hit") is None


@pytest.mark.parametrize(
    ("text", "shown_as"),
    [("\u202ethe", "⟨U+202E⟩"), ("a\x00b", "⟨U+0000⟩"), ("the \u0301", "⟨U+0301⟩"), ("\u200d", "⟨U+200D⟩")],
)
def test_what_cannot_be_seen_is_named(text: str, shown_as: str, play_file: Path, opened: Open) -> None:
    shown = opened(play_file)
    act(
        shown,
        "const f = document.getElementById('text'); f.value = argument; f.dispatchEvent(new Event('input'))",
        text,
    )
    assert f"“{shown_as}” is not one of the 214 words" in shown.text(".notes")
    assert shown_as in shown.page.locator(".wordchip.unknown .word").all_inner_texts()


def test_words_from_right_to_left_turn_nothing_around(play_file: Path, opened: Open) -> None:
    shown = opened(play_file)
    write(shown, "the \u05d0\u05d1\u05d2 key")
    for selector in (".wordchip.unknown .word", ".notes .word"):
        assert shown.page.eval_on_selector(selector, "e => getComputedStyle(e).unicodeBidi") == "isolate"


def test_ten_thousand_letters_at_once(play_file: Path, opened: Open) -> None:
    shown = opened(play_file, width=360)
    for text in ("x" * 10_000, "keys " * 2000, "<" * 10_000, " ".join(f"w{i}" for i in range(2000))):
        shown.page.fill("#text", text)
        shown.ready()
        assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert shown.page.locator(".notes p").count() <= 6
        assert float(shown.page.get_attribute("body", "data-took") or "nan") < 500


def test_undo_and_redo(play_file: Path, opened: Open) -> None:
    shown = opened(play_file)
    assert shown.page.is_disabled("#undo")
    assert shown.page.is_disabled("#redo")
    set_head(shown, "L0H1", False)
    slider = shown.page.locator("[data-scale=L0H0]").bounding_box()
    middle = slider["y"] + slider["height"] / 2
    shown.page.mouse.move(slider["x"] + slider["width"] - 6, middle)
    shown.page.mouse.down()
    shown.page.mouse.move(slider["x"] + 0.3 * slider["width"], middle, steps=8)
    shown.page.mouse.up()
    shown.ready()
    dragged = shown.page.evaluate("multihead.session.settings[0].heads[0].scale")
    assert 0 < dragged < 0.6
    address = shown.page.evaluate("multihead.session.hash")
    press(shown, "#undo")
    assert shown.page.evaluate("multihead.session.settings[0].heads[0].scale") == 1, "a drag is one step"
    press(shown, "#undo")
    assert shown.page.evaluate("multihead.session.changed") is False
    press(shown, "#redo")
    shown.page.evaluate("document.activeElement.blur()")
    shown.press("Control+y")
    assert shown.page.evaluate("multihead.session.hash") == address
    press(shown, "#undo")
    set_head(shown, "L2H2", False)
    assert shown.page.is_disabled("#redo"), "a new switch begins a new future"
