"""What `prune` and `group` share: calibration text, the plan and its file, the cut, and where it is saved."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multihead._base.plural import plural
from multihead._base.progress import shown_progress
from multihead.cli.options import (
    SAMPLE,
    BatchOptions,
    CalibrationOptions,
    FileOptions,
    ModelOptions,
    Options,
    OutputOptions,
    add_files,
    add_model,
    option,
    uses_sample,
)
from multihead.cli.output import note, out, speaker, write, write_json
from multihead.errors import MultiheadError
from multihead.sources.pretrained import check_source

if TYPE_CHECKING:
    from multihead.edit.calibration import Calibration, Progress
    from multihead.edit.distill import Distill
    from multihead.edit.plan import Plan
    from multihead.edit.plan_and_cut import CalibrationCost, CutResult
    from multihead.sources.pretrained import Pretrained

RANK_TIMEOUT = 1800.0
"""Seconds that one of several processes waits for another: a cut has no heartbeat between layers."""

METHODS = ("obs", "fisher", "random")
"""Ways to score heads; the first is the best, the last the baseline."""

Say = Callable[[str], None]


class Request(Options):
    """The options of a command that request a plan; the fields are arguments of `multihead.plan`."""

    kv_heads: int | None

    def requested(self) -> list[str]:
        """The options that were typed and request something."""
        return [] if self.kv_heads is None else ["--kv-heads"]

    def check(self) -> None:
        """Raise if the request for `prune` or `group` contradicts itself."""

    def plan(self, text: Calibration, seed: int, progress: Progress | None) -> Plan:
        from multihead.edit.make_plan import plan

        return plan(text.model, text, seed=seed, progress=progress, **self.arguments())

    def runs(self) -> float:
        """About how many forward passes over the text planning takes."""
        return 10.0


@dataclass(frozen=True)
class CutOptions(OutputOptions):
    """Of `multihead.cut` and `multihead.save`."""

    out: Path | None = option(None, "folder to write the cut model to", "-o", "--out", metavar="DIR")
    dry_run: bool = option(False, "print the plan, cut and write nothing")
    plan: Path | None = option(
        None, "write the plan to FILE; if FILE exists, carry out its plan instead of making one",
        metavar="FILE",
    )  # fmt: skip
    no_refit: bool = option(False, "leave the remaining weights unchanged")
    distill: int | None = option(
        None, "then N steps of distillation from the original (attention only)", least=1, metavar="N"
    )
    distill_lr: float | None = option(None, "the learning rate of --distill (default: 3e-4)", least=0, metavar="X")
    seed: int = option(0, "random seed: of probes and of the order of batches", metavar="N")
    force: bool = option(False, "replace DIR, or the plan in FILE")
    follows: bool = field(default=False)
    """whether another process prints and writes"""

    def check(self, dtype: str) -> None:
        """Raise unless `prune` or `group` can write the cut model; nothing is loaded yet."""
        from multihead._base.arguments import check_seed
        from multihead.store.save import check_folder

        check_seed(self.seed)
        self.distillation()
        if self.dry_run:
            return
        if self.distill and dtype not in ("float32", "float64"):
            raise MultiheadError(
                f"--distill needs float32 or float64, got --dtype {dtype}: half precision is too coarse",
                hint="omit --dtype: the model is trained in float32 and saved in its own dtype",
            )
        if self.out is None:
            raise MultiheadError("-o DIR is missing: where to save the cut model", hint="-o smaller/, or --dry-run")
        check_folder(self.out, self.force)

    def distillation(self) -> Distill | None:
        """The settings that --distill requests from `prune` or `group`."""
        from multihead.edit.distill import Distill

        steps, rate = self.distill, self.distill_lr
        return None if steps is None else Distill(steps) if rate is None else Distill(steps, rate)

    def forwards(self, cost: CalibrationCost, text: Calibration) -> float:
        """About how many forward passes over the text `prune` or `group` takes."""
        if self.dry_run:
            return 0.0
        return cost.of_cut(refit=not self.no_refit, distill=self.distill or 0, steps=len(text))


def add_cut(parser: argparse.ArgumentParser, request: type[Request], title: str) -> None:
    """Add MODEL, the options of a request, and those that `prune` and `group` share."""
    add_model(parser)
    request.add(parser, title)
    add_files(parser, CalibrationOptions, f"calibration text ({SAMPLE})")
    CutOptions.add(parser, "the cut")


def fitted_to(
    args: argparse.Namespace, loaded: Pretrained, documents: Iterable[Any], seed: int, say: Say
) -> Calibration:
    """The calibration text that `prune` or `group` fits to, and a line about it."""
    from multihead.edit.calibration import Calibration

    chosen, files = CalibrationOptions.of(args).calibration, FileOptions.of(args)
    batches = {name: value for name, value in vars(BatchOptions.of(args)).items() if hasattr(args, name)}
    text = Calibration(loaded.model, documents, loaded.tokenizer, seed=seed, **batches)
    name = ", ".join(chosen) or files.ids or "the sample text"
    size = f"{plural(text.documents, 'document')}, {plural(text.tokens + text.tokens_held_out, 'token')}"
    say(f"{loaded.summary()}; calibration: {name}, {size}")
    if uses_sample(loaded, chosen, files):
        say("note: without --calibration a small sample of English stands in for text like the model's own")
    return text


def run_cut(args: argparse.Namespace, request: Request, hint: str) -> int:
    """Run `prune` or `group`: plan, cut and save. Under torchrun the first process prints and writes."""
    options = CutOptions.of(args)
    check_source(args.model)
    for checked in (FileOptions, BatchOptions):  # before the model loads
        checked.of(args)
    options.check(ModelOptions.of(args).dtype)
    request.check()
    if not request.requested() and (options.plan is None or not options.plan.exists()):
        missing = "nothing is requested" if options.plan is None else f"there is no plan file {options.plan}"
        raise MultiheadError(missing, hint=hint)
    from multihead.corpus.data_parallel import data_parallel
    from multihead.corpus.ranks import Ranks
    from multihead.edit.plan_and_cut import plan_of_file

    stored = plan_of_file(options.plan, request.requested(), options.force)
    with Ranks.started(RANK_TIMEOUT) as ranks, data_parallel():
        options = replace(options, follows=not ranks.leads, quiet=options.quiet or not ranks.leads)
        loaded = ModelOptions.of(args).load(args.model, "mh.plan(model, {}, keep=0.5)")
        plan = _planned(args, options, loaded, request, stored)
        return _carry_out(args, options, loaded, plan)


def _planned(
    args: argparse.Namespace,
    options: CutOptions,
    loaded: Pretrained,
    request: Request,
    stored: Plan | None,
) -> Plan:
    """The plan for `prune` or `group`, from --plan FILE or new, with its calibration text."""
    from multihead.edit.plan_and_cut import CalibrationCost

    say = speaker(options.quiet)
    if stored is not None:
        stored.check(loaded.model)
        say(f"the plan of {options.plan}")
        if options.dry_run:
            return stored
    documents = FileOptions.of(args).documents(loaded, corpus=CalibrationOptions.of(args).calibration)
    text = fitted_to(args, loaded, documents, options.seed, say)
    if not options.quiet:
        cost = CalibrationCost.of(loaded.model, text)
        planning = 0.0 if stored is not None else request.runs()
        say(str(cost.estimate(planning + options.forwards(cost, text))))
    if stored is not None:
        return replace(stored, calibration=text)
    file = None if options.follows else options.plan
    with shown_progress(not options.quiet) as progress:
        plan = request.plan(text, options.seed, progress)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        plan.save(file)
        say(f"plan → {file}")
    return plan


def _carry_out(args: argparse.Namespace, options: CutOptions, loaded: Pretrained, plan: Plan) -> int:
    """Print the plan, and unless `prune` or `group` is a dry run, cut and save."""
    say, changed = speaker(options.quiet), plan.changes
    if options.follows:
        if changed and not options.dry_run:
            _cut(options, loaded, plan)
        return 0 if changed else 1
    done: dict[str, Any] = {"plan": plan.to_json(), "changed": changed}
    if not options.json:
        out().print(str(plan), markup=False, soft_wrap=True) if changed else write(str(plan))
    if changed and not options.dry_run:
        result = _cut(options, loaded, plan)
        for line in result.lines():
            say(line)
        done |= _save(options, loaded, result, hasattr(args, "dtype"))
    if options.json:
        write_json(done)
    if not changed:
        note(f"multihead: nothing to cut: every head is kept ({plan.request}); nothing is written")
        return 1
    if options.dry_run:
        say("a dry run: no model is written")
    else:
        held_out = "--held-out held_out.txt"
        say(f"next: multihead check {shlex.quote(args.model)} {shlex.quote(str(options.out))} {held_out}")
    return 0


def _cut(options: CutOptions, loaded: Pretrained, plan: Plan) -> CutResult:
    """Cut the model for `prune` or `group`, with progress."""
    from multihead.edit.plan_and_cut import cut_timed

    with shown_progress(not options.quiet) as progress:
        return cut_timed(
            loaded.model, plan, refit=not options.no_refit, distill=options.distillation(), progress=progress
        )


def _save(options: CutOptions, loaded: Pretrained, result: CutResult, dtype_requested: bool) -> dict[str, Any]:
    """Save the model that `prune` or `group` cut, and print its folder."""
    from multihead._base.estimate import duration
    from multihead.store.save import save

    say, small = speaker(options.quiet), result.model
    assert options.out is not None
    if not dtype_requested and (dtype := loaded.stored_dtype) is not None:
        small = small.to(dtype)
        say(f"saved in {str(dtype).removeprefix('torch.')}, like the original; --dtype chooses another")
    saved = save(small, options.out, tokenizer=loaded.tokenizer, source=loaded.folder, force=options.force)
    before, after = result.parameters
    say(f"{before / 1e6:.3g} → {after / 1e6:.3g} M parameters in {duration(result.seconds)}")
    say(f"saved: {saved}")
    return {
        "fits": result.record.get("fits", []), "distilled": result.record.get("distilled"),
        "parameters": [before, after], "seconds": result.seconds, "folder": str(options.out), "stock": saved.stock,
        "reason": saved.reason, "verified": saved.verified,
    }  # fmt: skip
