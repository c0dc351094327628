"""The number of tokens that a model accepts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from torch import nn
from transformers import (
    GPT2Config,
    GPT2Model,
    GPTJConfig,
    GPTJModel,
    LlamaConfig,
    LlamaModel,
    OPTConfig,
    OPTModel,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5EncoderModel,
)

from multihead.model.token_limit import learned_positions, token_limit

LAYERS = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 12, "vocab_size": 31}
OPT = OPTConfig(**LAYERS, ffn_dim=7, word_embed_proj_dim=12, max_position_embeddings=53)
LLAMA = LlamaConfig(**LAYERS, intermediate_size=7, max_position_embeddings=53)
ROBERTA = RobertaConfig(**LAYERS, intermediate_size=7, max_position_embeddings=53)
GPT = {"n_layer": 1, "n_head": 2, "n_embd": 12, "vocab_size": 31, "n_positions": 53}
T5 = T5Config(num_layers=1, num_heads=2, d_model=12, d_kv=6, vocab_size=31)


@pytest.mark.parametrize(
    ("build", "learned", "limit"),
    [
        (lambda: GPT2Model(GPT2Config(**GPT)), 53, 53),
        (lambda: RobertaModel(ROBERTA), 51, 51),
        (lambda: OPTModel(OPT), 53, 53),
        (lambda: LlamaModel(LLAMA), None, 53),
        (lambda: GPTJModel(GPTJConfig(**GPT, rotary_dim=2)), None, 53),
        (lambda: T5EncoderModel(T5), None, None),
    ],
    ids=["gpt2", "roberta", "opt", "llama", "gptj", "t5"],
)
def test_limit_of_real_models(build, learned, limit):
    """Learned positions are a hard limit, the config's a default; RoBERTa's first rows hold no position."""
    model = build()
    assert (learned_positions(model), token_limit(model)) == (learned, limit)


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        (None, None),
        (SimpleNamespace(), None),
        (SimpleNamespace(n_positions=53), 53),
        (SimpleNamespace(max_position_embeddings=None, n_positions=53), 53),
        (SimpleNamespace(max_position_embeddings=-1, n_positions=53), 53),
        (SimpleNamespace(max_position_embeddings=47, n_positions=53), 47),
        (SimpleNamespace(max_position_embeddings=0), None),
        (SimpleNamespace(max_position_embeddings="53"), None),
    ],
)
def test_limit_that_the_config_names(config, limit):
    """`n_positions` counts where the config has no `max_position_embeddings`; 0 and -1 name no limit."""
    model = nn.Linear(3, 5)
    if config is not None:
        model.config = config
    assert (learned_positions(model), token_limit(model)) == (None, limit)
