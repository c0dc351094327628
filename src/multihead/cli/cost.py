"""`multihead cost`: parameters, FLOPs and bytes of the attention of a model, from its sizes alone."""

from __future__ import annotations

from dataclasses import dataclass

from multihead.cli.options import JsonOptions, Options, option, positional
from multihead.errors import MultiheadError
from multihead.sources.pretrained import SOURCES

EXAMPLES = """examples:
  multihead cost gpt3 --tokens 2048
  multihead cost llama-3-8b --kv-heads 2    # before and after grouping
  multihead cost path/to/model --json       # reads config.json
"""


@dataclass(frozen=True, kw_only=True)
class SizeOptions(Options):
    """Of `multihead.cost`."""

    tokens: int | None = option(
        None, "length of the sequence (default: 2048, or the context if shorter)", metavar="N"
    )
    source: int | None = option(None, "length of the encoder's sequence, where there is one", metavar="N")
    batch: int = option(1, "sequences at a time", metavar="B")
    dtype: str = option("bf16", "bf16, fp32, fp16, fp8, int8, …")


@dataclass(frozen=True, kw_only=True)
class CostOptions(SizeOptions, JsonOptions):
    """Count parameters, FLOPs and bytes of the attention from the sizes of a model."""

    model: str | None = positional(f"a known name (--list), or {SOURCES}", default=None, metavar="NAME|MODEL")
    heads: int | None = option(None, "compare with H query heads left in each layer", metavar="H")
    kv_heads: int | None = option(None, "compare with the heads of each layer on K kv heads", metavar="K")
    list: bool = option(False, "show the known models")


OPTIONS = CostOptions


def run(options: CostOptions) -> int:
    """Run `multihead cost`: print the costs, those before and after, or the known models."""
    if options.list:
        from multihead.measures.cost.cost_text import known_models_text
        from multihead.measures.cost.known_models import known_models

        known = known_models().values()
        rows = {m.name: {"origin": m.origin, "checked": m.checked} for m in known}
        options.print(known_models_text([(m.name, m.specs) for m in known]), rows)
        return 0
    if options.model is None:
        raise MultiheadError("multihead cost needs a model", hint="multihead cost gpt3, or multihead cost --list")
    from multihead.sources.model_cost import cost

    before = after = cost(options.model, **options.arguments(SizeOptions))
    if options.heads is not None:
        after = after.pruned(options.heads)
    if options.kv_heads is not None:
        after = after.grouped(options.kv_heads)
    result = before if after is before else before.compare(after)
    options.print(str(result), result.to_json())
    return 0
