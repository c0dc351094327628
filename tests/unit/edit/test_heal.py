"""Healing: it gets nearer to the teacher, never farther on held-out text, touches only what it may, and repeats."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import multihead as mh
from multihead.edit.fitting.calibration import Calibration
from multihead.edit.fitting.distance import Distance
from multihead.edit.fitting.heal import Heal, Mean, heal, rate
from multihead.edit.fitting.refit import Refit
from multihead.edit.physical.record import record_of
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
    done = heal(
        teacher, student, text(teacher), Heal(steps=12, lr=1e-2, judge_every=6),
        progress=lambda *a: steps.append(a),
    )  # fmt: skip
    assert done.after < 0.7 * done.before
    assert 0 < done.best_step <= done.steps <= 12
    assert steps[-1][0] == "heal"
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
    heal(teacher, student, text(teacher), Heal(steps=2))
    assert not any(p.requires_grad for p in student.parameters())
    assert all(m.training for m in student.modules())


def test_relations_are_learned_where_they_count() -> None:
    teacher = bert()
    known, layers = text(teacher), list(mh.anatomy(teacher))
    left: list[float] = []
    for counts in (0.0, 1.0):
        student = hurt(teacher)
        heal(teacher, student, known, Heal(steps=12, lr=1e-2, judge_every=12, hidden=0.0, relations=counts))
        both = (
            Distance(teacher, student, layers, known.fit(), hidden=0.0, relations=r).over(known.fit())
            for r in (0.0, 1.0)
        )
        cosines, all_of_it = both
        left.append(all_of_it - cosines)
    assert left[1] < left[0]


def test_all_parameters_learn_when_asked() -> None:
    teacher = bert()
    student = hurt(teacher)
    before = state(student)
    done = heal(teacher, student, text(teacher), Heal(steps=3, lr=1e-3, parameters="all"))
    assert done.parameters == sum(p.numel() for p in student.parameters())
    assert not torch.equal(
        student.encoder.layer[0].output.dense.weight, before["encoder.layer.0.output.dense.weight"]
    )


def test_the_same_seed_gives_the_same_bits_and_another_another() -> None:
    teacher = gpt2()
    made = [hurt(teacher) for _ in range(3)]
    for student, seed in zip(made, (7, 7, 8), strict=True):
        torch.manual_seed(seed * 100 + len(made))  # the global state does not matter
        heal(teacher, student, text(teacher), Heal(steps=2, lr=1e-3, seed=seed))
    states = [state(m) for m in made]
    assert all(torch.equal(x, states[1][n]) for n, x in states[0].items())
    assert any(not torch.equal(x, states[2][n]) for n, x in states[0].items())


def test_what_judges_the_healing_was_not_fitted_to() -> None:
    """Fitted to as well, the held-out documents would look best before the first step."""
    teacher = bert()
    words = text(teacher)
    plan = mh.plan(teacher, words, remove=["L0H1", "L1H0"])
    small = mh.cut(teacher, plan, heal=Heal(steps=1))
    unseen, seen = (mh.cut(teacher, plan, refit=Refit(to_all=to_all)) for to_all in (False, True))
    apart = [Distance(teacher, m, mh.anatomy(teacher), words.fit()).over(words.held_out()) for m in (unseen, seen)]
    record = record_of(small)
    assert record is not None
    assert record.plan is not None
    assert record.plan["healed"]["before"] == pytest.approx(apart[0], rel=1e-5)
    assert apart[1] < 0.99 * apart[0]


def test_steps_that_make_it_worse_are_not_kept() -> None:
    teacher = bert()
    student = copy.deepcopy(teacher)
    before = state(student)
    done = heal(teacher, student, text(teacher), Heal(steps=20, lr=0.3, judge_every=2, patience=2))
    assert done.before == pytest.approx(0.0, abs=1e-6)
    assert done.stopped_early
    assert done.steps < 20
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

    monkeypatch.setattr(Distance, "over", judged)
    done = heal(teacher, student, text(teacher), Heal(steps=8, judge_every=2, patience=5))
    assert (done.before, done.after, done.best_step) == (9.0, 1.0, 4)
    assert all(torch.equal(x, seen[2][n]) for n, x in student.state_dict().items())
    assert any(not torch.equal(x, seen[4][n]) for n, x in student.state_dict().items())


def test_what_is_judged_is_the_mean_of_the_steps() -> None:
    """m₁ = 2/11 · 3 + 9/11 · 14, m₂ = a m₁ + (1 − a) 25 with a = min(0.2, 3/12)."""
    weight = nn.Parameter(torch.tensor([3.0], dtype=torch.float64))
    mean = Mean([weight], average=0.2)
    for step, value in ((1, 14.0), (2, 25.0)):
        with torch.no_grad():
            weight.fill_(value)
        mean.take(step)
    first = 2 / 11 * 3 + 9 / 11 * 14
    with mean.instead():
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
        ({"steps": 0}, "steps=0, batches=2"),
        ({"lr": 0.0}, "lr=0.0 and warmup=0.1 are no rates"),
        ({"lr": float("nan")}, "lr=nan"),
        ({"warmup": 1.0}, "warmup=1.0"),
        ({"mix": 1.5}, "mix=1.5 is no share"),
        ({"average": 1.0}, "average=1 is no share"),
        ({"relations": -1.0}, "hidden=1 and relations=-1 are 0 or more"),
        ({"parameters": "some"}, "parameters='some' is not known"),
    ],
)
def test_options_that_make_no_sense(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SizeError) as wrong:
        Heal(**given)
    assert said in str(wrong.value)


def test_half_precision_is_refused() -> None:
    teacher = bert().to(torch.bfloat16)
    with pytest.raises(TypeMismatchError, match=r"is torch\.bfloat16: steps of healing are smaller"):
        heal(teacher, copy.deepcopy(teacher), text(teacher), Heal(steps=1))


def test_a_gradient_that_is_no_number_stops_it() -> None:
    teacher = bert()
    student = copy.deepcopy(teacher)
    with torch.no_grad():
        student.encoder.layer[1].attention.output.dense.bias[3] = float("nan")
    with pytest.raises(MultiheadError, match="the gradient of step 1 is nan"):
        heal(teacher, student, text(teacher), Heal(steps=1))
