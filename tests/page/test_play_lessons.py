"""The lessons of `multihead play`: each step is done by what it says, and by nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from multihead.sources.embedded import FOLDER
from page.conftest import Open, Opened
from page.play_page import act, choose_head, choose_word, press, select, set_head, write

CARD = json.loads((FOLDER / "card.json").read_text(encoding="utf-8"))

Perform = Callable[[Opened], None]


def _measured(shown: Opened) -> None:
    """Wait until the loss with the present switches is measured."""
    shown.page.wait_for_function("() => multihead.session.lossGrowth() !== null")


def _only_off(names: list[str], measured: bool = False) -> Perform:
    def perform(shown: Opened) -> None:
        act(
            shown,
            """for (const box of document.querySelectorAll("[data-switch]")) {
              if (box.checked === argument.includes(box.dataset.switch)) box.click();
            }""",
            names,
        )
        if measured:
            _measured(shown)

    return perform


def _head_and_word(head: str, word: int) -> Perform:
    def perform(shown: Opened) -> None:
        choose_head(shown, head)
        choose_word(shown, word)

    return perform


def _word_that_differs(low: float, high: float) -> Perform:
    def perform(shown: Opened) -> None:
        apart = shown.page.evaluate("multihead.session.tokens.map((_, i) => multihead.session.difference(1, i))")
        choose_word(shown, next(i for i, x in enumerate(apart) if i and low < x < high))

    return perform


def _largest_gradient(shown: Opened) -> None:
    press(shown, "#reset")
    shown.page.wait_for_function("() => /[1-9]/.test(document.querySelector('.gradients td + td').textContent)")
    rows = shown.page.locator(".gradients tbody tr").all()
    norms = {row.locator("th").inner_text(): float(row.locator("td").nth(1).inner_text()) for row in rows}
    choose_head(shown, max(norms, key=lambda head: norms[head]))


def _copying_word(shown: Opened) -> None:
    head = CARD["by kind"]["induction"]["heads"][0]
    choose_head(shown, head)
    rows = shown.page.evaluate(
        "h => multihead.session.tokens.map((_, i) => Array.from(multihead.session.row('after', h, i)))", head
    )
    choose_word(shown, next(i for i in range(10, 18) if rows[i][i - 8] > 0.5))


def _by_hand(shown: Opened) -> None:
    press(shown, "#reset")
    choose_head(shown, PREVIOUS)
    select(shown, ".detail select", "previous")


def _pairs_of_every_layer(shown: Opened) -> None:
    for layer in (0, 1, 2):  # the last is the cheapest
        press(shown, "#reset")
        select(shown, f"[data-share='{layer}']", "2")
        _measured(shown)


def _all_share(shown: Opened) -> None:
    for layer in range(3):
        select(shown, f"[data-share='{layer}']", "1")
    _measured(shown)


def _share_one(shown: Opened) -> None:
    select(shown, "[data-share='2']", "1")
    _measured(shown)


def _rewrite(old: str, new: str) -> Perform:
    def perform(shown: Opened) -> None:
        press(shown, "#reset")
        text = shown.page.input_value("#text")
        assert old in text
        write(shown, text.replace(old, new))

    return perform


INDUCTION = CARD["by kind"]["induction"]["heads"]
PREVIOUS = CARD["by kind"]["previous"]["heads"][0]
CHEAP = ["L1H1", "L2H3", "L2H2", "L0H2", "L1H2"]
"""Taken out one after the other, each the cheapest that is left."""

LESSONS: dict[str, list[Perform]] = {
    "merge": [
        lambda shown: act(shown, "document.querySelector('[data-merge=\"1\"]').click()"),
        _word_that_differs(0.0, 0.15),
        _word_that_differs(0.5, 9.0),
        _largest_gradient,
    ],
    "induction": [_copying_word, lambda shown: choose_head(shown, PREVIOUS), _only_off([PREVIOUS]), _by_hand],
    "agreement": [
        _head_and_word(CARD["pointing"]["head"], 11),
        _only_off([CARD["pointing"]["head"]]),
        _rewrite("keys", "key"),
    ],
    "delimiters": [
        lambda shown: choose_head(shown, CARD["marking"]["head"]),
        _only_off([CARD["marking"]["head"]]),
        _rewrite("<now>", "<past>"),
    ],
    "redundancy": [_only_off(INDUCTION[:1]), _only_off(INDUCTION), _only_off(INDUCTION[2:])],
    "grouped": [_share_one, _pairs_of_every_layer, _all_share],
    "pruning": [_only_off(CHEAP[:n], measured=True) for n in (1, 3, 5)],
}


def test_lessons(play_file: Path, opened: Open) -> None:
    """Each step is done by what it says, in its order, and not before."""
    shown = opened(play_file)
    assert shown.page.locator("[data-lesson]").count() == 1 + len(LESSONS)
    for lesson, steps in LESSONS.items():
        press(shown, f"[data-lesson={lesson}]")
        assert shown.page.locator(".lessonsteps li").count() == len(steps), lesson
        for number, perform in enumerate(steps):
            assert shown.page.locator(".lessonsteps li.done").count() == number, (lesson, number)
            assert shown.page.locator(".learned").count() == 0
            perform(shown)
        shown.page.wait_for_selector(".learned", timeout=3000)
        assert "done" in (shown.page.get_attribute(f"[data-lesson={lesson}]", "class") or "")
        assert "undefined" not in shown.text(".lesson")


def test_progress_survives_a_reload(play_file: Path, opened: Open) -> None:
    shown = opened(play_file)
    press(shown, "[data-lesson=agreement]")
    for perform in LESSONS["agreement"]:
        perform(shown)
    press(shown, "[data-lesson=redundancy]")
    LESSONS["redundancy"][0](shown)
    shown.page.wait_for_function(
        "() => decodeURIComponent(location.hash).includes('done=agreement:3,redundancy:1')"
    )
    shown.page.reload()
    shown.ready()
    assert "done" in (shown.page.get_attribute("[data-lesson=agreement]", "class") or "")
    assert shown.page.locator(".lessonsteps li.done").count() == 1
    press(shown, "[data-lesson=agreement]")
    assert shown.page.locator(".lessonsteps li.done").count() == 0, "a lesson that is opened again begins anew"
    press(shown, "[data-lesson=redundancy]")
    assert shown.page.locator(".lessonsteps li.done").count() == 1, "an unfinished lesson goes on"
    shown.go("lesson=merge&done=merge:99,constructor:1,__proto__:2,redundancy:x")
    assert shown.page.locator(".lessonsteps li.done").count() == len(LESSONS["merge"])


def test_a_newcomer_is_led_to_the_first_lesson(play_file: Path, opened: Open) -> None:
    shown = opened(play_file)
    press(shown, ".lesson button.primary")
    head = CARD["pointing"]["head"]
    assert "Find a head" in shown.text(".lessonsteps li.now")
    bar = shown.page.locator(".stepbar")
    expect(bar).to_be_hidden()
    choose_head(shown, head)
    assert re.search(f"from “sees”, {head} looks at “keys” 0\\.9", shown.text(".input"))
    shown.page.locator(f"[data-switch={head}]").scroll_into_view_if_needed()
    shown.page.mouse.wheel(0, 400)
    expect(bar).to_be_visible()
    assert bar.inner_text().startswith("✓ Step 1 done. Step 2 of 3: Switch off one head")
    bar.locator("button").click()
    expect(bar).to_be_hidden()
    expect(shown.page.locator(".lessonsteps")).to_be_in_viewport()


def _scale(head: str, scale: float) -> Perform:
    script = "const s = document.querySelector(`[data-scale=${argument[0]}]`); s.value = argument[1];"
    return lambda shown: act(shown, f"{script} s.dispatchEvent(new Event('input'))", [head, scale])


def _pattern(head: str, pattern: str) -> Perform:
    def perform(shown: Opened) -> None:
        choose_head(shown, head)
        select(shown, ".detail select", pattern)

    return perform


def _write(text: str) -> Perform:
    return lambda shown: write(shown, text)


def _both(*moves: Perform) -> Perform:
    def perform(shown: Opened) -> None:
        for move in moves:
            move(shown)

    return perform


AGREEMENT = "<now> <town> the keys that the man near the door sees"
MARKED = "<past> <sea> the ships drifted . {} the doors behind the house"

WRONG: dict[str, tuple[str, int, Perform]] = {
    "a text with the subject at its end": ("agreement", 0, _both(_write("keys"), lambda p: choose_head(p, "L0H0"))),
    "the second step before the first": ("agreement", 0, _only_off([CARD["pointing"]["head"]])),
    "no verb at all": ("agreement", 1, _only_off(["L0H3"])),
    "a weaker verb": ("agreement", 1, _only_off(["L2H3"])),
    "two heads": ("agreement", 1, _only_off([CARD["pointing"]["head"], "L0H2"])),
    "an unknown subject": ("agreement", 2, _write(AGREEMENT.replace("keys", "kes"))),
    "an unknown article": ("agreement", 2, _write(AGREEMENT.replace("the keys", "he keys"))),
    "two words in one": ("agreement", 2, _write(AGREEMENT.replace("keys that", "keysthat"))),
    "a different subject": ("agreement", 2, _write("<now> <town> the man that the man near the door seess")),
    "a head that reads no mark": ("delimiters", 1, _only_off(["L0H1"])),
    "two marks": ("delimiters", 2, _write(MARKED.format("<past> <sea>"))),
    "a word in place of a mark": ("delimiters", 2, _write(MARKED.format("zebra <town>"))),
    "a different text": ("delimiters", 2, _write("<past> <town> the doors")),
    "the wrong head of the layer": ("induction", 1, lambda shown: choose_head(shown, "L0H2")),
    "a pattern": ("induction", 2, _pattern(PREVIOUS, "first")),
    "a small scale": ("induction", 2, _scale(PREVIOUS, 0.05)),
    "the first word": ("induction", 3, _pattern(PREVIOUS, "first")),
    "no induction head": ("redundancy", 0, _only_off([PREVIOUS])),
    "something else as well": ("redundancy", 0, _both(_scale("L2H2", 0.5), _only_off(INDUCTION[:1]))),
    "two that are not enough": ("redundancy", 2, _only_off(INDUCTION[:2])),
    "merged and off": (
        "merge",
        0,
        _both(_only_off(["L2H2"]), lambda p: act(p, "document.querySelector('[data-merge=\"1\"]').click()")),
    ),
    "the first word, where all agree": ("merge", 1, lambda shown: choose_word(shown, 0)),
    "a costly head": ("pruning", 0, _only_off(["L1H3"], measured=True)),
    "a budget passed with a scale": ("pruning", 1, _both(_only_off(CHEAP[:2]), _scale("L2H2", 0.05))),
}


@pytest.mark.fast(4)
@pytest.mark.parametrize("move", list(WRONG))
def test_a_wrong_move_is_not_a_step(move: str, play_file: Path, opened: Open) -> None:
    lesson, step, wrong = WRONG[move]
    shown = opened(play_file)
    press(shown, f"[data-lesson={lesson}]")
    for perform in LESSONS[lesson][:step]:
        perform(shown)
    assert shown.page.locator(".lessonsteps li.done").count() == step
    wrong(shown)
    if lesson == "pruning":
        _measured(shown)
    assert shown.page.locator(".lessonsteps li.done").count() == step


def test_a_changed_text_can_be_restored(play_file: Path, opened: Open) -> None:
    shown = opened(play_file)
    press(shown, "[data-lesson=redundancy]")
    assert shown.page.locator(".restoring").count() == 0
    write(shown, "whale whale whale whale")
    assert "needs the words that the lesson began with" in shown.text(".restoring")
    press(shown, ".restore")
    assert shown.page.input_value("#text").startswith("whale key fat")
    assert shown.page.evaluate("document.activeElement.className") == "lesson", "the focus is not lost"
    LESSONS["redundancy"][0](shown)
    assert shown.page.locator(".lessonsteps li.done").count() == 1


def test_the_tenses_are_compared_on_the_page(play_file: Path, opened: Open) -> None:
    """The step is done where the first of the two sums in its text is larger."""
    shown = opened(play_file)
    press(shown, "[data-lesson=delimiters]")
    for perform in LESSONS["delimiters"][:2]:
        sums = [float(x) for x in re.findall(r"([\d.]+)\u00a0%", shown.text(".lessonsteps li >> nth=1"))]
        assert sums[0] < sums[1]
        perform(shown)
    past, present = re.findall(r"([\d.]+)\u00a0%", shown.text(".lessonsteps li >> nth=1"))
    assert float(past) > float(present)


def test_words_that_repeat_have_their_place(play_file: Path, opened: Open) -> None:
    """And a merged head is named as such: the table beside it is of the separate heads."""
    shown = opened(play_file, "text=the+key+the+key&head=L1H0&lesson=merge&merge=1&token=3")
    blue = re.search(r"Blue: (.*)", shown.text(".input"))[1]  # pyright: ignore
    assert "from “the” (word 3), the merged head of layer 1 looks at" in blue
    places = re.findall(r"“(?:the|key)” \(word (\d)\) 0\.", blue)
    assert places
    assert len(set(places)) == len(places)
    assert "if separate" in shown.text(".gradients")
    assert {len(x) for x in re.findall(r"\d+\.(\d+)\u00a0%", shown.text(".beside"))} == {1}, "one format"


def test_ticks_do_not_move_the_lessons(play_file: Path, opened: Open) -> None:
    """At 1280 pixels the buttons are in one row, and a tick changes the width of none."""
    edges: list[list[list[float]]] = []
    for done in ("", ",".join(f"{lesson}:{len(steps)}" for lesson, steps in LESSONS.items())):
        shown = opened(play_file, f"lesson=induction&done={done}", width=1280)
        edges.append(
            shown.page.evaluate("""() => [...document.querySelectorAll("[data-lesson]")].map((button) => {
              const { top, right } = button.getBoundingClientRect();
              return [top, right];
            })""")
        )
    assert edges[0] == edges[1]
    assert len({top for top, _ in edges[0]}) == 1


def test_costs_of_further_heads(play_file: Path, opened: Open) -> None:
    """The lesson on pruning lists what each further head would cost: as measured when it is off."""
    shown = opened(play_file)
    press(shown, "[data-lesson=pruning]")
    for head in CHEAP[:2]:
        shown.page.wait_for_function("() => !document.querySelector('.removals').innerText.includes('…')")
        assert shown.page.locator(".removals th:has(+ td b)").inner_text() == head
        listed = shown.page.locator(".removals td b").inner_text()
        set_head(shown, head, False)
        _measured(shown)
        assert f"+{float(listed.split()[0]):.2g}" in shown.text("[data-fact='mean loss']")
