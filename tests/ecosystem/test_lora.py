"""LoRA through peft: the adapters on q_proj, k_proj, v_proj and o_proj are used, trained, merged and saved."""

from __future__ import annotations

import copy
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import multihead as mh
from ecosystem.variants import HEADS, TOKENS, VARIANTS, WIDTH
from multihead import cache, mask, position
from multihead.layer import init

peft = import_module("peft")

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj"]


@pytest.fixture(autouse=True)
def _exact(fp64: None) -> None: ...


class Model(nn.Module):
    """Two layers, as a model has them: peft finds the projections by the end of their names."""

    def __init__(self) -> None:
        super().__init__()
        options: dict[str, Any] = {"num_kv_heads": 2, "head_dim": 6, "position": position.Rotary()}
        self.layers = nn.ModuleList(
            mh.MultiHeadAttention(WIDTH, HEADS, init=init.XavierPerHead(2.0), **options) for _ in range(2)
        )

    def forward(self, x: Tensor, caches: list[cache.Cache] | None = None) -> Tensor:
        for i, attn in enumerate(self.layers):
            x = x + attn(x, mask=mask.causal(), cache=None if caches is None else caches[i])
        return x


def adapted(targets: list[str], **options: Any) -> tuple[Any, Model]:
    base = Model()
    config = peft.LoraConfig(r=3, lora_alpha=6, target_modules=targets, **options)
    return peft.get_peft_model(copy.deepcopy(base), config), base


def stir(model: nn.Module) -> None:
    """Away from B = 0, where an adapter does nothing."""
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.3)


def test_starts_as_the_base_model() -> None:
    model, base = adapted(PROJECTIONS)
    x = torch.randn(2, TOKENS, WIDTH)
    torch.testing.assert_close(model(x), base(x))


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_each_adapter_is_used(projection: str) -> None:
    """What the adapter says is what a layer with W + scaling · B A computes."""
    model, base = adapted([projection])
    stir(model)
    x = torch.randn(2, TOKENS, WIDTH)
    out = model(x)
    assert (out - base(x)).abs().max() > 0.1
    with torch.no_grad():
        for mine, theirs in zip(base.layers, model.base_model.model.layers, strict=True):
            lora = getattr(theirs, projection)
            getattr(mine, projection).weight += 2.0 * lora.lora_B["default"].weight @ lora.lora_A["default"].weight
    torch.testing.assert_close(out, base(x))


def test_only_adapters_learn() -> None:
    model, _ = adapted(PROJECTIONS)
    stir(model)
    model(torch.randn(2, TOKENS, WIDTH)).square().mean().backward()
    learned = {name for name, p in model.named_parameters() if p.grad is not None}
    assert learned == {name for name, _ in model.named_parameters() if "lora_" in name}
    assert len(learned) == 2 * 4 * 2  # A and B, four projections, two layers
    assert all(p.grad.abs().max() > 0 for _, p in model.named_parameters() if p.grad is not None)


def test_merges_into_an_ordinary_layer() -> None:
    model, base = adapted(PROJECTIONS)
    stir(model)
    x = torch.randn(2, TOKENS, WIDTH)
    want = model.eval()(x)
    merged = model.merge_and_unload()
    torch.testing.assert_close(merged(x), want)
    assert list(merged.state_dict()) == list(base.state_dict())
    assert type(merged.layers[0].q_proj) is nn.Linear


@torch.no_grad()
def test_decodes_with_adapters() -> None:
    model, _ = adapted(PROJECTIONS)
    stir(model)
    x = torch.randn(2, TOKENS, WIDTH)
    caches = [cache.Growing(), cache.Growing()]
    parts = [model(part, caches) for part in x.split([4] + [1] * (TOKENS - 4), dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), model(x))


def test_adapter_survives_saving(tmp_path: Path) -> None:
    model, base = adapted(PROJECTIONS)
    stir(model)
    model.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(base, tmp_path)
    x = torch.randn(2, TOKENS, WIDTH)
    torch.testing.assert_close(again(x), model.eval()(x))


def test_compiles_with_adapters() -> None:
    torch.compiler.reset()
    attn = peft.get_peft_model(VARIANTS["causal"].layer(), peft.LoraConfig(r=3, target_modules=PROJECTIONS))
    stir(attn)
    x = torch.randn(2, TOKENS, WIDTH)
    compiled = torch.compile(lambda x: attn(x, mask=mask.causal()), fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), attn(x, mask=mask.causal()))
