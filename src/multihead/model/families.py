"""Known architectures: one row of data each, from the class that calls the kernel to the layout of its weights.

A row is a short cut, and is proven like anything else: where its layout does not fit the model at hand (a class of
the same name, a wrapped projection), the finder looks instead. Layouts live in `multihead.layer.layouts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from multihead.errors import AnatomyError, SizeError
from multihead.layer.layouts import LAYOUTS, Layout, Sizes, linears, unpack
from multihead.layer.problem import Groups
from multihead.model.finder import Projection, Slots, Storage, Trace, as_slots


@dataclass(frozen=True)
class Row:
    """Classes that keep their weights in one of these layouts, `up` modules above the one that calls the kernel."""

    classes: str
    layouts: tuple[Layout, ...]
    up: int = 0


def _row(classes: str, *layouts: str | Layout, up: int = 0) -> Row:
    return Row(classes, tuple(LAYOUTS[x] if isinstance(x, str) else x for x in layouts), up)


_ALBERT = linears("albert", {"q": "query", "k": "key", "v": "value", "o": "dense"})
_DEBERTA = linears(
    "deberta", {"q": "self.query_proj", "k": "self.key_proj", "v": "self.value_proj", "o": "output.dense"}
)

ROWS = (
    _row("MultiHeadAttention", "split"),  # ours
    _row("MultiheadAttention", "torch", "torch-kdim"),  # torch's, and our drop-in
    _row("CausalSelfAttention", "packed-c_attn"),  # nanoGPT
    # encoders
    _row("BertSelfAttention BertCrossAttention", "split-self.query", up=1),
    _row("RobertaSelfAttention RobertaCrossAttention", "split-self.query", up=1),
    _row("XLMRobertaSelfAttention CamembertSelfAttention", "split-self.query", up=1),
    _row("ElectraSelfAttention ElectraCrossAttention", "split-self.query", up=1),
    _row("DistilBertSelfAttention", "split-q_lin"),
    _row("AlbertAttention", _ALBERT),
    _row("MPNetSelfAttention", "split-q"),
    _row("DisentangledSelfAttention", _DEBERTA, up=1),
    _row("ModernBertAttention", "packed-Wo"),
    # decoders
    _row("GPT2Attention", "conv1d"),
    _row("GPTNeoSelfAttention GPTJAttention OPTAttention", "split-out_proj"),
    _row("GPTNeoXAttention BloomAttention FalconAttention", "grouped"),
    _row("LlamaAttention MistralAttention MixtralAttention", "split"),
    _row("Qwen2Attention Qwen3Attention", "split"),
    _row("GemmaAttention Gemma2Attention Gemma3Attention", "split"),
    _row("Phi3Attention", "packed-qkv_proj"),
    _row("Olmo2Attention StableLmAttention CohereAttention SmolLM3Attention GptOssAttention", "split"),
    # encoder and decoder
    _row("T5Attention", "split-q"),
    _row("BartAttention MarianAttention WhisperAttention", "split-out_proj"),
    # vision
    _row("ViTAttention DeiTAttention Dinov2Attention", "split"),
    _row("CLIPAttention SiglipAttention", "split-out_proj"),
)


@dataclass(frozen=True)
class StandIn:
    """An architecture that computes the same and says more about its heads."""

    of: str
    """how the names of the classes that it stands in for begin"""
    classes: str
    model_type: str
    changes: Mapping[str, Any]


STAND_INS = (StandIn("Llama", "Mistral", "mistral", {"sliding_window": None}),)
"""LLaMA wants hidden_size to be a multiple of its heads; Mistral without its window is LLaMA and does not."""

_BY_CLASS = {name: row for row in ROWS for name in row.classes.split()}


def recall(trace: Trace) -> Storage | None:
    """Where the heads of a known architecture live; None where it is not known, or not as it is known."""
    row = _BY_CLASS.get(type(trace.seen.call.module).__name__)
    if row is None:
        return None
    parts = trace.path.split(".") if trace.path else []
    if row.up > len(parts):
        return None
    home = "".join(f"{p}." for p in parts[: len(parts) - row.up])
    parameters = dict(trace.graph.found.model.named_parameters())
    for layout in row.layouts:
        if all(home + key in parameters for key in layout.weights.values()):
            try:
                return _read(layout, home, parameters, trace)
            except (SizeError, AnatomyError):
                return None
    return None


def _read(layout: Layout, home: str, parameters: Mapping[str, nn.Parameter], trace: Trace) -> Storage:
    problem = trace.seen.call.problem
    heads, key_dim, value_dim = problem.q.shape[1], problem.q.shape[3], problem.v.shape[3]
    axis = 1 if layout.transposed else 0
    lengths = {x: parameters[home + key].shape[axis] for x, key in layout.weights.items()}
    # Models copy kv heads before the kernel: their number is read off the weights.
    letters, length = next((x, n) for x, n in lengths.items() if "k" in x)
    rest = length - heads * key_dim * ("q" in letters)
    sizes = Sizes(heads, rest // (key_dim + value_dim * ("v" in letters)), key_dim, value_dim)
    dims = {"q": key_dim, "k": key_dim, "v": value_dim}
    weights = _places(layout, layout.weights, lengths, sizes)
    there = {x: key for x, key in layout.biases.items() if home + key in parameters}
    biases = _places(layout, there, {x: parameters[home + key].shape[0] for x, key in there.items()}, sizes)

    def slots(places: Tensor, letter: str) -> tuple[Slots, ...]:
        return tuple(as_slots(head.tolist(), home) for head in places.unflatten(0, (-1, dims[letter])))

    def projection(letter: str) -> Projection:
        key, places = weights[letter]
        bias = biases.get(letter)
        return Projection(
            home + key,
            axis,
            slots(places, letter),
            None if bias is None else home + bias[0],
            () if bias is None else slots(bias[1], letter),
        )

    columns = tuple(Slots(h * value_dim, value_dim) for h in range(heads))
    out = Projection(home + layout.weights["o"], 1 - axis, columns, None if "o" not in there else home + there["o"])
    groups = Groups.even(heads, sizes.kv_heads)
    return Storage(projection("q"), projection("k"), projection("v"), out, groups)


def _places(
    layout: Layout, keys: Mapping[str, str], lengths: Mapping[str, int], sizes: Sizes
) -> dict[str, tuple[str, Tensor]]:
    """{letter: (key, its rows)}: numbers 0, 1, … unpacked as if they were the rows."""
    keys = {x: key for x, key in keys.items() if x != "o"}
    numbered = {key: torch.arange(lengths[x]) for x, key in keys.items()}
    own = unpack(replace(layout, weights={}, biases=keys), numbered, sizes)
    return {letter: (key, own[f"{letter}_proj.bias"]) for letters, key in keys.items() for letter in letters}


SIZES = {
    "heads": "num_heads num_attention_heads n_heads n_head heads",
    "kv_heads": "num_key_value_heads num_kv_heads n_kv_heads",
    "group": "num_key_value_groups n_rep",
    "width": "all_head_size inner_dim",
}
"""The attributes in which attention modules say their sizes: query heads, kv heads, one per other, heads × size."""


@dataclass(frozen=True)
class Cutting:
    """What the code of an attention class needs to be told, beside `SIZES`, when it gets other heads."""

    sizes: Mapping[str, str] = field(default_factory=dict[str, str])
    """attributes that mean something else than their name says; `widths`: of what one packed projection holds"""
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    """fields of the config that its forward reads"""
    copies: bool = False
    """it wants as many key heads as query heads, whatever the kernel could do"""
    grouped_if: str = ""
    """attributes of which one must be true for groups to be in its own code"""
    caches_copies_if: str = ""
    """an attribute that, if true, makes its code cache a copy of every kv head for each reader"""
    selects: str = ""
    """arguments that hold numbers of all heads"""
    rows: str = ""
    """linears beside q, k and v that have rows for every query head"""
    returns: str = "o-"
    """see edit/physical/shells.py: NoHeads"""


_Z = Cutting(returns="z-")  # W_O is in another module

CUTTINGS = {
    name: cutting
    for names, cutting in (
        ("BertSelfAttention BertCrossAttention RobertaSelfAttention RobertaCrossAttention", _Z),
        ("XLMRobertaSelfAttention CamembertSelfAttention ElectraSelfAttention ElectraCrossAttention", _Z),
        ("AlbertAttention", Cutting(returns="n-")),
        ("MPNetSelfAttention", Cutting(selects="position_bias", returns="o")),
        ("DisentangledSelfAttention", Cutting(rows="pos_key_proj pos_query_proj", returns="z-")),
        ("GPT2Attention", Cutting(sizes={"split_size": "widths"})),
        ("ModernBertAttention GPTNeoXAttention OPTAttention", Cutting(copies=True)),
        ("BloomAttention", Cutting(selects="alibi", returns="r-")),
        (
            "FalconAttention",
            Cutting(
                grouped_if="new_decoder_architecture multi_query",
                caches_copies_if="new_decoder_architecture",
                selects="alibi attention_mask",
            ),
        ),
        ("Phi3Attention", Cutting(config={"num_attention_heads": "heads"})),
        ("WhisperAttention", Cutting(sizes={"num_heads": "kv_heads"})),  # only keys and values are split by it
        ("T5Attention", Cutting(returns="ob-")),
    )
    for name in names.split()
}


def cutting_of(module: nn.Module) -> Cutting | None:
    """What is known of a module's code; None: nothing, so that a cut of it has to be proven by a run."""
    name = type(module).__name__.removesuffix("WithoutHeads")  # it is given heads, or none, again
    return CUTTINGS.get(name) or (Cutting() if name in _BY_CLASS and name != "CausalSelfAttention" else None)
