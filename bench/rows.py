"""The rows of bench/layer.py: each work, and the ratio that must be reached."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

import small
from harness import Work
from peers import EXPLICIT, FLAX, HAND, LLAMA, NAMES, TORCH, TUNE, XT
from works import (
    DENSE,
    FULL,
    GQA,
    LENGTHS,
    decode_core,
    decode_layer,
    documents,
    padded,
    plain,
    rotary,
    window,
)  # fmt: skip

COLUMNS = (*NAMES, DENSE, FULL, GQA, LENGTHS)

NO_SLOWER = {"any peer": 0.97}  # no peer faster, within 3 % of noise
THREE_TIMES = {HAND: 3.0}
WINDOW, DOCUMENTS = {DENSE: 5.0, FULL: 2.5}, {DENSE: 4.0}
HALF_FULL = [512, 448, 352, 256, 224, 160, 64, 32]  # real tokens of 512: mean fill 50 %


def _wide_keys(batch: int, tokens: int, *, without: tuple[str, ...] = (), **options: object) -> Work:
    """Causal training with keys wider than values, as in latent attention (3 to 2)."""
    sizes = {"num_heads": 8, "head_dim": 96, "value_dim": 64}
    cannot = (TORCH, TUNE, LLAMA, FLAX)
    return plain(batch, tokens, causal=True, train=True, without=(*cannot, *without), **sizes, **options)


def _dropout(batch: int, tokens: int, **options: object) -> Work:
    """Causal training with dropout on the weights; torchtune and HF call SDPA as the hand-written layer does."""
    return plain(batch, tokens, causal=True, train=True, dropout=0.1, **options)


WORKS: dict[str, Callable[[], Work]] = {
    "forward 8x512": partial(plain, 8, 512, causal=False, train=False, must=NO_SLOWER, least=0.8),
    "forward 8x512 causal": partial(plain, 8, 512, causal=True, train=False, must=NO_SLOWER, least=0.8),
    "forward+backward 8x512": partial(plain, 8, 512, causal=False, train=True, must=NO_SLOWER),
    "forward+backward 8x512 causal": partial(plain, 8, 512, causal=True, train=True, must=NO_SLOWER),
    "forward 8x512 causal rotary": partial(rotary, 8, 512, train=False, must=NO_SLOWER),
    "forward+backward 8x512 causal rotary": partial(rotary, 8, 512, train=True, must=NO_SLOWER),
    "forward 1x4096 causal": partial(plain, 1, 4096, causal=True, train=False, must=NO_SLOWER),
    "forward 1x16, d 64": partial(plain, 1, 16, causal=True, train=False, must={}, d_model=64, num_heads=4),
    "small: forward 1x1, d 64": partial(small.forward, 1, 1, 64, least=0.85),
    "small: forward 1x16, d 64, causal": partial(small.forward, 1, 16, 64, least=0.9),
    "small: forward 1x16, d 256, causal": partial(small.forward, 1, 16, 256, least=0.92),
    "small: forward 8x64, d 64, causal": partial(small.forward, 8, 64, 64, least=0.95),
    "small: decode one token, Growing, d 64": partial(small.decode, "Growing", 64, least=0.7),
    "small: decode one token, Static, d 64": partial(small.decode, "Static", 64, least=0.6),
    "small: forward 1x16, d 64, causal rotary": partial(small.rotary, 1, 16, 64, least=0.8),
    "small: forward+backward 1x16, d 64, causal": partial(small.forward, 1, 16, 64, train=True, least=0.85),
    "small: generate 500 tokens, 4 layers of d 256, Static": partial(small.generate, 500, 4, 256, least=0.9),
    "d_k 96, d_v 64 forward+backward 8x512": partial(_wide_keys, 8, 512, must=THREE_TIMES),
    "d_k 96, d_v 64 forward+backward 1x4096": partial(_wide_keys, 1, 4096, must=THREE_TIMES, without=(EXPLICIT,)),
    "dropout 0.1 forward+backward 8x512": partial(_dropout, 8, 512, must=THREE_TIMES, without=(TUNE, LLAMA)),
    "dropout 0.1 forward+backward 1x4096": partial(
        _dropout, 1, 4096, must=THREE_TIMES, without=(TORCH, XT, TUNE, LLAMA, EXPLICIT, FLAX)
    ),
    **{
        f"decode core {keys // 1024}k {str(dtype)[6:]}": partial(
            decode_core, keys, dtype, must={GQA: 2.0}, least=0.6
        )
        for keys in (4096, 16384) for dtype in (torch.float32, torch.bfloat16)
    },
    **{
        f"decode layer {keys // 1024}k {str(dtype)[6:]}": partial(decode_layer, keys, dtype, must=NO_SLOWER)
        for keys in (4096, 16384) for dtype in (torch.float32, torch.bfloat16)
    },
    "window 256 of 8192 forward": partial(window, 8192, 256, train=False, projections=True, must=WINDOW),
    "window 256 of 8192 forward+backward": partial(window, 8192, 256, train=True, projections=True, must=WINDOW),
    "window 256 of 8192 forward core": partial(window, 8192, 256, train=False, projections=False, must=WINDOW),
    "8 documents of 256 forward": partial(documents, 8, 256, train=False, projections=True, must={}),
    "8 documents of 256 forward core": partial(documents, 8, 256, train=False, projections=False, must=DOCUMENTS),
    "8 documents of 256 forward+backward core": partial(
        documents, 8, 256, train=True, projections=False, must=DOCUMENTS
    ),
    "half padding 8x512 forward": partial(padded, HALF_FULL, 512, train=False, must={HAND: 1.5}),
    "half padding 8x512 forward+backward": partial(padded, HALF_FULL, 512, train=True, must={HAND: 1.5}),
}  # fmt: skip
