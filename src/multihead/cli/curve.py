"""`multihead curve MODEL`: quality against heads kept, for several methods, as a picture, a table or JSON."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from multihead._base.atomic_files import check_new
from multihead._base.plural import plural
from multihead.cli.options import HeldOutOptions, option
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

    at: str = option("0.875,0.75,0.625,0.5,0.375,0.25", "shares of heads kept", metavar="0.75,0.5")
    method: tuple[str, ...] = option((), "may be repeated (default: obs, fisher, random)", choices=METHODS)
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
        """Raise unless the options of `multihead curve` fit together."""
        super().check()
        from multihead.show.figure.style import check_installed

        self.shares()
        check_new(self.out, self.force)
        if self.out.suffix not in (".png", ".svg"):
            raise MultiheadError(f"-o must be a .png or .svg file, got {self.out}", hint="-o curve.png")
        check_installed()


OPTIONS = CurveOptions


def run(options: CurveOptions) -> int:
    """Run `multihead curve`: cut at several sizes, draw the quality of each cut."""
    from multihead.edit.check.curve import curve
    from multihead.edit.plan_and_cut import CalibrationCost
    from multihead.show.cut_curve import split_documents
    from multihead.show.figure import curve as draw

    loaded = options.load(options.model)
    documents = options.documents(loaded, corpus=options.calibration)
    fit = list(documents)
    if options.held_out:
        held_out = list(replace(options, ids=None, inputs=None).documents(loaded, corpus=options.held_out))
    else:
        fit, held_out = split_documents(fit)
    if not fit or not held_out:
        raise MultiheadError(
            f"a curve needs documents to fit to and to check on, got {len(fit)} and {len(held_out)}",
            hint="--held-out held_out.txt",
        )
    text = options.read_calibration(loaded, fit, documents.name)
    shares, methods, refit = options.shares(), tuple(dict.fromkeys(options.method)) or METHODS, not options.no_refit
    cost, points = CalibrationCost.of(loaded.model, text), len(methods) * len(shares)
    estimate = cost.estimate(cost.of_curve(points, refit=refit))
    options.say(f"{plural(len(held_out), 'document')} to check on; {plural(points, 'point')}, {estimate}")
    result = curve(
        loaded.model,
        text,
        held_out,
        tokenizer=loaded.tokenizer,
        shares=shares,
        methods=methods,
        refit=refit,
        seed=options.seed,
        progress=not options.quiet,
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    draw(result, title=f"{loaded.name}: {plural(result.heads, 'head')}").savefig(options.out)
    options.print(result, result.plain() | {"picture": str(options.out)})
    options.say(f"picture → {options.out}")
    if (knee := result.knee()) is not None:
        words = ["multihead", "prune", options.model, "--keep", f"{knee.keep:g}"]
        words += [word for name in options.calibration for word in ("--calibration", name)]
        words += ["--ids", options.ids] if options.ids else []
        words += ["--inputs", options.inputs] if options.inputs else []
        options.say(f"next: {shlex.join([*words, '-o', 'smaller/'])}")
    return 0
