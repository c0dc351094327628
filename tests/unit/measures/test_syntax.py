"""Reading CoNLL-U, and pointing along dependencies: a small treebank of our own, and a large one if it is there."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import multihead as mh
import zoo
from golden.make_minilm_statistics import model_and_batch
from multihead.errors import SizeError
from multihead.measures.treebank.conllu import Sentence, Word, read_conllu
from multihead.measures.treebank.relation_kinds import named_by_relations
from multihead.measures.treebank.syntax import ENOUGH, syntax, wilson
from multihead.measures.treebank.word_alignment import align, examples, pointing
from multihead.table.column_info import ColumnInfo
from multihead.table.table import HeadTable
from unit.measures.planted import HOT, PLACES

SMALL = Path(__file__).with_name("small.conllu")
DATA = Path(os.environ.get("MULTIHEAD_DATA") or Path(__file__).parents[3].parent / "shared" / "data")


@pytest.fixture(scope="module")
def treebank() -> list[Sentence]:
    return read_conllu(SMALL)


@pytest.fixture(scope="module")
def minilm() -> tuple[Any, Any]:
    model, _, _ = model_and_batch()
    return model, AutoTokenizer.from_pretrained(model.config._name_or_path)


def line(i: str, form: str, head: str = "_", relation: str = "_", misc: str = "_") -> str:
    return "\t".join([i, form, "_", "_", "_", "_", head, relation, "_", misc])


class TestReading:
    def test_the_small_treebank(self, treebank: list[Sentence]) -> None:
        assert len(treebank) == 20
        assert treebank[1].text == "A dog chased the cat."
        assert [w.head for w in treebank[1].words] == [2, 3, 0, 5, 3, 3]
        for sentence in treebank:
            assert sum(w.head == 0 for w in sentence.words) == 1
            for word in sentence.words:
                assert sentence.text[slice(*word.span)] == word.form

    def test_multiword_tokens_stand_as_they_are_written(self, treebank: list[Sentence]) -> None:
        assert treebank[4].text == "Don't touch that!"
        assert [w.form for w in treebank[4].words][:2] == ["Do", "n't"]
        [french] = read_conllu(
            [
                line("1-2", "du"),
                line("1", "de", "3", "case"),
                line("2", "le", "3", "det"),
                line("3", "pain", "0", "root"),
            ]
        )
        assert french.text == "du pain"
        assert french.words[0].span == french.words[1].span == (0, 2), "what does not spell it shares it"

    def test_empty_nodes_and_comments_are_passed_over(self, treebank: list[Sentence]) -> None:
        assert treebank[18].text == "Paul likes tea and Mary coffee."
        assert [w.form for w in treebank[18].words][4:6] == ["Mary", "coffee"]

    def test_text_lines_and_crlf(self) -> None:
        text = SMALL.read_text().replace("\n", "\r\n")
        assert read_conllu(text) == read_conllu(SMALL) == read_conllu(str(SMALL))

    @pytest.mark.parametrize(
        ("lines", "says"),
        [
            (["1\tTwo columns"], "line 1: CoNLL-U has 10 columns, got 2"),
            (["# fine", line("x", "a", "0", "root")], "line 2: 'x' is not a word id"),
            ([line("1", "a", "0", "root"), line("3", "b", "1", "obj")], "line 2: expected word 2, got 3"),
            ([line("1", "a", "7", "root")], "line 1: the head of 'a' must be between 0 and 1, got '7'"),
            ([line("1", "a", "_", "root")], "line 1: the head of 'a' must be between 0 and 1, got '_'"),
            ([line("1", "a", "1", "obj")], "line 1: 'a' is its own head"),
            ([line("1-4", "ab"), line("1", "a", "0", "root")], "line 1: '1-4' is not a range of words"),
            ([line("0.1", "ab")], "line 1: the sentence has no words"),
        ],
    )
    def test_bad_lines_are_named(self, lines: list[str], says: str) -> None:
        with pytest.raises(mh.MultiheadError, match=says.replace("(", r"\(")):
            read_conllu(lines)

    def test_no_file(self) -> None:
        with pytest.raises(mh.MultiheadError, match=r"no such file: nowhere\.conllu"):
            read_conllu("nowhere.conllu")


class TestWords:
    def test_tokens_go_to_the_word_with_most_of_their_letters(self, minilm: tuple[Any, Any]) -> None:
        sentence = Sentence(
            (Word("Do", 3, "aux", (0, 2)), Word("n't", 3, "advmod", (2, 5)), Word("overcook", 0, "root", (6, 14))),
            "Don't overcook",
            1,
        )
        tokenizer = minilm[1]
        got = align(sentence, tokenizer)
        assert tokenizer.convert_ids_to_tokens(got.ids) == [
            "[CLS]",
            "don",
            "'",
            "t",
            "over",
            "##co",
            "##ok",
            "[SEP]",
        ]
        assert got.word_of_token == [-1, 0, 1, 1, 2, 2, 2, -1]

    def test_words_that_share_their_letters_are_one(self, minilm: tuple[Any, Any]) -> None:
        words = (Word("de", 3, "case", (0, 2)), Word("le", 3, "det", (0, 2)), Word("pain", 0, "root", (3, 7)))
        got = align(Sentence(words, "du pain", 1), minilm[1])
        assert got.unit == [0, 0, 1]
        assert list(examples(got)) == [
            ("case", "to head", 0, [1]),
            ("det", "to head", 0, [1]),
            ("case", "to dependent", 1, [0]),
            ("det", "to dependent", 1, [0]),
        ]

    def test_root_and_punctuation_are_no_examples(self, treebank: list[Sentence], minilm: tuple[Any, Any]) -> None:
        seen = {relation for s in treebank for relation, *_ in examples(align(s, minilm[1]))}
        assert "nsubj" in seen
        assert not seen & {"root", "punct"}

    def test_pointing_sums_to_a_word_and_means_from_it(self) -> None:
        """The formula of Clark et al. 2019, written out."""
        of_token = torch.tensor([-1, 0, 0, 1, 2, 2, 2, 3, -1])
        weights = torch.softmax(torch.randn(5, 9, 9, dtype=torch.float64) * 2, -1)
        got = pointing(weights, of_token, 4)
        for h in range(5):
            for i in range(4):
                to = [
                    sum(float(weights[h, s, t]) for t in range(9) if of_token[t] == j)
                    for s in range(9)
                    for j in range(4)
                    if of_token[s] == i
                ]
                mean = torch.tensor(to).view(-1, 4).mean(0)
                mean[i] = -1
                assert int(got[h, i]) == int(mean.argmax())

    def test_a_word_that_sees_no_other_points_nowhere(self) -> None:
        weights = torch.eye(3)[None]
        assert pointing(weights, torch.tensor([0, 1, 2]), 3).tolist() == [[-1, -1, -1]]


class Pointer(nn.Module):
    """Heads that know the parse: to the head, to the first dependent, one word on."""

    def __init__(self, targets: dict[tuple[int, ...], list[list[int]]]) -> None:
        super().__init__()
        self.targets = targets
        self.attn = _Attention()

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        batch, n = input_ids.shape
        at = torch.zeros(batch, 3, n, dtype=torch.long)
        for b in range(batch):
            kept = n if attention_mask is None else int(attention_mask[b].sum())
            at[b, :, :kept] = torch.tensor(self.targets[tuple(input_ids[b, :kept].tolist())])
        eye = torch.eye(PLACES)
        k = eye[:n].expand(batch, 3, -1, -1)
        return self.attn(eye[at], k, k[..., :2], attention_mask)


class _Attention(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None) -> Tensor:
        seen = None if real is None else real[:, None, None].bool()
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=HOT)


def spaced(sentence: Sentence) -> Sentence:
    """The same words with a space between all of them: a word is a token."""
    at, words = 0, list[Word]()
    for w in sentence.words:
        words.append(Word(w.form, w.head, w.relation, (at, at + len(w.form))))
        at += len(w.form) + 1
    return Sentence(tuple(words), " ".join(w.form for w in words), sentence.line)


@pytest.fixture(scope="module")
def planted(treebank: list[Sentence]) -> tuple[Pointer, Any, list[Sentence]]:
    sentences = [spaced(s) for s in treebank]
    forms = sorted({w.form for s in sentences for w in s.words})
    vocabulary = {form: i for i, form in enumerate(["[PAD]", *forms])}
    plain = Tokenizer(WordLevel(vocabulary, unk_token="[PAD]"))
    plain.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="[PAD]")
    targets: dict[tuple[int, ...], list[list[int]]] = {}
    for s in sentences:
        n = len(s.words)
        up = [w.head - 1 if w.head else i for i, w in enumerate(s.words)]
        down = [next((j for j, w in enumerate(s.words) if w.head == i + 1), i) for i in range(n)]
        on = [min(i + 1, n - 1) for i in range(n)]
        targets[tuple(vocabulary[w.form] for w in s.words)] = [up, down, on]
    return Pointer(targets), tokenizer, sentences


class TestPlanted:
    def test_a_head_that_knows_the_parse_is_always_right(
        self, planted: tuple[Pointer, Any, list[Sentence]]
    ) -> None:
        got = syntax(planted[0], planted[2], tokenizer=planted[1], batch_size=7)
        for relation in got.relations:
            best = got[relation]
            assert (best.accuracy, got.heads[int(got.accuracy(relation).argmax())]) == (1.0, best.head)
            assert got.accuracy(relation)[0] == 1.0
        count = sum(w.relation == "nsubj" for s in planted[2] for w in s.words)
        assert got["nsubj"].count == count

    def test_one_word_on_is_the_fixed_offset_itself(self, planted: tuple[Pointer, Any, list[Sentence]]) -> None:
        """A next-word head reaches what the offset +1 reaches, in every relation and both directions."""
        got = syntax(planted[0], planted[2], tokenizer=planted[1])
        for (relation, direction), offsets in got.tally.offsets.items():
            assert int(got.tally.correct[relation, direction][2]) == offsets[1], (relation, direction)

    def test_a_head_with_two_dependents_of_a_kind_may_point_at_either(
        self, planted: tuple[Pointer, Any, list[Sentence]]
    ) -> None:
        words = (Word("a", 0, "root", (0, 1)), Word("b", 1, "obj", (2, 3)), Word("c", 1, "obj", (4, 5)))
        aligned = align(Sentence(words, "a b c", 1), planted[1])
        assert [e for e in examples(aligned) if e[1] == "to dependent"] == [("obj", "to dependent", 0, [1, 2])]

    def test_baseline_is_the_best_offset(self, planted: tuple[Pointer, Any, list[Sentence]]) -> None:
        got = syntax(planted[0], planted[2], tokenizer=planted[1])["det"]
        away = [w.head - i for s in planted[2] for i, w in enumerate(s.words, 1) if w.relation == "det"]
        assert got.offset == 1
        assert got.baseline == away.count(1) / len(away)

    def test_too_few_examples_say_so(self, planted: tuple[Pointer, Any, list[Sentence]]) -> None:
        got = syntax(planted[0], planted[2], tokenizer=planted[1])
        assert f"too few examples: needs {ENOUGH}" in str(got["iobj"])
        assert not got["iobj"].above
        assert "too few: needs 30" in got.text()
        assert got.table.row("L0H1")["syntax_relation"] == ""
        assert "above the best fixed offset" in got.table.reasons["syntax_accuracy"]["L0H1"]

    def test_many_examples_name_a_head(self, planted: tuple[Pointer, Any, list[Sentence]]) -> None:
        model, tokenizer, sentences = planted
        got = syntax(model, sentences * 4, tokenizer=tokenizer)
        row = got.table.row("L0H0")
        assert row["syntax_accuracy"] == 1.0
        assert row["syntax_direction"] == "to head"
        assert row["syntax_low"] > row["syntax_baseline"]
        assert got.table.about["syntax"] == {"sentences": 80, "skipped": 0}


def test_wilson_is_wilson() -> None:
    """(p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n)."""
    p, n, z = 0.9, 50, 1.959964
    half = z * (p * (1 - p) / n + z**2 / (4 * n**2)) ** 0.5
    ends = [(p + z**2 / (2 * n) + sign * half) / (1 + z**2 / n) for sign in (-1, 1)]
    assert wilson(45, 50) == pytest.approx(tuple(ends), abs=1e-6)


def test_streamed_is_what_whole_maps_give(treebank: list[Sentence], minilm: tuple[Any, Any]) -> None:
    """The brute-force twin: one sentence at a time, all maps, loops over words."""
    model, tokenizer = minilm
    got = syntax(model, treebank, tokenizer=tokenizer, batch_size=8)
    right: dict[Any, Tensor] = {}
    for sentence in treebank:
        a = align(sentence, tokenizer)
        with torch.no_grad(), mh.capture(model, statistics=None, keep="qk") as heads:
            model(input_ids=torch.tensor([a.ids]))
        maps = torch.stack([h.weights()[0] for h in heads])
        members = [[t for t, w in enumerate(a.word_of_token) if w == u] for u in range(a.units)]
        between = torch.stack(
            [torch.stack([maps[:, f][:, :, t].sum(-1).mean(-1) for t in members], -1) for f in members], 1
        )
        between[:, range(a.units), range(a.units)] = 0
        points = between.argmax(-1)
        for relation, direction, source, true in examples(a):
            hit = torch.stack([points[:, source] == t for t in true]).any(0).long()
            right[relation, direction] = right.get((relation, direction), 0) + hit
    assert right.keys() == got.tally.correct.keys()
    for key, want in right.items():
        assert (got.tally.correct[key] - want).abs().max() == 0, key


def test_errors(planted: tuple[Pointer, Any, list[Sentence]], treebank: list[Sentence]) -> None:
    model, tokenizer, sentences = planted
    with pytest.raises(mh.MultiheadError, match="does not return the character offsets"):
        align(treebank[0], object())
    with pytest.raises(mh.MultiheadError, match="nothing to measure: 0 sentences"):
        syntax(model, [], tokenizer=tokenizer)
    with pytest.raises(SizeError, match="batch_size must be at least 1, got 0"):
        syntax(model, sentences, tokenizer=tokenizer, batch_size=0)
    with pytest.raises(mh.MultiheadError, match="reads two"):
        syntax(zoo.model("t5"), sentences, tokenizer=tokenizer)
    got = syntax(model, sentences, tokenizer=tokenizer)
    with pytest.raises(SizeError, match="unknown relation 'dobj' to head"):
        got["dobj"]
    with pytest.raises(SizeError, match="unknown head 'L9H9'"):
        got.of("det", head="L9H9")


def test_minilm_knows_some_syntax(minilm: tuple[Any, Any]) -> None:
    """Objects point at their verb, determiners at their noun, better than any fixed offset."""
    path = DATA / "ud-ewt-dev.conllu"
    if not path.is_file():
        pytest.skip(f"no ud-ewt-dev.conllu in {DATA}: set MULTIHEAD_DATA to the folder that holds it")
    sentences = read_conllu(path)
    assert len(sentences) == 2001
    written = [text for text in path.read_text().splitlines() if text.startswith("# text = ")]
    assert [s.text for s in sentences] == [text.removeprefix("# text = ").strip() for text in written]
    got = syntax(minilm[0], sentences[:96], tokenizer=minilm[1])
    assert (got["obj"].head, got["det"].head) == ("L2H0", "L2H8")
    for relation in ("obj", "det", "case"):
        assert got[relation].above
        assert got[relation].accuracy > got[relation].baseline + 0.15


def test_an_empty_text_is_no_path() -> None:
    assert read_conllu("") == []


def test_match_heads_are_named_by_the_relation_that_they_follow() -> None:
    """One head follows it; others have few examples, are below half, or are led by position or a finer kind."""
    heads = tuple(f"L0H{i}" for i in range(5))
    numbers = {
        "kind_score": [math.nan] * 4 + [0.6],
        "kind_threshold": [math.nan] * 4 + [0.3],
        "kind_control": [math.nan] * 4 + [0.1],
        "kind_low": [math.nan] * 4 + [0.5],
        "kind_high": [math.nan] * 4 + [0.7],
        "syntax_accuracy": [0.57, 0.7, 0.5, 0.6, 0.6],
        "syntax_baseline": [0.38] * 5,
        "syntax_low": [0.55, 0.6, 0.48, 0.58, 0.58],
        "syntax_high": [0.59, 0.8, 0.52, 0.62, 0.62],
        "syntax_examples": [2004.0, 66.0, 2004.0, 2004.0, 2004.0],
    }
    words = {
        "kind": ("rest + match, 0.18", "match, 0.1", "match, 0.1", "position, 0.2", "duplicate"),
        "kind_detail": ("",) * 5,
        "leading": ("rest + match", "match", "match", "position", "match"),
        "syntax_relation": ("case",) * 5,
        "syntax_direction": ("to head",) * 5,
    }
    columns = {**words, **{name: torch.tensor(x, dtype=torch.float64) for name, x in numbers.items()}}
    reasons = {"kind_score": dict.fromkeys(heads[:4], "no kind stands")}
    table = HeadTable(heads, columns, {name: ColumnInfo("", "") for name in columns}, reasons)
    named = named_by_relations(table)
    assert named["kind"] == ("dependency", *words["kind"][1:])
    assert named["kind_detail"] == ("case to head", "", "", "", "")
    row = named.row("L0H0")
    assert [row[f"kind_{name}"] for name in ("score", "control", "threshold", "low", "high")] == [
        0.57, 0.38, 0.5, 0.55, 0.59,
    ]  # fmt: skip
    assert set(named.reasons["kind_score"]) == set(heads[1:4])
    assert named["kind_score"][4] == 0.6
    assert (
        named_by_relations(table.select(["kind", "leading"])).columns == table.select(["kind", "leading"]).columns
    )
