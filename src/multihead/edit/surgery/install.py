"""Give an attention of a model other heads: fewer, shared, uneven from layer to layer, or none.

>>> import torch, multihead as mh
>>> from multihead.edit.surgery.install import install
>>> from multihead.model.head_weights import HeadWeights
>>> from transformers import BertConfig, BertModel
>>> model = BertModel(BertConfig(vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=3)).eval()
>>> layer = mh.anatomy(model)[1]
>>> _ = install(model, layer, HeadWeights.of(layer).keep([0, 2]))
>>> [x.num_heads for x in mh.anatomy(model)]
[3, 2]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from multihead.corpus.run import Runner
from multihead.edit.surgery.head_order import contiguous
from multihead.edit.surgery.record import remember
from multihead.edit.surgery.steps import Step
from multihead.edit.surgery.structure import Attention, Structure
from multihead.edit.surgery.trial import put, try_strategies
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.model.compiled import inner
from multihead.model.families import Cutting, cutting_of
from multihead.model.forward import Forward
from multihead.model.head_weights import HeadWeights
from multihead.model.layer_anatomy import LayerAnatomy


@dataclass(frozen=True)
class InstalledHeads:
    """The heads that a model has in one attention: their weights may change, their number may not."""

    model: nn.Module
    weights: HeadWeights
    structure: Structure
    steps: list[Step]
    """those that changed the structure"""

    def write(self, weights: HeadWeights) -> None:
        """Install other weights for the same heads."""
        with torch.no_grad():
            for name, stored in self.structure.weights.items():
                self.model.get_parameter(name).copy_(stored(weights))


def install(
    model: nn.Module,
    layer: LayerAnatomy,
    new: HeadWeights,
    *,
    inputs: Mapping[str, Any] | tuple[Any, ...] | Tensor | None = None,
    run: Runner = Forward.run,
) -> InstalledHeads:
    """Give this attention of `model` these heads, in place.

    `layer` may be of a copy of the model. Heads are stored by kv head, see `arranged`: column i of W_O belongs to
    arranged head i // value_dim. A module of unknown code is tried on `inputs`, the arguments of the model, or on
    made-up ones; `run` runs the model on them.
    """
    root = inner(model)
    _check_shapes(layer, new)
    new = arranged(new)
    _check_weights(root, layer)
    cutting = cutting_of(root.get_submodule(layer.path))
    attention = Attention(root, layer, new, cutting or Cutting())
    if cutting is None:
        structure, steps = try_strategies(attention, inputs, run)
    else:
        structure = attention.structure(attention.ways()[0])
        steps = put(root, structure, new)
    remember(root, steps)
    return InstalledHeads(root, new, structure, steps)


def arranged(new: HeadWeights) -> HeadWeights:
    """The heads to install with those of one kv head side by side, the order in which they are stored."""
    if contiguous(new.groups):
        return new
    order = sorted(range(new.heads), key=lambda h: new.groups.kv_of_head[h])
    return new.keep(order)


def _check_weights(root: nn.Module, layer: LayerAnatomy) -> None:
    """Raise unless the weights to install heads in are floating-point parameters of this attention alone.

    A module that is used several times is one; two modules that share a weight are two.
    """
    owners = {
        f"{path}.{leaf}".lstrip("."): (module, p)
        for path, module in root.named_modules(remove_duplicate=False)
        for leaf, p in module.named_parameters(recurse=False, remove_duplicate=False)
    }
    for name, uncut in sorted(layer.parameters.items()):
        if name not in owners:
            raise _missing(root, layer, name, set(owners))
        home, parameter = owners[name]
        if type(parameter) is not nn.Parameter or not parameter.is_floating_point():
            kind = f"{type(parameter).__name__} of {parameter.dtype}"
            raise TypeMismatchError(
                f"{layer.where}: {name} is a {kind}, whose rows cannot be cut",
                hint="cut the model before it is quantised, then quantise the cut model",
            )
        if parameter.shape != uncut.shape:
            raise SizeError(
                f"{layer.where}: {name} must have shape {tuple(uncut.shape)}, as when mh.anatomy found "
                f"{layer.name}, got {tuple(parameter.shape)}",
                hint="call mh.anatomy on the cut model",
            )
        other = next((n for n, (module, p) in owners.items() if p is parameter and module is not home), None)
        if other is not None:
            raise MultiheadError(
                f"{layer.where}: {name} is also {other}, which would lose the same heads",
                hint="separate their weights first: m.weight = nn.Parameter(m.weight.clone())",
            )


def _missing(root: nn.Module, layer: LayerAnatomy, name: str, there: set[str]) -> MultiheadError:
    """The error for weights to install heads in that are wrapped by something else."""
    path, _, leaf = name.rpartition(".")
    wrapped = f"{path}.base_layer.{leaf}"
    inside = min((n for n in there if n.startswith(f"{path}.")), key=lambda n: n != wrapped, default=None)
    if inside is not None:
        return MultiheadError(
            f"{layer.where}: {type(root).__name__} has {inside} instead of {name}: something is wrapped around it",
            hint="merge adapters (LoRA) into the weights first: model.merge_and_unload(); remove parametrizations",
        )
    return MultiheadError(
        f"{type(root).__name__} has no parameter {name}, which {layer.where} is made of",
        hint="the layer must be of this model, or of a model that this one is a copy of",
    )


def _check_shapes(layer: LayerAnatomy, new: HeadWeights) -> None:
    """Raise unless the heads to install have the layer's head size, and no bias where it has none."""
    sizes, needed = (new.q.shape[1], new.v.shape[1]), (layer.key_dim, layer.value_dim)
    if sizes != needed:
        raise SizeError(
            f"{layer.where}: heads must have sizes {needed} of keys and values, got {sizes}",
            hint="pass heads of the same size",
        )
    for letter in "qkvo":
        bias: Tensor | None = getattr(new, f"b_{letter}")
        if bias is not None and layer.weights[letter].bias is None and bool((bias != 0).any()):
            raise SizeError(
                f"{layer.where}: a bias of {letter} was given, the layer has none",
                hint="add a bias to the projection first, or fold it into another one",
            )
