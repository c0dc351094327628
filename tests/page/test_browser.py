"""The page in a real browser: every view and what it says, keyboard, addresses, other ways to read it."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
import torch
from playwright.sync_api import expect

from page.conftest import Open, Page, maps_of

VIEWS = ("heads", "tokens", "similarity", "pruning", "theory")

GRID = (62, 40)
"""Pixels left of the grid of heads and above it: axis titles, layers, numbers."""

PAIRS = 58
"""Pixels left of the similarity matrix and above it: axis titles, names."""


# ---- every view -------------------------------------------------------------------------------


@pytest.mark.fast("light", "head-dark")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", [*VIEWS, "head", "pair"])
def test_views(view: str, scheme: str, small: Page, opened: Open) -> None:
    fragment = {"head": "layer=1&head=2&row=7", "pair": "layer=1&head=2&second=L0H1&row=7"}.get(
        view, f"view={view}"
    )
    shown = opened(small.file, fragment, color_scheme=scheme)
    text = shown.text("main")
    said = {
        "heads": ["L0H0", "L1H3", "Importance", "Kind"],
        "tokens": ["Click a token", "L1"],
        "similarity": ["Most similar pairs", "Groups of similar heads"],
        "pruning": ["heads kept", "What attention costs"],
        "theory": ["orthogonal spaces", "fails"],
        "head": ["L1H2", "Importance", "Most similar", "looks at", "All heads of L1"],
        "pair": ["and L0H1", "Similarity: correlation"],
    }[view]
    shown.page.wait_for_timeout(150)
    text = shown.text("main")
    for words in said:
        assert words in text, view
    assert "undefined" not in text
    assert "NaN" not in text
    assert "[object" not in text
    assert "file:" not in text, "links show names, not addresses"
    assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
    shown.shot(f"small-{view}-{scheme}")


def test_card_and_findings_lead_to_their_evidence(small: Page, opened: Open) -> None:
    shown = opened(small.file)
    assert "2 layers × 4 heads" in shown.text("#card")
    assert "142 tokens in 6 documents" in shown.text("#card")
    links = shown.page.locator("#findings a.arrow")
    assert links.count() == 3
    targets = [links.nth(i).get_attribute("href") for i in range(3)]
    for target in targets:
        shown.go(target)
        assert shown.page.locator("main *").count() > 5


def test_grid_opens_a_head_and_tells_it(small: Page, opened: Open) -> None:
    shown = opened(small.file)
    box = shown.page.locator("canvas.grid").bounding_box()
    cell = (box["width"] - GRID[0]) / 4
    place = (box["x"] + GRID[0] + 2.5 * cell, box["y"] + GRID[1] + 1.5 * cell)
    shown.page.mouse.move(*place)
    assert shown.text(".hover").startswith("L1H2 ·")
    shown.page.mouse.click(*place)
    shown.page.wait_for_selector(".headview")
    assert shown.page.evaluate("location.hash") == "#layer=1&head=2"
    assert shown.text("h2") == "L1H2"


def test_colour_by_any_measure(small: Page, opened: Open) -> None:
    shown = opened(small.file)
    names = shown.page.locator("main select").first.locator("option").all_inner_texts()
    assert {"kind of head", "entropy", "distance", "ablation_zero"} <= set(names)
    for name in ("entropy", "ablation_zero", "most_similar_cka"):
        shown.go(f"view=heads&color={name}")
        assert shown.page.locator(".legend canvas").count() == 1


def test_sorting(small: Page, opened: Open) -> None:
    table = small.found.table
    assert table is not None
    shown = opened(small.file)
    rows = expect(shown.page.locator("table.heads tbody th a"))  # waits until the page has drawn them
    rows.to_have_text(list(table.sort("ablation_zero", descending=True).heads))
    shown.page.click("thead >> text=Importance")
    rows.to_have_text(list(table.sort("ablation_zero").heads))
    assert shown.page.get_attribute("th:has(button:has-text('Importance'))", "aria-sort") == "ascending"
    shown.page.click("thead >> text=Head")
    rows.to_have_text(list(table.heads))


def test_keyboard(small: Page, opened: Open) -> None:
    shown = opened(small.file, "layer=0&head=3")
    for key, head in (
        ("ArrowRight", "L0H0"),
        ("ArrowDown", "L1H0"),
        ("ArrowLeft", "L1H3"),
        ("ArrowUp", "L0H3"),
        ("ArrowUp", "L1H3"),
    ):
        shown.press(key)
        assert shown.text("h2") == head
        assert shown.address() == f"#layer={head[1]}&head={head[3]}"
    shown.press("Escape")
    assert shown.page.locator("canvas.grid").count() == 1
    shown.page.focus("canvas.grid")
    shown.page.keyboard.press("ArrowDown")
    shown.page.keyboard.press("ArrowRight")
    assert shown.text("#live").startswith("L1H1"), "a screen reader hears where it is"
    shown.press("Enter")
    assert shown.text("h2") == "L1H1"
    shown.page.focus(".token[data-i='0']")
    shown.page.keyboard.press("ArrowRight")
    assert shown.text("h2") == "L1H1", "arrows in the text move in the text"
    assert "token 1," in shown.text(".said")


def test_deep_links(small: Page, opened: Open) -> None:
    shown = opened(small.file, "layer=1&head=3&row=5&dir=seen&norm=1&text=1")
    assert "token 5, is looked at by" in shown.text(".said")
    assert shown.page.is_checked("text=norm-weighted")
    assert shown.page.input_value("main select") == "1"
    for odd in (
        "layer=99&head=0",
        "layer=x&head=y",
        "view=nothing",
        "layer=0&head=-1",
        "%%%",
        "view=similarity&pick=nobody",
    ):
        shown.go(odd)
        assert shown.page.locator("main canvas").count() >= 1, odd


def test_a_token_is_held_and_the_address_keeps_it(small: Page, opened: Open) -> None:
    shown = opened(small.file, "layer=1&head=3")
    shown.page.click(".token[data-i='6']")
    assert "row=6" in shown.address()
    shown.page.mouse.move(5, 5)
    assert "token 6, looks at" in shown.text(".said")
    shown.page.click(".token[data-i='6']")
    assert "row" not in shown.address()


def test_pointing_at_a_token_moves_nothing(small: Page, opened: Open) -> None:
    shown = opened(small.file, "layer=1&head=3", height=1500)
    place = lambda: shown.page.locator(".token[data-i='6']").bounding_box()
    before = place()
    shown.page.hover(".token[data-i='6']")
    assert "token 6, looks at" in shown.text(".said")
    assert shown.page.is_visible("canvas.profile")
    assert place() == before


def test_zoom_and_pan(small: Page, opened: Open) -> None:
    shown = opened(small.file, "layer=1&head=3", height=1500)
    picture = "document.querySelector('canvas.map').toDataURL()"
    whole = shown.page.evaluate(picture)
    shown.page.click("[aria-label='Zoom in']")
    near = shown.page.evaluate(picture)
    assert near != whole
    box = shown.page.locator("canvas.map").bounding_box()
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    shown.page.mouse.move(*middle)
    shown.page.mouse.down()
    shown.page.mouse.move(middle[0] - 60, middle[1] - 60, steps=4)
    shown.page.mouse.up()
    shown.page.mouse.move(5, 5)
    assert shown.page.evaluate(picture) != near
    assert "row=" not in shown.address(), "a drag holds no token"
    shown.page.click("button >> text=Whole map")
    shown.page.mouse.move(5, 5)
    assert shown.page.evaluate(picture) == whole


def test_tokens_view_tells_where_every_head_looks(small: Page, opened: Open) -> None:
    ids = [int(i) for i in small.found.texts[0].sequences[0].shown]
    want = maps_of(small, torch.tensor([ids]))
    shown = opened(small.file, "view=tokens&row=9")
    shown.page.wait_for_function("() => document.querySelector('.said').textContent !== ''")
    titles = [a.get_attribute("title").split() for a in shown.page.locator(".ties a").all()]
    for (head, token, weight), (name, rows) in zip(titles, want.items(), strict=True):
        assert (head, token) == (f"{name}:", str(ids[int(rows[9].argmax())]))
        assert abs(float(weight) - float(rows[9].max())) < 0.01


def test_similarity_view_and_two_heads(small: Page, opened: Open) -> None:
    found = small.found.similarity
    assert found is not None
    shown = opened(small.file, "view=similarity&order=layer")
    box = shown.page.locator("canvas.pairs").bounding_box()
    cell = (box["width"] - PAIRS) / 8
    shown.page.mouse.move(box["x"] + PAIRS + 6.5 * cell, box["y"] + PAIRS + 1.5 * cell)
    assert shown.text(".hover") == f"L0H1 and L1H2: CKA {float(found['cka'][1, 6]):.2f}"
    shown.page.mouse.click(box["x"] + PAIRS + 6.5 * cell, box["y"] + PAIRS + 1.5 * cell)
    shown.page.wait_for_selector(".scene.both")
    assert shown.page.locator("canvas.map").count() == 2
    shown.page.wait_for_selector("text=Similarity: correlation")
    numbers = re.findall(r"([\w ]+) (-?[\d.]+)", shown.text(".alikeness").removeprefix("Similarity: "))
    for (_, value), name in zip(numbers, found.pairs, strict=True):
        assert abs(float(value) - float(found[name][1, 6])) < 0.011, name
    assert len(numbers) == 5


def test_pruning_view_names_the_removed_heads(small: Page, opened: Open) -> None:
    curve = small.found.curve
    assert curve is not None
    shown = opened(small.file, "view=pruning&gone=3")
    assert "3 heads removed, 5 of 8 heads kept" in shown.text(".gone")
    gone = shown.page.locator(".gonetable a").evaluate_all("all => all.map(a => a.getAttribute('href'))")
    assert {f"#gone=3&layer={n[1]}&head={n[3]}" for n in curve.lines[0].order[:3]} == set(gone)


def test_csv(small: Page, opened: Open) -> None:
    table = small.found.table
    assert table is not None
    shown = opened(small.file)
    with shown.page.expect_download() as download:
        shown.page.click("text=Download CSV")
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"))))
    assert [r["head"] for r in rows] == list(table.heads)
    assert set(table.columns) <= set(rows[0])
    for row, want in zip(rows, table["entropy"].tolist(), strict=True):
        assert float(row["entropy"]) == pytest.approx(want, rel=1e-5)


def test_png(small: Page, opened: Open) -> None:
    shown = opened(small.file, "layer=1&head=2")
    with shown.page.expect_download() as download:
        shown.page.click("button >> text=PNG")
    assert download.value.suggested_filename == "L1H2.png"
    assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")


# ---- other ways to read it --------------------------------------------------------------------


def test_without_javascript(small: Page, opened: Open) -> None:
    table = small.found.table
    assert table is not None
    shown = opened(small.file, java_script_enabled=False)
    assert shown.page.locator("noscript table tbody tr").count() == 8
    text = shown.text("noscript")
    assert "2 layers × 4 heads" in text
    assert f"{float(table.row('L1H2')['entropy']):.3g}" in text
    shown.shot("without-javascript")


@pytest.mark.parametrize("fragment", ["", "layer=1&head=2&row=4", *(f"view={v}" for v in VIEWS[1:])])
def test_small_screen(fragment: str, small: Page, opened: Open) -> None:
    shown = opened(small.file, fragment, width=360, height=740, has_touch=True, is_mobile=True)
    assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
    shown.shot(f"phone-{fragment.replace('=', '-').replace('&', '-') or 'heads'}")


def test_print(small: Page, opened: Open) -> None:
    shown = opened(small.file, color_scheme="dark")
    shown.page.emulate_media(media="print")
    assert not shown.page.is_visible("#tools")
    assert not shown.page.is_visible("#views")
    paper = shown.page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--paper').trim()")
    assert paper == "#fff"
    shown.shot("print")
    shown.go("layer=1&head=2&row=5")
    assert shown.page.is_visible("canvas.map")
    assert not shown.page.is_visible(".controls")
    shown.shot("print-head")


def test_theme_button(small: Page, opened: Open) -> None:
    shown = opened(small.file)
    before = shown.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    shown.page.click("#theme")
    assert shown.page.evaluate("getComputedStyle(document.documentElement).backgroundColor") != before


def test_everything_has_a_name(small: Page, opened: Open) -> None:
    """What can be focused or chosen has a label that a screen reader can say."""
    nameless = """() => [...document.querySelectorAll('button, a, input, select, [tabindex="0"]')].filter((e) =>
      !(e.textContent.trim() || e.getAttribute('aria-label') || e.title || (e.labels && e.labels.length)))
      .map((e) => e.outerHTML)"""
    shown = opened(small.file)
    for fragment in ("", "layer=1&head=2", *(f"view={v}" for v in VIEWS)):
        shown.go(fragment or "view=heads")
        assert shown.page.evaluate(nameless) == [], fragment


def test_a_part_of_a_page(small: Page, opened: Open, tmp_path: Path) -> None:
    """After Ctrl-C: what is missing is not offered, and the page says that it is a part."""
    from multihead.show.report import Report

    found = small.found
    part = Report(found.model, found.corpus, found.layers, found.texts, found.blobs, stopped=True)
    shown = opened(part.save(tmp_path / "part.html"))
    assert shown.page.locator("#views a").all_inner_texts() == ["Heads", "Tokens"]
    for place in ("#findings", "footer"):  # where it is seen at once, and in every view
        assert "stopped before everything was measured" in shown.text(place)
    shown.go("layer=1&head=1")
    assert shown.text("h2") == "L1H1"
    shown.go("view=theory")
    assert shown.page.locator("canvas.grid").count() == 1
