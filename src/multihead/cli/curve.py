"""`multihead curve MODEL`: quality against heads kept, for several methods, as a picture, a table or JSON."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from multihead._base.atomic_files import check_new
from multihead._base.plural import plural
from multihead.cli.options import HeldOutOptions, names, option
from multihead.cli.prune_and_group import METHODS, FitOptions
from multihead.errors import MultiheadError

EXAMPLES = """examples:
  multihead curve minilm --calibration text.txt --held-out held_out.txt -o curve.png
  multihead curve minilm --calibration text.txt --at 0.75,0.5,0.25 --method obs --method random

Every point is a real cut with a refit, checked on held-out text: --held-out, or a quarter of the calibration
documents."""


@dataclass(frozen=True, kw_only=True)
class CurveOptions(FitOptions, HeldOutOptions, title="the curve"):
    """Cut a model at several sizes by several methods, and draw the quality of each cut."""

    shares: str = option("0.875,0.75,0.625,0.5,0.375,0.25", "shares of heads kept", "--at", metavar="0.75,0.5")
    method: tuple[str, ...] = option((), "may be repeated (default: obs, fisher, random)", choices=METHODS)
    out: Path = option(Path("curve.png"), ".png or .svg", "-o", "--out", metavar="FILE")
    force: bool = option(False, "overwrite FILE")

    def points(self) -> dict[str, Any]:
        """The points to cut at, as arguments of the library."""
        try:
            shares = sorted({float(share) for share in names([self.shares])}, reverse=True)
        except ValueError:
            raise MultiheadError(f"--at must be numbers, got {self.shares}", hint="--at 0.75,0.5,0.25") from None
        return {"shares": shares, "methods": tuple(dict.fromkeys(self.method)) or METHODS}

    def check(self) -> None:
        """Raise unless the options of `multihead curve` fit together."""
        super().check()
        from multihead.edit.check.curve import check_points
        from multihead.show.figure.style import check_installed

        check_points(**self.points())
        check_new(self.out, self.force)
        if self.out.suffix not in (".png", ".svg"):
            raise MultiheadError(f"-o must be a .png or .svg file, got {self.out}", hint="-o curve.png")
        check_installed()


OPTIONS = CurveOptions


def run(options: CurveOptions) -> int:
    """Run `multihead curve`: cut at several sizes, draw the quality of each cut."""
    from multihead.edit.check.curve import curve
    from multihead.show.figure import curve as draw

    loaded = options.load(options.model)
    documents, reading = options.read_calibration(loaded)
    held_out = None
    if options.held_out:
        held_out = replace(options, ids=None, inputs=None).documents(loaded, corpus=options.held_out)
    result = curve(
        loaded.model,
        documents,
        held_out,
        refit=not options.no_refit,
        progress=not options.quiet,
        say=options.say,
        **options.points(),
        **reading,
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    draw(result, title=f"{loaded.name}: {plural(result.heads, 'head')}").savefig(options.out)
    options.print(result, result.plain() | {"picture": str(options.out)})
    options.say(f"picture → {options.out}")
    if (knee := result.knee()) is not None:
        words = ["multihead", "prune", options.model, "--keep", f"{knee.keep:g}"]
        words += [word for name in options.calibration for word in ("--calibration", name)]
        options.say(f"next: {shlex.join(words)}{options.typed_data()} -o smaller/")
    return 0
