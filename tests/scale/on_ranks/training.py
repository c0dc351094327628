"""FSDP2, DDP, tensor and context parallelism train as one process does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import parallelize_module

from multihead import mask, position
from multihead.layer import QKNorm, Sinks
from multihead.parallel import context_parallel, tensor_parallel_plan

from .common import layer

WIDTH, WORDS, LENGTH, STEPS = 24, 31, 13, 5


class Block(nn.Module):
    def __init__(self, attn: nn.Module) -> None:
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(WIDTH), attn
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 37), nn.GELU(), nn.Linear(37, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm(x), mask=mask.causal())
        return x + self.mlp(x)


class Language(nn.Module):
    """A language model of two blocks."""

    def __init__(self) -> None:
        super().__init__()
        grouped = layer(WIDTH, 6, num_kv_heads=2, position=position.Rotary(), qk_norm=QKNorm())
        uneven = layer(WIDTH, 5, head_dim=6, kv_of_head=[0, 0, 1, 1, 2], sinks=Sinks())
        torch.manual_seed(11)
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList([Block(grouped), Block(uneven)])
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def texts(ranks: int) -> Tensor:
    """So many that every rank gets three."""
    return torch.randint(WORDS, (3 * ranks, LENGTH + 1), generator=torch.Generator().manual_seed(4))


def loss_of(model: nn.Module, ids: Tensor) -> Tensor:
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def train(model: nn.Module, step: Callable[[nn.Module], Tensor]) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, foreach=False)
    losses: list[float] = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = step(model)
        optimizer.step()
        losses.append(float(loss))
    return losses


def whole_step(ids: Tensor) -> Callable[[nn.Module], Tensor]:
    def step(model: nn.Module) -> Tensor:
        loss = loss_of(model, ids)
        loss.backward()
        return loss.detach()

    return step


@cache
def expected(ranks: int) -> list[float]:
    """The losses of one process."""
    losses = train(Language(), whole_step(texts(ranks)))
    assert losses[-1] < losses[0] - 0.5, losses
    return losses


def averaged(mesh: DeviceMesh) -> Callable[[nn.Module], Tensor]:
    """Each rank with its texts; the loss shown is the mean over ranks."""
    rank = mesh.get_local_rank()
    mine = texts(mesh.size())[3 * rank : 3 * rank + 3]

    def step(model: nn.Module) -> Tensor:
        loss = loss_of(model, mine)
        loss.backward()
        shown = loss.detach().clone()
        dist.all_reduce(shown, group=mesh.get_group())
        return shown / mesh.size()

    return step


def same(losses: list[float], want: list[float]) -> None:
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(want), atol=1e-9, rtol=1e-9)


def trained_by_ddp(mesh: DeviceMesh) -> None:
    model = nn.parallel.DistributedDataParallel(Language(), process_group=mesh.get_group())
    same(train(model, averaged(mesh)), expected(mesh.size()))


def trained_by_fsdp(mesh: DeviceMesh) -> None:
    model = Language()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    same(train(model, averaged(mesh)), expected(mesh.size()))


def trained_by_heads(mesh: DeviceMesh) -> None:
    """Tensor parallel: every rank has all texts and some heads."""
    model = Language()
    parallelize_module(model, mesh, tensor_parallel_plan(model))
    same(train(model, whole_step(texts(mesh.size()))), expected(mesh.size()))


def trained_by_tokens(mesh: DeviceMesh) -> None:
    """Context parallel: every rank has some tokens of all texts."""
    block, ids = context_parallel(mesh, LENGTH), texts(mesh.size())

    def step(model: nn.Module) -> Tensor:
        with block:
            logits = model(block.split(ids[:, :-1]))
        wanted = block.split(ids[:, 1:])
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum") / ids[:, 1:].numel()
        loss.backward()
        block.sum_gradients(model.parameters())
        shown = loss.detach().clone()
        dist.all_reduce(shown, group=mesh.get_group())
        return shown

    same(train(Language(), step), expected(mesh.size()))


def trained_by_heads_and_shards(mesh: DeviceMesh) -> None:
    """Two dimensions: FSDP2 over one, heads over the other."""
    if mesh.size() != 4:
        return
    from torch.distributed.device_mesh import init_device_mesh

    both = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "heads"))
    model = Language()
    parallelize_module(model, both["heads"], tensor_parallel_plan(model))
    for part in model.blocks:
        fully_shard(part, mesh=both["data"])
    fully_shard(model, mesh=both["data"])
    same(train(model, averaged(both["data"])), expected(2))


def heads_and_tokens(mesh: DeviceMesh) -> None:
    """Two dimensions: tokens over one, heads over the other."""
    if mesh.size() != 4:
        return
    from torch.distributed.device_mesh import init_device_mesh

    both = init_device_mesh("cpu", (2, 2), mesh_dim_names=("tokens", "heads"))
    single = Language()
    model = copy.deepcopy(single)
    parallelize_module(model, both["heads"], tensor_parallel_plan(model))
    ids, block = texts(2)[:, :LENGTH], context_parallel(both["tokens"], LENGTH)
    with block:
        out = model(block.split(ids))
    torch.testing.assert_close(out, block.split(single(ids)))


CHECKS = [
    trained_by_ddp,
    trained_by_fsdp,
    trained_by_heads,
    trained_by_tokens,
    trained_by_heads_and_shards,
    heads_and_tokens,
]
