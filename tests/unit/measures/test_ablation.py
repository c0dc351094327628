"""Taking out heads one by one: against mh.ablate, from a recorded run, and what a pass leaves behind: nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import multihead as mh
import zoo
from golden.make_minilm_statistics import SENTENCES, model_and_batch
from multihead.corpus.accumulator import Accumulator
from multihead.corpus.state import load_state, save_state
from multihead.errors import MultiheadError, SizeError
from multihead.measures.importance.ablation import Ablation, MeanOutputs
from multihead.measures.importance.gradients import Gradients
from multihead.measures.importance.importance import agreement, importance
from multihead.measures.importance.losses import CustomLoss, LanguageModel, Loss, OutputDistance
from multihead.measures.similarity.ov_circuits import find_weights
from multihead.measures.similarity.similarity import SimilaritySum
from multihead.model.forward import Forward
from multihead.model.rerun_strategies import Reruns
from multihead.table.column_info import ColumnInfo
from multihead.table.table import HeadTable
from parity.test_zoo_capture import output, traces
from unit.measures.test_importance import DOCUMENTS, HEADS, WIDTH, Toy, W, X, aligned, feed, noise, written

FAMILIES = (
    "bert", "albert", "gpt2", "llama", "gpt-oss", "t5", "bart", "vit", "bloom", "torch-encoder",
    "torch-transformer", "timm", "nanogpt", "multihead",
)  # fmt: skip


def by_hand(model: nn.Module, batch: dict[str, Any], loss: Loss, heads: tuple[str, ...], **how: Any) -> Tensor:
    """The change of the loss, one mh.ablate at a time: (head, document)."""
    with torch.no_grad():
        seen = loss.read(model(**batch))
        target = loss.target(batch, batch, seen)
        before, found = loss.documents(seen, target), []
        for name in heads:
            with mh.ablate(model, [name], **how):
                found.append(loss.documents(loss.read(model(**batch)), target) - before)
    return torch.stack(found).double()


# ---- numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_ablation_is_silencing_one_by_one(name: str) -> None:
    model, entry = zoo.ZOO[name].build(), zoo.ZOO[name]
    batch = entry.batch(entry.padding)
    loss = OutputDistance("logits" if hasattr(model(**batch), "logits") else "hidden")
    ablation = feed(model, Ablation(loss), batch)
    assert isinstance(ablation, Accumulator)
    table = ablation.columns()
    expected = by_hand(model, batch, loss, table.heads)
    assert ablation.strategy == "side by side", ablation.notes
    assert_close(table["ablation_zero"], expected.mean(1), rtol=1e-3, atol=1e-6)
    spread = expected.std(1) / math.sqrt(2)
    assert_close(table["ablation_zero_error"], spread, rtol=1e-2, atol=1e-6)
    assert ablation.notes == []


@pytest.mark.parametrize("tokens", [1, 40, 44, 10**6])
def test_how_many_run_side_by_side_changes_nothing(tokens: int) -> None:
    """The batch has 22 tokens: from 44 on, two heads run together."""
    model, batch = zoo.ZOO["gpt2"].build(), zoo.ZOO["gpt2"].batch(True)
    assert batch["input_ids"].numel() == 22
    ablation = feed(model, Ablation(LanguageModel(), reruns=Reruns(packed=tokens * model.config.n_embd)), batch)
    assert ablation.strategy == ("one by one" if tokens < 44 else "side by side")
    expected = by_hand(model, batch, LanguageModel(), ablation.columns().heads)
    assert_close(ablation.columns()["ablation_zero"], expected.mean(1), rtol=1e-3, atol=1e-5)


def test_a_mean_is_over_the_real_tokens_of_the_corpus() -> None:
    model = zoo.ZOO["llama"].build()
    batches = [zoo.ZOO["llama"].batch(padded) for padded in (False, True)]
    means = feed(model, MeanOutputs(), *batches)
    ablation = feed(model, Ablation(LanguageModel(), ("zero", "mean"), means=means), *batches)
    with torch.no_grad(), mh.capture(model) as seen:
        for batch in batches:
            model(**batch)
    table = ablation.columns()
    for how, extra in (("zero", {}), ("mean", {"replace": "mean", "means": seen})):
        expected = torch.cat([by_hand(model, b, LanguageModel(), table.heads, **extra) for b in batches], dim=1)
        assert_close(table[f"ablation_{how}"], expected.mean(1), rtol=1e-3, atol=1e-5)
    assert ablation.documents == table.about["documents"] == 4


def test_in_a_linear_model_the_loss_changes_by_what_the_head_added() -> None:
    model = Toy(1)
    losses = CustomLoss(aligned), OutputDistance()
    linear, own = (feed(model, Ablation(loss), {"x": X}).columns() for loss in losses)
    parts, out = written(model, X), model(X).detach()
    assert_close(linear["ablation_zero"], -torch.einsum("dhtw,dtw->dh", parts, W).mean(0))
    size = out.square().sum((1, 2))
    assert_close(own["ablation_zero"], (parts.square().sum((2, 3)) / size[:, None]).mean(0))
    assert own.about["loss_intact"] == 0


def test_gauss_newton_predicts_small_ablations() -> None:
    """With heads that write little, ½ fisher is the ablation; many probes leave a few per cent."""
    model = Toy(2)
    with torch.no_grad():
        for layer in mh.anatomy(model, {"x": X}):
            for w in layer.W_O:
                w.mul_(1e-3)
    found = importance(model, [{"x": X}], loss=OutputDistance(), method="all", replace="zero", probes=300)
    assert_close(found.table["fisher"] / 2, found.table["ablation_zero"], rtol=0.15, atol=0.0)


# ---- from the middle of a recorded run --------------------------------------------------------


class Counting(nn.Module):
    """Blocks that count how many documents run through them."""

    def __init__(self, layers: int = 5) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(CountingBlock() for _ in range(layers)).double()

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class CountingBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn, self.ff = mh.MultiHeadAttention(WIDTH, HEADS), nn.Linear(WIDTH, WIDTH)
        self.ran = 0

    def forward(self, x: Tensor) -> Tensor:
        self.ran += len(x)
        x = x + self.attn(x)
        x += torch.tanh(self.ff(x))  # in place, as many models do: what is recorded must not change with it
        return x


def test_blocks_before_a_head_do_not_run_again() -> None:
    model = Counting()
    ablation = feed(model, Ablation(OutputDistance(), reruns=Reruns(packed=1)), {"x": X})
    assert ablation.strategy == "one by one"
    ran = [block.ran // DOCUMENTS for block in model.blocks]
    # A clean run, once more outside the interception, a proof of each start, and then HEADS runs for every start
    # at or before the block.
    assert ran == [2 + (1 + HEADS) * (i + 1) for i in range(5)]
    expected = by_hand(model, {"x": X}, OutputDistance(), ablation.columns().heads)
    assert_close(ablation.columns()["ablation_zero"], expected.mean(1))


def test_in_its_own_block_the_projections_do_not_run_again() -> None:
    model = Toy(2)
    forward, own = Forward(model), model.layers[1]
    with forward.recording():  # of all modules; the next one knows where the attentions are
        forward.run({"x": X})
    with torch.no_grad(), forward.recording() as recording:
        whole = forward.run({"x": X})
        for name in ("q_proj", "k_proj", "v_proj"):  # whoever ran them now would see NaN
            getattr(own, name).weight.fill_(torch.nan)
        again = forward.rerun({recording.sites[1].key: lambda heads: heads})
    assert torch.equal(again, whole)


class Forgetful(nn.Module):
    """The first block leaves a note that the last one reads: handing out its output is not enough."""

    def __init__(self) -> None:
        super().__init__()
        self.toy = Toy(2)
        self.first, self.count = Noting(self), 0.0

    def forward(self, x: Tensor) -> Tensor:
        self.count = 0.0
        x = self.toy.layers[0](self.first(x)) + x
        return (self.toy.layers[1](x) + x) * self.count


class Noting(nn.Module):
    def __init__(self, owner: Forgetful) -> None:
        super().__init__()
        self.owner = [owner]  # not a child

    def forward(self, x: Tensor) -> Tensor:
        self.owner[0].count += 2.0
        return x


def test_where_outputs_cannot_be_handed_out_again_whole_runs_are_made() -> None:
    model = Forgetful().eval()
    ablation = feed(model, Ablation(OutputDistance()), {"x": X}, {"x": X})
    assert ablation.strategy == "whole"
    cannot = ("heads cannot run side by side", "heads cannot run one by one")
    assert [[words in note for words in cannot] for note in ablation.notes] == [[True, False], [False, True]]
    table = ablation.columns()
    expected = by_hand(model, {"x": X}, OutputDistance(), table.heads)
    assert_close(table["ablation_zero"], expected.mean(1))
    assert table.about["ablation_runs"] == "whole"


def test_a_resumed_run_says_no_more_than_a_whole_one() -> None:
    model = Forgetful().eval()
    batches = [{"x": X}, {"x": X}]
    whole, rest = feed(model, Ablation(OutputDistance()), *batches), Ablation(OutputDistance())
    rest.load(feed(model, Ablation(OutputDistance()), *batches[:1]).state())
    feed(model, rest, *batches, done=1)
    assert rest.notes == whole.notes
    assert rest.columns() == whole.columns()


def test_what_is_proven_again_after_a_break_changes_no_bit() -> None:
    """Heads run side by side along the batch axis, and how long that is may change the last bits of a product."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 10, "vocab_size": 101, "n_positions": 64}
    model = GPT2LMHeadModel(GPT2Config(**sizes, initializer_range=0.2)).eval()
    for tokens in (3, 5, 19):
        batches = [{"input_ids": torch.randint(0, 101, (5, tokens))} for _ in range(2)]
        whole, rest = feed(model, Ablation(LanguageModel()), *batches), Ablation(LanguageModel())
        rest.load(feed(model, Ablation(LanguageModel()), *batches[:1]).state())
        feed(model, rest, *batches, done=1)
        assert rest.columns() == whole.columns(), tokens


def test_documents_that_meet_in_the_output_do_not_run_side_by_side() -> None:
    """CLIP's logits are texts × images: copies of the batch would see each other."""
    model, batch = zoo.ZOO["clip"].build(), zoo.ZOO["clip"].batch(False)
    loss = CustomLoss(lambda out, batch: out.logits_per_image.square().mean(1))
    ablation = feed(model, Ablation(loss), batch)
    assert ablation.strategy == "one by one"
    loss.inputs(batch, 0)
    expected = by_hand(model, batch, loss, ablation.columns().heads)
    assert_close(ablation.columns()["ablation_zero"], expected.mean(1), rtol=1e-3, atol=1e-4)


def test_nothing_is_left_behind() -> None:
    model, batch = zoo.ZOO["bloom"].build(), zoo.ZOO["bloom"].batch(True)
    model.train()
    before, expected = traces(model), output(model.eval()(**batch))
    model.train()
    feed(model, Ablation(OutputDistance("logits")), batch)

    def break_down(*_: object) -> None:
        raise RuntimeError("in the middle")

    handle = list(model.modules())[-1].register_forward_hook(break_down)
    with pytest.raises(RuntimeError, match="in the middle"):
        feed(model, Ablation(OutputDistance("logits")), batch)
    handle.remove()
    assert traces(model) == before
    assert all(m.training for m in model.modules())
    assert torch.equal(output(model.eval()(**batch)), expected)


def test_put_down_and_taken_up_it_is_the_same_to_the_bit() -> None:
    model = zoo.ZOO["t5"].build()
    batches = [zoo.ZOO["t5"].batch(padded) for padded in (False, True, False)]
    means, kept = feed(model, MeanOutputs(), *batches), MeanOutputs()
    kept.load(feed(model, MeanOutputs(), *batches[:2]).state())
    feed(model, kept, *batches, done=2)
    make = lambda m: Ablation(LanguageModel(two=True), ("zero", "mean"), means=m)
    whole, rest = feed(model, make(means), *batches), make(kept)
    rest.load(feed(model, make(means), *batches[:1]).state())
    feed(model, rest, *batches, done=1)
    for name in whole.columns().columns:
        assert torch.equal(whole.columns()[name], rest.columns()[name])
    assert whole.columns().about == rest.columns().about


@pytest.mark.parametrize("kind", ["gradients", "ablation", "similarity"])
def test_a_state_goes_through_a_file(kind: str, tmp_path: Path) -> None:
    model = zoo.ZOO["t5"].build()
    batches = [zoo.ZOO["t5"].batch(padded) for padded in (False, True)]
    loss = LanguageModel(two=True)
    make: dict[str, Callable[[], Any]] = {
        "gradients": lambda: Gradients(loss),
        "ablation": lambda: Ablation(loss),
        "similarity": lambda: SimilaritySum(find_weights(model, batches[0])),
    }
    whole, first, rest = (make[kind]() for _ in range(3))
    feed(model, whole, *batches)
    save_state(tmp_path / kind, feed(model, first, *batches[:1]).state())
    rest.load(load_state(tmp_path / kind))
    feed(model, rest, *batches, done=1)
    assert rest.columns() == whole.columns()


def test_errors_say_where() -> None:
    model = Toy()
    ablation = feed(model, Ablation(CustomLoss(aligned)), {"x": X})
    with pytest.raises(MultiheadError, match=r"the loss \(given: aligned\) of document 3 in batch 1 is nan"):
        feed(model, ablation, {"x": X}, {"x": X.index_fill(0, torch.tensor(3), torch.nan)}, done=1)
    with pytest.raises(SizeError, match=r"got 'uniform'"):
        Ablation(OutputDistance(), "uniform")  # type: ignore[arg-type]
    with pytest.raises(MultiheadError, match=r'replace="mean" needs the mean outputs'):
        Ablation(OutputDistance(), "mean")
    with pytest.raises(MultiheadError, match=r"the state is of replace=\('zero',\), this is replace=\('mean',\)"):
        Ablation(OutputDistance(), "mean", means=MeanOutputs()).load(ablation.state())
    with pytest.raises(MultiheadError, match=r"no attention was seen"):
        feed(nn.Linear(WIDTH, 2).double(), Ablation(OutputDistance()), {"input": X})


@pytest.mark.parametrize("method", ["gradient", "ablation", "all"])
def test_a_batch_axis_that_is_not_in_front_is_refused(method: str) -> None:
    """Else 7 tokens of 2 documents would be reported as 7 documents."""
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, HEADS), 2, enable_nested_tensor=False).eval()
    for tokens, documents in ((7, 2), (2, 4), (7, 1)):
        with pytest.raises(
            MultiheadError, match=rf"has {tokens} documents .* attention runs in {documents} rows?:"
        ):
            importance(model, [{"src": torch.randn(tokens, documents, WIDTH)}], method=method, replace="zero")


# ---- worth ------------------------------------------------------------------------------------


def test_worth_joins_ranks_and_compares() -> None:
    model = zoo.ZOO["gpt2"].build()
    told: list[tuple[str, float, float]] = []
    data = [[5, 6, 7, 8, 9], [11, 12, 13], [5, 9, 8, 20, 21, 22]]
    found = importance(model, data, method="all", batch_size=2, progress=lambda *said: told.append(said))
    table = found.table
    assert [c for c in table.columns if not c.endswith("_error")] == [
        "importance", "fisher", "gradient", "ablation_zero", "ablation_mean", "rank"
    ]  # fmt: skip
    order = table["ablation_zero"].argsort(descending=True)
    assert table["rank"][order].tolist() == [float(i + 1) for i in range(len(table))]
    assert told[:2] == [("gradients", 1, 2), ("gradients", 2, 2)]
    assert {(name, total) for name, _, total in told[2:]} == {("ablation", 2)}
    counts = [count for _, count, _ in told[2:]]
    assert counts == sorted(counts)
    assert (counts[0] < 1, counts[-1]) == (True, 2), "a batch takes long, so its share is told"
    assert found.loss.startswith("language model")
    assert (found.agreement[0].first, found.agreement[0].second) == ("importance", "ablation_zero")
    assert all(-1 <= a.all <= 1 and set(a.layers) == {"L0", "L1"} for a in found.agreement)
    assert "3 documents" in found.text()
    gradient = importance(model, data)
    assert gradient.agreement == ()
    assert gradient.table["rank"][int(gradient.table["importance"].argmax())] == 1


def test_agreement_is_spearmans() -> None:
    heads = tuple(f"L{layer}H{head}" for layer in range(2) for head in range(3))
    meaning = {"a": ColumnInfo("", ""), "b": ColumnInfo("", "")}
    first = HeadTable(heads, {"a": torch.tensor([1.0, 2, 3, 30, 20, 10])}, meaning)
    second = HeadTable(heads, {"b": torch.tensor([1.0, 4, 9, 11, 12, 13])}, meaning)
    found = agreement(first, "a", second, "b")
    assert found.layers == {"L0": pytest.approx(1.0), "L1": pytest.approx(-1.0)}
    assert found.inside == pytest.approx(0.0)
    assert found.all == pytest.approx(1 - 6 * 8 / (6 * 35))
    constant = HeadTable(heads, {"a": torch.ones(6)}, meaning)
    assert math.isnan(agreement(constant, "a", second, "b").all)
    with pytest.raises(SizeError, match="same heads, got 6 and 1"):
        agreement(first, "a", HeadTable(("L0H0",), {"b": torch.ones(1)}, meaning), "b")


def test_one_head_and_outputs_that_are_constant() -> None:
    one = nn.TransformerEncoderLayer(WIDTH, 1, batch_first=True).double().eval()
    found = importance(one, [{"src": X}], method="all")
    assert found.table["rank"].tolist() == [1.0]
    assert math.isnan(found.agreement[0].all)
    constant = Toy(1)
    blind = importance(constant, [{"x": X}], method="all", loss=lambda out, batch: 0 * out.sum((1, 2)) + 7.0)
    assert blind.table["ablation_zero"].eq(0).all()
    assert blind.table["importance"].eq(0).all()
    assert "does not depend" in blind.table.reasons["ablation_zero"]["L0H2"]
    assert blind.table.about["loss_intact"] == 7.0


def test_what_is_asked_must_be_known() -> None:
    with pytest.raises(SizeError, match="got 'attention'"):
        importance(Toy(), [{"x": X}], method="attention")
    with pytest.raises(TypeError, match=r"loss must be .*, got 'mse'"):
        importance(Toy(), [{"x": X}], loss="mse")  # type: ignore[arg-type]


def test_a_mean_pooled_vector_is_a_loss_too() -> None:
    found = importance(
        Toy(), [{"x": X}, {"x": noise(2, 4, WIDTH, seed=9)}], loss=OutputDistance("sentence"), method="all"
    )
    assert (found.table["ablation_zero"] > 0).all()
    assert found.table.about["documents"] == DOCUMENTS + 2


def test_documents_without_anything_to_predict() -> None:
    model = zoo.ZOO["gpt2"].build()
    mixed = importance(model, [[5, 6, 7], [8]], loss=LanguageModel(), method="all")
    alone = importance(model, [[5, 6, 7]], loss=LanguageModel(), method="all", replace="zero")
    for name in ("importance", "ablation_zero"):
        assert_close(mixed.table[name], alone.table[name], rtol=1e-3, atol=1e-5)
    assert mixed.table.about["documents"] == 1
    nothing = importance(model, [[8], [9]], loss=LanguageModel(), method="all")
    for name in ("importance", "ablation_zero", "ablation_mean"):
        assert nothing.table[name].isnan().all()
        assert "no document has a token" in nothing.table.reasons[name]["L0H0"]


def test_labels_go_to_the_loss_and_not_to_a_model_that_does_not_take_them() -> None:
    seen: list[Tensor] = []

    def loss(output: Tensor, batch: Any) -> Tensor:
        seen.append(batch["labels"])
        return output.sum((1, 2)) * batch["labels"]

    importance(Toy(), [{"x": X, "labels": torch.arange(DOCUMENTS)}], loss=loss, method="all")
    assert all(torch.equal(s, torch.arange(DOCUMENTS)) for s in seen)


# ---- a trained model --------------------------------------------------------------------------


def test_on_minilm_one_backward_pass_ranks_heads_as_ablation_does() -> None:
    """Measured on 96 other sentences: ρ = 0.98. No number of the attention map comes near."""
    from transformers import AutoTokenizer

    model, _, _ = model_and_batch()
    tokenizer = AutoTokenizer.from_pretrained(model.config._name_or_path)
    found = importance(model, SENTENCES, tokenizer=tokenizer, method="all", replace="zero", batch_size=12)
    assert found.loss.startswith("own outputs: squared distance")
    both = found.agreement[0]
    assert both.all > 0.9
    assert both.inside > 0.8
    maps = mh.measure(model, SENTENCES, tokenizer=tokenizer)
    looks = [name for name in maps.columns if name not in ("output_norm", "value_norm", "visible")]
    rho = torch.tensor([agreement(maps, name, found.table, "ablation_zero").all for name in looks])
    assert rho.nan_to_num().abs().max() < both.all - 0.25


class Restless(Toy):
    """Says something else each time it is called."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) + self.calls


def test_a_model_that_is_another_each_time_is_refused() -> None:
    with pytest.raises(MultiheadError, match="a different output in every run"):
        feed(Restless(), Ablation(OutputDistance()), {"x": X})
