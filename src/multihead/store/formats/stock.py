"""A folder that stock transformers loads: a config whose sizes are those of the cut model.

It exists if all layers have the same heads and the architecture has a head size of its own (`head_dim`, `d_kv`), or
if only kv heads were removed.
"""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from multihead._base.plural import plural
from multihead.edit.surgery.steps import Step
from multihead.errors import MultiheadError
from multihead.layer import Groups
from multihead.model.anatomy import anatomy
from multihead.model.families import STAND_INS
from multihead.model.layer_anatomy import Anatomy
from multihead.store.example_outputs import difference, example_outputs
from multihead.store.replay import Shapes, shape_difference
from multihead.store.skeleton import TRANSFORMERS, config_of, import_transformers, skeleton
from multihead.store.snapshot import Snapshot, attention_of
from multihead.store.verify import verify_reload

_NAMES = {"num_key_value_heads": ("num_key_value_heads", "num_kv_heads")}


class StockFormat:
    """config.json and model.safetensors for `from_pretrained`, and multihead.json for `mh.load`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.model = type(snapshot.model).__name__
        """the class of transformers that loads the folder"""
        self._config: Mapping[str, Any] | None = None

    @property
    def reason(self) -> str:
        """How stock transformers loads the folder."""
        same = self.model == type(self.snapshot.model).__name__
        return "transformers loads it" + ("" if same else f" as {self.model}")

    def can(self) -> str | None:
        """Find the stock class and config that take the tensors; returns why there are none."""
        model, shapes = self.snapshot.model, self.snapshot.state.shapes
        steps = [] if self.snapshot.record is None else self.snapshot.record.steps
        if self.snapshot.config is None or self.snapshot.reason:
            return self.snapshot.reason
        if self.snapshot.origin != TRANSFORMERS:
            return f"transformers has no {self.model}: mh.load builds it"
        try:
            _check_equal_layers(steps, shapes)
            sizes = _common_sizes(anatomy(model)) if steps else {}
        except MultiheadError as error:
            return error.message
        first: str | None = None
        for cls, config in _candidates(model, self.snapshot.config, sizes):
            misfit = _misfit(cls, config, shapes)
            if misfit is None:
                self.model, self._config = cls.__name__, config
                return None
            first = first or misfit
        return first

    def write(self, folder: Path) -> None:
        self.snapshot.write(folder, "model", self._config, self.reason)

    def verify(self, folder: Path) -> str | None:
        """Compare the model in memory with those that `mh.load` and stock transformers load."""
        return verify_reload(self.snapshot, folder) or self._stock_difference(folder)

    def _stock_difference(self, folder: Path) -> str | None:
        """How the stock class computes something else than the cut model; None if it does not."""
        cls: Any = getattr(import_transformers(), self.model)
        attention = attention_of(self.snapshot.model)
        options = {"attn_implementation": attention} if attention in ("eager", "sdpa") else {}
        try:
            with _quiet():
                model, info = cls.from_pretrained(
                    folder,
                    dtype=self.snapshot.dtype,
                    use_safetensors=True,
                    local_files_only=True,
                    output_loading_info=True,
                    **options,
                )
        except (OSError, ValueError, TypeError, RuntimeError, KeyError, AttributeError) as error:
            return f"transformers does not load it: {' '.join(str(error).split())[:200]}"
        kinds = ("missing_keys", "unexpected_keys", "mismatched_keys")
        wrong = [f"{kind.replace('_', ' ')}: {key}" for kind in kinds for key in info.get(kind) or ()]
        if wrong:
            return f"transformers does not load it: {wrong[0]}"
        if self.snapshot.outputs is None:
            return "there is no example input to compare its outputs on"
        device = next((p.device for p in self.snapshot.model.parameters()), torch.device("cpu"))
        try:
            found = difference(self.snapshot.outputs, example_outputs(model.to(device)), self.snapshot.dtype)
        except MultiheadError as error:
            return f"transformers loads it and cannot run it: {error.message}"
        return None if found is None else f"transformers loads a model that computes {found}"


# ---- sizes that all layers have -----------------------------------------------------------------


def _check_equal_layers(steps: Sequence[Step], shapes: Shapes) -> None:
    """Raise unless every layer was cut to the same shapes, which names tell before the model is run."""

    def kind(name: str) -> str:
        return re.sub(r"\d+", "#", name)

    changed = {kind(f"{step.at}.{step.name}") for step in steps if step.do == "resize"}
    first: dict[str, str] = {}
    for name in (n for n in shapes if kind(n) in changed):
        other = first.setdefault(kind(name), name)
        if shapes[other] != shapes[name]:
            raise MultiheadError(
                "layers differ, and a config has one size for all: "
                f"{other} is {_times(shapes[other])}, {name} is {_times(shapes[name])}"
            )
    if any(0 in shapes[name] for name in first.values()):
        raise MultiheadError("no layer has heads, and a config cannot express that")


def _times(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


def _common_sizes(layers: Anatomy) -> dict[str, int]:
    """Heads, kv heads and head size of all layers, as a stock config has them; raises if layers differ."""
    each = {layer.name: (layer.num_heads, layer.num_kv_heads, layer.key_dim) for layer in layers}
    for layer in layers:
        heads, kv, _ = each[layer.name]
        if not kv or heads % kv or layer.groups != Groups.even(heads, kv):
            raise MultiheadError(
                f"{layer.name} has {plural(heads, 'head')} in groups of different sizes on {plural(kv, 'kv head')}"
            )
    (first, sizes), *rest = each.items()
    for name, other in rest:
        if other != sizes:
            raise MultiheadError(
                f"layers differ, and a config has one size for all: {first} has {_words(sizes)}, "
                f"{name} has {_words(other)}"
            )
    counts = {"num_attention_heads": sizes[0], "num_key_value_heads": sizes[1]}
    latent = any(layer.latent is not None for layer in layers)  # their configs have other names for head sizes
    return counts if latent else counts | {"head_dim": sizes[2]}


def _words(sizes: tuple[int, int, int]) -> str:
    return f"{plural(sizes[0], 'head')} of size {sizes[2]} on {plural(sizes[1], 'kv head')}"


# ---- classes and configs to try -----------------------------------------------------------------


def _candidates(
    model: nn.Module, config: Mapping[str, Any], sizes: Mapping[str, int]
) -> Iterator[tuple[type[nn.Module], dict[str, Any]]]:
    """Stock classes for a cut model: its own, then equal ones that have a head size in their config."""
    yield type(model), _resized(model, config, sizes)
    for row in STAND_INS if sizes else ():
        name = type(model).__name__
        other = getattr(import_transformers(), name.replace(row.of, row.classes, 1), None)
        if name.startswith(row.of) and isinstance(other, type):
            data = {**config, **row.changes, "model_type": row.model_type, "architectures": [other.__name__]}
            yield other, _resized(model, data, sizes)


def _resized(model: nn.Module, config: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    """A stock config with these sizes, under the names that the model's config has for them."""
    data, own = copy.deepcopy(dict(config)), model.config
    names: Mapping[str, str] = getattr(own, "attribute_map", {})
    for size, value in sizes.items():
        for name in _NAMES.get(size, (size,)):
            computed = isinstance(getattr(type(own), name, None), property)
            # Some models read a head_dim that their config does not define.
            if not computed and (size == "head_dim" or hasattr(own, name)):
                data[names.get(name, name)] = value
    return data


def _misfit(cls: type[nn.Module], config: Mapping[str, Any], shapes: Shapes) -> str | None:
    """Why a stock class with a config does not take tensors of these shapes; None if it does."""
    try:
        with _quiet():
            found = shape_difference(skeleton(cls, config_of(cls, config, "the config of the cut")), shapes)
    except MultiheadError as error:
        return error.message
    return None if found is None else f"transformers cannot express it: {found}"


@contextmanager
def _quiet() -> Generator[None]:
    """No progress bar and no log messages of transformers."""
    settings = import_transformers().logging
    bars, before = settings.is_progress_bar_enabled(), logging.root.manager.disable
    settings.disable_progress_bar()
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
        if bars:
            settings.enable_progress_bar()
