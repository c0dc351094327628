"""What `prune`, `group`, `check` and `curve` share: calibration text, estimates, progress, and the cut itself."""

from __future__ import annotations

import argparse
import json
import shlex
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from multihead._base.progress import Report, progress_bars
from multihead.cli.console import duration, err, note, out, size, write, write_json
from multihead.cli.load import Loaded, one_sequence
from multihead.cli.texts import SPLITS, Texts, in_english, texts
from multihead.errors import MultiheadError

if TYPE_CHECKING:
    from multihead.corpus.accumulator import Inputs
    from multihead.edit.calibration import Calibration, Progress
    from multihead.edit.plan import Plan
    from multihead.model.forward import Forward

TOGETHER = 1800.0
"""Seconds that one of several processes waits for another."""

METHODS = ("obs", "fisher", "random")
"""Ways to score heads; the first is the best, the last the baseline."""

PROCESS = 400e6
"""Python, torch and transformers."""


# ---- arguments ----------------------------------------------------------------------------------


def add_text(parser: argparse.ArgumentParser, *names: str, what: str, title: str) -> None:
    """Options that read documents: a file or folder under `names`, and how it is cut."""
    group = parser.add_argument_group(title)
    group.add_argument(*names, action="append", default=[], metavar="FILE|DIR", help=what)
    group.add_argument(
        "--split",
        choices=SPLITS,
        default="auto",
        help="what a document of a .txt file is: a line, a paragraph, the whole file, or auto: a paragraph where "
        "the file has blank lines, else a line (default: auto)",
    )
    group.add_argument("--ids", metavar="FILE", help="token ids instead of text: JSON, a list of lists of numbers")
    group.add_argument(
        "--max-tokens", type=int, metavar="N", help="cut longer documents into pieces (default: 512)"
    )
    group.add_argument("--limit", type=int, metavar="N", help="read only the first N documents")
    group.add_argument("--batch-size", type=int, default=64, metavar="N", help="documents at a time (default: 64)")


def add_cut(parser: argparse.ArgumentParser) -> None:
    """What becomes of the plan."""
    group = parser.add_argument_group("the cut")
    group.add_argument("-o", "--out", type=Path, metavar="DIR", help="folder to write the cut model to")
    group.add_argument("--dry-run", action="store_true", help="print the plan, cut and write nothing")
    group.add_argument(
        "--plan",
        type=Path,
        metavar="FILE",
        help="write the plan there; if there is one already, do what it says instead of making one",
    )
    group.add_argument("--no-refit", action="store_true", help="leave the weights that stay as they are")
    group.add_argument(
        "--distill", type=int, metavar="N", help="then N steps of distillation from the original (attention only)"
    )
    group.add_argument(
        "--distill-lr", type=float, metavar="X", help="the learning rate of --distill (default: 3e-4)"
    )
    group.add_argument("--seed", type=int, default=0, help="of what is drawn at random (default: 0)")
    group.add_argument("--force", action="store_true", help="replace DIR, or the plan in FILE")
    group.add_argument("--json", action="store_true", help="plan and results as JSON on stdout")
    group.add_argument("--quiet", action="store_true", help="no progress, no notes")


def read(args: argparse.Namespace, given: list[str], tokenizer: Any, model: str) -> Texts:
    """The documents of `add_text`'s arguments."""
    missing = next((name for name in given if name != "-" and not Path(name).exists()), None)
    if missing is not None:
        raise MultiheadError(f"there is no file {missing}", hint="a .txt or .jsonl file, a folder of them, or -")
    asked = argparse.Namespace(model=model, text=[], corpus=given, ids=args.ids, split=args.split, limit=args.limit)
    return texts(asked, tokenizer)


def check_numbers(args: argparse.Namespace) -> None:
    """What can be said before anything is loaded."""
    for option in ("batch_size", "max_tokens", "distill"):
        value: int | None = getattr(args, option, None)
        if value is not None and value < 1:
            raise MultiheadError(f"--{option.replace('_', '-')} {value} is less than 1")


def check_out(args: argparse.Namespace) -> None:
    """Where the cut model goes, said before the work and not after it."""
    from multihead.store.save import check_folder

    check_numbers(args)
    if args.dry_run:
        return
    if args.distill and args.dtype not in ("float32", "float64"):
        raise MultiheadError(
            f"--distill needs float32 or float64, got --dtype {args.dtype}: half precision is too coarse",
            hint="leave --dtype out: the model is trained in float32 and saved as it was",
        )
    if args.out is None:
        raise MultiheadError("-o DIR says where the cut model goes", hint="-o smaller/; --dry-run prints the plan")
    check_folder(args.out, args.force)
    there = next(p for p in args.out.absolute().parents if p.exists())
    try:
        with TemporaryDirectory(dir=there, prefix=".multihead"):
            pass
    except OSError as wrong:
        raise MultiheadError(
            f"nothing can be written to {there}: {wrong.strerror}", hint="choose another folder for -o"
        ) from wrong


@contextmanager
def over_ranks(args: argparse.Namespace) -> Generator[None]:
    """Under torchrun the processes share the calibration text, and only the first one speaks and writes."""
    from multihead.corpus.data_parallel import data_parallel
    from multihead.corpus.ranks import Ranks

    with Ranks.started(TOGETHER) as ranks, data_parallel():
        args.follows = not ranks.leads
        args.quiet = args.quiet or args.follows
        yield


# ---- during -------------------------------------------------------------------------------------


def speaker(args: argparse.Namespace) -> Callable[[str], None]:
    return _silent if args.quiet else note


def _silent(text: str) -> None:
    """--quiet"""


def bar(args: argparse.Namespace) -> AbstractContextManager[Report]:
    """One line on a terminal: what runs, and how far it is."""
    return progress_bars(err(), shown=not getattr(args, "quiet", False))


@dataclass(frozen=True)
class Work:
    """About how long calibration takes: seconds of one plain run over all of it, bytes at a time."""

    once: float
    memory: float

    @staticmethod
    def of(loaded: Loaded, text: Calibration) -> Work:
        """Runs the model on one batch; all others are like it."""
        from multihead.edit.calibration import tokens_in
        from multihead.model.forward import Forward

        batch, forward = next(text.fit()), Forward(loaded.model)
        with forward.listening():
            took = min(_timed(forward, batch) for _ in range(3))  # the first run is slower, others wait
        weights = sum(p.numel() * p.element_size() for p in loaded.model.parameters())
        config = getattr(loaded.model, "config", None)
        width = getattr(config, "hidden_size", None) or 0
        layers = getattr(config, "num_hidden_layers", None) or 1
        activations = 4.0 * tokens_in(batch) * 24 * width * layers
        squares = 8.0 * 6 * (4 * width) ** 2
        return Work(
            took * sum(map(tokens_in, text.fit())) / max(1, tokens_in(batch)),
            PROCESS + 3 * weights + activations + squares,
        )


def _timed(forward: Forward, batch: Inputs) -> float:
    start = time.perf_counter()
    forward.run(batch)
    return time.perf_counter() - start


def calibration(args: argparse.Namespace, loaded: Loaded, say: Callable[[str], None]) -> Calibration:
    """The text that the cut is fitted to, and a line about it."""
    from multihead.edit.calibration import Calibration

    one_sequence(loaded, "mh.plan(model, {}, keep=0.5)")
    given = read(args, args.calib, loaded.tokenizer, args.model)
    made = Calibration(
        loaded.model,
        given,
        loaded.tokenizer,
        batch_size=args.batch_size,
        max_tokens=args.max_tokens,
        seed=args.seed,
    )
    tokens = made.tokens + made.tokens_held_out
    say(f"{about(loaded)}; calibration: {given.name}, {made.documents} documents, {tokens} tokens")
    if in_english(args.calib, args, loaded.tokenizer):
        say("note: no --calib: a small sample of English stands in for text like the model's own")
    return made


def about(loaded: Loaded) -> str:
    """A model in a few words."""
    from multihead.model.find_sites import find_sites

    heads = len(find_sites(loaded.model).heads)
    return (
        f"{loaded.name}: {heads} heads, {sum(p.numel() for p in loaded.model.parameters()) / 1e6:.3g} M parameters"
    )


def planned(
    args: argparse.Namespace,
    loaded: Loaded,
    make: Callable[[Calibration, Progress], Plan],
    asked: list[str],
    runs: float,
) -> Plan:
    """The plan of --plan FILE where there is one, else a new one; `asked` are the options that would make it."""
    from dataclasses import replace

    from multihead.edit.plan import Plan

    say = speaker(args)
    if args.plan is not None and args.plan.exists() and not (args.force and asked):
        if asked:
            raise MultiheadError(
                f"{args.plan} holds a plan, and {', '.join(asked)} asks for another",
                hint="leave the option out to use the file, --force to write it anew",
            )
        found = Plan.load(args.plan)
        found.check(loaded.model)
        say(f"the plan of {args.plan}")
        if args.dry_run:
            return found
        text = calibration(args, loaded, say)
        _estimate(args, loaded, text, 0.0, say)
        return replace(found, calibration=text)
    text = calibration(args, loaded, say)
    _estimate(args, loaded, text, runs, say)
    with bar(args) as progress:
        made = make(text, progress)
    if args.plan is not None and not getattr(args, "follows", False):
        args.plan.parent.mkdir(parents=True, exist_ok=True)
        made.save(args.plan)
        say(f"plan → {args.plan}")
    return made


def _estimate(
    args: argparse.Namespace, loaded: Loaded, text: Calibration, runs: float, say: Callable[[str], None]
) -> None:
    """Say about how long it takes: `runs` over the text for the plan, some per layer to cut, and distillation."""
    work = Work.of(loaded, text)
    layers = max(1, getattr(getattr(loaded.model, "config", None), "num_hidden_layers", None) or 1)
    seconds = runs * work.once
    if not args.dry_run:
        seconds += work.once * layers * (1.5 if args.no_refit else 2.0)
        seconds += (args.distill or 0) * work.once / max(1, len(text)) * 2 * 4
    say(f"about {duration(seconds)}, about {size(work.memory)} of memory")


# ---- the cut ------------------------------------------------------------------------------------


def carry_out(args: argparse.Namespace, loaded: Loaded, plan: Plan) -> int:
    """Print the plan, and unless that is all, cut, save, and say what comes next."""
    say = speaker(args)
    if getattr(args, "follows", False):
        if plan.changes and not args.dry_run:
            _cut(args, loaded, plan, say)
        return 0 if plan.changes else 1
    if not plan.changes:
        if args.json:
            write_json({"plan": plan.to_json(), "changed": False})
        else:
            write(str(plan))
        note(f"multihead: nothing to cut: all {plan.heads} heads are kept ({plan.request}); nothing is written")
        return 1
    if not args.json:
        out().print(str(plan), markup=False, soft_wrap=True)
    if args.dry_run:
        if args.json:
            write_json({"plan": plan.to_json(), "changed": True})
        say("a dry run: no model is written")
        return 0
    written = _cut(args, loaded, plan, say)
    if args.json:
        write_json({"plan": plan.to_json(), "changed": True, **written})
    say(f"next: multihead check {shlex.quote(args.model)} {shlex.quote(str(args.out))} --text held_out.txt")
    return 0


def _cut(args: argparse.Namespace, loaded: Loaded, plan: Plan, say: Callable[[str], None]) -> dict[str, Any]:
    from multihead.edit.cut import cut
    from multihead.edit.distill import Distill
    from multihead.edit.surgery.record import record_of
    from multihead.store.save import save

    distill = None
    if args.distill:
        distill = Distill(args.distill, **({"lr": args.distill_lr} if args.distill_lr else {}))
    started = time.perf_counter()
    with bar(args) as progress:
        small = cut(
            loaded.model,
            plan,
            refit=not args.no_refit,
            distill=distill,
            progress=progress,
        )
        took = time.perf_counter() - started
    if getattr(args, "follows", False):
        return {}
    record = record_of(small)
    done: dict[str, Any] = {} if record is None or record.plan is None else record.plan
    for line in _done_lines(done):
        say(line)
    before, after = (sum(p.numel() for p in m.parameters()) for m in (loaded.model, small))
    if (kept := _stored_dtype(args, loaded)) is not None:
        small = small.to(kept)
        say(f"saved in {str(kept).removeprefix('torch.')}, as the original is; --dtype keeps another")
    saved = save(small, args.out, tokenizer=loaded.tokenizer, source=loaded.folder, force=args.force)
    say(f"{before / 1e6:.3g} → {after / 1e6:.3g} M parameters in {duration(took)}")
    say(f"saved: {saved}")
    return {
        "fits": done.get("fits", []), "distilled": done.get("distilled"), "parameters": [before, after],
        "seconds": took, "folder": str(args.out), "stock": saved.stock,
        "reason": saved.reason, "verified": saved.verified,
    }  # fmt: skip


def _stored_dtype(args: argparse.Namespace, loaded: Loaded) -> Any:
    """The half precision that the original's weights are stored in, unless another dtype was asked for."""
    import torch

    if any(word.startswith("--dtype") for word in args.words):
        return None
    if loaded.folder is None or not (loaded.folder / "config.json").is_file():
        return None
    config = json.loads((loaded.folder / "config.json").read_text(encoding="utf-8"))
    name = config.get("dtype") or config.get("torch_dtype")
    return {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(name)


def _done_lines(done: dict[str, Any]) -> list[str]:
    """What the fits and the distillation did, on held-out documents of the calibration text."""
    said: list[str] = []
    fits: list[dict[str, Any]] = [f for f in done.get("fits", []) if f.get("before")]
    if fits:
        kept = sum(bool(f.get("kept")) for f in fits)
        left = sorted(f["after"] / f["before"] for f in fits)
        said.append(
            f"re-fit: {kept} of {len(fits)} maps changed; error on held-out calibration text × "
            f"{left[len(left) // 2]:.2g} (median), × {left[-1]:.2g} (worst)"
        )
    if distilled := done.get("distilled"):
        early = ", stopped early" if distilled["stopped_early"] else ""
        said.append(
            f"distill: held-out loss {distilled['before']:.4g} → {distilled['after']:.4g}, best at step "
            f"{distilled['best_step']} of {distilled['steps']}{early}, {duration(distilled['seconds'])}"
        )
    return said
