"""Known model configurations: one row each, with the public file that its sizes come from.

>>> from multihead.measures.cost.configurations import CONFIGURATIONS
>>> CONFIGURATIONS["gpt3"].specs[0].shape
'96 heads of 128'

`checked` names the independent source of a row: a transformers configuration class, whose defaults a test compares
with the row, or a repository with a public copy of the configuration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches

from multihead.errors import MultiheadError
from multihead.measures.cost.spec import Latent, Spec


@dataclass(frozen=True)
class Configuration:
    """A named model: its kinds of attention layers, and its maximum sequence length."""

    name: str
    specs: tuple[Spec, ...]
    context: int
    origin: str
    checked: str
    source: int | None = None
    """length of the encoder's sequence, if the model has an encoder and a decoder"""


def configuration(name: str) -> Configuration:
    """Look up a configuration by name, ignoring case; spaces and underscores count as hyphens."""
    key = name.lower().replace(" ", "-").replace("_", "-")
    key = _ALIASES.get(key, key)
    if key not in CONFIGURATIONS:
        close = get_close_matches(key, [*CONFIGURATIONS, *_ALIASES], n=3)
        raise MultiheadError(
            f"unknown configuration {name!r}",
            hint=f"did you mean {' or '.join(close)}?" if close else "`multihead cost --list` shows all names",
        )
    return CONFIGURATIONS[key]


def _encoder(
    name: str, d_model: int, heads: int, layers: int, context: int, origin: str, checked: str
) -> Configuration:
    """Bidirectional attention with biases in every projection."""
    spec = Spec(d_model, heads, layers=layers, biases="qkvo", causal=False)
    return Configuration(name, (spec,), context, origin, checked)


def _gpt(
    name: str, d_model: int, heads: int, layers: int, context: int, origin: str, checked: str
) -> Configuration:
    spec = Spec(d_model, heads, layers=layers, biases="qkvo")
    return Configuration(name, (spec,), context, origin, checked)


def _decoder(
    name: str,
    sizes: tuple[int, int, int, int, int],
    context: int,
    origin: str,
    checked: str,
    *,
    biases: str = "",
    window: int | None = None,
    local: int | None = None,
    norm: bool = False,
    sinks: bool = False,
) -> Configuration:
    """`sizes` is d_model, heads, kv_heads, head_dim, layers; `local` layers have the window (default: all)."""
    d_model, heads, kv_heads, head_dim, layers = sizes
    spec = Spec(
        d_model,
        heads,
        kv_heads,
        head_dim,
        layers=layers,
        biases=biases,
        window=window,
        beside=2 * head_dim if norm else 0,
        per_head=1 if sinks else 0,
    )
    specs = (spec,)
    if local is not None:
        local_spec = replace(spec, layers=local, stored=local, name="local")
        global_spec = replace(spec, layers=layers - local, stored=layers - local, window=None, name="global")
        specs = (local_spec, global_spec)
    return Configuration(name, specs, context, f"config.json of {origin}", checked)


def _whisper(name: str, d_model: int, heads: int, layers: int, origin: str, checked: str) -> Configuration:
    spec = Spec(d_model, heads, layers=layers, biases="qvo", name="decoder")
    encoder = replace(spec, causal=False, queries="source", keys="source", name="encoder")
    cross = replace(spec, causal=False, keys="source", name="cross")
    return Configuration(name, (encoder, spec, cross), 448, f"config.json of {origin}", checked, source=1500)


def _t5(name: str, d_model: int, heads: int, layers: int, origin: str, checked: str) -> Configuration:
    """The first layer of each stack learns a bias per head for 32 distance buckets, which the others share."""
    spec = Spec(d_model, heads, head_dim=64, layers=layers - 1, name="decoder")
    first = replace(spec, layers=1, stored=1, per_head=32)
    encoder = {"causal": False, "queries": "source", "keys": "source", "name": "encoder"}
    cross = replace(spec, layers=layers, stored=layers, causal=False, keys="source", name="cross")
    specs = (replace(first, **encoder), replace(spec, **encoder), first, spec, cross)
    return Configuration(name, specs, 512, f"config.json of {origin}", checked, source=512)


_NANOGPT = "karpathy/nanoGPT model.py"
_LITGPT = "Lightning-AI/litgpt litgpt/config.py"
_GPT3 = "Brown et al. 2020, table 2.1, GPT-3 175B (every second layer is banded there; counted as dense)"
_DEEPSEEK = Spec(7168, 128, head_dim=192, value_dim=128, layers=61, latent=Latent(512, 64, 1536), beside=512 + 1536)

_ROWS = (
    _encoder("bert-base", 768, 12, 12, 512, "config.json of google-bert/bert-base-uncased", "BertConfig"),
    _encoder(
        "bert-large", 1024, 16, 24, 512, "config.json of google-bert/bert-large-uncased", "pmhalvor/racl compare.py"
    ),
    _encoder(
        "minilm-l6", 384, 12, 6, 512, "config.json of sentence-transformers/all-MiniLM-L6-v2", "its package on PyPI"
    ),
    _gpt("gpt2", 768, 12, 12, 1024, "config.json of openai-community/gpt2", "GPT2Config"),
    _gpt("gpt2-medium", 1024, 16, 24, 1024, "config.json of openai-community/gpt2-medium", _NANOGPT),
    _gpt("gpt2-large", 1280, 20, 36, 1024, "config.json of openai-community/gpt2-large", _NANOGPT),
    _gpt("gpt2-xl", 1600, 25, 48, 1024, "config.json of openai-community/gpt2-xl", _NANOGPT),
    _gpt("gpt3", 12288, 96, 96, 2048, _GPT3, "EleutherAI/gpt-neox configs/175B.yml"),
    _decoder("llama-2-7b", (4096, 32, 32, 128, 32), 4096, "meta-llama/Llama-2-7b-hf", "LlamaConfig"),
    _decoder("llama-2-13b", (5120, 40, 40, 128, 40), 4096, "meta-llama/Llama-2-13b-hf", _LITGPT),
    _decoder("llama-2-70b", (8192, 64, 8, 128, 80), 4096, "meta-llama/Llama-2-70b-hf", _LITGPT),
    _decoder("llama-3-8b", (4096, 32, 8, 128, 32), 8192, "meta-llama/Meta-Llama-3-8B", _LITGPT),
    _decoder("llama-3-70b", (8192, 64, 8, 128, 80), 8192, "meta-llama/Meta-Llama-3-70B", _LITGPT),
    _decoder("llama-3.1-8b", (4096, 32, 8, 128, 32), 131072, "meta-llama/Llama-3.1-8B", _LITGPT),
    _decoder("llama-3.1-70b", (8192, 64, 8, 128, 80), 131072, "meta-llama/Llama-3.1-70B", _LITGPT),
    _decoder("llama-3.1-405b", (16384, 128, 8, 128, 126), 131072, "meta-llama/Llama-3.1-405B", _LITGPT),
    _decoder("llama-3.2-1b", (2048, 32, 8, 64, 16), 131072, "meta-llama/Llama-3.2-1B", _LITGPT),
    _decoder("llama-3.2-3b", (3072, 24, 8, 128, 28), 131072, "meta-llama/Llama-3.2-3B", _LITGPT),
    _decoder(
        "mistral-7b-v0.1", (4096, 32, 8, 128, 32), 32768, "mistralai/Mistral-7B-v0.1", "MistralConfig", window=4096
    ),
    _decoder("mistral-7b-v0.3", (4096, 32, 8, 128, 32), 32768, "mistralai/Mistral-7B-v0.3", _LITGPT),
    _decoder("mixtral-8x7b", (4096, 32, 8, 128, 32), 32768, "mistralai/Mixtral-8x7B-v0.1", "MixtralConfig"),
    _decoder("mixtral-8x22b", (6144, 48, 8, 128, 56), 65536, "mistralai/Mixtral-8x22B-v0.1", _LITGPT),
    _decoder("falcon-7b", (4544, 71, 1, 64, 32), 2048, "tiiuae/falcon-7b", "FalconConfig"),
    _decoder("qwen2.5-0.5b", (896, 14, 2, 64, 24), 32768, "Qwen/Qwen2.5-0.5B", _LITGPT, biases="qkv"),
    _decoder("qwen2.5-7b", (3584, 28, 4, 128, 28), 131072, "Qwen/Qwen2.5-7B", _LITGPT, biases="qkv"),
    _decoder("qwen2.5-72b", (8192, 64, 8, 128, 80), 131072, "Qwen/Qwen2.5-72B", _LITGPT, biases="qkv"),
    _decoder("qwen3-0.6b", (1024, 16, 8, 128, 28), 40960, "Qwen/Qwen3-0.6B", _LITGPT, norm=True),
    _decoder("qwen3-8b", (4096, 32, 8, 128, 36), 40960, "Qwen/Qwen3-8B", _LITGPT, norm=True),
    _decoder("qwen3-32b", (5120, 64, 8, 128, 64), 40960, "Qwen/Qwen3-32B", _LITGPT, norm=True),
    _decoder("qwen3-235b-a22b", (4096, 64, 4, 128, 94), 40960, "Qwen/Qwen3-235B-A22B", _LITGPT, norm=True),
    _decoder("gemma-7b", (3072, 16, 16, 256, 28), 8192, "google/gemma-7b", "GemmaConfig"),
    _decoder("gemma-2-2b", (2304, 8, 4, 256, 26), 8192, "google/gemma-2-2b", "Gemma2Config", window=4096, local=13),
    _decoder("gemma-2-9b", (3584, 16, 8, 256, 42), 8192, "google/gemma-2-9b", _LITGPT, window=4096, local=21),
    _decoder("gemma-2-27b", (4608, 32, 16, 128, 46), 8192, "google/gemma-2-27b", _LITGPT, window=4096, local=23),
    _decoder(
        "gemma-3-1b", (1152, 4, 1, 256, 26), 32768, "google/gemma-3-1b-it", _LITGPT, window=512, local=22, norm=True
    ),
    _decoder(
        "gemma-3-4b", (2560, 8, 4, 256, 34), 131072, "google/gemma-3-4b-it", _LITGPT,
        window=1024, local=29, norm=True,
    ),
    _decoder(
        "gemma-3-27b", (5376, 32, 16, 128, 62), 131072, "google/gemma-3-27b-it", _LITGPT,
        window=1024, local=52, norm=True,
    ),
    Configuration(
        "deepseek-v3", (_DEEPSEEK,), 163840, "config.json of deepseek-ai/DeepSeek-V3", "DeepseekV3Config"
    ),
    _decoder("smollm2-135m", (576, 9, 3, 64, 30), 8192, "HuggingFaceTB/SmolLM2-135M", _LITGPT),
    _decoder("smollm2-1.7b", (2048, 32, 32, 64, 24), 8192, "HuggingFaceTB/SmolLM2-1.7B", _LITGPT),
    _decoder(
        "phi-3-mini", (3072, 32, 32, 96, 32), 4096, "microsoft/Phi-3-mini-4k-instruct", "Phi3Config", window=2047
    ),
    _decoder("phi-4", (5120, 40, 10, 128, 40), 16384, "microsoft/phi-4", _LITGPT),
    _decoder(
        "gpt-oss-20b", (2880, 64, 8, 64, 24), 131072, "openai/gpt-oss-20b", "EchoCog/gpt-oss-20b docs",
        biases="qkvo", window=128, local=12, sinks=True,
    ),
    _decoder(
        "gpt-oss-120b", (2880, 64, 8, 64, 36), 131072, "openai/gpt-oss-120b", "GptOssConfig",
        biases="qkvo", window=128, local=18, sinks=True,
    ),
    _whisper("whisper-tiny", 384, 6, 4, "openai/whisper-tiny", "WhisperConfig"),
    _whisper("whisper-large-v3", 1280, 20, 32, "openai/whisper-large-v3", "k2-fsa/sherpa-onnx model-info.md"),
    _encoder("vit-base", 768, 12, 12, 197, "config.json of google/vit-base-patch16-224", "ViTConfig"),
    _encoder(
        "vit-large", 1024, 16, 24, 197, "config.json of google/vit-large-patch16-224",
        "transformers convert_vit_timm_to_pytorch.py",
    ),
    _t5("t5-small", 512, 8, 6, "google-t5/t5-small", "T5Config"),
    _t5("t5-base", 768, 12, 12, "google-t5/t5-base", "KwangryeolPark/Model.Summary t5-base.md"),
    _t5("t5-large", 1024, 16, 24, "google-t5/t5-large", "KwangryeolPark/Model.Summary t5-large.md"),
)  # fmt: skip

CONFIGURATIONS: dict[str, Configuration] = {row.name: row for row in _ROWS}

_ALIASES = {
    "gpt2-small": "gpt2",
    "gpt-2": "gpt2",
    "gpt-2-small": "gpt2",
    "gpt-2-large": "gpt2-large",
    "gpt-3": "gpt3",
    "minilm": "minilm-l6",
    "llama-3-405b": "llama-3.1-405b",
    "mistral-7b": "mistral-7b-v0.1",
    "whisper-large": "whisper-large-v3",
    "vit-b": "vit-base",
    "vit-l": "vit-large",
}
