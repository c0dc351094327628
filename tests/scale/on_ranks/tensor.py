"""Heads spread over ranks by `multihead.parallel.tensor_parallel_plan`."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils._python_dispatch import TorchDispatchMode

import multihead as mh
from multihead import cache, mask, position
from multihead.layer import Ask, Cells, LatentAttention, QKNorm, Sinks
from multihead.layer._head_shard import local
from multihead.parallel import tensor_parallel_plan
from multihead.parallel.tensor import parts, whole_state_dict

from .common import draw, layer, refused, tokens, whole

UNEVEN = {"head_dim": 6}
VARIANTS: dict[str, tuple[int, dict[str, Any]]] = {
    "even": (12, {}),
    "grouped": (12, {"num_kv_heads": 4, "position": position.Rotary(), "head_dim": 6}),
    "one kv head": (6, {"num_kv_heads": 1, "bias": "o"}),
    "two kv heads": (6, {"num_kv_heads": 2, "value_dim": 7, "qk_norm": QKNorm()}),
    "five heads": (5, UNEVEN | {"bias": "qv", "softcap": 3.0}),
    "uneven groups": (7, UNEVEN | {"kv_of_head": [0, 0, 2, 1, 2, 0, 3]}),
    "few uneven groups": (7, UNEVEN | {"kv_of_head": [1, 0, 1, 1, 1, 0, 1]}),
    "sinks": (5, UNEVEN | {"sinks": Sinks(0.5), "num_kv_heads": 1}),
    "sinks, even": (12, {"sinks": Sinks(0.5), "qk_norm": QKNorm("layer", "after")}),
    "ALiBi": (5, UNEVEN | {"position": position.ALiBi(5)}),
    "learned ALiBi": (12, {"position": position.ALiBi(12, learned=True)}),
    "relative bias": (7, UNEVEN | {"position": position.RelativeBias(7, buckets=8, max_distance=9)}),
}
WIDTH = 24


def split(module: nn.Module, mesh: DeviceMesh) -> Any:
    torch.manual_seed(100 + mesh.get_rank())
    return parallelize_module(module, mesh, tensor_parallel_plan(module))


def of_rank(single: mh.MultiHeadAttention, attn: mh.MultiHeadAttention, name: str, p: Tensor) -> Tensor:
    """The part of a gradient of the whole layer that this rank's parameter `name` has."""
    shard, mine = attn.head_shard, attn.get_parameter(name)
    assert shard is not None
    if isinstance(mine, DTensor) or p.shape == mine.shape:
        return p
    where, axis, dim = {
        "q_proj": (shard.heads, 0, single.head_dim),
        "k_proj": (shard.kv_heads, 0, single.head_dim),
        "v_proj": (shard.kv_heads, 0, single.value_dim),
        "o_proj": (shard.heads, 1, single.value_dim),
    }[name.partition(".")[0]]
    return p.unflatten(axis, (-1, dim)).index_select(axis, torch.tensor(where)).flatten(axis, axis + 1)


def same_gradients(attn: mh.MultiHeadAttention, single: mh.MultiHeadAttention) -> None:
    single_ = dict(single.named_parameters())
    for name, p in attn.named_parameters():
        expected = single_[name].grad
        assert expected is not None, name
        want = of_rank(single, attn, name, expected)
        torch.testing.assert_close(whole(p.grad), want, msg=lambda text, name=name: f"{name}: {text}")


def forward_and_backward(mesh: DeviceMesh) -> None:
    gate = torch.rand(12, generator=torch.Generator().manual_seed(3))
    for name, (heads, options) in VARIANTS.items():
        if heads < mesh.size():
            continue
        single = layer(WIDTH, heads, **copy.deepcopy(options))
        attn = split(copy.deepcopy(single), mesh)
        assert local(attn.q_proj.weight).shape[0] == len(attn.head_shard.heads) * single.head_dim
        size, runs = heads // mesh.size(), [own for own, _ in parts(single.groups, mesh.size())]
        even = runs == [tuple(range(rank * size, (rank + 1) * size)) for rank in range(mesh.size())]
        assert isinstance(attn.q_proj.weight, DTensor) == even, name
        where = mask.causal() & mask.lengths([11, 7]) & mask.where(lambda b, h, q, k: (q + k + h) % 5 != 0)
        x, y = tokens(WIDTH, 3).requires_grad_(), tokens(WIDTH, 3).requires_grad_()
        g, f = gate[:heads].clone().requires_grad_(), gate[:heads].clone().requires_grad_()
        for rule in (mask.causal() & mask.lengths([11, 7]), where, mask.ragged([11, 5])):
            out, want = attn(x, mask=rule, head_gate=g), single(y, mask=rule, head_gate=f)
            torch.testing.assert_close(out, want, msg=lambda text, name=name: f"{name}: {text}")
            out.square().mean().backward()
            want.square().mean().backward()
        torch.testing.assert_close(x.grad, y.grad, msg=lambda text, name=name: f"{name}, input: {text}")
        torch.testing.assert_close(g.grad, f.grad, msg=lambda text, name=name: f"{name}, gate: {text}")
        try:
            same_gradients(attn, single)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def one_sum_each_way(mesh: DeviceMesh) -> None:
    """What goes over the wire: the output forward, the gradient of the input backward, and nothing else."""
    attn, x = (
        split(layer(WIDTH, 12, num_kv_heads=4, position=position.Rotary(), head_dim=6), mesh),
        tokens(WIDTH, 3),
    )
    with Counting() as forward:
        out = attn(x.requires_grad_(), mask=mask.causal())
    with Counting() as backward:
        out.sum().backward()
    want = [] if mesh.size() == 1 else [(2, 11, WIDTH)]
    assert forward.seen == want, forward.seen
    assert backward.seen == want, backward.seen


class Counting(TorchDispatchMode):
    """The shapes of what is sent between ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "all_reduce" in func.__name__:
            self.seen.append(tuple(args[0].shape))
        return func(*args, **(kwargs or {}))


def state_of_one_process(mesh: DeviceMesh) -> None:
    for name, (heads, options) in VARIANTS.items():
        if heads >= mesh.size():
            single = layer(WIDTH, heads, **copy.deepcopy(options))
            state = whole_state_dict(nn.ModuleDict({"deep": split(copy.deepcopy(single), mesh)}))
            want = nn.ModuleDict({"deep": single}).state_dict()
            assert state.keys() == want.keys(), name
            for key, x in want.items():
                assert torch.equal(state[key], x), (name, key)


def dropout_differs_by_rank(mesh: DeviceMesh) -> None:
    """The same seed everywhere, and yet heads on different ranks drop different weights."""
    alike = layer(WIDTH, 4, dropout=0.5)
    with torch.no_grad():
        for part in (alike.q_proj, alike.k_proj, alike.v_proj):
            for p in part.parameters():
                p.unflatten(0, (4, -1)).copy_(p.unflatten(0, (4, -1))[:1].clone())
    attn = split(alike, mesh)
    torch.manual_seed(1)
    heads = attn(tokens(WIDTH, 9), ask="heads").heads
    same = attn.eval()(tokens(WIDTH, 9), ask="heads").heads
    for a in range(4):
        for b in range(a):
            torch.testing.assert_close(same[:, a], same[:, b])
            assert not torch.allclose(heads[:, a], heads[:, b]), (a, b)


def each_head_is_somewhere(mesh: DeviceMesh) -> None:
    """Every head on one rank, groups whole where there are enough of them, loads as equal as groups allow."""
    for heads, options in VARIANTS.values():
        groups = layer(WIDTH, heads, **copy.deepcopy(options)).groups
        for ranks in range(1, heads + 1):
            found = parts(groups, ranks)
            assert sorted(h for own, _ in found for h in own) == list(range(heads))
            assert all({groups.kv_of_head[h] for h in own} <= set(kv) for own, kv in found)
            assert all(own for own, _ in found)
            if len(set(groups.kv_of_head)) >= ranks:
                assert sorted(kv for _, own in found for kv in own) == list(range(groups.kv_heads))
            else:
                assert max(len(own) for own, _ in found) - min(len(own) for own, _ in found) <= 1


def caches(mesh: DeviceMesh) -> None:
    """Every rank keeps the keys and values of its kv heads, and of no others."""
    for name in ("grouped", "one kv head", "five heads", "uneven groups", "ALiBi"):
        heads, options = VARIANTS[name]
        if heads < mesh.size():
            continue
        single = layer(WIDTH, heads, **copy.deepcopy(options))
        attn = split(copy.deepcopy(single), mesh)
        x = tokens(WIDTH, 4)
        here = len(attn.head_shard.kv_heads)
        kinds = [
            cache.Growing(),
            cache.Static(batch=2, kv_heads=here, capacity=16, key_dim=single.head_dim, value_dim=single.value_dim),
        ]
        with torch.no_grad():
            want = single(x, mask=mask.causal())
            for kept in kinds:
                pieces = [attn(part, mask=mask.causal(), cache=kept) for part in x.split([5, 1, 1, 4], dim=1)]
                torch.testing.assert_close(torch.cat(pieces, dim=1), want)
                assert kept._k.shape[1] == here  # pyright: ignore
            cross = cache.Cross()
            attn(x[:, :3], x, cache=cross)
            torch.testing.assert_close(attn(x[:, 3:5], cache=cross), single(x[:, 3:5], x))


def answers_are_of_all_heads(mesh: DeviceMesh) -> None:
    heads, options = VARIANTS["five heads"]
    single = layer(WIDTH, heads, **options)
    attn = split(copy.deepcopy(single), mesh)
    x = tokens(WIDTH, 5)
    asked = attn(x, mask=mask.causal(), ask=("weights", "lse", "heads"))
    want = single(x, mask=mask.causal(), ask=("weights", "lse", "heads"))
    for name in ("out", "weights", "lse", "heads"):
        torch.testing.assert_close(getattr(asked, name), getattr(want, name))
    some = Ask(Cells([4, 0, -2], [1, 3]))
    torch.testing.assert_close(attn(x, ask=some).weights, single(x, ask=some).weights)


def explanations_are_of_the_local_heads(mesh: DeviceMesh) -> None:
    heads, options = VARIANTS["grouped"]
    single = layer(WIDTH, heads, **copy.deepcopy(options))
    attn, x = split(copy.deepcopy(single), mesh), tokens(WIDTH, 5)
    here, alone = attn.explain(x, mask=mask.causal()), single.explain(x, mask=mask.causal())
    assert here.route == alone.route
    kept = cache.Growing()
    attn.explain(x, mask=mask.causal(), cache=kept)
    assert kept.length == 0, "explaining a call stores nothing"


def latent(mesh: DeviceMesh) -> None:
    for heads, query_dim in ((5, 9), (12, None)):
        torch.manual_seed(7)
        single = LatentAttention(
            WIDTH, heads, latent_dim=10, nope_dim=6, rope_dim=4, value_dim=5, query_dim=query_dim, bias=True
        )
        draw(single)
        attn = split(copy.deepcopy(single), mesh)
        x, y = tokens(WIDTH, 6).requires_grad_(), tokens(WIDTH, 6).requires_grad_()
        for absorb in (False, True):
            out = attn(x, mask=mask.causal(), absorb=absorb)
            want = single(y, mask=mask.causal(), absorb=absorb)
            torch.testing.assert_close(out, want)
            out.square().mean().backward()
            want.square().mean().backward()
        torch.testing.assert_close(x.grad, y.grad)
        for name in ("kv_down.weight", "kv_norm.weight", "o_proj.bias", "kv_down.bias"):
            torch.testing.assert_close(attn.get_parameter(name).grad, single.get_parameter(name).grad)
        kept = cache.Growing()
        with torch.no_grad():
            pieces = [attn(part, mask=mask.causal(), cache=kept) for part in x.split([5, 1, 5], dim=1)]
            torch.testing.assert_close(torch.cat(pieces, dim=1), single(y, mask=mask.causal()))


class Block(nn.Module):
    """Attention and a feed-forward part, each of which can be split."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attn = layer(WIDTH, 5, head_dim=6)
        self.up, self.down = nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm(x), mask=mask.causal())
        return x + self.down(torch.relu(self.up(x)))


def inside_a_model(mesh: DeviceMesh) -> None:
    """The plan finds layers anywhere, beside torch's own styles; rank 0's weights count."""
    torch.manual_seed(1)
    single = nn.Sequential(Block(), nn.ModuleDict({"deep": Block()})["deep"])
    model = copy.deepcopy(single)
    with torch.no_grad():
        for p in model[0].attn.parameters():
            p.mul_(1.0 + mesh.get_rank())  # every rank begins elsewhere
    plan = tensor_parallel_plan(model)
    assert sorted(plan) == ["0.attn", "1.attn"]
    for block in "01":
        plan |= {f"{block}.up": ColwiseParallel(), f"{block}.down": RowwiseParallel()}
    parallelize_module(model, mesh, plan)
    x = tokens(WIDTH, 8)
    torch.testing.assert_close(model(x), single(x))


def compiled(mesh: DeviceMesh) -> None:
    """Weights that are DTensors, and such that are plain parts."""
    for heads, options in (VARIANTS["even"], VARIANTS["five heads"]):
        single = layer(WIDTH, heads, **copy.deepcopy(options))
        if heads >= mesh.size():
            attn, x = torch.compile(split(copy.deepcopy(single), mesh), backend="eager"), tokens(WIDTH, 8)
            torch.testing.assert_close(attn(x, mask=mask.causal()), single(x, mask=mask.causal()))


def refusals(mesh: DeviceMesh) -> None:
    few = layer(WIDTH, 1, head_dim=6)
    if mesh.size() > 1:
        with refused("attn has 1 heads", f"{mesh.size()} ranks"):
            split(nn.ModuleDict({"attn": few}), mesh)
    attn = split(layer(WIDTH, 12), mesh)
    with refused("is already split", "of 12"):
        split(attn, mesh)
    with refused("Linear has no MultiHeadAttention"):
        tensor_parallel_plan(nn.Linear(2, 3))
    wrapped = layer(WIDTH, 12)
    wrapped.k_proj = nn.Sequential(wrapped.k_proj)  # type: ignore[assignment]
    with refused("k_proj must be a plain nn.Linear, got Sequential"):
        split(wrapped, mesh)
    with refused("attention layer, got Linear"):
        parallelize_module(nn.Linear(2, 3), mesh, tensor_parallel_plan(layer(WIDTH, 12))[""])


CHECKS = [
    forward_and_backward,
    one_sum_each_way,
    state_of_one_process,
    dropout_differs_by_rank,
    each_head_is_somewhere,
    caches,
    answers_are_of_all_heads,
    explanations_are_of_the_local_heads,
    latent,
    inside_a_model,
    compiled,
    refusals,
]
