"""The layer as an nn.Module: meta device, state dicts, copies, pickles, torch.func."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

import multihead as mh
from ecosystem.variants import HEADS, TOKENS, VARIANTS, WIDTH
from multihead import mask, position
from multihead.layer import QKNorm, Sinks, init


@pytest.fixture(autouse=True)
def _exact(fp64: None) -> None: ...


def everything(**options: Any) -> mh.MultiHeadAttention:
    """A layer that has every kind of parameter."""
    return mh.MultiHeadAttention(
        WIDTH,
        HEADS,
        num_kv_heads=2,
        sinks=Sinks(1.0),
        qk_norm=QKNorm(),
        position=position.RelativeBias(HEADS),
        init=init.XavierPerHead(2.0),
        **options,
    )


def test_state_dict_keys_are_stable() -> None:
    linear = [f"{name}_proj.{part}" for name in "qkvo" for part in ("weight", "bias")]
    assert sorted(everything().state_dict()) == sorted(
        [*linear, "q_norm.weight", "k_norm.weight", "sink_logits", "position.weight"]
    )
    plain = mh.MultiHeadAttention(WIDTH, HEADS, bias=False, position=position.Rotary(dim=2))
    assert list(plain.state_dict()) == [f"{name}_proj.weight" for name in "qkvo"]
    assert not list(mh.MultiHeadAttention(WIDTH, HEADS, position=position.ALiBi(HEADS)).buffers())


@pytest.mark.parametrize("how", ["context", "argument"])
def test_meta_device(how: str) -> None:
    """No memory and no random numbers; `to_empty` and `reset_parameters` make the layer whole."""
    before = torch.get_rng_state()
    if how == "context":
        with torch.device("meta"):
            attn = everything()
    else:
        attn = mh.MultiHeadAttention(WIDTH, HEADS, device="meta", sinks=Sinks())
    assert all(p.is_meta for p in attn.parameters())
    assert torch.equal(torch.get_rng_state(), before)
    whole = everything() if how == "context" else mh.MultiHeadAttention(WIDTH, HEADS, sinks=Sinks())
    attn = attn.to_empty(device="cpu")
    for module in (attn, whole):
        torch.manual_seed(3)
        module.reset_parameters()
    for (name, got), want in zip(attn.state_dict().items(), whole.state_dict().values(), strict=True):
        assert torch.equal(got, want), name
    x = torch.randn(2, TOKENS, WIDTH)
    assert torch.equal(attn(x), whole(x))


def test_shapes_on_the_meta_device() -> None:
    """A whole forward without numbers, as memory estimators do it."""
    with torch.device("meta"):
        attn, x = everything(), torch.empty(2, TOKENS, WIDTH)
        out = attn(x)
        masked = attn(x, mask=mask.causal())
    assert out.is_meta
    assert out.shape == masked.shape == (2, TOKENS, WIDTH)


def test_load_state_dict_by_assignment() -> None:
    whole = everything()
    with torch.device("meta"):
        attn = everything()
    attn.load_state_dict(whole.state_dict(), assign=True)
    assert attn.q_proj.weight.data_ptr() == whole.q_proj.weight.data_ptr()
    x = torch.randn(2, TOKENS, WIDTH)
    assert torch.equal(attn(x), whole(x))
    attn(x).sum().backward()
    assert attn.q_proj.weight.grad is not None


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "pickle"])
def test_copies(again: Any) -> None:
    """Of layers that have run (rotary tables exist by then), and of masks."""
    x = torch.randn(3, TOKENS, WIDTH)
    who = mask.causal() & mask.lengths([11, 4, 0]) | mask.documents(offsets=[0, 3, 11])
    rotary = mh.MultiHeadAttention(WIDTH, HEADS, head_dim=8, position=position.Rotary(interleaved=True))
    for attn in (everything(), rotary):
        want = attn(x, mask=who)
        copied = again(attn)
        assert torch.equal(copied(x, mask=again(who)), want)
        with torch.no_grad():
            copied.q_proj.weight.zero_()
        assert torch.equal(attn(x, mask=who), want)


def test_functional_call() -> None:
    attn, x = everything(), torch.randn(2, TOKENS, WIDTH)
    doubled = {name: 2 * p.detach() for name, p in attn.named_parameters()}
    got = functional_call(attn, doubled, (x,), {"mask": mask.causal()})
    attn.load_state_dict(doubled)
    torch.testing.assert_close(got, attn(x, mask=mask.causal()))


@pytest.mark.parametrize("name", ["plain", "causal", "grouped rotary", "window", "value size", "sinks", "softcap"])
def test_vmap(name: str) -> None:
    variant = VARIANTS[name]
    attn = variant.layer()
    x = torch.randn(4, 2, TOKENS, WIDTH)
    with torch.no_grad():
        got = vmap(lambda x: variant.call(attn, x))(x)
        want = torch.stack([variant.call(attn, part) for part in x])
    torch.testing.assert_close(got, want)


def test_gradient_of_each_sample() -> None:
    attn, x = VARIANTS["causal"].layer(), torch.randn(3, TOKENS, WIDTH)
    parameters = dict(attn.named_parameters())

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(attn, parameters, (x,), {"mask": mask.causal()}).square().sum()

    got = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for i, sample in enumerate(x):
        attn.zero_grad()
        attn(sample, mask=mask.causal()).square().sum().backward()
        for name, parameter in attn.named_parameters():
            torch.testing.assert_close(got[name][i], parameter.grad)


def test_hooks_see_the_projections() -> None:
    """Calls go through the modules, so that hooks, LoRA and quantizers are not passed by."""
    attn, seen = everything(), []
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        getattr(attn, name).register_forward_hook(lambda _, __, out, name=name: seen.append((name, out.shape)))
    attn(torch.randn(2, TOKENS, WIDTH))
    assert sorted(name for name, _ in seen) == ["k_proj", "o_proj", "q_proj", "v_proj"]
