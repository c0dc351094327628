"""Attentions with the same parameters are one weight set, planned and cut as one (ALBERT has one for all layers).

>>> import torch, multihead as mh
>>> from multihead.edit.weight_sets import weight_sets
>>> block = torch.nn.TransformerEncoderLayer(12, 3, batch_first=True)
>>> model = torch.nn.TransformerEncoder(block, 2, enable_nested_tensor=False).eval()
>>> [[layer.name for layer in layers] for layers in weight_sets(mh.anatomy(model))]
[['L0'], ['L1']]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from multihead.model.layer_anatomy import LayerAnatomy

WeightSets = Sequence[Sequence[LayerAnatomy]]
"""Layers by their parameters; a set has the name of its first layer."""


def weight_sets(layers: Iterable[LayerAnatomy]) -> list[list[LayerAnatomy]]:
    """Sets of layers with the same weights, in the order of their first."""
    sets: dict[tuple[str, ...], list[LayerAnatomy]] = {}
    for layer in layers:
        sets.setdefault(tuple(part.parameter for part in layer.weights.values()), []).append(layer)
    return list(sets.values())
