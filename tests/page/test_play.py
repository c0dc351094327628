"""The page of `multihead play` in a real browser: typing, switches, every number, every lesson."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import expect

import multihead as mh
from multihead.model.capture import capture
from multihead.model.interventions import ablate
from multihead.sources.embedded import FOLDER
from page.conftest import Open, Opened
from page.play_node import rounded_model
from page.test_untrusted import HOSTILE

CARD = json.loads((FOLDER / "card.json").read_text(encoding="utf-8"))
LIMIT = 1.5e6

CELL = 4
"""The cell of every vector that is read: of the weights, that of “keys”."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mh.play().save(tmp_path_factory.mktemp("play") / "play.html")


def act(shown: Opened, script: str, argument: Any = None) -> None:
    """Run a script that changes something, and wait until the change is shown."""
    shown.page.evaluate(f"argument => {{ {script} }}", argument)
    shown.ready()


def set_head(shown: Opened, name: str, on: bool) -> None:
    box = shown.page.locator(f"[data-switch={name}]")
    if box.is_checked() != on:
        act(shown, "document.querySelector(`[data-switch=${argument}]`).click()", name)


def choose_head(shown: Opened, name: str) -> None:
    act(shown, "document.querySelector(`[data-head=${argument}]`).click()", name)


def choose_word(shown: Opened, token: int) -> None:
    act(shown, "document.querySelector(`.wordchip[data-i='${argument}']`).click()", token)


def write(shown: Opened, text: str) -> None:
    shown.page.fill("#text", text)
    shown.ready()


def select(shown: Opened, selector: str, value: str) -> None:
    shown.page.select_option(selector, value)
    shown.ready()


def press(shown: Opened, selector: str) -> None:
    act(shown, "document.querySelector(argument).click()", selector)


# ---- the page -----------------------------------------------------------------------------------


def test_it_opens_and_is_quick(file: Path, opened: Open) -> None:
    assert file.stat().st_size < LIMIT
    html = file.read_text(encoding="utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'none'" in policy[1]
    shown = opened(file)
    write(shown, mh.embedded()[1].sample_texts()[0])
    assert shown.page.locator(".wordchip").count() == 72
    best = shown.page.evaluate("""() => Math.min(...Array.from({ length: 7 }, () => {
      const { model, before } = multihead.session;
      const began = performance.now();
      model.run(before.ids);
      return performance.now() - began;
    }))""")
    assert best < 50
    assert "undefined" not in shown.text("body")
    assert "NaN" not in shown.text("body")


@pytest.mark.fast("360-dark", "1440-light")
@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1440, "light"), (3840, "light")])
def test_it_fits_every_screen(width: int, scheme: str, file: Path, opened: Open) -> None:
    lesson = "lesson=merge&merge=1&scale=L0H1:0.5,L2H1:0&text=whale+key+whale+key+zebra"
    shown = opened(file, lesson, width=width, color_scheme=scheme)
    assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
    texts = shown.page.evaluate("""() => [...document.querySelectorAll("button.help")].map((button) => {
      button.click();
      return document.querySelector("#definition p").textContent;
    })""")
    assert len(texts) > 12
    kinds = {row["kind"] for row in CARD["kinds"].values()}
    assert shown.page.locator(".kindkey .help").count() == len(kinds), "every kind has a definition"
    assert all(len(text) > 15 for text in texts)
    shown.shot(f"play-{width}-{scheme}")


def test_it_runs_inside_a_notebook(file: Path, opened: Open, tmp_path: Path) -> None:
    notebook = tmp_path / "notebook.html"
    html = f"<!doctype html><meta charset=utf-8><body data-ready>{mh.play()._repr_html_()}"  # pyright: ignore
    notebook.write_text(html, encoding="utf-8")
    shown = opened(notebook)
    frame = shown.page.frame_locator("iframe")
    frame.locator("body[data-ready=play]").wait_for()
    frame.locator("[data-switch=L1H3]").click()
    frame.locator(".bar.after").first.wait_for()
    shown.page.wait_for_timeout(400)  # the address is written later, and here it cannot be


# ---- words --------------------------------------------------------------------------------------


def test_typing(file: Path, opened: Open) -> None:
    shown = opened(file)
    write(shown, "")
    shown.page.type("#text", "The ke")
    shown.ready()
    assert shown.page.locator(".suggestion[data-word]").all_inner_texts() == ["key", "keys", "Kemp"]
    shown.page.click(".suggestion[data-word=keys]")
    shown.ready()
    assert shown.page.input_value("#text") == "The keys "
    assert shown.page.locator(".wordchip > span").all_inner_texts() == ["<s>", "the", "keys"]
    write(shown, "the zebra sinks")
    assert "“zebra” is not one of the 214 words" in shown.text(".notes")
    assert shown.page.locator(".wordchip.unknown").inner_text().startswith("zebra")
    write(shown, "the " * 90)
    assert shown.page.locator(".wordchip").count() == 72
    assert "19 words are not read" in shown.text(".notes")
    shown.page.locator(".wordchip").nth(3).focus()
    shown.page.keyboard.press("ArrowRight")
    shown.ready()
    assert shown.page.get_attribute(".wordchip.from", "data-i") == "4"


def test_hostile_text(file: Path, opened: Open) -> None:
    shown = opened(file)
    for text in HOSTILE.values():
        written = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        act(
            shown,
            "const f = document.getElementById('text'); f.value = argument; f.dispatchEvent(new Event('input'))",
            written,
        )
    assert shown.page.evaluate("window.hit") is None
    assert shown.page.locator("main img, main iframe, main script, main form").count() == 0
    assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for fragment in (
        "text=</script><script>window.hit=1</script>&head=__proto__&scale=L9H9:0,L0H0:7,x&kv=9:9,0:3",
        "lesson=constructor&pattern=L0H0:constructor&merge=99,__proto__&token=1e9&head=<img src=x>",
    ):
        shown.page.evaluate("document.body.removeAttribute('data-ready')")
        shown.go(fragment)
        assert shown.page.evaluate("window.hit") is None
        assert shown.page.locator("[data-switch]:checked").count() == 12
        assert shown.text("[data-fact='KV cache']") == "1152 bytes per word"


# ---- switches -----------------------------------------------------------------------------------


def test_switches_change_what_torch_changes(file: Path, opened: Open) -> None:
    shown = opened(file)
    head, text = CARD["pointing"]["head"], "<now> <town> the keys that the man near the door sees"
    write(shown, text)
    set_head(shown, head, False)
    model, (_, tokenizer) = rounded_model(), mh.embedded()
    ids = tokenizer(text)["input_ids"]
    with torch.no_grad(), ablate(model, [head]):
        chances = model(torch.tensor([ids])).logits[0].softmax(-1)
    for which in ("are", "is"):
        want = float(chances[-1, tokenizer.get_vocab()[which]])
        got = shown.page.evaluate("w => multihead.session.probability('after', [w])", which)
        assert got == pytest.approx(want, rel=1e-4, abs=1e-7)
        written = f"{100 * want:.2g}" if want >= 0.01 else "< 0.1"
        assert shown.text(f".guess[data-word={which}] b") == f"{written}\u00a0%"
    assert "changed after" in shown.text(".changes")
    assert shown.text("[data-fact=head]") == "11 of 12"
    press(shown, "#undo")
    assert shown.page.locator(".bar.after").count() == 0
    act(
        shown,
        "const s = document.querySelector('[data-scale=L0H1]'); s.value = 0.3; s.dispatchEvent(new Event('input'))",
    )
    choose_head(shown, "L0H2")
    select(shown, ".detail select", "first")
    act(shown, "document.querySelector('[data-merge=\"2\"]').click()")
    select(shown, "[data-share='1']", "2")
    choose_word(shown, 5)
    assert shown.text("[data-fact='KV cache']") == "960 bytes per word"
    shown.page.wait_for_function("() => location.hash.includes('kv=')")
    address = shown.page.evaluate("location.hash")
    before = shown.page.evaluate("Array.from(multihead.session.after.logits)")
    again = opened(file, address[1:])
    assert again.page.evaluate("Array.from(multihead.session.after.logits)") == before
    assert again.page.get_attribute(".wordchip.from", "data-i") == "5"
    assert again.page.get_attribute("[data-head=L0H2]", "aria-pressed") == "true"
    press(shown, "#reset")
    assert shown.page.evaluate("multihead.session.changed") is False
    shown.page.evaluate("document.activeElement.blur()")  # in the field of words it undoes typing
    shown.press("Control+z")
    assert shown.page.evaluate("Array.from(multihead.session.after.logits)") == before


def test_every_number_can_be_read(file: Path, opened: Open) -> None:
    """By keyboard: the values are those of torch, with the formula that they come from."""
    shown = opened(file)
    text = "<now> <town> the keys that the man near the door sees"
    write(shown, text)
    choose_head(shown, "L1H3")
    model, (_, tokenizer) = rounded_model(), mh.embedded()
    ids = tokenizer(text)["input_ids"]
    with torch.no_grad(), capture(model, statistics=None, keep="qk v outputs") as heads:
        model(torch.tensor([ids]))
    head = heads[1, 3]
    card = shown.page.locator(".headcard").nth(3)
    parts = {
        0: (head.query()[0, -1], f"W_Q[{CELL}] · x̂ + bias"),
        1: (head.key()[0, -1], f"W_K[{CELL}] · x̂ + bias"),
        2: (head.value()[0, -1], f"W_V[{CELL}] · x̂ + bias"),
        4: (head.weights()[0, -1], "e^(score − largest)"),
        5: (head.output()[0, -1], f"Σ weight · v[{CELL}]"),
    }
    for number, (vector, formula) in parts.items():
        strip = card.locator("canvas.cells").nth(number)
        strip.focus()
        strip.press("Home")
        for _ in range(CELL):
            strip.press("ArrowRight")
        value = float(shown.text("#readout b").rpartition("=")[2].replace("−", "-"))
        assert value == pytest.approx(float(vector[CELL]), rel=6e-3, abs=1e-6), number
        assert formula in shown.text("#readout span")
        assert strip.get_attribute("aria-valuenow") == str(CELL)
    assert "64 = d_model" in shown.text(".computation")
    assert "96 = 4 heads × d_k" in shown.text(".computation")
    box = card.locator("canvas.cells").nth(3).bounding_box()
    shown.page.mouse.move(box["x"] + box["width"] * 4.5 / len(ids), box["y"] + 5)
    assert "score of “keys”" in shown.text("#readout b")


# ---- lessons ------------------------------------------------------------------------------------

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


def test_lessons(file: Path, opened: Open) -> None:
    """Each step is done by what it says, in its order, and not before."""
    shown = opened(file)
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


def test_progress_survives_a_reload(file: Path, opened: Open) -> None:
    shown = opened(file)
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
    shown.go("lesson=merge&done=merge:99,constructor:1,__proto__:2,redundancy:x")
    assert shown.page.locator(".lessonsteps li.done").count() == len(LESSONS["merge"])


def test_copy_link(file: Path, opened: Open) -> None:
    shown = opened(file, permissions=["clipboard-read", "clipboard-write"])
    set_head(shown, "L0H1", False)
    shown.page.click("#copylink")
    shown.page.wait_for_selector("#copylink >> text=Copied")
    assert "scale=L0H1" in shown.page.evaluate("navigator.clipboard.readText()")
    shown.page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    set_head(shown, "L0H2", False)
    shown.page.click("#copylink")
    field = shown.page.locator(".copylink input")
    field.wait_for(state="visible")
    assert "L0H2" in field.input_value()
    assert shown.page.evaluate("getSelection().toString()") == field.input_value()
    shown.page.locator("h1").click()
    assert field.is_hidden()


def test_type_grows_on_very_wide_screens(file: Path, opened: Open) -> None:
    sizes: list[list[float]] = []
    for width in (1440, 2560):
        shown = opened(file, width=width)
        sizes.append(
            shown.page.evaluate("""() => [".wordchip", "button", ".guess", ".strength", "h1"].map((selector) =>
              parseFloat(getComputedStyle(document.querySelector(selector)).fontSize))""")
        )
    assert all(wide >= 1.3 * narrow for narrow, wide in zip(*sizes, strict=True))


def test_a_newcomer_is_led_to_the_first_lesson(file: Path, opened: Open) -> None:
    shown = opened(file)
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


def test_a_finger_can_hit_everything(file: Path, opened: Open) -> None:
    shown = opened(file, "lesson=merge&merge=1", width=360, height=740, has_touch=True, is_mobile=True)
    small = shown.page.evaluate("""() => [...document.querySelectorAll("button, select, input, canvas.cells")]
      .filter((element) => element.offsetParent)
      .map((element) => {
        const { width, height } = (element.closest("label") ?? element).getBoundingClientRect();
        const more = element.matches(".help") ? 10 : 0; // its ::after is larger
        return [element.outerHTML.slice(0, 80), Math.min(width, height) + more];
      })
      .filter(([, size]) => size < 24)""")
    assert small == []


def test_a_wrong_move_is_not_a_step(file: Path, opened: Open) -> None:
    shown = opened(file)
    press(shown, "[data-lesson=agreement]")
    choose_head(shown, CARD["pointing"]["head"])
    assert shown.page.locator(".lessonsteps li.done").count() == 1
    set_head(shown, "L0H3", False)  # after it the model predicts no verb at all
    assert shown.page.locator(".lessonsteps li.done").count() == 1
    press(shown, "#reset")
    press(shown, "[data-lesson=agreement]")
    set_head(shown, CARD["pointing"]["head"], False)  # the second step before the first
    assert shown.page.locator(".lessonsteps li.done").count() == 0
    press(shown, "[data-lesson=redundancy]")
    set_head(shown, PREVIOUS, False)  # no induction head
    assert shown.page.locator(".lessonsteps li.done").count() == 0
