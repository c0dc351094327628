"""Against torch.nn.MultiheadAttention in fp64: the drop-in class under all its options, and the converted layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from multihead import interop, mask
from multihead.layer.dropin import MultiheadAttention

BATCH, HEADS, QUERIES, KEYS, WIDTH, KDIM, VDIM = 3, 5, 7, 11, 35, 13, 17


@dataclass(frozen=True)
class Case:
    """One way to build and to call the module."""

    bias: bool = True
    add_bias_kv: bool = False
    add_zero_attn: bool = False
    kdim: int | None = None
    vdim: int | None = None
    batch_first: bool = False
    batched: bool = True
    alone: bool = False  # self-attention: the same tensor three times
    attn_mask: str | None = None
    key_padding_mask: str | None = None
    average: bool = True

    def module(self, kind: type[nn.MultiheadAttention] = nn.MultiheadAttention) -> nn.MultiheadAttention:
        options: dict[str, Any] = {
            "bias": self.bias, "add_bias_kv": self.add_bias_kv, "add_zero_attn": self.add_zero_attn,
            "kdim": self.kdim, "vdim": self.vdim, "batch_first": self.batch_first, "dtype": torch.float64,
        }  # fmt: skip
        module = kind(WIDTH, HEADS, **options)
        for p in module.parameters():  # logits of std > 1, and biases that are not 0
            nn.init.normal_(p, std=1.3 * WIDTH**-0.5)
        return module

    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        def draw(tokens: int, width: int) -> Tensor:
            shape = (BATCH, tokens, width) if self.batch_first else (tokens, BATCH, width)
            x = torch.randn(shape if self.batched else (tokens, width), dtype=torch.float64)
            return x.requires_grad_()

        query = draw(QUERIES, WIDTH)
        if self.alone:
            return query, query, query
        return query, draw(KEYS, self.kdim or WIDTH), draw(KEYS, self.vdim or WIDTH)

    def masks(self) -> dict[str, Tensor | None]:
        """Torch's masks, True = hidden, with no row left empty (torch gives NaN there)."""
        keys, rows = QUERIES if self.alone else KEYS, BATCH if self.batched else 1
        cells = {"2d": (QUERIES, keys), "3d": (rows * HEADS, QUERIES, keys)}
        found: dict[str, Tensor | None] = {"attn_mask": None, "key_padding_mask": None}
        if self.attn_mask is not None:
            shape, kind = self.attn_mask.split()
            found["attn_mask"] = _hiding(cells[shape], kind)
        if self.key_padding_mask is not None:
            found["key_padding_mask"] = _hiding((rows, keys) if self.batched else (keys,), self.key_padding_mask)
        return found


def _hiding(shape: tuple[int, ...], kind: str) -> Tensor:
    hidden = torch.rand(shape) < 0.4
    hidden[..., 0] = False
    if kind == "bool":
        return hidden
    return torch.randn(shape, dtype=torch.float64).masked_fill(hidden, -torch.inf)


def _twins(case: Case) -> tuple[nn.MultiheadAttention, MultiheadAttention]:
    theirs, ours = case.module(), case.module(MultiheadAttention)
    assert isinstance(ours, MultiheadAttention)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def _gradients(out: Tensor, module: nn.Module, inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
    named = {f"input {i}": x for i, x in enumerate(inputs)} | dict(module.named_parameters())
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
    return dict(zip(named, torch.autograd.grad((out * weight).sum(), list(named.values())), strict=True))


def _agree(case: Case) -> None:
    theirs, ours = _twins(case)
    inputs, masks = case.inputs(), case.masks()
    for need_weights in (True, False):
        call = {"need_weights": need_weights, "average_attn_weights": case.average}
        want, want_weights = theirs(*inputs, **masks, **call)
        got, got_weights = ours(*inputs, **masks, **call)
        assert_close(got, want)
        assert_close(got_weights, want_weights)
        assert_close(_gradients(got, ours, inputs), _gradients(want, theirs, inputs))


# torch warns of a bool mask beside a float one; what it means is clear.
mixed_masks = pytest.mark.filterwarnings("ignore:Support for mismatched")

OPTIONS = [
    Case(),
    Case(bias=False),
    Case(add_bias_kv=True),
    Case(add_zero_attn=True),
    Case(add_bias_kv=True, add_zero_attn=True, bias=False),
    Case(kdim=KDIM),
    Case(vdim=VDIM, bias=False),
    Case(kdim=KDIM, vdim=VDIM, add_bias_kv=True, add_zero_attn=True),
    Case(alone=True, batch_first=True),
    Case(alone=True, batched=False),
]
MASKS = [
    (None, None),
    ("2d bool", None),
    ("3d bool", "bool"),
    ("3d float", None),
    ("2d float", "float"),
    (None, "bool"),
    (None, "float"),
]


@mixed_masks
@pytest.mark.parametrize("masks", MASKS, ids=str)
@pytest.mark.parametrize("case", OPTIONS, ids=lambda case: str(OPTIONS.index(case)))
def test_dropin_equals_torch(case: Case, masks: tuple[str | None, str | None]) -> None:
    _agree(Case(**{**vars(case), "attn_mask": masks[0], "key_padding_mask": masks[1]}))


@mixed_masks
@given(
    st.builds(
        Case,
        bias=st.booleans(),
        add_bias_kv=st.booleans(),
        add_zero_attn=st.booleans(),
        batch_first=st.booleans(),
        batched=st.booleans(),
        average=st.booleans(),
        attn_mask=st.sampled_from([None, "2d bool", "2d float", "3d bool", "3d float"]),
        key_padding_mask=st.sampled_from([None, "bool", "float"]),
        kdim=st.sampled_from([None, KDIM]),
        vdim=st.sampled_from([None, VDIM]),
    )
)
def test_dropin_equals_torch_drawn(case: Case) -> None:
    _agree(case)


def test_dropin_draws_the_same_weights() -> None:
    for case in OPTIONS:
        options = {k: v for k, v in vars(case).items() if k in ("bias", "add_bias_kv", "kdim", "vdim")}
        states = []
        for kind in (nn.MultiheadAttention, MultiheadAttention):
            torch.manual_seed(5)
            states.append(kind(WIDTH, HEADS, **options).state_dict())
        assert list(states[0]) == list(states[1])
        assert all(torch.equal(a, b) for a, b in zip(*(s.values() for s in states), strict=True))


def test_dropin_is_causal_with_torchs_causal_mask() -> None:
    case = Case(alone=True)
    theirs, ours = _twins(case)
    (x, *_), causal = case.inputs(), nn.Transformer.generate_square_subsequent_mask(QUERIES, dtype=torch.float64)
    for need_weights in (True, False):
        want, _ = theirs(x, x, x, attn_mask=causal, is_causal=True, need_weights=need_weights)
        for attn_mask in (causal, causal < 0, None):
            got, _ = ours(x, x, x, attn_mask=attn_mask, is_causal=True, need_weights=need_weights)
            assert_close(got, want)


def test_float_masks_learn() -> None:
    case = Case(attn_mask="3d float", key_padding_mask="float")
    theirs, ours = _twins(case)
    inputs, masks = case.inputs(), case.masks()
    learned = [m.requires_grad_() for m in masks.values() if m is not None]
    for need_weights in (True, False):
        outs = [module(*inputs, **masks, need_weights=need_weights)[0] for module in (ours, theirs)]
        got, want = (torch.autograd.grad(out.square().sum(), learned) for out in outs)
        assert_close(got, want)


# ---- the layer converted from torch -----------------------------------------------------------


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(
    "case", [c for c in OPTIONS if not c.add_bias_kv], ids=lambda case: str(OPTIONS.index(case))
)
def test_converted_layer_equals_torch(case: Case, batch_first: bool) -> None:
    case = Case(**{**vars(case), "batch_first": batch_first, "batched": True})
    theirs = case.module()
    ours = interop.from_torch(theirs)
    inputs = case.inputs()
    own = inputs if batch_first else tuple(x.transpose(0, 1) for x in inputs)
    if case.alone:
        own = own[:1]
    want = theirs(*inputs, need_weights=False)[0]
    got = ours(*own)
    assert_close(got if batch_first else got.transpose(0, 1), want)
    grads = zip(*(torch.autograd.grad(out.square().sum(), inputs) for out in (got, want)), strict=True)
    for mine, torchs in grads:
        assert_close(mine, torchs)


def test_converted_layer_takes_our_masks() -> None:
    case = Case(alone=True, batch_first=True, key_padding_mask="bool")
    theirs, (x, *_), hidden = case.module(), case.inputs(), case.masks()["key_padding_mask"]
    assert hidden is not None
    causal = torch.ones(QUERIES, QUERIES, dtype=torch.bool).triu(1)
    want = theirs(x, x, x, key_padding_mask=hidden, attn_mask=causal)[0]
    assert_close(interop.from_torch(theirs)(x, mask=mask.causal() & mask.padding(~hidden)), want)


@pytest.mark.parametrize("case", [c for c in OPTIONS if not c.add_bias_kv], ids=lambda c: str(OPTIONS.index(c)))
@pytest.mark.parametrize("batch_first", [True, False])
def test_there_and_back_is_bit_equal(case: Case, batch_first: bool) -> None:
    theirs = Case(**{**vars(case), "batch_first": batch_first}).module().eval()
    theirs.dropout = 0.25
    back = interop.to_torch(interop.from_torch(theirs))
    assert list(back.state_dict()) == list(theirs.state_dict())
    for name, want in theirs.state_dict().items():
        assert torch.equal(back.state_dict()[name], want)
    for name in ("embed_dim", "num_heads", "kdim", "vdim", "dropout", "batch_first", "add_zero_attn", "training"):
        assert getattr(back, name) == getattr(theirs, name), name
