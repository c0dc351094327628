"""The attention modules of transformers, with their weights copied by hand: same outputs, weights and gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import multihead as mh
from multihead import cache, mask, position
from multihead.layer import QKNorm, Sinks

transformers = import_module("transformers")

BATCH, TOKENS = 2, 11
LENGTHS = [11, 5]


@dataclass
class Pair:
    """One of theirs and one of ours with the same weights."""

    theirs: Callable[[Tensor, Tensor], tuple[Tensor, Tensor | None]]  # (x, what is added to the scores)
    module: nn.Module
    ours: mh.MultiHeadAttention
    width: int


def loud(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Logits with a standard deviation above 1: a tiny random module has a flat softmax otherwise."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 1:
                parameter.copy_(1 + 0.3 * torch.randn(parameter.shape))
            else:
                parameter.normal_(std=1.5 / parameter.shape[-1] ** 0.5)
    return module.to(dtype)


def copied(ours: mh.MultiHeadAttention, weights: dict[str, Tensor]) -> mh.MultiHeadAttention:
    ours.load_state_dict({name: w.detach().clone() for name, w in weights.items()})
    return ours


def turns(dim: int, base: float, dtype: torch.dtype, *, twice: bool = True) -> tuple[Tensor, Tensor]:
    """cos and sin as the modules take them, (1, token, dim): both halves alike."""
    angles = torch.arange(TOKENS).to(dtype)[:, None] * base ** (-torch.arange(0, dim, 2).to(dtype) / dim)
    angles = torch.cat([angles, angles], -1) if twice else angles
    return angles.cos()[None], angles.sin()[None]


def of_names(module: nn.Module, names: dict[str, str]) -> dict[str, Tensor]:
    state = module.state_dict()
    return {mine: state[theirs] for mine, theirs in names.items()}


SPLIT = {f"{n}_proj.weight": f"{n}_proj.weight" for n in "qkvo"}


def llama(dtype: torch.dtype) -> Pair:
    from transformers.models.llama.modeling_llama import LlamaAttention

    config = transformers.LlamaConfig(
        hidden_size=24, num_attention_heads=6, num_key_value_heads=2, head_dim=8, rope_theta=500.0
    )
    config._attn_implementation = "sdpa"
    module = loud(LlamaAttention(config, 0), dtype)
    ours = mh.MultiHeadAttention(
        24, 6, num_kv_heads=2, head_dim=8, bias=False, position=position.Rotary(500.0), dtype=dtype
    )
    turn = turns(8, 500.0, dtype)
    return Pair(lambda x, added: module(x, turn, added), module, copied(ours, of_names(module, SPLIT)), 24)


def qwen3(dtype: torch.dtype) -> Pair:
    from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention

    config = transformers.Qwen3Config(
        hidden_size=26, num_attention_heads=6, num_key_value_heads=3, head_dim=10, rms_norm_eps=1e-6
    )
    config._attn_implementation = "sdpa"
    module = loud(Qwen3Attention(config, 0), dtype)
    ours = mh.MultiHeadAttention(
        26, 6, num_kv_heads=3, head_dim=10, bias=False, position=position.Rotary(), qk_norm=QKNorm(eps=1e-6),
        dtype=dtype,
    )  # fmt: skip
    names = SPLIT | {f"{n}_norm.weight": f"{n}_norm.weight" for n in "qk"}
    turn = turns(10, 10_000.0, dtype)
    return Pair(lambda x, added: module(x, turn, added), module, copied(ours, of_names(module, names)), 26)


def gemma2(dtype: torch.dtype) -> Pair:
    from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention

    config = transformers.Gemma2Config(
        hidden_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=6, query_pre_attn_scalar=17,
        attn_logit_softcapping=2.5,
    )  # fmt: skip
    config._attn_implementation = "eager"  # sdpa would leave the softcap out
    module = loud(Gemma2Attention(config, 0), dtype)
    ours = mh.MultiHeadAttention(
        24, 4, num_kv_heads=2, head_dim=6, bias=False, position=position.Rotary(), scale=17**-0.5, softcap=2.5,
        dtype=dtype,
    )  # fmt: skip
    turn = turns(6, 10_000.0, dtype)
    return Pair(
        lambda x, added: module(x, position_embeddings=turn, attention_mask=added),
        module,
        copied(ours, of_names(module, SPLIT)),
        24,
    )


def gpt_oss(dtype: torch.dtype) -> Pair:
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention

    config = transformers.GptOssConfig(
        hidden_size=26, num_attention_heads=6, num_key_value_heads=2, head_dim=8, attention_bias=True
    )
    config._attn_implementation = "eager"
    module = loud(GptOssAttention(config, 0), dtype)
    ours = mh.MultiHeadAttention(
        26, 6, num_kv_heads=2, head_dim=8, position=position.Rotary(), sinks=Sinks(), dtype=dtype
    )
    names = SPLIT | {f"{n}_proj.bias": f"{n}_proj.bias" for n in "qkvo"} | {"sink_logits": "sinks"}
    turn = turns(8, 10_000.0, dtype, twice=False)
    return Pair(lambda x, added: module(x, turn, added), module, copied(ours, of_names(module, names)), 26)


def gpt2(dtype: torch.dtype) -> Pair:
    from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

    config = transformers.GPT2Config(n_embd=30, n_head=5, attn_pdrop=0.0, resid_pdrop=0.0)
    config._attn_implementation = "sdpa"
    module = loud(GPT2Attention(config, layer_idx=0), dtype)
    state = module.state_dict()
    weights = {"o_proj.weight": state["c_proj.weight"].T, "o_proj.bias": state["c_proj.bias"]}
    for name, weight, bias in zip(
        "qkv", state["c_attn.weight"].T.chunk(3), state["c_attn.bias"].chunk(3), strict=True
    ):
        weights |= {f"{name}_proj.weight": weight, f"{name}_proj.bias": bias}
    ours = copied(mh.MultiHeadAttention(30, 5, dtype=dtype), weights)
    return Pair(lambda x, added: module(x, attention_mask=added)[:2], module, ours, 30)


def bert(dtype: torch.dtype) -> Pair:
    from transformers.models.bert.modeling_bert import BertAttention

    config = transformers.BertConfig(
        hidden_size=30, num_attention_heads=5, attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0
    )
    config._attn_implementation = "sdpa"
    module = loud(BertAttention(config), dtype)
    theirs = {"q": "self.query", "k": "self.key", "v": "self.value", "o": "output.dense"}
    names = {f"{n}_proj.{part}": f"{t}.{part}" for n, t in theirs.items() for part in ("weight", "bias")}
    ours = copied(mh.MultiHeadAttention(30, 5, dtype=dtype), of_names(module, names))

    def run(x: Tensor, added: Tensor) -> tuple[Tensor, Tensor | None]:
        context, weights = module.get_submodule("self")(x, added)
        return module.get_submodule("output.dense")(context), weights

    return Pair(run, module, ours, 30)


def t5(dtype: torch.dtype, *, decoder: bool) -> Pair:
    from transformers.models.t5.modeling_t5 import T5Attention

    config = transformers.T5Config(
        d_model=26, d_kv=7, num_heads=5, relative_attention_num_buckets=9 if decoder else 10,
        relative_attention_max_distance=12, dropout_rate=0.0,
    )  # fmt: skip
    config.is_decoder = decoder
    config._attn_implementation = "sdpa"
    module = loud(T5Attention(config, has_relative_attention_bias=True, layer_idx=0), dtype)
    bias = position.RelativeBias(
        5, buckets=config.relative_attention_num_buckets, max_distance=12, bidirectional=not decoder, dtype=dtype
    )
    ours = mh.MultiHeadAttention(26, 5, head_dim=7, bias=False, scale=1.0, position=bias, dtype=dtype)
    names = {f"{n}_proj.weight": f"{n}.weight" for n in "qkvo"}
    names["position.weight"] = "relative_attention_bias.weight"
    return Pair(
        lambda x, added: (module(x, mask=added)[0], None), module, copied(ours, of_names(module, names)), 26
    )


MODULES: dict[str, Callable[[torch.dtype], Pair]] = {
    "Llama": llama,
    "Qwen3": qwen3,
    "Gemma2": gemma2,
    "GPT-OSS": gpt_oss,
    "GPT-2": gpt2,
    "BERT": bert,
    "T5 encoder": lambda dtype: t5(dtype, decoder=False),
    "T5 decoder": lambda dtype: t5(dtype, decoder=True),
}

MASKS: dict[str, tuple[Callable[[], mask.Mask], Callable[[Tensor, Tensor, Tensor], Tensor]]] = {
    "full": (mask.everything, lambda b, q, k: k >= 0),
    "causal": (mask.causal, lambda b, q, k: k <= q),
    "padded": (lambda: mask.lengths(LENGTHS), lambda b, q, k: k < torch.tensor(LENGTHS)[b]),
    "causal window": (lambda: mask.causal() & mask.window(4), lambda b, q, k: (k <= q) & (k > q - 4)),
}


def added(kind: str, dtype: torch.dtype) -> Tensor:
    """Their mask: a large negative number where a key is hidden."""
    b, q, k = torch.arange(BATCH)[:, None, None], torch.arange(TOKENS)[:, None], torch.arange(TOKENS)
    sees = MASKS[kind][1](b, q, k).expand(BATCH, TOKENS, TOKENS)
    return torch.zeros(sees.shape, dtype=dtype).masked_fill(~sees, torch.finfo(dtype).min)[:, None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("name", MODULES)
def test_same_numbers_and_gradients(name: str, kind: str, dtype: torch.dtype) -> None:
    pair = MODULES[name](dtype)
    x = torch.randn(BATCH, TOKENS, pair.width, dtype=dtype, requires_grad=True)
    want, weights = pair.theirs(x, added(kind, dtype))
    got = pair.ours(x, mask=MASKS[kind][0](), ask="weights")
    # Gemma takes its softmax and Qwen its norm in float32, whatever the dtype.
    close = {"rtol": 1e-5, "atol": 1e-5} if name in ("Gemma2", "Qwen3") else {}
    assert_close(got.out, want, **close)
    if weights is not None:
        assert_close(got.weights, weights, **close)
    towards = torch.randn_like(want) / want.numel() ** 0.5
    (mine,) = torch.autograd.grad((got.out * towards).sum(), x)
    (theirs,) = torch.autograd.grad((want * towards).sum(), x)
    assert_close(mine, theirs, **close)


@pytest.mark.parametrize("name", ["Llama", "Qwen3", "Gemma2", "GPT-OSS", "GPT-2", "T5 decoder"])
def test_decoding_with_a_cache_is_their_full_pass(name: str) -> None:
    pair = MODULES[name](torch.float32)
    x = torch.randn(BATCH, TOKENS, pair.width)
    with torch.no_grad():
        want, _ = pair.theirs(x, added("causal", torch.float32))
        kept = cache.Growing()
        outs = [pair.ours(part, mask=mask.causal(), cache=kept) for part in x.split([4, 1, 1, 5], dim=1)]
    assert_close(torch.cat(outs, 1), want)


def test_llama_with_its_own_rotary_module_far_from_the_start() -> None:
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    pair = llama(torch.float32)
    config = pair.module.config
    at = torch.arange(TOKENS) + 3000
    x = torch.randn(BATCH, TOKENS, pair.width)
    turn = LlamaRotaryEmbedding(config)(x, at[None])
    want, _ = pair.module(x, turn, added("causal", torch.float32))
    base = config.rope_parameters["rope_theta"]
    pair.ours.position = position.Rotary(base, angle_dtype=torch.float32)
    assert_close(pair.ours(x, mask=mask.causal(), positions=at), want)


def test_their_parameters_and_ours_are_as_many() -> None:
    for name, make in MODULES.items():
        pair = make(torch.float32)
        theirs: Any = {n: p.numel() for n, p in pair.module.named_parameters() if "LayerNorm" not in n}
        assert sum(theirs.values()) == sum(p.numel() for p in pair.ours.parameters()), name
