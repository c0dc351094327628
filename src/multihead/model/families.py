"""Known architectures: one row of data each, from the class that calls the kernel to the layout of its weights.

A row is a shortcut, verified like any other result: if its layout does not fit the model (a class of the same name,
a wrapped projection), the finder searches instead. Layouts are defined in `multihead.layer._layouts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from multihead.errors import AnatomyError, SizeError
from multihead.layer import Groups
from multihead.layer._layouts import LAYOUTS, Layout, Sizes, linears, to_split
from multihead.model.call_trace import Trace
from multihead.model.head_storage import Projection, Slots, Storage, as_slots


@dataclass(frozen=True)
class Family:
    """Classes and the layouts of their weights, stored `up` modules above the module that calls the kernel."""

    classes: str
    layouts: tuple[Layout, ...]
    up: int = 0


def _row(classes: str, *layouts: str | Layout, up: int = 0) -> Family:
    return Family(classes, tuple(LAYOUTS[x] if isinstance(x, str) else x for x in layouts), up)


_ALBERT = linears("albert", {"q": "query", "k": "key", "v": "value", "o": "dense"})
_DEBERTA = linears(
    "deberta", {"q": "self.query_proj", "k": "self.key_proj", "v": "self.value_proj", "o": "output.dense"}
)

ROWS = (
    _row("MultiHeadAttention", "split"),  # multihead
    _row("MultiheadAttention", "torch", "torch-kdim"),  # torch, and multihead's drop-in
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
    """An equivalent architecture with more flexible head sizes."""

    of: str
    """prefix of the class names that it replaces"""
    classes: str
    model_type: str
    changes: Mapping[str, Any]


STAND_INS = (StandIn("Llama", "Mistral", "mistral", {"sliding_window": None}),)
"""LLaMA requires that its heads divide hidden_size; Mistral without a window is LLaMA without this check."""

_BY_CLASS = {name: row for row in ROWS for name in row.classes.split()}


def layouts_of(module: nn.Module) -> list[tuple[Layout, int]]:
    """The layouts that a module's weights may have, each with `up`: the row of its class, else any but GPT-2's."""
    row = _BY_CLASS.get(type(module).__name__)
    if row is not None:
        return [(layout, row.up) for layout in row.layouts]
    return [(layout, up) for up in (0, 1) for layout in LAYOUTS.values() if not layout.transposed]


def recall(trace: Trace) -> Storage | None:
    """The storage of the heads of a known family; None if it is unknown or does not match its row."""
    row = _BY_CLASS.get(type(trace.seen.call.module).__name__)
    if row is None:
        return None
    parts = trace.path.split(".") if trace.path else []
    if row.up > len(parts):
        return None
    prefix = "".join(f"{p}." for p in parts[: len(parts) - row.up])
    parameters = dict(trace.graph.traced.model.named_parameters())
    for layout in row.layouts:
        if all(prefix + key in parameters for key in layout.weights.values()):
            try:
                return _read(layout, prefix, parameters, trace)
            except (SizeError, AnatomyError):
                return None
    return None


def _read(layout: Layout, prefix: str, parameters: Mapping[str, nn.Parameter], trace: Trace) -> Storage:
    """Where a family's layout stores the heads of an attention."""
    problem = trace.seen.call.problem
    heads, key_dim, value_dim = problem.q.shape[1], problem.q.shape[3], problem.v.shape[3]
    axis = 1 if layout.transposed else 0
    lengths = {x: parameters[prefix + key].shape[axis] for x, key in layout.weights.items()}
    # Models may copy kv heads before the kernel, so their number comes from the weights.
    letters, length = next((x, n) for x, n in lengths.items() if "k" in x)
    kv_length = length - heads * key_dim * ("q" in letters)
    sizes = Sizes(heads, kv_length // (key_dim + value_dim * ("v" in letters)), key_dim, value_dim)
    dims = {"q": key_dim, "k": key_dim, "v": value_dim}
    weights = _rows_of_letters(layout, layout.weights, lengths, sizes)
    bias_keys = {x: key for x, key in layout.biases.items() if prefix + key in parameters}
    biases = _rows_of_letters(
        layout, bias_keys, {x: parameters[prefix + key].shape[0] for x, key in bias_keys.items()}, sizes
    )

    def slots(rows: Tensor, letter: str) -> tuple[Slots, ...]:
        return tuple(as_slots(head.tolist(), prefix) for head in rows.unflatten(0, (-1, dims[letter])))

    def projection(letter: str) -> Projection:
        """Where the family stores one projection."""
        key, rows = weights[letter]
        bias = biases.get(letter)
        return Projection(
            prefix + key,
            axis,
            slots(rows, letter),
            None if bias is None else prefix + bias[0],
            () if bias is None else slots(bias[1], letter),
        )

    columns = tuple(Slots(h * value_dim, value_dim) for h in range(heads))
    out = Projection(
        prefix + layout.weights["o"], 1 - axis, columns, None if "o" not in bias_keys else prefix + bias_keys["o"]
    )
    groups = Groups.even(heads, sizes.kv_heads)
    return Storage(projection("q"), projection("k"), projection("v"), out, groups)


def _rows_of_letters(
    layout: Layout, keys: Mapping[str, str], lengths: Mapping[str, int], sizes: Sizes
) -> dict[str, tuple[str, Tensor]]:
    """The rows of q, k, v and o in a family's layout, {letter: (key, row indices)}, by unpacking 0, 1, 2, …"""
    keys = {x: key for x, key in keys.items() if x != "o"}
    indices = {key: torch.arange(lengths[x]) for x, key in keys.items()}
    rows = to_split(replace(layout, weights={}, biases=keys), indices, sizes)
    return {letter: (key, rows[f"{letter}_proj.bias"]) for letters, key in keys.items() for letter in letters}


SIZES = {
    "heads": "num_heads num_attention_heads n_heads n_head heads",
    "kv_heads": "num_key_value_heads num_kv_heads n_kv_heads",
    "group": "num_key_value_groups n_rep",
    "width": "all_head_size inner_dim",
}
"""Attributes of attention modules: query heads, kv heads, query heads per kv head, heads × size."""


@dataclass(frozen=True)
class Cutting:
    """What to change in an attention class, besides `SIZES`, when its heads change."""

    sizes: Mapping[str, str] = field(default_factory=dict[str, str])
    """attributes with an unusual meaning; `widths`: the widths in a packed projection"""
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    """config fields read by its forward"""
    copies: bool = False
    """its code requires as many key heads as query heads"""
    grouped_if: str = ""
    """attributes, one of which must be true for its code to support groups"""
    caches_copies_if: str = ""
    """an attribute that, if true, makes its code cache a copy of each kv head per query head"""
    selects: str = ""
    """arguments with an entry for every head"""
    rows: str = ""
    """other linears with rows for every query head"""
    returns: str = "o-"
    """see edit/surgery/patched_modules.py: NoHeads"""


_Z = Cutting(returns="z-")  # W_O is in a different module

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
        ("WhisperAttention", Cutting(sizes={"num_heads": "kv_heads"})),  # it splits keys and values only
        ("T5Attention", Cutting(returns="ob-")),
    )
    for name in names.split()
}


def cutting_of(module: nn.Module) -> Cutting | None:
    """The changes that a module's class needs; None if unknown, so a cut must be verified by a run."""
    name = type(module).__name__.removesuffix("WithoutHeads")  # already cut once
    return CUTTINGS.get(name) or (Cutting() if name in _BY_CLASS and name != "CausalSelfAttention" else None)
