"""Statements about learning: gradients (8), the update (9), curvature at a minimum (12), how fast they fall (13).

All are computed on a few heads of the layer and its own inputs (`small.py`). Where something is trained, a layer
drawn at random learns to give what the real one gives (teacher and student), so that a minimum is known: the
teacher's own weights, where the loss is 0.

>>> import torch, multihead as mh
>>> from multihead.statements.sampling import layer_samples
>>> [layer] = layer_samples(mh.MultiHeadAttention(12, 3), torch.randn(3, 7, 12))
>>> update_rule(layer).verdict
'holds'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from multihead.statements.claim import Claim, Finding, short
from multihead.statements.layer_sample import LayerSample
from multihead.statements.small import Small, Weights, small

EXACT = 1e-8
"""Relative difference of two ways to compute one number in fp64."""
NEAR = 1e-5
"""The same for central differences."""
FLAT = 1e-3
"""Curvature above −FLAT · (the largest one) counts as not negative: Lanczos resolves no more in 200 steps."""
STEPS, RUNS = 96, 3
"""Steps and repetitions of the training of statement 13."""
_STUDENT = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}
"""Student's t at 97.5 %, by number of runs."""

Loss = Callable[[Weights], Tensor]
Vector = NDArray[np.float64]
Times = Callable[[Vector], Vector]


# ---- 8 ------------------------------------------------------------------------------------------


def query_gradient(layer: Small, weights: Weights, d_out: Float[Tensor, "batch query out"]) -> Tensor:
    """∂L/∂W_Qⁱ by the chain rule: dP = dZ Vᵀ, dS = P ∘ (dP − rowsum(dP ∘ P)), dQ = dS K · scale, dW_Q = dQᵀ X."""
    q, k, v = layer.projected(weights, layer.x, layer.y)
    p = layer.maps(q, k)
    d_z = torch.einsum("bto,hov->bhtv", d_out, weights[3])
    d_p = d_z @ v.mT
    d_s = p * (d_p - (d_p * p).sum(-1, keepdim=True))
    d_q = d_s @ k * layer.scale
    return torch.einsum("bhtd,btw->hdw", d_q, layer.x)


def gradient_flow(subject: LayerSample) -> Finding:
    layer = small(subject, heads=8)
    loss: Loss = lambda w: layer.run(w).square().mean() / 2
    weights = _ready(layer.weights)
    out = layer.run(weights)
    auto, *others = torch.autograd.grad(out.square().mean() / 2, weights)
    # Where all keys are alike it is 0 but for rounding, which is measured by the gradients of the other weights.
    size = max(float(auto.norm()), 1e-6 * math.sqrt(sum(float(g.square().sum()) for g in others)))
    with torch.no_grad():
        closed = query_gradient(layer, weights, out / out.numel())
        off = _relative(float((closed - auto).norm()), size)
        slope_off = max(_slope_error(loss, weights, auto, size, head, subject.seed) for head in range(layer.heads))
    norms = auto.flatten(1).norm(dim=1)
    later = _after_steps(layer, subject.seed)
    fine = off < EXACT and slope_off < NEAR
    dead = int((norms < 1e-9 * max(size, 1e-300)).sum())
    why = "The product of the Jacobians through head i is what autograd gives, and the slope that two runs show."
    if dead:
        why += (
            f" {dead} of {layer.heads} heads get no gradient: where they look makes no difference (softmax one-hot "
        )
        why += "or constant, values alike, or W_O 0)."
    if not fine:
        why = "The chain rule, autograd and differences do not agree: the layer is not smooth here."
    return Finding(
        "holds" if fine else "fails",
        f"off by {short(off, 2)}",
        f"slopes by {short(slope_off, 2)}",
        why,
        "the loss is differentiable; what lies between W_Q and the kernel (a rotation R) adds its own factor Rᵀ",
        {
            "relative_error": off,
            "difference_error": slope_off,
            "norms": norms.tolist(),
            "norms_before_training": later[0].tolist(),
            "norms_after_training": later[1].tolist(),
        },
    )


def _slope_error(loss: Loss, weights: Weights, gradient: Tensor, size: float, head: int, seed: int) -> float:
    """|⟨∇, u⟩ − (L(W + εu) − L(W − εu)) / 2ε| / ‖∇‖ along a random unit direction of one head's W_Q."""
    generator = torch.Generator().manual_seed(seed + head)
    step = torch.zeros_like(gradient)
    step[head] = torch.randn(gradient[head].shape, dtype=gradient.dtype, generator=generator)
    # Half random, half along the gradient: a random direction alone is nearly orthogonal to it.
    step[head] /= step[head].norm()
    if float(gradient[head].norm()) > 0:
        step[head] += gradient[head] / gradient[head].norm()
    epsilon = 1e-5 * max(float(weights[0][head].norm()), 1e-3)
    ahead, behind = (float(loss((weights[0] + s * step, *weights[1:]))) for s in (epsilon, -epsilon))
    seen, said = (ahead - behind) / (2 * epsilon), float((gradient * step).sum())
    return _relative(abs(seen - said), max(size, 1e-9 * abs(ahead) / epsilon))


def _after_steps(layer: Small, seed: int) -> tuple[Tensor, Tensor]:
    """‖∂L/∂W_Qⁱ‖ per head of a student at the start, and after twenty steps towards the teacher."""
    loss, weights = _imitation(layer), _ready(layer.drawn(torch.Generator().manual_seed(seed)))
    optimiser = torch.optim.Adam(weights, lr=0.02)
    norms: list[Tensor] = []
    for step in range(21):
        gradient = torch.autograd.grad(loss(weights), weights)
        if step in (0, 20):
            norms.append(gradient[0].flatten(1).norm(dim=1))
        for w, g in zip(weights, gradient, strict=True):
            w.grad = g
        optimiser.step()
    return norms[0], norms[1]


# ---- 9 ------------------------------------------------------------------------------------------


def update_rule(subject: LayerSample, rate: float = 0.1) -> Finding:
    layer = small(subject, heads=8)
    loss = _imitation(layer)
    before = layer.drawn(torch.Generator().manual_seed(subject.seed))

    def stepped(make: Callable[[list[Tensor]], torch.optim.Optimizer]) -> tuple[list[Tensor], list[Tensor]]:
        weights = _ready(before)
        gradient = torch.autograd.grad(loss(weights), weights)
        for w, g in zip(weights, gradient, strict=True):
            w.grad = g.clone()
        make(list(weights)).step()
        return [w.detach() for w in weights], list(gradient)

    after, gradient = stepped(lambda w: torch.optim.SGD(w, lr=rate))
    exact = all(torch.equal(a, b.add(g, alpha=-rate)) for a, b, g in zip(after, before, gradient, strict=True))
    moved = math.sqrt(sum(float((a - b).square().sum()) for a, b in zip(after, before, strict=True)))
    size = math.sqrt(sum(float(g.square().sum()) for g in gradient))
    off = max(
        float((a - (b - rate * g)).abs().max()) / max(float(a.abs().max()), 1e-300)
        for a, b, g in zip(after, before, gradient, strict=True)
    )
    adam, _ = stepped(lambda w: torch.optim.Adam(w, lr=rate))
    change = torch.cat([(a - b).flatten() for a, b in zip(adam, before, strict=True)])
    downhill = -torch.cat([g.flatten() for g in gradient])
    cosine = float(torch.cosine_similarity(change, downhill, dim=0))
    fine = exact or off < 1e-15
    why = "W after one step of torch.optim.SGD is W − η ∂L/∂W" + (
        ", bit for bit." if exact else " but for rounding."
    )
    return Finding(
        "holds" if fine else "fails",
        f"‖ΔW‖ {short(moved)}",
        f"η‖∂L/∂W‖ {short(rate * size)}",
        why + f" Adam's first step has a cosine of {cosine:.2f} with it.",
        "plain SGD, without momentum, weight decay or a step size per weight",
        {"moved": moved, "rate_times_gradient": rate * size, "largest_difference": off, "adam_cosine": cosine},
    )


# ---- 12 -----------------------------------------------------------------------------------------


def curvature(loss: Loss, weights: Weights, seed: int = 0, *, lowest: bool = True) -> tuple[float, float]:
    """Smallest and largest eigenvalue of ∂²L/∂W², by Lanczos on Hessian–vector products (Pearlmutter 1994).

    The smallest is found as the top of λ_max − H: a tolerance relative to the largest, which zeros cannot stall.
    """
    flat = torch.cat([w.detach().flatten() for w in weights]).requires_grad_()
    sizes = [w.numel() for w in weights]

    def shaped(x: Tensor) -> Weights:
        parts = [p.view(w.shape) for p, w in zip(x.split(sizes), weights, strict=True)]
        return parts[0], parts[1], parts[2], parts[3]

    slope = torch.autograd.grad(loss(shaped(flat)), flat, create_graph=True)[0]

    def times(v: Vector) -> Vector:
        given = torch.from_numpy(np.ascontiguousarray(v, dtype=np.float64).reshape(-1))
        return torch.autograd.grad(slope, flat, given, retain_graph=True)[0].numpy()

    start = np.random.default_rng(seed).standard_normal(flat.numel())
    largest = _top(times, start, (1e-2, 1e-1))
    if not lowest:
        return math.nan, largest
    flipped: Times = lambda v: largest * v.reshape(-1) - times(v)
    return largest - _top(flipped, start, (1e-3, 1e-2, 1e-1)), largest


def _top(times: Times, start: Vector, tolerances: Sequence[float]) -> float:
    """The largest eigenvalue of a symmetric map, to the first of the tolerances that is reached."""
    from scipy.sparse import linalg  # pyright: ignore[reportMissingTypeStubs]

    if not times(start).any():
        return 0.0  # a random vector is mapped to 0 by no other map than 0, which ARPACK does not take
    lanczos, n = cast(Any, linalg), len(start)
    operator = lanczos.LinearOperator((n, n), matvec=times, dtype=np.float64)
    for tolerance in tolerances:
        try:
            found = lanczos.eigsh(
                operator, k=1, which="LA", tol=tolerance, v0=start, ncv=min(32, n), maxiter=8,
                return_eigenvectors=False,
            )  # fmt: skip
            return float(found[0])
        except linalg.ArpackError:  # mostly that it does not converge
            continue
    return math.nan


def hessian(subject: LayerSample) -> Finding:
    layer = small(subject)
    loss = _imitation(layer)
    start = layer.drawn(torch.Generator().manual_seed(subject.seed))
    trained = _minimised(loss, start)
    lowest, largest = zip(*(curvature(loss, w, subject.seed) for w in (start, trained, layer.weights)), strict=True)
    shares = [a / b if b > 0 else 0.0 for a, b in zip(lowest, largest, strict=True)]
    if any(math.isnan(share) for share in shares):
        return Finding("not enough data", "λ_min –", "0", "Lanczos found no eigenvalue in time.", "L is smooth")
    verdict = "fails" if shares[2] < -FLAT else "holds only if" if shares[0] < -FLAT else "holds"
    why = {
        "fails": "Some direction bends down at the teacher's weights, where the loss is 0: it is not smooth here.",
        "holds": "No direction bends down, at the minimum or at the start.",
        "holds only if": "At the teacher's weights, a minimum, no direction bends down; at the start some do.",
    }[verdict]
    with torch.no_grad():
        losses = [float(loss(w)) for w in (start, trained)]
    return Finding(
        verdict,
        f"λ_min {short(shares[2], 2)} λ_max",
        f"{short(shares[0], 2)} λ_max at start",
        why + f" After training (loss {losses[0]:.2g} → {losses[1]:.2g}) λ_min is {short(shares[1], 2)} λ_max.",
        "W is a minimum and L is smooth there; zeros are usual: W_Q → W_Q M, W_K → W_K M⁻ᵀ changes nothing",
        {
            "shares": shares,
            "lowest": list(lowest),
            "largest": list(largest),
            "loss_start": losses[0],
            "loss_trained": losses[1],
        },
    )


def _minimised(loss: Loss, start: Weights) -> Weights:
    weights = _ready(start)
    optimiser = torch.optim.LBFGS(weights, max_iter=60, history_size=20, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss(weights)
        value.backward()
        return value

    optimiser.step(closure)  # pyright: ignore[reportArgumentType]  # torch's stub wants a float, its own examples give this
    return weights[0].detach(), weights[1].detach(), weights[2].detach(), weights[3].detach()


# ---- 13 -----------------------------------------------------------------------------------------


def falling(norms: Float[Tensor, "run step"]) -> tuple[float, float]:
    """Slope of log ‖∇L‖² over log t after the first steps, over runs: mean and half of its 95 % interval."""
    steps = torch.arange(1, norms.shape[1] + 1, dtype=torch.float64)
    late = steps >= 8
    x = steps[late].log().numpy()
    slopes = [float(np.polyfit(x, run[late].clamp(min=1e-300).log().numpy(), 1)[0]) for run in norms]
    spread = float(np.std(slopes, ddof=1)) / math.sqrt(len(slopes)) if len(slopes) > 1 else 0.0
    return float(np.mean(slopes)), spread * _STUDENT.get(len(slopes), 1.96)


def convergence(subject: LayerSample) -> Finding:
    """SGD with steps 1 / (λ √t) on one sequence at a time, several runs at once; ‖∇L‖² is of the whole loss."""
    layer = small(subject)
    rows = layer.x.shape[0]
    generators = [torch.Generator().manual_seed(subject.seed + run) for run in range(RUNS)]
    drawn = [layer.drawn(generator) for generator in generators]
    rate = 1 / max(curvature(_imitation(layer), drawn[0], subject.seed, lowest=False)[1], 1e-12)
    weights = cast(Weights, tuple(torch.stack(parts) for parts in zip(*drawn, strict=True)))
    gradients = torch.func.vmap(torch.func.grad(_weighted(layer)))
    whole = torch.full((RUNS, rows), 1 / rows, dtype=torch.float64)
    runs = torch.zeros(RUNS, STEPS, dtype=torch.float64)
    for t in range(STEPS):
        chosen = torch.cat([torch.randint(rows, (1,), generator=g) for g in generators])
        shares = torch.cat((whole, torch.nn.functional.one_hot(chosen, rows).double()))
        both = gradients(cast(Weights, tuple(torch.cat((w, w)) for w in weights)), shares)
        runs[:, t] = sum(g[:RUNS].flatten(1).square().sum(1) for g in both)
        moved = (w - rate / math.sqrt(t + 1) * g[RUNS:] for w, g in zip(weights, both, strict=True))
        weights = cast(Weights, tuple(moved))
    steps = torch.arange(1, STEPS + 1, dtype=torch.float64)
    average = runs.cumsum(1) / steps
    (slope, width), (mean_slope, mean_width) = falling(runs), falling(average)
    least, least_width = falling(runs.cummin(1).values)
    constants = runs.mean(0) * steps.sqrt()
    if not bool(runs.isfinite().all()):
        verdict, why = "fails", "The run diverged: the loss is not smooth at this step size."
    elif slope + width <= -0.5:
        verdict, why = "holds", "The squared gradient itself falls at least as fast as 1/√t."
    elif mean_slope + mean_width <= -0.5 or least + least_width <= -0.5:
        verdict, why = (
            "holds only if",
            "The average or the smallest so far falls as 1/√t, which is what the theorem bounds.",
        )
    elif min(slope - width, mean_slope - mean_width, least - least_width) <= -0.5:
        verdict, why = "not enough data", f"{RUNS} runs differ too much to tell whether it is as fast as 1/√t."
    else:
        verdict, why = (
            "fails",
            "Neither the squared gradient, nor its average, nor its smallest falls as fast as 1/√t here.",
        )
    return Finding(
        verdict,
        f"t^{slope:.2f} ± {width:.2f}",
        "t^-0.5",
        f"{why} Average: t^{mean_slope:.2f}, smallest: t^{least:.2f}.",
        "SGD on a smooth loss, steps ∝ 1/√t, for the average or the smallest over t (Ghadimi & Lan 2013)",
        {
            "exponent": slope,
            "interval": width,
            "average_exponent": mean_slope,
            "smallest_exponent": least,
            "constant": float(constants.max()),
            "squared_norms": runs.mean(0).tolist(),
        },
    )


# ---- shared -------------------------------------------------------------------------------------


def _imitation(layer: Small) -> Loss:
    """‖student − teacher‖² / ‖teacher‖² / 2: the teacher is the layer with its own weights."""
    weighted, rows = _weighted(layer), layer.x.shape[0]
    return lambda w: weighted(w, torch.full((rows,), 1 / rows, dtype=torch.float64))


def _weighted(layer: Small) -> Callable[[Weights, Tensor], Tensor]:
    """The same with a share of its own for every sequence."""
    with torch.no_grad():
        target = layer.run(layer.weights)
        size = float(target.square().mean()) or 1.0
    return lambda w, shares: ((layer.run(w) - target).square().mean((1, 2)) * shares).sum() / (2 * size)


def _ready(weights: Weights) -> Weights:
    q, k, v, o = (w.detach().clone().requires_grad_() for w in weights)
    return q, k, v, o


def _relative(off: float, size: float) -> float:
    return off / size if size > 0 else (0.0 if off == 0 else math.inf)


CLAIMS = (
    Claim(
        "8", "the chain rule gives every head's gradient", "∂L/∂W_Qⁱ = Σ ∂L/∂head_i · ∂head_i/∂W_Qⁱ", gradient_flow
    ),
    Claim("9", "one SGD step is −η ∂L/∂W", "ΔW = −η ∂L/∂W", update_rule),
    Claim("12", "the Hessian is ⪰ 0 at a minimum", "∂²L/∂W² ⪰ 0", hessian),
    Claim("13", "gradients shrink like 1/√t", "E‖∇L(W_t)‖² ≤ C/√t", convergence),
)
