"""Whatever a token, a text, a file or a model is called, the page shows it and never obeys it."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from multihead.show.report import Report
from multihead.show.tokens import LONGEST, Words, show_control_chars
from page.conftest import Open, Page

HOSTILE = {
    "end of script": "</script><script>window.hit = 1</script>",
    "image": "<img src=x onerror='window.hit = 1'>",
    "comment": "<!--<script>",
    "noscript": "</noscript><svg onload='window.hit = 1'>",
    "style": "</style><style>* { display: none }</style>",
    "quotes": "\"' onfocus='window.hit = 1' autofocus x='",
    "address": "javascript:window.hit = 1",
    "right to left": "\u202egnp.exe\u202c\u200f",
    "nul": "a\x00b\x1b[31mred\x07",
    "emoji": "👩‍👩‍👧‍👦🏴‍☠️",
    "lone surrogate": "\ud83d",
    "entities": "&lt;b&gt;&amp;&#x3c;script>",
    "template": "$policy ${script} {{7*7}} `${window.hit = 1}`",
    "line separators": "a\u2028b\u2029c\r\nd",
    "long": "x" * 10_000,
    "formula": '=HYPERLINK("http://evil")',
    "prototype": "__proto__",
}


@pytest.fixture(scope="module")
def hostile(small: Page) -> Report:
    """A page in which every string that comes from outside is hostile."""
    found = small.found
    count = len(found.texts[0].sequences[0].shown)
    words = [show_control_chars(w[:LONGEST]) for w in HOSTILE.values()]
    shown = (words * count)[:count]
    every = " ".join(HOSTILE.values())
    words_shown = Words(shown, [False] * count, [False] * count)
    text = replace(found.texts[0], name=show_control_chars(every), note=every, sequences=(words_shown,))
    return replace(
        found,
        model=replace(found.model, name=every, kind=every),
        corpus=replace(found.corpus, name=every, loss=every),
        texts=(text,),
        pairs=None,
        notes=(every,),
    )


class Tags(HTMLParser):
    """The elements of a page, as a browser without scripts meets them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def test_markup_is_the_same_whatever_the_words_are(hostile: Report, small: Page) -> None:
    parsers = []
    for found in (hostile, small.found):
        parser = Tags()
        parser.feed(found.html())
        parsers.append([tag for tag, _ in parser.seen])
        assert not any(name.startswith("on") for _, attrs in parser.seen for name in attrs)
    assert parsers[0] == parsers[1]
    assert parsers[0].count("script") == 3


def test_nothing_raw_is_in_the_file(hostile: Report) -> None:
    html = hostile.html()
    body = html[html.index("<body>") :]
    for name, words in HOSTILE.items():
        if name not in ("emoji", "long", "prototype", "address", "template"):  # not markup anywhere
            assert words not in body, name
    for block in re.findall(r'<script type="text/plain" id="\w+">(.*?)</script>', html, re.DOTALL):
        assert re.fullmatch(r"[A-Za-z0-9+/=\n]*", block)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\ud800-\udfff\u202a-\u202e]", html)


def test_policy_is_strict(hostile: Report) -> None:
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', hostile.html())
    assert found is not None
    policy = dict(part.strip().split(" ", 1) for part in found[1].split(";"))
    assert policy["default-src"] == "'none'"
    assert re.fullmatch(r"'sha256-[A-Za-z0-9+/]{43}='", policy["script-src"])
    assert re.fullmatch(r"'sha256-[A-Za-z0-9+/]{43}='", policy["style-src"])
    assert policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"


@pytest.mark.parametrize(
    "fragment", ["view=heads", "layer=1&head=2&row=3", "view=tokens", "view=similarity", "view=pruning"]
)
def test_browser_shows_and_does_not_obey(fragment: str, hostile: Report, opened: Open, tmp_path: Path) -> None:
    shown = opened(hostile.save(tmp_path / "hostile.html"), fragment)
    shown.page.wait_for_timeout(150)
    assert shown.page.evaluate("window.hit") is None
    assert shown.page.locator("img, iframe, object, embed, form, main script").count() == 0
    assert shown.page.is_visible("main")
    assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "long words wrap"
    assert "</script><script>" in shown.text("h1"), "it is there to be read"
    if "layer" in fragment:
        tokens = shown.page.locator(".token")
        assert tokens.nth(0).inner_text().startswith("</script><script>")
        places = {name: i for i, name in enumerate(HOSTILE)}
        assert "⟨U+202E⟩" in tokens.nth(places["right to left"]).inner_text()
        assert "␀" in tokens.nth(places["nul"]).inner_text()
        assert len(tokens.nth(places["long"]).inner_text()) == 40
        for i in range(len(HOSTILE)):
            tokens.nth(i).hover()
        assert shown.page.evaluate("window.hit") is None
        shown.shot("hostile")


@pytest.mark.parametrize(
    "fragment",
    [
        "view=<img src=x onerror=window.hit=1>",
        "layer=1&head=2&second=</script><script>window.hit=1</script>",
        "view=heads&kind=<svg onload=window.hit=1>&color=__proto__&sort=constructor",
        "view=similarity&measure=__proto__&scope=constructor&pick=javascript:window.hit=1",
        "layer=0&head=0&row=1e9&text=-5&dir=__proto__",
        "view=pruning&gone=1e99",
    ],
)
def test_hostile_addresses(fragment: str, small: Page, opened: Open) -> None:
    shown = opened(small.file, fragment)
    shown.page.wait_for_timeout(100)
    assert shown.page.evaluate("window.hit") is None
    assert shown.page.locator("img, iframe, main script, main svg[onload]").count() == 0
    assert shown.page.locator("main *").count() > 3


def test_csv_holds_no_formula(small: Page, opened: Open, tmp_path: Path) -> None:
    """A spreadsheet runs a cell that begins with = + - or @."""
    table = small.found.table
    assert table is not None
    words: Any = tuple("=1+1" if i == 3 else k for i, k in enumerate(table["kind"]))
    found = replace(small.found, table=replace(table, columns={**table.columns, "kind": words}))
    shown = opened(found.save(tmp_path / "formula.html"))
    with shown.page.expect_download() as download:
        shown.page.click("text=Download CSV")
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert '"\'=1+1"' in text
    assert '"=1+1"' not in text


def test_tokens_are_show_control_charsed_before_they_are_kept(minilm: tuple[Any, Any]) -> None:
    text = "the \u202e cat\x00 " + "y" * 300
    tokenizer = minilm[1]
    ids = tokenizer(text)["input_ids"]
    words = Words.of(ids, tokenizer, text)
    assert not re.search(r"[\x00-\x1f\u202a-\u202e]", "".join(words.shown))
    assert words.shown[0] == "[CLS]"
    assert words.special[0]
    assert len(words.shown) == len(ids)
