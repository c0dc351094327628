"""Write docs/reference/configurations.md: the sizes of the models that `mh.cost` has by name.

python tools/configurations_page.py             # write the committed page (make configurations)
python tools/configurations_page.py --out FILE  # write it elsewhere: the tests compare both
"""

from __future__ import annotations

import argparse
from pathlib import Path

import multihead as mh
from multihead.measures.cost.known_models import KnownModel, known_models

PAGE = Path(__file__).resolve().parent.parent / "docs/reference/configurations.md"
TEXT = """<!-- Written by tools/configurations_page.py from known_models.json: `make configurations`. -->

# Configurations of known models

The sizes of the attention layers of {count} models. `multihead cost NAME` counts parameters, FLOPs and bytes of
each, and `multihead cost --list` lists them.

{table}

- **Layers**: a model with several kinds of attention layers has the number of each.
- **KV heads**: fewer than heads is grouped-query attention. "latent" is multi-head latent attention, which stores
  one vector for all heads.
- **Head size**: of queries and keys / of values where they differ.
- **Context**: the tokens that a model can read.
- **Cache per token**: keys and values of all layers in 16-bit numbers, 1 KiB = 1,024 bytes. A layer with a window
  stores only the tokens of its window. Cross-attention, which stores the encoder's tokens once, is not included.
  "–": the model generates nothing.

The sizes come from [known_models.json](../../src/multihead/measures/cost/known_models.json). It names the public
file of each row and an independent source.

[Why heads have these sizes](../learn/3-how-many-heads.md) ·
[why there are fewer KV heads](../learn/5-mha-gqa-mqa-mla.md) ·
[how costs are counted](../cost.md)
"""
HEADER = ("name", "d_model", "layers", "heads", "KV heads", "head size", "context", "cache per token")


def page() -> str:
    models = known_models().values()
    lines = [HEADER, ["---"] + ["---:"] * (len(HEADER) - 1), *(_row(model) for model in models)]
    return TEXT.format(count=len(models), table="\n".join(f"| {' | '.join(line)} |" for line in lines))


def _row(model: KnownModel) -> list[str]:
    first = model.specs[0]
    kinds: dict[str, int] = {}
    for spec in model.specs:
        kinds[spec.name] = kinds.get(spec.name, 0) + spec.layers
    kv_heads = "latent" if first.latent else str(first.kv_heads)
    size = str(first.head_dim) if first.head_dim == first.value_dim else f"{first.head_dim} / {first.value_dim}"
    layers = " + ".join(f"{count} {name}".strip() for name, count in kinds.items())
    return [
        model.name,
        str(first.d_model),
        layers,
        str(first.heads),
        kv_heads,
        size,
        f"{model.context:,}",
        _cache(model),
    ]


def _cache(model: KnownModel) -> str:
    counted = mh.cost(model.name, tokens=1, dtype="bf16")
    own = [spec for spec in counted.specs if spec.causal and spec.queries == spec.keys == "tokens"]
    size = sum(counted.layer(spec).cache_bytes * spec.layers for spec in own)
    return f"{size / 1024:,.1f} KiB" if own else "–"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=PAGE, help="file to write")
    parser.parse_args().out.write_text(page(), encoding="utf-8")
