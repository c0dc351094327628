"""What the page says in words, and what becomes of parts that cannot be had."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from multihead.corpus.documents import Corpus
from multihead.errors import MultiheadError, SizeError
from multihead.measures.importance.losses import LanguageModel
from multihead.measures.similarity.result import Similarity
from multihead.page.build import card, report
from multihead.page.curve import quick_curve
from multihead.page.findings import findings, head_link
from multihead.page.gather import gather
from multihead.page.words import Words
from multihead.table.meaning import Meaning
from multihead.table.table import HeadTable

HEADS = ("L0H0", "L0H1", "L1H0", "L1H1")


def table(kinds: list[str], scores: list[float] | None = None, worth: list[float] | None = None) -> HeadTable:
    columns: dict[str, Any] = {"kind": tuple(kinds), "kind_score": torch.tensor(scores or [0.9] * 4)}
    columns |= {} if worth is None else {"ablation_zero": torch.tensor(worth)}
    return HeadTable(HEADS, columns, {n: Meaning("", "") for n in columns})


def alike(values: dict[tuple[int, int], float]) -> Similarity:
    cka = torch.eye(4, dtype=torch.float64)
    for (i, j), value in values.items():
        cka[i, j] = cka[j, i] = value
    return Similarity(HEADS, {"cka": cka}, {}, {"tokens": 1, "notes": []})


def test_kinds() -> None:
    many = findings(table(["first", "first", "mixed", "mixed"]), None, None)[0]
    assert many.text.startswith("2 of 4 heads look mostly at the first token")
    assert many.link == "#view=heads&kind=first"
    one = findings(table(["previous", "mixed", "mixed", "mixed"]), None, None)[0]
    assert one.text == "One of 4 heads looks one token back."
    nothing = findings(table(["mixed"] * 4), None, None)[0]
    assert nothing.text == "No head does only one thing."
    few = findings(table(["too little data"] * 4), None, None)[0]
    assert "too little text" in few.text


def test_twins() -> None:
    near = findings(None, alike({(2, 3): 0.95}), None)[0]
    assert near.text == "L1H0 and L1H1 are near-twins: they write nearly the same."
    assert near.link == "#view=alike&pick=L1H0"
    across = findings(None, alike({(0, 3): 0.9}), None)[0]
    assert across.text.startswith("L0H0 and L1H1 are near-twins")
    far = findings(None, alike({(0, 3): 0.6}), None)[0]
    assert far.text == "No two heads are copies: the nearest, L0H0 and L1H1, are 60 % alike."


def test_worth_and_curve() -> None:
    worth = findings(table(["mixed"] * 4, worth=[0.1, 0.1, 0.7, 0.1]), None, None)[1]
    assert worth.text == "One of 4 heads has 70 % of the importance; L1H0 matters most."
    line = {"curves": [{"order": list(HEADS), "points": []}], "prunable": 3, "limit": 0.05}
    assert findings(None, None, line)[0].text == "3 of 4 heads can go together for less than 5 % of quality."
    assert findings(None, None, line | {"prunable": 0})[0].text == "No head can go for less than 5 % of quality."
    assert (
        findings(None, None, line | {"prunable": 1})[0].text
        == "One of 4 heads can go for less than 5 % of quality."
    )


def test_at_most_three_and_none_twice() -> None:
    line = {"curves": [{"order": list(HEADS), "points": []}], "prunable": 3, "limit": 0.05}
    claims = [{"verdict": "fails"}, {"verdict": "holds"}]
    said = findings(table(["previous", "mixed", "mixed", "mixed"]), alike({(2, 3): 0.95}), line, claims)
    assert len(said) == 3
    assert len({f.text for f in said}) == 3
    assert findings(None, None, None, claims)[0].text == "1 of 2 statements of the theory fail on this model."
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
    points = {p["gone"]: p["lost"] for p in found["curves"][0]["points"]}
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
    goes = found["prunable"]
    assert points[goes] <= LIMIT
    assert 0 < goes < 7
    assert points[goes + 1] > LIMIT


# ---- parts ------------------------------------------------------------------------------------


def test_what_cannot_be_had_is_said_and_the_rest_is_there() -> None:
    found = gather(small(), [[3, 1, 4, 1, 5, 9], [2, 6]], parts=("measure", "kinds"))
    assert found.table is not None
    assert set(found.table["kind"]) == {"too little data"}
    from torch import nn

    plain = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 3, batch_first=True), 1).eval()
    found = gather(plain, [{"src": torch.randn(2, 7, 12)}], parts=("measure", "kinds", "cost"))
    assert found.table is not None
    assert found.texts[0]["sequences"][0]["shown"][:3] == ["0", "1", "2"]


def test_stop_leaves_what_was_finished(tmp_path: Any) -> None:
    def stop(part: str, done: float, total: int) -> None:
        if part == "importance":
            raise KeyboardInterrupt

    documents = [[3, 1, 4, 1, 5, 9], [2, 6, 5, 3]]
    found = gather(small(), documents, progress=stop)
    assert found.stopped
    assert found.table is not None
    assert "entropy" in found.table.columns
    assert "kind" in found.table.columns
    assert "rank" not in found.table.columns
    with pytest.raises(KeyboardInterrupt):
        report(small(), documents, tmp_path / "part.html", progress=stop)
    assert (tmp_path / "part.html").stat().st_size > 10_000
    assert [p.name for p in tmp_path.iterdir()] == ["part.html"]


def test_bad_input() -> None:
    with pytest.raises(SizeError, match="there is no part 'wrong'"):
        gather(small(), [[1, 2]], parts=("wrong",))
    with pytest.raises(SizeError, match="there is no head 'L9H9' to keep the map of"):
        gather(small(), [[1, 2]], heads=["L9H9"])
    with pytest.raises(MultiheadError, match="no word in the text"):
        gather(small(), [[1, 2]], text="  ")


def test_card() -> None:
    found = gather(small(), [[3, 1, 4], [2, 6]], parts=("measure",))
    assert card(found) == "29.2 k parameters · 2 layers × 4 heads · 8 kv heads · 5 tokens in 2 documents"


# ---- words ------------------------------------------------------------------------------------


def test_words_of_a_text(minilm: tuple[Any, Any]) -> None:
    tokenizer = minilm[1]
    text = "Lindqvist doesn't know, does she?"
    words = Words.of(tokenizer(text)["input_ids"], tokenizer, text)
    assert words.shown[0] == "[CLS]"
    assert words.shown[-1] == "[SEP]"
    joined = "".join(w if g else f" {w}" for w, g in list(zip(words.shown, words.glued, strict=True))[1:-1])
    assert joined.strip() == text
    assert [w for w, s in zip(words.shown, words.special, strict=True) if s] == ["[CLS]", "[SEP]"]


def test_words_of_ids_alone(minilm: tuple[Any, Any]) -> None:
    tokenizer = minilm[1]
    ids = tokenizer("unbelievable cat")["input_ids"]
    words = Words.of(ids, tokenizer)
    assert "".join(w if g else f" {w}" for w, g in zip(words.shown, words.glued, strict=True)).split()[-2:] == [
        "cat",
        "[SEP]",
    ]
    assert Words.of([5, 6]).shown == ["5", "6"]
