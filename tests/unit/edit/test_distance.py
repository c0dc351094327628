"""The distance of two models: each part by hand, relations only where vectors come out, padding nowhere."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import multihead as mh
from multihead.corpus.accumulator import Batch
from multihead.edit.fitting import distance
from multihead.edit.fitting.distance import Distance, blocks_of
from unit.edit.teachers import bert, gpt2, hurt


def batch(seed: int, *lengths: int) -> Batch:
    drawn = torch.Generator().manual_seed(seed)
    mask = torch.tensor([[1] * n + [0] * (max(lengths) - n) for n in lengths])
    return {
        "input_ids": torch.randint(1, 53, mask.shape, generator=drawn).masked_fill(mask == 0, 0),
        "attention_mask": mask,
    }


def documents(model: nn.Module, given: Batch) -> list[list[torch.Tensor]]:
    """The states behind every block of each document alone, without padding."""
    found: list[list[torch.Tensor]] = []
    with torch.no_grad():
        for ids, mask in zip(given["input_ids"], given["attention_mask"], strict=True):
            found.append(
                [h[0] for h in model(input_ids=ids[mask.bool()][None], output_hidden_states=True).hidden_states]
            )
    return found


def test_states_and_pooled_vectors_by_hand() -> None:
    teacher = bert()
    student, given = hurt(teacher), batch(1, 5, 2)
    with torch.no_grad():
        got = float(Distance(teacher, student, mh.anatomy(teacher), [given], hidden=2.0)(given))
    total = 0.0
    for old, new in zip(documents(teacher, given), documents(student, given), strict=True):
        for a, b in zip(old[1:], new[1:], strict=True):
            total += 2.0 * float((a - b).square().sum() / a.square().sum()) / 2 / 2
        total += (1 - float(torch.cosine_similarity(old[-1].mean(0), new[-1].mean(0), dim=0))) / 2
    assert got == pytest.approx(total, rel=1e-4)


def test_relations_by_hand() -> None:
    """KL of softmax(cosines to the teacher's vectors / τ), document by document."""
    teacher = bert()
    student, given, text = hurt(teacher), batch(1, 5, 2, 3), [batch(2, 7, 4), batch(3, 6, 3)]
    with torch.no_grad():
        both = [
            float(Distance(teacher, student, mh.anatomy(teacher), text, hidden=0.0, relations=r)(given))
            for r in (0.0, 3.0)
        ]
    anchors = [states[-1].mean(0) for one in text for states in documents(teacher, one)]
    assert len(anchors) == 4
    kl = 0.0
    for old, new in zip(documents(teacher, given), documents(student, given), strict=True):
        like = [
            [
                math.exp(float(torch.cosine_similarity(x[-1].mean(0), a, dim=0)) / distance.TEMPERATURE)
                for a in anchors
            ]
            for x in (old, new)
        ]
        p, q = ([x / sum(side) for x in side] for side in like)
        kl += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)) / 3
    assert kl > 0.01, "else it would prove nothing"
    assert both[1] - both[0] == pytest.approx(3.0 * kl, rel=1e-3)


def test_anchors_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distance, "ANCHORS", 3)
    model, ran = bert(), list[int]()

    def read():
        for i in range(5):
            ran.append(i)
            yield batch(i, 4, 3)

    made = Distance(model, model, mh.anatomy(model), read(), relations=1.0)
    assert made.anchors is not None
    assert made.anchors.shape == (3, 21)
    assert ran == [0, 1], "no more text is run than is needed"


def test_logits_are_compared_as_distributions_and_have_no_relations() -> None:
    teacher = gpt2()
    student, given = hurt(teacher), batch(1, 5, 3)
    apart = Distance(teacher, student, mh.anatomy(teacher), [given], hidden=0.0, relations=5.0)
    assert apart.anchors is None
    with torch.no_grad():
        p, q = (m(**given).logits.double().log_softmax(-1) for m in (teacher, student))
        each = (p.exp() * (p - q)).sum(-1)
        by_hand = (each[0].mean() + each[1, :3].mean()) / 2
        assert float(apart(given)) == pytest.approx(float(by_hand), rel=1e-4)


def test_only_the_student_gets_gradients_and_a_mean_gets_none() -> None:
    teacher = bert()
    student, given = hurt(teacher), batch(1, 5, 3)
    apart = Distance(teacher, student, mh.anatomy(teacher), [given], relations=1.0)
    apart(given).backward()
    assert all(p.grad is None for p in teacher.parameters())
    assert student.encoder.layer[0].attention.self.query.weight.grad is not None
    two = [given, batch(2, 4)]
    with torch.no_grad():
        mean = sum(float(apart(b)) for b in two) / 2
    assert apart.over(two) == pytest.approx(mean)


def test_blocks_of_paths() -> None:
    assert blocks_of(mh.anatomy(bert())) == ["encoder.layer.0", "encoder.layer.1"]
    assert blocks_of(mh.anatomy(gpt2())) == ["transformer.h.0", "transformer.h.1"]
    assert blocks_of(mh.anatomy(nn.TransformerEncoderLayer(12, 2, batch_first=True))) == []
