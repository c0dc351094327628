"""Weights in consecutive memory: inference reads them as one matrix, and everything else sees three parameters."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_model
from torch import Tensor, nn
from torch.autograd.forward_ad import dual_level, make_dual, unpack_dual
from torch.overrides import TorchFunctionMode
from torch.testing import assert_close

import multihead as mh


def layer(bias: bool = True) -> mh.MultiHeadAttention:
    return mh.MultiHeadAttention(30, 5, num_kv_heads=1, bias=bias).eval()


def in_inference(attn: mh.MultiHeadAttention, x: Tensor) -> Tensor:
    with torch.no_grad():
        return attn(x)


def scaled(attn: mh.MultiHeadAttention) -> None:
    attn.k_proj.weight.data.mul_(-3)  # does not change the version of the parameter


def replaced(attn: mh.MultiHeadAttention) -> None:
    attn.v_proj.weight = nn.Parameter(torch.randn(6, 30))


def moved(attn: mh.MultiHeadAttention) -> None:
    attn.q_proj.weight.data = torch.randn(30, 30)


def transposed(attn: mh.MultiHeadAttention) -> None:
    attn.q_proj.weight.data = attn.q_proj.weight.data.T


def loaded(attn: mh.MultiHeadAttention) -> None:
    attn.load_state_dict(layer().state_dict())


def assigned(attn: mh.MultiHeadAttention) -> None:
    attn.load_state_dict(layer().state_dict(), assign=True)


def new_bias(attn: mh.MultiHeadAttention) -> None:
    attn.q_proj.bias = nn.Parameter(torch.randn(30))


def no_bias(attn: mh.MultiHeadAttention) -> None:
    attn.q_proj.bias = attn.k_proj.bias = attn.v_proj.bias = None


CHANGES = (scaled, replaced, moved, transposed, loaded, assigned, new_bias, no_bias)


@pytest.mark.parametrize("change", CHANGES, ids=[c.__name__ for c in CHANGES])
def test_inference_reads_changed_parameters(change: Callable[[mh.MultiHeadAttention], None]) -> None:
    attn, x = layer(), torch.randn(1, 3, 30)
    nn.init.normal_(attn.q_proj.bias)
    before = in_inference(attn, x)
    change(attn)
    after = attn(x).detach()  # with gradients, the three parameters are read
    assert_close(in_inference(attn, x), after)
    assert not torch.allclose(before, after)


@pytest.mark.parametrize("bias", [True, False])
def test_one_product_reads_all_three(bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    attn, products, linear = layer(bias), list[int](), torch.nn.functional.linear
    monkeypatch.setattr(
        torch.nn.functional, "linear", lambda x, w, b=None: (products.append(len(w)), linear(x, w, b))[1]
    )
    in_inference(attn, torch.randn(1, 1, 30))
    assert products == [42, 30]


@pytest.mark.parametrize(
    "move", [copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a)), lambda a: a.double().float()]
)
def test_a_copy_has_three_parameters_and_the_same_output(
    move: Callable[[mh.MultiHeadAttention], mh.MultiHeadAttention],
) -> None:
    attn, x = layer(), torch.randn(2, 3, 30)
    before = in_inference(attn, x)
    assert_close(in_inference(move(attn), x), before)


def test_files_hold_each_parameter_once(tmp_path: Path) -> None:
    attn = layer()
    save_model(attn, str(tmp_path / "weights.safetensors"))
    assert load_file(tmp_path / "weights.safetensors").keys() == attn.state_dict().keys()
    torch.save(dict(attn.state_dict()), tmp_path / "weights.pt")
    separate = {name: value.clone() for name, value in attn.state_dict().items()}
    torch.save(separate, tmp_path / "separate.pt")
    assert (tmp_path / "weights.pt").stat().st_size < 1.02 * (tmp_path / "separate.pt").stat().st_size


def test_training_changes_what_inference_reads() -> None:
    attn, x = layer().train(), torch.randn(1, 3, 30)
    optimizer = torch.optim.AdamW(attn.parameters(), lr=0.1)
    attn(x).square().sum().backward()
    optimizer.step()
    assert_close(in_inference(attn, x), attn(x).detach())


def test_modes_of_torch_functions_see_three_products() -> None:
    attn, weights = layer(), list[Tensor]()

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.nn.functional.linear:
                weights.append(args[1])
            return func(*args, **(kwargs or {}))

    with Watch():
        in_inference(attn, torch.randn(1, 1, 30))
    assert [id(w) for w in weights] == [id(p.weight) for p in (attn.q_proj, attn.k_proj, attn.v_proj, attn.o_proj)]


def test_forward_mode_sees_the_tangents_of_parameters() -> None:
    attn, x = mh.MultiHeadAttention(160, 5).eval(), torch.randn(1, 3, 160)  # too wide to be copied together
    separate = copy.deepcopy(attn)
    changes = {name: torch.randn_like(p) for name, p in attn.named_parameters()}

    def tangent(module: mh.MultiHeadAttention) -> Tensor:
        duals = {name: make_dual(p.detach(), changes[name]) for name, p in module.named_parameters()}
        return unpack_dual(torch.func.functional_call(module, duals, (x,), {"route": "reference"})).tangent

    with torch.no_grad(), dual_level():
        assert_close(tangent(attn), tangent(separate))


@pytest.mark.parametrize("tokens", [3, 100])
@pytest.mark.parametrize("grad", [False, True])
def test_the_memory_of_replaced_parameters_is_freed_by_the_next_call(tokens: int, grad: bool) -> None:
    attn = layer()
    attn.load_state_dict(layer().state_dict(), assign=True)
    with torch.set_grad_enabled(grad):
        attn(torch.randn(1, tokens, 30))
    assert attn._joint_weights is not None
    assert attn._joint_weights.weight is attn._joint_weights.bias is None


def test_a_subclass_of_tensor_over_the_same_memory_is_asked() -> None:
    class Negative(Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = super().__torch_function__(func, types, args, kwargs or {})
            return -out.as_subclass(Tensor) if func is torch.nn.functional.linear else out

    attn, x = layer(), torch.randn(1, 3, 30)
    attn.q_proj.weight.data *= 5
    negative = {"q_proj.weight": attn.q_proj.weight.detach().as_subclass(Negative)}
    with torch.no_grad():
        out = torch.func.functional_call(attn, negative, (x,))
    attn.q_proj.weight.data.neg_()
    assert_close(out, in_inference(attn, x))
