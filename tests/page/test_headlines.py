"""What the page says in words, and what becomes of parts that cannot be had."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import multihead as mh
from multihead._base.share_words import SHARE_NAMES
from multihead.corpus.documents import Corpus
from multihead.errors import MultiheadError
from multihead.measures.importance.losses import LanguageModel
from multihead.measures.similarity.similarity_result import Similarity
from multihead.show.headlines import findings, head_link
from multihead.show.make_report import report
from multihead.show.quality_curve import CurveLine, CurvePoint, QualityCurve, quick_curve
from multihead.show.report import CorpusInfo, ModelInfo, Report
from multihead.show.tokens import Words
from multihead.table.column_info import ColumnInfo
from multihead.table.table import HeadTable

HEADS = ("L0H0", "L0H1", "L1H0", "L1H1")


def table(kinds: list[str], scores: list[float] | None = None, worth: list[float] | None = None) -> HeadTable:
    columns: dict[str, Any] = {"kind": tuple(kinds), "kind_score": torch.tensor(scores or [0.9] * 4)}
    columns |= {} if worth is None else {"ablation_zero": torch.tensor(worth)}
    return HeadTable(HEADS, columns, {n: ColumnInfo("", "") for n in columns})


def alike(values: dict[tuple[int, int], float]) -> Similarity:
    cka = torch.eye(4, dtype=torch.float64)
    for (i, j), value in values.items():
        cka[i, j] = cka[j, i] = value
    return Similarity(HEADS, {"cka": cka}, {}, {"tokens": 1, "notes": []})


def curve(prunable: int) -> QualityCurve:
    """A curve of which so many heads can be pruned for 5 %."""
    points = tuple(CurvePoint(4 - removed, 0.01 if removed <= prunable else 0.2) for removed in range(4))
    return QualityCurve(4, (CurveLine("quick", points, HEADS),), "growth of perplexity", "language model")


def test_kinds() -> None:
    many = findings(table(["first", "first", "match, 0.18", "word, 0.12"]), None, None)[0]
    assert many.text.startswith("2 of 4 heads look mostly at the first token")
    assert many.link == "#view=heads&kind=first"
    one = findings(table(["previous", "match, 0.18", "word, 0.12", "word, 0.13"]), None, None)[0]
    assert one.text == "One of 4 heads looks one token back."
    nothing = findings(table(["word, 0.12"] * 4), None, None)[0]
    assert nothing.text == "No head is of a single kind."
    few = findings(table(["too little data"] * 4), None, None)[0]
    assert "too little text" in few.text


def test_layers_in_which_one_share_leads() -> None:
    columns: dict[str, Any] = {"leading": ("position", "match", "word", "position + word")}
    columns |= {name: torch.full((4,), 0.2) for name in ("spread", "rest", "position", "word", "match")}
    shares = HeadTable(HEADS, columns, {name: ColumnInfo("", "") for name in columns})
    text = findings(table(["first"] * 4).join(shares), None, None)[0].text
    assert text.startswith("One of 4 heads")
    assert "layer 1 picks words" in text or "in layer 1" in text


def test_twins() -> None:
    near = findings(None, alike({(2, 3): 0.95}), None)[0]
    assert near.text == "L1H0 and L1H1 are near-twins: they write nearly the same."
    assert near.link == "#view=similarity&pick=L1H0"
    across = findings(None, alike({(0, 3): 0.9}), None)[0]
    assert across.text.startswith("L0H0 and L1H1 are near-twins")
    far = findings(None, alike({(0, 3): 0.6}), None)[0]
    assert far.text.startswith("No two heads are copies: the outputs of the most similar, L0H0 and L1H1, are 0.60")


def test_worth_and_curve() -> None:
    worth = findings(table(["word, 0.12"] * 4, worth=[0.1, 0.1, 0.7, 0.1]), None, None)[1]
    assert worth.text == "One of 4 heads has 70 % of the importance; L1H0 matters most."
    texts = [findings(None, None, curve(prunable))[0].text for prunable in (3, 0, 1)]
    assert texts == [
        "3 of 4 heads can be pruned together for less than 5 % of quality.",
        "No head can be pruned for less than 5 % of quality.",
        "One of 4 heads can be pruned for less than 5 % of quality.",
    ]


def test_at_most_three_and_none_twice() -> None:
    attention = mh.MultiHeadAttention(12, 3)
    theory = mh.theory(attention, torch.randn(2, 11, 12), only=["2", "16"])
    fails = sum(line.verdict == "fails" for line in theory.summary)
    kinds = ["previous", "match, 0.18", "word, 0.12", "word, 0.13"]
    said = findings(table(kinds), alike({(2, 3): 0.95}), curve(3), theory)
    assert len(said) == 3
    assert len({f.text for f in said}) == 3
    (only,) = findings(None, None, None, theory)
    assert only.text == f"{fails} of 2 statements of the theory fail on this model."
    assert findings(None, None, None) == []


def test_links() -> None:
    assert head_link("L3H7") == "#layer=3&head=7"
    assert head_link("decoder.L3H7") == "#stack=decoder&layer=3&head=7"


# ---- the curve --------------------------------------------------------------------------------


LIMIT = 0.3


def small() -> Any:
    torch.manual_seed(3)
    config = GPT2Config(n_layer=2, n_head=4, n_embd=32, vocab_size=53, n_positions=64, initializer_range=0.4)
    return GPT2LMHeadModel(config).eval()


def test_curve_is_what_silence_costs() -> None:
    """Every point against a run by hand; the heads that can go are the most that stay below the limit."""
    from multihead import ablate

    model, ids = small(), torch.randint(0, 53, (3, 19))
    order = [f"L{i // 4}H{i % 4}" for i in (5, 0, 3, 7, 1, 6, 2, 4)]
    corpus = Corpus(model, [{"input_ids": ids}])
    found = quick_curve(model, corpus, order, LanguageModel(), points=4, limit=LIMIT)
    points = {len(order) - p.kept: p.lost for p in found.lines[0].points}
    assert {0, 2, 4, 6} <= set(points)

    def loss(gone: list[str]) -> float:
        with torch.no_grad():
            if not gone:
                return float(model(input_ids=ids, labels=ids).loss)
            with ablate(model, gone):
                return float(model(input_ids=ids, labels=ids).loss)

    whole = loss([])
    want = {g: float(torch.tensor(loss(order[:g]) - whole).expm1()) if g else 0.0 for g in points}
    assert points == pytest.approx(want, abs=1e-4)
    goes = found.prunable
    assert found.prunable_heads == tuple(order[:goes])
    assert points[goes] <= LIMIT
    assert 0 < goes < 7
    assert points[goes + 1] > LIMIT


# ---- parts ------------------------------------------------------------------------------------


def test_what_cannot_be_had_is_said_and_the_rest_is_there() -> None:
    found = report(small(), [[3, 1, 4, 1, 5, 9], [2, 6]], parts=("measure", "kinds"))
    assert found.table is not None
    assert all(
        kind.startswith(lead) for kind, lead in zip(found.table["kind"], found.table["leading"], strict=True)
    )
    assert "" not in found.table["leading"]
    assert any("use 96" in note for note in found.notes)
    from torch import nn

    plain = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 3, batch_first=True), 1).eval()
    found = report(plain, [{"src": torch.randn(2, 7, 12)}], parts=("measure", "kinds", "cost"))
    assert found.table is not None
    assert found.texts[0].sequences[0].shown[:3] == ["0", "1", "2"]


def test_stop_leaves_what_was_finished(tmp_path: Any) -> None:
    def stop(part: str, done: float, total: int) -> None:
        if part == "importance":
            raise KeyboardInterrupt

    documents = [[3, 1, 4, 1, 5, 9], [2, 6, 5, 3]]
    found = report(small(), documents, progress=stop)
    assert found.stopped
    assert found.table is not None
    assert "entropy" in found.table.columns
    assert "kind" in found.table.columns
    assert "rank" not in found.table.columns
    assert report(small(), documents, tmp_path / "part.html", progress=stop).stopped
    assert (tmp_path / "part.html").stat().st_size > 10_000
    assert [p.name for p in tmp_path.iterdir()] == ["part.html"]


def test_bad_input() -> None:
    for text in ("  ", [], ["a text", ""]):
        with pytest.raises(MultiheadError, match="text must not be empty"):
            report(small(), [[1, 2]], text=text)
    for options, message in (
        ({"parts": ("wrong",)}, "unknown part 'wrong'"),
        ({"parts": "measures"}, "unknown part 'measures'"),
        ({"heads": ["L9H9"]}, "unknown layer in 'L9H9'"),
        ({"heads": ["L1H4"]}, "L1 has 4 heads, got head 4"),
        ({"heads": ["seven"]}, "'seven' is not a head name"),
        ({"importance": "magic"}, "unknown importance 'magic'"),
        ({"cut": ("magic",)}, "unknown method 'magic'"),
        ({"cut": "obs"}, "cut must be a list of methods"),
        ({"windows": 0}, "windows must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"max_tokens": 99}, "at most 64"),
        ({"text": "some words"}, "no tokenizer"),
    ):
        with pytest.raises(MultiheadError, match=message):
            report(small(), [[1, 2]], **options)
    for data in ([], [[]]):
        with pytest.raises(MultiheadError, match="nothing to measure"):
            report(small(), data)


def test_a_path_that_cannot_be_written_is_named_before_anything_is_measured(tmp_path: Any) -> None:
    (tmp_path / "file").write_text("")
    for path, message in ((tmp_path, "is a folder"), (tmp_path / "file" / "page.html", "is a file")):
        with pytest.raises(MultiheadError, match=message):
            report(small(), iter(()), path)  # which has nothing to measure, an error that would come later


def test_card() -> None:
    found = report(small(), [[3, 1, 4], [2, 6]], parts=("measure",))
    assert found.card == "29.2 k parameters · 2 layers × 4 heads · 8 kv heads · 5 tokens in 2 documents"


# ---- words ------------------------------------------------------------------------------------


def spelled(words: Words) -> str:
    pairs = zip(words.shown, words.joined_to_previous, strict=True)
    return "".join(word if joined else f" {word}" for word, joined in pairs)


def test_words_of_a_text(minilm: tuple[Any, Any]) -> None:
    tokenizer = minilm[1]
    text = "Lindqvist doesn't know, does she?"
    words = Words.of(tokenizer(text)["input_ids"], tokenizer, text)
    assert words.shown[0] == "[CLS]"
    assert words.shown[-1] == "[SEP]"
    assert spelled(words).strip().removeprefix("[CLS]").removesuffix("[SEP]").strip() == text
    assert [w for w, s in zip(words.shown, words.special, strict=True) if s] == ["[CLS]", "[SEP]"]


def test_words_of_ids_alone(minilm: tuple[Any, Any]) -> None:
    tokenizer = minilm[1]
    ids = tokenizer("unbelievable cat")["input_ids"]
    words = Words.of(ids, tokenizer)
    assert spelled(words).split()[-2:] == ["cat", "[SEP]"]
    assert Words.of([5, 6]).shown == ["5", "6"]


def shares_table(leading: list[str], names: tuple[str, ...] = HEADS) -> HeadTable:
    columns: dict[str, Any] = {name: torch.full((len(names),), 0.2) for name in SHARE_NAMES}
    columns |= {"leading": tuple(leading), "kind": ("match, 0.20",) * len(names)}
    columns["kind_score"] = torch.full((len(names),), torch.nan)
    return HeadTable(names, columns, {n: ColumnInfo("", "") for n in columns})


def test_shares_by_layer() -> None:
    said = findings(shares_table(["position", "match", "word", "word + match"]), None, None)[0]
    assert (
        said.text
        == "One of 4 heads picks keys that fit the query (1 more in part); layer 1 picks words, whatever the query."
    )
    assert said.link == "#view=heads&share=match"
    same = findings(shares_table(["position", "match", "word", "word"]), None, None)[0]
    assert same.text == "2 of 4 heads pick words, whatever the query, above all in layer 1."
    names = tuple(f"encoder.L{layer}H{h}" for layer in range(3) for h in range(2))
    several = findings(shares_table(["word", "rest"] + ["word"] * 4, names), None, None)[0]
    assert several.text.endswith("above all in encoder layers 1 and 2.")
    none = findings(shares_table(["position", "match", "", "word + position"]), None, None)[0]
    assert none.text == "One of 4 heads looks at certain distances, whatever the words (1 more in part)."


def test_heads_named_by_a_share_are_counted_together() -> None:
    table = shares_table(["match"] * 4)
    kinds = ("match, 0.18", "previous", "match, 0.04", "word, 0.30")
    table = HeadTable(table.heads, {**table.columns, "kind": kinds}, table.meaning)
    rows = Report(ModelInfo("m", "M", 1), CorpusInfo("", 1), table=table).kind_rows()
    assert (rows[0].kind, rows[0].heads) == ("match", ["L0H0", "L1H0"])
    assert {row.kind for row in rows} == {"match", "previous", "word"}
