"""A folder that stock transformers loads: a config whose sizes are those of the cut model.

It exists if all layers have the same heads and the architecture has a head size of its own (`head_dim`, `d_kv`), or
if only kv heads were removed.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from multihead._base.plural import plural
from multihead.errors import MultiheadError
from multihead.layer import Groups
from multihead.model.anatomy import anatomy
from multihead.model.families import STAND_INS
from multihead.model.layer_anatomy import Anatomy
from multihead.store.example_outputs import difference, example_outputs
from multihead.store.formats.custom import verify_reload
from multihead.store.replay import Shapes, rebuild
from multihead.store.skeleton import TRANSFORMERS, import_transformers
from multihead.store.snapshot import Snapshot, attention_of

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
        if self.snapshot.config is None or self.snapshot.reason:
            return self.snapshot.reason
        if self.snapshot.origin != TRANSFORMERS:
            return f"transformers has no {self.model}: mh.load builds it"
        try:
            cut = self.snapshot.record is not None and self.snapshot.record.steps
            sizes = _common_sizes(anatomy(model)) if cut else {}
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
            return "no example input was found to compare its outputs on"
        device = next((p.device for p in self.snapshot.model.parameters()), torch.device("cpu"))
        try:
            reason = difference(self.snapshot.outputs, example_outputs(model.to(device)), self.snapshot.dtype)
        except MultiheadError as error:
            return f"transformers loads it and cannot run it: {error.message}"
        return None if reason is None else f"transformers loads a model that computes {reason}"


# ---- sizes that all layers have -----------------------------------------------------------------


def _common_sizes(layers: Anatomy) -> dict[str, int]:
    """Heads, kv heads and head size of all layers, as a stock config has them; raises if layers differ."""
    (first, sizes), *rest = ((x.name, (x.num_heads, x.num_kv_heads, x.key_dim)) for x in layers)
    for name, other in rest:
        if other != sizes:
            raise MultiheadError(
                f"layers differ, and a config has one size for all: {first} has {_words(sizes)}, "
                f"{name} has {_words(other)}"
            )
    heads, kv_heads, head_dim = sizes
    for layer in layers:
        if heads % kv_heads or layer.groups != Groups.even(heads, kv_heads):
            raise MultiheadError(
                f"{layer.name} has {plural(heads, 'head')} in groups of different sizes on "
                f"{plural(kv_heads, 'kv head')}"
            )
    counts = {"num_attention_heads": heads, "num_key_value_heads": kv_heads}
    latent = any(layer.latent is not None for layer in layers)  # their configs have other names for head sizes
    return counts if latent else counts | {"head_dim": head_dim}


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
    data, theirs = copy.deepcopy(dict(config)), model.config
    names: Mapping[str, str] = getattr(theirs, "attribute_map", {})
    for size, value in sizes.items():
        for name in _NAMES.get(size, (size,)):
            computed = isinstance(getattr(type(theirs), name, None), property)
            # Some models read a head_dim that their config does not define.
            if not computed and (size == "head_dim" or hasattr(theirs, name)):
                data[names.get(name, name)] = value
    return data


def _misfit(cls: type[nn.Module], config: Mapping[str, Any], shapes: Shapes) -> str | None:
    """Why a stock class with a config does not take tensors of these shapes; None if it does."""
    try:
        with _quiet():
            rebuild(cls, config, None, None, shapes)
    except MultiheadError as error:
        return f"transformers cannot express it: {error.message}"
    return None


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
