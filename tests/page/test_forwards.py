"""How often `report embedded` calls the model: a rerun is a call, and the share of a forward that it computes."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from multihead.cli import main
from multihead.sources.embedded.network import EmbeddedBlock, EmbeddedModel

WITHOUT_THEORY = ("--only", "measure,kinds,pairs,importance,similarity,curve,cost")


@pytest.mark.fast("without the theory")
@pytest.mark.parametrize(
    "options, calls, forwards",
    [
        # loading 1 (the saved example), estimate 2, anatomy and maps 4, text 5, shuffled 5, repeats 1, pieces 3,
        # loss 1, ablation 20, curve 15, cost 1
        pytest.param(WITHOUT_THEORY, 59, 53, id="without the theory"),
        pytest.param((), 94, 88, id="all"),
    ],
)
def test_a_report_runs_the_model_few_times(
    options: tuple[str, ...], calls: int, forwards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = {EmbeddedModel: 0, EmbeddedBlock: 0}

    def counted(kind: Any) -> Any:
        forward = kind.forward

        @wraps(forward)  # the package reads the signature
        def count(self: Any, *args: Any, **kwargs: Any) -> Any:
            ran[kind] += 1
            return forward(self, *args, **kwargs)

        return count

    for kind in ran:
        monkeypatch.setattr(kind, "forward", counted(kind))
    assert main(["report", "embedded", *options, "-o", str(tmp_path / "report.html"), "--quiet"]) == 0
    assert 0 < ran[EmbeddedModel] <= calls
    assert 0 < ran[EmbeddedBlock] / 3 <= forwards
