"""Costs equal torch's own counter and the real modules, exactly; closed forms of caches, windows and crossovers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

import multihead as mh
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.layer import LatentAttention, QKNorm, Sinks
from multihead.measures.cost.config_sizes import sizes_without_weights
from multihead.measures.cost.cost import Cost, cost
from multihead.measures.cost.known_models import find_known_model, known_models
from multihead.measures.cost.sizes import sizes_of
from multihead.measures.cost.spec import Latent, Spec
from zoo import ZOO

# torch's counter knows the fused kernels of accelerators and not the one of the CPU.
FUSED = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, out_shape=None, **__: (
        sdpa_flop_count(q, k, v)
    )
}


def counted(call: Any) -> dict[str, int]:
    """FLOPs by path of the module, as torch counts them; "Global" is all."""
    with FlopCounterMode(display=False, custom_mapping=FUSED) as counter, torch.no_grad():
        call()
    return {path: sum(ops.values()) for path, ops in counter.get_flop_counts().items()}


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


# ---- our layers ---------------------------------------------------------------------------------

SHAPES = [
    {"d_model": 24, "num_heads": 3},
    {"d_model": 30, "num_heads": 6, "num_kv_heads": 2},
    {"d_model": 35, "num_heads": 5, "num_kv_heads": 1, "bias": False},
    {"d_model": 22, "num_heads": 3, "head_dim": 10, "value_dim": 7, "bias": "qv"},
    {"d_model": 24, "num_heads": 4, "qk_norm": QKNorm(), "sinks": Sinks()},
    {"d_model": 26, "num_heads": 2, "qk_norm": QKNorm("layer"), "d_out": 11},
    {"d_model": 24, "num_heads": 4, "position": mh.position.RelativeBias(4)},
]


@pytest.mark.parametrize("options", SHAPES, ids=str)
@pytest.mark.parametrize("batch, tokens", [(1, 7), (3, 11)])
def test_flops_and_parameters_of_our_layer(options: dict[str, Any], batch: int, tokens: int) -> None:
    attn = mh.MultiHeadAttention(**options).eval()
    found = cost(attn, batch=batch, tokens=tokens, dtype=torch.float32)
    x = torch.randn(batch, tokens, attn.d_model)
    # The fused route finds sinks by a column of its own, which the formula does not have.
    for route in ("reference",) if attn.sinks else ("reference", None):
        assert found.flops == counted(lambda route=route: attn(x, route=route))["Global"]
    assert found.parameters == parameters(attn)


@pytest.mark.parametrize("query_dim, bias", [(None, False), (13, True)])
def test_flops_and_parameters_of_latent_attention(query_dim: int | None, bias: bool) -> None:
    attn = LatentAttention(
        34, 3, latent_dim=10, nope_dim=6, rope_dim=4, value_dim=7, query_dim=query_dim, bias=bias
    ).eval()
    found = cost(attn, batch=2, tokens=11)
    assert found.flops == counted(lambda: attn(torch.randn(2, 11, 34), absorb=False))["Global"]
    assert found.parameters == parameters(attn)


def test_flops_of_one_new_token_are_those_of_decoding() -> None:
    plain = mh.MultiHeadAttention(30, 6, num_kv_heads=2).eval()
    latent = LatentAttention(34, 3, latent_dim=10, nope_dim=6, rope_dim=4, value_dim=7, query_dim=13).eval()
    for attn in (plain, latent):
        kept, x = mh.cache.Growing(), torch.randn(2, 11, attn.d_model)
        with torch.no_grad():
            attn(x[:, :10], mask=mh.mask.causal(), cache=kept)
        absorb = {"absorb": True} if attn is latent else {"route": "reference"}
        one = cost(attn, batch=2, tokens=11).total
        flops = one.decode_projection_flops + one.decode_attention_flops
        assert (
            flops == counted(lambda attn=attn, kept=kept, x=x, a=absorb: attn(x[:, 10:], cache=kept, **a))["Global"]
        )


def test_the_cache_of_our_layer_has_as_many_bytes() -> None:
    attn, kept = mh.MultiHeadAttention(30, 6, num_kv_heads=2, value_dim=3), mh.cache.Growing()
    attn(torch.randn(2, 11, 30), mask=mh.mask.causal(), cache=kept)
    stored = sum(x.numel() * x.element_size() for x in (kept._k, kept._v) if x is not None)
    assert cost(attn, batch=2, tokens=11, dtype="fp32").total.cache_bytes == stored


# ---- models of transformers ---------------------------------------------------------------------


def attention_of(flops: dict[str, int], words: tuple[str, ...]) -> int:
    """The FLOPs of the outermost modules whose last name is one of the words."""
    return sum(n for path, n in flops.items() if path.rsplit(".", 1)[-1] in words)


MODELS = {
    "bert": ("attention",),
    "gpt2": ("attn",),
    "gpt-neox": ("attention",),
    "falcon-multi-query": ("self_attention",),
    "llama": ("self_attn",),
    "mistral": ("self_attn",),
    "qwen2": ("self_attn",),
    "qwen3": ("self_attn",),
    "gemma2": ("self_attn",),
    "gemma3": ("self_attn",),
    "olmo2": ("self_attn",),
    "phi3": ("self_attn",),
    "gpt-oss": ("self_attn",),
    "t5": ("SelfAttention", "EncDecAttention"),
    "bart": ("self_attn", "encoder_attn"),
    "whisper": ("self_attn", "encoder_attn"),
    "vit": ("attention",),
}
"""Which modules are the attention, by the last word of their path."""


@pytest.mark.parametrize("name", MODELS)
def test_flops_and_parameters_of_models(name: str) -> None:
    words = MODELS[name]
    model = ZOO[name].build()
    model.set_attn_implementation("eager")
    inputs = ZOO[name].inputs(model)
    shapes: dict[str, tuple[int, ...]] = {}
    modules = {path: m for path, m in model.named_modules() if path.rsplit(".", 1)[-1] in words}
    note = lambda path: lambda _m, args, kwargs, _o: shapes.__setitem__(path, _first(args, kwargs).shape)
    hooks = [m.register_forward_hook(note(path), with_kwargs=True) for path, m in modules.items()]
    flops = counted(lambda: model(**inputs))
    for hook in hooks:
        hook.remove()
    lengths = [shape[1] for shape in shapes.values()]
    both = len(set(lengths)) > 1
    found = cost(model, batch=2, tokens=min(lengths), source=max(lengths) if both else None)
    assert found.flops == attention_of(flops, words)
    norms = 0 if name != "bert" else sum(parameters(m.output.LayerNorm) for m in modules.values())
    assert found.parameters == sum(parameters(m) for m in modules.values()) - norms


def _first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    return args[0] if args else kwargs["hidden_states"]


def test_flops_and_parameters_of_deepseek_v3() -> None:
    config = transformers.DeepseekV3Config(
        vocab_size=101, hidden_size=48, intermediate_size=20, moe_intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=3, num_key_value_heads=3, kv_lora_rank=10, q_lora_rank=14, qk_rope_head_dim=4,
        v_head_dim=6, qk_nope_head_dim=8, first_k_dense_replace=2, n_routed_experts=4, n_group=1, topk_group=1,
    )  # fmt: skip
    model = transformers.DeepseekV3ForCausalLM(config).eval()
    flops = counted(lambda: model(torch.arange(14).view(2, 7)))
    found = cost(model, batch=2, tokens=7)
    assert found.flops == attention_of(flops, ("self_attn",))
    assert found.parameters == sum(parameters(layer.self_attn) for layer in model.model.layers)


def test_layers_that_share_weights_count_them_once() -> None:
    model = ZOO["albert"].build()
    found = cost(model, tokens=11)
    attention = next(m for m in model.modules() if type(m).__name__ == "AlbertAttention")
    (spec,) = found.specs
    assert (spec.unique_layers, spec.layers) == (1, model.config.num_hidden_layers)
    assert found.parameters == parameters(attention) - parameters(attention.LayerNorm)


def test_windows_of_a_model_are_seen() -> None:
    model = ZOO["gpt-oss"].build()
    assert {s.window for s in cost(model).specs} == {None, model.config.sliding_window}
    assert all(s.causal for s in cost(model).specs)
    assert not any(s.causal for s in cost(ZOO["bert"].build()).specs)


# ---- from the config alone ------------------------------------------------------------------------

OTHER_CROSS = "siglip"
"""The pooling head of its image tower is cross-attention, which only a run tells."""


@pytest.mark.parametrize("name", [name for name, model in ZOO.items() if hasattr(model.build(), "config")])
def test_sizes_without_weights_are_those_verified_on_a_run(name: str) -> None:
    model = ZOO[name].build()
    with torch.device("meta"):
        empty = type(model)(model.config)
    found, verified = (sorted(map(str, f(m))) for f, m in ((sizes_without_weights, empty), (sizes_of, model)))
    if name == OTHER_CROSS:
        assert cost(sizes_without_weights(empty)).parameters == cost(model).parameters
    else:
        assert found == verified


@pytest.mark.parametrize("name", ["llama", "gpt2", "whisper"])
def test_a_folder_needs_only_its_config(name: str, tmp_path: Path) -> None:
    model = ZOO[name].build()
    model.config.save_pretrained(tmp_path / "small")
    found, loaded = cost(tmp_path / "small"), cost(model)
    assert (found.name, found.tokens, found.total) == ("small", loaded.tokens, loaded.total)
    assert found.origin == f"config.json of {tmp_path / 'small'}"


def test_a_model_on_the_hub_needs_only_its_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that holds config.json and nothing else, in place of the network."""
    snapshot = tmp_path / "models--some--llama" / "snapshots" / "abc"
    ZOO["llama"].build().config.save_pretrained(snapshot)
    refs = tmp_path / "models--some--llama" / "refs"
    refs.mkdir()
    (refs / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("transformers.utils.hub.constants.HF_HUB_CACHE", str(tmp_path))
    found = cost("some/llama")
    assert (found.name, found.specs[0].shape) == ("some/llama", "6 heads of 4 on 2 kv")


def test_large_models_are_counted_without_memory_for_their_weights(tmp_path: Path) -> None:
    """405 billion parameters."""
    transformers.LlamaConfig(
        hidden_size=16384, intermediate_size=53248, num_attention_heads=128, num_key_value_heads=8,
        num_hidden_layers=126, max_position_embeddings=131072,
    ).save_pretrained(tmp_path)  # fmt: skip
    assert cost(tmp_path).total == cost("llama-3.1-405b").total


def test_attention_of_an_unknown_layout_is_refused() -> None:
    model = ZOO["qwen3"].build()
    layer = model.model.layers[1].self_attn
    layer.gate_proj = nn.Linear(36, 24)
    with pytest.raises(MultiheadError, match=r"(?s)layers\.1\.self_attn.*gate_proj.*hint: load the model"):
        sizes_without_weights(model)
    del layer.gate_proj
    layer.q_proj = nn.Linear(36, 48)  # a gate beside every query, as in Qwen3-Next
    with pytest.raises(MultiheadError, match=r"layers\.1\.self_attn.*6 heads do not fit the shapes"):
        sizes_without_weights(model)


@pytest.mark.parametrize("name, limit", [("bert", 37), ("gpt2", 37), ("vit", 10), ("whisper", 37)])
def test_costs_are_at_a_length_that_the_model_reads(name: str, limit: int) -> None:
    assert cost(ZOO[name].build()).tokens == limit


def test_without_a_known_limit_costs_are_at_2048_tokens() -> None:
    assert cost(nn.TransformerEncoderLayer(12, 3)).tokens == 2048


# ---- closed forms -------------------------------------------------------------------------------


def test_a_model_that_makes_its_mask_inside_says_that_it_is_causal() -> None:
    model = mh.embedded()[0]
    half, full = (cost(model, tokens=11, causal=causal).total for causal in (None, False))
    assert 11 * half.useful_flops == 6 * full.useful_flops, "66 of 121 pairs"
    assert half.attention_flops == full.attention_flops == full.useful_flops


def brute_cells(queries: int, keys: int, window: int | None, causal: bool) -> int:
    def sees(i: int, j: int) -> bool:
        back = i + keys - queries - j
        return (not causal or back >= 0) and (window is None or back < window)

    return sum(sees(i, j) for i, j in product(range(queries), range(keys)))


@pytest.mark.parametrize("queries, keys", [(1, 1), (7, 7), (11, 11), (3, 11), (1, 13)])
@pytest.mark.parametrize("window", [None, 1, 5, 11, 17])
def test_cells_that_may_be_seen(queries: int, keys: int, window: int | None) -> None:
    spec = Spec(8, 2, window=window)
    assert spec.cells(queries, keys) == brute_cells(queries, keys, window, causal=True)


def test_the_crossover_of_plain_attention_is_twice_d_model() -> None:
    found = cost(Spec(768, 12), tokens=1536)
    assert found.crossover == 1536
    assert found.total.attention_flops == found.total.projection_flops
    assert found.useful_crossover == 2 * 1536 - 1  # n (n + 1) / 2 = 1536 n
    assert cost("gpt3").crossover == 24576


def test_a_window_may_keep_attention_below_the_projections_for_ever() -> None:
    near = Spec(768, 12, window=1000)
    assert cost(near).useful_crossover == float("inf")
    wide = Spec(768, 12, window=2000)  # n w − w (w − 1) / 2 = 1536 n
    assert cost(wide).useful_crossover == pytest.approx(2000 * 1999 / 2 / (2000 - 1536), abs=1)


def test_bytes_of_a_cache() -> None:
    whole = cost(Spec(64, 8, layers=3), batch=2, tokens=101, dtype="fp16").total.cache_bytes
    assert whole == 2 * 3 * 101 * 2 * 64 * 2
    assert cost(Spec(64, 8, kv_heads=2, layers=3), batch=2, tokens=101, dtype="fp16").total.cache_bytes == whole / 4
    assert cost(Spec(64, 8, kv_heads=1), tokens=101, dtype="fp32").total.cache_bytes == 101 * 2 * 8 * 4
    assert cost(Spec(64, 8, window=10), tokens=101, dtype="fp32").total.cache_bytes == 10 * 2 * 64 * 4
    assert cost(Spec(64, 8, latent=Latent(12, 4)), tokens=101, dtype="fp32").total.cache_bytes == 101 * 16 * 4
    assert cost(Spec(64, 8, causal=False), tokens=101).total.cache_bytes == 0
    assert cost("deepseek-v3", tokens=1).total.cache_bytes == 61 * 576 * 2  # 70 kB a token (DeepSeek-V3 report)


def test_decoding_reads_a_group_once() -> None:
    """With a long cache the FLOPs per byte go to heads / kv heads, at two bytes a number."""
    for kv_heads in (1, 2, 8):
        found = cost(Spec(64, 8, kv_heads=kv_heads), tokens=10**9)
        assert found.decode_intensity == pytest.approx(8 / kv_heads, rel=1e-4)


def test_pruning_and_grouping() -> None:
    before = cost("bert-base", tokens=128)
    half = before.compare(before.pruned(6))
    assert half["FLOPs, attention"].ratio == 0.5
    assert half["FLOPs, projections"].ratio == 0.5
    llama = cost("llama-2-7b")
    grouped = llama.compare(llama.grouped(8))
    assert grouped["KV cache"].ratio == 0.25
    assert grouped["FLOPs, attention"].ratio == 1
    assert llama.grouped(8).total == cost(Spec(4096, 32, kv_heads=8, layers=32)).total
    kv = cost("llama-3-8b").pruned(9).specs[0]  # nine heads in groups of four read three kv heads
    assert (kv.heads, kv.kv_heads) == (9, 3)


def test_pruned_and_grouped_layers_are_counted_as_torch_counts_them() -> None:
    spec = Spec(36, 6, biases="qkvo")
    for found, options in (
        (cost(spec, tokens=7).pruned(4), {"num_heads": 4}),
        (cost(spec, tokens=7).grouped(3), {"num_heads": 6, "num_kv_heads": 3}),
    ):
        attn = mh.MultiHeadAttention(36, head_dim=6, **options).eval()
        assert found.flops == counted(lambda attn=attn: attn(torch.randn(1, 7, 36)))["Global"]
        assert found.parameters == parameters(attn)


# ---- known configurations -----------------------------------------------------------------------

DEFAULTS = [c for c in known_models().values() if c.checked.endswith("Config")]


@pytest.mark.parametrize("known", DEFAULTS, ids=lambda c: c.name)
def test_known_configurations_are_the_defaults_of_transformers(known: Any) -> None:
    config = getattr(transformers, known.checked)()
    spec, layers = known.specs[-1], sum(s.layers for s in known.specs)
    get = lambda *names: next((x for n in names if (x := getattr(config, n, None))), None)
    heads = get("num_attention_heads", "n_head", "num_heads", "encoder_attention_heads")
    assert (spec.d_model, spec.heads) == (get("hidden_size", "n_embd", "d_model"), heads)
    stacks = 3 if known.source else 1  # encoder, decoder, and what joins them
    assert layers == stacks * get("num_hidden_layers", "n_layer", "num_layers", "encoder_layers")
    kv_heads = 1 if getattr(config, "multi_query", False) else get("num_key_value_heads") or heads
    if spec.latent is None:
        assert spec.kv_heads == kv_heads
        assert spec.head_dim == (get("head_dim", "d_kv") or spec.d_model // heads)
    else:
        sizes = (config.kv_lora_rank, config.qk_rope_head_dim, config.q_lora_rank)
        assert (spec.latent.latent_dim, spec.latent.rope_dim, spec.latent.query_dim) == sizes
        assert (spec.head_dim, spec.value_dim) == (config.qk_head_dim, config.v_head_dim)
    kinds = getattr(config, "layer_types", None)
    if kinds and known.name not in ("phi-3-mini",):
        local = sum(s.layers for s in known.specs if s.window is not None)
        assert local == sum(kind == "sliding_attention" for kind in kinds) or known.name == "mistral-7b-v0.1"


@pytest.mark.parametrize("name", ["bert-base", "gpt2", "whisper-tiny", "vit-base", "t5-small"])
def test_parameters_of_known_models_are_those_of_transformers(name: str) -> None:
    known = find_known_model(name)
    assert known is not None
    with torch.device("meta"):
        config = getattr(transformers, known.checked)()
        model = transformers.AutoModel.from_config(config)
    words = {
        "bert": ("query", "key", "value"), "gpt2": ("attn",), "whisper": ("self_attn", "encoder_attn"),
        "vit": ("attention",), "t5": ("SelfAttention", "EncDecAttention"),
    }[known.name.split("-")[0]]  # fmt: skip
    modules = [m for path, m in model.named_modules() if path.rsplit(".", 1)[-1] in words]
    if name == "bert-base":
        modules += [m.dense for path, m in model.named_modules() if path.endswith("attention.output")]
    assert cost(name).parameters == sum(parameters(m) for m in modules)


def test_the_issue_names_these() -> None:
    sizes = {
        "bert-base": (768, 12, 64), "bert-large": (1024, 16, 64), "gpt2": (768, 12, 64),
        "gpt2-large": (1280, 20, 64), "gpt3": (12288, 96, 128),
    }  # fmt: skip
    for name, expected in sizes.items():
        (spec,) = cost(name).specs
        assert (spec.d_model, spec.heads, spec.head_dim) == expected
    assert all(c.origin and c.checked for c in known_models().values())


# ---- what people give and read ------------------------------------------------------------------


def test_a_name_needs_no_torch() -> None:
    code = "import sys; from multihead.measures.cost.cost import cost; print(cost('gpt3')); "
    code += "assert not {'torch', 'numpy', 'rich'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", list(known_models()))
def test_every_configuration_fits_in_a_terminal(name: str) -> None:
    found = cost(name, batch=2)
    after = found.pruned(1)
    for text in (str(found), str(found.compare(after))):
        assert all(len(line) <= 80 for line in text.splitlines()), text
    assert found.to_json()["total"]["parameters"] == found.parameters


def test_defaults() -> None:
    assert cost("gpt3").tokens == 2048
    assert cost("bert-base").tokens == 512
    assert (cost("whisper-tiny").tokens, cost("whisper-tiny").source) == (448, 1500)
    assert cost("GPT-2 Large").name == "gpt2-large"
    assert isinstance(cost([Spec(8, 2), Spec(8, 4)]), Cost)


def test_bad_input_says_what_to_do() -> None:
    with pytest.raises(MultiheadError, match="llama-3-8"):
        cost("lama-3-8b")
    with pytest.raises(MultiheadError, match="--list"):
        cost("xyzzy")
    with pytest.raises(SizeError, match="tokens must be at least 1, got 0"):
        cost("gpt3", tokens=0)
    with pytest.raises(SizeError, match="unknown dtype 'half-ish'"):
        cost("gpt3", dtype="half-ish")
    with pytest.raises(SizeError, match=r"kv_heads=5 does not divide heads=32\n\nhint: choose one of 1, 2, 4"):
        cost("llama-3-8b").grouped(5)
    with pytest.raises(SizeError, match="heads must be at most 32, got 33"):
        cost("llama-3-8b").pruned(33)
    with pytest.raises(SizeError, match="latent attention has no kv heads"):
        cost("deepseek-v3").grouped(2)
    with pytest.raises(SizeError, match="heads=5 does not divide d_model=64"):
        Spec(64, 5)
    with pytest.raises(SizeError, match="kv_heads must be at most heads=8, got 16"):
        Spec(64, 8, kv_heads=16)
    with pytest.raises(TypeMismatchError, match=r"a module, .* got the float 3\.5"):
        cost(3.5)  # type: ignore[arg-type]


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no name": (lambda: cost(" "), "model must not be an empty name"),
    "no folder": (lambda: cost("./nowhere/at/all"), "config of ./nowhere/at/all cannot be read"),
    "a list of others": (lambda: cost([Spec(8, 2), "gpt3"]), "must be a name, .* got"),  # type: ignore[list-item]
    "causal": (lambda: cost("gpt3", causal="yes"), "causal must be True, False or None, got the str .yes."),  # type: ignore[arg-type]
    "batch": (lambda: cost("gpt3", batch=True), "batch must be an integer, got True"),
    "no encoder": (lambda: cost("gpt3", source=5), "gpt3 has no encoder, got source=5"),
    "half a head": (lambda: cost("gpt3").pruned(1.5), r"heads must be an integer, got 1\.5"),  # type: ignore[arg-type]
    "half a kv head": (lambda: cost("gpt3").grouped(1.5), r"kv_heads must be an integer, got 1\.5"),  # type: ignore[arg-type]
    "width": (lambda: Spec("768", 12), "d_model must be an integer, got '768'"),  # type: ignore[arg-type]
    "heads": (lambda: Spec(768, 0), "heads must be at least 1, got 0"),
    "kv heads": (lambda: Spec(768, 12, -4), "kv_heads must be at least 0, got -4"),
    "biases": (lambda: Spec(768, 12, biases="qx"), "biases must be letters of 'qkvo', got 'qx'"),
    "keys": (lambda: Spec(768, 12, keys="image"), "keys must be 'tokens' or 'source', got 'image'"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_named(name: str) -> None:
    call, message = WRONG[name]
    with pytest.raises(MultiheadError, match=message):
        call()


@pytest.mark.parametrize("name", ["embedded", "llama"])
def test_a_saved_cut_model_is_counted_from_its_manifest(name: str, tmp_path: Path) -> None:
    model = mh.embedded()[0] if name == "embedded" else ZOO["llama"].build()
    small = mh.cut(model, mh.plan(model, remove=["L0H0", "L0H1", "L0H2"]), refit=False)
    mh.save(small, tmp_path / "cut")
    assert mh.cost(tmp_path / "cut", tokens=7).specs == mh.cost(small, tokens=7).specs
    assert mh.cost(tmp_path / "cut").name == "cut"
    with pytest.raises(MultiheadError, match=r"(?s)written by mh\.save.*hint: mh\.cost\("):
        cost(tmp_path / "cut")  # the function for sizes reads no manifest
