"""The heads of a trained model: their statistics are those of the file, and those of the explicit maps."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from golden.make_minilm_statistics import GOLDEN, measured, model_and_batch
from multihead.measures import Statistics

NAN = float("nan")


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    return json.loads(GOLDEN.read_text())


def test_the_statistics_are_those_of_the_file(golden: dict[str, Any]) -> None:
    """fp32 on another machine adds up in another order: 1e-4 of each number, and 1e-6 near 0."""
    model, batch, asked = model_and_batch()
    found = measured(model, batch, asked)
    assert golden["tokens"] == int(batch["attention_mask"].sum())
    assert {n for n, m in found.items() if not m.isnan().any() and not n.startswith("offset")} == set(
        golden["means"]
    )
    for name, wanted in golden["means"].items():
        wanted = torch.tensor(wanted, dtype=torch.float64)
        say = lambda text, name=name: f"{name}: {text}"
        torch.testing.assert_close(found[name].double(), wanted, rtol=1e-4, atol=1e-6, msg=say)


def test_every_statistic_is_that_of_the_explicit_maps() -> None:
    """sdpa and our capture in fp64, beside the maps that the eager path of the model itself returns."""
    model, batch, asked = model_and_batch()
    model = model.double()
    found = measured(model, batch, asked)
    model.set_attn_implementation("eager")
    layers = model.encoder.layer
    with torch.inference_mode():
        seen = model(**batch, output_attentions=True, output_hidden_states=True)
        assert len(seen.attentions) == len(layers) == 6
        made = [
            from_map(p, *_qkv(layer.attention.self, x), batch, asked)
            for p, layer, x in zip(seen.attentions, layers, seen.hidden_states, strict=False)
        ]
    assert set(made[0]) == set(found)
    for name, mean in found.items():
        wanted = torch.stack([layer[name] for layer in made])
        say = lambda text, name=name: f"{name}: {text}"
        torch.testing.assert_close(mean, wanted, equal_nan=True, msg=say)


def _qkv(attention: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What the projections of a BERT layer make of its input, (batch, head, token, size) each."""
    split = lambda linear: linear(x).unflatten(-1, (attention.num_attention_heads, -1)).transpose(1, 2)
    return split(attention.query), split(attention.key), split(attention.value)


def from_map(
    p: Tensor, q: Tensor, k: Tensor, v: Tensor, batch: dict[str, Tensor], asked: Statistics
) -> dict[str, Tensor]:
    """The mean of each statistic over real queries, per head, from the weights p (batch, head, query, key)."""
    ids, real = batch["input_ids"], batch["attention_mask"].bool()
    place = torch.arange(ids.shape[1])
    away = (place[:, None] - place).double()
    seen = real[:, None, None, :].expand_as(p)
    n = seen.sum(-1).double()
    entropy = -torch.xlogy(p, p).sum(-1)
    largest = p.amax(-1)
    scores = (q @ k.mT) / q.shape[-1] ** 0.5
    centred = (scores - scores.masked_fill(~seen, 0).sum(-1, keepdim=True) / n[..., None]).masked_fill(~seen, 0)
    mass = lambda where: (p * where).sum(-1)
    mean_place = (p * place).sum(-1, keepdim=True)
    same = ids[:, None, :, None] == ids[:, None, None, :]
    before = pad(ids, (1, 0), value=-1)[:, :-1]  # the token before each key; nothing is padded on the left
    rows = {
        "entropy": entropy,
        "relative_entropy": entropy / n.log(),
        "perplexity": entropy.exp(),
        "effective_keys": 1 / (p**2).sum(-1),
        "max_weight": largest,
        "saturated": (largest > 0.99).double(),
        "distance": mass(away.abs()),
        "signed_distance": mass(away),
        "position_std": (p * (place - mean_place) ** 2).sum(-1).sqrt(),
        "before": mass(away > 0),
        "after": mass(away < 0),
        "first": p[..., 0],
        "self": mass(away == 0),
        "previous": mass(away == 1),
        "next": mass(away == -1),
        "special": mass(torch.isin(ids, torch.tensor(asked.special))[:, None, None, :]),
        "same_token": mass(same & (away != 0)),
        "induction": mass((ids[:, None, :, None] == before[:, None, None, :]) & (away >= 0)),
        "sink": torch.full_like(entropy, NAN),  # the model has none
        "lse": scores.masked_fill(~seen, -torch.inf).logsumexp(-1),
        "logit_scale": (centred.square().sum(-1) / n).sqrt(),
        "output_norm": (p @ v).norm(dim=-1),
        "value_norm": mass(v.norm(dim=-1)[:, :, None, :]),
        "visible": n,
        **{
            f"class:{c}": mass(torch.isin(ids, torch.tensor(i))[:, None, None, :]) for c, i in asked.classes.items()
        },
        **{f"offset{o:+d}": mass(away == -o) for o in range(-asked.offsets, asked.offsets + 1)},
    }
    queries = real[:, None].expand_as(entropy)
    return {
        name: torch.stack([row[:, h][queries[:, h]].mean() for h in range(p.shape[1])])
        for name, row in rows.items()
    }
