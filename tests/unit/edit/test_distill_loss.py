"""The loss of distillation: each part by hand, without padding."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import multihead as mh
from multihead.corpus.accumulator import Batch
from multihead.edit.distill_loss import DistillLoss, numbered_blocks
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
        got = float(DistillLoss(teacher, student, mh.anatomy(teacher), given)(given))
    total = 0.0
    for old, new in zip(documents(teacher, given), documents(student, given), strict=True):
        for a, b in zip(old[1:], new[1:], strict=True):
            total += float((a - b).square().sum() / a.square().sum()) / 2 / 2
        total += (1 - float(torch.cosine_similarity(old[-1].mean(0), new[-1].mean(0), dim=0))) / 2
    assert got == pytest.approx(total, rel=1e-4)


def test_logits_are_compared_as_distributions() -> None:
    teacher = gpt2()
    student, given = hurt(teacher), batch(1, 5, 3)
    apart = DistillLoss(teacher, student, [], given)  # no layers: no states of blocks
    with torch.no_grad():
        p, q = (m(**given).logits.double().log_softmax(-1) for m in (teacher, student))
        each = (p.exp() * (p - q)).sum(-1)
        by_hand = (each[0].mean() + each[1, :3].mean()) / 2
        assert float(apart(given)) == pytest.approx(float(by_hand), rel=1e-4)


def test_only_the_student_gets_gradients_and_a_mean_gets_none() -> None:
    teacher = bert()
    student, given = hurt(teacher), batch(1, 5, 3)
    apart = DistillLoss(teacher, student, mh.anatomy(teacher), given)
    apart(given).backward()
    assert all(p.grad is None for p in teacher.parameters())
    assert student.encoder.layer[0].attention.self.query.weight.grad is not None
    two = [given, batch(2, 4)]
    with torch.no_grad():
        mean = sum(float(apart(b)) for b in two) / 2
    assert apart.over(two) == pytest.approx(mean)


def test_blocks_of_paths() -> None:
    assert numbered_blocks(mh.anatomy(bert())) == ["encoder.layer.0", "encoder.layer.1"]
    assert numbered_blocks(mh.anatomy(gpt2())) == ["transformer.h.0", "transformer.h.1"]
    assert numbered_blocks(mh.anatomy(nn.TransformerEncoderLayer(12, 2, batch_first=True))) == []
