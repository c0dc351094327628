"""Run by test_cut_ranks.py on one and two ranks: plan and cut a small model, and write the weights that came of it.

python cutting.py FOLDER: each rank writes FOLDER/RANK.safetensors.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from measuring import documents, model
from safetensors.torch import save_file

import multihead as mh
from multihead.corpus.data_parallel import data_parallel
from multihead.corpus.ranks import Ranks
from multihead.edit.calibration import Calibration
from multihead.edit.kv_sharing.input_moments import moments_of


def cut_of(kv_heads: int | None) -> tuple[str, dict[str, torch.Tensor]]:
    """The plan as text, and the weights of the cut model: half of the heads out, or keys and values shared."""
    whole = model().double()
    text = Calibration(whole, documents(), batch_size=5)
    asked = {"keep": 0.5} if kv_heads is None else {"kv_heads": kv_heads}
    plan = mh.plan(whole, text, **asked)  # type: ignore[arg-type]
    small = mh.cut(whole, plan)
    return json.dumps(plan.to_json(), sort_keys=True), {n: w.contiguous() for n, w in small.state_dict().items()}


def moments() -> dict[str, torch.Tensor]:
    """The moments that sharing keys and values needs, of the last layer."""
    whole = model().double()
    text = Calibration(whole, documents(), batch_size=5)
    sums = moments_of(whole, mh.anatomy(whole)[-1], text.fit())
    blocks = {"context": sums.context_moment.block, "attended": sums.attended_key_moment.block}
    return {name: x.contiguous() for name, x in ({"query": sums.query, "key": sums.key} | blocks).items()}


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    with Ranks.started(60.0) as ranks, data_parallel():
        plan, weights = cut_of(None)
        save_file(weights | moments(), folder / f"{ranks.rank}.safetensors", metadata={"plan": plan})


if __name__ == "__main__":
    main()
