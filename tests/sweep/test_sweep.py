"""No model type is read wrongly without an error: every type that can be built, each in a process of its own."""

from __future__ import annotations

import pytest
from transformers import CONFIG_MAPPING

from sweep.families_page import PAGE, page
from sweep.process import Child
from sweep.results import read


@pytest.mark.fast(
    "align_text_model",  # the mask: bidirectional attention that an interface may make causal
    "deepseek_v32",  # sparse selection under eager, padding
    "git",  # an attention that no kernel shows
    "longt5",  # the same in an encoder; names of a part
    "deberta",  # an adapter chosen by its class
    "afmoe",  # a result of other strides
    "pix2struct",  # cross-attention by another name
    "gpt_oss",  # sinks
    "tipsv2",  # two towers
    "nllb-moe",  # a decoder's causal mask
    "nemotron3_diarization_audio",  # k and v with different head counts
    "owlvit",  # ids without pictures
)
@pytest.mark.parametrize("model_type", list(CONFIG_MAPPING))
def test_type(model_type: str) -> None:
    result = Child(model_type).result()
    assert "died" not in result, result["died"]
    checks = result.get("checks", {})
    assert not {name: detail for name, (verdict, detail) in checks.items() if verdict in ("raw", "wrong")}


def test_page_shows_the_results() -> None:
    assert PAGE.read_text() == page(read()), "run: make families"


def test_results_cover_every_type() -> None:
    results = read()
    assert set(results["types"]) == set(CONFIG_MAPPING)
    built = [r for r in results["types"].values() if "verdicts" in r]
    assert len(built) >= 554
    bad = {
        t: [c for c, v in zip(results["checks"], r.get("verdicts", ""), strict=False) if v in "WX"]
        for t, r in results["types"].items()
    }
    assert not {t: c for t, c in bad.items() if c}
