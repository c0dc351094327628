"""What is timed: one function per kind of work, which builds the contestants with equal weights and inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness import Job, Limit, Work
from multihead import MultiHeadAttention, cache, mask, position
from multihead.layer import Groups, Problem, attend
from multihead.layer._coordinates import Coordinates
from multihead.layer._mask_algebra import Mask
from multihead.layer._problem import ScoreConfig
from peers import (
    EXPLICIT,
    FLAX,
    HAND,
    LLAMA,
    TORCH,
    TUNE,
    XT,
    HandWritten,
    HandWrittenDecoder,
    Textbook,
    TorchLayer,
    flax_job,
    llama_layer,
    rotation_of,
    torchtune_layer,
    x_transformers_layer,
)  # fmt: skip

D, HEADS = 768, 12
DENSE, FULL, GQA, LENGTHS = "SDPA, dense mask", "SDPA, full causal", "SDPA enable_gqa", "ours, mask.lengths"
LEFT_OUT: dict[str, str] = {}  # contestants that could not be made, and why

Layer = Callable[..., Tensor]


def plain(
    batch: int, tokens: int, *, causal: bool, train: bool, must: dict[str, float], least: float | None = None,
    without: tuple[str, ...] = (), **options: float,
) -> Work:  # fmt: skip
    """Self-attention of the usual kind, with everyone who can do it."""
    ours = layer_of(**options).train(train)
    x, grad = tokens_of(batch, tokens, train, ours.d_model)
    makers: dict[str, Callable[[], nn.Module]] = {
        HAND: lambda: HandWritten(ours, causal),
        TORCH: lambda: TorchLayer(ours, causal, tokens),
        XT: lambda: x_transformers_layer(ours, causal),
        TUNE: lambda: torchtune_layer(ours, causal),
        LLAMA: lambda: llama_layer(ours, causal, rotation_of(tokens, ours.head_dim, still=True)),
        EXPLICIT: lambda: Textbook(ours, causal),
    }
    layers = {n: _made(n, make) for n, make in makers.items() if n not in without}
    seen = mask.causal() if causal else mask.everything()
    everyone = {n: layer.train(train) for n, layer in layers.items() if layer is not None}
    if ours.dropout:
        _agree_without_dropout(partial(ours, mask=seen), ours, everyone, x)
    jobs = {n: job_of(layer, grad, x) for n, layer in everyone.items()}
    flax = None if FLAX in without else _made(FLAX, lambda: flax_job(ours, causal, x, grad))
    if flax is not None:
        jobs[FLAX] = flax
    pairs = batch * tokens * tokens / (2 if causal else 1)
    return Work(
        job_of(partial(ours, mask=seen), grad, x, weights=ours),
        jobs,
        must,
        gemm_limit(flops(ours, batch * tokens, pairs, train), least),
        None if ours.dropout else same,
    )


def rotary(batch: int, tokens: int, *, train: bool, must: dict[str, float]) -> Work:
    """Causal with rotation, where LlamaAttention does no more than asked."""
    ours = layer_of(position=position.Rotary()).train(train)
    x, grad = tokens_of(batch, tokens, train)
    rotation = rotation_of(tokens, ours.head_dim)
    layers = {
        HAND: HandWritten(ours, True, rotation),
        LLAMA: _made(LLAMA, lambda: llama_layer(ours, True, rotation)),
    }
    return Work(
        job_of(partial(ours, mask=mask.causal()), grad, x, weights=ours),
        {n: job_of(layer.train(train), grad, x) for n, layer in layers.items() if layer is not None},
        must,
        gemm_limit(flops(ours, batch * tokens, batch * tokens * tokens / 2, train)),
        same,
    )


def decode_core(keys: int, dtype: torch.dtype, *, must: dict[str, float], least: float) -> Work:
    """One query of 32 heads over a cache of 8 kv heads of 128: no projections.

    A model has many layers, so that no cache of one is still near the cores when its turn comes again: the
    calls go round over so many caches that together they are far larger than what the processor keeps.
    """
    torch.manual_seed(0)
    qkv = [torch.randn(1, heads, n, 128).to(dtype) for heads, n in ((32, 1), (8, keys), (8, keys))]
    copies = math.ceil(256e6 / sum(t.nbytes for t in qkv))
    made = [[t.clone() for t in qkv] for _ in range(copies)]
    sdpa = partial(F.scaled_dot_product_attention, enable_gqa=True)
    return Work(
        _in_turn(partial(core, seen=mask.causal()), made),
        {GQA: _in_turn(sdpa, made)},
        must,
        Limit("read bandwidth", _in_turn(_read, made), least=least),
        same,
    )


def decode_layer(keys: int, dtype: torch.dtype, *, must: dict[str, float]) -> Work:
    """The same with the projections of d_model 4096, the rotation and the cache."""
    ours = layer_of(d_model=4096, num_heads=32, num_kv_heads=8, dtype=dtype, position=position.Rotary()).eval()
    k, v = (torch.randn(1, 8, keys, 128).to(dtype) for _ in range(2))
    x = torch.randn(1, 1, 4096).to(dtype)
    kept = cache.Static(1, 8, keys + 16, 128, dtype=dtype)
    kept.append(k, v)
    rotation = tuple(t.to(dtype) for t in rotation_of(1, 128, start=keys))

    def our_step() -> Tensor:
        out = ours(x, mask=mask.causal(), cache=kept)
        kept.crop(keys)
        return out

    by_hand = HandWrittenDecoder(ours, k, v, rotation)
    jobs = {HAND: no_grad(by_hand, x)}
    llama = _made(LLAMA, lambda: _llama_decoder(ours, k, v, rotation))
    if llama is not None:
        jobs[LLAMA] = no_grad(llama, x)
    read = [*ours.parameters(), k, v]
    return Work(no_grad(our_step), jobs, must, Limit("read bandwidth", lambda: _read(*read)), same)


def structured(
    batch: int, tokens: int, seen: Mask, allowed: Tensor, *, train: bool, must: dict[str, float], projections: bool,
    full: bool = False,
) -> Work:  # fmt: skip
    """A mask with structure, against the same mask written out, and against plain causal attention."""
    x, grad = tokens_of(batch, tokens, train)
    ours = layer_of().train(train)
    if projections:
        inputs, weights = (x,), ours
        our_way, dense, causal = partial(ours, mask=seen), HandWritten(ours, mask=allowed), HandWritten(ours, True)
        work = flops(ours, batch * tokens, batch * int(allowed.sum()), train)
    else:
        # Laid out as a projection leaves them: token, head, dim.
        shape = (batch, tokens, HEADS, D // HEADS)
        inputs = tuple(torch.randn(shape).transpose(1, 2).requires_grad_(train) for _ in range(3))
        grad = None if grad is None else grad.view(shape).transpose(1, 2)
        weights, our_way = None, partial(core, seen=seen)
        dense = partial(F.scaled_dot_product_attention, attn_mask=allowed)
        causal = partial(F.scaled_dot_product_attention, is_causal=True)
        work = flops(None, 0, batch * int(allowed.sum()), train)
    jobs = {DENSE: job_of(dense, grad, *inputs)}
    if full:
        jobs[FULL] = job_of(causal, grad, *inputs)
    ours_job = job_of(our_way, grad, *inputs, weights=weights)
    return Work(ours_job, jobs, must, gemm_limit(work), same, unchecked=(FULL,))


def window(tokens: int, width: int, *, train: bool, projections: bool, must: dict[str, float]) -> Work:
    at = torch.arange(tokens)
    back = at[:, None] - at
    allowed = (back >= 0) & (back < width)
    seen = mask.window(width)
    return structured(1, tokens, seen, allowed, train=train, must=must, projections=projections, full=True)


def documents(count: int, length: int, *, train: bool, projections: bool, must: dict[str, float]) -> Work:
    ids = torch.arange(count).repeat_interleave(length)
    allowed = (ids[:, None] == ids).tril()
    seen = mask.causal() & mask.documents(offsets=list(range(0, count * length + 1, length)))
    return structured(1, count * length, seen, allowed, train=train, must=must, projections=projections)


def padded(lengths: list[int], tokens: int, *, train: bool, must: dict[str, float]) -> Work:
    """A right-padded batch: only what comes out at real tokens counts, and is compared."""
    x, grad = tokens_of(len(lengths), tokens, train)
    real = torch.arange(tokens) < torch.tensor(lengths)[:, None]
    if grad is not None:
        grad = grad * real[..., None]  # a loss reads real tokens only
    ours = layer_of().train(train)
    ragged, keys_only = mask.ragged(lengths), mask.lengths(lengths)
    hidden = (~real).float().masked_fill(~real, -torch.inf)  # float: bool padding is deprecated beside no mask
    jobs = {
        HAND: job_of(HandWritten(ours, mask=real[:, None, None]), grad, x),
        TORCH: job_of(TorchLayer(ours, False, tokens, hidden).train(train), grad, x),
        LENGTHS: job_of(partial(ours, mask=keys_only), grad, x, weights=ours),
    }
    work = flops(ours, sum(lengths), sum(n * n for n in lengths), train)
    our_job = job_of(partial(ours, mask=ragged), grad, x, weights=ours)
    return Work(our_job, jobs, must, gemm_limit(work), partial(same, real=real))


PEAK_CONTESTANTS = ("ours", HAND, EXPLICIT)


def peak_job(name: str, tokens: int) -> Job:
    """A causal forward of one contestant, for a process that measures its memory."""
    ours = layer_of().eval()
    layer = {
        "ours": lambda: partial(ours, mask=mask.causal()),
        HAND: lambda: HandWritten(ours, True),
        EXPLICIT: lambda: Textbook(ours, True),
    }[name]()
    with torch.no_grad():
        layer(torch.randn(1, 64, D))  # so that code and thread pools are there
    return no_grad(layer, torch.randn(1, tokens, D))


# ----------------------------------------------------------------------------------------------------------------


def core(q: Tensor, k: Tensor, v: Tensor, *, seen: Mask) -> Tensor:
    """Our attention without projections."""
    coordinates = Coordinates(q.shape[0], q.shape[1], q.shape[2], k.shape[2], q.device)
    groups = Groups.even(q.shape[1], k.shape[1])
    return attend(Problem(q, k, v, groups, seen, coordinates, ScoreConfig(q.shape[3] ** -0.5)))


def same(got: tuple[object, ...], wanted: tuple[Tensor, ...], *, real: Tensor | None = None) -> None:
    """Outputs and input gradients agree; with `real`, on the tokens that are."""
    for theirs, ours in zip(got, wanted, strict=True):
        if not isinstance(theirs, Tensor):  # flax'
            theirs = torch.tensor(np.asarray(theirs))
        if real is not None:
            theirs, ours = theirs[real], ours[real]
        close = {"rtol": 1e-4, "atol": 5e-5} if ours.dtype == torch.float32 else {"rtol": 3e-2, "atol": 1e-2}
        torch.testing.assert_close(theirs, ours, **close)


def gemm_limit(flops: float, least: float | None = None) -> Limit:
    n = 2048
    a, b, out = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
    return Limit("GEMM roofline", lambda: torch.matmul(a, b, out=out), flops / (2 * n**3), least)


def flops(layer: MultiHeadAttention | None, tokens: int, pairs: float, train: bool) -> float:
    """Of the projections and of the pairs that the mask leaves; a backward is twice the forward."""
    weights = 0 if layer is None else sum(p.numel() for p in layer.parameters())
    heads, dims = (HEADS, 2 * D // HEADS) if layer is None else (layer.num_heads, layer.head_dim + layer.value_dim)
    return (2.0 * tokens * weights + 2.0 * pairs * heads * dims) * (3 if train else 1)


def layer_of(*, d_model: int = D, num_heads: int = HEADS, **options: object) -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(d_model, num_heads, bias=False, **options)  # pyright: ignore[reportArgumentType]


def tokens_of(batch: int, tokens: int, train: bool, width: int = D) -> tuple[Tensor, Tensor | None]:
    torch.manual_seed(1)
    x = torch.randn(batch, tokens, width, requires_grad=train)
    return x, torch.randn(batch, tokens, width) if train else None


def job_of(layer: Layer, grad: Tensor | None, *inputs: Tensor, weights: nn.Module | None = None) -> Job:
    """A forward without gradients, or (with `grad`) forward and the gradients of inputs and of all parameters."""
    if grad is None:
        return no_grad(layer, *inputs)
    owner = layer if isinstance(layer, nn.Module) else weights
    leaves = [*inputs, *([] if owner is None else owner.parameters())]

    def job() -> tuple[Tensor, ...]:
        out = layer(*inputs)
        grads = torch.autograd.grad(out, leaves, grad)
        return out.detach(), *grads[: len(inputs)]

    return job


def no_grad(layer: Layer, *inputs: Tensor) -> Job:
    def job() -> tuple[Tensor, ...]:
        with torch.no_grad():
            return (layer(*inputs),)

    return job


def _in_turn(function: Layer, inputs: list[list[Tensor]]) -> Job:
    """function of the first inputs, then of the second, and so on round."""
    turn = 0

    def job() -> tuple[Tensor, ...]:
        nonlocal turn
        turn = (turn + 1) % len(inputs)
        with torch.no_grad():
            return (function(*inputs[turn]),)

    return job


def _read(*tensors: Tensor) -> Tensor:
    """Every byte once, as fp32 words: a sum of half-precision numbers would measure their conversion."""
    return torch.stack([t.detach().view(torch.float32).sum() for t in tensors])


def _made(name: str, make: Callable[[], nn.Module | Job]):
    """The contestant, or None with a note where its package is not there."""
    try:
        return make()
    except ImportError as missing:
        LEFT_OUT[name] = f"{type(missing).__name__}: {missing}".splitlines()[0]
        return None


def _agree_without_dropout(our_way: Layer, ours: nn.Module, layers: dict[str, nn.Module], x: Tensor) -> None:
    """Two dropouts cannot be compared number by number: compare with it switched off."""
    with torch.no_grad():
        ours.eval()
        wanted = our_way(x)
        for layer in layers.values():
            same((layer.eval()(x),), (wanted,))
            layer.train()
        ours.train()


def _llama_decoder(ours: MultiHeadAttention, k: Tensor, v: Tensor, rotation: tuple[Tensor, Tensor]) -> Layer:
    from transformers import DynamicCache

    kept = DynamicCache()
    kept.update(k, v, 0)
    layer = llama_layer(ours, True, rotation, kept)

    def step(x: Tensor) -> Tensor:
        out = layer(x)
        kept.crop(-1)
        return out

    return step
