"""The report as an object: what it holds, how it shows itself, and that the corpus is tokenized once."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import multihead as mh
from multihead.edit.check.curve import Curve, Point
from multihead.errors import MultiheadError
from multihead.show import figure
from multihead.show.make_report import report
from multihead.show.map_store import MapStore
from multihead.show.quality_curve import QualityCurve
from multihead.show.report import Report
from multihead.sources.embedded.tokenizer import WordTokenizer
from page.conftest import Page

WITHOUT_THEORY = ("measure", "kinds", "pairs", "importance", "similarity", "curve", "cost")


def test_it_is_frozen_and_says_what_it_has(small: Page) -> None:
    found = small.found
    with pytest.raises(FrozenInstanceError):
        found.table = None  # type: ignore[misc]
    lines = found.summary().splitlines()
    assert lines[0] == f"a small model: {found.card}"
    assert [line.strip("• ") for line in lines[1:4]] == [finding.text for finding in found.findings]
    for row in found.kind_rows():
        line = next(line for line in lines if line.startswith(f"{row.kind} "))
        assert str(len(row.heads)) in line.split()
        assert row.heads[0] in line.split()
        assert f"{row.importance:.3g}" in line.split()
    assert str(found) == repr(found) == found.summary()


def test_json_is_plain_data(small: Page) -> None:
    data = json.loads(json.dumps(small.found.to_json(), allow_nan=False))
    assert data["model"] == {
        "name": "a small model",
        "class": "GPT2LMHeadModel",
        "parameters": sum(p.numel() for p in small.model.parameters()),
    }
    assert data["corpus"]["documents"] == 6
    assert data["corpus"]["tokens"] == 23 + 19 + 29 + 17 + 31 + 23
    assert data["heads"] == 8
    assert small.found.curve is not None
    assert data["prunable"] == small.found.curve.prunable
    assert sum(map(len, data["kinds"].values())) == 8
    assert [text["tokens"] for text in data["texts"]] == [23, 19, 29]


def test_it_shows_itself_in_a_notebook(small: Page) -> None:
    html = small.found._repr_html_()
    assert html.count("<title>") == 8, "a ring per head"
    assert html.count("<polyline") == 1, "the curve"
    assert small.found.findings[0].text in html
    assert len(html) < 100_000
    hostile = "</div><script>alert(1)</script>"
    named = replace(small.found, model=replace(small.found.model, name=hostile), notes=(hostile,))
    assert "<script" not in named._repr_html_()


def test_figures_read_it(small: Page) -> None:
    found = small.found
    assert found.curve is not None
    assert len(figure.grid(found).axes[0].collections) == 2, "rings of shares, and their discs"
    assert figure.similarity(found).axes[0].images
    axes = figure.curve(found).axes[0]
    assert axes.lines[0].get_xydata().tolist() == [[p.kept, p.lost] for p in found.curve.lines[0].points]
    with pytest.raises(MultiheadError, match="must have a curve"):
        figure.curve(replace(found, curve=None))


def test_a_text_is_tokenized_once_and_its_beginning_twice_more(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = mh.embedded()
    texts, calls = list(tokenizer.sample_texts())[:6], Counter[str]()
    tokenize = WordTokenizer.__call__

    def counted(self: WordTokenizer, text: str, **options: Any) -> Any:
        calls[text] += 1
        return tokenize(self, text, **options)

    monkeypatch.setattr(WordTokenizer, "__call__", counted)
    shown = " ".join(texts[0].split()[:7])
    found = report(model, iter(texts), tokenizer=tokenizer, text=shown, parts=WITHOUT_THEORY)
    assert [note for note in found.notes if "pieces" not in note] == []
    assert found.corpus.documents == 6
    assert found.curve is not None
    assert found.table is not None
    assert {"entropy", "kind", "ablation_zero", "most_similar"} <= set(found.table.columns)
    more = "twice more: packed into pieces, and to check the language of the first documents"
    assert {text: calls[text] for text in texts} == dict.fromkeys(texts, 3), more


def test_costs_are_at_a_length_that_the_model_can_read(small: Page) -> None:
    assert small.model.config.n_positions == 64
    assert small.found.cost is not None
    assert small.found.cost.tokens == 64


def test_a_curve_measured_before(small: Page) -> None:
    points = tuple(
        Point("obs", kept / 8, kept, {"perplexity": 8.0 * (1 + lost)}, tuple(small.found.heads[: 8 - kept]))
        for kept, lost in ((6, 0.01), (4, 0.04), (2, 0.5))
    )
    curve = Curve(points, "perplexity", {"perplexity": 8.0}, 8, 5)
    found = report(small.model, [[3, 1, 4, 1, 5]], parts=("measure",), curve=curve)
    assert isinstance(found.curve, QualityCurve)
    assert found.curve.prunable == 4
    assert found.curve.prunable_heads == tuple(small.found.heads[:4])
    assert [p.lost for p in found.curve.lines[0].points] == pytest.approx([0, 0.01, 0.04, 0.5])
    again = report(small.model, [[3, 1, 4, 1, 5]], parts=("measure",), curve=found.curve)
    assert again.curve == found.curve


def test_the_page_is_written_on_request(small: Page, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {"parts": ("measure",), "progress": True}
    silent = report(small.model, [[3, 1, 4], [2, 6]], **options)
    assert list(tmp_path.iterdir()) == []
    written = report(small.model, [[3, 1, 4], [2, 6]], tmp_path / "deep" / "page.html", **options)
    page = (tmp_path / "deep" / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert page == written.html() == silent.html()
    assert silent.save(tmp_path / "again.html").read_text(encoding="utf-8") == page
    assert capsys.readouterr().out == "", "progress is on stderr"


def test_an_existing_file_is_overwritten_only_by_force(small: Page, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("a page")
    with pytest.raises(MultiheadError, match=r"page\.html exists"):
        report(small.model, iter(()), page)  # which has nothing to measure, an error that would come later
    assert page.read_text() == "a page"
    report(small.model, [[3, 1, 4], [2, 6]], page, parts=("measure",), force=True)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


# ---- a cut model --------------------------------------------------------------------------------

LEFT = ["L0H0", "L0H1", "L0H3", "L1H1", "L1H2"]


@pytest.fixture(scope="module")
def cut_model(small: Page) -> Any:
    return mh.cut(small.model, mh.plan(small.model, remove=["L0H2", "L1H0", "L1H3"]), refit=False)


@pytest.fixture(scope="module")
def of_cut(cut_model: Any) -> Report:
    generator = torch.Generator().manual_seed(5)
    documents = [torch.randint(0, 53, (n,), generator=generator).tolist() for n in (23, 19, 29)]
    return report(cut_model, documents, parts=WITHOUT_THEORY, heads=["L0H0", "0.3", (1, 2)])


def test_a_cut_model_keeps_the_names_of_its_heads(of_cut: Report, cut_model: Any) -> None:
    assert of_cut.heads == LEFT
    assert of_cut.table is not None
    assert sorted(of_cut.table.heads) == LEFT
    assert of_cut.pairs is not None
    assert list(of_cut.pairs) == LEFT
    assert of_cut.curve is not None
    assert sorted(of_cut.curve.lines[0].order) == LEFT
    stored = [head is not None for layer in of_cut.texts[0].layers for head in layer.heads]
    assert dict(zip(LEFT, stored, strict=True)) == {name: name in ("L0H0", "L0H3", "L1H2") for name in LEFT}
    assert figure.grid(of_cut).axes[0].get_xlim()[1] == 3.5, "columns are the original heads"
    assert [mh.anatomy(cut_model)[name].name for name in LEFT] == LEFT
    store = MapStore(cut_model)
    texts, layers = store.add([[3, 1, 4, 1, 5]])
    assert [name for layer in layers for name in layer.site.names] == LEFT
    assert len(texts[0].layers[0].heads) == 3


def test_the_page_of_a_cut_model(of_cut: Report, cut_model: Any, opened: Any, tmp_path: Path) -> None:
    shown = opened(of_cut.save(tmp_path / "cut.html"), "layer=1&head=2")
    assert shown.text("h2") == "L1H2"
    ids = torch.tensor([[int(i) for i in of_cut.texts[0].sequences[0].shown]])
    with torch.no_grad(), mh.capture(cut_model, statistics=None, keep="qk") as heads:
        cut_model(input_ids=ids)
    assert (shown.weights("L1H2") - heads["L1H2"].weights()[0].double()).abs().max() < 4e-3
    shown.go("layer=0&head=3")
    assert shown.text("h2") == "L0H3"
    shown.go("view=heads")
    assert shown.page.locator("table.heads tbody th, table tbody tr").count() >= 5
