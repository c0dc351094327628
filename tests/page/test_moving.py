"""From head to head: what stays on the page shows the new head, as if it had been opened anew."""

from __future__ import annotations

import pytest

from page.conftest import Open, Opened, Page

SEEN = """() => [document.querySelector('canvas.map').toDataURL(), document.querySelector('canvas.map').ariaLabel,
  document.querySelector('main').innerText, document.querySelector('canvas.profile').toDataURL(),
  [...document.querySelectorAll('.token')].map((t) => t.className + (t.getAttribute('style') || '')).join(),
  [...document.querySelectorAll('main a')].map((a) => a.className + a.getAttribute('href')).join()]"""


def seen(shown: Opened) -> list[str]:
    shown.page.mouse.move(5, 5)
    shown.page.wait_for_timeout(150)
    return list(shown.page.evaluate(SEEN))


@pytest.mark.fast(2)
@pytest.mark.parametrize("options", ["", "&row=7", "&dir=seen&row=3", "&norm=1&hide=1&row=7&text=1"])
def test_a_head_reached_by_keys_is_the_head_opened_anew(options: str, small: Page, opened: Open) -> None:
    moved = opened(small.file, f"layer=0&head=3{options}", height=1500)
    moved.page.evaluate("document.querySelector('.token').id = 'mine'")
    for key, place in (("ArrowRight", (0, 0)), ("ArrowDown", (1, 0)), ("ArrowRight", (1, 1))):
        moved.press(key)
        fresh = opened(small.file, moved.address().removeprefix("#"), height=1500)
        assert moved.text("h2") == f"L{place[0]}H{place[1]}"
        for there, here in zip(seen(fresh), seen(moved), strict=True):
            assert here == there
    assert moved.page.locator("#mine").count() == 1, "the text stayed where it was"


def test_zoom_and_measures_stay_open(small: Page, opened: Open) -> None:
    shown = opened(small.file, "layer=1&head=2", height=1500)
    shown.page.click("summary >> text=measures")
    shown.page.click("[aria-label='Zoom in']")
    near = seen(shown)
    shown.press("ArrowRight")
    table = small.found.table
    assert table is not None
    row = shown.text("table.measures tr:has(th:text-is('entropy')) td:nth-child(2)")
    assert float(row) == pytest.approx(float(table.row("L1H3")["entropy"]), rel=2e-3)
    shown.press("ArrowLeft")
    assert seen(shown)[:2] == near[:2]
    shown.page.click("button >> text=Whole map")
    assert seen(shown)[0] != near[0]


def test_the_last_of_many_keys_counts(small: Page, opened: Open) -> None:
    shown = opened(small.file, "layer=0&head=0", height=1500)
    shown.page.evaluate("""() => ['Right', 'Down', 'Right', 'Up', 'Right', 'Down'].forEach((way) =>
      document.body.dispatchEvent(new KeyboardEvent('keydown', { key: `Arrow${way}`, bubbles: true })))""")
    shown.page.wait_for_selector("body[data-ready='head #layer=1&head=3']", state="attached")
    assert shown.text("h2") == "L1H3"
    assert "map of L1H3" in seen(shown)[1]
    assert shown.text("#live").startswith("L1H3")


def test_keys_that_wait_are_one_move(small: Page, opened: Open) -> None:
    shown = opened(small.file, "layer=0&head=0")
    shown.page.evaluate("""() => {
      window.moves = [];
      const note = () => moves.push(document.body.dataset.ready);
      new MutationObserver(note).observe(document.body, { attributes: true, attributeFilter: ['data-ready'] });
      for (let i = 0; i < 43; i += 1) dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }));
    }""")
    shown.page.wait_for_selector("body[data-ready='head #layer=0&head=3']", state="attached")
    assert shown.page.evaluate("moves") == ["head #layer=0&head=3"]


def test_a_held_key_rarely_writes_the_address(small: Page, opened: Open) -> None:
    """Chrome ignores more than 200 changes in 10 s, Safari more than 100 in 30 s: the head would stop changing.

    Playwright switches the limit of Chromium off.
    """
    shown = opened(small.file, "layer=0&head=0&row=5")
    writes = shown.page.evaluate("""async () => {
      const write = history.replaceState.bind(history);
      let writes = 0;
      history.replaceState = (...values) => { writes += 1; write(...values); };
      const press = (key) => document.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
      for (let i = 0; i < 61; i += 1) {
        press('ArrowRight');
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      return writes;
    }""")
    assert 1 <= writes <= 8
    shown.page.wait_for_selector("body[data-ready='head #layer=0&head=1&row=5']", state="attached")
    assert shown.text("h2") == "L0H1"
    shown.page.wait_for_function("() => location.hash === '#layer=0&head=1&row=5'")
    shown.page.keyboard.press("ArrowDown")
    shown.page.keyboard.press("Escape")  # before the address has followed
    shown.page.wait_for_selector("body[data-view=heads]")
    shown.page.wait_for_timeout(600)
    assert shown.page.evaluate("location.hash") == "#view=heads"


def test_the_heads_of_a_layer_are_drawn_at_once(trained: Page, opened: Open) -> None:
    """A browser may keep idle callbacks until their timeout, half a second for each of 12 heads."""
    shown = opened(trained.file, "layer=3&head=7")
    shown.page.wait_for_function("() => document.querySelectorAll('.slot canvas').length === 12", timeout=3000)
    colours = shown.page.evaluate("""() => [...document.querySelectorAll('.slot canvas')].map((canvas) => {
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      return new Set(new Uint32Array(data.buffer)).size;
    })""")
    assert len(colours) == 12
    assert min(colours) > 5, "every map is painted"


def test_colours_change_on_a_head_that_was_moved_to(small: Page, opened: Open) -> None:
    shown = opened(small.file, "layer=0&head=3&row=5", height=1500)
    shown.press("ArrowRight")
    before = seen(shown)
    shown.page.click("#theme")
    dark = seen(shown)
    assert dark[0] != before[0]
    assert dark[1:3] == before[1:3]
    shown.page.click("#theme")
    assert seen(shown) == before


def test_the_chosen_text_stays_when_the_tab_changes(small: Page, opened: Open) -> None:
    shown = opened(small.file, "view=tokens&text=1")
    shown.page.click("#views a[data-view=heads]")
    shown.page.wait_for_selector("body[data-view=heads]")
    shown.page.click("#views a[data-view=tokens]")
    shown.page.wait_for_selector("body[data-view=tokens]")
    assert shown.page.evaluate("location.hash") == "#view=tokens&text=1"
