"""`multihead curve MODEL`: quality against heads kept, for several methods, as a picture, a table or JSON."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multihead._base.plural import plural
from multihead.cli.options import (
    SAMPLE,
    CalibrationOptions,
    FileOptions,
    HeldOutOptions,
    ModelOptions,
    OutputOptions,
    add_command,
    add_files,
    add_model,
    option,
)
from multihead.cli.output import out, speaker, write_json
from multihead.cli.prune_and_group import METHODS, fitted_to
from multihead.errors import MultiheadError
from multihead.sources.pretrained import check_source

if TYPE_CHECKING:
    from multihead.edit.check.curve import Curve
    from multihead.sources.pretrained import Pretrained

_EPILOG = """examples:
  multihead curve minilm --calibration text.txt --held-out held_out.txt -o curve.png
  multihead curve minilm --calibration text.txt --at 0.75,0.5,0.25 --method obs --method random

Every point is a real cut with a refit, checked on held-out text: --held-out, or a quarter of the calibration
documents."""


@dataclass(frozen=True)
class CurveOptions(OutputOptions):
    """Of `multihead.edit.check.curve.curve`."""

    at: str = option("0.875,0.75,0.625,0.5,0.375,0.25", "shares of heads kept", metavar="0.75,0.5")
    method: tuple[str, ...] = option((), "may be repeated (default: obs, fisher, random)", choices=METHODS)
    no_refit: bool = option(False, "leave the remaining weights unchanged")
    seed: int = option(0, "random seed", metavar="N")
    out: Path = option(Path("curve.png"), ".png or .svg", "-o", "--out", metavar="FILE")
    force: bool = option(False, "overwrite FILE")

    def shares(self) -> list[float]:
        """The shares of heads in --at."""
        try:
            shares = [float(word) for word in self.at.replace(",", " ").split()]
        except ValueError:
            raise MultiheadError(f"--at must be numbers, got {self.at}", hint="--at 0.75,0.5,0.25") from None
        if not shares or not all(math.isfinite(x) and 0 < x <= 1 for x in shares):
            raise MultiheadError(f"--at must be in (0, 1], got {self.at}", hint="--at 0.75,0.5,0.25")
        return sorted(set(shares), reverse=True)

    def check(self) -> None:
        """Raise unless `multihead curve` can draw its picture; nothing is loaded yet."""
        from multihead.show.figure.style import check_installed

        self.shares()
        if self.out.exists() and not self.force:
            raise MultiheadError(f"{self.out} exists", hint="--force overwrites it, or choose a different -o")
        if self.out.suffix not in (".png", ".svg"):
            raise MultiheadError(f"-o must be a .png or .svg file, got {self.out}", hint="-o curve.png")
        check_installed()


def add(commands: Any) -> None:
    """Add `multihead curve` to the commands."""
    parser = add_command(
        commands,
        "curve",
        "Cut a model at several sizes by several methods, and draw the quality of each cut.",
        _EPILOG,
    )
    add_model(parser)
    CurveOptions.add(parser, "the curve")
    add_files(parser, CalibrationOptions, f"calibration text ({SAMPLE})")
    HeldOutOptions.add(parser, "held-out text (default: a quarter of the calibration documents)")


def run(args: argparse.Namespace) -> int:
    """Run `multihead curve`: cut at several sizes, draw the quality of each cut."""
    options, files = CurveOptions.of(args), FileOptions.of(args)
    check_source(args.model)
    options.check()
    loaded = ModelOptions.of(args).load(args.model, "mh.plan(model, {}, keep=0.5)")
    calibration, held_out = CalibrationOptions.of(args).calibration, HeldOutOptions.of(args).held_out
    fit: Sequence[Any] = list(files.documents(loaded, corpus=calibration))
    if held_out:
        held: Sequence[Any] = list(replace(files, ids=None).documents(loaded, corpus=held_out))
    else:
        fit, held = [document for i, document in enumerate(fit) if i % 4 != 3], fit[3::4]
    if not fit or not held:
        raise MultiheadError(
            f"a curve needs documents to fit to and to check on, got {len(fit)} and {len(held)}",
            hint="--held-out held_out.txt",
        )
    say = speaker(options.quiet)
    text = fitted_to(args, loaded, fit, options.seed, say)
    result = _measured(options, loaded, text, held)
    _draw(options, loaded, result)
    if (knee := result.knee()) is not None:
        words = ["multihead", "prune", args.model, "--keep", f"{knee.keep:g}"]
        words += [word for name in calibration for word in ("--calibration", name)]
        words += ["--ids", files.ids] if files.ids else []
        say(f"next: {shlex.join([*words, '-o', 'smaller/'])}")
    return 0


def _measured(options: CurveOptions, loaded: Pretrained, text: Any, held: Sequence[Any]) -> Curve:
    """Announce the curve and measure it."""
    from multihead.edit.check.curve import curve
    from multihead.edit.plan_and_cut import CalibrationCost

    shares, methods = options.shares(), tuple(dict.fromkeys(options.method)) or METHODS
    cost, points = CalibrationCost.of(loaded.model, text), len(methods) * len(shares)
    estimate = cost.estimate(cost.of_curve(points, refit=not options.no_refit))
    say = speaker(options.quiet)
    say(f"{plural(len(held), 'document')} to check on; {plural(points, 'point')}, {estimate}")
    return curve(
        loaded.model,
        text,
        held,
        tokenizer=loaded.tokenizer,
        shares=shares,
        methods=methods,
        refit=not options.no_refit,
        seed=options.seed,
        progress=not options.quiet,
    )


def _draw(options: CurveOptions, loaded: Pretrained, result: Curve) -> None:
    """Save the picture of the curve, and print its table or JSON."""
    from multihead.show.figure import curve as draw

    options.out.parent.mkdir(parents=True, exist_ok=True)
    draw(result, title=f"{loaded.name}: {plural(result.heads, 'head')}").savefig(options.out)
    if options.json:
        write_json(result.plain() | {"picture": str(options.out)})
    else:
        out().print(result)
    speaker(options.quiet)(f"picture → {options.out}")
