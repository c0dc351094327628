"""`multihead cost`: parameters, FLOPs and bytes of the attention of a known configuration or of a model."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from multihead.cli.load import EMBEDDED, MODEL
from multihead.cli.sources import is_function, is_hub_name
from multihead.errors import MultiheadError

_EPILOG = """examples:
  multihead cost gpt3 --tokens 2048
  multihead cost llama-3-8b --kv-heads 2    # before and after grouping
  multihead cost bert-base --heads 6        # before and after pruning
  multihead cost path/to/model --json
  multihead cost embedded --tokens 96
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    parser = commands.add_parser(
        "cost",
        help="parameters, FLOPs and bytes of attention",
        description="Count parameters, FLOPs and bytes of the attention of a known configuration or of a model.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "model", nargs="?", metavar="NAME|MODEL", help=f"a known configuration, or a model: {MODEL}"
    )
    parser.add_argument("--list", action="store_true", help="show the known configurations")
    parser.add_argument(
        "--tokens", type=int, metavar="N", help="length of the sequence (default: 2048, if it fits)"
    )
    parser.add_argument(
        "--source", type=int, metavar="N", help="length of the encoder's sequence, where there is one"
    )
    parser.add_argument("--batch", type=int, default=1, metavar="B")
    parser.add_argument("--dtype", default="bf16", help="bf16 (default), fp32, fp16, fp8, int8, …")
    parser.add_argument("--heads", type=int, metavar="H", help="compare with H query heads left in each layer")
    parser.add_argument(
        "--kv-heads", type=int, metavar="K", help="compare with the heads of each layer on K kv heads"
    )
    parser.add_argument("--json", action="store_true", help="numbers for a program")


def run(args: argparse.Namespace) -> int:
    """Print the table, or before and after."""
    from multihead.measures.cost.configurations import CONFIGURATIONS
    from multihead.measures.cost.cost import cost
    from multihead.measures.cost.cost_text import listing

    if args.list:
        known = CONFIGURATIONS.values()
        if args.json:
            _print(json.dumps({c.name: {"origin": c.origin, "checked": c.checked} for c in known}, indent=1))
        else:
            _print(listing([(c.name, c.specs) for c in known]))
        return 0
    if args.model is None:
        raise MultiheadError(
            "multihead cost: no name and no model", hint="multihead cost gpt3, or multihead cost --list"
        )
    spec, name = args.model, None
    if Path(spec).is_dir() or spec == EMBEDDED or is_function(spec) or is_hub_name(spec):
        from multihead.cli.load import load_model

        loaded = load_model(argparse.Namespace(model=spec))
        spec, name = loaded.model, loaded.name
    found = cost(spec, batch=args.batch, tokens=args.tokens, source=args.source, dtype=args.dtype)
    if args.source is not None and all(s.queries == s.keys == "tokens" for s in found.specs):
        raise MultiheadError(
            f"--source {args.source}: {name or found.name} has no encoder beside it",
            hint=f"--tokens {args.source} is the length of its only sequence",
        )
    after = found = found if name is None else replace(found, name=name)
    if args.heads is not None:
        after = after.pruned(args.heads)
    if args.kv_heads is not None:
        after = after.grouped(args.kv_heads)
    result = found if after is found else found.compare(after)
    _print(json.dumps(result.to_json(), indent=1) if args.json else str(result))
    return 0


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
