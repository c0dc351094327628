"""Kinds of a speech model whose cross-attention is written by hand: silence after a recording does not count."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import WhisperConfig, WhisperModel

from multihead.measures.kinds.head_shares import SHARES
from multihead.measures.kinds.kinds import Kinds, kinds
from multihead.model.call import Call, Compute
from multihead.model.intercept import intercept

FRAMES, WIDTH, BINS = 40, 48, 5
LENGTHS = (16, 22, 26, 28, 30, 24)
"""Frames of the encoder that each recording fills."""


def follows_time() -> WhisperModel:
    """Token i of the decoder looks at frame 2 i with head 0, and every third token at the last frame of the window.

    Only positions are read: convolutions and tokens are 0, and other layers write nothing. Head 1 is uniform.
    """
    torch.manual_seed(0)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = WhisperConfig(
        d_model=WIDTH, num_mel_bins=BINS, max_source_positions=FRAMES, max_target_positions=20, vocab_size=13,
        encoder_ffn_dim=7, decoder_ffn_dim=7, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, **sizes,
    )  # fmt: skip
    model = WhisperModel(config).eval()
    encoder, decoder = model.encoder, model.decoder
    cross: Any = decoder.layers[0].encoder_attn
    quiet = (encoder.conv1, encoder.conv2, decoder.embed_tokens, encoder.layers[0].self_attn.out_proj)
    quiet += (decoder.layers[0].self_attn.out_proj, encoder.layers[0].fc2, cross.q_proj, cross.k_proj)
    with torch.no_grad():
        for module in quiet:
            for parameter in module.parameters():
                parameter.zero_()
        places = [FRAMES - 1 if i % 3 == 2 else 2 * i for i in range(20)]
        decoder.embed_positions.weight.copy_(encoder.embed_positions.weight[places])
        half = torch.arange(WIDTH // 4)
        waves = torch.cat([half, WIDTH // 2 + half])  # the sine and the cosine of the higher frequencies
        cross.q_proj.weight[torch.arange(len(waves)), waves] = 30.0
        cross.k_proj.weight[torch.arange(len(waves)), waves] = 1.0
    return model


def recordings(silence: str) -> list[dict[str, Tensor]]:
    """Pairs of recordings; their ends are "equal" frames, "masked", or sound like the rest."""
    draw = torch.Generator().manual_seed(1)
    batches: list[dict[str, Tensor]] = []
    for frames in LENGTHS:
        sound, tokens = torch.randn(2, BINS, 2 * FRAMES, generator=draw), torch.ones(2, frames // 2).long()
        batch = {"input_features": sound, "decoder_input_ids": tokens}
        if silence == "equal":
            sound[..., 2 * frames :] = -1.5
        if silence == "masked":
            batch["attention_mask"] = (torch.arange(2 * FRAMES) < 2 * frames).long().expand(2, -1)
        batches.append(batch)
    return batches


@pytest.mark.parametrize("silence", ["equal", "masked"])
def test_a_head_that_follows_time_is_alignment_over_the_frames_of_the_recording(silence: str) -> None:
    model = follows_time()
    heard, everything = (kinds(model, recordings(ends)) for ends in (silence, "sound"))
    head = heard["cross.L0H0"]
    assert head.kind == "alignment"
    assert head.score > 0.98
    assert everything["cross.L0H0"].scores["alignment"].score < 0.9, "a third of the tokens look at the last frame"
    assert head.shares.leading == ("match",)
    rest = [found["cross.L0H0"].shares.share["rest"] for found in (heard, everything)]
    assert rest[0] > rest[1] + 0.15, "silence is a resting place"
    even = heard["cross.L0H1"].shares.share
    assert max(even["word"], even["match"]) < 0.01 < even["rest"], "a uniform head looks at silence, too"
    assert_total(heard)
    assert_total(everything)


def test_silence_is_known_to_the_frame() -> None:
    """The encoder halves the frames; rows of silence do not count in its own attention either."""
    model, counts = follows_time(), dict[str, list[int]]()

    def listen(call: Call, compute: Compute) -> Any:
        valid = call.keys.valid
        counts[call.site.label] = [] if valid is None else valid.sum(-1).tolist()
        return compute()

    batch = recordings("equal")[0]
    batch["input_features"][1, :, 30:] = torch.randn(BINS, 2 * FRAMES - 30)
    with intercept(model, listen), torch.no_grad():
        model(**batch)
    assert counts["encoder.L0"] == counts["cross.L0"] == [LENGTHS[0], FRAMES]
    batch["input_features"].zero_()
    with intercept(model, listen), torch.no_grad():
        model(**batch)
    assert counts["cross.L0"] == [], "an input without any sound has no end"


def assert_total(found: Kinds) -> None:
    total = torch.stack([found.table[name] for name in SHARES]).sum(0)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-6)
