"""Small models that teach, and copies of them to be healed."""

from __future__ import annotations

import copy

import torch
from torch import nn
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

import multihead as mh


def bert() -> BertModel:
    torch.manual_seed(0)
    return BertModel(
        BertConfig(num_hidden_layers=2, num_attention_heads=3, hidden_size=21, intermediate_size=23, vocab_size=53,
                   initializer_range=0.3),
        add_pooling_layer=False,
    ).eval()  # fmt: skip


def gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(n_layer=2, n_head=3, n_embd=21, vocab_size=53, n_positions=31, initializer_range=0.3)
    ).eval()


def hurt(model: nn.Module) -> nn.Module:
    """A copy whose attention says less."""
    student = copy.deepcopy(model)
    with torch.no_grad():
        for layer in mh.anatomy(student):
            for w in layer.W_O:
                w.mul_(0.6)
    return student
