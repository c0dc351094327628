"""Tensor parallelism by whole heads: a plan for torch's parallelize_module.

>>> import torch.distributed as dist
>>> import multihead as mh
>>> from torch.distributed.device_mesh import init_device_mesh
>>> from torch.distributed.tensor.parallel import parallelize_module
>>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # torchrun does this for many
>>> model = torch.nn.ModuleDict({"attn": mh.MultiHeadAttention(24, 6, num_kv_heads=2)})
>>> mh.tensor_parallel_plan(model)
{'attn': HeadParallel('attn')}
>>> model = parallelize_module(model, init_device_mesh("cpu", (1,)), mh.tensor_parallel_plan(model))
>>> model["attn"](torch.randn(2, 5, 24)).shape
torch.Size([2, 5, 24])
>>> dist.destroy_process_group()
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle

from multihead.errors import MultiheadError, SizeError
from multihead.layer.attention import MultiHeadAttention
from multihead.layer.latent import LatentAttention
from multihead.layer.problem import Groups
from multihead.layer.share import HeadColumns, HeadRows, Share

Layer = MultiHeadAttention | LatentAttention
Part = tuple[tuple[int, ...], tuple[int, ...]]
"""(query heads, kv heads) of one rank."""


def tensor_parallel_plan(module: nn.Module) -> dict[str, ParallelStyle]:
    """{path: HeadParallel} of every attention layer of ours in `module`, for parallelize_module.

    Of each layer a rank gets whole heads: rows of W_Q, W_K and W_V, columns of W_O; one sum over the ranks joins
    them. Groups stay together; with fewer kv heads than ranks, ranks share them. Layers without heads are left out.
    Entries for other modules may be added, and entries may be taken out: such a layer is whole on every rank.
    """
    found = {path: part for path, part in module.named_modules() if isinstance(part, Layer) and part.num_heads}
    if not found:
        raise MultiheadError(
            f"{type(module).__name__} has no mh.MultiHeadAttention or mh.LatentAttention to split",
            hint="other models have plans of their own: Hugging Face's are from_pretrained(..., tp_plan='auto')",
        )
    return {path: HeadParallel(path) for path in found}


class HeadParallel(ParallelStyle):
    """One attention layer of ours by whole heads over the ranks of a 1-D mesh.

    W_Q, W_K, W_V and W_O become DTensors where the ranks get equal numbers of heads, and plain tensors of this
    rank's heads where they do not (DTensor cuts rows evenly, which would cut through heads). What all heads share
    (norms, sinks, position biases, W_K and W_V of kv heads that ranks share) stays whole on every rank; its
    gradient is the sum over the ranks.
    """

    def __init__(self, path: str = "") -> None:
        super().__init__()
        self.path = path

    def __repr__(self) -> str:
        return f"HeadParallel({self.path!r})"

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        place = self.path or type(module).__name__
        if not isinstance(module, Layer):
            raise MultiheadError(
                f"{place} is a {type(module).__name__}, no attention layer of ours",
                hint="mh.tensor_parallel_plan(model) names the layers that can be split by heads",
            )
        if module.share is not None:
            raise MultiheadError(
                f"{place} is split already: this rank has heads {list(module.share.heads)} of {module.share.of}",
                hint="parallelize_module splits a layer once",
            )
        if device_mesh.ndim != 1:
            raise SizeError(
                f"{place}: the mesh has {device_mesh.ndim} dimensions, {tuple(device_mesh.shape)}",
                hint='slice it: parallelize_module(model, mesh["tp"], plan)',
            )
        linears = {name: part for name in PROJECTIONS if (part := getattr(module, name, None)) is not None}
        wrong = next(((name, part) for name, part in linears.items() if type(part) is not nn.Linear), None)
        if wrong is not None:
            raise MultiheadError(
                f"{place}.{wrong[0]} is a {type(wrong[1]).__name__}, and only plain nn.Linear can be split",
                hint="split the layer first, or merge what was put around its projections",
            )
        _split(module, device_mesh, place, self.src_data_rank)
        return module


@torch.no_grad()
def whole_state_dict(module: nn.Module) -> dict[str, Tensor]:
    """The state dict of one process, on every rank: what is spread over the ranks is put together."""
    state = {name: x.full_tensor() if isinstance(x, DTensor) else x for name, x in module.state_dict().items()}
    for path, linear in module.named_modules():
        if isinstance(linear, HeadRows | HeadColumns) and linear.part is not None:
            axis, index = linear.part
            places = linear.out_features if axis == 0 else linear.in_features
            for name, x in linear.named_parameters(prefix=path):
                if x.ndim > axis:  # the bias of W_O is whole
                    size = (*x.shape[:axis], places, *x.shape[axis + 1 :])
                    state[name] = linear.share.joined(x.new_zeros(size).index_copy(axis, index, x))
    return state


PROJECTIONS = ("q_proj", "k_proj", "v_proj", "kv_up", "o_proj")


def _split(layer: Layer, mesh: DeviceMesh, place: str, source: int | None) -> None:
    latent = isinstance(layer, LatentAttention)
    groups = Groups.even(layer.num_heads, layer.num_heads) if latent else layer.groups
    everyone = parts(groups, mesh.size(), place)
    mine, kv_mine = everyone[mesh.get_local_rank()]
    local = Groups(tuple(kv_mine.index(groups.kv_of_head[h]) for h in mine), len(kv_mine))
    share = Share(mine, kv_mine, layer.num_heads, groups.kv_heads, local, mesh)
    if source is not None:
        _send_whole(layer, mesh, source)
    heads, kv_heads = [part[0] for part in everyone], [part[1] for part in everyone]
    if latent:
        _rows(layer.q_proj, heads, layer.nope_dim + layer.rope_dim, share)
        _rows(layer.kv_up, heads, layer.nope_dim + layer.value_dim, share)
    else:
        _rows(layer.q_proj, heads, layer.head_dim, share)
        _rows(layer.k_proj, kv_heads, layer.head_dim, share)
        _rows(layer.v_proj, kv_heads, layer.value_dim, share)
    _columns(layer.o_proj, heads, layer.value_dim, share)
    layer.share = share


def parts(groups: Groups, ranks: int, place: str = "the layer") -> list[Part]:
    """Which heads each rank gets: whole groups where there are enough, else heads whose kv head ranks share.

    >>> parts(Groups.even(5, 5), 2)
    [((0, 1, 2), (0, 1, 2)), ((3, 4), (3, 4))]
    >>> parts(Groups.even(4, 1), 2)
    [((0, 1), (0,)), ((2, 3), (0,))]
    """
    heads, kv_of_head = len(groups.kv_of_head), groups.kv_of_head
    if heads < ranks:
        raise SizeError(
            f"{place} has {heads} heads, they cannot be spread over {ranks} ranks",
            hint=f"use at most {heads} ranks, or take the layer out of the plan: every rank then has all of it",
        )
    if len(set(kv_of_head)) < ranks:
        order = sorted(range(heads), key=lambda h: (kv_of_head[h], h))
        each = [heads // ranks + (rank < heads % ranks) for rank in range(ranks)]
        ends = [sum(each[: rank + 1]) for rank in range(ranks)]
        runs = [tuple(sorted(order[end - size : end])) for size, end in zip(each, ends, strict=True)]
        return [(run, tuple(sorted({kv_of_head[h] for h in run}))) for run in runs]
    readers = [kv_of_head.count(kv) for kv in range(groups.kv_heads)]
    bounds = _balanced(tuple(readers), ranks)
    runs = [tuple(range(lo, hi)) for lo, hi in zip((0, *bounds), (*bounds, len(readers)), strict=True)]
    return [(tuple(h for h in range(heads) if kv_of_head[h] in run), run) for run in runs]


def _balanced(readers: Sequence[int], ranks: int) -> tuple[int, ...]:
    """Where to cut a row of groups so that the runs have as equal sums as can be, and none is empty."""
    total = [0]
    for count in readers:
        total.append(total[-1] + count)

    @cache
    def best(start: int, left: int) -> tuple[float, tuple[int, ...]]:
        if left == 1:
            rest = total[-1] - total[start]
            return (rest**2 if rest else float("inf")), ()
        found = (float("inf"), ())
        for cut in range(len(readers) - 1, start, -1):  # of equals the one that gives more to the first
            size = total[cut] - total[start]
            if size:
                cost, cuts = best(cut, left - 1)
                found = min(found, (cost + size**2, (cut, *cuts)), key=lambda f: f[0])
        return found

    return best(0, ranks)[1]


def _send_whole(layer: nn.Module, mesh: DeviceMesh, source: int) -> None:
    """Every rank begins with the numbers of one, as parallelize_module promises."""
    if mesh.size() == 1:
        return
    group = mesh.get_group()
    first = dist.get_global_rank(group, source)
    for x in (*layer.parameters(), *layer.buffers()):
        if type(x.data) is Tensor and x.device.type != "meta":  # a position bias of several layers may be one
            dist.broadcast(x.data, first, group=group)


def _rows(linear: nn.Linear, everyone: Sequence[tuple[int, ...]], dim: int, share: Share) -> None:
    """The rows of the heads of this rank, `dim` each."""
    mine = everyone[share.mesh.get_local_rank()]
    linear.__class__ = HeadRows
    assert isinstance(linear, HeadRows)
    linear.share, linear.rows, linear.part = share, None, None
    index = _index(mine, dim, linear.weight)
    if sum(map(len, everyone)) > len(set().union(*everyone)):  # ranks share some: whole on each
        linear.rows = index
        return
    even = _in_order(everyone)
    linear.part = None if even else (0, index)
    for name, p in list(linear.named_parameters()):
        linear.register_parameter(name, _placed(p, 0, index, even, share))


def _columns(linear: nn.Linear, everyone: Sequence[tuple[int, ...]], dim: int, share: Share) -> None:
    linear.__class__ = HeadColumns
    assert isinstance(linear, HeadColumns)
    linear.share, linear.rows = share, None
    index, even = _index(everyone[share.mesh.get_local_rank()], dim, linear.weight), _in_order(everyone)
    linear.part = None if even else (1, index)
    linear.weight = _placed(linear.weight, 1, index, even, share)


def _placed(p: Tensor, axis: int, index: Tensor, even: bool, share: Share) -> nn.Parameter:
    """What this rank has of a parameter that it still holds whole."""
    if even:
        spread = distribute_tensor(p.data, share.mesh, [Shard(axis)], src_data_rank=None)
        return nn.Parameter(spread, requires_grad=p.requires_grad)
    return nn.Parameter(p.data.index_select(axis, index), requires_grad=p.requires_grad)


def _in_order(everyone: Sequence[tuple[int, ...]]) -> bool:
    """Whether the ranks have equal runs of heads, one after another: what DTensor's Shard means."""
    size = len(everyone[0])
    return all(run == tuple(range(rank * size, (rank + 1) * size)) for rank, run in enumerate(everyone))


def _index(heads: Sequence[int], dim: int, like: Tensor) -> Tensor:
    """The rows of heads of size `dim`."""
    starts = torch.tensor(list(heads), dtype=torch.long, device=like.device)[:, None] * dim
    return (starts + torch.arange(dim, device=like.device)).flatten()
