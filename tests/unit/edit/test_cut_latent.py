"""Cutting heads of latent and of gated attention: exact, fitted, saved; what is not supported is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import multihead as mh
from multihead.edit import Plan
from multihead.edit.head_covariance import head_covariance
from multihead.errors import AnatomyError
from multihead.model.anatomy import anatomy
from zoo import ZOO
from zoo_latent import MODELS

TEXTS = [[5 + (7 * i + j * j + i * j) % 90 for j in range(31)] for i in range(24)]


def output(model: nn.Module, inputs: dict[str, Any]) -> Tensor:
    with torch.no_grad():
        out: Tensor = model(**inputs)[0]  # logits, or hidden states
    return out


def removed(model: nn.Module, heads: tuple[int, ...]) -> list[str]:
    return [f"{layer.name}H{h}" for layer in anatomy(model) for h in heads]


@pytest.mark.fast("heads1", f"{next(iter(MODELS))}-all of the first layer")
@pytest.mark.parametrize("heads", [(1,), (0, 2), "all of the first layer"])
@pytest.mark.parametrize("name", list(MODELS))
def test_a_cut_is_the_same_as_ablation(name: str, heads: tuple[int, ...] | str, tmp_path: Path) -> None:
    model = MODELS[name].build()
    inputs = MODELS[name].inputs(model)
    first, *others = anatomy(model)
    if isinstance(heads, str):
        alone = 0 if others else 1  # a model keeps one head at least
        names = [f"{first.name}H{h}" for h in range(alone, first.num_heads)]
    else:
        names = removed(model, tuple(h for h in heads if h < first.num_heads))
    small = mh.cut(model, Plan.whole(model, anatomy(model)).edit(remove=names), refit=False)
    with mh.ablate(model, names):
        expected = output(model, inputs)
    assert float((output(model, inputs) - expected).abs().max()) > 0.1  # the heads matter
    torch.testing.assert_close(output(small, inputs), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in model.parameters())
    mh.save(small, tmp_path / "small")
    loaded = mh.load(tmp_path / "small")
    assert torch.equal(output(loaded, inputs), output(small, inputs))


@pytest.mark.parametrize("name", ["deepseek-v3", "qwen3.5"])
def test_a_cut_model_generates_with_its_cache(name: str) -> None:
    model = MODELS[name].build()
    ids = MODELS[name].inputs(model)["input_ids"]
    names = removed(model, (1,))
    small: Any = mh.cut(model, Plan.whole(model, anatomy(model)).edit(remove=names), refit=False)
    whole: Any = model
    with mh.ablate(model, names):
        expected = whole.generate(input_ids=ids, max_new_tokens=5, do_sample=False)
    assert torch.equal(small.generate(input_ids=ids, max_new_tokens=5, do_sample=False), expected)


@pytest.mark.parametrize("name", ["deepseek-v3", "qwen3.5"])
def test_the_fit_brings_a_cut_model_closer(name: str) -> None:
    model = MODELS[name].build()
    plan = mh.plan(model, TEXTS, keep=0.5)
    held_out = {"input_ids": torch.tensor([[5 + (11 * i + 3 * j * j) % 90 for j in range(31)] for i in range(4)])}
    target = output(model, held_out)
    apart = [
        float((output(mh.cut(model, plan, refit=refit), held_out) - target).square().mean())
        for refit in (False, True)
    ]
    assert apart[1] < apart[0]


@pytest.mark.parametrize("name", ["afmoe", "laguna"])
def test_the_covariance_of_gated_heads_is_that_of_the_input_of_the_output_projection(name: str) -> None:
    model = MODELS[name].build()
    inputs = MODELS[name].inputs(model)
    layer = anatomy(model)[1]
    seen: list[Tensor] = []
    module = model.get_submodule(layer.weights["o"].module)
    handle = module.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach().flatten(0, 1).double()))
    covariance = head_covariance(model, [[layer]], [inputs])[layer.name]
    handle.remove()
    torch.testing.assert_close(covariance, torch.cov(seen[0].T, correction=0))


@pytest.mark.parametrize("name", ["deepseek-v3", "afmoe"])
def test_sharing_of_keys_and_values_is_refused(name: str) -> None:
    model = MODELS[name].build()
    kind = "latent attention" if name == "deepseek-v3" else "gated attention"
    plan = Plan.whole(model, anatomy(model))
    count = anatomy(model)[0].num_heads
    plan = plan.edit(groups={"L0": [list(range(count))]})
    with pytest.raises(AnatomyError, match=f"does not support {kind}"):
        mh.cut(model, plan, TEXTS)


def test_budgets() -> None:
    model = MODELS["deepseek-v3"].build()
    with pytest.raises(AnatomyError, match="cache bytes does not support latent attention"):
        mh.plan(model, TEXTS, budget="cache=0.9")
    plan = mh.plan(model, TEXTS, budget="flops=0.95")
    assert any(layer.removed for layer in plan.layers)


def test_a_layer_with_sinks_may_lose_all_its_heads_and_be_fitted() -> None:
    model = ZOO["gpt-oss"].build()
    plan = mh.plan(model, TEXTS, keep=1.0).edit(remove=[f"L0H{h}" for h in range(6)])
    small = mh.cut(model, plan)
    assert [layer.name for layer in anatomy(small)] == ["L1"]
    assert anatomy(small)[0].path == "model.layers.1.self_attn"
