"""Tokens of a batch: token ids without padding; patches of images and frames of sound, not channels or pixels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from multihead.model.token_count import TokenCount
from page.test_serve_models import _sound, _vit, _whisper

STACK = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 3, 16, batch_first=True), 2)
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])


class Embeds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stack = STACK

    def forward(self, inputs_embeds: Tensor, attention_mask: Tensor) -> Tensor:
        return self.stack(inputs_embeds, src_key_padding_mask=attention_mask == 0)


def test_token_ids_without_padding() -> None:
    """The model does not run: it could not read these ids."""
    assert TokenCount(STACK)({"input_ids": torch.zeros(2, 5), "attention_mask": MASK}) == 7
    assert TokenCount(STACK)({"input_ids": torch.zeros(2, 5)}) == 10


def test_vectors_without_padding() -> None:
    assert TokenCount(STACK)({"src": torch.ones(2, 5, 12)}) == 10
    assert TokenCount(Embeds())({"inputs_embeds": torch.ones(2, 5, 12), "attention_mask": MASK}) == 7


def test_images_are_patches_and_sound_is_frames() -> None:
    assert TokenCount(_vit())({"pixel_values": torch.ones(7, 3, 12, 12)}) == 7 * (9 + 1)
    words = torch.ones(3, 6, dtype=torch.long)
    assert TokenCount(_whisper())({"input_features": torch.ones(3, 5, 22), "decoder_input_ids": words}) == 3 * 11
    sound = _sound()
    patches = sound.audio_spectrogram_transformer.embeddings.position_embeddings.shape[1]
    assert TokenCount(sound)({"input_values": torch.ones(2, 20, 8)}) == 2 * patches


def test_the_model_runs_once_for_a_shape_on_one_document() -> None:
    model, rows = _vit(), list[int]()
    model.register_forward_pre_hook(
        lambda _, args, given: rows.append(len(given["pixel_values"])), with_kwargs=True
    )
    count = TokenCount(model)
    assert [count({"pixel_values": torch.ones(n, 3, 12, 12)}) for n in (7, 5, 7)] == [70, 50, 70]
    assert rows == [1]
    assert TokenCount(model, whole=True)({"pixel_values": torch.ones(5, 3, 12, 12)}) == 50
    assert rows == [1, 5]
