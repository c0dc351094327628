"""Layouts of attention weights in checkpoints, as data, and the two ways to pack q, k and v.

The layer's layout is `split`: q_proj, k_proj, v_proj, o_proj. Any other is a `Layout`: the keys of the projections,
and for projections in one matrix the order of its rows:

- `blocks`: all of q, then all of k, then all of v, each (head, dim). With as many kv heads as query heads
  that is (3, head, dim).
- `grouped`: kv head by kv head, its group of queries, its key, its value: (kv_head, group + 2, dim). With as
  many kv heads as query heads that is (head, 3, dim), interleaved per head.

Query head h reads kv head `h // group_size` in every layout. A checkpoint written for `h % kv_heads` is read
with order="modulo", which sorts its query heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Shaped
from torch import Tensor

from multihead.errors import SizeError

Packing = Literal["blocks", "grouped"]
Order = Literal["consecutive", "modulo"]
State = dict[str, Tensor]

LETTERS = "qkvo"


@dataclass(frozen=True)
class Layout:
    """Which keys of a state dict hold which projections.

    `weights` and `biases` map letters to a key: {"q": "wq.weight"} or, packed, {"qkv": "qkv.weight"}.
    `transposed` weights are (in, out), as in GPT-2's Conv1D.
    """

    name: str
    weights: Mapping[str, str]
    biases: Mapping[str, str]
    packing: Packing = "blocks"
    transposed: bool = False
    seen: str = ""

    @property
    def keys(self) -> set[str]:
        return {*self.weights.values(), *self.biases.values()}


@dataclass(frozen=True)
class Sizes:
    """Numbers of heads and their sizes, which a state dict does not hold."""

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int

    def rows(self, letter: str) -> int:
        heads = self.heads if letter == "q" else self.kv_heads
        return heads * (self.value_dim if letter == "v" else self.key_dim)


def linears(
    name: str, modules: Mapping[str, str], seen: str = "", packing: Packing = "blocks", *, transposed: bool = False
) -> Layout:
    """A layout of the keys of modules like nn.Linear: linears("mine", {"qkv": "to_qkv", "o": "to_out"})."""
    weights = {letters: f"{module}.weight" for letters, module in modules.items()}
    biases = {letters: f"{module}.bias" for letters, module in modules.items()}
    return Layout(name, weights, biases, packing, transposed, seen)


def _split(name: str, modules: str, seen: str) -> Layout:
    return linears(name, dict(zip(LETTERS, modules.split(), strict=True)), seen)


def _packed(
    name: str, qkv: str, o: str, seen: str, packing: Packing = "blocks", *, transposed: bool = False
) -> Layout:
    return linears(name, {"qkv": qkv, "o": o}, seen, packing, transposed=transposed)


_OUT = {"o": "out_proj.weight"}
_TORCH_BIASES = {"qkv": "in_proj_bias", "o": "out_proj.bias"}
_TORCH_SPLIT = {"q": "q_proj_weight", "k": "k_proj_weight", "v": "v_proj_weight"}

_ROWS = (
    # one matrix each
    _split("split", "q_proj k_proj v_proj o_proj", "this package, Llama, Mistral, Qwen, Gemma, ViT"),
    _split("split-out_proj", "q_proj k_proj v_proj out_proj", "BART, OPT, Whisper, CLIP"),
    _split("split-self.query", "self.query self.key self.value output.dense", "BERT, RoBERTa"),
    _split("split-query", "query key value output.dense", "BERT's parts without their module names"),
    _split("split-q", "q k v o", "T5"),
    _split("split-wq", "wq wk wv wo", "Llama as first released"),
    _split("split-q_lin", "q_lin k_lin v_lin out_lin", "DistilBERT"),
    _split("split-to_q", "to_q to_k to_v to_out", "x-transformers; its grouped heads need order='modulo'"),
    _split("split-to_out.0", "to_q to_k to_v to_out.0", "diffusers, lucidrains' cross-attention"),
    # textbooks and tutorials
    _split("textbook-W_q", "W_q W_k W_v W_o", "d2l.ai and many tutorials"),
    _split("textbook-W_Q", "W_Q W_K W_V W_O", "tutorials, interpretability"),
    _split("textbook-W_query", "W_query W_key W_value out_proj", "Build a Large Language Model (From Scratch)"),
    _split("textbook-w_q", "w_q w_k w_v w_o", "tutorials"),
    _split("textbook-w_concat", "w_q w_k w_v w_concat", "tutorials"),
    _split("textbook-q_linear", "q_linear k_linear v_linear out", "tutorials"),
    _split("textbook-linears", "linears.0 linears.1 linears.2 linears.3", "The Annotated Transformer"),
    _split("textbook-fc_q", "fc_q fc_k fc_v fc_o", "tutorials"),
    # q, k, v in one matrix: blocks
    Layout("torch", {"qkv": "in_proj_weight"} | _OUT, _TORCH_BIASES, seen="nn.MultiheadAttention"),
    Layout("torch-kdim", _TORCH_SPLIT | _OUT, _TORCH_BIASES, seen="nn.MultiheadAttention with kdim or vdim"),
    _packed("packed-in_proj", "in_proj", "out_proj", "tutorials"),
    _packed("packed-qkv", "qkv", "proj", "timm, SAM"),
    _packed("packed-c_attn", "c_attn", "c_proj", "nanoGPT, StarCoder"),
    _packed("packed-Wqkv", "Wqkv", "out_proj", "MPT, DBRX"),
    _packed("packed-Wo", "Wqkv", "Wo", "ModernBERT"),
    _packed("packed-qkv_proj", "qkv_proj", "o_proj", "Phi-3"),
    _packed("packed-to_qkv", "to_qkv", "to_out.0", "lucidrains' ViT"),
    linears("packed-to_kv", {"q": "to_q", "kv": "to_kv", "o": "to_out"}, "lucidrains' Perceiver"),
    _packed("conv1d", "c_attn", "c_proj", "GPT-2", transposed=True),
    # q, k, v in one matrix: kv head by kv head
    _packed("grouped", "query_key_value", "dense", "GPT-NeoX, BLOOM, Falcon", "grouped"),
    _packed("grouped-wqkv", "wqkv", "wo", "InternLM 2", "grouped"),
)

LAYOUTS: dict[str, Layout] = {row.name: row for row in _ROWS}


def to_split(layout: Layout, state: Mapping[str, Tensor], sizes: Sizes, order: Order = "consecutive") -> State:
    """Convert a state dict to the `split` layout, bit for bit; absent biases stay absent."""
    _check_order(layout, sizes, order)
    projections: State = {}
    for kind, keys in (("weight", layout.weights), ("bias", layout.biases)):
        for letters, key in keys.items():
            if key not in state:
                continue
            rows = state[key].mT if layout.transposed and kind == "weight" else state[key]
            out = len(projections.get("o_proj.weight", rows))
            _check_rows(layout, key, rows, out if letters == "o" else sum(map(sizes.rows, letters)), sizes)
            for letter, part in zip(letters, _split_rows(rows, letters, layout, sizes), strict=True):
                projections[f"{letter}_proj.{kind}"] = part
    return {key: _to_consecutive(key, x, sizes, order).clone() for key, x in projections.items()}


def to_layout(
    layout: Layout, projections: Mapping[str, Tensor], sizes: Sizes, order: Order = "consecutive"
) -> State:
    """Convert a `split` state dict to another layout, bit for bit: the inverse of `to_split`."""
    _check_order(layout, sizes, order)
    ordered = {key: _from_consecutive(key, x, sizes, order) for key, x in projections.items()}
    state: State = {}
    for kind, keys in (("weight", layout.weights), ("bias", layout.biases)):
        for letters, key in keys.items():
            names = [f"{letter}_proj.{kind}" for letter in letters]
            parts = [ordered[name] for name in names if name in ordered]
            if not parts:
                continue
            if len(parts) < len(letters) or len({p.shape[1:] for p in parts}) > 1:
                shapes = {name: tuple(ordered[name].shape) for name in names if name in ordered}
                raise SizeError(
                    f"layout {layout.name!r} holds the {kind} of {' and '.join(letters)} in one tensor {key!r} of "
                    f"one input width, got {shapes}",
                    hint="add the missing ones (zeros for a bias), or choose layout 'split'",
                )
            rows = _join_rows(parts, letters, layout, sizes)
            state[key] = (rows.mT if layout.transposed and kind == "weight" else rows).clone(
                memory_format=torch.contiguous_format
            )
    return state


def _split_rows(rows: Tensor, letters: str, layout: Layout, sizes: Sizes) -> Sequence[Tensor]:
    """The rows of a packed weight as q, k and v, by its layout."""
    if len(letters) == 1:
        return [rows]
    if layout.packing == "blocks":
        return rows.split([sizes.rows(x) for x in letters])
    counts = _counts(letters, sizes)
    by_kv_head = rows.unflatten(0, (sizes.kv_heads, sum(counts), sizes.key_dim))
    return [part.flatten(0, 2) for part in by_kv_head.split(counts, dim=1)]


def _join_rows(parts: Sequence[Tensor], letters: str, layout: Layout, sizes: Sizes) -> Tensor:
    """The rows of q, k and v as a packed weight, by its layout."""
    if len(letters) == 1:
        return parts[0]
    if layout.packing == "blocks":
        return torch.cat(list(parts))
    counts = _counts(letters, sizes)
    by_kv_head = [p.unflatten(0, (sizes.kv_heads, n, sizes.key_dim)) for p, n in zip(parts, counts, strict=True)]
    return torch.cat(by_kv_head, dim=1).flatten(0, 2)


def _counts(letters: str, sizes: Sizes) -> list[int]:
    """The number of heads of each projection in a packed layout, per kv head."""
    if sizes.key_dim != sizes.value_dim or sizes.heads % max(sizes.kv_heads, 1):
        raise SizeError(
            f"grouped packing needs even groups and one head size, got {sizes.heads} query heads on "
            f"{sizes.kv_heads} kv heads, key size {sizes.key_dim} and value size {sizes.value_dim}",
            hint="choose a layout with separate q, k and v, or one that packs them as blocks",
        )
    return [sizes.heads // sizes.kv_heads if x == "q" else 1 for x in letters]


def modulo_heads(heads: int, kv_heads: int) -> list[int]:
    """The index of each query head (kv, g) if head h reads kv head h % kv_heads: g · kv_heads + kv."""
    group = heads // kv_heads
    return [g * kv_heads + kv for kv in range(kv_heads) for g in range(group)]


def _to_consecutive(key: str, x: Tensor, sizes: Sizes, order: Order) -> Tensor:
    return x if order == "consecutive" else _reorder_heads(key, x, sizes, modulo_heads(sizes.heads, sizes.kv_heads))


def _from_consecutive(key: str, x: Tensor, sizes: Sizes, order: Order) -> Tensor:
    """A tensor with its heads in the order of the layout, from consecutive order."""
    if order == "consecutive":
        return x
    index = modulo_heads(sizes.heads, sizes.kv_heads)
    return _reorder_heads(key, x, sizes, sorted(range(len(index)), key=index.__getitem__))


def _reorder_heads(key: str, x: Shaped[Tensor, "..."], sizes: Sizes, heads: list[int]) -> Tensor:
    """A weight of a layout, its query heads in this order (rows of W_Q, b_Q, columns of W_O); others unchanged."""
    if key in ("q_proj.weight", "q_proj.bias"):
        return x.unflatten(0, (sizes.heads, sizes.key_dim))[heads].flatten(0, 1)
    if key == "o_proj.weight":
        return x.unflatten(1, (sizes.heads, sizes.value_dim))[:, heads].flatten(1)
    return x


def _check_order(layout: Layout, sizes: Sizes, order: Order) -> None:
    """Raise unless the layout can have this order of heads."""
    if order not in ("consecutive", "modulo"):
        raise SizeError(
            f"order must be 'consecutive' or 'modulo', got {order!r}",
            hint="head h reads kv head h // group_size if consecutive, h % kv_heads if modulo",
        )
    if order == "modulo" and (layout.packing == "grouped" or sizes.heads % max(sizes.kv_heads, 1)):
        raise SizeError(
            f"order='modulo' needs even groups and a layout not packed by kv head, got layout {layout.name!r}, "
            f"{sizes.heads} query heads and {sizes.kv_heads} kv heads",
            hint="use order='consecutive'",
        )


def _check_rows(layout: Layout, key: str, rows: Tensor, need: int, sizes: Sizes) -> None:
    """Raise unless a weight has as many rows as its layout needs."""
    if rows.shape[0] != need:
        raise SizeError(
            f"{key!r} has {rows.shape[0]} rows, layout {layout.name!r} needs {need} for {sizes.heads} query heads "
            f"and {sizes.kv_heads} kv heads of key size {sizes.key_dim} and value size {sizes.value_dim}",
            hint="check num_heads, num_kv_heads and head_dim",
        )
