"""The contestants of bench/see.py: one GPT-2-small-shaped model, run by everyone who shows its heads.

A job returns the model's output and, from those who compute them, the statistics per layer and head: before
anything is timed they are compared. Nobody keeps more than that, so that maps are freed when a job ends.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model, LlamaConfig, LlamaModel, PreTrainedModel

import multihead as mh
from harness import Job, Work
from see_rows import FROM_MAPS, LENS, LONG_TOKENS, MAPS, NOTHING, OURS, PLAIN

LAYERS, HEADS, D = 12, 12, 768
LEFT_OUT: dict[str, str] = {}  # contestants that could not be made, and why

Results = dict[str, Tensor]  # "output", and statistics by name: (layer, head)

COMPARED = (
    *("entropy", "perplexity", "effective_keys", "max_weight", "saturated", "distance", "position_std"),
    *("first", "self", "previous", "same_token", "induction"),
    *(f"offset-{o}" for o in range(1, 17)),
)


def timed(tokens: int, peers: Iterable[str], must: dict[str, float]) -> Work:
    """Capture with all statistics beside the peers that are installed."""
    jobs = {n: made for n in peers if (made := job(n, tokens)) is not None}
    return Work(_needed(OURS, tokens), jobs, must, same=same)


def nothing(tokens: int, must: dict[str, float]) -> Work:
    """A capture that was asked for nothing beside no capture."""
    return Work(_needed(NOTHING, tokens), {PLAIN: _needed(PLAIN, tokens)}, must, same=same)


def twice(tokens: int) -> Work:
    """The plain forward beside itself."""
    return Work(_needed(PLAIN, tokens), {PLAIN: _needed(PLAIN, tokens)}, {}, same=same)


def job(name: str, tokens: int) -> Job | None:
    """What is timed for a contestant; None where it is not installed."""
    make = {PLAIN: _plain, OURS: _ours, NOTHING: _nothing, MAPS: _maps, FROM_MAPS: _from_maps, LENS: _lens}[name]
    run = make()
    if run is None:
        return None
    ids = _ids(tokens)

    def once() -> Results:
        with torch.inference_mode():
            return run(ids)

    return once


def _needed(name: str, tokens: int) -> Job:
    made = job(name, tokens)
    assert made is not None
    return made


def maps_bytes(tokens: int, layers: int = LAYERS, heads: int = HEADS) -> int:
    """What all attention maps of one forward take in fp32."""
    return 4 * layers * heads * tokens * tokens


def need(name: str, tokens: int) -> int:
    """Bytes that a contestant holds at its peak, about: scores and weights both where both are kept."""
    if name == LENS:
        return 2 * maps_bytes(tokens) + 48 * LAYERS * 4 * tokens * D
    return int(1.3 * maps_bytes(tokens)) if name in (MAPS, FROM_MAPS) else 0


def same(got: object, wanted: object) -> None:
    """The output of the model, and each statistic that both give."""
    assert isinstance(got, dict)
    assert isinstance(wanted, dict)
    for name in got.keys() & wanted.keys():
        say = lambda text, name=name: f"{name}: {text}"
        torch.testing.assert_close(got[name].double(), wanted[name].double(), rtol=1e-3, atol=1e-3, msg=say)


# ---- the models -------------------------------------------------------------------------------


@cache
def gpt2(attention: str) -> GPT2Model:
    """GPT-2 small: 12 × 12 heads, d 768, random weights, long enough for 4k tokens."""
    torch.manual_seed(0)
    return GPT2Model(GPT2Config(n_positions=4096, attn_implementation=attention)).eval()


def _ids(tokens: int) -> Tensor:
    return torch.randint(0, 1000, (1, tokens), generator=torch.Generator().manual_seed(1))


def llama_job() -> tuple[Job, str, int]:
    """Capture of a LLaMA-shaped stack at 16k tokens, its shape in words, and the bytes of its maps."""
    torch.manual_seed(0)
    layers, heads = 6, 16
    sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_key_value_heads": 4, "vocab_size": 1000}
    config = LlamaConfig(
        num_hidden_layers=layers, num_attention_heads=heads, max_position_embeddings=LONG_TOKENS,
        attn_implementation="sdpa", **sizes,
    )  # fmt: skip
    model, ids = LlamaModel(config).eval(), _ids(LONG_TOKENS)

    def once() -> Results:
        with torch.inference_mode():
            return _captured(model, ids)

    _captured(model, ids[:, :16])
    shape = f"{layers} layers x {heads} heads of 64, 4 kv heads, d {config.hidden_size}"
    return once, shape, maps_bytes(LONG_TOKENS, layers, heads)


# ---- the contestants --------------------------------------------------------------------------

Run = Callable[[Tensor], Results]


def _plain() -> Run:
    model = gpt2("sdpa")
    return lambda ids: {"output": model(ids, use_cache=False).last_hidden_state}


def _ours() -> Run:
    model = gpt2("sdpa")
    return lambda ids: _captured(model, ids)


def _captured(model: PreTrainedModel, ids: Tensor) -> Results:
    with mh.capture(model) as heads:
        out = model(ids, use_cache=False).last_hidden_state
    found = [heads.statistics(site) for site in heads.sites]
    return {"output": out, **{n: torch.stack([s.mean(n) for s in found]) for n in COMPARED}}


def _nothing() -> Run:
    model = gpt2("sdpa")

    def run(ids: Tensor) -> Results:
        with mh.capture(model, statistics=None):
            return {"output": model(ids, use_cache=False).last_hidden_state}

    return run


def _maps() -> Run:
    model = gpt2("eager")

    def run(ids: Tensor) -> Results:
        seen = model(ids, use_cache=False, output_attentions=True)
        assert len(seen.attentions) == LAYERS
        return {"output": seen.last_hidden_state}

    return run


def _from_maps() -> Run:
    model = gpt2("eager")

    def run(ids: Tensor) -> Results:
        seen = model(ids, use_cache=False, output_attentions=True)
        found = [statistics_of_maps(p, ids) for p in seen.attentions]
        stacked = {n: torch.stack([layer[n] for layer in found]) for n in found[0]}
        return {"output": seen.last_hidden_state, **stacked}

    return run


def statistics_of_maps(p: Tensor, ids: Tensor) -> dict[str, Tensor]:
    """What a map gives, per head, of a causal layer without padding: sums as matrix products, diagonals as views.

    The rest of our statistics (lse, scores, value norms, histograms) a map does not have, and it is not asked for.
    """
    p, ids, tokens = p[0], ids[0], p.shape[-1]
    places = torch.arange(tokens, dtype=p.dtype)
    entropy, largest = torch.special.entr(p).sum(-1), p.amax(-1)
    mean, square = (p @ torch.stack([places, places**2], -1)).double().unbind(-1)
    # One product per query row, (masks × keys) (keys × heads): what is known of a pair is shared by all heads.
    before = nn.functional.pad(ids, (1, 0), value=-1)[:-1]
    pairs = [(ids[:, None] == ids).fill_diagonal_(False), ids[:, None] == before]
    masses = torch.bmm(torch.stack(pairs, 1).to(p.dtype), p.permute(1, 2, 0))
    rows = {
        "entropy": entropy,
        "perplexity": entropy.exp(),
        "effective_keys": torch.linalg.vector_norm(p, dim=-1).pow(-2),
        "max_weight": largest,
        "saturated": (largest > 0.99).to(p.dtype),
        "distance": places - mean,
        "position_std": (square - mean**2).clamp(min=0).sqrt(),
        "first": p[..., 0],
        "same_token": masses[:, 0].T,
        "induction": masses[:, 1].T,
    }
    found = {name: row.mean(-1, dtype=torch.float64) for name, row in rows.items()}
    near = [p.diagonal(-o, -2, -1).sum(-1, dtype=torch.float64) / tokens for o in range(17)]
    return found | {"self": near[0], "previous": near[1]} | {f"offset-{o}": near[o] for o in range(1, 17)}


def _lens() -> Run | None:
    if importlib.util.find_spec("transformer_lens") is None:
        LEFT_OUT[LENS] = "not installed: make bench-see does it"
        return None
    model = _bridge()

    def run(ids: Tensor) -> Results:
        _, kept = model.run_with_cache(ids, return_type=None)
        return {"output": kept["ln_final.hook_out"]}

    return run


@cache
def _bridge() -> Any:
    """TransformerLens 4 around the same weights. It always computes logits: one word is left of the vocabulary."""
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    lm = GPT2LMHeadModel(GPT2Config(n_positions=4096, attn_implementation="eager", tie_word_embeddings=False))
    lm.transformer.load_state_dict(gpt2("sdpa").state_dict())
    lm.lm_head = nn.Linear(D, 1, bias=False)
    return build_bridge_from_module(lm.eval(), "GPT2LMHeadModel", hf_config=lm.config).eval()
