"""Sizes of the attention of a model whose weights are not loaded, from its config.

>>> from transformers import LlamaConfig
>>> from multihead.measures.cost.config_sizes import meta_model, sizes_without_weights
>>> config = LlamaConfig(hidden_size=96, num_attention_heads=6, num_key_value_heads=2, num_hidden_layers=3)
>>> (spec,) = sizes_without_weights(meta_model(config))
>>> spec.layers, spec.shape
(3, '6 heads of 16 on 2 kv')

The model is built on the meta device and does not run: which matrix is which follows from names and shapes alone
(the layouts of `multihead.layer._layouts`). An attention of an unknown layout is an error. With weights, the sizes
come from `anatomy`, which verifies them on a run.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import nn

from multihead._base.json_files import read_json_object
from multihead.errors import AnatomyError, MultiheadError
from multihead.layer._layouts import Layout
from multihead.measures.cost.sizes import latent_spec, visible_keys
from multihead.measures.cost.spec import Spec, merge_equal
from multihead.model.attention_modules import AttentionModules
from multihead.model.families import SIZES, layouts_of
from multihead.model.layer_labels import StackNames, is_named_cross
from multihead.model.sites import CUT

_QK_NORM = re.compile(r"\b(q|k|query|key)_?(layer)?norm")


def read_config(source: str | Path) -> Any:
    """The config whose sizes are read, of a folder or of a model on the hub; no other file is downloaded."""
    if (Path(source) / "multihead.json").is_file():
        raise MultiheadError(
            f"{source} was written by mh.save, and the config of a cut model does not hold all of its sizes",
            hint=f"mh.cost({str(source)!r})",
        )
    try:
        from transformers import AutoConfig
    except ImportError as error:
        raise MultiheadError(
            f"transformers, which reads the config of {source}, is not installed",
            hint="pip install 'multihead[hf]'",
        ) from error
    if Path(source).is_dir():
        read_json_object(Path(source) / "config.json", hint="save_pretrained of transformers writes it")
    try:
        return AutoConfig.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise MultiheadError(
            f"the config of {source} cannot be read: {_line(error)}",
            hint="pass a known name (multihead cost --list), a folder with config.json, or org/name on the hub",
        ) from error


def meta_model(config: Any) -> nn.Module:
    """The model of a config, without weights."""
    from transformers import AutoModel

    try:
        with torch.device("meta"):
            return AutoModel.from_config(config, trust_remote_code=False)
    except (ValueError, KeyError, TypeError, RuntimeError, ImportError, AttributeError) as error:
        raise MultiheadError(
            f"no model can be built from this {type(config).__name__}: {_line(error)}",
            hint="load the model and pass it: mh.cost(model)",
        ) from error


def sizes_without_weights(model: nn.Module) -> tuple[Spec, ...]:
    """One spec per kind of attention layer from a config, as `sizes_of` returns for a loaded model."""
    config: Any = getattr(model, "config", None)
    if getattr(config, "kv_lora_rank", None):
        return (latent_spec(config),)
    modules = AttentionModules.of(model).innermost
    names = StackNames([path for path, _ in model.named_modules()], modules)
    specs = [_attention_spec(model, path, module, names) for path, module in modules.items()]
    repeats = (
        config.num_hidden_layers // len(specs) if hasattr(config, "num_hidden_groups") else 1
    )  # ALBERT's layers
    return merge_equal(specs * repeats, [i < len(specs) for i in range(len(specs) * repeats)])


def _attention_spec(model: nn.Module, path: str, module: nn.Module, names: StackNames) -> Spec:
    """The sizes of one attention, from its module and the config."""
    config: Any = getattr(model, "config", None)
    cross = is_named_cross(path)
    stack, _ = names.of(path, 0, cross=cross)
    cut = getattr(module, CUT, None)
    heads = _size("heads", module, config) if cut is None else len(cut["q"]["heads"])
    prefix, layout = _layout(model, path, module)
    shapes = {x: _in_out(model.get_parameter(prefix + key), layout) for x, key in layout.weights.items()}
    (d_value, d_out), d_model = shapes["o"], shapes["q" if "q" in shapes else "qkv"][0]
    value_dim = d_value // heads
    if "qkv" in shapes:  # query heads, and as many heads of keys as of values
        key_dim, kv_heads, d_key = value_dim, (shapes["qkv"][1] // value_dim - heads) // 2, d_model
        fits = shapes["qkv"][1] == (heads + 2 * kv_heads) * key_dim
    elif "k" not in shapes:
        raise _unreadable(path, module, f"layout {layout.name} is not supported")
    else:
        key_dim = shapes["q"][1] // heads
        kv_heads, d_key = shapes["k"][1] // key_dim, shapes["k"][0]
        fits = shapes["v"][1] == kv_heads * value_dim
    head_dim = getattr(module, "head_dim", key_dim)
    if not fits or key_dim != head_dim or heads % max(kv_heads, 1):
        raise _unreadable(path, module, f"{heads} heads do not fit the shapes of its weights")
    extra = _extra_parameters(path, module, {prefix + key for key in layout.keys}, heads, kv_heads, key_dim)
    return Spec(
        d_model,
        heads,
        kv_heads,
        key_dim,
        value_dim,
        biases="".join(x for x, key in layout.biases.items() if _has(model, prefix + key)),
        d_key=d_key,
        d_out=d_out,
        extra_params=extra["in total"],
        per_head=extra["head"],
        per_kv_head=extra["kv head"],
        name=stack,
        **visible_keys(module, config, stack, cross=cross, causal=bool(getattr(model, "is_causal", False))),
    )


def _layout(model: nn.Module, path: str, module: nn.Module) -> tuple[str, Layout]:
    """Where the weights of an attention are, for its sizes: the prefix of their names, and their layout."""
    parts = path.split(".") if path else []
    for layout, up in layouts_of(module):
        prefix = "".join(f"{part}." for part in parts[: len(parts) - up])
        if up <= len(parts) and all(_has(model, prefix + key) for key in layout.weights.values()):
            return prefix, layout
    raise _unreadable(path, module, "its weights have no known layout")


def _extra_parameters(
    path: str, module: nn.Module, projections: set[str], heads: int, kv_heads: int, key_dim: int
) -> Counter[str]:
    """Sizes of an attention's parameters besides its projections: in total, per query head, per kv head."""
    extra: Counter[str] = Counter()
    for name, p in module.named_parameters():
        norm = _QK_NORM.search(name)
        if f"{path}.{name}" in projections:
            continue
        if norm is not None:
            count, kind = (heads, "head") if norm.group(1).startswith("q") else (kv_heads, "kv head")
            per_head = count > 1 and p.numel() == count * key_dim
            extra[kind if per_head else "in total"] += key_dim if per_head else p.numel()
        elif p.shape[-1] == heads:  # a sink per head, or a table of relative positions
            extra["head"] += p.numel() // heads
        elif "norm" not in name.lower():  # other norms are not part of attention
            raise _unreadable(path, module, f"{name} belongs to no known layout")
    return extra


def _size(kind: str, module: nn.Module, config: Any) -> int:
    """A size that a module or its config names; raises if none does."""
    owners = (module, getattr(module, "config", None), config)
    sizes = (getattr(owner, name, None) for owner in owners for name in SIZES[kind].split())
    size = next((size for size in sizes if isinstance(size, int) and size > 0), None)
    if size is None:
        raise AnatomyError(f"{type(module).__name__} does not name its number of heads", hint=_LOAD)
    return size


_LOAD = "load the model and pass it: mh.cost(model)"


def _has(model: nn.Module, name: str) -> bool:
    """Whether a model without weights has a parameter of this name."""
    try:
        model.get_parameter(name)
    except AttributeError:
        return False
    return True


def _in_out(weight: nn.Parameter, layout: Layout) -> tuple[int, int]:
    rows, columns = weight.shape
    return (rows, columns) if layout.transposed else (columns, rows)


def _unreadable(path: str, module: nn.Module, reason: str) -> AnatomyError:
    return AnatomyError(f"the sizes of {path} ({type(module).__name__}) cannot be read: {reason}", hint=_LOAD)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
