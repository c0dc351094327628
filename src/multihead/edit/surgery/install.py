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
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from multihead.corpus.run import Runner
from multihead.edit.surgery.layout import contiguous
from multihead.edit.surgery.record import remember
from multihead.edit.surgery.steps import Step
from multihead.edit.surgery.structure import Attention
from multihead.edit.surgery.trial import put, try_strategies
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.layer import Groups
from multihead.model.compiled import inner
from multihead.model.families import Cutting, cutting_of
from multihead.model.forward import Forward
from multihead.model.head_weights import HeadWeights
from multihead.model.layer_anatomy import LayerAnatomy


def install(
    model: nn.Module,
    layer: LayerAnatomy,
    new: HeadWeights,
    *,
    inputs: Mapping[str, Any] | tuple[Any, ...] | Tensor | None = None,
    run: Runner = Forward.run,
) -> list[Step]:
    """Give this attention of `model` these heads, in place; returns the steps that changed the structure.

    `layer` may be of a copy of the model, also of an uncut one. Heads are stored by kv head, see `arranged`: column
    i of W_O is that of arranged head i // value_dim. A module whose code is unknown is tried on `inputs`, the
    arguments of the model, or on made-up ones; `run` runs the model on them.
    """
    root = inner(model)
    _check_sizes(layer, new)
    new = arranged(new)
    _check_weights(root, layer)
    cutting = cutting_of(root.get_submodule(layer.path))
    attention = Attention(root, layer, new, cutting or Cutting())
    if cutting is None:
        done = try_strategies(attention, inputs, run)
    else:
        done = put(root, attention.structure(attention.ways()[0]))
    remember(root, done)
    return done


def arranged(new: HeadWeights) -> HeadWeights:
    """The heads to install with those of one kv head side by side, the order in which they are stored."""
    if contiguous(new.groups):
        return new
    order = sorted(range(new.heads), key=lambda h: new.groups.kv_of_head[h])
    return replace(
        new,
        q=new.q[order],
        o=new.o[order],
        b_q=None if new.b_q is None else new.b_q[order],
        g=None if new.g is None else new.g[order],
        b_g=None if new.b_g is None else new.b_g[order],
        groups=Groups(tuple(new.groups.kv_of_head[h] for h in order), new.groups.kv_heads),
        origin=tuple(new.origin[h] for h in order),
    )


def _check_weights(root: nn.Module, layer: LayerAnatomy) -> None:
    """Raise unless the weights to install heads in are plain numbers of this attention alone.

    A module that is used several times is one; two modules that share a weight are two.
    """
    owners = {
        f"{path}.{leaf}".lstrip("."): (module, p)
        for path, module in root.named_modules(remove_duplicate=False)
        for leaf, p in module.named_parameters(recurse=False, remove_duplicate=False)
    }
    for name in sorted(layer.parameters):
        if name not in owners:
            raise _missing(root, layer, name, set(owners))
        home, own = owners[name]
        if type(own) is not nn.Parameter or not own.is_floating_point():
            raise TypeMismatchError(
                f"{layer.path}: {name} is a {type(own).__name__} of {own.dtype}, whose rows cannot be cut",
                hint="cut the model before it is quantised, then quantise the cut model",
            )
        other = next((n for n, (module, p) in owners.items() if p is own and module is not home), None)
        if other is not None:
            raise MultiheadError(
                f"{layer.path}: {name} is also {other}: what one loses, the other would lose too",
                hint="separate their weights first: m.weight = nn.Parameter(m.weight.clone())",
            )


def _missing(root: nn.Module, layer: LayerAnatomy, name: str, there: set[str]) -> MultiheadError:
    """The error for weights to install heads in that are wrapped by something else."""
    path, _, leaf = name.rpartition(".")
    wrapped = f"{path}.base_layer.{leaf}"
    inside = min((n for n in there if n.startswith(f"{path}.")), key=lambda n: n != wrapped, default=None)
    if inside is not None:
        return MultiheadError(
            f"{layer.path}: {type(root).__name__} has {inside} instead of {name}: something is wrapped around it",
            hint="merge adapters (LoRA) into the weights first: model.merge_and_unload(); remove parametrizations",
        )
    return MultiheadError(
        f"{type(root).__name__} has no parameter {name}, which {layer.name} ({layer.path}) is made of",
        hint="the layer must be of this model, or of a model that this one is a copy of",
    )


def _check_sizes(layer: LayerAnatomy, new: HeadWeights) -> None:
    """Raise unless the heads to install have the sizes of the layer's."""
    own = (layer.key_dim, layer.value_dim)
    if (new.q.shape[1], new.v.shape[1]) != own:
        raise SizeError(
            f"{layer.name} ({layer.path}): heads of size {new.q.shape[1]} and {new.v.shape[1]} were given, "
            f"its heads have {own[0]} (query and key) and {own[1]} (value)",
            hint="pass heads of the same size",
        )
    if len(new.groups.kv_of_head) != new.heads or new.groups.kv_heads != new.kv_heads:
        raise SizeError(
            f"{layer.name}: groups are of {len(new.groups.kv_of_head)} heads on {new.groups.kv_heads} kv heads, "
            f"the weights of {new.heads} on {new.kv_heads}",
            hint="groups.kv_of_head says for every query head which kv head it reads",
        )
    for letter in "qkvo":
        given: Tensor | None = getattr(new, f"b_{letter}")
        if given is not None and layer.weights[letter].bias is None and bool((given != 0).any()):
            raise SizeError(
                f"{layer.name} ({layer.path}): a bias of {letter} was given, the layer has none",
                hint="add a bias to the projection first, or fold it into another one",
            )
