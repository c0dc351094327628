"""anatomy: odd models are read right or refused, the proof notices lies, and the model is left as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import multihead as mh
from multihead.errors import AnatomyError, MultiheadError
from multihead.layer import Groups
from multihead.model.anatomy import anatomy
from multihead.model.call_trace import Trace
from multihead.model.find_head_rows import find
from multihead.model.graph import Graph
from multihead.model.head_storage import Slots
from multihead.model.layer_anatomy import Head, LayerAnatomy
from multihead.model.run_with_graph import Frozen, discover
from multihead.model.verify_weights import prove
from zoo import ZOO, model
from zoo_blocks import TimmAttention

HEADS, DIM, WIDTH = 3, 4, 13


class Attention(nn.Module):
    """q, k, v by Linears of their own, (head, dim); the tests change one step each."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, HEADS * DIM) for _ in range(3))
        self.out = nn.Linear(HEADS * DIM, WIDTH)
        self.extra = nn.Linear(HEADS, HEADS, bias=False)
        self.norm = nn.LayerNorm(HEADS * DIM)
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.norm.bias)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (HEADS, DIM)).transpose(1, 2)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))

    def merge(self, z: Tensor) -> Tensor:
        return z.transpose(1, 2).flatten(2)

    def forward(self, x: Tensor) -> Tensor:
        z = F.scaled_dot_product_attention(*self.project(x))
        out: Tensor = self.out(self.merge(z))
        return out


def inputs(width: int = WIDTH) -> dict[str, Tensor]:
    return {"x": torch.randn(2, 5, width, generator=torch.Generator().manual_seed(1))}


def read(module: nn.Module) -> LayerAnatomy:
    return anatomy(module, inputs())[0]


# ---- odd, and read right ----------------------------------------------------------------------


def test_heads_in_the_last_axis_are_strided_views() -> None:
    """(dim, head): number d of head h is row d · heads + h."""

    class Minor(Attention):
        def split(self, x: Tensor) -> Tensor:
            return x.unflatten(-1, (DIM, HEADS)).permute(0, 3, 1, 2)

        def merge(self, z: Tensor) -> Tensor:
            return z.permute(0, 2, 3, 1).flatten(2)

    module = Minor()
    layer = read(module)
    assert layer.weights["k"].heads == tuple(Slots(h, DIM, HEADS) for h in range(HEADS))
    assert torch.equal(layer.W_K[1], module.k.weight[1::HEADS])
    assert torch.equal(layer.W_O[2], module.out.weight[:, 2::HEADS])
    with torch.no_grad():
        layer.W_V[0].fill_(7.0)
    assert bool((module.v.weight[0::HEADS] == 7).all())


def test_heads_in_another_order_behind_the_kernel() -> None:
    class Flipped(Attention):
        def merge(self, z: Tensor) -> Tensor:
            return super().merge(z.flip(1))

    layer = read(Flipped())
    assert [s.start for s in layer.weights["o"].heads] == [8, 4, 0]
    assert [s.start for s in layer.weights["v"].heads] == [0, 4, 8]


def test_one_norm_over_all_heads_with_mean_and_bias() -> None:
    class Normed(Attention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return self.split(self.norm(self.q(x))), self.split(self.k(x)), self.split(self.v(x))

    layer = read(Normed())
    assert set(layer.between["q"]) == {"norm.weight", "norm.bias"}
    assert layer.between["k"] == ()
    assert [s.start for s in layer.weights["q"].heads] == [0, 4, 8]


@pytest.mark.parametrize("dims", [slice(1), slice(0, None, 2), slice(None)], ids=["one", "half", "all"])
@pytest.mark.parametrize("name, removed", [("qwen3", 0.0), ("olmo2", 0.0), ("gemma3", -1.0)])
def test_norms_of_q_and_k_may_have_factors_of_zero(name: str, removed: float, dims: slice) -> None:
    """Rows that a zero factor hides from the kernel are still the head's. (Gemma's factor is 1 + weight.)"""
    built = ZOO[name].build()
    factors = {n: p for n, p in built.named_parameters() if n.endswith(("q_norm.weight", "k_norm.weight"))}
    assert factors
    with torch.no_grad():
        for p in factors.values():
            p[dims] = removed
    before = {n: (p.data_ptr(), p.detach().clone()) for n, p in built.named_parameters()}
    for families in (True, False):
        layers = anatomy(built, ZOO[name].inputs(built), families=families)
        assert [x.storage for x in layers] == [x.storage for x in anatomy(model(name))]
        assert {x.found_by for x in layers} == {"row" if families else "finder"}
    for n, p in built.named_parameters():
        assert p.data_ptr() == before[n][0]
        assert torch.equal(p, before[n][1]), n


def test_a_layer_norm_of_q_without_factors() -> None:
    class Normed(Attention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return self.split(self.norm(self.q(x))), self.split(self.k(x)), self.split(self.v(x))

    module = Normed()
    nn.init.zeros_(module.norm.weight)
    nn.init.zeros_(module.norm.bias)
    assert [s.start for s in read(module).weights["q"].heads] == [0, 4, 8]


@pytest.mark.parametrize("families", [True, False])
def test_kv_heads_are_told_apart_where_the_norm_in_front_is_zero(families: bool) -> None:
    """k and v are 0 then, for every head: equal numbers do not make them copies of one head."""
    built = ZOO["llama"].build()
    with torch.no_grad():
        for n, p in built.named_parameters():
            if n.endswith("input_layernorm.weight"):
                p.zero_()
    layers = anatomy(built, ZOO["llama"].inputs(built), families=families)
    assert [x.storage for x in layers] == [x.storage for x in anatomy(model("llama"))]


def test_cosine_attention() -> None:
    class Cosine(Attention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = super().project(x)
            return F.normalize(q, dim=-1), k / k.norm(dim=-1, keepdim=True), v

    module = Cosine()
    assert read(module).num_heads == HEADS
    with torch.no_grad():
        module.q.weight[1], module.q.bias[1] = 0.0, 0.0
    assert [s.start for s in read(module).weights["q"].heads] == [0, 4, 8]


def test_values_that_are_normed_keep_their_order() -> None:
    class NormedValues(Attention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = super().project(x)
            return q, k, F.rms_norm(v, (DIM,))

    assert [s.start for s in read(NormedValues()).weights["v"].heads] == [0, 4, 8]


def test_values_that_are_mixed_over_tokens() -> None:
    """A filter along the text is still linear in the projection: the rows are the head's."""

    class Filtered(Attention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = super().project(x)
            return q, k, v + v.roll(1, dims=2)

    assert [s.start for s in read(Filtered()).weights["v"].heads] == [0, 4, 8]


def test_copies_of_kv_heads_are_one_head_again() -> None:
    class Grouped(Attention):
        def __init__(self) -> None:
            super().__init__()
            self.k, self.v = nn.Linear(WIDTH, DIM), nn.Linear(WIDTH, DIM)

        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            k, v = (one(x)[:, None].expand(-1, HEADS, -1, -1) for one in (self.k, self.v))
            return self.split(self.q(x)), k, v

    layer = read(Grouped())
    assert layer.num_kv_heads == 1
    assert layer.groups == Groups((0, 0, 0), 1)
    head = layer.head(2)
    assert isinstance(head, Head)
    assert head.kv_head == 0
    assert torch.equal(head.W_K, layer.W_K[0])
    assert torch.equal(head.W_Q, layer.W_Q[2])


def test_a_class_of_a_known_name_with_another_layout() -> None:
    """The row says grouped, the model packs blocks: the proof refuses the row, the finder finds."""
    kind = type("FalconAttention", (TimmAttention,), {})
    module = kind(12, 3)
    module.query_key_value, module.dense = module.qkv, module.proj  # as the row expects the names
    layer = anatomy(module, inputs(12))[0]
    assert layer.found_by == "finder"
    assert [s.start for s in layer.weights["k"].heads] == [12, 16, 20]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes(dtype: torch.dtype) -> None:
    llama = ZOO["llama"].build().to(dtype)
    layers = anatomy(llama, ZOO["llama"].inputs(llama), families=False)
    assert [x.storage for x in layers] == [x.storage for x in anatomy(model("llama"))]


def test_wide_weights_in_half_precision() -> None:
    """Indices of rows travel as numbers: more than bfloat16 can count."""
    wide = nn.MultiheadAttention(256, 4, batch_first=True).bfloat16()
    assert [s.start for s in anatomy(wide)[0].weights["v"].heads] == [512, 576, 640, 704]


def test_under_autocast() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        layers = anatomy(model("llama"))
    assert [x.storage for x in layers] == [x.storage for x in anatomy(model("llama"))]


def test_tokens_first() -> None:
    layer = anatomy(nn.TransformerEncoderLayer(24, 3), {"src": torch.randn(5, 2, 24)})[0]
    assert [s.start for s in layer.weights["k"].heads] == [24, 32, 40]


def test_uneven_groups_and_sizes_of_our_layer() -> None:
    attn = mh.MultiHeadAttention(13, 5, head_dim=4, value_dim=7, d_out=11, kv_of_head=[0, 0, 1, 1, 1])
    layer = anatomy(attn, (torch.randn(2, 5, 13),))[0]
    assert layer.groups.kv_of_head == (0, 0, 1, 1, 1)
    assert (layer.key_dim, layer.value_dim) == (4, 7)
    assert layer.W_O[4].shape == (11, 7)
    assert torch.equal(layer.head(3).W_V, attn.v_proj.weight[7:])


@pytest.mark.parametrize("name", ["llama", "bert", "t5"])
def test_by_the_eager_road(name: str) -> None:
    eager = ZOO[name].build()
    eager.set_attn_implementation("eager")  # type: ignore[operator]
    assert [x.storage for x in anatomy(eager)] == [x.storage for x in anatomy(model(name))]


# ---- odd, and refused -------------------------------------------------------------------------


class MixedBefore(Attention):
    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().project(x)
        return q + q.roll(1, dims=1), k, v


class MixedBehind(Attention):
    def merge(self, z: Tensor) -> Tensor:
        return super().merge(torch.einsum("bhqd,hg->bgqd", z, self.extra.weight.detach()))


class Gated(Attention):
    def merge(self, z: Tensor) -> Tensor:
        return super().merge(z * 0.7)


class NormedBehind(Attention):
    def merge(self, z: Tensor) -> Tensor:
        return self.norm(super().merge(z))


class Lora(Attention):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, HEADS * DIM, bias=False)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.split(self.q(x) + self.up(self.down(x))), self.split(self.k(x)), self.split(self.v(x))


class Convolved(Attention):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(WIDTH, HEADS * DIM, 3, padding=1)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.split(self.q(x)), self.split(self.k(x)), self.split(self.conv(x.mT).mT)


class NotLinear(Attention):
    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().project(x)
        return q.tanh(), k, v


class Added(Attention):
    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().project(x)
        return q, k + 1.0, v


class Backwards(Attention):
    """Values are turned round inside every head: row d would be paired with the wrong column of W_O."""

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().project(x)
        return q, k, v.flip(-1)


class Unprojected(nn.Module):
    """k is the stream itself, as it comes out of the first weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, HEADS * DIM)
        self.q, self.v, self.out = (nn.Linear(HEADS * DIM, HEADS * DIM) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        q, k, v = (y.unflatten(-1, (HEADS, DIM)).transpose(1, 2) for y in (self.q(x), x, self.v(x)))
        out: Tensor = self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return out


class ZeroRows(Attention):
    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().project(x)
        return q * torch.tensor([1.0, 1.0, 1.0, 0.0]), k, v


class Twice(Attention):
    """Two attentions in one module: not the same heads."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x)
        z = F.scaled_dot_product_attention(q, k, v)
        other = F.scaled_dot_product_attention(k, q, v)
        out: Tensor = self.out(self.merge(z)) + self.out(self.merge(other))
        return out


class Beside(Attention):
    """W_O takes the stream beside the heads."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(HEADS * DIM + WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        z = F.scaled_dot_product_attention(*self.project(x))
        out: Tensor = self.out(torch.cat([self.merge(z), x], dim=-1))
        return out


class Folded(Attention):
    """One weight, read as if it had another shape: its rows are no head's."""

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        k = F.linear(x, self.k.weight.T.reshape(HEADS * DIM, WIDTH))
        return self.split(self.q(x)), self.split(k), self.split(self.v(x))


class OneRow(Attention):
    """All rows of k are copies of one."""

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        k = F.linear(x, self.k.weight[:1].expand(HEADS * DIM, WIDTH))
        return self.split(self.q(x)), self.split(k), self.split(self.v(x))


class Absolute(Attention):
    """Homogeneous, so that one input proves nothing."""

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.split(self.q(x).abs()), self.split(self.k(x)), self.split(self.v(x))


class Summed(Attention):
    """Linear, but a token's query is made of all before it."""

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.split(self.q(x).cumsum(1)), self.split(self.k(x)), self.split(self.v(x))


class ByItsInput(Attention):
    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scale = self.k(x).sigmoid().mean(-1, keepdim=True)
        return self.split(self.q(x) * scale), self.split(self.k(x)), self.split(self.v(x))


class NoOutput(Attention):
    def forward(self, x: Tensor) -> Tensor:
        return self.merge(F.scaled_dot_product_attention(*self.project(x)))


@pytest.mark.parametrize(
    "kind, says",
    [
        (MixedBefore, "got 8 rows"),
        (MixedBehind, "between the heads' outputs and out.weight"),
        (Gated, "between the heads' outputs and out.weight"),
        (NormedBehind, "between the heads' outputs and out.weight"),
        (Lora, "one linear map, got 2"),
        (Convolved, "between the projections and the kernel, got"),
        (NotLinear, "between the projections and the kernel, got"),
        (Absolute, "kernel, got Abs"),
        (Summed, "kernel, got Cumsum"),
        (ByItsInput, "between the projections and the kernel, got"),
        (Added, "differ by"),
        (Backwards, "copied in order"),
        (Unprojected, "feeds"),
        (ZeroRows, "q.weight, got 3"),
        (Twice, "comes from"),
        (Beside, "differ by"),
        (Folded, "split into ranges of rows"),
        (OneRow, "k.weight must be used unchanged"),
        (NoOutput, "one linear map, got 0"),
    ],
)
def test_what_cannot_be_read_is_refused(kind: type[nn.Module], says: str) -> None:
    with pytest.raises(AnatomyError) as refused:
        anatomy(kind(), inputs())
    assert says in refused.value.message
    assert refused.value.hint


def test_nan_is_refused() -> None:
    module = Attention()
    with torch.no_grad():
        module.q.weight[0, 0] = torch.nan
    with pytest.raises(AnatomyError):
        anatomy(module, inputs())


def test_weights_without_numbers_or_gradients_are_refused() -> None:
    with torch.device("meta"):
        empty = Attention()
    with pytest.raises(MultiheadError, match=r"q\.weight is on the meta device"):
        anatomy(empty, inputs())
    with torch.inference_mode():
        closed = Attention()
    with pytest.raises(AnatomyError, match="inference_mode"):
        anatomy(closed, inputs())


def test_a_detached_output_is_refused() -> None:
    class Detached(Attention):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).detach()

    with pytest.raises(AnatomyError, match="is detached"):
        anatomy(Detached(), inputs())


def test_no_attention_and_no_inputs() -> None:
    with pytest.raises(MultiheadError, match="no attention"):
        anatomy(nn.Sequential(nn.Linear(3, 3)), (torch.randn(2, 3),))


def test_inputs_that_cannot_be_made_up() -> None:
    class Needs(Attention):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return super().forward(x + y)

    class Wants(Attention):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.view(3, -1, WIDTH))

    with pytest.raises(MultiheadError, match="cannot build an input"):
        anatomy(Needs())
    with pytest.raises(AnatomyError, match="does not run on the example input"):
        anatomy(Wants())


# ---- the proof --------------------------------------------------------------------------------


def lied(change: Callable[[LayerAnatomy], LayerAnatomy]) -> None:
    """Prove a storage that was changed, on a run of the true model."""
    module = Attention()
    layer = change(anatomy(module, inputs())[0])
    with discover(module, inputs()) as found:
        prove(layer.storage, Trace(found.seen[0], Graph(found)))


def swapped(letter: str, part: str) -> Callable[[LayerAnatomy], LayerAnatomy]:
    def change(layer: LayerAnatomy) -> LayerAnatomy:
        projection = layer.storage[letter]
        heads = getattr(projection, part)
        told = replace(projection, **{part: (heads[1], heads[0], *heads[2:])})
        return replace(layer, storage=replace(layer.storage, **{letter: told}))

    return change


@pytest.mark.parametrize("letter", "qkvo")
def test_swapped_heads_do_not_pass(letter: str) -> None:
    with pytest.raises(AnatomyError, match=r"must depend on rows|must be columns"):
        lied(swapped(letter, "heads"))


@pytest.mark.parametrize("letter", "qkv")
def test_swapped_biases_do_not_pass(letter: str) -> None:
    with pytest.raises(AnatomyError, match="must use"):
        lied(swapped(letter, "bias_heads"))


def test_another_parameter_does_not_pass() -> None:
    def change(layer: LayerAnatomy) -> LayerAnatomy:
        s = layer.storage
        return replace(layer, storage=replace(s, q=s.k, k=s.q))

    with pytest.raises(AnatomyError, match="comes from"):
        lied(change)


def test_wrong_groups_do_not_pass() -> None:
    def change(layer: LayerAnatomy) -> LayerAnatomy:
        return replace(layer, storage=replace(layer.storage, groups=Groups((1, 0, 2), 3)))

    with pytest.raises(AnatomyError):
        lied(change)


def test_the_truth_passes() -> None:
    lied(lambda layer: layer)


def test_numbers_are_compared() -> None:
    """The same storage, but the weight is another one than the run's."""
    module = Attention()
    with discover(module, inputs()) as found:
        trace = Trace(found.seen[0], Graph(found))
        storage = find(trace)
        with torch.no_grad():
            module.v.weight.data[5].mul_(1.01)
        with pytest.raises(AnatomyError, match=r"v of head 1: .* differ by"):
            prove(storage, trace)
        with torch.no_grad():
            module.v.weight.data[5].div_(1.01)
            module.out.weight.data[:, 5].mul_(1.01)
        with pytest.raises(AnatomyError, match=r"W_Oᵀ: .* differ by"):
            prove(storage, trace)


@pytest.mark.parametrize("affine", [True, False])
def test_frozen_norms_have_the_same_values(affine: bool) -> None:
    x, w, b = torch.randn(5, 3, 7), torch.randn(7), torch.randn(7)
    weight, bias = (w, b) if affine else (None, None)
    with Frozen():
        layer_norm = F.layer_norm(x, (7,), weight, bias, 1e-3)
        rms_norm = F.rms_norm(x, (7,), weight, 1e-3)
        unit = F.normalize(x, dim=1)
    torch.testing.assert_close(layer_norm, F.layer_norm(x, (7,), weight, bias, 1e-3))
    torch.testing.assert_close(rms_norm, F.rms_norm(x, (7,), weight, 1e-3))
    torch.testing.assert_close(unit, F.normalize(x, dim=1))


# ---- names and traces -------------------------------------------------------------------------


def test_a_frozen_layer_norm_is_contiguous_as_torchs_is() -> None:
    """Idefics3 views the normed patches, which a convolution put out channels first, in another shape."""
    x = torch.randn(2, WIDTH, 6).transpose(1, 2)
    with Frozen():
        frozen = F.layer_norm(x, (WIDTH,))
    assert frozen.stride() == F.layer_norm(x, (WIDTH,)).stride()
    assert frozen.view(2, 3, 2 * WIDTH).shape == (2, 3, 2 * WIDTH)


def test_names() -> None:
    layers = anatomy(model("bart"))
    assert layers["decoder.L1"] is layers["model.decoder.layers.1.self_attn"]
    head = layers["cross.L0H2"]
    assert isinstance(head, Head)
    assert head.name == "cross.L0H2"
    assert torch.equal(
        head.W_Q, model("bart").get_parameter("model.decoder.layers.0.encoder_attn.q_proj.weight")[16:]
    )
    gpt = anatomy(model("gpt2"))
    by_pair, by_name = gpt[1, 2], gpt["L1H2"]
    assert isinstance(by_name, Head)
    assert by_pair.W_V.data_ptr() == by_name.W_V.data_ptr()
    assert len(gpt[:]) == len(gpt) == 2
    assert "3 heads of 8" in str(gpt)
    with pytest.raises(MultiheadError, match="got head 3"):
        _ = gpt[0, 3]
    with pytest.raises(AnatomyError, match="got head 5"):
        gpt[0].head(5)


def test_views_carry_gradients() -> None:
    module = Attention()
    read(module).W_Q[1].square().sum().backward()
    grad = module.q.weight.grad
    assert grad is not None
    assert grad.abs().sum(1).nonzero().flatten().tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_left_as_it_was(fails: bool) -> None:
    module = (MixedBefore if fails else Attention)()
    module.train()
    module.norm.eval()
    module.k.weight.requires_grad_(False)
    module.q.weight.grad = torch.full_like(module.q.weight, 3.0)
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    x, generator = inputs(), torch.random.get_rng_state()
    if fails:
        with pytest.raises(AnatomyError):
            anatomy(module, x)
    else:
        anatomy(module, x)
    assert module.training
    assert not module.norm.training
    assert {n for n, p in module.named_parameters() if not p.requires_grad} == {"k.weight"}
    assert bool((module.q.weight.grad == 3).all())
    assert all(p.grad is None for n, p in module.named_parameters() if n != "q.weight")
    assert all(torch.equal(p, before[n]) for n, p in module.named_parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in module.modules())
    assert torch.equal(torch.random.get_rng_state(), generator)
    assert not x["x"].requires_grad
    assert x["x"].grad is None


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode])
def test_without_gradients_around_it(around: Callable[[], object]) -> None:
    module = Attention()
    with around():  # type: ignore[attr-defined]
        assert read(module).num_heads == HEADS


def test_it_is_a_public_name() -> None:
    assert mh.anatomy is anatomy
    assert AnatomyError is AnatomyError


def test_an_attention_whose_result_does_not_reach_the_output() -> None:
    """Vision-language models run the pooling head of their vision tower, and use the vectors before it."""

    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = Attention(), Attention()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.used(x)
            self.unused(out)
            return out

    module = Unused()
    first, second = anatomy(module, inputs())
    assert (first.path, second.path) == ("used", "unused")
    assert torch.equal(second.W_O[1], module.unused.out.weight[:, DIM : 2 * DIM])
