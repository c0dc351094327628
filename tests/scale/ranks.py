"""python ranks.py FOLDER WORLDS [CHECK ...]: each check on so many ranks, in processes forked from one import.

Writes FOLDER/world-rank.json, {check: "" or what went wrong}, for every world size, e.g. `1,2,3,4`.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from on_ranks import context, heads, tensor, training
from torch.distributed.device_mesh import init_device_mesh

CHECKS = {check.__name__: check for part in (tensor, context, heads, training) for check in part.CHECKS}


def work(rank: int, world: int, folder: str, only: list[str]) -> None:
    """One rank: all checks, one after another."""
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store-{world}", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    said: dict[str, str] = {}
    for name, check in CHECKS.items():
        if only and name not in only:
            continue
        try:
            check(mesh)
            said[name] = ""
        except BaseException:  # noqa: BLE001  # reported, and the other ranks must not be left waiting
            said[name] = traceback.format_exc()
        Path(folder, f"{world}-{rank}.json").write_text(json.dumps(said))
        dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    folder, worlds, *only = sys.argv[1:]
    for world in map(int, worlds.split(",")):
        mp.start_processes(work, (world, folder, only), nprocs=world, start_method="fork")


if __name__ == "__main__":
    main()
