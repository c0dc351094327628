"""Tensors in nested lists, tuples, mappings and objects."""

from __future__ import annotations

import torch
from torch import nn
from transformers import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from multihead._base.nested_tensors import CACHES, tensors_in


def test_containers_in_order():
    """Lists, tuples and mappings at any depth, a model's output among them; other values hold no tensor."""
    x = [torch.full((2,), float(i)) for i in range(5)]
    output = BaseModelOutput(last_hidden_state=x[1], hidden_states=(x[2], x[3]))
    nested = (x[0], {"out": output, "name": "abc"}, [[[[[[[[x[4]]]]]]]], None, 3])
    found = list(tensors_in(nested))
    assert [id(y) for y in found] == [id(y) for y in x]


def test_objects_as_deep_as_asked():
    """The keys and values of a cache are in objects: two deep, or three in the cache of an encoder–decoder."""
    cache = DynamicCache()
    k, v = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 5, 7)
    cache.update(k, v, 0)
    both = EncoderDecoderCache(cache, DynamicCache())

    def has(x: object, objects: int) -> bool:
        return {k.shape} <= {y.shape for y in tensors_in(x, objects=objects)}

    assert [has((cache,), objects) for objects in range(4)] == [False, False, True, True]
    assert [has((both,), objects) for objects in range(4)] == [False, False, False, True]
    assert CACHES == 3


def test_modules_are_no_values():
    """Parameters of a module in an output are not part of the output."""
    assert not list(tensors_in({"module": nn.Linear(3, 5), "kind": nn.Linear}, objects=CACHES))
