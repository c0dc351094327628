"""Tokens of one sequence spread over ranks by `multihead.parallel.context_parallel`."""

from __future__ import annotations

import copy
import threading
import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import multihead as mh
from multihead import cache, mask, position
from multihead.layer import LatentAttention, Problem, QKNorm, Sinks
from multihead.layer._coordinates import Coordinates
from multihead.layer._head_shard import all_reduce
from multihead.layer._mask_algebra import And, Mask
from multihead.layer._problem import ScoreConfig
from multihead.parallel import context_parallel, ring
from multihead.parallel.context import ContextParallel
from multihead.parallel.ring import _RingTask

from .common import layer, refused, tokens

WIDTH, TOKENS = 20, 29
IDS = torch.arange(TOKENS).ge(13).long() - torch.arange(TOKENS).ge(26).long() * 2


class OnDevice(And):
    """A mask whose values are not on the host."""

    structured = False


MASKS: dict[str, Mask | None] = {
    "nothing": None,
    "causal": mask.causal(),
    "window": mask.causal() & mask.window(5),
    "both ways": mask.window(4, 3, first=2),
    "lengths": mask.causal() & mask.lengths([TOKENS, 17]),
    "ragged": mask.causal() & mask.ragged([TOKENS, 17]),
    "empty rows": mask.padding(torch.arange(TOKENS).ge(11).repeat(2, 1)) & mask.causal(),
    "documents": mask.documents(IDS) & mask.causal(),
    "prefix": mask.prefix([5, 11]),
    "tensor": mask.tensor(torch.rand(2, 4, TOKENS, TOKENS, generator=torch.Generator().manual_seed(5)) < 0.3),
    "unknown on the host": OnDevice([mask.causal(), mask.window(7)]),
    "rule": mask.where(lambda b, h, q, k: (q * 3 + k + h) % 4 != 0) | mask.window(1),
}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "grouped, rotary": {"num_kv_heads": 2, "position": position.Rotary(), "head_dim": 6, "value_dim": 3},
    "dynamic NTK": {"position": position.Rotary(scaling=position.DynamicNTK(2.0, 8)), "head_dim": 6},
    "uneven groups": {"kv_of_head": [1, 0, 1, 1], "sinks": Sinks(0.5), "softcap": 2.0},
    "ALiBi": {"position": position.ALiBi(4, learned=True), "num_kv_heads": 1},
    "relative bias": {"position": position.RelativeBias(4, buckets=8, max_distance=9), "qk_norm": QKNorm()},
}


def both_ways(mesh: DeviceMesh, options: dict[str, Any], rule: Mask | None, name: str, tolerance: float) -> None:
    """Output and gradients of input and parameters, against one process."""
    single = layer(WIDTH, 4, **copy.deepcopy(options))
    spread = copy.deepcopy(single)
    x = tokens(WIDTH, 3, length=TOKENS)
    weight = torch.randn(x.shape, generator=torch.Generator().manual_seed(8))
    block = context_parallel(mesh, TOKENS)
    mine, y = block.split(x).requires_grad_(), x.clone().requires_grad_()
    gate = torch.tensor([1.0, 0.5, -1.0, 2.0])
    with block:
        out = spread(mine, mask=rule, head_gate=gate)
    want = single(y, mask=rule, head_gate=gate)

    def close(a: Tensor | None, b: Tensor | None, what: str) -> None:
        torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance, msg=lambda t: f"{name}, {what}: {t}")

    close(out, block.split(want), "output")
    close(block.join(out), want, "joined")
    (out * block.split(weight)).sum().backward()
    (want * weight).sum().backward()
    block.sum_gradients(spread.parameters())
    close(mine.grad, block.split(y.grad), "input")
    for (what, p), q in zip(spread.named_parameters(), single.parameters(), strict=True):
        close(p.grad, q.grad, what)


def ring_forward_and_backward(mesh: DeviceMesh) -> None:
    for name, rule in MASKS.items():
        both_ways(mesh, VARIANTS["grouped, rotary"], rule, name, 1e-10)
    for name, options in VARIANTS.items():
        for rule in ("lengths", "empty rows", "rule"):
            both_ways(mesh, options, MASKS[rule], f"{name}, {rule}", 1e-10)


def ring_in_single_precision(mesh: DeviceMesh) -> None:
    torch.set_default_dtype(torch.float32)
    try:
        both_ways(
            mesh, {"num_kv_heads": 2, "position": position.Rotary(), "head_dim": 6}, MASKS["causal"], "fp32", 1e-4
        )
        x = tokens(WIDTH, 3, length=TOKENS).bfloat16()
        attn, block = layer(WIDTH, 4).bfloat16(), context_parallel(mesh, TOKENS)
        with block, torch.no_grad():
            out = attn(block.split(x), mask=mask.causal())
        torch.testing.assert_close(out, block.split(attn(x, mask=mask.causal())), atol=0.05, rtol=0.05)
    finally:
        torch.set_default_dtype(torch.float64)


def ring_of_layers(mesh: DeviceMesh) -> None:
    """A small model, checkpointed or not, latent attention included; backward inside the block."""
    torch.manual_seed(3)
    parts = [
        layer(WIDTH, 4, num_kv_heads=2, position=position.Rotary(), head_dim=6),
        LatentAttention(WIDTH, 3, latent_dim=10, nope_dim=6, rope_dim=4, value_dim=5),
    ]
    single = nn.ModuleList(parts)
    spread = copy.deepcopy(single)

    def run(model: nn.ModuleList, x: Tensor, again: bool) -> Tensor:
        for part in model:
            step = lambda x, part=part: x + part(x, mask=mask.causal())
            x = checkpoint(step, x, use_reentrant=False) if again else step(x)
        return x

    x = tokens(WIDTH, 4, length=TOKENS)
    want = run(single, x, False)
    want.square().sum().backward()
    for again in (False, True):
        spread.zero_grad()
        block = context_parallel(mesh, TOKENS)
        with block:
            out = run(spread, block.split(x), again)
            out.square().sum().backward()
        block.sum_gradients(spread.parameters())
        torch.testing.assert_close(out, block.split(want))
        for (name, p), q in zip(spread.named_parameters(), single.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, msg=lambda t, name=name: f"{name}: {t}")


def layers_do_not_run_again_outside(mesh: DeviceMesh) -> None:
    """A checkpointed layer whose backward comes after the block would see this rank's keys alone."""
    attn, x = layer(WIDTH, 4), tokens(WIDTH, 2, length=TOKENS)
    for reentrant in (True, False):
        block = context_parallel(mesh, TOKENS)
        with block:
            mine = block.split(x).requires_grad_()
            out = checkpoint(lambda x: attn(x, mask=mask.causal()), mine, use_reentrant=reentrant)
        with refused(f"({TOKENS} tokens) is recomputed outside the block"):
            out.square().sum().backward()
        alone = x.clone().requires_grad_()  # without a block layers may be checkpointed as ever
        checkpoint(lambda x: attn(x, mask=mask.causal()), alone, use_reentrant=reentrant).sum().backward()
        assert alone.grad is not None


def layers_on_other_threads_are_not_part(mesh: DeviceMesh) -> None:
    """A thread that serves other requests attends to its own tokens alone, with its own layers or with these."""
    mine, theirs, x = layer(WIDTH, 4), layer(WIDTH, 4, num_kv_heads=2), tokens(WIDTH, 3, length=TOKENS)
    block, results = context_parallel(mesh, TOKENS), dict[str, Tensor]()

    def other() -> None:
        with torch.no_grad():
            results["own"] = theirs(x[:, : block.here()], mask=mask.causal())
            results["same"] = mine(x[:, : block.here()], mask=mask.causal())
            results["cache"] = mine(x[:, :3], mask=mask.causal(), cache=cache.Growing())

    with block:
        out = checkpoint(lambda x: mine(x, mask=mask.causal()), block.split(x), use_reentrant=False)
        ran = block.ran
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert block.ran == ran, "only the layer of this thread ran in the block"
        out.sum().backward()  # the checkpointed layer is still part of it
    want = mine(x, mask=mask.causal())
    torch.testing.assert_close(block.join(out), want)
    torch.testing.assert_close(results["own"], theirs(x[:, : block.here()], mask=mask.causal()))
    torch.testing.assert_close(results["same"], mine(x[:, : block.here()], mask=mask.causal()))
    torch.testing.assert_close(results["cache"], mine(x[:, :3], mask=mask.causal()))


def hidden_nan_stays_hidden(mesh: DeviceMesh) -> None:
    attn, block = layer(WIDTH, 4, num_kv_heads=2, head_dim=6), context_parallel(mesh, TOKENS)
    x = tokens(WIDTH, 3, length=TOKENS)
    x[1, 19:] = torch.nan
    rule = mask.lengths([TOKENS, 19])
    mine, y = block.split(x).requires_grad_(), x.clone().requires_grad_()
    with block:
        out = attn(mine, mask=rule)
    want = attn(y, mask=rule)
    torch.testing.assert_close(out, block.split(want), equal_nan=True)
    assert not out[:, block.places() < 19].isnan().any()
    for rule in (mask.causal(), mask.window(4, 3)):  # in the second one, sound queries see keys that are not
        with block:
            seen = attn(mine, mask=rule)
        torch.testing.assert_close(seen, block.split(attn(y, mask=rule)), equal_nan=True)


def bytes_over_the_wire(mesh: DeviceMesh) -> None:
    """Counted as they are sent, against the closed form."""
    attn = layer(WIDTH, 4, num_kv_heads=2, head_dim=6, value_dim=3)
    for total in (TOKENS, 8 * mesh.size()):
        block = context_parallel(mesh, total)
        with block:
            out = attn(tokens(WIDTH, 5, length=total)[:, block.places()].requires_grad_(), mask=mask.causal())
        rank, ranks, entries = mesh.get_local_rank(), mesh.size(), 2 * 2 * (6 + 3)  # batch, kv heads, dims
        keys = sum(block.here((rank - step) % ranks) for step in range(ranks - 1))
        gradients = sum(block.here((rank - step) % ranks) for step in range(1, ranks))
        forward = entries * keys * 8
        assert block.sent == forward, (block.sent, forward)
        out.sum().backward()
        backward = entries * (keys + gradients) * 8
        assert block.sent - forward == backward, (block.sent, forward, backward)
    assert forward == (ranks - 1) * 2 * 2 * (6 + 3) * 8 * 8  # batch, kv heads, dims, tokens a rank, bytes
    assert backward == 2 * forward


def causal_work_is_balanced(mesh: DeviceMesh) -> None:
    """Cells that each rank computes: the same on all, and half of what no mask would need."""
    ranks, total = mesh.size(), 1024 * mesh.size()
    attn, block = layer(WIDTH, 4), context_parallel(mesh, total)

    def cells(rule: Mask) -> Tensor:
        with torch.device("meta"):
            q = torch.empty(1, 4, block.here(), 5)
        coordinates = Coordinates(1, 4, total, total, torch.device("cpu"), shard=block)
        task = _RingTask(Problem(q, q, q, attn.groups, rule, coordinates, ScoreConfig(1.0)), block)
        mine = sum(t.shape[1] * t.shape[2] for rank in range(ranks) for t, _, _ in task.tiles(rank))
        at = torch.zeros(ranks).index_fill(0, torch.tensor([mesh.get_local_rank()]), float(mine))
        return all_reduce(at, mesh)

    causal, everything = cells(mask.causal()), cells(mask.everything())
    assert bool((everything == total * total / ranks).all()), everything
    assert causal.max() / causal.min() < 1.01, causal
    assert causal.sum() < 0.6 * total * total, causal / total**2


class Peak(TorchDispatchMode):
    """The most bytes that tensors made in the block held at once."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, int] = {}
        self.now = self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, Tensor):
                store = x.untyped_storage()
                if store._cdata not in self.held:
                    self.held[store._cdata] = store.nbytes()
                    self.now += store.nbytes()
                    self.most = max(self.most, self.now)
                    weakref.finalize(store, self._gone, store._cdata)
        return out

    def _gone(self, key: int) -> None:
        self.now -= self.held.pop(key, 0)


class Alone:
    """A mesh of one rank."""

    ndim, device_type = 1, "cpu"

    def size(self) -> int:
        return 1

    def get_local_rank(self) -> int:
        return 0


def memory_is_shared_out(mesh: DeviceMesh) -> None:
    """What is saved for the backward pass is 1/ranks to the token; so is the peak, but for what travels."""
    attn, total = layer(WIDTH, 4, num_kv_heads=2, head_dim=6), 60 * mesh.size()
    x = tokens(WIDTH, 5, rows=1, length=total)

    def saved_and_peak(block: Any) -> tuple[int, int]:
        saved = 0

        def pack(t: Tensor) -> Tensor:
            nonlocal saved
            saved += 0 if isinstance(t, nn.Parameter) or isinstance(t._base, nn.Parameter) else t.nbytes
            return t

        mine = x[:, block.places()].requires_grad_()
        with Peak() as peak:
            with block, torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                out = attn(mine, mask=mask.causal())
            out.backward(out.detach())
        return saved, peak.most

    before, ring.BLOCK = ring.BLOCK, 1 << 8  # so that scores are next to nothing beside the tokens
    try:
        here = saved_and_peak(context_parallel(mesh, total))
        alone = saved_and_peak(ContextParallel(Alone(), total))
        few = saved_and_peak(ContextParallel(Alone(), 60))  # one process with as many tokens as a rank has
    finally:
        ring.BLOCK = before
    assert here[0] * mesh.size() == alone[0], (here, alone)
    # What travels: keys and values at hand and coming; of gradients two sums, what was added, what will be.
    kv = 2 * 60 * (6 + 6) * 8  # kv heads, tokens, dims, bytes
    assert here[1] - few[1] <= 6 * kv, (here, few, kv)


def ring_refusals(mesh: DeviceMesh) -> None:
    attn, ranks = layer(WIDTH, 4, dropout=0.1), mesh.size()
    x = tokens(WIDTH, 3, length=TOKENS)
    block = context_parallel(mesh, TOKENS)
    mine = block.split(x)
    with refused(f"{ranks} ranks", f"{2 * ranks} tokens", f"got {2 * ranks - 1}"):
        context_parallel(mesh, 2 * ranks - 1)
    with block:
        with refused("dropout", "got 0.1", f"{ranks} ranks"):
            attn(mine)
        attn.eval()
        with refused("cache", "got a Growing", f"{TOKENS} tokens"):
            attn(mine, cache=cache.Growing())
        with refused("keys of another sequence"):
            attn(mine, x)
        with refused(f"{block.here()} of {TOKENS} tokens, got 3"):
            attn(x[:, :3])
        with refused("29 keys", "got 'weights'"):
            attn(mine, ask="weights")
        with refused("route='fused' cannot be chosen inside context_parallel"):
            attn(mine, route="fused")
        with refused("the length of row 1 must be in 0..29", "got 31"):
            attn(mine, mask=mask.lengths([3, 31]))
        assert attn(mine, ask="heads").heads.shape == (2, 4, block.here(), 5)
        with refused("heads cannot be observed while the 29 keys"), mh.capture(attn):
            attn(mine)
    with refused("no multihead layer ran"), block:
        nn.MultiheadAttention(WIDTH, 4, batch_first=True)(mine, mine, mine)
    with refused("30 tokens along dim 1, got 29"):
        context_parallel(mesh, 30).split(x)
    assert attn(x, mask=mask.causal()).shape == x.shape  # nothing is left behind


CHECKS = [
    ring_forward_and_backward,
    ring_in_single_precision,
    ring_of_layers,
    layers_do_not_run_again_outside,
    layers_on_other_threads_are_not_part,
    hidden_nan_stays_hidden,
    bytes_over_the_wire,
    causal_work_is_balanced,
    memory_is_shared_out,
    ring_refusals,
]
