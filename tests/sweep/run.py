"""Sweep model types, print the counts and every raw and wrong verdict with its cause.

python tests/sweep/run.py [TYPE ...] [--jobs 2] [--out results.json] [--checks "output eager" cut] [--keep]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

ORDER = ("right", "refused", "raw", "wrong", "n.a.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*", help="default: all")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--out", type=Path, help="write the results as JSON, and a line per finished type beside it"
    )
    parser.add_argument("--checks", nargs="*", default=[])
    parser.add_argument(
        "--keep", action="store_true", help="write tests/sweep/results.json: the verdicts of all types"
    )
    options = parser.parse_args()

    from sweep.process import sweep_all

    results: list[dict[str, Any]] = []
    lines = options.out.with_suffix(".jsonl").open("a") if options.out else None
    for result in sweep_all(options.types or all_types(), options.jobs, options.checks):
        results.append(result)
        if lines is not None:
            lines.write(json.dumps(result) + "\n")
            lines.flush()
        print(f"{len(results):4d} {result['type']}: {summary(result)}", file=sys.stderr, flush=True)
    if options.out:
        options.out.write_text(json.dumps(sorted(results, key=lambda r: r["type"]), indent=0) + "\n")
    if options.keep:
        from sweep.checks import CHECKS
        from sweep.results import write

        write(results, list(CHECKS))
    print(table(results))


def all_types() -> list[str]:
    from transformers import CONFIG_MAPPING

    return list(CONFIG_MAPPING)


def summary(result: dict[str, Any]) -> str:
    if "checks" not in result:
        return result.get("died") or f"not built: {result['unbuilt'][:100]}"
    counts = Counter(verdict for verdict, _ in result["checks"].values())
    return ", ".join(f"{counts[v]} {v}" for v in ORDER if counts[v])


def table(results: list[dict[str, Any]]) -> str:
    """Counts per check, then every raw and wrong verdict, by cause."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    causes: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        for check, (verdict, detail) in result.get("checks", {}).items():
            counts[check][verdict] += 1
            if verdict in ("raw", "wrong"):
                causes[check, verdict][
                    re.sub(r"\d+(\.\d+)?(e-?\d+)?|\([^()]*\.[^()]*\)", "#", detail)[:110]
                ].append(f"{result['type']} [{detail}]")
    built = [r for r in results if "checks" in r]
    none = [r for r in results if r.get("unbuilt") == "no attention"]
    died = [r for r in results if "died" in r]
    rows = [
        f"{len(results)} types: {len(built)} built, {len(none)} without attention, {len(died)} died, "
        f"{len(results) - len(built) - len(none) - len(died)} not built",
        f"{'check':16}" + "".join(f"{v:>9}" for v in ORDER),
    ]
    rows += [f"{check:16}" + "".join(f"{c[v]:>9}" for v in ORDER) for check, c in counts.items()]
    for (check, verdict), groups in causes.items():
        total = sum(map(len, groups.values()))
        rows.append(f"\n== {check}: {verdict} ({total})")
        for cause, types in sorted(groups.items(), key=lambda item: -len(item[1])):
            rows.append(f"-- {len(types)}× {cause}")
            rows += [f"     {line}" for line in types]
    rows += [f"\n== died ({len(died)})", *(f"     {r['type']}: {r['died']}" for r in died)] if died else []
    return "\n".join(rows)


if __name__ == "__main__":
    main()
