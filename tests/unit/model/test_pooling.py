"""Pooling: every mode against sentence-transformers, and the pooling of a model found in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from multihead.errors import MultiheadError
from multihead.measures.importance.losses import OutputDistance
from multihead.model.pooling import Pooling, pooling_of
from unit.model.encoder_folder import encoder_folder

MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
MASKS = {"right": [[1, 1, 1, 0, 0], [1] * 5], "left": [[0, 0, 1, 1, 1], [1] * 5]}


@pytest.mark.parametrize("side", MASKS)
@pytest.mark.parametrize("modes", [*[(m,) for m in MODES], ("cls", "mean")])
def test_modes_are_those_of_sentence_transformers(modes: tuple[str, ...], side: str) -> None:
    from sentence_transformers.sentence_transformer.modules import Pooling as Theirs

    x = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor(MASKS[side])
    expected = Theirs(7, pooling_mode=modes)({"token_embeddings": x, "attention_mask": mask})["sentence_embedding"]
    padded = x.masked_fill(mask[..., None] == 0, torch.nan)  # padding is never read
    torch.testing.assert_close(Pooling(modes)(padded, mask.bool()), expected)


def test_outputs_without_padding_or_tokens() -> None:
    x = torch.randn(2, 3, 5, 7, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(Pooling()(x), x.mean((1, 2)))
    torch.testing.assert_close(Pooling(("cls",))(x[:, 0, 0]), x[:, 0, 0])


@pytest.mark.parametrize(
    "settings, modes",
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, ("cls",)),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, ("cls", "mean")),
        ({"embedding_dimension": 21, "pooling_mode": "lasttoken"}, ("lasttoken",)),
        ({"pooling_mode": ["max", "mean"]}, ("max", "mean")),
        ({"pooling_mode_mean_tokens": False}, ("mean",)),
        (None, ("mean",)),
    ],
)
def test_the_folder_says_how(settings: dict[str, Any] | None, modes: tuple[str, ...], tmp_path: Path) -> None:
    assert pooling_of(encoder_folder(tmp_path, settings)) == Pooling(modes)


def test_models_without_a_folder_are_pooled_by_their_mean(tmp_path: Path) -> None:
    assert pooling_of(nn.Linear(3, 2)) == Pooling()
    model = encoder_folder(tmp_path, {"pooling_mode": "cls"})
    for name in ("", "/a/folder/that/is/gone", "org/not-in-the-cache"):
        model.config._name_or_path = name
        assert pooling_of(model) == Pooling(), name


def test_a_pooling_module_inside_the_model() -> None:
    from sentence_transformers.sentence_transformer.modules import Pooling as Theirs

    assert pooling_of(nn.Sequential(nn.Linear(3, 7), Theirs(7, pooling_mode="cls"))) == Pooling(("cls",))


def test_settings_that_cannot_be_used(tmp_path: Path) -> None:
    model = encoder_folder(tmp_path, {"pooling_mode": "median"})
    with pytest.raises(MultiheadError, match=r"unknown pooling mode 'median'.*1_Pooling/config\.json"):
        pooling_of(model)
    (tmp_path / "1_Pooling" / "config.json").write_text("{")
    with pytest.raises(MultiheadError, match=r"config\.json is not readable"):
        pooling_of(model)


def test_the_distance_of_sentences_uses_it() -> None:
    generator = torch.Generator().manual_seed(0)
    old, new = torch.randn(2, 3, 5, 7, generator=generator)
    mask = torch.tensor([[0, 1, 1, 1, 1], [1] * 5, [1] * 5])
    loss = OutputDistance("sentence", pooling=Pooling(("cls",)))
    found = loss.documents(new, loss.target({"attention_mask": mask}, {}, old))
    first = [old[0, 1], old[1, 0], old[2, 0]], [new[0, 1], new[1, 0], new[2, 0]]
    expected = 1 - nn.functional.cosine_similarity(torch.stack(first[0]), torch.stack(first[1]), dim=1)
    torch.testing.assert_close(found, expected)
    assert "cls-pooled" in loss.name
