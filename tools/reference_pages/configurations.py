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

HEAD = """\
<!-- From src/multihead/measures/cost/known_models.json. Edit it there, then run `make reference`. -->

# Configurations of known models

The sizes of attention in well-known models. `mh.cost(name)` and `multihead cost NAME` count parameters, FLOPs and
bytes for each. First the five of every textbook:
"""
NOTES = """\
- **Layers**: of attention; in an encoder-decoder model, of the encoder, of the decoder, and of cross-attention.
- **KV heads**: fewer than the heads in grouped-query attention, 1 in multi-query, none in latent attention.
- **Head size**: of queries and keys; after a slash of values, if different.
- **Context**: the longest sequence. After a slash, the longest sequence of the encoder.
- **Cache bytes per token**: of the keys and values of all layers in bf16, `2 · layers · KV heads · 2 · head size`.
  Layers with a window stop growing at its end. Latent attention stores one vector per token instead. Models that do
  not generate text have none, and the encoder's keys are stored once.
"""


def page() -> str:
    """The text of the page."""
    models = known_models()
    five = [_row(models[name], title) for name, title in TEXTBOOK.items()]
    rest = [_row(model, name) for name, model in models.items() if name not in TEXTBOOK]
    return "\n".join([HEAD, _table(five), "## More models\n", _table(rest), "## Columns\n", NOTES])


def _table(rows: list[list[str]]) -> str:
    titles = ["model", "d_model", "layers", "heads", "KV heads", "head size", "context", "cache bytes per token"]
    lines = [titles, ["---", *["---:"] * (len(titles) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _row(model: KnownModel, title: str) -> list[str]:
    first, layers = model.specs[0], sum(spec.layers for spec in model.specs)
    kv_heads = "–" if first.latent else f"{first.kv_heads:,}"
    size = f"{first.head_dim}" if first.head_dim == first.value_dim else f"{first.head_dim}/{first.value_dim}"
    context = f"{model.context:,}" + (f" / {model.source:,}" if model.source else "")
    return [
        f"{title} (`{model.name}`)" if title != model.name else f"`{title}`",
        f"{first.d_model:,}", f"{layers}", f"{first.heads}", kv_heads, size, context, _cache(model),
    ]  # fmt: skip


def _cache(model: KnownModel) -> str:
    """Bytes that one more token adds to the cache."""
    decoded = [spec for spec in model.specs if spec.causal and spec.queries == spec.keys == "tokens"]
    total = BYTES * sum(spec.layers * spec.cache_dim for spec in decoded)
    full = BYTES * sum(spec.layers * spec.cache_dim for spec in decoded if spec.window is None)
    return "–" if not total else f"{total:,}" + (f" ({full:,} past the windows)" if full != total else "")
