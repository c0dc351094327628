"""nn.MultiheadAttention's drop-in: where it differs from torch, inside torch's own modules, and bad input."""

from __future__ import annotations

import copy
import inspect
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from multihead.errors import SizeError, TypeMismatchError
from multihead.layer import dropin
from multihead.layer.dropin import MultiheadAttention

BATCH, HEADS, TOKENS, KEYS, WIDTH = 3, 4, 7, 11, 20  # an even number of heads: torch's fast path wants that


@pytest.fixture(autouse=True)
def _double(fp64: None) -> None:
    """Every test of this file is in float64."""


def _drawn(module: Any) -> Any:
    for p in module.parameters():
        nn.init.normal_(p, std=1.3 * WIDTH**-0.5)
    return module


def _mha(**options: Any) -> MultiheadAttention:
    return _drawn(MultiheadAttention(WIDTH, HEADS, **({"batch_first": True} | options)))


def _hidden_after() -> Tensor:
    return torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)


# ---- it is the same class from outside --------------------------------------------------------


@pytest.mark.parametrize("method", ["__init__", "forward"])
def test_signature_is_torchs(method: str) -> None:
    theirs = inspect.signature(getattr(nn.MultiheadAttention, method)).parameters
    ours = inspect.signature(getattr(MultiheadAttention, method)).parameters
    assert list(ours) == list(theirs)
    assert [p.default for p in ours.values()] == [p.default for p in theirs.values()]
    assert isinstance(_mha(), nn.MultiheadAttention)


def test_loads_and_gives_torchs_state_dict() -> None:
    for options in ({}, {"kdim": 5, "vdim": 3}, {"bias": False}, {"add_bias_kv": True}):
        theirs = nn.MultiheadAttention(WIDTH, HEADS, **options)
        ours = MultiheadAttention(WIDTH, HEADS, **options)
        ours.load_state_dict(theirs.state_dict())
        theirs.load_state_dict(ours.state_dict())


def test_weights_can_be_drawn_again() -> None:
    for options in ({}, {"kdim": 5}):
        mha = MultiheadAttention(WIDTH, HEADS, **options)
        before = copy.deepcopy(mha.state_dict())
        mha._reset_parameters()
        changed = {name for name, x in mha.state_dict().items() if not torch.equal(x, before[name])}
        assert changed == {name for name in before if name.endswith("proj_weight")}


# ---- where torch has surprises ----------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_is_causal_alone_is_causal(training: bool, need_weights: bool) -> None:
    mha = _mha().train(training)
    x = torch.randn(BATCH, TOKENS, WIDTH)
    with torch.no_grad():
        got, _ = mha(x, x, x, is_causal=True, need_weights=need_weights)
        want, _ = mha(x, x, x, attn_mask=_hidden_after(), need_weights=need_weights)
    assert_close(got, want)


def test_is_causal_and_a_mask_both_apply() -> None:
    mha, x = _mha(), torch.randn(BATCH, TOKENS, WIDTH)
    other = torch.rand(TOKENS, TOKENS) < 0.3
    want, weights = mha(x, x, x, attn_mask=other | _hidden_after())
    for need_weights in (True, False):
        assert_close(mha(x, x, x, attn_mask=other, is_causal=True, need_weights=need_weights)[0], want)
    assert weights is not None
    assert weights[:, other | _hidden_after()].count_nonzero() == 0


def test_causal_is_bottom_right_aligned() -> None:
    mha, x, y = _mha(), torch.randn(BATCH, TOKENS, WIDTH), torch.randn(BATCH, KEYS, WIDTH)
    shift = KEYS - TOKENS
    want, _ = mha(x, y, y, attn_mask=torch.ones(TOKENS, KEYS, dtype=torch.bool).triu(1 + shift))
    assert_close(mha(x, y, y, is_causal=True)[0], want)


@pytest.mark.parametrize("options", [{"add_bias_kv": True}, {"add_zero_attn": True}])
def test_extra_keys_are_never_hidden_by_causality(options: dict[str, bool]) -> None:
    mha, x = _mha(**options), torch.randn(BATCH, TOKENS, WIDTH)
    want, want_weights = mha(x, x, x, attn_mask=_hidden_after(), average_attn_weights=False)
    got, weights = mha(x, x, x, is_causal=True, average_attn_weights=False)
    assert_close(got, want)
    assert_close(weights, want_weights)
    assert weights is not None
    assert weights.shape == (BATCH, HEADS, TOKENS, TOKENS + 1)
    assert (weights[..., -1] > 0).all()


def test_more_queries_than_keys_with_a_mask_mean_the_mask() -> None:
    mha, x, y = _mha(), torch.randn(BATCH, KEYS, WIDTH), torch.randn(BATCH, TOKENS, WIDTH)
    given = torch.ones(KEYS, TOKENS, dtype=torch.bool).triu(1)
    assert_close(mha(x, y, y, attn_mask=given, is_causal=True)[0], mha(x, y, y, attn_mask=given)[0])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_row_that_sees_nothing_gives_zeros(training: bool, need_weights: bool, kind: str) -> None:
    mha = _mha().train(training)
    x = torch.randn(BATCH, TOKENS, WIDTH, requires_grad=True)
    hidden = torch.zeros(BATCH, TOKENS, dtype=torch.bool)
    hidden[1] = True
    mask = hidden if kind == "bool" else torch.zeros(BATCH, TOKENS).masked_fill(hidden, -torch.inf)
    out, weights = mha(x, x, x, key_padding_mask=mask, need_weights=need_weights)
    assert_close(out[1], mha.out_proj.bias.expand(TOKENS, -1))
    assert out.isfinite().all()
    if weights is not None:
        assert weights[1].count_nonzero() == 0
    (grad,) = torch.autograd.grad(out.square().sum(), x)
    assert grad.isfinite().all()


def test_nan_in_a_hidden_key_stays_there() -> None:
    mha, x = _mha(), torch.randn(BATCH, TOKENS, WIDTH)
    hidden = torch.zeros(BATCH, TOKENS, dtype=torch.bool)
    hidden[:, -1] = True
    clean, bad = x.clone(), x.clone()
    bad[:, -1] = torch.nan
    got, _ = mha(x, bad, bad, key_padding_mask=hidden)
    assert_close(got, mha(x, clean, clean, key_padding_mask=hidden)[0])


@pytest.mark.parametrize("training", [True, False])
def test_asking_for_weights_never_changes_the_output(training: bool) -> None:
    mha = _mha(dropout=0.4).train(training)
    x = torch.randn(BATCH, TOKENS, WIDTH)
    outs = []
    for need_weights in (True, False):
        torch.manual_seed(3)
        out, weights = mha(x, x, x, need_weights=need_weights, is_causal=True)
        outs.append(out)
        if weights is not None:  # the clean ones, before dropout
            assert_close(weights.sum(-1), torch.ones(BATCH, TOKENS))
    assert torch.equal(*outs)


def test_dropout_keeps_the_mean() -> None:
    mha = _mha(dropout=0.3)
    x = torch.randn(1, TOKENS, WIDTH).expand(2_000, -1, -1)
    with torch.no_grad():
        dropped = mha(x, x, x, need_weights=False)[0]
        want = mha.eval()(x[0], x[0], x[0], need_weights=False)[0]
    error = dropped.std(0) / len(x) ** 0.5
    assert error.min() > 0
    assert ((dropped.mean(0) - want).abs() < 5 * error).all()


@pytest.mark.parametrize("shape", [(0, TOKENS, WIDTH), (BATCH, 0, WIDTH), (BATCH, 1, WIDTH), (0, WIDTH)])
def test_nothing_and_one_token(shape: tuple[int, ...]) -> None:
    mha, x = _mha(), torch.randn(shape)
    out, weights = mha(x, x, x, is_causal=True)
    assert out.shape == shape
    assert out.isfinite().all()
    assert weights is not None
    assert weights.shape == (*shape[:-1], shape[-2])


def test_autocast() -> None:
    mha = _mha(add_bias_kv=True, add_zero_attn=True).float()
    x = torch.randn(BATCH, TOKENS, WIDTH, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out, weights = mha(x, x, x)
    assert out.dtype == torch.bfloat16
    assert weights is not None
    assert_close(out.float(), mha(x, x, x)[0], atol=0.1, rtol=0)


def test_compiles_to_one_graph() -> None:
    mha = _mha(add_bias_kv=True, add_zero_attn=True)
    x = torch.randn(BATCH, TOKENS, WIDTH)
    compiled = torch.compile(mha, fullgraph=True, backend="aot_eager")
    hidden = torch.rand(BATCH, TOKENS) < 0.4
    want = mha(x, x, x, key_padding_mask=hidden, is_causal=True)
    assert_close(compiled(x, x, x, key_padding_mask=hidden, is_causal=True), want)


# ---- inside torch's own modules ---------------------------------------------------------------


def _encoder_layer(**options: Any) -> nn.TransformerEncoderLayer:
    return _drawn(nn.TransformerEncoderLayer(WIDTH, HEADS, 29, dropout=0.0, batch_first=True, **options))


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_in_an_encoder_layer(grad: bool, training: bool, norm_first: bool) -> None:
    theirs = _encoder_layer(norm_first=norm_first).train(training)
    ours = copy.deepcopy(theirs)
    assert dropin.replace_all(ours) == ["self_attn"]
    assert type(ours.self_attn) is MultiheadAttention
    x, hidden = torch.randn(BATCH, TOKENS, WIDTH), torch.rand(BATCH, TOKENS) < 0.4
    hidden[:, 0] = False
    with torch.set_grad_enabled(grad):
        for call in ({}, {"src_key_padding_mask": hidden}, {"src_mask": _hidden_after(), "is_causal": True}):
            assert_close(ours(x, **call), theirs(x, **call))


def test_the_fast_path_of_an_encoder_layer_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = _encoder_layer().eval()
    dropin.replace_all(ours)
    x = torch.randn(BATCH, TOKENS, WIDTH)
    with torch.no_grad():
        causal = ours(x, src_mask=_hidden_after())
        monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", None)
        assert_close(ours(x, is_causal=True), causal)  # torch: not masked at all
        out = ours(x, src_key_padding_mask=torch.ones(BATCH, TOKENS, dtype=torch.bool))
    assert out.isfinite().all()  # torch: NaN


@pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype")
@pytest.mark.parametrize("causal", [True, False])
def test_in_an_encoder_that_makes_nested_tensors(causal: bool) -> None:
    theirs = nn.TransformerEncoder(_encoder_layer(), 2).eval()
    ours = copy.deepcopy(theirs)
    assert dropin.replace_all(ours) == ["layers.0.self_attn", "layers.1.self_attn"]
    x, lengths = torch.randn(BATCH, TOKENS, WIDTH), torch.tensor([TOKENS, 3, 5])
    hidden = torch.arange(TOKENS) >= lengths[:, None]
    call: dict[str, Any] = {"mask": _hidden_after()} if causal else {}
    with torch.no_grad():
        want, got = (encoder(x, src_key_padding_mask=hidden, **call) for encoder in (theirs, ours))
        assert_close(got[~hidden], want[~hidden])
        if not causal:
            assert got[hidden].count_nonzero() == 0  # nested tensors really were made
    trained = copy.deepcopy(ours).train()(x, src_key_padding_mask=hidden, **call)
    assert_close(trained[~hidden], want[~hidden])


def test_in_a_whole_transformer() -> None:
    theirs = nn.Transformer(WIDTH, HEADS, 2, 2, 29, dropout=0.0, batch_first=True)
    ours = copy.deepcopy(theirs)
    assert len(dropin.replace_all(ours)) == 2 + 2 * 2
    source, target = torch.randn(BATCH, KEYS, WIDTH), torch.randn(BATCH, TOKENS, WIDTH)
    call = {"tgt_mask": nn.Transformer.generate_square_subsequent_mask(TOKENS), "tgt_is_causal": True}
    for training in (True, False):
        assert_close(ours.train(training)(source, target, **call), theirs.train(training)(source, target, **call))


def test_replacing_keeps_parameters_and_hooks() -> None:
    layer = _encoder_layer()
    before, called = dict(layer.named_parameters()), []
    layer.self_attn.register_forward_hook(lambda *_: called.append(1))
    dropin.replace_all(layer)
    assert all(p is before[name] for name, p in layer.named_parameters())
    layer(torch.randn(BATCH, TOKENS, WIDTH))
    assert called == [1]
    with pytest.raises(TypeMismatchError, match=r"Linear must contain an nn\.MultiheadAttention"):
        dropin.replace_all(nn.Linear(2, 3))


@pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors(layout: torch.layout) -> None:
    mha, rows = _mha(), [torch.randn(n, WIDTH) for n in (5, 1, 7)]
    nested = torch.nested.nested_tensor(rows, layout=layout)
    out, weights = mha(nested, nested, nested, is_causal=True)
    assert out.layout == layout
    for got, row in zip(out.unbind(), rows, strict=True):
        assert_close(got, mha(row, row, row, is_causal=True)[0])
    assert weights is not None
    assert weights.shape == (3, 7, 7)
    with pytest.raises(TypeMismatchError, match="3 nested queries with attn_mask"):
        mha(nested, nested, nested, attn_mask=_hidden_after())


def test_hooks_and_adapters_on_out_proj_are_heard() -> None:
    mha, x = _mha(), torch.randn(BATCH, TOKENS, WIDTH)
    mha.out_proj.register_forward_hook(lambda module, args, out: out * 0)
    assert mha(x, x, x)[0].count_nonzero() == 0


def test_lora() -> None:
    peft = import_module("peft")
    model = nn.Sequential()
    model.add_module("mha", _mha().float())
    x = torch.randn(BATCH, TOKENS, WIDTH, dtype=torch.float32)
    want = model.mha(x, x, x)[0]
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=3, target_modules=["mha"], init_lora_weights=False))
    got = adapted.base_model.model.mha(x, x, x)[0]
    assert not torch.allclose(got, want)
    with adapted.disable_adapter():
        assert_close(adapted.base_model.model.mha(x, x, x)[0], want)


# ---- bad input --------------------------------------------------------------------------------

X = (BATCH, TOKENS, WIDTH)


@pytest.mark.parametrize(
    "build, message, hint",
    [
        ({"embed_dim": 20, "num_heads": 3}, "num_heads=3 does not divide d_model=20", "1, 2, 4, 5, 10, 20"),
        ({"embed_dim": 20, "num_heads": 0}, "num_heads=0 does not divide d_model=20", "choose one of"),
    ],
)
def test_bad_sizes(build: dict[str, int], message: str, hint: str) -> None:
    with pytest.raises(SizeError, match=message) as caught:
        MultiheadAttention(**build)
    assert caught.value.hint is not None
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "shapes, call, error, words",
    [
        ((X, X, (BATCH, KEYS, WIDTH)), {}, SizeError, ["(3, 7, 20)", "(3, 11, 20)", "one value per key"]),
        (((BATCH, TOKENS, 19), X, X), {}, SizeError, ["(3, 7, 19)", "width 20", "batch_first=True"]),
        ((X, (2, TOKENS, WIDTH), X), {}, SizeError, ["batch 3", "batch 2", "(batch, token, width)"]),
        ((X, (TOKENS, WIDTH), X), {}, SizeError, ["(7, 20)", "(3, 7, 20)"]),
        ((X, X, X), {"attn_mask": (7, 6)}, SizeError, ["(7, 6)", "(7, 7) or (12, 7, 7)"]),
        ((X, X, X), {"attn_mask": (3, 4, 7, 7)}, SizeError, ["(3, 4, 7, 7)", "(batch * head, query, key)"]),
        ((X, X, X), {"key_padding_mask": (7, 3)}, SizeError, ["(7, 3)", "(3, 7)", "(batch, key)"]),
    ],
)
def test_bad_shapes(shapes: Any, call: Any, error: type[Exception], words: list[str]) -> None:
    given = {name: torch.zeros(shape, dtype=torch.bool) for name, shape in call.items()}
    with pytest.raises(error) as caught:
        _mha()(*(torch.randn(s) for s in shapes), **given)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_bad_kinds() -> None:
    mha, x = _mha(), torch.randn(X)
    with pytest.raises(TypeMismatchError, match=r"query is torch\.float32, the layer's weights are torch\.float64"):
        mha(x.float(), x, x)
    with pytest.raises(TypeMismatchError, match=r"attn_mask .*got torch\.int64") as caught:
        mha(x, x, x, attn_mask=_hidden_after().long())
    assert "attn_mask == 0 if 1 marks visible keys" in str(caught.value)
    with pytest.raises(TypeMismatchError, match="key is on meta"):
        mha(x, x.to("meta"), x)
    with pytest.raises(SizeError, match="7 queries and 3 keys: the first 4 queries"):
        mha(x, x[:, :3], x[:, :3], is_causal=True)
