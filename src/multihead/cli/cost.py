"""`multihead cost`: parameters, FLOPs and bytes of the attention of a model, from its sizes alone."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multihead.cli.options import MODEL, ModelOptions, add_command
from multihead.errors import MultiheadError

if TYPE_CHECKING:
    from multihead.measures.cost.cost import Cost

_EPILOG = """examples:
  multihead cost gpt3 --tokens 2048
  multihead cost llama-3-8b --kv-heads 2    # before and after grouping
  multihead cost bert-base --heads 6        # before and after pruning
  multihead cost path/to/model --json       # reads config.json
  multihead cost Qwen/Qwen3-0.6B            # downloads config.json
  multihead cost embedded --tokens 96
"""


def add(commands: Any) -> None:
    parser = add_command(
        commands,
        "cost",
        "Count parameters, FLOPs and bytes of the attention from the sizes of a model.",
        _EPILOG,
    )
    parser.add_argument("model", nargs="?", metavar="NAME|MODEL", help=f"a known name (--list), or {MODEL}")
    parser.add_argument("--list", action="store_true", help="show the known models")
    parser.add_argument(
        "--tokens",
        type=int,
        metavar="N",
        help="length of the sequence (default: 2048, or the context if shorter)",
    )
    parser.add_argument(
        "--source", type=int, metavar="N", help="length of the encoder's sequence, where there is one"
    )
    parser.add_argument("--batch", type=int, default=1, metavar="B", help="sequences at a time (default: 1)")
    parser.add_argument("--dtype", default="bf16", help="bf16 (default), fp32, fp16, fp8, int8, …")
    parser.add_argument("--heads", type=int, metavar="H", help="compare with H query heads left in each layer")
    parser.add_argument(
        "--kv-heads", type=int, metavar="K", help="compare with the heads of each layer on K kv heads"
    )
    parser.add_argument("--json", action="store_true", help="numbers for a program")


def run(args: argparse.Namespace) -> int:
    """Print the table, or before and after."""
    from multihead.measures.cost.cost_text import listing
    from multihead.measures.cost.known_models import known_models

    if args.list:
        known = known_models().values()
        if args.json:
            _print(json.dumps({m.name: {"origin": m.origin, "checked": m.checked} for m in known}, indent=1))
        else:
            _print(listing([(m.name, m.specs) for m in known]))
        return 0
    if args.model is None:
        raise MultiheadError("multihead cost needs a model", hint="multihead cost gpt3, or multihead cost --list")
    before = after = _cost(args)
    if args.heads is not None:
        after = after.pruned(args.heads)
    if args.kv_heads is not None:
        after = after.grouped(args.kv_heads)
    result = before if after is before else before.compare(after)
    _print(json.dumps(result.to_json(), indent=1) if args.json else str(result))
    return 0


def _cost(args: argparse.Namespace) -> Cost:
    from multihead.measures.cost.cost import cost
    from multihead.sources.pretrained import EMBEDDED
    from multihead.sources.user_function import is_function

    sizes: dict[str, Any] = {name: getattr(args, name) for name in ("batch", "tokens", "source", "dtype")}
    saved = (Path(args.model) / "multihead.json").is_file()
    if args.model != EMBEDDED and not is_function(args.model) and not saved:
        return cost(args.model, **sizes)
    loaded = ModelOptions().load(args.model)  # no config describes these
    return replace(cost(loaded.model, **sizes), name=loaded.name)


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
