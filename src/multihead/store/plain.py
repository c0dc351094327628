"""A cut model as stock transformers knows it: the config whose sizes are the cut model's, proven by loading it.

Possible where all layers have the same heads, and the architecture says the size of a head apart from its width
(`head_dim`, `d_kv`), or only kv heads became fewer. What was tried and did not fit is the reason that is given.
"""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from multihead.edit.surgery.steps import Step
from multihead.errors import MultiheadError
from multihead.layer import Groups
from multihead.model.anatomy import Anatomy, anatomy
from multihead.model.example_inputs import example_inputs
from multihead.model.families import STAND_INS
from multihead.model.forward import Forward
from multihead.store.skeleton import config_of, import_transformers, own_class, skeleton

_NAMES = {"num_key_value_heads": ("num_key_value_heads", "num_kv_heads")}

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}


@dataclass(frozen=True)
class Plain:
    """A class of transformers and the config.json with which it takes the cut weights; none: `why`."""

    model: str
    config: dict[str, Any] | None
    why: str


def plain(
    root: nn.Module, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], steps: Sequence[Step]
) -> Plain:
    """What stock transformers would have to build to take tensors of these names and shapes."""
    name, why = type(root).__name__, ""
    if own_class(name) is type(root):
        return Plain(name, None, "it is a model of multihead's own: mh.load builds it")
    if not hasattr(import_transformers(), name):
        return Plain(name, None, f"transformers has no {name}")
    try:
        _alike(steps, shapes)
        sizes = _sizes(anatomy(root)) if steps else {}
    except MultiheadError as failed:
        return Plain(name, None, failed.message)
    for cls, data in _candidates(root, config, sizes):
        misfit = _misfit(cls, data, shapes)
        if misfit is None:
            said = "transformers loads it" + ("" if cls.__name__ == name else f" as {cls.__name__}")
            return Plain(cls.__name__, data, said)
        why = why or misfit
    return Plain(name, None, why)


def _alike(steps: Sequence[Step], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """What was cut in one layer must be cut alike in all, which their names tell before anything is run."""

    def of(name: str) -> str:
        return re.sub(r"\d+", "#", name)

    changed = {of(f"{step.at}.{step.name}") for step in steps if step.do == "resize"}
    first: dict[str, str] = {}
    for name in (n for n in shapes if of(n) in changed):
        other = first.setdefault(of(name), name)
        if shapes[other] != shapes[name]:
            raise MultiheadError(
                "layers differ, and a config has one number for all: "
                f"{other} is {_by(shapes[other])}, {name} is {_by(shapes[name])}"
            )
    if any(0 in shapes[name] for name in first.values()):
        raise MultiheadError("no layer has heads left, and no config says so")


def _by(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


def _sizes(layers: Anatomy) -> dict[str, int]:
    """The numbers that all layers agree on."""
    each = {layer.name: (layer.num_heads, layer.num_kv_heads, layer.key_dim) for layer in layers}
    for layer in layers:
        heads, kv, _ = each[layer.name]
        if not kv or heads % kv or layer.groups != Groups.even(heads, kv):
            raise MultiheadError(f"{layer.name} has {heads} heads in groups of different sizes on {kv} kv heads")
    (first, sizes), *rest = each.items()
    for name, other in rest:
        if other != sizes:
            raise MultiheadError(
                f"layers differ, and a config has one number for all: {first} has {_words(sizes)}, "
                f"{name} has {_words(other)}"
            )
    counts = {"num_attention_heads": sizes[0], "num_key_value_heads": sizes[1]}
    latent = any(layer.latent is not None for layer in layers)  # whose configs say its head sizes in other words
    return counts if latent else counts | {"head_dim": sizes[2]}


def _words(sizes: tuple[int, int, int]) -> str:
    return f"{sizes[0]} heads of size {sizes[2]} on {sizes[1]} kv heads"


def _candidates(
    root: nn.Module, config: Mapping[str, Any], sizes: Mapping[str, int]
) -> Iterator[tuple[type[nn.Module], dict[str, Any]]]:
    yield type(root), _said(root, config, sizes)
    for row in STAND_INS if sizes else ():
        name = type(root).__name__
        other = getattr(import_transformers(), name.replace(row.of, row.classes, 1), None)
        if name.startswith(row.of) and isinstance(other, type):
            data = {**config, **row.changes, "model_type": row.model_type, "architectures": [other.__name__]}
            yield other, _said(root, data, sizes)


def _said(root: nn.Module, config: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    """A config that says these sizes, by the names that the model's has for them."""
    data, own = copy.deepcopy(dict(config)), root.config
    names: Mapping[str, str] = getattr(own, "attribute_map", {})
    for size, value in sizes.items():
        for name in _NAMES.get(size, (size,)):
            computed = isinstance(getattr(type(own), name, None), property)
            if not computed and (
                size == "head_dim" or hasattr(own, name)
            ):  # some read a head_dim that is not there
                data[names.get(name, name)] = value
    return data


def _misfit(cls: type[nn.Module], data: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """What is wrong with a class and a config for these shapes; None: nothing."""
    try:
        with _hushed():
            bare = skeleton(cls, config_of(cls, data, "with these heads it"))
    except MultiheadError as failed:
        return failed.message
    own = {name: tuple(t.shape) for name, t in bare.state_dict(keep_vars=True).items()}
    for name in sorted(own.keys() | shapes.keys()):
        if own.get(name) != shapes.get(name):
            return (
                f"transformers cannot express it: {cls.__name__} would have {name} {own.get(name, 'nowhere')}, "
                f"the cut model has it {shapes.get(name, 'nowhere')}"
            )
    return None


# ---- proof ------------------------------------------------------------------------------------


def proven(folder: Path, name: str, root: nn.Module) -> str | None:
    """Load a folder with stock transformers and compare what it computes; None: the same."""
    cls: Any = getattr(import_transformers(), name)
    dtype: torch.dtype = getattr(root, "dtype", torch.float32)
    attention = getattr(getattr(root, "config", None), "_attn_implementation", None)
    options = {"attn_implementation": attention} if attention in ("eager", "sdpa") else {}
    try:
        with _hushed():
            other, info = cls.from_pretrained(
                folder, dtype=dtype, use_safetensors=True, output_loading_info=True, **options
            )
        given = example_inputs(root)
        ours, theirs = _outputs(root, given), _outputs(other.to(next(root.parameters()).device), given)
    except MultiheadError as failed:
        return failed.message
    except (OSError, ValueError, TypeError, RuntimeError, KeyError, AttributeError) as failed:
        return f"transformers does not load it: {' '.join(str(failed).split())[:200]}"
    wrong = [key for what in ("missing_keys", "unexpected_keys", "mismatched_keys") for key in info.get(what) or ()]
    if wrong:
        return f"transformers does not know what to do with {wrong[0]}"
    if len(ours) != len(theirs) or not ours:
        return f"transformers gives {len(theirs)} outputs, the cut model {len(ours)}"
    apart = max(_apart(a, b) for a, b in zip(ours, theirs, strict=True))
    limit = TOLERANCE.get(dtype, 1e-5)
    return None if apart <= limit else f"loaded by transformers it computes something else, {apart:.1e} apart"


def _outputs(model: nn.Module, given: Mapping[str, Any]) -> list[Tensor]:
    output: Any = Forward(model)(given)
    parts: Any = (
        output.values() if isinstance(output, Mapping) else output if isinstance(output, tuple) else [output]
    )
    return [x for x in parts if isinstance(x, Tensor)]


def _apart(a: Tensor, b: Tensor) -> float:
    if a.shape != b.shape:
        return float("inf")
    a, b = a.double(), b.double()
    apart = float((a - b).norm() / a.norm().clamp_min(1e-30))
    return apart if apart == apart else float("inf")  # NaN is not the same


@contextmanager
def _hushed() -> Generator[None]:
    """What transformers says as it loads is not for the user."""
    said = import_transformers().logging
    bars, before = said.is_progress_bar_enabled(), logging.root.manager.disable
    said.disable_progress_bar()
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
        if bars:
            said.enable_progress_bar()
