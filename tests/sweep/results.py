"""The committed verdicts, one line per type: `results.json`, which docs/reference/architectures.md is made from.

A verdict is a letter (right R, refused F, raw X, wrong W, not applicable -), in the order of the checks; the
reasons of refusals stand beside them, each with its checks.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "results.json"
LETTERS = {"right": "R", "refused": "F", "raw": "X", "wrong": "W", "n.a.": "-"}
VERDICTS = {letter: verdict for verdict, letter in LETTERS.items()}


def compact(results: list[dict[str, Any]], checks: list[str]) -> dict[str, Any]:
    """What is kept of the results."""
    types: dict[str, Any] = {}
    for result in sorted(results, key=lambda r: r["type"]):
        if "checks" not in result:
            types[result["type"]] = {"unbuilt": _reason(result)}
            continue
        verdicts = result["checks"]
        letters = "".join(LETTERS[verdicts[c][0]] if c in verdicts else "-" for c in checks)
        why: dict[str, list[str]] = {}
        for check, (verdict, detail) in verdicts.items():
            if verdict in ("refused", "raw", "wrong"):
                why.setdefault(detail[:160], []).append(check)
        types[result["type"]] = {"class": result["class"], "verdicts": letters} | ({"why": why} if why else {})
    return {"checks": checks, "types": types}


def _reason(result: dict[str, Any]) -> str:
    """One short reason: the first of those that building collected."""
    reason = result.get("unbuilt") or result["died"]
    return reason.partition(" | ")[0][:120]


def write(results: list[dict[str, Any]], checks: list[str]) -> None:
    kept = compact(results, checks)
    lines = ",\n".join(f"{json.dumps(t)}: {json.dumps(r)}" for t, r in kept["types"].items())
    FILE.write_text(f'{{"checks": {json.dumps(checks)}, "types": {{\n{lines}\n}}}}\n')


def read() -> dict[str, Any]:
    return json.loads(FILE.read_text())
