"""`Forward` leaves a model as it was, and every measure goes through it: training mode changes no number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

import multihead as mh
from cli.conftest import tokenizer
from multihead.errors import MultiheadError, TypeMismatchError
from multihead.measures import syntax
from multihead.model.call import Call, Compute
from multihead.model.forward import Forward, StopForward
from multihead.show.encode import BlobTable
from multihead.show.text_maps import TextMaps, read_text

MANY = torch.randint(0, 31, (23, 17), generator=torch.Generator().manual_seed(0)).tolist()
IDS = [[5, 9, 2, 6, 5, 3, 5, 8], [9, 7, 9, 3, 2, 3, 8, 4], [6, 2, 6, 4, 3, 3, 8, 3]]


def gpt2(dropout: float = 0.5) -> nn.Module:
    torch.manual_seed(0)
    rates = {"attn_pdrop": dropout, "resid_pdrop": dropout, "embd_pdrop": dropout}
    return GPT2LMHeadModel(
        GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=31, initializer_range=0.4, **rates)
    )


def passed_on(call: Call, compute: Compute) -> Tensor:
    return compute()


class TestForward:
    def test_every_mode_and_every_parameter_is_as_it_was(self) -> None:
        model = gpt2().train()
        part: Any = model.transformer.h[1]  # type: ignore[union-attr,index]
        part.eval()
        part.attn.c_attn.weight.requires_grad = False
        before = [m.training for m in model.modules()], [p.requires_grad for p in model.parameters()]
        forward = Forward(model)
        first, second = (forward({"input_ids": torch.tensor(IDS)}).logits for _ in range(2))
        assert torch.equal(first, second), "no dropout"
        assert not first.requires_grad
        assert ([m.training for m in model.modules()], [p.requires_grad for p in model.parameters()]) == before
        assert forward.notes == ["the model was in training mode; it was measured in eval mode, without dropout"]

    def test_the_model_is_as_it_was_after_an_error_too(self) -> None:
        model = gpt2().train()

        def fails(call: Call, compute: Compute) -> Tensor:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            Forward(model)({"input_ids": torch.tensor(IDS)}, fails)
        assert all(m.training for m in model.modules())
        assert all(p.requires_grad for p in model.parameters())

    def test_labels_and_the_cache_stay_out(self) -> None:
        output = Forward(gpt2())({"input_ids": torch.tensor(IDS), "labels": torch.tensor(IDS)})
        assert output.loss is None
        assert output.past_key_values is None

    def test_a_listener_can_stop_the_run(self) -> None:
        paths: list[str] = []

        def first_only(call: Call, compute: Compute) -> Tensor:
            paths.append(call.path)
            raise StopForward

        assert Forward(gpt2())({"input_ids": torch.tensor(IDS)}, first_only) is None
        assert paths == ["transformer.h.0.attn"]

    def test_no_attention_is_an_error(self) -> None:
        class Plain(nn.Linear):
            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x)

        with pytest.raises(MultiheadError, match="Plain ran 1 time and no attention was seen"):
            Forward(Plain(3, 5))({"x": torch.ones(2, 3)}, passed_on)

    def test_gradients_where_they_are_asked_for(self) -> None:
        model, gate = gpt2(), torch.ones(3, requires_grad=True)

        def gated(call: Call, compute: Compute) -> Tensor:
            return compute() * gate[:, None, None]

        forward = Forward(model, grad=True)
        with torch.no_grad(), forward.listening(gated):
            forward.run({"input_ids": torch.tensor(IDS)}).logits.square().sum().backward()
        assert gate.grad is not None
        assert gate.grad.abs().min() > 0
        assert all(p.grad is None for p in model.parameters())

    def test_parameters_that_learn_get_gradients(self) -> None:
        model, forward = gpt2(), Forward(gpt2(), grad=True)
        part: Any = model.transformer.h[1]  # type: ignore[union-attr,index]
        part.mlp.c_fc.weight.requires_grad = False
        Forward(model, grad=True, learning=True)({"input_ids": torch.tensor(IDS)}).logits.sum().backward()
        assert part.mlp.c_fc.weight.grad is None, "those that were frozen before stay so"
        assert part.attn.c_attn.weight.grad is not None
        assert not forward({"input_ids": torch.tensor(IDS)}).logits.requires_grad, "frozen unless they learn"

    def test_arguments_in_order(self) -> None:
        ids, forward = torch.tensor(IDS), Forward(gpt2())
        named = forward({"input_ids": ids}).logits
        assert torch.equal(forward((ids,)).logits, named)
        with pytest.raises(TypeMismatchError, match="50 unnamed"):
            forward((ids,) * 50)

    def test_a_prepared_call_is_the_run(self) -> None:
        inputs, forward = {"input_ids": torch.tensor(IDS), "labels": torch.tensor(IDS)}, Forward(gpt2())
        with forward.listening():
            call = forward.prepared(inputs)
            assert torch.equal(call().logits, forward.run(inputs).logits)
            assert call().loss is None

    def test_a_model_without_attention_runs_where_none_is_required(self) -> None:
        model = nn.Sequential(nn.Linear(3, 5))
        output = Forward(model)({"input": torch.ones(2, 3)}, passed_on, required=False)
        assert output.shape == (2, 5)


# ---- everything that runs a model goes through it ---------------------------------------------

TREEBANK = [
    "1\tcat\tcat\tNOUN\t_\t_\t2\tnsubj\t_\t_",
    "2\tsaw\tsee\tVERB\t_\t_\t0\troot\t_\t_",
    "3\tdog\tdog\tNOUN\t_\t_\t2\tobj\t_\t_",
    "",
]


def text_of(model: nn.Module) -> Any:
    blobs = BlobTable()
    return read_text(model, IDS[0], TextMaps(blobs)), blobs.texts


def pointing(model: nn.Module) -> str:
    return str(syntax(model, "\n".join(TREEBANK * 5), tokenizer=tokenizer()))


MEASURED: dict[str, Callable[[nn.Module], Any]] = {
    "measure": lambda model: mh.measure(model, IDS)["entropy"].tolist(),
    "kinds": lambda model: mh.kinds(model, MANY).table.to_json(),
    "importance": lambda model: (
        mh.importance(model, IDS, method="all", replace="zero").table["importance"].tolist()
    ),
    "similarity": lambda model: mh.similarity(model, IDS)["cka"].nan_to_num().tolist(),
    "plan": lambda model: mh.plan(model, MANY, keep=0.5).to_json(),
    "check": lambda model: mh.check(model, model, MANY, rounds=0).metrics,
    "theory": lambda model: mh.theory(model, IDS, only=["5"]).to_json(),
    "syntax": pointing,
    "texts": text_of,
}


@pytest.mark.parametrize("name", MEASURED)
def test_a_model_in_training_mode_is_measured_in_eval_mode(name: str) -> None:
    """Dropout of a half would change every number, and a second run would change them again."""
    measured = MEASURED[name]
    training = gpt2().train()
    assert repr(measured(training)) == repr(measured(gpt2().eval()))
    assert all(m.training for m in training.modules())
