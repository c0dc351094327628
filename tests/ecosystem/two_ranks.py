"""Run by test_distributed.py as two processes: each check compares what two ranks compute with one process.

python two_ranks.py RANK STORE prints one JSON line, {check: "" or what went wrong}.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import traceback
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import multihead as mh
from multihead import cache, mask, position
from multihead.errors import SizeError
from multihead.layer import Sinks, init

WIDTH, HEADS = 24, 6


def layer(**kwargs: object) -> mh.MultiHeadAttention:
    """The same weights on both ranks, scores with a spread of a few units."""
    torch.manual_seed(7)
    attn = mh.MultiHeadAttention(WIDTH, HEADS, init=init.XavierPerHead(2.0), **kwargs)  # type: ignore[arg-type]
    for name, p in attn.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(p)
    return attn


def tokens(seed: int, rows: int = 4) -> Tensor:
    return torch.randn(rows, 11, WIDTH, generator=torch.Generator().manual_seed(seed))


def split_heads(attn: nn.Module, mesh: DeviceMesh) -> nn.Module:
    plan = {name: ColwiseParallel() for name in ("q_proj", "k_proj", "v_proj")}
    return parallelize_module(attn, mesh, {**plan, "o_proj": RowwiseParallel()})


def whole(x: Tensor | None) -> Tensor:
    assert x is not None
    return x.full_tensor() if isinstance(x, DTensor) else x


def same_gradients(sharded: nn.Module, single: nn.Module) -> None:
    for (name, p), q in zip(sharded.named_parameters(), single.parameters(), strict=True):
        torch.testing.assert_close(whole(p.grad), q.grad, msg=lambda text, name=name: f"{name}: {text}")


class Stack(nn.Module):
    """Two residual layers; the second one is asked for more than its output."""

    def __init__(self) -> None:
        super().__init__()
        self.first = layer(num_kv_heads=2, position=position.Rotary())
        self.second = layer(sinks=Sinks(0.5))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.first(x, mask=mask.causal() & mask.window(5))
        asked = self.second(x, mask=mask.causal(), ask="lse")
        return x + asked.out + asked.lse.mean()


def fully_sharded(mesh: DeviceMesh) -> None:
    """FSDP2 layer by layer, each rank with its half of the batch."""
    single = Stack()
    stack = copy.deepcopy(single)
    for part in (stack.first, stack.second, stack):
        fully_shard(part, mesh=mesh)
    shard = stack.first.q_proj.weight
    assert isinstance(shard, DTensor)
    assert 2 * shard.to_local().shape[0] == single.first.q_proj.weight.shape[0]
    x, mine = tokens(1), slice(2 * mesh.get_rank(), 2 * mesh.get_rank() + 2)
    out, want = stack(x[mine]), torch.cat([single(half) for half in x.split(2)])
    torch.testing.assert_close(out, want[mine])
    out.square().mean().backward()
    want.square().mean().backward()
    same_gradients(stack, single)


def projections_sharded_alone(mesh: DeviceMesh) -> None:
    """FSDP2 on the projections themselves: the layer then holds sharded weights while it runs."""
    single = layer(num_kv_heads=3)
    attn = copy.deepcopy(single)
    for part in (attn.q_proj, attn.k_proj, attn.v_proj, attn.o_proj):
        fully_shard(part, mesh=mesh)
    x = tokens(2)
    out = attn(x, mask=mask.causal())
    want = single(x, mask=mask.causal())
    torch.testing.assert_close(out, want)
    out.square().mean().backward()
    want.square().mean().backward()
    same_gradients(attn, single)


def tensor_parallel(mesh: DeviceMesh) -> None:
    """parallelize_module: each rank has half of the heads, grouped ones included, and one sum joins them."""
    for options in ({}, {"num_kv_heads": 2}, {"num_kv_heads": 2, "position": position.Rotary(), "softcap": 3.0}):
        single = layer(**options)
        attn = split_heads(copy.deepcopy(single), mesh)
        assert attn.q_proj.weight.to_local().shape[0] == HEADS * single.head_dim // 2
        x, y = tokens(3).requires_grad_(), tokens(3).requires_grad_()
        out, want = attn(x, mask=mask.lengths([11, 3, 0, 7])), single(y, mask=mask.lengths([11, 3, 0, 7]))
        torch.testing.assert_close(out, want)
        out.square().mean().backward()
        want.square().mean().backward()
        torch.testing.assert_close(x.grad, y.grad)
        same_gradients(attn, single)


def tensor_parallel_decode(mesh: DeviceMesh) -> None:
    """A cache on each rank holds the keys and values of that rank's heads."""
    single = layer(num_kv_heads=2, position=position.Rotary())
    attn = split_heads(copy.deepcopy(single), mesh)
    x, kept = tokens(4), cache.Growing()
    with torch.no_grad():
        parts = [attn(part, mask=mask.causal(), cache=kept) for part in x.split([5, 1, 1, 4], dim=1)]
        torch.testing.assert_close(torch.cat(parts, dim=1), single(x, mask=mask.causal()))


def tensor_parallel_refuses(mesh: DeviceMesh) -> None:
    """What belongs to single heads is refused, not read from the wrong head."""
    for options in ({"sinks": Sinks()}, {"position": position.ALiBi(HEADS)}, {"kv_of_head": [0, 0, 0, 1, 1, 0]}):
        attn = split_heads(layer(**options), mesh)
        try:
            attn(tokens(5))
        except SizeError as error:
            assert "tensor parallelism" in str(error), error
        else:
            raise AssertionError(f"{options} ran under tensor parallelism")


CHECKS: list[Callable[[DeviceMesh], None]] = [
    fully_sharded,
    projections_sharded_alone,
    tensor_parallel,
    tensor_parallel_decode,
    tensor_parallel_refuses,
]


def main() -> None:
    rank, store = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    said: dict[str, str] = {}
    for check in CHECKS:
        try:
            check(mesh)
            said[check.__name__] = ""
        except Exception:  # noqa: BLE001  # reported, and the other rank must not be left waiting
            said[check.__name__] = traceback.format_exc()
    print(json.dumps(said), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # torch's threads of FSDP may be running still, and the end of the interpreter would abort for them


if __name__ == "__main__":
    main()
