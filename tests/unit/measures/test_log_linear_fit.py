"""The log-linear fits agree with brute-force maximum likelihood on explicit maps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from multihead.measures.kinds.log_linear_fit import LogLinearFit, Marginals, VisibleKeys, fit
from multihead.measures.kinds.piece_shares import offset_bins

PIECES, N = 2, 7


def explicit_map(causal: bool) -> tuple[Tensor, Tensor, VisibleKeys]:
    """Weights of two heads, (head, piece, query, key), the weight of each row, and what rows see."""
    draw = torch.Generator().manual_seed(4)
    visible = torch.ones(N, N, dtype=torch.float64)
    visible = visible.tril() if causal else visible
    keys = torch.ones(PIECES, N, dtype=torch.float64)
    keys[:, 0] = 0
    keys[1, 3] = 0
    bins, count = offset_bins(N, N)
    seen = visible * keys[:, None]
    p = torch.randn(2, PIECES, N, N, generator=draw, dtype=torch.float64).exp() * seen
    p = p / p.sum(-1, keepdim=True).clamp(min=1e-30)
    weight = torch.rand(2, PIECES, N, generator=draw, dtype=torch.float64) * (seen.sum(-1) > 0)
    return p, weight, VisibleKeys(visible, keys, bins, count)


def marginals(p: Tensor, weight: Tensor, layout: VisibleKeys) -> Marginals:
    x = p * weight[..., None]
    assert layout.bins is not None
    one_hot = torch.nn.functional.one_hot(layout.bins, layout.bin_count).double()
    return Marginals(weight, x.sum(-2), torch.einsum("hpij,ijb->hpb", x, one_hot))


def gain(p: Tensor, weight: Tensor, layout: VisibleKeys, t: Tensor, a: Tensor) -> Tensor:
    """Σ w p log(q / uniform) of the two heads, from the formula; t and a are logarithms."""
    assert layout.bins is not None
    seen = (layout.visible * layout.keys[:, None]).bool()
    scores = (t[:, None, layout.bins] + a[:, :, None]).masked_fill(~seen, -torch.inf)
    some = seen.any(-1)
    log_q = scores[:, some].log_softmax(-1)
    even = torch.zeros_like(scores).masked_fill(~seen, -torch.inf)[:, some].log_softmax(-1)
    parts = (weight[..., None] * p)[:, some] * (log_q - even).masked_fill(~seen[some], 0.0)
    return parts.sum((1, 2))


def best(p: Tensor, weight: Tensor, layout: VisibleKeys, alpha: float, position: bool, word: bool) -> Tensor:
    """The gain of the best intensities, found by LBFGS."""
    t = torch.zeros(2, layout.bin_count, dtype=torch.float64, requires_grad=position)
    a = torch.zeros(2, PIECES, N, dtype=torch.float64, requires_grad=word)
    active = [x for x in (t, a) if x.requires_grad]
    search = torch.optim.LBFGS(
        active, max_iter=1000, tolerance_grad=1e-10, tolerance_change=1e-15, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        search.zero_grad()
        prior = sum(((x - x.exp()).sum() for x in active), torch.zeros((), dtype=torch.float64))
        value = -gain(p, weight, layout, t, a).sum() - alpha * prior
        value.backward()
        return value

    search.step(loss)
    return gain(p, weight, layout, t.detach(), a.detach())


@pytest.mark.fast(4)
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("alpha", [1e-4, 0.3])
@pytest.mark.parametrize(("position", "word"), [(True, False), (False, True), (True, True)])
def test_a_fit_is_the_maximum_likelihood_fit(causal: bool, alpha: float, position: bool, word: bool) -> None:
    p, weight, layout = explicit_map(causal)
    rows = marginals(p, weight, layout)
    strength = torch.full((2,), alpha, dtype=torch.float64)
    model = fit(rows, layout, strength, position=position, word=word, sweeps=1000)
    explained = model.explained(rows, layout).sum(1)
    expected = best(p, weight, layout, alpha, position, word)
    torch.testing.assert_close(explained, expected, rtol=0, atol=1e-6)


def test_what_a_fit_explains_is_the_formula_of_the_map() -> None:
    p, weight, layout = explicit_map(True)
    draw = torch.Generator().manual_seed(6)
    bins = torch.rand(2, layout.bin_count, generator=draw, dtype=torch.float64)
    keys = torch.rand(2, PIECES, N, generator=draw, dtype=torch.float64)
    explained = LogLinearFit(bins, keys).explained(marginals(p, weight, layout), layout).sum(1)
    torch.testing.assert_close(explained, gain(p, weight, layout, bins.log(), keys.log()))


def test_a_fit_meets_the_marginals_of_its_rows() -> None:
    p, weight, layout = explicit_map(True)
    rows = marginals(p, weight, layout)
    model = fit(rows, layout, torch.zeros(2, dtype=torch.float64), position=True, word=True, sweeps=2000)
    q = model.kernel(layout)[:, None] * (model.keys * layout.keys)[:, :, None]
    q = q / q.sum(-1, keepdim=True).clamp(min=1e-30)
    fitted = marginals(q, weight, layout)
    torch.testing.assert_close(fitted.keys, rows.keys, rtol=0, atol=1e-5)
    torch.testing.assert_close(fitted.bins.sum(1), rows.bins.sum(1), rtol=0, atol=1e-5)


def test_a_choice_that_no_other_row_repeats_explains_nothing_of_the_other_half() -> None:
    """By maximum likelihood on its own rows, the popularity of keys explains a seventh of random choices."""
    draw = torch.Generator().manual_seed(8)
    n, pieces = 64, 16
    layout = VisibleKeys(torch.ones(n, n).double(), torch.ones(pieces, n).double(), None)
    choice = torch.randint(0, n, (pieces, n), generator=draw)
    p = torch.nn.functional.one_hot(choice, n).double()

    def half(start: int) -> Marginals:
        x = p[:, start::2]
        weight = torch.zeros(1, pieces, n, dtype=torch.float64)
        weight[..., start::2] = 1
        return Marginals(weight, x.sum(1)[None], x.new_zeros(1, pieces, 1))

    whole = Marginals(torch.ones(1, pieces, n).double(), p.sum(1)[None], p.new_zeros(1, pieces, 1))
    total = pieces * n * torch.tensor(float(n)).log()
    none, some = torch.zeros(1).double(), torch.ones(1).double()
    own = fit(whole, layout, none, position=False, word=True).explained(whole, layout).sum() / total
    other = fit(half(0), layout, some, position=False, word=True).explained(half(1), layout).sum() / total
    assert own > 0.12
    assert other < 0.01
