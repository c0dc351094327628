"""Kinds of heads: planted ones are named, others are not forced, chance is chance, and a run may be put down."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers import AutoTokenizer, GPT2Config, GPT2Model, ViTConfig, ViTModel

import multihead as mh
import zoo
from golden.make_minilm_statistics import SENTENCES, model_and_batch
from multihead._base.labels import without_value
from multihead.corpus.accumulator import Batch
from multihead.corpus.documents import Corpus
from multihead.corpus.run import BatchRunner
from multihead.errors import SizeError
from multihead.measures.kinds.controls import fixed, quiet, shuffled
from multihead.measures.kinds.document_means import ENOUGH, DocumentMeans
from multihead.measures.kinds.evidence import RULES
from multihead.measures.kinds.head_shares import SHARES
from multihead.measures.kinds.kinds import KindsMeasure, kinds
from multihead.measures.kinds.kinds_result import Kinds
from multihead.measures.kinds.per_document import DocumentSums, Sums, alignment, read_documents
from multihead.measures.kinds.repeats import repeats, special_tokens_around
from multihead.measures.kinds.shuffled import ShuffledPair
from multihead.measures.kinds.token_classes import class_ids, class_of, classes_of
from multihead.model.call import Call, Compute, Tokens
from multihead.model.intercept import intercept
from multihead.model.kernel_arguments import problem_of
from multihead.model.statistics.arena import Memory
from multihead.model.statistics.statistics_options import Statistics
from unit.measures.planted import CLASS, HEADS, SPECIAL, VOCABULARY, Aligned, Planted, documents

ENCODER = [kind for kind in HEADS if kind != "induction"]  # an encoder's would look at later copies as well
DECODER = [kind for kind in HEADS if kind not in ("next", "delimiter")]


def found(names: Sequence[str], causal: bool, **options: Any) -> Kinds:
    return kinds(Planted(names, causal=causal), documents(), special=SPECIAL, classes={"words": CLASS}, **options)


class TestPlanted:
    @pytest.mark.parametrize(("names", "causal"), [(ENCODER, False), (DECODER, True)], ids=["encoder", "decoder"])
    def test_every_kind_is_named(self, names: Sequence[str], causal: bool) -> None:
        got = found(names, causal)
        assert [without_value(e.name) for e in got] == ["match" if name == "drawn" else name for name in names]
        for e in got:
            if e.best is not None:
                assert e.score > 0.95, e
                assert e.control < (0.9 if e.kind == "broad" else 0.4), e
                assert e.interval[0] > max(e.threshold, e.control)
                assert len(e.runners_up) == 2
                assert e.kind == "dead" or {rule.kind: rule.share for rule in RULES}[e.kind] in e.shares.leading

    def test_a_copy_of_a_document_is_no_further_witness(self) -> None:
        model, few = Planted(ENCODER, causal=False), documents()[:7]
        once, often = (kinds(model, texts, special=SPECIAL, batch_size=3) for texts in (few, few + few[2:] + few))
        assert_close(once.table["kind_low"], often.table["kind_low"], equal_nan=True)
        assert often.table.about["kinds"]["documents"] == 7
        assert often.table.about["kinds"]["copies"] == 12
        alone = {without_value(e.kind) for e in kinds(model, few[:1] * 50, special=SPECIAL)}
        assert alone <= {"duplicate", *SHARES}, (
            "duplicates are judged on random tokens that repeat, and shares need no interval"
        )

    def test_what_drives_them(self) -> None:
        got = {name: e.driven for name, e in zip(ENCODER, found(ENCODER, False), strict=True)}
        for kind in ("previous", "next", "offset -3", "window ±2"):
            assert got[kind].by == "position", kind
            assert got[kind].position > 0.95
        for kind in ("class words", "duplicate", "drawn"):
            assert got[kind].by == "content", kind
            assert got[kind].content > 0.95
        for kind in ("self", "broad", "first", "delimiter"):  # what they look at stays, or is everything
            assert got[kind].by == "both", kind
            assert got[kind].score == pytest.approx(0, abs=1e-6)

    def test_alignment_with_another_sequence(self) -> None:
        sizes = ((7, 11), (13, 17), (11, 11), (17, 13))
        batches = [{"x": torch.randn(2, m, 8), "memory": torch.randn(2, n, 8)} for m, n in sizes]
        got = kinds(Aligned(), batches)
        assert [e.kind for e in got] == ["alignment", "first", "broad"]
        assert "different sequences" in got["L0H0"].scores["previous"].reason
        assert math.isnan(got["L0H0"].scores["previous"].score)
        assert got["L0H0"].driven.reason == "the inputs have no token ids"

    def test_the_table_says_it_all(self) -> None:
        got = found(["offset -3", "drawn"], False).table
        row = got.row("L0H0")
        assert (row["kind"], row["kind_detail"]) == ("offset", "-3")
        assert row["kind_low"] > row["kind_threshold"] == 0.5
        assert row["kind:offset"] == row["kind_score"] > 0.95
        other = got.row("L0H1")
        assert other["kind"] == f"match, {other['match']:.2f}"
        assert other["leading"] == "match"
        assert math.isnan(other["kind_score"])
        assert "the closest kind, " in got.reasons["kind_score"]["L0H1"]
        assert math.isnan(other["kind:alignment"])
        assert "the same sequence" in got.reasons["kind:alignment"]["L0H1"]
        assert got.about["kinds"]["documents"] == 12

    def test_the_text_is_short(self) -> None:
        text = found(["previous", "drawn"], True).text()
        assert len(text.splitlines()) == 2 + 1 + 2
        assert "match       1  L0H1" in text
        assert "L0H0  previous     1.00 [1.00, 1.00]" in text


class TestNotForced:
    @pytest.mark.parametrize("causal", [True, False])
    def test_random_models_have_no_named_heads(self, causal: bool) -> None:
        torch.manual_seed(3)
        model = zoo.ZOO["gpt2" if causal else "bert"].build()
        low, high = 5, 101
        docs = [torch.randint(low, high, (n,)).tolist() for n in (23, 29, 31, 19, 17, 13, 37, 11, 23, 29)]
        assert {e.kind for e in kinds(model, docs) if e.best is not None} <= {"broad"}

    def test_an_untrained_model_is_broad(self) -> None:
        model = GPT2Model(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=50)).eval()
        got = kinds(model, [torch.randint(0, 50, (n,)).tolist() for n in (23, 29, 31, 19, 17, 13)])
        assert {e.kind for e in got} == {"broad"}

    def test_a_third_of_the_weight_is_no_kind_and_half_is_not_surely(self) -> None:
        """Documents of which 6 of 12 are looked at from one place back: the mean is half, the interval is wide."""
        spread = DocumentMeans(["previous", "even:previous"], 1)
        for value in (0.45, 0.75) * 6:
            spread.add({"previous": torch.tensor([[value]]), "even:previous": torch.tensor([[0.1]])})
        mean, half = float(spread.mean[0, 0]), float(spread.half[0, 0])
        assert mean == pytest.approx(0.6)
        assert half == pytest.approx(2.200985 * (12 / 11 * 0.15**2 / 12) ** 0.5, rel=1e-5)  # t of 11 degrees


# ---- chance, against the whole truth ----------------------------------------------------------


def seen(model: Planted, ids: Tensor, **options: Any) -> DocumentSums:
    kept: list[DocumentSums] = []

    def listen(call: Call, run: Compute) -> Tensor:
        out = run()
        asked = Statistics(**options)
        kept.append(read_documents(call, out, asked, Memory(), torch.Generator().manual_seed(0)))
        return out

    with torch.no_grad(), intercept(model, listen):
        model(ids)
    return kept[0]


def maps_of(model: Planted, ids: Tensor) -> Tensor:
    with torch.no_grad(), mh.capture(model, statistics=None, keep="qk") as heads:
        model(ids)
    return torch.stack([h.weights() for h in heads], 1).double()


@pytest.mark.parametrize("causal", [True, False])
def test_shuffled_control_is_the_mean_over_all_orders_of_the_ids(causal: bool) -> None:
    ids = torch.tensor([[3, 5, 3, 8, 5, 3]])
    model = Planted(["drawn", "previous", "window ±2"], causal=causal)
    got = shuffled(seen(model, ids))
    maps, n = maps_of(model, ids)[0], ids.shape[1]
    first = 1 if causal else 0  # a row of one key has no choice
    sums = {"duplicate": torch.zeros(3), "induction": torch.zeros(3)}
    orders = list(itertools.permutations(range(n)))
    for order in orders:
        dealt = ids[0, list(order)]
        i, j = torch.arange(n)[:, None], torch.arange(n)
        same = (dealt[:, None] == dealt) & (i != j)
        after = torch.zeros(n, n, dtype=torch.bool)
        after[:, 1:] = dealt[:, None] == dealt[:-1]
        after &= j <= i
        sums["duplicate"] += (maps * same)[:, first:].sum((1, 2))
        sums["induction"] += (maps * after)[:, first:].sum((1, 2))
    rows = {"duplicate": 3 if causal else 5, "induction": 3}  # of the text as it stands
    for name, total in sums.items():
        assert_close(got[f"shuffled:{name}"][0].float(), total / len(orders) / rows[name])


def test_fixed_offsets_are_heads_that_look_there() -> None:
    """The planted head of offset -3 has exactly what the control says of that offset."""
    ids = torch.randint(2, 7, (5, 19))
    got = seen(Planted(["offset -3"]), ids)
    control = fixed(got, Statistics())
    for name, statistic in (("duplicate", "same_token"), ("induction", "induction")):
        # rows without a place three back spread over everything: leave them out of both
        late = got.sees[statistic].clone()
        late[:, :3] = False
        hits = control[f"fixed-3:{name}"][:, 0] * got.sees[statistic].sum(-1)
        back = ids[:, :-3] if name == "duplicate" else torch.nn.functional.pad(ids[:, :-4], (1, 0), value=-1)
        want = ((back == ids[:, 3:]) & late[:, 3:]).sum(-1)
        assert_close(hits, want.double(), msg=name)


def test_the_best_fixed_offset_explains_a_text_of_one_period() -> None:
    """Looking ten back in a text that repeats every ten tokens is no duplicate head."""
    docs = [torch.randint(2, VOCABULARY, (10,)).repeat(3).tolist() for _ in range(6)]
    control = fixed(seen(Planted(["drawn"]), torch.tensor(docs)), Statistics())
    assert float(control["fixed-10:duplicate"].mean()) > 0.6
    assert float(control["fixed-9:induction"].mean()) > 0.95


def test_even_heads_give_each_key_its_share() -> None:
    got = seen(Planted(["broad"], causal=True), torch.arange(2, 13)[None], special=[2])
    n = 11
    rows = torch.arange(2.0, n + 1, dtype=torch.float64)  # the first row has no choice
    assert got.chance.all_rows[0, 0] == n - 1
    assert_close(got.chance.mean("first")[0, 0], (1 / rows).mean(), rtol=1e-6, atol=0)
    assert_close(got.heads.mean("previous")[0, 0], (1 / rows).mean(), rtol=1e-6, atol=0)
    assert got.heads.rows["previous"][0, 0] == n - 1
    assert got.heads.rows["offset-4"][0, 0] == n - 5, "without the row that would look at the first token"
    assert_close(got.chance.mean("relative_entropy")[0, 0].item(), 1.0)
    assert 0.75 < got.chance.share("relative_entropy")[0, 1] < 0.95, "random scores of spread 1"


def test_alignment_is_the_correlation_under_the_weights() -> None:
    q, k = torch.randn(2, 3, 7, 5, dtype=torch.float64), torch.randn(2, 3, 11, 5, dtype=torch.float64)
    problem = problem_of(q, k, k, cross=True)
    p = torch.softmax(q @ k.mT * 5**-0.5, -1)
    i, j = torch.arange(7.0, dtype=torch.float64)[:, None], torch.arange(11.0, dtype=torch.float64)
    mean = lambda x: (p * x).sum((-1, -2)) / 7
    cov = mean(i * j) - mean(i) * mean(j)
    want = cov / ((mean(i**2) - mean(i) ** 2) * (mean(j**2) - mean(j) ** 2)).sqrt()
    assert_close(alignment(problem, Tokens(), Tokens()), want)
    real = torch.ones(2, 7, dtype=torch.bool)
    real[1, 4:] = False
    short = problem_of(q[1:, :, :4], k[1:], k[1:], cross=True)
    assert_close(alignment(problem, Tokens(valid=real), Tokens())[1:], alignment(short, Tokens(), Tokens()))
    silent = torch.ones(2, 11, dtype=torch.bool)
    silent[:, 8:] = False
    heard = p[..., :8] / p.sum((-1, -2), keepdim=True)
    mass, place = heard.sum((-1, -2)), torch.arange(8.0, dtype=torch.float64)
    mean = lambda x: (heard * x).sum((-1, -2)) / mass
    cov = mean(i * place) - mean(i) * mean(place)
    want = cov / ((mean(i**2) - mean(i) ** 2) * (mean(place**2) - mean(place) ** 2)).sqrt()
    assert_close(alignment(problem, Tokens(), Tokens(valid=silent)), want)


def test_overlaps_are_those_of_the_maps() -> None:
    ids = torch.randint(2, VOCABULARY, (2, 11))
    pair = ShuffledPair(ids, torch.ones_like(ids, dtype=torch.bool), (), torch.Generator().manual_seed(1))
    model = Planted(["drawn", "previous"])
    maps = maps_of(model, pair.ids)
    got: list[Any] = []

    def listen(call: Call, run: Compute) -> Tensor:
        got.append(pair.overlaps(call.problem))
        return run()

    with intercept(model, listen):
        model(pair.ids)
    for b, h in itertools.product(range(2), range(2)):
        a, other, to = maps[b, h], maps[2 + b, h], pair.new_position[b]
        assert torch.equal(pair.ids[2 + b, to], ids[b]), "token i stands at to[i] now"
        assert_close(got[0]["position"][b, h], torch.minimum(a, other).sum(-1).mean())
        assert_close(got[0]["content"][b, h], torch.minimum(a, other[to][:, to]).sum(-1).mean())


def test_quiet_is_against_the_median_of_the_layer() -> None:
    nan = math.nan
    norms = torch.tensor([[1e-9, 1e-9, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0], [3.0, 1.0, 2.0, nan]]).double()
    want = torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.5, 0.0, nan]]).double()
    assert_close(quiet(norms), want, equal_nan=True)


def test_repeats_repeat_at_many_distances() -> None:
    ids = repeats(range(40), rows=9, tokens=40, begin=[77], end=[78], generator=torch.Generator().manual_seed(0))
    assert ids.shape == (9, 42)
    assert (ids[:, 0] == 77).all()
    assert (ids[:, -1] == 78).all()
    periods = [next(p for p in range(1, 40) if bool((row[1 + p : 41] == row[1 : 41 - p]).all())) for row in ids]
    assert len(set(periods)) == 9
    assert (min(periods), max(periods)) == (10, 20)
    with pytest.raises(SizeError, match="got 5 tokens from 3 ids"):
        repeats(range(3), rows=1, tokens=5, generator=torch.Generator())


# ---- classes of tokens ------------------------------------------------------------------------


def test_words_have_classes() -> None:
    assert class_of("Ġthe") == class_of("▁The") == "function words"
    assert class_of("##ing") is None
    assert class_of("1,000") == "digits"
    assert class_of("—") == "punctuation"
    assert class_of("▁") is None


# ---- putting down and taking up ---------------------------------------------------------------


def test_a_run_that_was_put_down_ends_the_same() -> None:
    model, options = Planted(ENCODER), Statistics(special=SPECIAL, classes={"words": CLASS})
    batches = [{"input_ids": torch.tensor([d])} for d in documents(9)]

    def fed(model: Planted, saved: Sequence[Any], some: range, *, end: bool = False) -> KindsMeasure:
        measured = KindsMeasure(model, options, seed=3)
        for one, state in zip(measured.accumulators, saved, strict=False):
            one.load(state)
        runner = BatchRunner(model, measured.accumulators)
        for index in some:
            runner.run(Batch(batches[index], index))
        if end:
            measured.finish(Corpus(model, batches))
        return measured

    def states(measured: KindsMeasure) -> list[Any]:
        return [one.state() for one in (measured.text, measured.shuffled, measured.repeats, measured.shares)]

    whole, half = fed(model, [], range(9), end=True), fed(model, [], range(4))
    other = Planted(ENCODER)
    other.load_state_dict(model.state_dict())
    again = fed(other, states(half)[:2], range(4, 9), end=True)
    a, b = states(whole), states(again)
    assert a[0]["documents"] == b[0]["documents"] == 9
    for one, two in zip(a, b, strict=True):
        assert one["sites"] == two["sites"]
        assert len(one["of"]) == 1
        for mine, theirs in zip(one["of"], two["of"], strict=True):
            assert mine["names"] == theirs["names"]
            for name, x in mine["moments"].items():
                assert torch.equal(x, theirs["moments"][name]), name
    assert whole.result().table == again.result().table
    assert whole.result().table.columns["kind"] == again.result().table.columns["kind"]
    with pytest.raises(mh.MultiheadError, match="other special tokens, classes, offsets or another seed"):
        KindsMeasure(model, options, seed=4).text.load(a[0])


# ---- bad input --------------------------------------------------------------------------------


class TestBadInput:
    def test_two_documents_are_named_by_their_shares(self) -> None:
        got = kinds(Planted(["previous", "first"]), documents(2), special=SPECIAL)
        assert [without_value(e.kind) for e in got] == ["position", "rest"]
        assert got["L0H0"].why.endswith(f"an interval over documents needs {ENOUGH}, got 2")
        assert got.table.reasons["kind_low"]["L0H0"] == got["L0H0"].why
        assert "use 96" in got.about["kinds"]["notes"][0]
        assert math.isnan(got.table["position_low"][0])
        assert got["L0H0"].runners_up[0].kind == "previous"
        assert got["L0H0"].driven.by == ""
        assert "2 documents could be shuffled" in got["L0H0"].driven.reason

    def test_one_token(self) -> None:
        got = kinds(Planted(["previous", "first"]), [[3]] * 6, special=SPECIAL)
        assert {e.kind for e in got} == {"too little data"}

    def test_documents_of_one_token_are_not_named_by_the_pieces_that_they_are_joined_to(self) -> None:
        got = kinds(Planted(["previous", "first"]), [[i] for i in range(3, 11)], special=SPECIAL)
        assert [(e.kind, e.why) for e in got] == [("too little data", "no row of the text sees two keys")] * 2

    def test_no_ids(self) -> None:
        torch.manual_seed(0)
        sizes = {"hidden_size": 24, "intermediate_size": 32, "image_size": 15, "patch_size": 5}
        model = ViTModel(ViTConfig(num_hidden_layers=1, num_attention_heads=3, **sizes)).eval()
        got = kinds(model, [{"pixel_values": torch.randn(6, 3, 15, 15)}])
        assert {e.kind for e in got if e.best is not None} <= {"broad"}
        total = torch.stack([got.table[name] for name in SHARES]).sum(0)
        assert_close(total, torch.ones_like(total))
        for kind in ("duplicate", "induction"):
            assert "no token ids" in got.table.reasons[f"kind:{kind}"]["L0H0"]
        assert got["L0H0"].driven.reason == "the inputs have no token ids"

    def test_two_sequences(self) -> None:
        model = zoo.model("t5")
        got = kinds(model, [zoo.ZOO["t5"].inputs(model)] * 3)
        assert {e.head.split(".")[0] for e in got} == {"encoder", "decoder", "cross"}
        assert "two sequences" in got["encoder.L0H0"].driven.reason

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("clip", "also reads pixel_values"),
            ("gpt-j", ""),
            ("gpt-oss", ""),
            ("modernbert", ""),
            ("falcon-alibi", ""),
        ],
    )
    def test_other_models(self, name: str, reason: str) -> None:
        """Images beside text, few positions, sinks, windows, biases: two documents are too little for each."""
        model, entry = zoo.model(name), zoo.ZOO[name]
        got = kinds(model, [entry.padded(model) or {}])
        assert reason in next(iter(got)).driven.reason
        for e in got:
            assert e.kind in ("too little data", "duplicate", "induction", e.shares.label)
            assert sum(e.shares.share.values()) == pytest.approx(1, abs=1e-6)
            for kind in ("first", "previous", "broad"):
                assert 0 <= e.scores[kind].score <= 1
                assert 0 <= e.scores[kind].control <= 1

    def test_a_batch_of_padding_gives_nothing(self) -> None:
        ids, model = torch.tensor([d[:14] for d in documents(6)]), Planted(["previous", "first"])
        nothing = {"input_ids": ids[:2], "attention_mask": torch.zeros_like(ids[:2])}
        whole = kinds(model, [{"input_ids": ids}, nothing], special=SPECIAL)
        assert_close(
            whole.table["kind:first"], kinds(model, [{"input_ids": ids}], special=SPECIAL).table["kind:first"]
        )

    def test_no_such_head(self) -> None:
        got = kinds(Planted(["previous"]), documents(2))
        assert got["L0H0"] is got["0.0"] is got[0, 0]
        with pytest.raises(SizeError, match="unknown head 'L7H0'"):
            got["L7H0"]

    def test_words_need_a_tokenizer(self) -> None:
        with pytest.raises(mh.MultiheadError, match=r"class 'colours' .* 'red', which needs a tokenizer"):
            kinds(Planted(["previous"]), documents(2), classes={"colours": ["red"]})

    def test_rows_of_nothing_do_not_count(self) -> None:
        """A batch padded to twice its length gives what it gives alone."""
        ids = torch.tensor([[*d[:13], 1] for d in documents(6)])
        long = torch.cat([ids, ids.new_full((6, 15), 1)], 1)
        mask = torch.cat([torch.ones_like(ids), ids.new_zeros(6, 15)], 1)
        model = Planted(["previous", "duplicate", "drawn", "window ±2"])
        short = kinds(model, [{"input_ids": ids}], special=SPECIAL)
        padded = kinds(model, [{"input_ids": long, "attention_mask": mask}], special=SPECIAL)
        for name in ("previous", "first", "delimiter", "window", "offset"):
            a, b = (k.table[f"kind:{name}"] for k in (short, padded))
            assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_every_rule_has_a_meaning_and_a_reason() -> None:
    assert len({rule.kind for rule in RULES}) == len(RULES) == 13
    for rule in RULES:
        assert rule.meaning
        assert rule.needs
        assert rule.controls or rule.kind == "dead"


# ---- a trained model --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def minilm() -> tuple[Any, Any]:
    model, _, _ = model_and_batch()
    return model, AutoTokenizer.from_pretrained(model.config._name_or_path)


def test_known_heads_of_minilm(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    got = kinds(model, SENTENCES, tokenizer=tokenizer, classes={"commas": [","]})
    assert got["L0H2"].kind == "previous"
    assert got["L0H2"].score > 0.95
    assert got["L0H2"].driven.by == "position"
    assert got["L1H8"].kind == "next"
    assert 0.55 < got["L1H8"].score < 0.7
    assert got["L2H9"].kind == "duplicate"
    assert got["L2H9"].score > 0.4 > 4 * got["L2H9"].control
    assert [e.head for e in got.of("previous")] == ["L0H2"]
    assert [e.head for e in got.of("next")] == ["L1H8"]
    assert 5 < len(got.of("first")) < 15, "heads that do little else than rest on [CLS]"
    assert not got.of("induction"), "it never saw a text twice"
    assert "word" in got["L5H4"].shares.leading, "it picks words, whatever the query"
    assert len(got.of("word")) > 10


def test_classes_of_minilm(minilm: tuple[Any, Any]) -> None:
    _, tokenizer = minilm
    got = classes_of(tokenizer)
    word = lambda w: tokenizer.convert_tokens_to_ids(w)
    assert word(",") in got["punctuation"]
    assert word("1984") in got["digits"]
    assert word("the") in got["function words"]
    assert word("##ing") in got["word pieces"]
    assert len(got.get("capitalised", ())) < 5, "an uncased vocabulary"
    assert class_ids("x", [",", 5], tokenizer) == (5, word(","))
    with pytest.raises(SizeError, match="'zyxwvut' must be a single token"):
        class_ids("x", ["zyxwvut"], tokenizer)


def test_a_statistic_that_no_row_can_have_is_nan() -> None:
    """Its total may be a rounding error of either sign, and that over 0 rows infinite."""
    total, rows = torch.tensor([[1e-9], [-1e-9], [3.0]]), torch.tensor([[0.0], [0.0], [4.0]])
    mean = Sums({"delimiter": total}, {"delimiter": rows}, rows).mean("delimiter")
    assert mean.nan_to_num(-1.0).flatten().tolist() == [-1.0, -1.0, 0.75]


@pytest.mark.parametrize(
    ("row", "begin", "end"),
    [([1, 5, 1, 6, 2, 2], [1], [2, 2]), ([5, 6], [], []), ([1, 2], [1, 2], [])],
)
def test_special_tokens_around_a_document_count_once(row: list[int], begin: list[int], end: list[int]) -> None:
    """Also those of a document without other tokens: they are before it, not before and after it."""
    around = special_tokens_around({"input_ids": torch.tensor([row])}, (1, 2))
    assert around == {"name": "input_ids", "begin": begin, "end": end, "ids": sorted(set(row))}
