"""Losses by hand, gradients against closed forms and finite differences, and what a pass leaves behind: nothing."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import multihead as mh
import zoo
from multihead.corpus.accumulator import Accumulator, Batch
from multihead.corpus.run import BatchRunner
from multihead.errors import MultiheadError, SizeError
from multihead.measures.importance.choose_loss import loss_for
from multihead.measures.importance.gradients import Gradients
from multihead.measures.importance.losses import (
    IGNORED,
    Classification,
    CustomLoss,
    LanguageModel,
    MaskedLanguageModel,
    OutputDistance,
)
from multihead.model.call import Call, Compute
from multihead.model.intercept import intercept
from parity.test_zoo_capture import traces

HEADS, WIDTH, TOKENS, DOCUMENTS = 3, 12, 7, 5

A = TypeVar("A", bound=Accumulator)


def feed(model: nn.Module, accumulator: A, *batches: Any, done: int = 0) -> A:
    """The accumulator, after the batches from number `done` on."""
    runner = BatchRunner(model, [accumulator])
    for index, inputs in enumerate(batches):
        if index >= done:
            runner.run(Batch(inputs, index))
    return accumulator


class Toy(nn.Module):
    """x + attention(x), twice: what each head of the last layer adds to the output can be written down."""

    def __init__(self, layers: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(3)
        made = [mh.MultiHeadAttention(WIDTH, HEADS) for _ in range(layers)]
        self.layers, self.dropout = nn.ModuleList(made).double(), nn.Dropout(dropout)
        for p in self.parameters():
            nn.init.normal_(p, std=0.5)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + self.dropout(layer(x))
        return x


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


X, W = noise(DOCUMENTS, TOKENS, WIDTH), noise(DOCUMENTS, TOKENS, WIDTH, seed=1)


def aligned(output: Tensor, batch: Any) -> Tensor:
    """⟨output, W⟩ of each document: linear in what the last layer writes."""
    return (output * W).sum((1, 2))


def written(model: Toy, x: Tensor) -> Tensor:
    """What each head of the last layer adds: (document, head, token, width)."""
    with mh.capture(model, statistics=None, keep="outputs") as heads:
        model(x)
    layer = mh.anatomy(model, {"x": x})[len(model.layers) - 1]
    parts = [heads[len(model.layers) - 1, h].output() @ layer.W_O[h].T for h in range(HEADS)]
    return torch.stack(parts, dim=1).detach()


class Gated:
    """The model's output with gates of the user's values."""

    def __init__(self, model: nn.Module, values: dict[str, Tensor]) -> None:
        self.model, self.values = model, values

    def __call__(self, **batch: Any) -> Any:
        with mh.gate(self.model, self.values):
            return self.model(**batch)


# ---- gradients --------------------------------------------------------------------------------


def test_the_gradient_of_a_linear_loss_is_what_the_head_adds_to_it() -> None:
    model = Toy()
    gradients = feed(model, Gradients(CustomLoss(aligned)), {"x": X})
    assert isinstance(gradients, Accumulator)
    each = torch.einsum("dhtw,dtw->dh", written(model, X), W)
    table = gradients.columns()
    assert table.heads[HEADS:] == ("L1H0", "L1H1", "L1H2")
    assert_close(table["importance"][HEADS:], each.abs().mean(0))
    assert_close(table["fisher"][HEADS:], each.square().mean(0))
    assert_close(table["gradient"][HEADS:], each.mean(0))
    assert_close(table["importance_error"][HEADS:], each.abs().std(0) / DOCUMENTS**0.5)


def test_documents_of_opposite_sign_do_not_cancel() -> None:
    """Michel et al. take the absolute value of every example: the mean of the gradients would be 0 here."""
    model = Toy(1)
    loss = CustomLoss(lambda out, batch: (out * torch.stack([W[0], -W[0]])).sum((1, 2)))
    table = feed(model, Gradients(loss), {"x": X[:1].repeat(2, 1, 1)}).columns()
    assert (table["importance"] > 0.1).all()
    assert table["gradient"].abs().max() < 1e-12


def test_gradients_are_finite_differences() -> None:
    model, batch = zoo.ZOO["gpt2"].build().double(), zoo.ZOO["gpt2"].batch(True)
    loss = LanguageModel()
    table = feed(model, Gradients(loss), batch).columns()
    step = 1e-5

    def at(label: str, head: int, value: float) -> Tensor:
        gates = {label: torch.ones(model.config.n_head, dtype=torch.float64)}
        gates[label][head] = value
        seen = loss.read(Gated(model, gates)(**batch)).detach()
        return loss.documents(seen, loss.target(batch, batch, seen))

    for name, label, head in (("L0H1", "L0", 1), ("L1H2", "L1", 2)):
        slope = (at(label, head, 1 + step) - at(label, head, 1 - step)) / (2 * step)
        assert_close(table.row(name)["importance"], float(slope.abs().mean()), rtol=1e-6, atol=1e-9)
        assert_close(table.row(name)["gradient"], float(slope.mean()), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("of", ["logits", "hidden", "sentence"])
def test_half_the_gauss_newton_form_is_the_distance_to_second_order(of: Any) -> None:
    """loss(gate = 1 − ε) / ε² → ½ ‖A ∂y/∂g‖², whose mean over random signs is taken."""
    model, loss, head, step = Toy(1), OutputDistance(of), 1, 1e-4
    table = feed(model, Gradients(loss, probes=300), {"x": X}).columns()
    clean = model(X).detach()
    gates = torch.ones(HEADS, dtype=torch.float64)
    gates[head] = 1 - step
    moved = Gated(model, {"L0": gates})(x=X).detach()
    found = loss.documents(moved, loss.target({"x": X}, {"x": X}, clean)).mean() / step**2
    assert_close(table.row("L0H1")["fisher"] / 2, float(found), rtol=0.15, atol=0.0)


def test_a_padded_document_counts_as_it_does_alone() -> None:
    model, batch = zoo.ZOO["llama"].build(), zoo.ZOO["llama"].batch(True)
    kept = batch["attention_mask"].sum(1).tolist()
    rows = [{"input_ids": batch["input_ids"][row : row + 1, : kept[row]]} for row in range(2)]
    together = feed(model, Gradients(LanguageModel()), batch).columns()
    apart = feed(model, Gradients(LanguageModel()), *rows).columns()
    for name in ("importance", "fisher", "gradient"):
        assert_close(together[name], apart[name], rtol=1e-3, atol=1e-5)


def test_packed_rows_have_a_gate_each() -> None:
    from multihead import mask

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.attn = mh.MultiHeadAttention(WIDTH, HEADS).double()

        def forward(self, x: Tensor, lengths: Any) -> Tensor:
            return self.attn(x, mask=mask.ragged(lengths) if lengths is not None else None)

    model, lengths = Packed(), [4, 7]
    whole = noise(2, TOKENS, WIDTH)

    def total(output: Tensor, batch: Any) -> Tensor:
        real = torch.arange(output.shape[1]) < torch.tensor(batch["lengths"] or [TOKENS])[:, None]
        return (output * real[:, :, None]).sum((1, 2))

    packed = feed(model, Gradients(CustomLoss(total)), {"x": whole, "lengths": lengths})
    rows = [{"x": whole[row : row + 1, :length], "lengths": None} for row, length in enumerate(lengths)]
    alone = feed(model, Gradients(CustomLoss(total)), *rows)
    assert_close(packed.columns()["importance"], alone.columns()["importance"])


def test_importance_by_layer_has_length_1() -> None:
    model = Toy()
    plain, scaled = (
        feed(model, Gradients(CustomLoss(aligned), normalise=normalise), {"x": X}).columns()
        for normalise in (False, True)
    )
    for layer in (slice(0, HEADS), slice(HEADS, 2 * HEADS)):
        mine = plain["importance"][layer]
        assert_close(scaled["importance"][layer], mine / mine.norm())
    assert_close(plain["fisher"], scaled["fisher"])


def test_a_head_that_the_loss_does_not_see_is_0_and_says_so() -> None:
    model = Toy(1)
    with torch.no_grad():
        mh.anatomy(model, {"x": X})[0].W_O[2].zero_()
    table = feed(model, Gradients(CustomLoss(aligned)), {"x": X}).columns()
    assert table.row("L0H2")["importance"] == 0
    assert "does not depend on this head" in table.reasons["importance"]["L0H2"]
    blind = Gradients(CustomLoss(lambda out, batch: batch["x"].sum((1, 2))))
    with pytest.raises(MultiheadError, match="does not depend on any head or was detached"):
        feed(model, blind, {"x": X})


def test_nothing_is_left_behind() -> None:
    model, batch = zoo.ZOO["bert"].build(), zoo.ZOO["bert"].batch(True)
    model.train()
    next(model.parameters()).requires_grad_(False)
    marked = list(model.parameters())[1]
    marked.grad = torch.ones_like(marked)
    before = traces(model), [p.requires_grad for p in model.parameters()], [m.training for m in model.modules()]
    feed(model, Gradients(OutputDistance("logits")), batch)
    with pytest.raises(ZeroDivisionError):
        feed(model, Gradients(CustomLoss(lambda out, b: 1 / 0)), batch)
    after = traces(model), [p.requires_grad for p in model.parameters()], [m.training for m in model.modules()]
    assert before == after
    assert torch.equal(marked.grad, torch.ones_like(marked))
    assert all(p.grad is None for p in model.parameters() if p is not marked)


def test_a_model_in_training_mode_is_measured_without_dropout() -> None:
    quiet, loud = Toy(2), Toy(2, dropout=0.5)
    found = [
        feed(model, Gradients(CustomLoss(aligned)), {"x": X}).columns() for model in (quiet.eval(), loud.train())
    ]
    assert_close(found[0]["importance"], found[1]["importance"])
    assert found[0].about["notes"] == []
    assert "without dropout" in found[1].about["notes"][0]


def test_under_no_grad_and_inference_mode_it_still_differentiates() -> None:
    model = Toy()
    plain = feed(model, Gradients(CustomLoss(aligned)), {"x": X}).columns()
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            other = feed(model, Gradients(CustomLoss(aligned)), {"x": X}).columns()
        assert_close(plain["importance"], other["importance"])


def test_put_down_and_taken_up_it_is_the_same_to_the_bit() -> None:
    model = zoo.ZOO["bert"].build()
    batches = [zoo.ZOO["bert"].batch(padded) for padded in (False, True, False)]
    for loss in (OutputDistance("logits"), MaskedLanguageModel(4)):
        whole = feed(model, Gradients(loss), *batches)
        first = feed(model, Gradients(loss), *batches[:1])
        rest = Gradients(loss)
        rest.load(first.state())
        feed(model, rest, *batches, done=1)
        assert rest.columns() == whole.columns()
        for name in whole.columns().columns:
            assert torch.equal(whole.columns()[name], rest.columns()[name])


def test_errors_say_where() -> None:
    model = Toy()
    gradients = feed(model, Gradients(CustomLoss(aligned)), {"x": X})
    with pytest.raises(MultiheadError, match=r"of document 3 in batch 1 is nan"):
        feed(model, gradients, {"x": X}, {"x": X.index_fill(0, torch.tensor(3), torch.nan)}, done=1)
    with pytest.raises(SizeError, match=r"probes must be at least 1, got 0"):
        Gradients(OutputDistance(), probes=0)
    with pytest.raises(SizeError, match=r"for 5 documents, got shape \(5, 7\)"):
        feed(model, Gradients(CustomLoss(lambda out, b: out.sum(2))), {"x": X})
    with pytest.raises(MultiheadError, match=r"no batch has run yet"):
        Gradients(CustomLoss(aligned)).columns()
    sequence_first = nn.TransformerEncoderLayer(WIDTH, HEADS).double().eval()
    with pytest.raises(MultiheadError, match=r"the batch has 5 documents .* attention runs in 7 rows"):
        feed(sequence_first, Gradients(OutputDistance()), {"src": X})


def test_one_document_has_no_standard_error() -> None:
    loss = CustomLoss(lambda out, batch: out.sum((1, 2)))
    table = feed(Toy(), Gradients(loss), {"x": X[:1]}).columns()
    assert table["importance_error"].isnan().all()
    assert "one document" in table.reasons["importance_error"]["L0H0"]


# ---- losses -----------------------------------------------------------------------------------


def test_the_language_model_loss_is_that_of_hugging_face() -> None:
    model, batch = zoo.ZOO["gpt2"].build(), zoo.ZOO["gpt2"].batch(False)
    loss = LanguageModel()
    seen = model(**batch).logits
    ours = loss.documents(seen, loss.target(batch, batch, seen))
    assert_close(ours.mean(), model(**batch, labels=batch["input_ids"]).loss)
    labels = batch["input_ids"].clone()
    labels[0, :4] = labels[1, 2:] = IGNORED
    told = loss.documents(seen, loss.target(batch | {"labels": labels}, batch, seen))
    assert_close(told[0], F.cross_entropy(seen[0, 3:-1], labels[0, 4:]))
    assert_close(told[1], F.cross_entropy(seen[1, :1], labels[1, 1:2]))


def test_the_loss_of_a_decoder_is_of_its_own_sequence() -> None:
    model, batch = zoo.ZOO["t5"].build(), zoo.ZOO["t5"].batch(False)
    labels = batch["decoder_input_ids"]
    given = {"input_ids": batch["input_ids"], "labels": labels}
    loss = loss_for(model, given)
    assert isinstance(loss, LanguageModel)
    inputs = loss.inputs(given, 0)
    assert "labels" in inputs, "T5 makes its decoder's input of them"
    seen = model(**inputs).logits
    assert_close(loss.documents(seen, loss.target(given, inputs, seen)).mean(), model(**given).loss)


def test_masked_tokens_are_drawn_by_batch_and_never_special_or_padding() -> None:
    ids = torch.randint(5, 90, (4, 40), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(40) < torch.tensor([[40], [13], [2], [1]])).long()
    ids[:, 0], ids[3, 0] = 1, 1
    loss = MaskedLanguageModel(99, (1,))
    batch = {"input_ids": ids, "attention_mask": mask}
    first, again, other = loss.inputs(batch, 0), loss.inputs(batch, 0), loss.inputs(batch, 1)
    assert torch.equal(first["input_ids"], again["input_ids"])
    assert not torch.equal(first["input_ids"], other["input_ids"])
    hit = first["input_ids"] == 99
    assert not hit[:, 0].any()
    assert not hit[mask == 0].any()
    assert hit.sum(1).tolist()[2:] == [1, 0], "at least one, where one may be"
    target = loss.target(batch, first, torch.zeros(4, 40, 100))
    assert target.counts.tolist() == [True, True, True, False]
    assert_close(
        loss.documents(torch.zeros(4, 40, 100), target)[:3], torch.full((3,), 100.0).log()
    )  # uniform over 100 words
    assert loss.documents(torch.zeros(4, 40, 100), target)[3].isnan()


def test_classes_of_documents_of_tokens_and_numbers() -> None:
    loss, logits = Classification(), noise(3, 4)
    labels = torch.tensor([1, 0, 3])
    got = loss.documents(logits, loss.target({"labels": labels}, {}, logits))
    assert_close(got, F.cross_entropy(logits, labels, reduction="none"))
    tokens, marks = noise(2, 5, 4), torch.tensor([[0, 1, IGNORED, 2, 3], [IGNORED] * 5])
    got = loss.documents(tokens, loss.target({"labels": marks}, {}, tokens))
    assert_close(got[0], F.cross_entropy(tokens[0], marks[0]))
    assert got[1].isnan()
    numbers = noise(3)
    got = loss.documents(logits[:, :1], loss.target({"labels": numbers}, {}, logits))
    assert_close(got, (logits[:, 0] - numbers).square())
    with pytest.raises(MultiheadError, match="must have labels, got input_ids"):
        loss.target({"input_ids": labels}, {}, logits)


def test_the_distance_to_itself_is_0_and_padding_does_not_count() -> None:
    y = noise(2, 5, 4)
    batch = {"attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])}
    z = y + noise(2, 5, 4, seed=5) * (torch.arange(5) < torch.tensor([[5], [2]]))[:, :, None]
    for of in ("logits", "hidden", "sentence"):
        loss = OutputDistance(of)
        target = loss.target(batch, batch, y)
        assert_close(loss.documents(y, target), torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-12)
        other = z.clone()
        other[1, 2:] = 1e6
        assert_close(loss.documents(other, target), loss.documents(z, target))
        alone = loss.target({}, {}, y[1:, :2])
        assert_close(loss.documents(z, target)[1:], loss.documents(z[1:, :2], alone))
    zeros = OutputDistance().target({}, {}, torch.zeros(1, 2, 3))
    assert OutputDistance().documents(torch.ones(1, 2, 3), zeros).tolist() == [6.0], (
        "an absolute distance from nothing"
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [("gpt2", LanguageModel), ("llama", LanguageModel), ("t5", LanguageModel), ("vit", OutputDistance),
     ("torch-encoder", OutputDistance), ("clip", OutputDistance)],
)  # fmt: skip
def test_the_loss_that_fits(name: str, kind: type) -> None:
    model = zoo.ZOO[name].build()
    for padded in (False, True) if zoo.ZOO[name].padding else (False,):
        assert type(loss_for(model, zoo.ZOO[name].batch(padded))) is kind


def test_a_model_that_looks_both_ways_needs_a_mask_token() -> None:
    class Tokenizer:
        mask_token_id, all_special_ids = 4, [0, 1, 4]

    model, batch = zoo.ZOO["bert"].build(), zoo.ZOO["bert"].batch(True)
    if not hasattr(model(**batch), "logits"):
        pytest.fail("the zoo's BERT has no head any more: take another")
    own = loss_for(model, batch)
    assert isinstance(own, OutputDistance)
    assert own.of == "logits"
    assert isinstance(loss_for(model, batch, Tokenizer()), MaskedLanguageModel)


def test_gates_see_what_listeners_inside_do() -> None:
    """Blocks nest: a gate on what another listener gives."""
    model = Toy(1)

    def halve(call: Call, run: Compute) -> Tensor:
        return run() / 2

    plain = feed(model, Gradients(CustomLoss(aligned)), {"x": X}).columns()
    with intercept(model, halve):
        inside = feed(model, Gradients(CustomLoss(aligned)), {"x": X}).columns()
    assert_close(inside["importance"], plain["importance"] / 2)


def test_padding_on_the_left_predicts_nothing() -> None:
    ids = torch.tensor([[0, 0, 3, 1, 4]])
    mask = (torch.arange(5) >= 2).long()[None]
    target = LanguageModel().target({"input_ids": ids, "attention_mask": mask}, {}, torch.zeros(1, 5, 7))
    assert target.what.tolist() == [[IGNORED, IGNORED, 1, 4, IGNORED]]


def test_labels_of_tokens_that_were_masked_before_are_used() -> None:
    masked, batch = zoo.ZOO["bert"].build(), zoo.ZOO["bert"].batch(False)
    labels = batch["input_ids"].clone()
    labels[:, 1:] = IGNORED
    loss = loss_for(masked, {**batch, "labels": labels})
    assert isinstance(loss, Classification)
    seen = masked(**batch).logits
    target = loss.target({**batch, "labels": labels}, batch, seen)
    assert_close(loss.documents(seen, target), F.cross_entropy(seen[:, 0], labels[:, 0], reduction="none"))
