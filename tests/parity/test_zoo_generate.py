"""Cut decoders write the same with a cache and without one, and the cache holds the kv heads that are there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from multihead.model.head_weights import HeadWeights
from multihead.model.layer_anatomy import LayerAnatomy
from zoo import COVERING, ZOO
from zoo_cut import cut_model, layers, made, shared, uneven

ALONE = [
    name for name, entry in ZOO.items() if entry.stacks[0].name == "decoder" and "_hf" in entry.make.__qualname__
]
BOTH = ["t5", "bart", "marian", "whisper"]

pytestmark = pytest.mark.fast(*COVERING)


def headless_first(layer: LayerAnatomy, i: int) -> HeadWeights:
    return HeadWeights.of(layer).keep(range(layer.num_heads) if i else [])


def written(model: Any, name: str, **options: Any) -> Any:
    batch = ZOO[name].inputs(model)
    given = {key: x for key, x in batch.items() if not key.startswith("decoder")}
    return model.generate(
        **given, max_new_tokens=4, do_sample=False, eos_token_id=None, return_dict_in_generate=True,
        output_logits=True, **options,
    )  # fmt: skip


def same(name: str, model: Any) -> Any:
    """Written with a cache and without: equal ids, near-equal logits. The run with the cache."""
    with_cache, without = written(model, name, use_cache=True), written(model, name, use_cache=False)
    assert torch.equal(with_cache.sequences, without.sequences)
    for a, b in zip(with_cache.logits, without.logits, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5 * float(b.abs().max()), rtol=0)
    return with_cache


def test_all_decoders_of_the_zoo_are_here() -> None:
    assert len(ALONE) == 24


@pytest.mark.parametrize("name", [*ALONE, *BOTH])
def test_shared_heads_are_cached_once(name: str) -> None:
    cut = made(name, shared if any(layer.num_kv_heads > 1 for layer in layers(name)) else uneven)
    small = cut_model(name, cut)
    kept = same(name, small).past_key_values
    own = [cut[layer.path].kv_heads for layer in layers(name) if layer.site.stack in ("", "decoder")]
    assert [layer.keys.shape[1] for layer in getattr(kept, "self_attention_cache", kept).layers] == own


@pytest.mark.parametrize("name", ["gpt2", "bloom", "falcon-alibi", "llama", "gpt-oss", "t5", "whisper"])
def test_without_heads_in_the_first_layer(name: str) -> None:
    same(name, cut_model(name, made(name, headless_first)))


@pytest.mark.parametrize("how", [uneven, shared, headless_first])
@pytest.mark.parametrize("name", ["llama", "gpt2", "gpt-neox"])
def test_static_cache(name: str, how: Any) -> None:
    small = cut_model(name, made(name, how))
    static = written(small, name, cache_implementation="static")
    assert torch.equal(static.sequences, written(small, name, use_cache=False).sequences)
