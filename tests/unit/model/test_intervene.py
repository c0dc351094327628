"""Heads that are ablated, gated and patched, against the same done by hand on the weights."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

import multihead as mh
import zoo
from multihead import mask
from multihead.errors import SizeError
from parity.test_zoo_capture import output

FAMILIES = ("bert", "llama", "gemma2", "gpt-oss", "t5", "torch-encoder", "bloom", "multihead", "gpt2")


def build(name: str, *, padded: bool = False) -> tuple[nn.Module, dict[str, Any]]:
    return zoo.ZOO[name].build(), zoo.ZOO[name].batch(padded)


class Small(nn.Module):
    """Two of our layers with a residual stream, in fp64: everything can be written out."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = [mh.MultiHeadAttention(12, 6, num_kv_heads=2, head_dim=4, **options) for _ in range(2)]
        self.layers = nn.ModuleList(layers).double()
        for p in self.parameters():
            nn.init.normal_(p, std=0.5)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x, mask=mask.causal())
        return x


X, Y = torch.randn(2, 3, 7, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


# ---- ablate ----------------------------------------------------------------------------------


def test_zero_is_pruning() -> None:
    """Ablating a head is taking its columns of W_O away."""
    model = Small()
    with mh.ablate(model, ["L0H1", "L1H4", (1, 5)]):
        got = model(X)
    for layer, heads in ((0, [1]), (1, [4, 5])):
        own = cast(mh.MultiHeadAttention, model.layers[layer])
        weight = own.o_proj.weight.data.view(12, 6, 4)
        weight[:, heads] = 0
    torch.testing.assert_close(got, model(X))


def test_mean_of_the_call_and_of_a_corpus() -> None:
    model = Small()
    with mh.capture(model, keep="outputs") as seen:
        model(X)
        model(Y)
    own = seen["L0H2"].output(call=0)
    with mh.ablate(model, ["L0H2"], replace="mean"), mh.capture(model, keep="outputs") as heads:
        model(X)
    torch.testing.assert_close(heads["L0H2"].output(), own.mean((0, 1)).expand_as(own))
    both = torch.cat([own, seen["L0H2"].output(call=1)]).mean((0, 1))
    with mh.ablate(model, ["L0H2"], replace="mean", means=seen), mh.capture(model, keep="outputs") as heads:
        model(X)
    torch.testing.assert_close(heads["L0H2"].output(), both.expand_as(own))
    with pytest.raises(mh.MultiheadError, match=r"has no layer layers\.1"):
        with mh.capture(model.layers[0]) as other:
            model.layers[0](X)
        with mh.ablate(model, ["L1H0"], replace="mean", means=other):
            pass


def test_the_mean_leaves_padding_out() -> None:
    model, batch = build("bert", padded=True)
    real = batch["attention_mask"].bool()
    with torch.no_grad(), mh.capture(model, keep="outputs") as plain:
        model(**batch)
    with torch.no_grad(), mh.ablate(model, ["L0H1"], replace="mean"), mh.capture(model, keep="outputs") as heads:
        model(**batch)
    expected = plain["L0H1"].output()[real].mean(0)
    torch.testing.assert_close(heads["L0H1"].output()[0, 0], expected)


@pytest.mark.parametrize("name", FAMILIES)
def test_uniform_looks_at_everything_visible_alike(name: str) -> None:
    model, batch = build(name, padded=True)
    with torch.no_grad(), mh.capture(model, statistics=None, keep="qk v") as plain:
        model(**batch)
    site = plain.sites[0]
    head = site.name(1)
    with torch.no_grad(), mh.ablate(model, [head], replace="uniform"), mh.capture(model, keep="outputs") as heads:
        model(**batch)
    visible = (plain[head].weights() > 0).float()
    # A weight may be 0 by rounding; the mask itself says what is visible.
    problem = plain.calls(site)[-1].problem
    assert problem is not None
    allowed = problem.mask.allowed(problem.coordinates.grid())
    if allowed is not None:
        visible = allowed[:, min(1, allowed.shape[1] - 1)].float().expand_as(visible)
    else:
        visible = torch.ones_like(visible)
    expected = visible / visible.sum(-1, keepdim=True).clamp_min(1) @ plain[head].value()
    rows = visible.sum(-1) > 0
    torch.testing.assert_close(heads[head].output()[rows], expected[rows])


def test_names_are_checked_before_the_run() -> None:
    model, _ = build("gpt2")
    with pytest.raises(SizeError, match="unknown layer in 'L9H0'"), mh.ablate(model, ["L9H0"]):
        pass
    with pytest.raises(SizeError, match="got 'half'"), mh.ablate(model, ["L0H0"], replace="half"):  # type: ignore[arg-type]
        pass


def test_a_model_that_cannot_be_guessed_says_how_to_go_on() -> None:
    class Two(Small):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x + y)

    model = Two()
    with pytest.raises(mh.MultiheadError, match="input for Two: forward takes x, y") as caught:
        mh.ablate(model, ["L0H0"])
    assert caught.value.hint is not None
    assert "sites=heads.sites" in caught.value.hint
    with mh.capture(model, statistics=None) as heads:
        plain = model(X, Y)
    with mh.ablate(model, ["L0H0"], sites=heads.sites):
        assert not torch.equal(model(X, Y), plain)


def test_a_guess_that_fails_says_so() -> None:
    class Odd(Small):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.view(2, 5, 5, 12)[:, 0])

    with pytest.raises(
        mh.MultiheadError, match=r"Odd does not run on the example made for it, \{'x': \(2, 13, 12\)\}"
    ):
        mh.ablate(Odd(), ["L0H0"])


# ---- gates ------------------------------------------------------------------------------------


def test_gates_of_one_change_nothing_and_have_the_right_gradient() -> None:
    model = Small()
    with mh.gate(model) as gates:
        out = model(X)
        out.square().sum().backward()
    # Products of other memory layouts round differently on some processors.
    torch.testing.assert_close(out, model(X), rtol=1e-13, atol=1e-13)
    assert gates.labels == ["L0", "L1"]
    assert len(gates.parameters()) == 2

    def loss(first: Tensor, second: Tensor) -> Tensor:
        x = X
        for layer, own in zip(model.layers, (first, second), strict=True):
            x = x + layer(x, mask=mask.causal(), head_gate=own)
        return x.square().sum()

    ones = [torch.ones(6, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    expected = torch.cat(torch.autograd.grad(loss(*ones), ones))
    assert list(gates.gradients().values()) == pytest.approx(expected.tolist(), rel=1e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_gate_of_zero_is_silence(name: str) -> None:
    model, batch = build(name)
    with torch.no_grad(), mh.capture(model, statistics=None) as heads:
        model(**batch)
    site = heads.sites[-1]
    values = torch.ones(site.heads)
    values[0] = 0
    with torch.no_grad(), mh.gate(model, {site.label: values}):
        gated = output(model(**batch))
    with torch.no_grad(), mh.ablate(model, [site.name(0)]):
        silent = output(model(**batch))
    torch.testing.assert_close(gated, silent)


def test_gates_can_be_trained() -> None:
    model = Small()
    with mh.gate(model) as gates:
        model(X)
        optimizer = torch.optim.SGD(gates.parameters(), lr=1e-3)
        losses: list[float] = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = model(X).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    assert not torch.equal(gates["L1"], torch.ones(6))
    with pytest.raises(SizeError, match=r"no gate for layer 'L7'.*L0, L1"):
        gates["L7"]
    with (
        pytest.raises(SizeError, match=r"got shape \(5,\) for 'L0'"),
        mh.gate(model, {"L0": torch.ones(5)}),
    ):
        pass


# ---- patches ----------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["output", "q", "k", "v"])
def test_a_patched_head_does_what_it_did(what: Any) -> None:
    """q, k, v and the output of one head from another run; its siblings in the group keep theirs."""
    model = Small()
    with mh.capture(model, keep="qk v outputs") as source:
        model(Y)
    with mh.capture(model, keep="qk v outputs") as plain:
        model(X)
    with mh.patch(model, source, ["L0H4"], what=what), mh.capture(model, keep="outputs") as heads:
        model(X)
    parts = {name: getattr(plain["L0H4"], name)() for name in ("query", "key", "value")}
    name = {"q": "query", "k": "key", "v": "value"}.get(what)
    if name is None:
        expected = source["L0H4"].output()
    else:
        parts[name] = getattr(source["L0H4"], name)()
        expected = nn.functional.scaled_dot_product_attention(
            parts["query"], parts["key"], parts["value"], is_causal=True
        )
    torch.testing.assert_close(heads["L0H4"].output(), expected)
    for sibling in ("L0H3", "L0H5", "L0H0"):  # 3, 4 and 5 share their keys and values
        torch.testing.assert_close(heads[sibling].output(), plain[sibling].output())
    assert not torch.allclose(heads["L0H4"].output(), plain["L0H4"].output())


def test_patching_all_heads_of_all_layers_gives_the_source_attention() -> None:
    model, batch = build("llama")
    other = {"input_ids": batch["input_ids"].flip(0)}
    with torch.no_grad(), mh.capture(model, keep="outputs") as source:
        model(**other)
    names = [h.name for h in source]
    with torch.no_grad(), mh.patch(model, source, names), mh.capture(model, keep="outputs") as heads:
        model(**batch)
    for head in heads:
        assert torch.equal(head.output(), source[head.name].output())


def test_patching_some_rows() -> None:
    model = Small()
    with mh.capture(model, keep="outputs") as source:
        model(Y)
    with mh.capture(model, keep="outputs") as plain:
        model(X)
    with mh.patch(model, source, ["L0H1"], rows=[2, -1]), mh.capture(model, keep="outputs") as heads:
        model(X)
    got = heads["L0H1"].output()
    assert torch.equal(got[:, [2, 6]], source["L0H1"].output()[:, [2, 6]])
    assert torch.equal(got[:, [0, 1, 3, 4, 5]], plain["L0H1"].output()[:, [0, 1, 3, 4, 5]])
    with pytest.raises(SizeError, match="7 rows, got row 7"), mh.patch(model, source, ["L0H1"], rows=[7]):
        model(X)


def test_what_does_not_fit_is_said() -> None:
    model = Small()
    with mh.capture(model, keep="outputs") as source:
        model(Y)
    with pytest.raises(SizeError, match=r"this run, \(3, 1, 5, 4\), got \(3, 1, 7, 4\)"):
        with mh.patch(model, source, ["L0H1"]):
            model(X[:, :5])
    with (
        pytest.raises(mh.MultiheadError, match="the queries and keys of L0 were not kept"),
        mh.patch(model, source, ["L0H1"], what="q"),
    ):
        pass
    with pytest.raises(SizeError, match="got 'w'"), mh.patch(model, source, ["L0H1"], what="w"):  # type: ignore[arg-type]
        pass


# ---- together ---------------------------------------------------------------------------------


def test_blocks_nest() -> None:
    """The inner block sees what the outer one does; an outer capture sees each layer attend once."""
    model = Small()
    with mh.capture(model, keep="outputs") as outside, mh.ablate(model, ["L0H0"], replace="uniform"):
        with mh.gate(model) as gates, mh.capture(model, keep="outputs") as inside:
            model(X).sum().backward()
    assert outside.tokens == inside.tokens == 21
    assert len(gates.parameters()) == 2
    assert not torch.allclose(outside["L0H0"].output(), inside["L0H0"].output())
    assert torch.equal(outside["L0H1"].output(), inside["L0H1"].output())


class TwoBranches(nn.Module):
    """Runs one of its two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.MultiheadAttention(12, 3, batch_first=True) for _ in range(2)])

    def forward(self, x: Tensor, first: bool = True) -> Tensor:
        ran = self.layers if first else self.layers[1:]
        return sum(layer(x, x, x, need_weights=False)[0] for layer in ran)


@pytest.mark.parametrize("change", ["ablate", "patch"])
def test_a_head_that_never_ran_is_an_error(change: str) -> None:
    """Else a result would be taken for that of a change that never happened."""
    model, x = TwoBranches().eval(), torch.randn(2, 5, 12)
    with torch.no_grad(), mh.capture(model, keep="outputs") as heads:
        model(x)
    block = mh.ablate(model, ["L0H1"]) if change == "ablate" else mh.patch(model, heads, ["L0H1"])
    with torch.no_grad(), block:
        model(x)
    block = mh.ablate(model, ["L0H1"]) if change == "ablate" else mh.patch(model, heads, ["L0H1"])
    with pytest.raises(mh.MultiheadError, match=r"L0H1 did not run inside the block"), torch.no_grad(), block:
        model(x, first=False)


class WritesOver(nn.Module):
    """Clears the output of its attention after using it."""

    def forward(self, x: Tensor) -> Tensor:
        q = x.unflatten(2, (3, 4)).transpose(1, 2)
        heads = nn.functional.scaled_dot_product_attention(q, q, q)
        out = heads.sum()
        heads.zero_()
        return out


def test_what_is_kept_is_a_copy() -> None:
    model, x = WritesOver(), torch.randn(2, 5, 12)
    with torch.no_grad(), mh.capture(model, statistics=None, keep="outputs") as heads:
        total = model(x)
    kept = sum(head.output().sum() for head in heads)
    torch.testing.assert_close(kept, total)
