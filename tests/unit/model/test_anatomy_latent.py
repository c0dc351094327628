"""anatomy of latent attention and of gated attention: its views reproduce what a capture sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import multihead as mh
from multihead.errors import AnatomyError
from multihead.model.layer_anatomy import LayerAnatomy
from zoo import ZOO, model
from zoo_latent import GATED_MODELS, HEADS, LATENT, LATENT_MODELS, MODELS, NOPE, QUERY, ROPE, VALUE, attentions


class Run:
    """One run of a model: what its heads were, and what went into and out of its attention modules."""

    def __init__(self, name: str, dtype: torch.dtype = torch.float32) -> None:
        self.model = MODELS[name].build().to(dtype)
        self.anatomy = mh.anatomy(self.model)
        self.inputs, self.outputs, self.rotary = dict[str, Tensor](), dict[str, Tensor](), dict[str, Any]()
        handles = [
            module.register_forward_hook(self._hook(path), with_kwargs=True)
            for path, module in attentions(self.model).items()
        ]
        with torch.no_grad(), mh.capture(self.model, keep="qk v outputs") as self.heads:
            self.model(**MODELS[name].inputs(self.model))
        for handle in handles:
            handle.remove()

    def _hook(self, path: str) -> Callable[..., None]:
        def look(module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
            self.inputs[path] = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
            self.outputs[path] = output[0]
            self.rotary[path] = kwargs.get("position_embeddings")

        return look


def times(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return F.linear(x, weight.detach(), None if bias is None else bias.detach())


def part(parts: tuple[Tensor, ...] | None, i: int) -> Tensor | None:
    return None if parts is None else parts[i]


@torch.no_grad()
def read_by_queries(layer: LayerAnatomy, x: Tensor) -> Tensor:
    """The input of W_Q: x, or the queries' latent vector; A.X K2 puts the vector before its norm beside it."""
    latent = layer.latent
    if latent is None or latent.W_DQ is None:
        return x
    down = times(x, latent.W_DQ, latent.b_DQ)
    normed = layer.module.get_submodule("q_a_layernorm")(down)
    return torch.cat([normed, down], -1) if type(layer.module).__name__ == "AXK2Attention" else normed


def output(run: Run, layer: LayerAnatomy, gates: list[Tensor] | None = None) -> Tensor:
    """Σ_h (z_h · gate_h) W_Oᵀ + b_O from the views and the captured z."""
    z = [run.heads[layer.site.name(h)].output() for h in range(layer.num_heads)]
    gated = z if gates is None else [a * b for a, b in zip(z, gates, strict=True)]
    total = sum(times(a, w, None) for a, w in zip(gated, layer.W_O, strict=True))
    assert isinstance(total, Tensor)
    return total if layer.b_O is None else total + layer.b_O.detach()


@pytest.mark.parametrize("name", LATENT_MODELS)
def test_latent_weights_reproduce_queries_keys_values_and_output(name: str) -> None:
    run = Run(name, torch.float64)
    assert len(run.anatomy) == 2
    for layer in run.anatomy:
        latent, module, x = layer.latent, layer.module, run.inputs[layer.path]
        assert latent is not None
        assert (layer.num_heads, layer.num_kv_heads, layer.key_dim, layer.value_dim) == (
            HEADS, HEADS, NOPE + ROPE, VALUE,
        )  # fmt: skip
        assert latent.W_DKV.shape == (LATENT, x.shape[-1])
        assert latent.W_KR.shape == (ROPE, x.shape[-1])
        with torch.no_grad():
            c = module.get_submodule("kv_a_layernorm")(times(x, latent.W_DKV, latent.b_DKV))
        assert latent.W_DQ is None or latent.W_DQ.shape == (QUERY, x.shape[-1])
        asking = read_by_queries(layer, x)
        shared = times(x, latent.W_KR, latent.b_KR)
        for h in range(HEADS):
            head = run.heads[layer.site.name(h)]
            q = times(asking, layer.W_Q[h], part(layer.b_Q, h))
            k = times(c, layer.W_K[h], part(layer.b_K, h))
            torch.testing.assert_close(head.query()[..., :NOPE], q[..., :NOPE])
            torch.testing.assert_close(head.key()[..., :NOPE], k)
            torch.testing.assert_close(head.value(), times(c, layer.W_V[h], part(layer.b_V, h)))
            # Rotation does not change lengths, nor anything at position 0 but the order.
            for kernel, own in ((head.query()[..., NOPE:], q[..., NOPE:]), (head.key()[..., NOPE:], shared)):
                torch.testing.assert_close(kernel.norm(dim=-1), own.norm(dim=-1))
                torch.testing.assert_close(kernel[:, 0].sort().values, own[:, 0].sort().values)
        if not layer.gated:
            torch.testing.assert_close(output(run, layer), run.outputs[layer.path])


def test_latent_keys_without_a_rotary_part() -> None:
    """Without positions, the part of the keys that all heads share is empty."""
    run = Run("glm5-next", torch.float64)
    for layer in run.anatomy:
        assert layer.latent is not None
        assert layer.latent.W_KR.shape == (0, 24)
        with torch.no_grad():
            c = layer.module.get_submodule("kv_a_layernorm")(
                times(run.inputs[layer.path], layer.latent.W_DKV, None)
            )
        for h in range(HEADS):
            head = run.heads[layer.site.name(h)]
            torch.testing.assert_close(head.key(), times(c, layer.W_K[h], None))
            torch.testing.assert_close(head.value(), times(c, layer.W_V[h], None))


@pytest.mark.parametrize("name", GATED_MODELS)
def test_gate_weights_reproduce_the_output(name: str) -> None:
    run = Run(name)
    activation = F.softplus if name == "laguna" else torch.sigmoid
    for layer in run.anatomy:
        x = run.inputs[layer.path]
        x = read_by_queries(layer, x)
        assert layer.W_G is not None
        assert layer.W_G[0].shape[0] in (1, layer.value_dim)
        assert layer.head(1).W_G is not None
        gates = [activation(times(x, w, part(layer.b_G, h))) for h, w in enumerate(layer.W_G)]
        torch.testing.assert_close(output(run, layer, gates), run.outputs[layer.path])


@pytest.mark.parametrize("name", ["qwen3-next", "qwen3.5"])
def test_layers_without_softmax_attention_are_named(name: str) -> None:
    found = mh.anatomy(MODELS[name].build())
    assert [layer.path for layer in found] == ["model.layers.1.self_attn"]
    (note,) = found.notes
    assert "1 of 2" in note
    assert "model.layers.0.linear_attn" in note
    assert note in str(found)


@pytest.mark.parametrize("name", ["falcon-grouped", "bert", "t5"])
def test_there_is_no_note_where_all_attentions_are_listed(name: str) -> None:
    """Falcon has a norm that is called ln_attn."""
    assert mh.anatomy(model(name), ZOO[name].inputs(model(name))).notes == ()


def test_a_gate_that_mixes_heads_is_refused() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.gate, self.out = (nn.Linear(12, 12) for _ in range(5))

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (f(x).unflatten(-1, (3, 4)).transpose(1, 2) for f in (self.q, self.k, self.v))
            z = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            gate = self.gate(x)
            out: Tensor = self.out(z * torch.sigmoid(gate + gate.roll(1, -1)))
            return out

    with pytest.raises(AnatomyError, match=r"rows of gate.weight"):
        mh.anatomy(Mixed(), {"x": torch.randn(2, 5, 12)})


def test_the_theory_refuses_both() -> None:
    texts = [[5 + (3 * i + j * j) % 90 for j in range(11)] for i in range(2)]
    with pytest.raises(AnatomyError, match=r"latent attention .*DeepseekV3Attention"):
        mh.theory(MODELS["deepseek-v3"].build(), texts)
    with pytest.raises(AnatomyError, match=r"gated attention .*AfmoeAttention"):
        mh.theory(MODELS["afmoe"].build(), texts)


def test_similarity_compares_what_is_comparable() -> None:
    texts = [[5 + (3 * i + j * j) % 90 for j in range(29)] for i in range(4)]
    found = mh.similarity(MODELS["deepseek-v3"].build(), texts)
    read, write = found.pairs["read"], found.pairs["write"]
    assert bool(read[:HEADS, :HEADS].isfinite().all())
    assert bool(read[:HEADS, HEADS:].isnan().all())  # each layer has a latent vector of its own
    assert bool(write.isfinite().all())
    gated = mh.similarity(MODELS["afmoe"].build(), texts)
    assert bool(gated.pairs["write"].isnan().all())
    assert any("gated attention" in reason for reason in gated.undefined["write"])
