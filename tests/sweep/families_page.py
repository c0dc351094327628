"""docs/reference/architectures.md from the committed verdicts: `python tests/sweep/families_page.py` writes it."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from sweep.results import VERDICTS, read

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "architectures.md"

COLUMNS = {
    "capture": ("output eager", "output sdpa", "trace", "maps eager", "maps sdpa", "seen", "labels", "names"),
    "padding": ("padding", "masks"),
    "anatomy": ("anatomy",),
    "prune": ("cut",),
}
"""The columns of the page, and the checks that each stands for."""

HEAD = """# What works for which architecture

Every model type of transformers, built as a tiny random model and compared with its own computation
(`tests/sweep`). **yes**: right to 1e-4. **refused**: an error, never a number. **–**: does not apply.

- **capture**: inside `mh.capture` the output is the same, under eager and sdpa; the maps are those that the model
  returns; every attention is seen or named in a warning; nothing is left behind.
- **padding**: the statistics of a document do not depend on the batch that it came in.
- **anatomy**: W_Q, W_K, W_V and W_O of every head are found, and W_O = 0 does what ablating the head does.
- **prune**: the model without heads gives what the whole one gives with the same heads ablated.

Torch's own modules, timm's and nanoGPT's layouts and multihead's layer are tested in the same way (`tests/zoo.py`).

## How heads are cut

- Most modules are shrunk where they stand: smaller matrices, and a few attributes that say the number of heads.
- Heads that share keys and values in a way the module's code cannot say (BERT, GPT-2, T5, ...; groups of different
  sizes everywhere) go through a kernel of ours on Hugging Face's attention interface, in front of eager, sdpa or
  whichever the model uses. Only that module's view of the config changes.
- Modules that compute attention by hand or want as many keys as queries (GPT-J, GPT-Neo, GPT-NeoX, OPT, BLOOM,
  Falcon, MPNet, DeBERTa, ModernBERT) have a projection that computes each kv head once and hands out copies, and a
  cache that keeps one: weights and cache are smaller, the arithmetic of the scores is the same.
- OLMo 2 normalises all heads together, so the norm of the remaining heads needs the others: W_Q and W_K stay whole
  there; W_V, W_O, the scores and the cache get smaller.
- T5, MPNet, BLOOM and Falcon pass values of all heads from layer to layer (position bias, ALiBi): each layer picks
  those of its heads.
- ALBERT has one layer for all depths: what it loses, all of them lose.
- A module whose class is in no table is tried in several ways, and compared with a run with the heads ablated; if
  none gives the same output, it is refused and not changed.

"""


def page(results: dict[str, Any]) -> str:
    checks = results["checks"]
    built = {t: r for t, r in results["types"].items() if "verdicts" in r}
    unbuilt = {t: r["unbuilt"] for t, r in results["types"].items() if "verdicts" not in r}
    lines = [
        HEAD,
        f"## {len(built)} types\n",
        f"| type | {' | '.join(COLUMNS)} | refused because |",
        "|---" * (len(COLUMNS) + 2) + "|",
    ]
    for model_type, result in built.items():
        verdicts = {check: VERDICTS[letter] for check, letter in zip(checks, result["verdicts"], strict=True)}
        cells = [_cell([verdicts[check] for check in names]) for names in COLUMNS.values()]
        why = result.get("why", {})
        reasons = [_short(reason) for reason, names in why.items() if any(_refused(n, verdicts) for n in names)]
        lines.append(f"| {model_type} | {' | '.join(cells)} | {'; '.join(dict.fromkeys(reasons))} |")
    lines += ["", f"## {len(unbuilt)} types that are not tested\n"]
    groups: dict[str, list[str]] = defaultdict(list)
    for model_type, reason in unbuilt.items():
        groups[_kind(reason)].append(model_type)
    lines += [f"- **{kind}**: {', '.join(types)}" for kind, types in sorted(groups.items())]
    return "\n".join(lines) + "\n"


def _refused(check: str, verdicts: dict[str, str]) -> bool:
    return verdicts[check] == "refused" and any(check in checks for checks in COLUMNS.values())


def _cell(verdicts: list[str]) -> str:
    """The worst verdict of a column."""
    for verdict, text in (("wrong", "**wrong**"), ("raw", "**error**"), ("refused", "refused"), ("right", "yes")):
        if verdict in verdicts:
            return text
    return "–"


def _short(detail: str) -> str:
    return detail.partition(". ")[0].replace("|", "/")[:140]


def _kind(reason: str) -> str:
    for start in ("no attention", "needs the package", "part of"):
        if reason.startswith(start):
            return reason
    return "no tiny model runs"


if __name__ == "__main__":
    PAGE.write_text(page(read()))
