"""Attention modules as textbooks and tutorials write them: the layer read from each computes what it computes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import multihead as mh
from multihead import interop, mask
from multihead.errors import ModelRunError, MultiheadError, SizeError, TypeMismatchError

BATCH, HEADS, DIM, TOKENS, KEYS = 2, 3, 7, 5, 11
WIDTH = HEADS * DIM


@pytest.fixture(autouse=True)
def _double(fp64: None) -> None:
    """Every test of this file is in float64."""


def drawn(module: Any) -> Any:
    """The module in eval mode, with weights so large that scores have a deviation of 2."""
    for p in module.parameters():
        nn.init.normal_(p, std=1.0 if p.ndim == 1 else 1.5 * WIDTH**-0.5)
    return module.eval()


def tokens(count: int = TOKENS, width: int = WIDTH) -> Tensor:
    return torch.randn(BATCH, count, width)


# ---- the modules ------------------------------------------------------------------------------


class AnnotatedTransformer(nn.Module):
    """The Annotated Transformer: four clones in a list."""

    def __init__(self, h: int = HEADS, d_model: int = WIDTH, dropout: float = 0.1) -> None:
        super().__init__()
        self.d_k, self.h = d_model // h, h
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))
        self.attn: Tensor | None = None
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            mask = mask.unsqueeze(1)
        nbatches = query.size(0)
        query, key, value = (
            lin(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)
            for lin, x in zip(self.linears, (query, key, value), strict=False)
        )
        scores = query @ key.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        self.attn = self.dropout(scores.softmax(dim=-1))
        x = (self.attn @ value).transpose(1, 2).contiguous().view(nbatches, -1, self.h * self.d_k)
        return self.linears[-1](x)


class DotProductAttention(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        scores = torch.bmm(queries, keys.transpose(1, 2)) / math.sqrt(queries.shape[-1])
        return torch.bmm(self.dropout(F.softmax(scores, dim=-1)), values)


class DiveIntoDeepLearning(nn.Module):
    """d2l.ai: lazy layers, heads folded into the batch, valid_lens without a default."""

    def __init__(self, num_hiddens: int = WIDTH, num_heads: int = HEADS, dropout: float = 0.1) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attention = DotProductAttention(dropout)
        self.W_q, self.W_k = nn.LazyLinear(num_hiddens), nn.LazyLinear(num_hiddens)
        self.W_v, self.W_o = nn.LazyLinear(num_hiddens, bias=False), nn.LazyLinear(num_hiddens)

    def transpose_qkv(self, x: Tensor) -> Tensor:
        x = x.reshape(x.shape[0], x.shape[1], self.num_heads, -1).permute(0, 2, 1, 3)
        return x.reshape(-1, x.shape[2], x.shape[3])

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None) -> Tensor:
        assert valid_lens is None
        output = self.attention(
            self.transpose_qkv(self.W_q(queries)),
            self.transpose_qkv(self.W_k(keys)),
            self.transpose_qkv(self.W_v(values)),
        )
        output = output.reshape(-1, self.num_heads, output.shape[1], output.shape[2]).permute(0, 2, 1, 3)
        return self.W_o(output.reshape(output.shape[0], output.shape[1], -1))


def materialised() -> DiveIntoDeepLearning:
    module = DiveIntoDeepLearning()
    module(tokens(), tokens(), tokens(), None)
    return module


class SamLynnEvans(nn.Module):
    """q_linear, k_linear, v_linear, out."""

    def __init__(self, heads: int = HEADS, d_model: int = WIDTH, dropout: float = 0.1) -> None:
        super().__init__()
        self.d_model, self.d_k, self.h = d_model, d_model // heads, heads
        self.q_linear, self.v_linear, self.k_linear = (nn.Linear(d_model, d_model) for _ in range(3))
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        bs = q.size(0)
        k = self.k_linear(k).view(bs, -1, self.h, self.d_k).transpose(1, 2)
        q = self.q_linear(q).view(bs, -1, self.h, self.d_k).transpose(1, 2)
        v = self.v_linear(v).view(bs, -1, self.h, self.d_k).transpose(1, 2)
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask.unsqueeze(1) == 0, -1e9)
        scores = self.dropout(F.softmax(scores, dim=-1))
        concat = torch.matmul(scores, v).transpose(1, 2).contiguous().view(bs, -1, self.d_model)
        return self.out(concat)


class ValuesFirst(SamLynnEvans):
    """forward(values, keys, query, mask), with a mask that has no default."""

    def forward(self, values: Tensor, keys: Tensor, query: Tensor, mask: Tensor | None) -> Tensor:
        return super().forward(query, keys, values, mask)


class FromScratch(nn.Module):
    """Build a Large Language Model (From Scratch): W_query, and a mask of what is hidden in a buffer."""

    def __init__(self, d_in: int = 13, d_out: int = WIDTH, context_length: int = 17, dropout: float = 0.1) -> None:
        super().__init__()
        self.d_out, self.num_heads, self.head_dim = d_out, HEADS, d_out // HEADS
        self.W_query, self.W_key, self.W_value = (nn.Linear(d_in, d_out, bias=False) for _ in range(3))
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), diagonal=1))

    def forward(self, x: Tensor) -> Tensor:
        b, num_tokens, _ = x.shape
        keys, queries, values = (
            f(x).view(b, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)
            for f in (self.W_key, self.W_query, self.W_value)
        )
        scores = queries @ keys.transpose(2, 3)
        scores.masked_fill_(self.mask.bool()[:num_tokens, :num_tokens], -torch.inf)
        weights = self.dropout(torch.softmax(scores / keys.shape[-1] ** 0.5, dim=-1))
        return self.out_proj((weights @ values).transpose(1, 2).contiguous().view(b, num_tokens, self.d_out))


class Conv1D(nn.Module):
    """GPT-2's linear layer: x @ weight + bias."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(width, out)), nn.Parameter(torch.empty(out))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class MinGPT(nn.Module):
    """minGPT: c_attn, split into thirds, and a causal mask in a buffer called bias."""

    def __init__(self, linear: Callable[[int, int], nn.Module] = nn.Linear, block_size: int = 17) -> None:
        super().__init__()
        self.c_attn, self.c_proj = linear(WIDTH, 3 * WIDTH), linear(WIDTH, WIDTH)
        self.attn_dropout, self.resid_dropout = nn.Dropout(0.1), nn.Dropout(0.2)
        self.register_buffer("bias", torch.tril(torch.ones(block_size, block_size))[None, None])
        self.n_head, self.n_embd = HEADS, WIDTH

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.size()
        q, k, v = (
            p.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
            for p in self.c_attn(x).split(self.n_embd, dim=2)
        )
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
        y = self.attn_dropout(F.softmax(att, dim=-1)) @ v
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c)))


class InProj(nn.Module):
    """in_proj and out_proj, and the weights beside the output."""

    def __init__(self) -> None:
        super().__init__()
        self.nhead = HEADS
        self.in_proj, self.out_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = (p.unflatten(-1, (self.nhead, -1)).transpose(1, 2) for p in self.in_proj(x).chunk(3, dim=-1))
        weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2)), weights


class PerHeadChunks(nn.Module):
    """The Amsterdam tutorials: each head has its q, k and v side by side in qkv_proj."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.embed_dim = HEADS, DIM, WIDTH
        self.qkv_proj, self.o_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, seq, _ = x.size()
        qkv = self.qkv_proj(x).reshape(batch, seq, self.num_heads, 3 * self.head_dim).permute(0, 2, 1, 3)
        q, k, v = qkv.chunk(3, dim=-1)
        values = F.softmax(q @ k.mT / math.sqrt(self.head_dim), dim=-1) @ v
        return self.o_proj(values.permute(0, 2, 1, 3).reshape(batch, seq, self.embed_dim))


class Matrices(nn.Module):
    """Plain matrices under any names; those of `transposed` are used as x @ W.T, the others as x @ W."""

    def __init__(
        self, names: str = "W_Q W_K W_V W_O", transposed: str = "", *, d_model: int = WIDTH, inner: int = WIDTH
    ) -> None:
        super().__init__()
        self.names, self.transposed, self.n_heads = names.split(), transposed.split(), HEADS
        for name in self.names:
            shape = (inner, d_model) if name == self.names[3] else (d_model, inner)
            matrix = nn.Parameter(torch.empty(shape[::-1] if name in self.transposed else shape))
            setattr(self, name, matrix)
        if names == "W_Q W_K W_V W_O":
            self.b_Q, self.b_O = nn.Parameter(torch.empty(inner)), nn.Parameter(torch.empty(d_model))

    def project(self, x: Tensor, i: int) -> Tensor:
        name = self.names[i]
        w = getattr(self, name)
        out = x @ (w.T if name in self.transposed else w)
        return out + getattr(self, f"b_{name[-1]}") if hasattr(self, f"b_{name[-1]}") else out

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.project(x, i).unflatten(-1, (self.n_heads, -1)).transpose(-3, -2) for i in range(3))
        weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
        return self.project((weights @ v).transpose(-3, -2).flatten(-2), 3)


class MatrixList(nn.Module):
    """linears[0..3] as plain matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.h = HEADS
        self.linears = nn.ParameterList(torch.empty(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = ((x @ w).unflatten(-1, (self.h, -1)).transpose(1, 2) for w in list(self.linears)[:3])
        weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
        return (weights @ v).transpose(1, 2).flatten(2) @ self.linears[3]


class OneMatrixPerHead(nn.Module):
    """W_Q of shape (head, d_model, head_dim), as in interpretability, and a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.n_heads, width = HEADS, 13
        self.W_Q, self.W_K, self.W_V = (nn.Parameter(torch.empty(HEADS, width, DIM)) for _ in range(3))
        self.W_O = nn.Parameter(torch.empty(HEADS, DIM, width))
        self.b_Q, self.b_K, self.b_V = (nn.Parameter(torch.empty(HEADS, DIM)) for _ in range(3))
        self.b_O = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            torch.einsum("btw,hwd->bhtd", x, w) + b[:, None]
            for w, b in ((self.W_Q, self.b_Q), (self.W_K, self.b_K), (self.W_V, self.b_V))
        )
        scores = q @ k.mT / math.sqrt(DIM)
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -1e5)
        return torch.einsum("bhtd,hdw->btw", scores.softmax(-1) @ v, self.W_O) + self.b_O


class PlainPacked(nn.Module):
    """q, k and v in one plain matrix, used as x @ W."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.heads, self.name = HEADS, name
        setattr(self, name, nn.Parameter(torch.empty(WIDTH, 3 * WIDTH)))
        self.out_proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        qkv = (x @ getattr(self, self.name)).chunk(3, dim=-1)
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in qkv)
        weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))


# ---- read by their parameters -----------------------------------------------------------------

THREE_ARGUMENTS = {
    "Annotated Transformer": AnnotatedTransformer,
    "d2l.ai": materialised,
    "q_linear": SamLynnEvans,
    "values first": ValuesFirst,
}
ONE_ARGUMENT = {
    "minGPT": MinGPT,
    "GPT-2": lambda: MinGPT(Conv1D),
    "in_proj": InProj,
    "W_query": FromScratch,
    "W_Q, not square": lambda: Matrices(inner=2 * WIDTH, d_model=13),
    "W_Q.T, not square": lambda: Matrices(transposed="W_Q W_K W_V W_O", inner=2 * WIDTH, d_model=13),
    "plain in_proj": lambda: PlainPacked("in_proj"),
    "one matrix per head": OneMatrixPerHead,
}
NEED_AN_EXAMPLE = {
    "x @ W_Q": Matrices,
    "x @ W_Q.T": lambda: Matrices(transposed="W_Q W_K W_V W_O"),
    "x @ w_q": lambda: Matrices("w_q w_k w_v w_o"),
    "x @ q_linear.T": lambda: Matrices("q_linear k_linear v_linear out", "q_linear k_linear v_linear out"),
    "x @ W_V, the others transposed": lambda: Matrices(transposed="W_Q W_K W_O"),
    "linears": MatrixList,
}


def compare(ours: mh.MultiHeadAttention, theirs: nn.Module, x: Tensor) -> None:
    """The layer returns what the module returns, causal modules under a causal mask."""
    out = theirs(x)
    causal = isinstance(theirs, MinGPT | FromScratch | OneMatrixPerHead)
    seen = mask.causal() if causal else mask.everything()
    assert_close(ours(x, mask=seen), out[0] if isinstance(out, tuple) else out)


@pytest.mark.parametrize("example", [False, True])
@pytest.mark.parametrize("name", THREE_ARGUMENTS)
def test_modules_of_queries_keys_and_values(name: str, example: bool) -> None:
    theirs = drawn(THREE_ARGUMENTS[name]())
    ours = interop.from_module(theirs, example=tokens() if example else None)
    assert (ours.num_heads, ours.dropout, ours.training) == (HEADS, 0.1, False)
    q, k, v = tokens(), tokens(KEYS), tokens(KEYS)
    last = (None,) if name in ("d2l.ai", "values first") else ()
    assert_close(ours(q, k, v), theirs(*((v, k, q) if name == "values first" else (q, k, v)), *last))
    if name != "d2l.ai":
        causal = torch.ones(1, TOKENS, TOKENS).tril()
        assert_close(ours(q, mask=mask.causal()), theirs(q, q, q, causal))


@pytest.mark.parametrize("example", [False, True])
@pytest.mark.parametrize("name", ONE_ARGUMENT)
def test_modules_of_one_input(name: str, example: bool) -> None:
    theirs = drawn(ONE_ARGUMENT[name]())
    x = tokens(
        width=13 if name in ("W_Q, not square", "W_Q.T, not square", "W_query", "one matrix per head") else WIDTH
    )
    ours = interop.from_module(theirs, example=x if example else None)
    compare(ours, theirs, torch.randn_like(x))


@pytest.mark.parametrize("name", NEED_AN_EXAMPLE)
def test_modules_that_need_an_example(name: str) -> None:
    theirs = drawn(NEED_AN_EXAMPLE[name]())
    expect(SizeError, ["x @ W or as x @ W.T", "example="], lambda: interop.from_module(theirs))
    compare(interop.from_module(theirs, example=tokens()), theirs, tokens())


def test_an_example_decides_how_q_k_and_v_are_packed() -> None:
    theirs = drawn(PerHeadChunks())
    compare(interop.from_module(theirs, example=tokens()), theirs, tokens())


@pytest.mark.parametrize("name", ["num_heads", "n_heads", "heads", "h", "n_head", "nhead"])
@pytest.mark.parametrize("row", [name for name in interop.LAYOUTS if name.startswith("textbook")])
def test_every_layout_of_textbooks_is_read_from_a_module(row: str, name: str) -> None:
    attn = mh.MultiHeadAttention(WIDTH, HEADS)
    module = nn.Module()
    setattr(module, name, HEADS)
    for key, x in interop.to_state_dict(attn, row).items():
        *path, last = key.split(".")
        owner = module
        for part in path[:-1]:
            owner.add_module(part, owner._modules.get(part) or nn.Module())
            owner = owner.get_submodule(part)
        if last == "weight":
            owner.add_module(path[-1], nn.Linear(WIDTH, WIDTH))
        getattr(owner.get_submodule(path[-1]), last).data = x
    read = interop.from_module(module)
    assert all(torch.equal(x, read.state_dict()[key]) for key, x in attn.state_dict().items())


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("options", [{}, {"add_zero_attn": True}, {"kdim": 13, "vdim": 17}])
def test_torch_itself(options: dict[str, Any], batch_first: bool) -> None:
    theirs = drawn(nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first, **options))
    inputs = [tokens(), tokens(KEYS, options.get("kdim", WIDTH)), tokens(KEYS, options.get("vdim", WIDTH))]
    example = inputs if batch_first else [x.transpose(0, 1) for x in inputs]
    ours = interop.from_module(theirs, example=example)
    out = theirs(*example)[0]
    assert_close(ours(*inputs), out if batch_first else out.transpose(0, 1))
    expect(SizeError, ["'num_heads': 7", "from_torch"], lambda: interop.from_module(theirs, num_heads=7))


# ---- examples ---------------------------------------------------------------------------------


def test_arguments_of_the_forward_as_an_example() -> None:
    theirs = drawn(ValuesFirst())
    q, k, v = tokens(), tokens(KEYS), tokens(KEYS)
    assert interop.from_module(theirs, example=(v, k, q, None)).num_heads == HEADS
    causal = torch.ones(1, TOKENS, TOKENS).tril()
    assert interop.from_module(theirs, example=(q, q, q, causal)).num_heads == HEADS
    hidden = (torch.arange(TOKENS) < 3).expand(1, TOKENS, TOKENS)  # neither nothing nor the future
    expect(SizeError, ["does not reproduce"], lambda: interop.from_module(theirs, example=(q, q, q, hidden)))


def test_arguments_that_are_not_tokens() -> None:
    class WithTables(SamLynnEvans):
        def forward(self, x: Tensor, valid_lens: Tensor | None, table: Tensor | None = None) -> Tensor:
            assert valid_lens is None
            return super().forward(x, x, x)

    theirs = drawn(WithTables())
    for example in (tokens(), (tokens(), None, torch.randn(TOKENS, WIDTH))):
        assert interop.from_module(theirs, example=example).num_heads == HEADS


def test_an_example_without_a_batch() -> None:
    theirs = drawn(Matrices())
    x = tokens()[0]
    assert_close(interop.from_module(theirs, example=x)(x), theirs(x))


def test_a_different_formula_is_refused_and_its_option_accepted() -> None:
    class ByWidth(SamLynnEvans):
        def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
            return super().forward(q * math.sqrt(DIM / WIDTH), k, v, mask)

    theirs = drawn(ByWidth())
    nn.init.zeros_(theirs.q_linear.bias)
    x = tokens()
    ours = interop.from_module(theirs)
    with torch.no_grad():
        difference = (ours(x) - theirs(x, x, x)).abs().max()
        causal = (ours(x, mask=mask.causal()) - theirs(x, x, x)).abs().max()
    words = [f"{min(difference, causal):.3g}", "ByWidth", "scale="]
    expect(SizeError, words, lambda: interop.from_module(theirs, example=x))
    read = interop.from_module(theirs, example=x, scale=WIDTH**-0.5)
    assert_close(read(x), theirs(x, x, x))
    expect(SizeError, ["does not reproduce"], lambda: interop.from_module(drawn(MinGPT()), num_heads=7, example=x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_dtypes_are_compared_within_their_precision(dtype: torch.dtype) -> None:
    theirs = drawn(Matrices()).to(dtype)
    x = tokens().to(dtype)
    ours = interop.from_module(theirs, example=x)
    assert torch.equal(ours.q_proj.weight, theirs.W_Q.mT)
    theirs.forward = lambda x: Matrices.forward(theirs, x) * 1.2  # type: ignore[method-assign]
    expect(SizeError, ["does not reproduce"], lambda: interop.from_module(theirs, example=x))


def test_examples_that_do_not_decide() -> None:
    theirs = drawn(Matrices())
    for example in (tokens(1), tokens(1).expand(-1, TOKENS, -1)):  # q and k do not matter
        expect(SizeError, ["4 readings", "example"], lambda x=example: interop.from_module(theirs, example=x))


def test_matrices_that_are_their_own_transpose_need_no_example() -> None:
    theirs = drawn(Matrices("W_q W_k W_v W_o"))
    for name in theirs.names:
        nn.init.eye_(getattr(theirs, name))
    compare(interop.from_module(theirs), theirs, tokens())


def test_the_module_is_left_as_it_was() -> None:
    theirs = drawn(AnnotatedTransformer(dropout=0.5)).train()
    theirs.linears[2].eval()
    theirs.linears[1].weight.requires_grad = False
    modes = {name: m.training for name, m in theirs.named_modules()}
    weights = {name: p.clone() for name, p in theirs.named_parameters()}
    assert interop.from_module(theirs, example=tokens()).training
    with pytest.raises(SizeError):
        interop.from_module(theirs, example=tokens(), scale=1.0)
    with pytest.raises(ModelRunError):
        interop.from_module(theirs, example=tokens(width=4))
    assert {name: m.training for name, m in theirs.named_modules()} == modes
    assert all(torch.equal(p, weights[name]) for name, p in theirs.named_parameters())
    assert [name for name, p in theirs.named_parameters() if not p.requires_grad] == ["linears.1.weight"]
    assert theirs.attn is not None
    assert not theirs.attn.requires_grad


def test_bad_examples() -> None:
    theirs = drawn(MinGPT())
    for example in (3, "x", (), (None,), {"x": tokens()}):
        expect(TypeMismatchError, ["example must be"], lambda x=example: interop.from_module(theirs, example=x))
    expect(
        ModelRunError, ["MinGPT raised RuntimeError", "example="],
        lambda: interop.from_module(theirs, example=tokens(width=WIDTH + 1)),
    )  # fmt: skip
    theirs.forward = lambda x: {"out": x}  # type: ignore[method-assign]
    expect(
        TypeMismatchError, ["must return a tensor", "dict"], lambda: interop.from_module(theirs, example=tokens())
    )


# ---- refused ----------------------------------------------------------------------------------


def expect(error: type[MultiheadError], words: list[str], call: Callable[[], object]) -> None:
    with pytest.raises(error) as caught:
        call()
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert caught.value.hint


def test_unknown_parameters_are_listed() -> None:
    module = nn.Bilinear(3, 5, 2)
    words = ["Bilinear", "weight (2, 3, 5)", "bias (2,)", "linears.0, linears.1", "W_Q, W_K, W_V, W_O"]
    expect(SizeError, words, lambda: interop.from_module(module, num_heads=1))
    expect(SizeError, ["its parameters: none"], lambda: interop.from_module(nn.Identity(), num_heads=1))
    both = SamLynnEvans()
    both.W_q, both.W_k, both.W_v, both.W_o = both.q_linear, both.k_linear, both.v_linear, both.out
    expect(SizeError, ["textbook-W_q and textbook-q_linear"], lambda: interop.from_module(both))


@pytest.mark.parametrize("module", [None, [], {}, SamLynnEvans, "SamLynnEvans"])
def test_what_is_not_a_module(module: Any) -> None:
    expect(
        TypeMismatchError, ["module must be an nn.Module", "from_state_dict"], lambda: interop.from_module(module)
    )


def test_number_of_heads() -> None:
    module: Any = SamLynnEvans()
    module.num_heads = 5
    expect(SizeError, ["num_heads=5", "h=3", "pass num_heads="], lambda: interop.from_module(module))
    assert interop.from_module(module, num_heads=HEADS).num_heads == HEADS
    expect(SizeError, ["num_heads=2", "21 columns", "out.weight"], lambda: interop.from_module(module, num_heads=2))
    for wrong in ("3", 3.0, True):
        with pytest.raises(TypeMismatchError, match="num_heads must be an integer"):
            interop.from_module(module, num_heads=wrong)
    module.num_heads, module.h = "3", True
    expect(SizeError, ["num_heads='3', h=True", "pass num_heads="], lambda: interop.from_module(module))
    del module.num_heads, module.h
    expect(SizeError, ["got none of num_heads, n_heads"], lambda: interop.from_module(module))


def test_parameters_without_a_place() -> None:
    module: Any = SamLynnEvans()
    module.norm = nn.LayerNorm(WIDTH)
    expect(SizeError, ["norm.weight", "strict=False"], lambda: interop.from_module(module))
    assert interop.from_module(module, strict=False).num_heads == HEADS
    with pytest.raises(SizeError, match="norm"):
        interop.from_module(module, example=tokens())


def test_what_parameters_do_not_show_needs_an_example() -> None:
    rotary: Any = SamLynnEvans()
    rotary.register_buffer("inv_freq", torch.rand(3), persistent=False)
    expect(TypeMismatchError, ["buffers inv_freq", "example="], lambda: interop.from_module(rotary))
    assert interop.from_module(rotary, strict=False).num_heads == HEADS
    assert interop.from_module(rotary, example=tokens()).num_heads == HEADS
    rotary.register_buffer("inv_freq", None)
    rotary.register_buffer("cosines", torch.rand(TOKENS, DIM))
    expect(TypeMismatchError, ["buffers cosines"], lambda: interop.from_module(rotary))
    configured: Any = SamLynnEvans()
    configured.config = object()
    expect(TypeMismatchError, ["SamLynnEvans", "position="], lambda: interop.from_module(configured))
    ours = mh.MultiHeadAttention(WIDTH, HEADS, head_dim=8, position=mh.position.Rotary())
    expect(TypeMismatchError, ["MultiHeadAttention", "position="], lambda: interop.from_module(ours))
    expect(SizeError, ["does not reproduce"], lambda: interop.from_module(ours, example=tokens()))
    read = interop.from_module(ours, example=tokens(), position=mh.position.Rotary())
    assert isinstance(read.position, mh.position.Rotary)


def test_lazy_layers_must_have_run() -> None:
    expect(SizeError, ["W_q.weight", "call the module once"], lambda: interop.from_module(DiveIntoDeepLearning()))


@pytest.mark.parametrize(
    "attribute, value, dropout",
    [
        ("dropout", 0.3, 0.3),
        ("dropout", nn.Dropout(0.4), 0.4),
        ("attn_drop", nn.Dropout(0.6), 0.6),
        ("dropout", "none", 0.0),
    ],
)
def test_dropout_on_the_weights(attribute: str, value: Any, dropout: float) -> None:
    module: Any = SamLynnEvans(dropout=0.1)
    del module.dropout
    setattr(module, attribute, value)
    module.resid_dropout = nn.Dropout(0.9)
    assert interop.from_module(module).dropout == dropout
    assert interop.from_module(module, dropout=0.2).dropout == 0.2
