"""What is known of the heads of trained models shows in their numbers.

MiniLM comes with a package. Others lie in the folder of MULTIHEAD_MODELS, by default ../shared/models beside the
repository; where there is no such model, its test says so and is skipped.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from golden.make_minilm_statistics import measured, model_and_batch
from multihead.measures import Statistics

MODELS = Path(os.environ.get("MULTIHEAD_MODELS") or Path(__file__).parents[3].parent / "shared" / "models")


@dataclass(frozen=True)
class Trained:
    """The mean of each statistic, (layer, head), and the tokens that it is of."""

    means: dict[str, Tensor]
    ids: Tensor
    real: Tensor

    def best(self, name: str) -> tuple[str, float, float]:
        """The head with the largest mean, its mean, and that of the runner-up."""
        table = self.means[name]
        first, second = table.flatten().topk(2).values.tolist()
        layer, head = divmod(int(table.argmax()), table.shape[1])
        return f"L{layer}H{head}", first, second


@pytest.fixture(scope="module")
def minilm() -> Trained:
    model, batch, asked = model_and_batch()
    return Trained(measured(model, batch, asked), batch["input_ids"], batch["attention_mask"].bool())


def test_one_head_of_minilm_looks_at_the_previous_token_and_one_at_the_next(minilm: Trained) -> None:
    name, mass, other = minilm.best("previous")
    assert (name, mass > 0.7, other < 0.5) == ("L0H2", True, True)
    name, mass, other = minilm.best("next")
    assert (name, mass > 0.5, other < 0.4) == ("L1H8", True, True)


def test_a_previous_token_head_looks_back_by_one_and_nearly_at_one_key(minilm: Trained) -> None:
    at = lambda name: float(minilm.means[name][0, 2])
    assert at("effective_keys") < 1.1
    assert at("max_weight") > 0.9
    assert at("offset-1") == pytest.approx(at("previous"))
    assert at("before") > 0.9


def test_many_heads_of_minilm_look_mostly_at_delimiters(minilm: Trained) -> None:
    """Two of some 17 visible tokens are [CLS] and [SEP]: a uniform head has an eighth of its mass there."""
    special = minilm.means["special"]
    uniform = 2 * len(minilm.ids) / int(minilm.real.sum())
    assert uniform < 0.15
    assert int((special > 0.5).sum()) >= 20
    assert float(special.max()) > 0.7
    assert float(special.mean()) > 2 * uniform
    assert minilm.best("first")[1] > 0.7, "most of that is [CLS]"


def test_one_head_of_minilm_looks_at_the_same_token_elsewhere(minilm: Trained) -> None:
    """Of rows that have such a token it has a good third; they are a fifth of all, and the others count as 0."""
    same = (minilm.ids[:, :, None] == minilm.ids[:, None, :]) & minilm.real[:, None, :]
    others = (same.sum(-1) - 1)[minilm.real]
    having = float((others > 0).double().mean())
    seen = minilm.real.sum(-1, keepdim=True).expand(minilm.ids.shape)[minilm.real]
    chance = float((others / seen).mean()) / having
    name, mass, _ = minilm.best("same_token")
    assert name == "L2H9"
    assert mass / having > 0.35
    assert chance < 0.15


def test_first_layer_heads_of_minilm_are_broad(minilm: Trained) -> None:
    """All but the previous-token head spread their weight: no later layer is as even."""
    evenness = minilm.means["relative_entropy"]
    assert int((evenness[0] > 0.75).sum()) >= 9
    assert evenness.mean(-1).argmax() == 0


# ---- models that are not in a package ---------------------------------------------------------


@pytest.fixture(scope="module")
def stories() -> Trained:
    folder = MODELS / "stories260K"
    if not folder.is_dir():
        pytest.skip(f"no stories260K in {MODELS}: set MULTIHEAD_MODELS to the folder that holds it")
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    written = json.loads((folder / "sample.json").read_text())["ids"]
    ids = torch.tensor([story for story in written if len(story) == 256][:16])
    return Trained(measured(model, {"input_ids": ids}, Statistics()), ids, torch.ones_like(ids, dtype=torch.bool))


def test_a_story_teller_has_previous_token_heads_and_looks_at_nothing_to_come(stories: Trained) -> None:
    """LLaMA with 8 heads over 4 key heads: the heads of a group are told apart."""
    assert stories.means["entropy"].shape == (5, 8)
    name, mass, _ = stories.best("previous")
    assert (name, mass > 0.5) == ("L1H3", True)
    assert int((stories.means["previous"] > 0.5).sum()) >= 2
    for name in ("after", "next", "offset+1", "offset+16"):
        assert not stories.means[name].any(), name


def test_a_small_story_teller_has_no_sink_head(stories: Trained) -> None:
    """The first of 256 tokens gets little from everyone: what larger models do is not found where it is not."""
    assert stories.best("first")[1] < 0.1
