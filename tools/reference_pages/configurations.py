"""The table of typical configurations: the sizes of known models, and what their KV caches take."""

from __future__ import annotations

from multihead.measures.cost.known_models import KnownModel, known_models

TEXTBOOK = {
    "bert-base": "BERT-Base",
    "bert-large": "BERT-Large",
    "gpt2": "GPT-2 Small",
    "gpt2-large": "GPT-2 Large",
    "gpt3": "GPT-3",
}
"""The five of every textbook, by their names there."""
BYTES = 2
"""of a value in the cache: bf16"""

TITLES = ("name", "d_model", "layers", "heads", "KV heads", "head size", "context", "cache bytes per token")
TEXT = """\
<!-- From src/multihead/measures/cost/known_models.json. Edit it there, then run `make reference`. -->

# Configurations of known models

The sizes of attention in {count} models. `mh.cost(name)` and `multihead cost NAME` count the parameters, FLOPs and
bytes of each.

{table}

- **Layers**: of attention; of each kind, if there are several.
- **KV heads**: fewer than the heads in grouped-query attention. Latent attention stores one vector per token, for
  all heads.
- **Head size**: of queries and keys; after a slash of values, if different.
- **Context**: the tokens that the model reads.
- **Cache bytes per token**: of the keys and values of all layers in bf16, `2 · layers · KV heads · 2 · head size`.
  A layer with a window stores only the tokens of its window. Cross-attention is excluded: it stores the encoder's
  tokens once. "–": the model does not generate text.

Each row of [known_models.json](../../src/multihead/measures/cost/known_models.json) names the public file that its
sizes come from, and an independent source.
"""


def page() -> str:
    """The text of the page."""
    models = known_models().values()
    lines = [TITLES, ["---", *["---:"] * (len(TITLES) - 1)], *map(_row, models)]
    return TEXT.format(count=len(models), table="\n".join(f"| {' | '.join(line)} |" for line in lines))


def _row(model: KnownModel) -> list[str]:
    first, title = model.specs[0], TEXTBOOK.get(model.name)
    return [
        f"`{model.name}`" + (f" ({title})" if title else ""),
        f"{first.d_model:,}",
        _layers(model),
        f"{first.heads}",
        "latent" if first.latent else f"{first.kv_heads}",
        f"{first.head_dim}" if first.head_dim == first.value_dim else f"{first.head_dim} / {first.value_dim}",
        f"{model.context:,}",
        _cache(model),
    ]


def _layers(model: KnownModel) -> str:
    """`13 local + 13 global`."""
    kinds: dict[str, int] = {}
    for spec in model.specs:
        kinds[spec.name] = kinds.get(spec.name, 0) + spec.layers
    return " + ".join(f"{count} {name}".strip() for name, count in kinds.items())


def _cache(model: KnownModel) -> str:
    """Bytes that one more token adds to the cache."""
    decoded = [spec for spec in model.specs if spec.causal and spec.queries == spec.keys == "tokens"]
    return f"{BYTES * sum(spec.layers * spec.cache_dim for spec in decoded):,}" if decoded else "–"
