"""Tensor parallelism over whole heads: a plan for torch's parallelize_module.

>>> import torch.distributed as dist
>>> import multihead as mh
>>> from torch.distributed.device_mesh import init_device_mesh
>>> from torch.distributed.tensor.parallel import parallelize_module
>>> from multihead.parallel import tensor_parallel_plan
>>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # torchrun does this
>>> model = torch.nn.ModuleDict({"attn": mh.MultiHeadAttention(24, 6, num_kv_heads=2)})
>>> tensor_parallel_plan(model)
{'attn': HeadParallel('attn')}
>>> model = parallelize_module(model, init_device_mesh("cpu", (1,)), tensor_parallel_plan(model))
>>> model["attn"](torch.randn(2, 5, 24)).shape
torch.Size([2, 5, 24])
>>> dist.destroy_process_group()
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle

from multihead._base.arguments import check_instance
from multihead.errors import MultiheadError, SizeError
from multihead.layer import Groups
from multihead.layer._head_shard import HeadShard, LocalAsk, local
from multihead.layer.attention import MultiHeadAttention
from multihead.layer.latent import LatentAttention
from multihead.layer.outputs import Ask, AttentionOutput

Layer = MultiHeadAttention | LatentAttention
Part = tuple[tuple[int, ...], tuple[int, ...]]
"""(query heads, kv heads) of one rank."""


def tensor_parallel_plan(module: nn.Module) -> dict[str, ParallelStyle]:
    """{path: HeadParallel} for every multihead attention layer in `module`, as input to parallelize_module.

    Each rank gets whole heads: rows of W_Q, W_K and W_V, columns of W_O; one all-reduce sums the outputs. Groups
    are split only if there are fewer kv heads than ranks; then ranks share kv heads. Excludes layers without heads.
    You may add entries for other modules, or remove entries to replicate a layer on every rank.

    >>> import multihead as mh
    >>> from torch import nn
    >>> from multihead.parallel import tensor_parallel_plan
    >>> list(tensor_parallel_plan(nn.ModuleDict({"attention": mh.MultiHeadAttention(96, 6)})))
    ['attention']
    """
    check_instance(
        "module", module, nn.Module, "a torch.nn.Module", hint="multihead.parallel.tensor_parallel_plan(model)"
    )
    layers = {path: layer for path, layer in module.named_modules() if isinstance(layer, Layer) and layer.num_heads}
    if not layers:
        raise MultiheadError(
            f"{type(module).__name__} has no MultiHeadAttention or LatentAttention to split",
            hint="Hugging Face models define their plans: from_pretrained(..., tp_plan='auto')",
        )
    return {path: HeadParallel(path) for path in layers}


class HeadParallel(ParallelStyle):
    """Split one multihead attention layer by whole heads over the ranks of a 1-D mesh.

    W_Q, W_K, W_V and W_O become DTensors if the ranks get equal numbers of heads, otherwise plain tensors of this
    rank's heads (DTensor splits rows evenly, which would split heads). Parameters shared by heads (norms, sinks,
    position biases, W_K and W_V of kv heads shared by ranks) are replicated; their gradients are summed over ranks.
    """

    def __init__(self, path: str = "") -> None:
        super().__init__()
        self.path = path

    def __repr__(self) -> str:
        return f"HeadParallel({self.path!r})"

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        """Split an attention layer over the ranks of tensor parallelism."""
        name = self.path or type(module).__name__
        if not isinstance(module, Layer):
            raise MultiheadError(
                f"{name} must be a multihead attention layer, got {type(module).__name__}",
                hint="multihead.parallel.tensor_parallel_plan(model) lists the layers that can be split by heads",
            )
        shard = module.head_shard
        if shard is not None:
            raise MultiheadError(
                f"{name} is already split: this rank has heads {list(shard.heads)} of {shard.all_heads}",
                hint="call parallelize_module once per layer",
            )
        if device_mesh.ndim != 1:
            raise SizeError(
                f"{name}: the mesh must be 1-D, got {device_mesh.ndim}-D of shape {tuple(device_mesh.shape)}",
                hint='slice it: parallelize_module(model, mesh["tp"], plan)',
            )
        linears = {name: part for name in PROJECTIONS if (part := getattr(module, name, None)) is not None}
        unsupported = next(((name, part) for name, part in linears.items() if type(part) is not nn.Linear), None)
        if unsupported is not None:
            raise MultiheadError(
                f"{name}.{unsupported[0]} must be a plain nn.Linear, got {type(unsupported[1]).__name__}",
                hint="split the layer before wrapping its projections, or merge the wrappers first",
            )
        _split(module, device_mesh, name, self.src_data_rank)
        return module


@torch.no_grad()
def whole_state_dict(module: nn.Module) -> dict[str, Tensor]:
    """The state dict of the unsplit module, gathered on every rank."""
    state = {name: x.full_tensor() if isinstance(x, DTensor) else x for name, x in module.state_dict().items()}
    for path, linear in module.named_modules():
        if isinstance(linear, HeadRows | HeadColumns) and linear.part is not None:
            axis, index = linear.part
            features = linear.out_features if axis == 0 else linear.in_features
            for name, x in linear.named_parameters(prefix=path):
                if x.ndim > axis:  # the bias of W_O is replicated
                    size = (*x.shape[:axis], features, *x.shape[axis + 1 :])
                    state[name] = linear.shard.all_reduce(x.new_zeros(size).index_copy(axis, index, x))
    return state


PROJECTIONS = ("q_proj", "k_proj", "v_proj", "kv_up", "o_proj")


def _split(layer: Layer, mesh: DeviceMesh, name: str, source: int | None) -> None:
    """Split the projections of a layer over ranks, by whole heads."""
    latent = isinstance(layer, LatentAttention)
    groups = Groups.even(layer.num_heads, layer.num_heads) if latent else layer.groups
    parts_of_rank = parts(groups, mesh.size(), name)
    local_heads, local_kv_heads = parts_of_rank[mesh.get_local_rank()]
    local_groups = Groups(
        tuple(local_kv_heads.index(groups.kv_of_head[h]) for h in local_heads), len(local_kv_heads)
    )
    shard = HeadShard(local_heads, local_kv_heads, layer.num_heads, groups.kv_heads, local_groups, mesh)
    if source is not None:
        _broadcast(layer, mesh, source)
    heads, kv_heads = [part[0] for part in parts_of_rank], [part[1] for part in parts_of_rank]
    if latent:
        _split_rows(layer.q_proj, heads, layer.nope_dim + layer.rope_dim, shard)
        _split_rows(layer.kv_up, heads, layer.nope_dim + layer.value_dim, shard)
    else:
        _split_rows(layer.q_proj, heads, layer.head_dim, shard)
        _split_rows(layer.k_proj, kv_heads, layer.head_dim, shard)
        _split_rows(layer.v_proj, kv_heads, layer.value_dim, shard)
    _split_columns(layer.o_proj, heads, layer.value_dim, shard)
    layer.head_shard = shard
    layer.register_forward_pre_hook(_enter, with_kwargs=True)
    layer.register_forward_hook(_leave, with_kwargs=True)


def parts(groups: Groups, ranks: int, name: str = "the layer") -> list[Part]:
    """The heads of each tensor-parallel rank: whole groups if there are enough, else ranks share kv heads.

    >>> parts(Groups.even(5, 5), 2)
    [((0, 1, 2), (0, 1, 2)), ((3, 4), (3, 4))]
    >>> parts(Groups.even(4, 1), 2)
    [((0, 1), (0,)), ((2, 3), (0,))]
    """
    heads, kv_of_head = len(groups.kv_of_head), groups.kv_of_head
    if heads < ranks:
        raise SizeError(
            f"{name} has {heads} heads, which cannot be split over {ranks} ranks",
            hint=f"use at most {heads} ranks, or remove the layer from the plan to replicate it",
        )
    if len(set(kv_of_head)) < ranks:
        order = sorted(range(heads), key=lambda h: (kv_of_head[h], h))
        sizes = [heads // ranks + (rank < heads % ranks) for rank in range(ranks)]
        ends = [sum(sizes[: rank + 1]) for rank in range(ranks)]
        runs = [tuple(sorted(order[end - size : end])) for size, end in zip(sizes, ends, strict=True)]
        return [(run, tuple(sorted({kv_of_head[h] for h in run}))) for run in runs]
    readers = [kv_of_head.count(kv) for kv in range(groups.kv_heads)]
    bounds = _balanced_cuts(tuple(readers), ranks)
    runs = [tuple(range(lo, hi)) for lo, hi in zip((0, *bounds), (*bounds, len(readers)), strict=True)]
    return [(tuple(h for h in range(heads) if kv_of_head[h] in run), run) for run in runs]


def _balanced_cuts(readers: Sequence[int], ranks: int) -> tuple[int, ...]:
    """Cuts of groups into runs for tensor-parallel ranks with the most equal sums of `readers`."""
    total = [0]
    for count in readers:
        total.append(total[-1] + count)

    @cache
    def best(start: int, left: int) -> tuple[float, tuple[int, ...]]:
        """To split a tensor: the most equal split of the groups from `start` on into `left` runs."""
        if left == 1:
            rest = total[-1] - total[start]
            return (rest**2 if rest else float("inf")), ()
        optimum = (float("inf"), ())
        for cut in range(len(readers) - 1, start, -1):  # on ties, the first run gets more
            size = total[cut] - total[start]
            if size:
                cost, cuts = best(cut, left - 1)
                optimum = min(optimum, (cost + size**2, (cut, *cuts)), key=lambda f: f[0])
        return optimum

    return best(0, ranks)[1]


def _broadcast(layer: nn.Module, mesh: DeviceMesh, source: int) -> None:
    """Copy the parameters of tensor-parallel rank `source` to every rank, as parallelize_module promises."""
    if mesh.size() == 1:
        return
    group = mesh.get_group()
    first = dist.get_global_rank(group, source)
    for x in (*layer.parameters(), *layer.buffers()):
        if type(x.data) is Tensor and x.device.type != "meta":  # a bias shared by layers may be a DTensor
            dist.broadcast(x.data, first, group=group)


def _split_rows(linear: nn.Linear, heads_of_rank: Sequence[tuple[int, ...]], dim: int, shard: HeadShard) -> None:
    """Keep the rows of a weight for this tensor-parallel rank's heads, `dim` each."""
    local_heads = heads_of_rank[shard.mesh.get_local_rank()]
    linear.__class__ = HeadRows
    assert isinstance(linear, HeadRows)
    linear.shard, linear.rows, linear.part = shard, None, None
    index = _rows_of_heads(local_heads, dim, linear.weight)
    if sum(map(len, heads_of_rank)) > len(set().union(*heads_of_rank)):
        linear.rows = index  # ranks share kv heads, so the weights are replicated
        return
    sharded = _is_sharded(heads_of_rank)
    linear.part = None if sharded else (0, index)
    for name, p in list(linear.named_parameters()):
        linear.register_parameter(name, _local_part(p, 0, index, sharded, shard))


def _split_columns(linear: nn.Linear, heads_of_rank: Sequence[tuple[int, ...]], dim: int, shard: HeadShard) -> None:
    """Keep the columns of W_O that read this rank's heads."""
    linear.__class__ = HeadColumns
    assert isinstance(linear, HeadColumns)
    linear.shard, linear.rows = shard, None
    sharded = _is_sharded(heads_of_rank)
    index = _rows_of_heads(heads_of_rank[shard.mesh.get_local_rank()], dim, linear.weight)
    linear.part = None if sharded else (1, index)
    linear.weight = _local_part(linear.weight, 1, index, sharded, shard)


def _local_part(p: Tensor, axis: int, index: Tensor, sharded: bool, shard: HeadShard) -> nn.Parameter:
    """This tensor-parallel rank's part of a full parameter."""
    if sharded:
        part = distribute_tensor(p.data, shard.mesh, [Shard(axis)], src_data_rank=None)
        return nn.Parameter(part, requires_grad=p.requires_grad)
    return nn.Parameter(p.data.index_select(axis, index), requires_grad=p.requires_grad)


def _is_sharded(heads_of_rank: Sequence[tuple[int, ...]]) -> bool:
    """Whether the ranks have equal, consecutive runs of heads, as DTensor's Shard requires."""
    size = len(heads_of_rank[0])
    return all(run == tuple(range(rank * size, (rank + 1) * size)) for rank, run in enumerate(heads_of_rank))


def _rows_of_heads(heads: Sequence[int], dim: int, like: Tensor) -> Tensor:
    """Indices of the rows (or columns) of the given heads of size `dim`."""
    starts = torch.tensor(list(heads), dtype=torch.long, device=like.device)[:, None] * dim
    return (starts + torch.arange(dim, device=like.device)).flatten()


class _Part(nn.Linear):
    """A projection with the part of this rank's heads; `_split` changes the class of an nn.Linear to it."""

    shard: HeadShard
    rows: Tensor | None
    """the rows of the weight that belong to the local heads; None if it holds only those"""
    part: tuple[int, Tensor] | None
    """(axis, local indices) of a weight that is not a DTensor and holds a part; None if it is complete"""

    def local(self, x: Tensor | None) -> Tensor | None:
        """The rows of the heads on this tensor-parallel rank."""
        if x is None:
            return None
        if self.rows is not None:
            return self.shard.copy_to_ranks(local(x)).index_select(0, self.rows.to(x.device))
        return local(x)


class HeadRows(_Part):
    """x W_hᵀ + b_h of the heads h on this rank: column-wise parallel, by whole heads."""

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, cast(Tensor, self.local(self.weight)), self.local(self.bias))


class HeadColumns(_Part):
    """Σ_ranks x_h W_hᵀ + b: row-wise parallel, by whole heads; the bias is added once, to the sum."""

    def forward(self, input: Tensor) -> Tensor:
        out = self.shard.all_reduce(F.linear(input, local(self.weight)))
        return out if self.bias is None else out + local(self.bias)  # pyright: ignore[reportUnnecessaryComparison]  # torch's stub forgets None


# ---- the call -------------------------------------------------------------------------------------


def _enter(layer: Layer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Copy the inputs to the tensor-parallel ranks; select the local heads of the gate and the request."""
    shard = layer.head_shard
    assert shard is not None
    if not isinstance(layer, LatentAttention):  # it copies its latents instead
        inputs = {"query": None, "key": None, "value": None} | dict(
            zip(("query", "key", "value"), args, strict=False)
        )
        inputs |= {name: kwargs[name] for name in inputs if name in kwargs}
        copies = {id(x): shard.copy_to_ranks(x) for x in inputs.values() if isinstance(x, Tensor)}
        args = tuple(copies.get(id(x), x) for x in args)
        kwargs = {name: copies.get(id(x), x) if name in inputs else x for name, x in kwargs.items()}
    gate, ask = kwargs.get("head_gate"), kwargs.get("ask")
    if isinstance(gate, Tensor) and gate.ndim and gate.shape[min(gate.ndim - 1, 1)] in (1, shard.all_heads):
        kwargs["head_gate"] = shard.local(gate, min(gate.ndim - 1, 1))
    if ask is not None:
        kwargs["ask"] = shard.local_request(Ask.of(ask))
    return args, kwargs


def _leave(layer: Layer, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    """Gather the outputs of the heads of all tensor-parallel ranks."""
    shard, ask = layer.head_shard, kwargs.get("ask")
    if shard is None or not isinstance(output, AttentionOutput) or not isinstance(ask, LocalAsk):
        return output
    return shard.gather_outputs(ask.request, output)
