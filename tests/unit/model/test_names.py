"""Names of heads, cross-attention, unseen attention: they depend on the model, not on its words or earlier runs."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import multihead as mh
import zoo
from multihead.errors import ModelRunError
from multihead.model.forward import Forward

WIDTH, HEADS, TOKENS = 12, 3, 7


class Attention(nn.Module):
    """Attention of x to memory, with projections of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        memory = x if memory is None else memory
        q, k, v = (
            layer(y).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for layer, y in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        return self.o(self.attend(q, k, v).transpose(1, 2).flatten(2))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v)


class ByHandAttention(Attention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT / 2).softmax(-1) @ v


class Layer(nn.Module):
    def __init__(self, **attentions: nn.Module) -> None:
        super().__init__()
        for name, attention in attentions.items():
            self.add_module(name, attention)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        for name, attention in self.named_children():
            x = x + (attention(x, memory) if name == "second" else attention(x))
        return x


class Stack(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, memory)
        return x


X = torch.randn(2, TOKENS, WIDTH, generator=torch.Generator().manual_seed(0))


def sites(model: nn.Module, *args: Any, **kwargs: Any) -> list[tuple[str, bool]]:
    with torch.no_grad(), mh.capture(model.eval()) as heads:
        model(*args, **kwargs)
    return [(site.label, site.cross) for site in heads.sites]


# ---- self- and cross-attention ----------------------------------------------------------------


def test_cross_attention_is_where_the_keys_come_from() -> None:
    """As many keys as queries, and no name that says cross."""
    model = Stack(Layer(first=Attention(), second=Attention()), Layer(first=Attention(), second=Attention()))
    assert sites(model, X, X.flip(1)) == [("L0", False), ("cross.L0", True), ("L1", False), ("cross.L1", True)]


def test_self_attention_below_an_attribute_called_cross_encoder() -> None:
    class Reranker(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cross_encoder = Stack(Layer(attn=Attention()), Layer(attn=Attention()))

        def forward(self, x: Tensor) -> Tensor:
            return self.cross_encoder(x, x)

    assert sites(Reranker(), X) == [("L0", False), ("L1", False)]


def test_an_encoder_that_is_given_the_decoders_own_ids() -> None:
    """BART makes its decoder's input from input_ids: one input, two sequences of the same length."""
    model = zoo.ZOO["bart"].build()
    found = sites(model.model, input_ids=torch.randint(5, 90, (2, TOKENS)))  # type: ignore[arg-type]
    assert [label for label, cross in found if cross] == ["cross.L0", "cross.L1"]
    assert found[0] == ("encoder.L0", False)


def test_pix2struct_has_cross_attention() -> None:
    from transformers import Pix2StructTextConfig, Pix2StructTextModel

    config = Pix2StructTextConfig(
        vocab_size=53, hidden_size=24, d_kv=8, num_heads=3, d_ff=19, num_layers=2, initializer_range=1.0
    )
    memory = torch.randn(2, TOKENS, 24)
    found = sites(
        Pix2StructTextModel(config), input_ids=torch.randint(5, 50, (2, TOKENS)), encoder_hidden_states=memory
    )
    assert found == [("decoder.L0", False), ("cross.L0", True), ("decoder.L1", False), ("cross.L1", True)]


def test_queries_positions_and_keys_of_one_sequence() -> None:
    """q and k get positions outside of the module: three tensors, one sequence."""

    class Three(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = Attention()

        def forward(self, x: Tensor, position: Tensor, memory: Tensor) -> Tensor:
            q, k, v = x + position, x + position, x
            x = x + self.attend(q, k, v)
            return x + self.attend(x + position, memory + position, memory)

        def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return (
                self.attention.attend(*(y.unflatten(-1, (HEADS, -1)).transpose(1, 2) for y in (q, k, v)))
                .transpose(1, 2)
                .flatten(2)
            )

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Three()])

        def forward(self, x: Tensor, memory: Tensor) -> Tensor:
            return self.layers[0](x, torch.ones_like(x), memory)

    calls: list[bool] = []

    def listen(call: Any, compute: Any) -> Tensor:
        calls.append(call.cross)
        return compute()

    Forward(Model())({"x": X, "memory": X.flip(1)}, listen)
    assert calls == [False, True]


# ---- stacks and layers ------------------------------------------------------------------------


@pytest.mark.parametrize("order", [("text", "image"), ("image", "text")])
def test_a_tower_has_its_name_whatever_ran(order: tuple[str, str]) -> None:
    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.text_model, self.vision_model = Stack(Layer(attn=Attention())), Stack(Layer(attn=Attention()))

        def forward(self, x: Tensor, which: str) -> Tensor:
            return (self.text_model if which == "text" else self.vision_model)(x, x)

    model = Towers().eval()
    label = {"text": "text.L0", "image": "vision.L0"}
    assert sites(model, X, order[0]) == [(label[order[0]], False)]
    with torch.no_grad(), mh.capture(model) as heads:
        model(X, order[0])
        before = [site.label for site in heads.sites]
        model(X, order[1])
    assert before == [site.label for site in heads.sites][:1]


def test_encoder_and_decoder_of_one_tower_are_two_stacks() -> None:
    class Translator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.text_encoder = Stack(Layer(attn=Attention()))
            self.text_decoder = Stack(Layer(first=Attention(), second=Attention()))

        def forward(self, x: Tensor) -> Tensor:
            return self.text_decoder(x.flip(1), self.text_encoder(x, x))

    found = sites(Translator(), X)
    assert found == [("text_encoder.L0", False), ("text_decoder.L0", False), ("text_decoder_cross.L0", True)]
    assert mh.anatomy(Translator().eval(), (X,))["text_decoder_cross.L0H1"].name == "text_decoder_cross.L0H1"


def test_a_detr_encoder_is_an_encoder() -> None:
    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.detr_encoder = Stack(Layer(attn=Attention()))
            self.detr_decoder = Stack(Layer(first=Attention(), second=Attention()))

        def forward(self, x: Tensor) -> Tensor:
            return self.detr_decoder(x.flip(1), self.detr_encoder(x, x))

    assert sites(Detector(), X) == [("encoder.L0", False), ("decoder.L0", False), ("cross.L0", True)]


def test_two_self_attentions_of_a_layer_have_names_of_their_own() -> None:
    model = Stack(*(Layer(attention=Attention(), temporal=Attention()) for _ in range(2)))
    found = [label for label, _ in sites(model, X, X)]
    assert found == ["L0", "temporal.L0", "L1", "temporal.L1"]
    with torch.no_grad(), mh.capture(model) as heads:
        model(X, X)
    assert heads["L1H2"].site.path == "layers.1.attention"
    assert heads["temporal.L1H2"].site.path == "layers.1.temporal"


class Latent(Attention):
    """Attention that neither its class nor its projections are named after."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.a, self.b, self.c, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    q, k, v = (property(lambda self, name=name: getattr(self, name)) for name in "abc")


class Several(nn.Module):
    """Several attentions in a list or in a module, one after the other."""

    def __init__(self, attentions: nn.Module) -> None:
        super().__init__()
        self.self_attn = attentions

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        for attention in self.self_attn.children():
            x = x + attention(x)
        return x


@pytest.mark.parametrize(
    ("lists", "names"),
    [
        (lambda: nn.ModuleList([Latent(), Latent()]), ["L0", "L1", "L2", "L3"]),  # Longcat Flash
        (lambda: nn.ModuleDict({"near": Latent(), "far": Latent()}), ["L0", "self_attn.L0", "L1", "self_attn.L1"]),
        (
            lambda: Layer(near=Latent(), far=Latent()),
            ["L0", "layers_self_attn_far.L0", "L1", "layers_self_attn_far.L1"],
        ),
    ],
    ids=["list", "dict", "module"],
)
def test_several_attentions_below_one_attribute(lists: Any, names: list[str]) -> None:
    model = Stack(*(Several(lists()) for _ in range(2)))
    assert [label for label, _ in sites(model, X, X)] == names
    assert mh.anatomy(model.eval(), (X, X)).notes == ()


# ---- attention that is not seen ---------------------------------------------------------------


def half_seen() -> Stack:
    return Stack(Layer(attn=Attention()), Layer(attn=ByHandAttention())).eval()


def test_a_capture_warns_of_attention_that_it_did_not_see() -> None:
    model = half_seen()
    with pytest.warns(UserWarning, match=r"1 of 2 attentions are not seen: layers\.1\.attn \(ByHandAttention\)"):
        assert sites(model, X, X) == [("L0", False)]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_measure_and_anatomy_note_what_they_did_not_see() -> None:
    model = half_seen()
    kind = "ByHandAttention"
    adapter = f"@multihead.model.adapter({kind})"
    note = f"1 of 2 attentions are not seen: layers.1.attn ({kind}); write an adapter: {adapter}"
    assert mh.measure(model, {"x": X, "memory": X}).about["notes"] == [note]
    anatomy = mh.anatomy(model, (X, X))
    assert anatomy.notes == (note,)
    assert note in str(anatomy)


@pytest.mark.parametrize("name", zoo.ZOO)
@pytest.mark.fast("bert", "t5", "siglip", "torch-transformer", "multihead")
def test_no_false_alarm(name: str) -> None:
    entry = zoo.ZOO[name]
    model = entry.build()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*not seen")
        sites(model, **entry.inputs(model))


def test_longt5_says_that_its_encoder_is_not_seen() -> None:
    from transformers import LongT5Config, LongT5Model

    config = LongT5Config(
        vocab_size=53,
        d_model=20,
        d_kv=8,
        num_heads=3,
        d_ff=19,
        num_layers=2,
        num_decoder_layers=1,
        local_radius=3,
        encoder_attention_type="transient-global",
    )
    ids = torch.randint(5, 50, (2, TOKENS))
    with pytest.warns(
        UserWarning, match=r"2 of 4 attentions are not seen: encoder\.block\.0.*LongT5TransientGlobalAttention"
    ):
        found = sites(LongT5Model(config), input_ids=ids, decoder_input_ids=ids)
    assert found == [("decoder.L0", False), ("cross.L0", True)]


# ---- errors of the model ----------------------------------------------------------------------


def test_a_missing_image_is_named() -> None:
    model = zoo.ZOO["clip"].build()
    with pytest.raises(
        mh.MultiheadError, match="CLIPModel cannot run without pixel_values; it got input_ids"
    ) as raised:
        mh.measure(model, [[7, 8, 9]])
    assert raised.value.__cause__ is not None


def test_an_unknown_token_id_is_named() -> None:
    model = zoo.ZOO["gpt2"].build()
    with pytest.raises(mh.MultiheadError, match=r"input_ids has the token id 999, .* embeddings for 0 to 100"):
        mh.measure(model, {"input_ids": torch.tensor([[7, 999]])})


class _Codebooks(nn.Module):
    """Reads rows in fours, as MusicGen does."""

    def __init__(self, error: str = "") -> None:
        super().__init__()
        self.table, self.error = nn.Embedding(31, 12), error

    def forward(self, input_ids: Tensor, input_features: Tensor | None = None) -> Tensor:
        if self.error:
            raise RuntimeError(self.error)
        return self.table(input_ids.reshape(-1, 4, input_ids.shape[-1]))


def test_an_input_of_a_wrong_shape_is_named() -> None:
    with pytest.raises(
        ModelRunError,
        match=r"_Codebooks does not run on input_ids of shape \(1, 3\) \(RuntimeError: shape '\[-1, 4, 3",
    ) as raised:
        mh.measure(_Codebooks(), [[7, 8, 9]])
    assert raised.value.hint is not None
    assert "It also takes input_features" in raised.value.hint
    assert isinstance(raised.value.__cause__, RuntimeError)


@pytest.mark.parametrize("error", ["CUDA out of memory. Tried", "DefaultCPUAllocator: can't allocate memory"])
def test_a_model_that_runs_out_of_memory_says_on_what(error: str) -> None:
    with pytest.raises(
        ModelRunError, match=r"_Codebooks ran out of memory on input_ids of shape \(1, 3\)"
    ) as raised:
        mh.measure(_Codebooks(error), [[7, 8, 9]])
    assert raised.value.hint is not None
    assert "batch_size" in raised.value.hint


def test_errors_of_a_listener_are_its_own() -> None:
    model = zoo.ZOO["gpt2"].build()

    def broken(call: Any, compute: Any) -> Tensor:
        raise ValueError("of the listener")

    with pytest.raises(ValueError, match="of the listener") as raised:
        Forward(model)({"input_ids": torch.tensor([[7, 9]])}, broken)
    assert not isinstance(raised.value, mh.MultiheadError)
