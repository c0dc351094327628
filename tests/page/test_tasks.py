"""What a newcomer does on the page without having read anything: five tasks, by clicks alone."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from page.conftest import Open, Opened, Page
from page.served import Served


def explained(shown: Opened, term: str) -> str:
    """Click the "?" of a term and read its definition."""
    shown.page.click(f"main button.help[aria-label='What is {term}?'] >> nth=0")
    return shown.text("#definition")


@pytest.mark.parametrize("phone", [False, True])
def test_find_the_head_that_looks_at_the_previous_token(phone: bool, embedded: Page, opened: Open) -> None:
    table = embedded.found.table
    assert table is not None
    heads = [name for name, kind in zip(table.heads, table["kind"], strict=True) if kind == "previous"]
    screen: dict[str, Any] = {"width": 360, "height": 740, "has_touch": True, "is_mobile": True} if phone else {}
    shown = opened(embedded.file, **screen)
    shown.click(".legend button:has-text('previous')")
    rows = shown.page.locator("table.heads tbody th a")
    expect(rows).to_have_text(heads)
    rows.first.click()
    expect(shown.page.locator("h2")).to_have_text(heads[0])
    assert "looks one token back" in shown.text(".does")


def test_tell_what_a_head_means(embedded: Page, opened: Open) -> None:
    shown = opened(embedded.file)
    table = embedded.found.table
    assert table is not None
    name = next(name for name, kind in zip(table.heads, table["kind"], strict=True) if kind == "induction")
    shown.click(f"table.heads a:text-is('{name}')")
    assert "what followed the same token before" in shown.text(".does")
    assert "above the threshold" in shown.text(".panel")
    assert "threshold" in explained(shown, "score")
    assert "CKA" in explained(shown, "most similar")
    assert "query, the token that looks" in explained(shown, "attention map")
    assert "square root" in explained(shown, "weight")
    assert "square-root scale" in shown.text(".weightbar")


def test_find_the_two_most_similar_heads(embedded: Page, opened: Open) -> None:
    similarity = embedded.found.similarity
    assert similarity is not None
    first, second, value = similarity.most_similar(1)[0]
    shown = opened(embedded.file)
    shown.click(".finding a:has-text('Show similarity')")
    pair = shown.page.locator(".toppairs a").first
    expect(pair).to_have_text(f"{first} and {second}")
    pair.click()
    expect(shown.page.locator(".beside")).to_have_text(f"and {second}")
    assert shown.text("h2") == first
    assert f"CKA {value:.2f}" in shown.text(".does")
    assert shown.page.locator("canvas.map").count() == 2


def test_say_which_heads_can_be_pruned(embedded: Page, opened: Open) -> None:
    curve = embedded.found.curve
    assert curve is not None
    shown = opened(embedded.file)
    shown.click(".finding a:has-text('Show pruning')")
    assert "5\u00a0% of quality" in shown.text(".lead")
    names = shown.page.locator(".gonetable a").all_inner_texts()
    assert sorted(names) == sorted(curve.prunable_heads)
    assert names
    shown.page.click(".gonetable a >> nth=0")
    expect(shown.page.locator("h2")).to_have_text(names[0])
    assert "Can be pruned" in shown.text(".panel")


def test_open_a_head_on_a_text_of_ones_own(minilm_served: Served, opened: Open) -> None:
    shown = opened(minilm_served.server.address)
    shown.page.click("summary >> text=Try your own text")
    shown.page.fill("textarea", "the owl and the pussycat went to sea")
    shown.click("text=Show this text")
    expect(shown.page.locator(".tokens")).to_have_text("[CLS] the owl and the pussycat went to sea [SEP]")
    shown.wait_said("mean over all heads")
    shown.click(".ties a >> nth=2")
    assert shown.text("h2") == "L0H2"
    assert "pussycat" in shown.text(".tokens")
    shown.page.wait_for_selector("canvas.map:not([data-waiting])")
    assert shown.weights("L0H2", len(minilm_served.store.texts) - 1).shape == (11, 11)
    shown.page.close()  # its small maps may still be on their way from the server that goes now


def test_colours_that_matter_come_first(embedded: Page, opened: Open) -> None:
    shown = opened(embedded.file)
    lists = "label:has(> span:text-is('Colour by')) select"
    first = shown.page.locator(f"{lists} > option").all_inner_texts()
    more = shown.page.locator(f"{lists} optgroup[label=more] > option").all_inner_texts()
    assert first[:2] == ["what decides where it looks", "kind of head"]
    assert len(first) <= 12
    assert len(more) > 12
    assert not set(first) & set(more)
    shown.choose("Colour by", more[-1])
    assert more[-1] in shown.text("table.heads thead")
