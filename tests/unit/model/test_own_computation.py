"""A capture changes nothing that the model can see, and what it shows is what the model computed."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

import multihead as mh
from multihead.layer import attend
from multihead.model.forward import Forward
from multihead.model.kernel_arguments import problem_of
from multihead.model.lazy_weights import LazyWeights
from multihead.model.verify_kernel import verify_call

IDS = torch.randint(0, 47, (3, 11), generator=torch.Generator().manual_seed(5))
SIZES: dict[str, Any] = {
    "vocab_size": 47, "hidden_size": 56, "intermediate_size": 29, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 14, "max_position_embeddings": 31,
}  # fmt: skip


def llama(implementation: str = "eager") -> nn.Module:
    return loud(hf.LlamaModel(hf.LlamaConfig(**SIZES, attn_implementation=implementation)))


def loud(model: nn.Module) -> nn.Module:
    """Weights so large that no softmax is flat."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.4)
    return model.eval()


def deepseek_v32() -> nn.Module:
    """Each query sees the three keys that an indexer chooses, but only under the names eager and sdpa."""
    sizes = {name: size for name, size in SIZES.items() if name not in ("head_dim", "num_key_value_heads")}
    config = hf.DeepseekV32Config(
        **sizes, num_key_value_heads=4, index_topk=3, index_n_heads=2, index_head_dim=8, q_lora_rank=12,
        kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=7, n_routed_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=12, first_k_dense_replace=1, n_group=1, topk_group=1,
        attn_implementation="eager",
    )  # fmt: skip
    return loud(hf.DeepseekV32Model(config))


def splinter() -> nn.Module:
    """Bidirectional, although its modules do not say so."""
    sizes = {name: SIZES[name] for name in ("vocab_size", "hidden_size", "intermediate_size")}
    config = hf.SplinterConfig(
        **sizes, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=31, attn_implementation="eager"
    )
    return loud(hf.SplinterModel(config))


def gemma_2() -> nn.Module:
    config = hf.Gemma2Config(**SIZES, sliding_window=5, attn_logit_softcapping=3.0, attn_implementation="eager")
    return loud(hf.Gemma2Model(config))


MODELS = {"llama": llama, "deepseek_v32": deepseek_v32, "splinter": splinter, "gemma2": gemma_2}


@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("name", list(MODELS))
def test_eager_models_get_their_own_mask(name: str, side: str) -> None:
    model, mask = MODELS[name](), torch.ones_like(IDS)
    if side != "none":
        mask[0, slice(0, 4) if side == "left" else slice(8, 11)] = 0
    with torch.no_grad():
        outside = model(IDS, attention_mask=mask, output_attentions=True)
        with mh.capture(model, keep="qk") as heads:
            inside = model(IDS, attention_mask=mask)
    torch.testing.assert_close(inside.last_hidden_state, outside.last_hidden_state)  # padding included
    real = mask.bool()
    for layer, maps in enumerate(outside.attentions):
        shown = torch.stack([heads[layer, head].weights() for head in range(maps.shape[1])], 1)
        torch.testing.assert_close(shown.transpose(1, 2)[real], maps.transpose(1, 2)[real])


def _registered(name: str, function: Any) -> nn.Module:
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, eager_mask)
    return llama(name)


def _scores(query: Tensor, key: Tensor, mask: Tensor | None, scaling: float) -> Tensor:
    scores = query @ key.repeat_interleave(2, 1).mT * scaling
    return scores if mask is None else scores + mask


def warm(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Softmax at a temperature that no argument gives."""
    weights = (_scores(query, key, attention_mask, scaling) / 2).softmax(-1)
    return (weights @ value.repeat_interleave(2, 1)).transpose(1, 2), None


def cooled(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Softmax at a temperature that an argument may give."""
    weights = (_scores(query, key, attention_mask, scaling) / kwargs.get("temperature", 1.0)).softmax(-1)
    return (weights @ value.repeat_interleave(2, 1)).transpose(1, 2), None


def test_a_function_that_computes_something_else_is_refused() -> None:
    model = _registered("warm", warm)
    with pytest.raises(mh.MultiheadError, match=r"LlamaAttention computes something else .* differ by up to"):
        with mh.capture(model):
            model(IDS)
    model(IDS)  # and runs as before


def test_an_argument_that_only_the_function_knows_is_refused() -> None:
    model = _registered("cooled", cooled)
    with mh.capture(model):
        model(IDS)
        with pytest.raises(mh.MultiheadError, match=r"LlamaAttention passes temperature= .* cooled"):
            model(IDS, temperature=2.0)


class Watched(nn.Module):
    """Attention, plus a number that depends on how the module is run."""

    def __init__(self, number: Any) -> None:
        super().__init__()
        self.qkv, self.number, self.calls = nn.Linear(12, 36), number, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        q, k, v = self.qkv(x).unflatten(-1, (3, 3, 4)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v) + self.number()


X = torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(2))


def test_an_output_that_differs_inside_is_an_error() -> None:
    model = Watched(lambda: float(torch.overrides.has_torch_function((X,)))).eval()
    with pytest.raises(mh.MultiheadError, match=r"Watched computes another output .* up to 1 at values"):
        with mh.capture(model):
            model(X)


def test_a_random_model_is_not_compared() -> None:
    model = Watched(random.random).eval()
    with mh.capture(model) as heads:
        model(X)
    assert model.calls == 3
    assert len(heads) == 3


def test_a_model_with_torchs_random_numbers_draws_them_again() -> None:
    """Their number, which is drawn too, does not matter, as in models of speech."""
    model = Watched(lambda: torch.randn(int(torch.randint(5, 99, ())), 1, 1, 1, 1)).eval()
    torch.manual_seed(4)
    outside, after = model(X), torch.randn(3)
    for calls in (3, 4):  # compared once
        torch.manual_seed(4)
        with mh.capture(model):
            assert torch.equal(model(X), outside)
        assert torch.equal(torch.randn(3), after)
        assert model.calls == calls


def test_a_tensor_that_is_missing_inside_is_an_error() -> None:
    class Absent(Watched):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:  # type: ignore[override]
            return super().forward(x), None if torch.overrides.has_torch_function((x,)) else x

    with pytest.raises(mh.MultiheadError, match=r"Absent computes another output .* 1 tensors, not 2"):
        with mh.capture(model := Absent(lambda: 0.0).eval()):
            model(X)


def eager(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, scaling: float
) -> tuple[Tensor, Tensor]:
    module.calls += 1
    weights = (query @ key.mT * scaling).softmax(-1)
    return (weights @ value).transpose(1, 2), weights


class WithWeights(nn.Module):
    """Gives its weights to a function, and returns them, whether anybody has asked for them or not."""

    def __init__(self, use: Any) -> None:
        super().__init__()
        self.qkv, self.use, self.calls = nn.Linear(12, 36), use, 0

    def forward(self, x: Tensor) -> dict[str, Any]:
        q, k, v = self.qkv(x).unflatten(-1, (3, 3, 4)).permute(2, 0, 3, 1, 4)
        attention = AttentionInterface().get_interface("eager", eager)
        out, weights = attention(self, q, k, v, None, scaling=3.0)
        return {"out": out, "attentions": (self.use(weights),)}


@pytest.mark.parametrize("use", [lambda p: p, lambda p: p.sum(1), lambda p: (p.shape, 2 * p[0])])
def test_weights_that_a_model_returns_are_its_own(use: Any) -> None:
    model = WithWeights(use).eval()
    outside = model(X)
    with mh.capture(model):
        inside = model(X)
    torch.testing.assert_close(inside, outside)  # types and structure too
    assert not any(isinstance(x, LazyWeights) for x in pytree.tree_leaves(inside))
    inside["out"].sum().backward()


def test_weights_that_a_model_drops_are_not_computed() -> None:
    model = WithWeights(lambda p: p is None).eval()
    with mh.capture(model):
        model(X)
        calls = model.calls  # the comparisons of the first run
        assert model(X)["attentions"] == (False,)
    assert model.calls == calls


def test_a_recording_does_not_compute_weights() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = WithWeights(lambda p: p), WithWeights(lambda p: p)

        def forward(self, x: Tensor) -> Tensor:
            return self.two(self.one(x)["out"].flatten(2))["out"]

    model = Two().eval()
    forward = Forward(model)
    with forward.recording() as recording:
        forward.run({"x": X})
        calls = model.one.calls, model.two.calls  # the comparisons of the first run
        output = forward.run({"x": X})
        rerun = forward.rerun({recording.sites[1].key: lambda heads: heads})
    torch.testing.assert_close(rerun, output)
    assert (model.one.calls, model.two.calls) == calls


def test_a_bias_per_head_and_rows_that_see_no_key() -> None:
    """Padding on the left, with a relative position bias, as in T5."""
    config = hf.Pix2StructTextConfig(
        vocab_size=47, hidden_size=24, d_kv=8, num_heads=3, d_ff=19, num_layers=2, initializer_range=1.0,
        attn_implementation="eager",
    )  # fmt: skip
    model, mask = loud(hf.Pix2StructTextModel(config)).double(), torch.ones_like(IDS)
    mask[0, :4] = 0
    with torch.no_grad():
        outside = model(IDS, attention_mask=mask)
        with mh.capture(model):
            inside = model(IDS, attention_mask=mask)
    torch.testing.assert_close(inside.logits, outside.logits)  # padding included


def test_the_output_is_compared_once_per_model() -> None:
    model = Watched(lambda: 0.0).eval()
    for calls in (2, 3, 4):
        with mh.capture(model):
            model(X)
        assert model.calls == calls
    model.train()
    with mh.capture(model):
        model(X)
    assert model.calls == 5


def test_a_call_that_was_read_wrongly_is_an_error() -> None:
    q, k, v = (torch.randn(2, 3, n, d) for n, d in ((7, 4), (11, 4), (11, 5)))
    problem = problem_of(q, k, v, scale=0.7)
    verify_call("layer.0", problem, attend(problem))
    with pytest.raises(mh.MultiheadError, match=r"layer.0: .* differ by up to"):
        verify_call("layer.0", problem_of(q, k, v, scale=0.9), attend(problem))


def test_keys_may_be_shared_by_more_heads_than_values() -> None:
    q, k, v = (torch.randn(2, heads, 5, 4) for heads in (6, 2, 3))
    expected = F.scaled_dot_product_attention(q, k.repeat_interleave(3, 1), v.repeat_interleave(2, 1))
    torch.testing.assert_close(attend(problem_of(q, k, v)), expected)
