"""The verdict of a check: right, refused, raw, wrong or not applicable."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from multihead.errors import MultiheadError

RIGHT, REFUSED, RAW, WRONG, NOT_APPLICABLE = VERDICTS = ("right", "refused", "raw", "wrong", "n.a.")


class Wrong(Exception):
    """What multihead shows is not what the model did; the message has the size."""


class NotApplicable(Exception):
    """The check says nothing about this type; the message is the reason."""


@dataclass(frozen=True)
class Verdict:
    verdict: str
    detail: str = ""

    @property
    def bad(self) -> bool:
        return self.verdict in (RAW, WRONG)


def judge(check: Callable[[], str | None]) -> Verdict:
    """Run a check. Its errors are the verdict: ours are a refusal, the sweep's own say so, any other is raw."""
    try:
        return Verdict(RIGHT, check() or "")
    except NotApplicable as reason:
        return Verdict(NOT_APPLICABLE, str(reason))
    except Wrong as size:
        return Verdict(WRONG, str(size))
    except MultiheadError as error:
        return Verdict(REFUSED, first_line(error))
    except Exception as error:
        return Verdict(RAW, f"{type(error).__name__}: {first_line(error)} ({_place(error)})")


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else ""


def _place(error: BaseException) -> str:
    """Where it was raised: the last line of multihead, and the last of all."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/multihead/" in f.filename]
    places = [f"{Path(f.filename).name}:{f.lineno}" for f in (*ours[-1:], *frames[-1:])]
    return ", ".join(dict.fromkeys(places))
