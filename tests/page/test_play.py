"""The page of `multihead play` in a real browser: typing, switches, every number."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import multihead as mh
from multihead.model.capture import capture
from multihead.model.interventions import ablate
from multihead.sources.embedded import FOLDER
from page.conftest import Open
from page.play_node import rounded_model
from page.play_page import act, choose_head, choose_word, press, select, set_head, write
from page.test_untrusted import HOSTILE

CARD = json.loads((FOLDER / "card.json").read_text(encoding="utf-8"))
LIMIT = 1.5e6

CELL = 4
"""The cell of every vector that is read: of the weights, that of “keys”."""


# ---- the page -----------------------------------------------------------------------------------


def test_it_opens_and_is_quick(play_file: Path, opened: Open) -> None:
    assert play_file.stat().st_size < LIMIT
    html = play_file.read_text(encoding="utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'none'" in policy[1]
    shown = opened(play_file)
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


def test_open_shows_the_page_in_the_browser(tmp_path: Path) -> None:
    page, browser, opened_file = tmp_path / "page of mine.html", tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > "{opened_file}"\n', encoding="utf-8")
    browser.chmod(0o700)
    command = [sys.executable, "-m", "multihead", "play", "-o", str(page), "--open", "--quiet"]
    subprocess.run(command, check=True, env=os.environ | {"BROWSER": f"{browser} %s"})
    assert opened_file.read_text(encoding="utf-8") == page.resolve().as_uri()
    assert page.stat().st_size < LIMIT


@pytest.mark.fast("360-dark", "1440-light")
@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1440, "light"), (3840, "light")])
def test_it_fits_every_screen(width: int, scheme: str, play_file: Path, opened: Open) -> None:
    lesson = "lesson=merge&merge=1&scale=L0H1:0.5,L2H1:0&text=whale+key+whale+key+zebra"
    shown = opened(play_file, lesson, width=width, color_scheme=scheme)
    assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
    texts = shown.page.evaluate("""() => [...document.querySelectorAll("button.help")].map((button) => {
      button.click();
      return document.querySelector("#definition p").textContent;
    })""")
    assert len(texts) > 12
    for strange in ("token", "[SEP]", "L3H"):
        assert not any(strange in text for text in [*texts, shown.text("body")]), strange
    kinds = {row["kind"] for row in CARD["kinds"].values()}
    assert shown.page.locator(".kindkey .help").count() == len(kinds), "every kind has a definition"
    assert all(len(text) > 15 for text in texts)
    shown.shot(f"play-{width}-{scheme}")


def test_it_runs_inside_a_notebook(play_file: Path, opened: Open, tmp_path: Path) -> None:
    notebook = tmp_path / "notebook.html"
    html = f"<!doctype html><meta charset=utf-8><body data-ready>{mh.play()._repr_html_()}"  # pyright: ignore
    notebook.write_text(html, encoding="utf-8")
    shown = opened(notebook)
    frame = shown.page.frame_locator("iframe")
    frame.locator("body[data-ready=play]").wait_for()
    frame.locator("[data-switch=L1H3]").click()
    frame.locator(".bar.after").first.wait_for()
    assert not frame.locator("[data-switch=L1H3]").is_checked()
    assert frame.locator("[data-fact=head]").inner_text() == "11 of 12"
    shown.page.wait_for_timeout(400)  # the address is written later, and here it cannot be


# ---- words --------------------------------------------------------------------------------------


def test_typing(play_file: Path, opened: Open) -> None:
    shown = opened(play_file)
    write(shown, "")
    shown.page.type("#text", "The ke")
    shown.ready()
    assert shown.page.locator(".suggestion[data-word]").all_inner_texts() == ["key", "keys", "Kemp"]
    assert shown.text(".suggestions").startswith("complete:")
    shown.page.click(".suggestion[data-word=keys]")
    shown.ready()
    assert shown.page.input_value("#text") == "The keys "
    assert shown.page.locator(".wordchip > span").all_inner_texts() == ["<s>", "the", "keys"]
    write(shown, "the house")
    assert shown.text(".suggestions").startswith("next:"), "a word that is complete"
    shown.page.locator(".suggestion[data-word]").first.click()
    shown.ready()
    assert shown.page.input_value("#text").startswith("the house ")
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


def test_hostile_text(play_file: Path, opened: Open) -> None:
    shown = opened(play_file)
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


def test_switches_change_what_torch_changes(play_file: Path, opened: Open) -> None:
    shown = opened(play_file)
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
    again = opened(play_file, address[1:])
    assert again.page.evaluate("Array.from(multihead.session.after.logits)") == before
    assert again.page.get_attribute(".wordchip.from", "data-i") == "5"
    assert again.page.get_attribute("[data-head=L0H2]", "aria-pressed") == "true"
    press(shown, "#reset")
    assert shown.page.evaluate("multihead.session.changed") is False
    shown.page.evaluate("document.activeElement.blur()")  # in the field of words it undoes typing
    shown.press("Control+z")
    assert shown.page.evaluate("Array.from(multihead.session.after.logits)") == before


@pytest.mark.parametrize(
    ("switches", "size"),
    [
        ("scale=L2H0:0,L2H1:0,L2H2:0,L2H3:0", 768),
        ("scale=L2H0:0,L2H1:0&kv=2:2", 864),
        ("scale=L2H0:0,L2H2:0&kv=2:2", 960),
        ("scale=L2H0:0&merge=2", 1152),
        ("scale=L2H0:0.05", 1152),
    ],
)
def test_the_cache_has_what_heads_read(switches: str, size: int, play_file: Path, opened: Open) -> None:
    """A set of keys and values is counted if a head that reads it is on; a merged head reads all."""
    assert opened(play_file, switches).text("[data-fact='KV cache']") == f"{size} bytes per word"


def test_every_number_can_be_read(play_file: Path, opened: Open) -> None:
    """By keyboard: the values are those of torch, with the formula that they come from."""
    shown = opened(play_file)
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
    wrote = (
        model.layers[1].attention.o_proj.weight[:, 72:].detach() @ head.output()[0, -1]
    )  # through its columns of W_O
    strip = shown.page.get_by_role("slider", name="what L1H3 adds")
    strip.focus()
    for number in range(3):
        value = float(shown.text("#readout b").rpartition("=")[2].replace("−", "-"))
        assert value == pytest.approx(float(wrote[number]), rel=6e-3, abs=1e-6)
        assert f"row {number} of W_O, columns 72 to 95" in shown.text("#readout span")
        strip.press("ArrowRight")
    box = card.locator("canvas.cells").nth(3).bounding_box()
    shown.page.mouse.move(box["x"] + box["width"] * 4.5 / len(ids), box["y"] + 5)
    assert "score of “keys”" in shown.text("#readout b")


def test_copy_link(play_file: Path, opened: Open) -> None:
    shown = opened(play_file, permissions=["clipboard-read", "clipboard-write"])
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


def test_type_grows_on_very_wide_screens(play_file: Path, opened: Open) -> None:
    sizes: list[list[float]] = []
    for width in (1440, 2560):
        shown = opened(play_file, width=width)
        sizes.append(
            shown.page.evaluate("""() => [".wordchip", "button", ".guess", ".strength", "h1"].map((selector) =>
              parseFloat(getComputedStyle(document.querySelector(selector)).fontSize))""")
        )
    assert all(wide >= 1.3 * narrow for narrow, wide in zip(*sizes, strict=True))


def test_a_finger_can_hit_everything(play_file: Path, opened: Open) -> None:
    shown = opened(play_file, "lesson=merge&merge=1", width=360, height=740, has_touch=True, is_mobile=True)
    small = shown.page.evaluate("""() => [...document.querySelectorAll("button, select, input, canvas.cells")]
      .filter((element) => element.offsetParent)
      .map((element) => {
        const { width, height } = (element.closest("label") ?? element).getBoundingClientRect();
        const more = element.matches(".help") ? 10 : 0; // its ::after is larger
        return [element.outerHTML.slice(0, 80), Math.min(width, height) + more];
      })
      .filter(([, size]) => size < 24)""")
    assert small == []
