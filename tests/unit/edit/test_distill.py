"""Distillation: closer to the teacher, never farther on held-out text, only some parameters, repeatable."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import multihead as mh
from multihead.edit.calibration import Calibration
from multihead.edit.distill import EMA, Distill, distill, rate
from multihead.edit.distill_loss import DistillLoss
from multihead.edit.surgery.record import record_of
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from unit.edit.teachers import bert, gpt2, hurt


def text(model: nn.Module) -> Calibration:
    drawn = torch.Generator().manual_seed(1)
    rows = [torch.randint(1, 53, (5 + i % 7,), generator=drawn).tolist() for i in range(24)]
    return Calibration(model, rows, batch_size=8)


def state(model: nn.Module) -> dict[str, Tensor]:
    return {n: x.clone() for n, x in model.state_dict().items()}


@pytest.mark.parametrize("make", [bert, gpt2])
def test_it_gets_nearer_and_touches_attention_only(make: Callable[[], nn.Module]) -> None:
    teacher = make()
    student, original = hurt(teacher), state(teacher)
    before = state(student)
    steps: list[tuple[str, int, int]] = []
    done = distill(teacher, student, text(teacher), Distill(steps=12, lr=1e-2), progress=lambda *a: steps.append(a))
    assert done.after < 0.7 * done.before
    assert 0 < done.best_step <= done.steps <= 12
    assert steps[-1][0] == "distill"
    assert steps[-1][2] == 12
    changed = {n for n, x in student.state_dict().items() if not torch.equal(x, before[n])}
    assert changed
    assert all("attention.self." in n or "attention.output.dense." in n or ".attn." in n for n in changed)
    assert all(torch.equal(x, original[n]) for n, x in teacher.state_dict().items())
    assert all(p.requires_grad and p.grad is None for m in (teacher, student) for p in m.parameters())


def test_what_may_learn_is_as_it_was_afterwards() -> None:
    teacher = bert()
    student = hurt(teacher)
    student.requires_grad_(False)
    student.train()
    distill(teacher, student, text(teacher), Distill(steps=2))
    assert not any(p.requires_grad for p in student.parameters())
    assert all(m.training for m in student.modules())


def test_all_parameters_learn_when_asked() -> None:
    teacher = bert()
    student = hurt(teacher)
    before = state(student)
    done = distill(teacher, student, text(teacher), Distill(steps=3, lr=1e-3, parameters="all"))
    assert done.parameters == sum(p.numel() for p in student.parameters())
    assert not torch.equal(
        student.encoder.layer[0].output.dense.weight, before["encoder.layer.0.output.dense.weight"]
    )


def test_the_same_seed_gives_the_same_bits_and_another_another() -> None:
    teacher = gpt2()
    made = [hurt(teacher) for _ in range(3)]
    for student, seed in zip(made, (7, 7, 8), strict=True):
        torch.manual_seed(seed * 100 + len(made))  # the global state does not matter
        distill(teacher, student, text(teacher), Distill(steps=2, lr=1e-3), seed=seed)
    states = [state(m) for m in made]
    assert all(torch.equal(x, states[1][n]) for n, x in states[0].items())
    assert any(not torch.equal(x, states[2][n]) for n, x in states[0].items())


def test_held_out_documents_that_judge_the_distillation_are_not_fitted_to() -> None:
    """Fitted to as well, the held-out documents would look best before the first step."""
    teacher = bert()
    words = text(teacher)
    plan = mh.plan(teacher, words, remove=["L0H1", "L1H0"])
    small, fitted_to_all = mh.cut(teacher, plan, distill=Distill(steps=1)), mh.cut(teacher, plan)
    apart = DistillLoss(teacher, fitted_to_all, mh.anatomy(teacher), next(words.fit())).over(words.held_out())
    record = record_of(small)
    assert record is not None
    assert record.plan is not None
    assert apart < 0.99 * record.plan["distilled"]["before"]


def test_steps_that_make_it_worse_are_not_kept() -> None:
    teacher = bert()
    student = copy.deepcopy(teacher)
    before = state(student)
    done = distill(teacher, student, text(teacher), Distill(steps=40, lr=0.3))
    assert done.before == pytest.approx(0.0, abs=1e-6)
    assert done.stopped_early
    assert done.steps == 20  # four judgements, every 5 steps
    assert all(torch.equal(x, before[n]) for n, x in student.state_dict().items()) == (done.best_step == 0)
    assert done.after <= done.before


def test_the_best_state_is_kept_and_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    teacher = bert()
    student = hurt(teacher)
    losses = iter([9.0, 3.0, 1.0, 5.0, 6.0])
    seen: list[dict[str, Tensor]] = []

    def judged(self: Any, batches: Any) -> float:
        seen.append(state(student))
        return next(losses)

    monkeypatch.setattr(DistillLoss, "over", judged)
    done = distill(teacher, student, text(teacher), Distill(steps=20))
    assert (done.before, done.after, done.best_step) == (9.0, 1.0, 10)
    assert all(torch.equal(x, seen[2][n]) for n, x in student.state_dict().items())
    assert any(not torch.equal(x, seen[4][n]) for n, x in student.state_dict().items())


def test_what_is_judged_is_the_mean_of_the_steps() -> None:
    """m₁ = 2/11 · 3 + 9/11 · 14, m₂ = a m₁ + (1 − a) 25 with a = min(0.2, 3/12)."""
    weight = nn.Parameter(torch.tensor([3.0], dtype=torch.float64))
    mean = EMA([weight], average=0.2)
    for step, value in ((1, 14.0), (2, 25.0)):
        with torch.no_grad():
            weight.fill_(value)
        mean.update(step)
    first = 2 / 11 * 3 + 9 / 11 * 14
    with mean.swapped_in():
        torch.testing.assert_close(weight.detach(), torch.tensor([0.2 * first + 0.8 * 25], dtype=torch.float64))
    assert weight.item() == 25


def test_the_rate_rises_and_falls() -> None:
    rates = [rate(step, 20, 0.25) for step in range(1, 21)]
    assert rates[:5] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert all(a > b > 0 for a, b in pairwise(rates[4:]))
    assert rate(1, 1, 0.1) == 1.0


@pytest.mark.parametrize(
    "given, said",
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"steps": 1.5}, "steps must be an integer, got 1.5"),
        ({"steps": True}, "steps must be an integer, got True"),
        ({"lr": 0.0}, "lr must be above 0, got 0.0"),
        ({"lr": float("nan")}, "lr must be finite, got nan"),
        ({"lr": 10**400}, "lr must be finite, got 1"),
        ({"lr": "fast"}, "lr must be a number, got 'fast'"),
        ({"parameters": "some"}, "got 'some'"),
    ],
)
def test_wrong_options(given: dict[str, Any], said: str) -> None:
    with pytest.raises((SizeError, TypeMismatchError)) as wrong:
        Distill(**given)
    assert said in str(wrong.value)


def test_half_precision_is_refused() -> None:
    teacher = bert().to(torch.bfloat16)
    with pytest.raises(TypeMismatchError, match=r"is torch\.bfloat16"):
        distill(teacher, copy.deepcopy(teacher), text(teacher), Distill(steps=1))


def test_a_gradient_that_is_not_finite_stops_it() -> None:
    teacher = bert()
    student = copy.deepcopy(teacher)
    with torch.no_grad():
        student.encoder.layer[1].attention.output.dense.bias[3] = float("nan")
    with pytest.raises(MultiheadError, match="the gradient of step 1 has the norm nan"):
        distill(teacher, student, text(teacher), Distill(steps=1))
