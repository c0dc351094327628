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

HEAD = """# Tested architectures

Every model type of transformers is built as a tiny random model and compared with its own computation
(`tests/sweep`). **yes**: correct to 1e-4. **refused**: an error, never a wrong value. **–**: does not apply.

- **capture**: inside `mh.capture` the output is the same, under eager and sdpa. The maps equal those that the model
  returns, every attention is seen or named in a warning, and the model is unchanged afterwards.
- **padding**: the statistics of a document do not depend on its batch.
- **anatomy**: W_Q, W_K, W_V and W_O of every head are found, and W_O = 0 equals ablation of the head.
- **prune**: the pruned model computes the same as the original with these heads ablated.

Torch's own modules, timm's and nanoGPT's layouts and multihead's layer are tested in the same way (`tests/zoo.py`).

## How heads are cut

- Most modules keep their class, with smaller matrices and new values of the attributes that hold the number of
  heads.
- Some modules cannot express how heads share keys and values: BERT, GPT-2, T5, ..., and groups of different
  sizes in any module. They get a kernel of ours on Hugging Face's attention interface, in front of eager, sdpa
  or the model's own function. Only this module's view of the config changes.
- Other modules compute attention by hand or need as many keys as queries: GPT-J, GPT-Neo, GPT-NeoX, OPT, BLOOM,
  Falcon, MPNet, DeBERTa, ModernBERT. Their projection computes each kv head once and returns copies; their cache
  stores one. Weights and cache are smaller, but the arithmetic of the scores is the same.
- OLMo 2 normalises all heads together, so the norm of the remaining heads needs the removed ones. W_Q and W_K
  are unchanged; W_V, W_O, the scores and the cache get smaller.
- T5, MPNet, BLOOM and Falcon pass values of all heads from layer to layer (position bias, ALiBi). Each layer
  selects those of its heads.
- ALBERT has one layer for all depths, so a head is removed at every depth.
- If no table has the class of a module, several ways are tried and compared with a run in which the heads are
  ablated. If none computes the same output, the module is refused and not changed.

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
    lines += ["", f"## {len(unbuilt)} types that are not tested\n", "| reason | types |", "|---|---|"]
    groups: dict[str, list[str]] = defaultdict(list)
    for model_type, reason in unbuilt.items():
        groups[_kind(reason)].append(model_type)
    lines += [f"| {kind} | {', '.join(types)} |" for kind, types in sorted(groups.items())]
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
