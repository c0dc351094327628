"""The work of `prune` and `group`: calibration text, the plan and its file, the cut, the folder it is saved to."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from multihead._base.number_text import amount
from multihead._base.plural import plural
from multihead._base.progress import shown_progress
from multihead.cli.options import BatchOptions, CalibrationOptions, ModelOptions, OutputOptions, option
from multihead.cli.output import note, out, write_json
from multihead.errors import MultiheadError

if TYPE_CHECKING:
    from multihead.corpus.documents import Documents
    from multihead.edit.distill import Distill
    from multihead.edit.plan import Plan
    from multihead.edit.plan_and_cut import CutResult
    from multihead.sources.pretrained import Pretrained

RANK_TIMEOUT = 1800.0
"""Seconds that one of several processes waits for another: a cut has no heartbeat between layers."""

METHODS = ("obs", "fisher", "random")
"""Ways to score heads; the first is the best, the last the baseline."""


@dataclass(frozen=True, kw_only=True)
class FitOptions(ModelOptions, CalibrationOptions, OutputOptions):
    """Of commands that fit weights to calibration text."""

    no_refit: bool = option(False, "leave the remaining weights unchanged")
    seed: int = option(0, "random seed: of probes and of the order of batches", metavar="N")

    def read_calibration(self, loaded: Pretrained) -> tuple[Documents, dict[str, Any]]:
        """The text of --calibration, and the other arguments of `Calibration`; prints a line about it."""
        documents = self.documents(loaded, corpus=self.calibration)
        count = plural(documents.count, "document")
        self.say(f"{loaded.summary()}; calibration: {documents.name}, {count}")
        if self.is_sample(loaded, self.calibration):
            self.say(
                "note: without --calibration a small sample of English stands in for text like the model's own"
            )
        batches = self.arguments(BatchOptions, typed=True)
        return documents, {"tokenizer": loaded.tokenizer, "seed": self.seed, **batches}


@dataclass(frozen=True, kw_only=True)
class CutOptions(FitOptions, title="the cut"):
    """Of `prune` and `group`, which add what they request of `multihead.plan`."""

    out: Path | None = option(None, "folder to write the cut model to", "-o", "--out", metavar="DIR")
    dry_run: bool = option(False, "print the plan, cut and write nothing")
    plan: Path | None = option(
        None, "write the plan to FILE; if FILE exists, carry out its plan instead of making one",
        metavar="FILE",
    )  # fmt: skip
    distill: int | None = option(
        None, "then N steps of distillation from the original (attention only)", least=1, metavar="N"
    )
    distill_lr: float | None = option(None, "the learning rate of --distill (default: 3e-4)", least=0, metavar="X")
    force: bool = option(False, "replace DIR, or the plan in FILE")

    request_hint: ClassVar[str]
    """how to request something"""

    def requested(self) -> list[str]:
        """The options that were typed and request a plan."""
        raise NotImplementedError

    def request(self) -> dict[str, Any]:
        """What is requested, as arguments of `multihead.plan`."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise unless something is requested and the cut model can be written."""
        super().check()
        from multihead._base.arguments import check_seed
        from multihead.store.save import check_folder

        check_seed(self.seed)
        self.distillation()
        if not self.dry_run:
            if self.distill and self.dtype not in ("float32", "float64"):
                raise MultiheadError(
                    f"--distill needs float32 or float64, got --dtype {self.dtype}: half precision is too coarse",
                    hint="omit --dtype: the model is trained in float32 and saved in its own dtype",
                )
            if self.out is None:
                raise MultiheadError(
                    "-o DIR is missing: where to save the cut model", hint="-o smaller/, or --dry-run"
                )
            check_folder(self.out, self.force)
        if not self.requested() and (self.plan is None or not self.plan.exists()):
            missing = "nothing is requested" if self.plan is None else f"there is no plan file {self.plan}"
            raise MultiheadError(missing, hint=self.request_hint)

    def show_plan(self, plan: Plan, *, is_new: bool) -> None:
        """Print the plan; a new one is written to --plan."""
        if is_new and self.plan is not None:
            self.plan.parent.mkdir(parents=True, exist_ok=True)
            plan.save(self.plan)
            self.say(f"plan → {self.plan}")
        if not self.json:
            out().print(str(plan), markup=False, soft_wrap=True)

    def distillation(self) -> Distill | None:
        """The settings that --distill requests."""
        from multihead.edit.distill import Distill

        steps, rate = self.distill, self.distill_lr
        return None if steps is None else Distill(steps) if rate is None else Distill(steps, rate)


def run_cut(options: CutOptions) -> int:
    """Run `prune` or `group`: plan, cut and save. Under torchrun the first process prints and writes."""
    from multihead.corpus.data_parallel import data_parallel
    from multihead.corpus.ranks import Ranks
    from multihead.edit.calibration import Calibration
    from multihead.edit.plan_and_cut import cut_timed, plan_of_file, plan_to_cut

    stored = plan_of_file(options.plan, options.requested(), options.force)
    with Ranks.started(RANK_TIMEOUT) as ranks, data_parallel():
        options = options if ranks.leads else replace(options, quiet=True)
        loaded = options.load(options.model)
        if stored is not None:
            options.say(f"the plan of {options.plan}")
        text = None
        if stored is None or not options.dry_run:
            documents, reading = options.read_calibration(loaded)
            text = Calibration(loaded.model, documents, **reading)
        fit: dict[str, Any] = {"refit": not options.no_refit, "distill": options.distillation()}
        plan_options: dict[str, Any] = {"only_plan": options.dry_run, "say": None if options.quiet else options.say}
        plan_options |= fit | options.request() | {"seed": options.seed}
        with shown_progress(not options.quiet) as shown:
            plan = plan_to_cut(loaded.model, text, stored, progress=shown, **plan_options)
        if ranks.leads:
            options.show_plan(plan, is_new=stored is None)
        result = None
        if plan.changes and not options.dry_run:
            with shown_progress(not options.quiet) as shown:
                result = cut_timed(loaded.model, plan, progress=shown, **fit)
        return _finish(options, loaded, plan, result) if ranks.leads else int(not plan.changes)


def _finish(options: CutOptions, loaded: Pretrained, plan: Plan, result: CutResult | None) -> int:
    """Save the cut model; print the result and the next command."""
    record = {"plan": plan.to_json(), "changed": plan.changes}
    if result is not None:
        record |= _save(options, loaded, result)
    if options.json:
        write_json(record)
    if not plan.changes:
        note(f"multihead: nothing to cut: every head is kept ({plan.request}); nothing is written")
        return 1
    if result is None:
        options.say("a dry run: no model is written")
        return 0
    text = "--held-out held_out.txt" if loaded.tokenizer is not None else "--ids held_out.json"
    held_out = "--inputs held_out.safetensors" if options.inputs or loaded.inputs else text
    options.say(f"next: multihead check {shlex.quote(options.model)} {shlex.quote(str(options.out))} {held_out}")
    return 0


def _save(options: CutOptions, loaded: Pretrained, result: CutResult) -> dict[str, Any]:
    """Save the cut model; returns what --json prints about it."""
    from multihead._base.estimate import duration

    assert options.out is not None
    for line in result.lines():
        options.say(line)
    typed, (before, after) = "dtype" in options.typed, result.parameters
    saved = loaded.save(result.model, options.out, keep_dtype=typed, force=options.force)
    if not typed and (dtype := loaded.stored_dtype) is not None:
        options.say(f"saved in {str(dtype).removeprefix('torch.')}, like the original; --dtype chooses another")
    options.say(f"{amount(before)} → {amount(after)} parameters in {duration(result.seconds)}")
    options.say(f"saved: {saved}")
    return {
        "fits": result.record.get("fits", []), "distilled": result.record.get("distilled"),
        "parameters": [before, after], "seconds": result.seconds, "folder": str(options.out), "stock": saved.stock,
        "reason": saved.reason, "verified": saved.verified,
    }  # fmt: skip
