"""`multihead curve MODEL`: quality against heads kept, for several methods, as a picture, a table or JSON."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from multihead.cli.console import duration, out, write_json
from multihead.cli.cutting import METHODS, Work, about, add_text, bar, check_numbers, read, speaker
from multihead.cli.load import Loaded, add_model, load_model, one_sequence
from multihead.cli.texts import in_english
from multihead.errors import MultiheadError

_EPILOG = """examples:
  multihead curve minilm --calib text.txt --text held_out.txt -o curve.png
  multihead curve minilm --calib text.txt --at 0.75,0.5,0.25 --method obs --method random

Every point is a real cut with a refit, checked on held-out text: --text, or a quarter of the calibration
documents."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    parser = commands.add_parser(
        "curve",
        help="quality against heads kept, for several methods: where is the knee?",
        description="Cut a model at several sizes by several methods, and draw the quality of each cut.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model(parser)
    group = parser.add_argument_group("the curve")
    group.add_argument(
        "--at", metavar="0.75,0.5", default="0.875,0.75,0.625,0.5,0.375,0.25", help="shares of heads kept"
    )
    group.add_argument(
        "--method", action="append", choices=METHODS, help="may be repeated (default: obs, fisher, random)"
    )
    group.add_argument("--no-refit", action="store_true", help="leave the remaining weights unchanged")
    group.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    group.add_argument(
        "-o",
        "--out",
        type=Path,
        default=Path("curve.png"),
        metavar="FILE",
        help=".png or .svg (default: curve.png)",
    )
    group.add_argument("--force", action="store_true", help="overwrite FILE")
    group.add_argument("--json", action="store_true", help="print JSON instead of the table")
    group.add_argument("--quiet", action="store_true", help="no progress, no notes")
    add_text(
        parser, "--calib", title="calibration text (default: a sample in English; embedded: in its own language)",
        what="text like the text that the model will read: .txt, .jsonl or a folder of them; may be repeated",
    )  # fmt: skip
    parser.add_argument("--text", action="append", default=[], metavar="FILE|DIR", help="held-out text to check on")


def run(args: argparse.Namespace) -> int:
    from multihead.figure.style import check_installed

    check_numbers(args)
    shares = _shares(args.at)
    if args.out.exists() and not args.force:
        raise MultiheadError(f"{args.out} exists", hint="--force overwrites it, or choose a different -o")
    if args.out.suffix not in (".png", ".svg"):
        raise MultiheadError(f"-o must be a .png or .svg file, got {args.out}", hint="-o curve.png")
    check_installed()
    loaded = load_model(args)
    one_sequence(loaded, "mh.plan(model, {}, keep=0.5)")
    fit = list(read(args, args.calib, loaded.tokenizer, args.model))
    if args.text:
        held = list(
            read(argparse.Namespace(**{**vars(args), "ids": None}), args.text, loaded.tokenizer, args.model)
        )
    else:
        fit, held = [d for i, d in enumerate(fit) if i % 4 != 3], fit[3::4]
    if not fit or not held:
        raise MultiheadError(
            f"a curve needs documents to fit to and to check on, got {len(fit)} and {len(held)}",
            hint="--text held_out.txt",
        )
    return _drawn(args, loaded, shares, fit, held)


def _drawn(
    args: argparse.Namespace, loaded: Loaded, shares: list[float], fit: Sequence[Any], held: Sequence[Any]
) -> int:
    from multihead.edit.calibration import Calibration
    from multihead.edit.check.curve import curve
    from multihead.figure.quality import curve as draw

    say = speaker(args)
    methods = tuple(dict.fromkeys(args.method or ("obs", "fisher", "random")))
    text = Calibration(
        loaded.model, fit, loaded.tokenizer, batch_size=args.batch_size, max_tokens=args.max_tokens, seed=args.seed
    )
    say(f"{about(loaded)}; {text.documents} documents to fit to, {len(held)} to check on")
    if in_english(args.calib, args, loaded.tokenizer):
        say("note: no --calib: a small sample of English stands in for text like the model's own")
    work, points = Work.of(loaded, text), len(methods) * len(shares)
    layers = getattr(getattr(loaded.model, "config", None), "num_hidden_layers", None) or 1
    runs = 4 + points * (2 + layers * (1.5 if args.no_refit else 4))  # heads are scored once
    say(f"{points} points, about {duration(runs * work.once)}, about {work.memory / 1e6:.0f} MB of memory")
    with bar(args) as progress:
        found = curve(
            loaded.model,
            text,
            held,
            tokenizer=loaded.tokenizer,
            shares=shares,
            methods=methods,
            refit=not args.no_refit,
            seed=args.seed,
            progress=progress,
        )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    draw(found, title=f"{loaded.name}: {found.heads} heads").savefig(args.out)
    if args.json:
        write_json(found.plain() | {"picture": str(args.out)})
    else:
        out().print(found)
    say(f"picture → {args.out}")
    if (knee := found.knee()) is not None:
        words = ["multihead", "prune", args.model, "--keep", f"{knee.keep:g}"]
        words += [word for given in args.calib for word in ("--calib", given)]
        words += ["--ids", args.ids] if args.ids else []
        say(f"next: {shlex.join([*words, '-o', 'smaller/'])}")
    return 0


def _shares(text: str) -> list[float]:
    try:
        found = [float(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise MultiheadError(f"--at must be numbers, got {text}", hint="--at 0.75,0.5,0.25") from None
    wrong = [x for x in found if not (math.isfinite(x) and 0 < x <= 1)]
    if wrong or not found:
        raise MultiheadError(f"--at must be in (0, 1], got {text}", hint="--at 0.75,0.5,0.25")
    return sorted(set(found), reverse=True)
