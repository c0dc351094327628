"""Twins, strangers and dead heads in closed form; CKA, JS and principal angles against the plain way."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
import torch
from scipy.linalg import subspace_angles
from scipy.spatial.distance import jensenshannon
from torch import Tensor, nn
from torch.testing import assert_close

import multihead as mh
import zoo
from golden.make_minilm_statistics import model_and_batch
from multihead.corpus.accumulator import Accumulator
from multihead.errors import SizeError
from multihead.measures.importance.losses import OutputDistance
from multihead.measures.similarity.attention_distances import AttentionDistances, distances
from multihead.measures.similarity.clusters import grouped
from multihead.measures.similarity.output_similarity import OutputSimilarity
from multihead.measures.similarity.ov_circuits import find_weights
from multihead.measures.similarity.similarity import SimilaritySum, similarity
from multihead.measures.similarity.similarity_result import Similarity
from parity.test_zoo_capture import traces
from unit.measures.test_importance import feed

HEADS, WIDTH, TOKENS = 5, 20, 7
X = torch.randn(3, TOKENS, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


class Family(nn.Module):
    """Head 1 is a copy of head 0, 2 writes the negative of it, 3 is dead, 4 writes elsewhere with other words."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attn = mh.MultiHeadAttention(WIDTH, HEADS, head_dim=3, bias=False).double()
        for p in self.parameters():
            nn.init.normal_(p, std=0.7)
        layer = mh.anatomy(self, {"x": X})[0]
        with torch.no_grad():
            for other, sign in ((1, 1.0), (2, -1.0)):
                layer.W_Q[other].copy_(layer.W_Q[0])
                layer.W_K[other].copy_(layer.W_K[0])
                layer.W_V[other].copy_(layer.W_V[0])
                layer.W_O[other].copy_(sign * layer.W_O[0])
            layer.W_O[3].zero_()

    def forward(self, x: Tensor) -> Tensor:
        return self.attn(x)


@pytest.fixture(scope="module")
def family() -> Similarity:
    return similarity(Family(), [{"x": X}])


# ---- closed forms -----------------------------------------------------------------------------


def test_twins_are_the_same_in_every_measure(family: Similarity) -> None:
    assert family.pair("L0H0", "L0H1") == pytest.approx(
        {"correlation": 1, "cka": 1, "attention": 0, "write": 1, "read": 1}, abs=1e-9
    )
    assert family["attention"][0, 1] == 0, "not nearly: the same rows"


def test_a_head_that_writes_the_opposite(family: Similarity) -> None:
    found = family.pair("L0H0", "L0H2")
    assert found["correlation"] == pytest.approx(-1)
    assert found["cka"] == pytest.approx(1), "the same but for a rotation"
    assert found["attention"] == 0


def test_a_dead_head_has_no_numbers_and_says_why(family: Similarity) -> None:
    for name in ("correlation", "cka", "write", "read"):
        assert family[name][3].isnan().all()
        assert "L0H3" in family.undefined[name][0]
    assert not family["attention"][3].isnan().any(), "it still looks at something"
    row = family.table.row("L0H3")
    assert row["most_similar"] == ""
    assert "does not vary" in family.table.reasons["most_similar"]["L0H3"]
    assert "does not vary" in family.text()


def test_twins_and_clusters(family: Similarity) -> None:
    assert family.most_similar(1)[0][2] == pytest.approx(1.0)
    assert set(family.groups()[0]) == {"L0H0", "L0H1", "L0H2"}
    assert len(family.groups()) == 1
    table = family.table
    assert table["cluster"].tolist()[:3] == [0.0, 0.0, 0.0]
    assert sorted(table["order"].tolist()) == [0.0, 1.0, 2.0, 3.0, 4.0]
    places = sorted(family.order.index(h) for h in ("L0H0", "L0H1", "L0H2"))
    assert places[2] - places[0] == 2, "side by side in the dendrogram"
    by_look = similarity(Family(), [{"x": X}], by="attention", within=0.1)
    assert set(by_look.groups()[0]) == {"L0H0", "L0H1", "L0H2"}


def test_heads_with_independent_outputs_have_cka_0() -> None:
    """Orthogonal columns over tokens: no linear map leads from one to the other."""
    basis = torch.linalg.qr(torch.randn(60, 9, dtype=torch.float64) - 0.0).Q
    centred = torch.linalg.qr(basis - basis.mean(0)).Q
    parts = list(centred.split([2, 3, 4], dim=1))
    found = OutputSimilarity([2, 3, 4], [torch.eye(n, dtype=torch.float64) for n in (2, 3, 4)])
    found.add(parts)
    assert_close(found.cka(), torch.eye(3, dtype=torch.float64), rtol=0, atol=1e-12)


# ---- brute force ------------------------------------------------------------------------------


def plain_cka(x: Tensor, y: Tensor) -> float:
    """HSIC of the linear kernels, the n × n way."""
    centre = torch.eye(len(x), dtype=x.dtype) - 1 / len(x)
    k, m = centre @ x @ x.T @ centre, centre @ y @ y.T @ centre
    return float((k * m).sum() / (k.square().sum() * m.square().sum()).sqrt())


def written(model: nn.Module, batch: dict[str, Any]) -> tuple[list[Tensor], list[Tensor]]:
    """What each head writes at every real token, (token, width), and its map."""
    with torch.no_grad(), mh.capture(model, statistics=None, keep="qk outputs") as heads:
        model(**batch)
    layers = {layer.site.label: layer for layer in mh.anatomy(model, batch)}
    real = batch.get("attention_mask", torch.ones(2, 11)).bool()
    out = [(h.output() @ layers[h.site.label].W_O[h.index].T)[real].detach().double() for h in heads]
    return out, [h.weights()[real].detach().double() for h in heads]


@pytest.mark.parametrize(("name", "padded"), [("llama", True), ("bert", False), ("gpt-oss", False)])
def test_outputs_and_attention_by_the_plain_way(name: str, padded: bool) -> None:
    """Grouped kv heads, padding, learned sinks; in a layer and across layers."""
    model, batch = zoo.ZOO[name].build(), zoo.ZOO[name].batch(padded)
    found = similarity(model, [batch])
    out, maps = written(model, batch)
    for i, j in list(combinations(range(len(found.heads)), 2))[::3]:
        a, b = (o - o.mean(0) for o in (out[i], out[j]))
        rho = float((a * b).sum() / (a.square().sum() * b.square().sum()).sqrt())
        assert float(found["correlation"][i, j]) == pytest.approx(rho, abs=1e-4)
        assert float(found["cka"][i, j]) == pytest.approx(plain_cka(out[i], out[j]), abs=1e-4)
        p, q = (torch.cat([m, (1 - m.sum(-1, keepdim=True)).clamp_min(0)], -1) for m in (maps[i], maps[j]))
        js = jensenshannon(p.numpy(), q.numpy(), base=2, axis=1)
        assert float(found["attention"][i, j]) == pytest.approx(float(js.mean()), abs=2e-3)


def test_overlap_by_principal_angles() -> None:
    model, batch = zoo.ZOO["llama"].build(), zoo.ZOO["llama"].batch(False)
    found = similarity(model, [batch])
    anatomy = mh.anatomy(model, batch)
    for a, b in (("L0H0", "L0H3"), ("L0H1", "L1H2"), ("L1H0", "L1H1")):
        circuits = [anatomy[h].W_O.detach().double() @ anatomy[h].W_V.detach().double() for h in (a, b)]
        spaces = [torch.linalg.svd(c) for c in circuits]
        rank = anatomy[a].W_O.shape[1]
        for name, bases in (("write", [s.U[:, :rank] for s in spaces]), ("read", [s.Vh[:rank].T for s in spaces])):
            angles = torch.tensor(subspace_angles(bases[0].numpy(), bases[1].numpy()))
            assert found.pair(a, b)[name] == pytest.approx(float(angles.cos().square().mean()), abs=1e-6)
    kv = [layer.groups.kv_of_head for layer in anatomy]
    assert kv[0][0] == kv[0][1]
    assert found.pair("L0H0", "L0H1")["read"] == pytest.approx(1.0), "heads of one group read the same"


def test_a_sketch_stays_within_its_error() -> None:
    torch.manual_seed(0)
    sizes, tokens = [24] * 8, 400
    shared = torch.randn(tokens, 24).double()
    z = [shared @ torch.randn(24, 24).double() + i * torch.randn(tokens, 24).double() for i in range(8)]
    weights = [torch.randn(30, 24).double() for _ in sizes]
    exact, sketch = OutputSimilarity(sizes, weights), OutputSimilarity(sizes, weights, largest=16 * (8 * 16) ** 2)
    for one in (exact, sketch):
        one.add([x[:150] for x in z])
        one.add([x[150:] for x in z])
    assert (exact.sketched, sketch.sketched) == (0, 16)
    assert exact.error == 0
    assert_close(sketch.correlation(), exact.correlation())
    off = (sketch.cka() - exact.cka()) / exact.cka()
    assert off.abs().max() < 3 * sketch.error
    assert off.square().mean().sqrt() < sketch.error
    assert_close(sketch.cka().diagonal(), torch.ones(8).double())
    with pytest.raises(SizeError, match=r"at least 4 dimensions per head, .* allow 1 for"):
        OutputSimilarity(sizes, weights, largest=16 * 8**2)


def test_rows_of_a_long_text_are_sampled() -> None:
    model, batch = zoo.ZOO["gpt2"].build(), {"input_ids": torch.randint(5, 100, (2, 30))}
    whole, some = (feed(model, SimilaritySum(find_weights(model)), batch) for _ in range(2))
    few = some._groups[0].attention[False]
    few.total.zero_(), few.count.zero_()
    few.rows = 11
    feed(model, some, batch)
    assert int(few.count) == 22
    assert_close(few.mean(), whole._groups[0].attention[False].mean(), rtol=0, atol=0.1)


def test_distances_are_a_metric() -> None:
    p = torch.softmax(3 * torch.randn(6, 13, 9), -1)
    d = distances(p)
    assert_close(d, d.transpose(0, 1))
    assert (d[:, None] <= d[:, :, None].transpose(1, 2) + d[None] + 1).all()
    for a, b, c in combinations(range(6), 3):
        assert (d[a, c] <= d[a, b] + d[b, c] + 1e-12).all()
    assert AttentionDistances(3).mean().isnan().all()


# ---- stacks, states, traces -------------------------------------------------------------------


def test_an_encoder_and_a_decoder_do_not_compare_but_for_their_weights() -> None:
    model, batch = zoo.ZOO["t5"].build(), zoo.ZOO["t5"].batch(True)
    found = similarity(model, [batch])
    encoder = [i for i, h in enumerate(found.heads) if h.startswith("encoder")]
    decoder = [i for i, h in enumerate(found.heads) if h.startswith("decoder")]
    cross = [i for i, h in enumerate(found.heads) if h.startswith("cross")]
    assert found["cka"][encoder][:, decoder].isnan().all()
    assert not found["cka"][decoder][:, cross].isnan().any(), "both speak about the decoder's tokens"
    assert found["attention"][decoder][:, cross].isnan().all(), "but look at other keys"
    assert not found["attention"][cross][:, cross].isnan().any()
    assert not found["write"].isnan().any()
    assert "different tokens" in found.undefined["cka"][0]
    assert found.table["most_similar_cka"].isnan().sum() == 0


def test_one_head_has_no_twin() -> None:
    model = nn.TransformerEncoderLayer(12, 1, batch_first=True).eval()
    found = similarity(model, [{"src": torch.randn(2, 5, 12)}])
    assert found.most_similar() == []
    assert found.groups() == []
    assert found.table.row("L0H0")["most_similar"] == ""
    assert math.isnan(found.table.row("L0H0")["most_similar_cka"])
    assert "no other head" in found.table.reasons["most_similar"]["L0H0"]
    assert "none" in found.text()


def test_put_down_and_taken_up_it_is_the_same_to_the_bit() -> None:
    model = zoo.ZOO["bart"].build()
    batches = [zoo.ZOO["bart"].batch(padded) for padded in (False, True, False)]
    weights = find_weights(model, batches[0])
    assert weights.reason == ""
    whole = feed(model, SimilaritySum(weights), *batches)
    assert isinstance(whole, Accumulator)
    first = feed(model, SimilaritySum(weights), *batches[:2])
    rest, looked = SimilaritySum(weights), SimilaritySum(weights)
    rest.load(first.state())
    looked.load(first.state())
    assert_close(looked.result()["cka"], first.result()["cka"], rtol=0, atol=0, equal_nan=True)
    feed(model, rest, *batches, done=2)
    for name, values in whole.result().pairs.items():
        assert torch.equal(values.nan_to_num(-7), rest.result()[name].nan_to_num(-7))
    assert whole.columns().columns["most_similar"] == rest.columns().columns["most_similar"]
    assert whole.columns() == rest.columns()


def test_nothing_is_left_behind() -> None:
    model, batch = zoo.ZOO["deberta-v2"].build().train(), zoo.ZOO["deberta-v2"].batch(True)
    before = traces(model), [m.training for m in model.modules()]
    found = similarity(model, [batch])
    assert (traces(model), [m.training for m in model.modules()]) == before
    assert all(p.grad is None for p in model.parameters())
    assert "without dropout" in found.about["notes"][0]


def test_errors_say_what_there_is() -> None:
    model, batch = Family(), {"x": X}
    with pytest.raises(SizeError, match=r"by must be one of correlation, .*, got 'look'"):
        similarity(model, [batch], by="look")
    with pytest.raises(SizeError, match="unknown layer 'L7'; the model has L0"):
        similarity(model, [batch], layers=["L7"])
    found = similarity(model, [batch])
    with pytest.raises(SizeError, match="unknown head 'L9H0'"):
        found.pair("L9H0", "L0H0")
    with pytest.raises(SizeError, match="unknown measure 'js'"):
        found["js"]


class Squashed(nn.Module):
    """Between the heads and W_O stands something that is not linear: no head writes with a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH).double(), nn.Linear(WIDTH, WIDTH).double()

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return self.proj(torch.tanh(out.transpose(1, 2).flatten(2)))


def test_where_weights_are_not_found_outputs_before_them_are_compared() -> None:
    model = Squashed()
    weights = find_weights(model, {"x": X})
    sums, kept = feed(model, SimilaritySum(weights), {"x": X}), SimilaritySum(weights)
    kept.load(sums.state())
    for found in (sums.result(), kept.result(), similarity(model, [{"x": X}])):
        assert not found["cka"].isnan().any()
        assert not found["attention"].isnan().any()
        for name in ("correlation", "write", "read"):
            assert found[name].isnan().all()
            assert "weights were not found" in found.undefined[name][0]
        assert any("before W_O" in note for note in found.about["notes"])
        assert "weights were not found" in found.table.reasons["most_similar_write"]["L0H0"]


def test_too_little_text_says_how_much_would_do() -> None:
    few = similarity(Family().eval(), [{"x": X}])
    assert few.about["cka_by_chance"] == pytest.approx(3 / (3 + 21))
    assert "too few tokens (21)" in few.about["notes"][0]
    assert "at least 57 tokens" in few.about["notes"][0]
    assert similarity(Family().eval(), [{"x": X}] * 3).about["notes"] == []


def test_some_layers_only() -> None:
    model, batch = zoo.ZOO["bert"].build(), zoo.ZOO["bert"].batch(True)
    some, whole = similarity(model, [batch], layers=["L1"]), similarity(model, [batch])
    assert all(h.startswith("L1") for h in some.heads)
    at = [whole.heads.index(h) for h in some.heads]
    assert_close(some["cka"], whole["cka"][at][:, at])


def test_clusters_of_nothing_and_of_one() -> None:
    assert grouped(torch.zeros(0, 0), within=0.5).order == []
    assert grouped(torch.zeros(1, 1), within=0.5).cluster == [0]
    far = torch.full((3, 3), torch.nan)
    assert grouped(far, within=0.5).members() == []


# ---- a trained model --------------------------------------------------------------------------


def sentences() -> list[str]:
    """English that is on every machine: sentences of the manual inside Python, without its code."""
    from pydoc_data.topics import topics

    prose = " ".join(" ".join(text.split()) for text in topics.values())
    found = {s.strip() for s in re.split(r"(?<=[a-z][.!?]) (?=[A-Z])", prose)}
    return sorted(s for s in found if 30 < len(s) < 160 and re.fullmatch(r"[A-Za-z ,;'()-]+[.!?]", s))


Cost = Callable[[Any], float]
"""How far the outputs on held-out sentences move within a block."""


@pytest.fixture(scope="module")
def minilm() -> tuple[nn.Module, Similarity, Cost]:
    """The model, its similarity on 112 sentences, and the cost of a change on 16 others."""
    from transformers import AutoTokenizer

    model, _, _ = model_and_batch()
    tokenizer = AutoTokenizer.from_pretrained(model.config._name_or_path)
    texts = random.Random(0).sample(sentences(), 128)
    held_out = tokenizer(texts[112:], padding=True, return_tensors="pt")
    found = similarity(model, texts[:112], tokenizer=tokenizer, batch_size=32)
    batch, loss = {name: held_out[name] for name in ("input_ids", "attention_mask")}, OutputDistance()
    with torch.no_grad():
        target = loss.target(batch, batch, model(**batch).last_hidden_state)

    def cost(around: Any) -> float:
        with torch.no_grad(), around:
            return float(loss.documents(model(**batch).last_hidden_state, target).mean())

    return model, found, cost


def test_twins_of_minilm_are_silenced_more_cheaply_than_random_heads(
    minilm: tuple[nn.Module, Similarity, Cost],
) -> None:
    """On held-out sentences; docs/explain/similarity.md has the values, and the part that the layers explain."""
    model, found, cost = minilm
    pairs = [(b, a) for a, b, _ in found.most_similar(6)]  # the earlier one stays
    draw = random.Random(0)
    chance = sum(cost(mh.ablate(model, draw.sample(found.heads, 6))) for _ in range(10)) / 10
    assert cost(mh.ablate(model, [silent for silent, _ in pairs])) < 0.85 * chance


def test_a_head_that_always_says_the_same_is_told_from_a_small_one() -> None:
    """Rounding is measured by the head's own size: fp32 noise around a bias is none, a faint head is a head."""
    drawn = torch.Generator().manual_seed(0)
    z = torch.randn(200, 3, 5, generator=drawn, dtype=torch.float64)
    same = 3.0 + 1e-7 * torch.randn(200, 5, generator=drawn, dtype=torch.float64)
    for largest in (1 << 30, 16 * 20**2 - 16):
        both = OutputSimilarity([5] * 4, [torch.eye(5)] * 4, largest=largest)
        both.add([z[:, 0], same, 1e-8 * z[:, 2], z[:, 0] + 1e3])
        for found in (both.correlation(), both.cka()):
            assert found.isnan().any(1).tolist() == [True] * 4
            assert found[1].isnan().all()
            assert not found[[0, 2, 3]][:, [0, 2, 3]].isnan().any()
