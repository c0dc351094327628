"""A capture leaves no trace: exceptions, nesting, threads, inference mode, compiled models, several calls."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor, nn

import multihead as mh
import zoo
from multihead.model.intercept import intercept
from parity.test_zoo_capture import output, traces


@pytest.fixture
def llama() -> nn.Module:
    return zoo.ZOO["llama"].build()


BATCH = zoo.ZOO["llama"].batch(False)


def test_an_exception_inside_leaves_nothing() -> None:
    for name in ("llama", "gemma2", "gpt-j", "torch-encoder"):
        model = zoo.ZOO[name].build()
        before = traces(model)
        expected = output(model(**zoo.ZOO[name].batch(False)))

        def break_down(*_: object) -> None:
            raise RuntimeError("in the middle")

        handle = list(model.modules())[-1].register_forward_hook(break_down)
        with pytest.raises(RuntimeError, match="in the middle"), mh.capture(model):
            model(**zoo.ZOO[name].batch(False))
        handle.remove()
        assert traces(model) == before
        assert torch.equal(output(model(**zoo.ZOO[name].batch(False))), expected)


def test_the_interface_of_transformers_is_as_before() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface

    model, batch = zoo.ZOO["gemma2"].build(), zoo.ZOO["gemma2"].batch(False)
    before = (
        AttentionInterface.get_interface,
        AttentionInterface().valid_keys(),
        AttentionMaskInterface().valid_keys(),
    )
    config = model.config.to_dict()
    with mh.capture(model), mh.capture(model):
        model(**batch)
        assert AttentionInterface.get_interface is not before[0]
        assert model.config.to_dict() == config
    after = (
        AttentionInterface.get_interface,
        AttentionInterface().valid_keys(),
        AttentionMaskInterface().valid_keys(),
    )
    assert after == before


def test_nested_captures_see_the_same(llama: nn.Module) -> None:
    with mh.capture(llama) as outer:
        llama(**BATCH)
        with mh.capture(llama) as inner:
            llama(**BATCH)
    assert outer.tokens == 2 * inner.tokens == 4 * 11
    for a, b in zip(outer, inner, strict=True):
        assert a.mean("entropy") == pytest.approx(b.mean("entropy"), rel=1e-12)


def test_another_thread_is_not_seen(llama: nn.Module) -> None:
    expected = output(llama(**BATCH))
    got: list[Tensor] = []
    with mh.capture(llama) as heads:
        llama(**BATCH)
        thread = threading.Thread(target=lambda: got.append(output(llama(**BATCH))))
        thread.start()
        thread.join()
    assert heads.tokens == 2 * 11
    assert torch.equal(got[0], expected)


def test_another_thread_runs_the_same_while_an_eager_model_is_captured() -> None:
    model, batch = zoo.ZOO["gemma2"].build(), zoo.ZOO["gemma2"].batch(False)
    expected = output(model(**batch))
    got: list[Tensor] = []
    with mh.capture(model) as heads:
        model(**batch)
        thread = threading.Thread(target=lambda: got.append(output(model(**batch))))
        thread.start()
        thread.join()
    assert heads.tokens == 2 * 11
    torch.testing.assert_close(got[0], expected, rtol=1e-4, atol=1e-4)


def test_inference_mode(llama: nn.Module) -> None:
    with torch.inference_mode(), mh.capture(llama, keep="qk") as heads:
        llama(**BATCH)
    assert heads["L1H3"].weights().sum(-1).allclose(torch.ones(2, 11))


def test_gradients_pass(llama: nn.Module) -> None:
    wanted = torch.autograd.grad(
        output(llama(**BATCH)).square().mean(), list(llama.parameters()), allow_unused=True
    )
    with mh.capture(llama):
        loss = output(llama(**BATCH)).square().mean()
    got = torch.autograd.grad(loss, list(llama.parameters()), allow_unused=True)
    for a, b in zip(got, wanted, strict=True):
        assert (a is None) == (b is None)
        assert a is None or b is None or torch.equal(a, b)


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing(llama: nn.Module, reentrant: bool) -> None:
    """Layers that run again in the backward pass meet the same gates, and count once."""
    with mh.gate(llama) as plain:
        output(llama(**BATCH)).square().mean().backward()
    wanted = {n: p.grad.clone() for n, p in llama.named_parameters() if p.grad is not None}
    llama.zero_grad(set_to_none=True)
    llama.gradient_checkpointing_enable({"use_reentrant": reentrant})  # type: ignore[operator]
    llama.train()
    with mh.gate(llama) as gates, mh.capture(llama) as heads:
        output(llama(**BATCH)).square().mean().backward()
    assert heads.tokens == 22
    assert gates.gradients() == pytest.approx(plain.gradients(), rel=1e-4)
    for name, p in llama.named_parameters():
        assert p.grad is not None
        torch.testing.assert_close(p.grad, wanted[name])
    if not reentrant:  # which torch.autograd.grad refuses by itself
        with mh.gate(llama) as gates:
            loss = output(llama(**BATCH)).square().mean()
            found = torch.autograd.grad(loss, gates.parameters())
        assert [x for g in found for x in g.tolist()] == pytest.approx(list(plain.gradients().values()), rel=1e-4)


def test_a_compiled_model_is_seen(llama: nn.Module) -> None:
    compiled = torch.compile(llama, backend="eager")
    with torch.no_grad():
        expected = output(compiled(**BATCH))
        with mh.capture(compiled, keep="qk") as heads:  # type: ignore[arg-type]
            got = output(compiled(**BATCH))
        with mh.ablate(compiled, ["L0H0"]):  # type: ignore[arg-type]
            ablated = output(compiled(**BATCH))
        again = output(compiled(**BATCH))
    torch.testing.assert_close(got, expected)
    assert torch.equal(again, expected)
    assert not torch.allclose(ablated, expected)
    assert heads["L1H5"].site.path == "model.layers.1.self_attn"
    torch.compiler.reset()


def test_a_model_compiled_in_place_is_seen(llama: nn.Module) -> None:
    llama.compile(backend="eager")
    with torch.no_grad():
        expected = output(llama(**BATCH))
        with mh.capture(llama) as heads:
            got = output(llama(**BATCH))
    torch.testing.assert_close(got, expected)
    assert heads.tokens == 22
    torch.compiler.reset()


def test_half_precision_is_measured_in_single() -> None:
    model = zoo.ZOO["timm"].build().to(torch.bfloat16)
    batch = {
        k: v.to(torch.bfloat16) if v.is_floating_point() else v for k, v in zoo.ZOO["timm"].batch(False).items()
    }
    with torch.no_grad(), mh.capture(model) as heads:
        model(**batch)
    assert all(h.mean("entropy") >= 0 for h in heads)


def test_attention_of_others_is_not_seen(llama: nn.Module) -> None:
    q = torch.randn(1, 2, 3, 4)
    with mh.capture(llama) as heads:
        llama(**BATCH)
        torch.nn.functional.scaled_dot_product_attention(q, q, q)
    assert len(heads) == 12


def test_a_listener_must_return_heads(llama: nn.Module) -> None:
    with pytest.raises(mh.MultiheadError, match=r"self_attn: the listener must return shape \(2, 6, 11, 4\)"):
        with intercept(llama, lambda call, run: run()[:, :1]):
            llama(**BATCH)
