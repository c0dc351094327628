"""Planning and re-fit over ranks: each takes its share of the calibration text, and all make the same cut."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open

from scale.launching import forked

HERE = Path(__file__).parent


def read(file: Path) -> tuple[str, dict[str, torch.Tensor]]:
    with safe_open(file, framework="pt") as kept:
        return kept.metadata()["plan"], {name: kept.get_tensor(name) for name in kept.keys()}  # noqa: SIM118


def test_two_ranks_cut_as_one_process_does(tmp_path: Path) -> None:
    for ranks, out in ((1, "one"), (2, "two")):
        done = forked(HERE / "cutting.py", tmp_path / out, ranks=ranks)
        assert done.returncode == 0, done.stderr
    plan, weights = read(tmp_path / "one" / "0.safetensors")
    first, second = (read(tmp_path / "two" / f"{rank}.safetensors") for rank in range(2))
    assert first[0] == second[0], "both ranks made the same plan"
    assert plan.count("remove") == first[0].count("remove")
    assert sorted(first[1]) == sorted(weights)
    for name, weight in weights.items():
        assert torch.equal(first[1][name], second[1][name]), f"{name}: the ranks differ"
        torch.testing.assert_close(first[1][name], weight, rtol=1e-8, atol=1e-9, msg=name)


def test_one_process_takes_all_batches_and_sums_nothing() -> None:
    from multihead.corpus.data_parallel import shard

    mine, summed = shard(iter("abc"))
    x = torch.tensor([2.0])
    summed(x)
    assert mine == ["a", "b", "c"]
    assert float(x) == 2.0
