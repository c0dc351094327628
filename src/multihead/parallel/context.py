"""Context parallelism: the tokens of one sequence over several ranks, with exact attention.

>>> import torch.distributed as dist
>>> import multihead as mh
>>> from multihead import mask, position
>>> from multihead.parallel import context_parallel
>>> from torch.distributed.device_mesh import init_device_mesh
>>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # torchrun does this
>>> attn, x = mh.MultiHeadAttention(24, 6, position=position.Rotary()), torch.randn(2, 7, 24)
>>> spread = context_parallel(init_device_mesh("cpu", (1,)), tokens=7)
>>> with spread:
...     out = attn(spread.split(x), mask=mask.causal())
>>> torch.allclose(spread.join(out), attn(x, mask=mask.causal()), atol=1e-5)
True
>>> dist.destroy_process_group()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from jaxtyping import Int
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from multihead._base.arguments import check_count, check_instance, check_tensor
from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError, SizeError
from multihead.layer import Problem
from multihead.layer._coordinates import Coordinates
from multihead.layer._head_shard import all_reduce, local
from multihead.layer._kv_store import NO_INPUTS, Inputs, enter_shard, exit_shard
from multihead.layer._mask_algebra import Mask
from multihead.parallel.ring import Chunk, ring_attend


def context_parallel(mesh: DeviceMesh, tokens: int) -> ContextParallel:
    """A context manager in which multihead layers attend over `tokens` tokens, split over the ranks of a 1-D mesh.

    Each rank calls the model on its tokens, `block.split(x)`. Masks describe the full sequence, as in one process:
    `mask.lengths` takes full lengths. Keys and values are passed around the ranks; fp64 results agree with one
    process to 1e-10, and a rank holds 1/ranks of every tensor. Parameter gradients cover this rank's tokens only:
    `block.sum_gradients(model.parameters())` sums them over the ranks.
    """
    check_instance("mesh", mesh, DeviceMesh, "a DeviceMesh", hint='init_device_mesh("cpu", (ranks,))')
    check_count("tokens", tokens)
    ranks = mesh.size()
    if mesh.ndim != 1:
        raise SizeError(
            f"the mesh must be 1-D, got {mesh.ndim}-D of shape {tuple(mesh.shape)}",
            hint='slice it: multihead.parallel.context_parallel(mesh["context"], tokens)',
        )
    if tokens < 2 * ranks:
        raise SizeError(
            f"{ranks} ranks need at least {2 * ranks} tokens (2 chunks per rank), got {tokens}",
            hint=f"use at most {max(1, tokens // 2)} ranks, or a longer sequence",
        )
    return ContextParallel(mesh, tokens)


@dataclass
class ContextParallel:
    """A sequence in 2·ranks chunks; rank r holds chunk r and chunk 2·ranks−1−r.

    Under a causal mask early queries see few keys and late queries many, so this pairing gives every rank the same
    work (the zig-zag order of ring attention; cf. Brandon et al. 2023, Striped Attention).
    """

    mesh: DeviceMesh
    tokens: int
    ran: int = 0
    """attention calls in the block"""
    sent: int = 0
    """bytes of keys, values and gradients sent by this rank"""
    active: bool = False

    # ---- context manager ----------------------------------------------------------------------

    def __enter__(self) -> ContextParallel:
        enter_shard(self)
        self.ran = 0
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        exit_shard()
        if kind is None and not self.ran:
            raise MultiheadError(
                f"no multihead layer ran in the block for {self.tokens} tokens over {self.mesh.size()} ranks",
                hint="other layers attend only to the tokens of their rank; for models on torch's kernel use "
                "torch.distributed.tensor.experimental.context_parallel",
            )

    def attend(self, problem: Problem) -> HeadOutputs:
        """Context parallelism: softmax(scores) v of this rank's queries over the keys of all ranks."""
        if problem.scores.dropout:
            raise MultiheadError(
                f"attention dropout must be 0 over {self.mesh.size()} ranks, got {problem.scores.dropout:g}",
                hint="set dropout=0.0, or call model.eval()",
            )
        self.ran += 1
        return ring_attend(problem, self)

    # ---- tokens of each rank ------------------------------------------------------------------

    def chunks(self, rank: int | None = None) -> list[Chunk]:
        """(start, stop, offset on the rank) of the two chunks of a context-parallel rank; by default this one."""
        rank, ranks = self.mesh.get_local_rank() if rank is None else rank, self.mesh.size()
        early, late = (_bounds(self.tokens, 2 * ranks, chunk) for chunk in (rank, 2 * ranks - 1 - rank))
        return [(*early, 0), (*late, early[1] - early[0])]

    def here(self, rank: int | None = None) -> int:
        """Number of tokens of a rank; of this rank by default."""
        return sum(last - first for first, last, _ in self.chunks(rank))

    def places(self, here: int | None = None) -> Int[Tensor, " token"]:
        """Positions of this rank's tokens in the sequence."""
        if here is not None and here != self.here():
            raise SizeError(
                f"this rank must get {self.here()} of {self.tokens} tokens, got {here}",
                hint="select the tokens of this rank: x = block.split(x)",
            )
        device = torch.device(self.mesh.device_type)
        return torch.cat([torch.arange(first, last, device=device) for first, last, _ in self.chunks()])

    def split(self, x: Tensor, dim: int = 1) -> Tensor:
        """Select this rank's tokens of the context along `dim` from a tensor of all tokens."""
        check_tensor("x", x)
        if x.shape[dim] != self.tokens:
            raise SizeError(
                f"x must have {self.tokens} tokens along dim {dim}, got {x.shape[dim]} in shape {tuple(x.shape)}",
                hint="multihead.parallel.context_parallel(mesh, tokens=x.shape[dim])",
            )
        return torch.cat([x.narrow(dim, first, last - first) for first, last, _ in self.chunks()], dim)

    def join(self, x: Tensor, dim: int = 1) -> Tensor:
        """Gather the context along `dim`, in order and on every rank, from tensors of each rank's tokens."""
        check_tensor("x", x)
        self.places(x.shape[dim])
        dim %= x.ndim
        full = x.new_zeros(*x.shape[:dim], self.tokens, *x.shape[dim + 1 :])
        return all_reduce(full.index_copy(dim, self.places().to(x.device), x), self.mesh)

    @torch.no_grad()
    def sum_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replace each gradient by its sum over the ranks, the gradient of all tokens."""
        for p in parameters:
            if p.requires_grad:
                if p.grad is None:
                    p.grad = torch.zeros_like(p)
                dist.all_reduce(local(p.grad), group=self.mesh.get_group())

    # ---- the key/value store of a layer -----------------------------------------------------------

    requires_grad = False
    packed = None

    def known(self, key: Tensor | None, value: Tensor | None, layer: nn.Module, batch: int) -> None:
        """None; raises for a key: context parallelism serves self-attention."""
        if key is not None:
            raise MultiheadError(
                f"context_parallel needs self-attention of {self.tokens} tokens, got keys of another sequence",
                hint="call cross-attention outside the block",
            )

    def positions(
        self, positions: Tensor | None, batch: int, queries: int, keys: int, *, cross: bool
    ) -> tuple[Tensor, Tensor]:
        """Positions in the sequence of this rank's tokens, unless `positions` are passed."""
        positions = self.places(queries) if positions is None else positions
        return positions, positions

    def view(
        self, mask: Mask, q: Tensor, k: Tensor, layer: nn.Module, inputs: Inputs = NO_INPUTS
    ) -> tuple[Mask, Coordinates, None]:
        """The mask and the coordinates of this rank's queries over the tokens of all ranks."""
        self.places(q.shape[2])
        return mask, Coordinates(q.shape[0], q.shape[1], self.tokens, self.tokens, q.device, shard=self), None

    def take(self, k: Tensor, v: Tensor, step: None) -> tuple[Tensor, Tensor]:
        return k, v

    # ---- communication ------------------------------------------------------------------------

    def around(self, k: Tensor, v: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield (rank, its keys, its values) for every rank, this one first, while receiving the next pair."""
        rank, ranks = self.mesh.get_local_rank(), self.mesh.size()
        if ranks == 1:
            yield rank, k, v
            return
        message, free = _Message.of(k, v, self._most_tokens), None
        for step in range(ranks):
            owner, transfer = (rank - step) % ranks, None
            if step < ranks - 1:
                transfer = self._shift(message, self.here((owner - 1) % ranks), free)
            yield owner, *message.parts()
            if transfer is not None:
                free, message = message.buffer, transfer.wait()

    def home(self, parts: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """dK and dV of this rank's tokens under context parallelism, summed over the ranks.

        `parts` yields this rank's gradients for the keys and values of each rank, in the order of `around`. Partial
        sums follow their keys around the ring, one step behind, and end on the rank that owns those keys.
        """
        rank, ranks = self.mesh.get_local_rank(), self.mesh.size()
        local_grads: tuple[Tensor, Tensor] | None = None
        transfer: _Transfer | None = None
        for step, (dk, dv) in enumerate(parts):
            if step == 0:
                local_grads = dk, dv
                continue
            if transfer is None:
                free, total = None, _Message.of(dk, dv, self._most_tokens)
            else:
                free, total = transfer.sent.buffer, transfer.wait()
                total.add(dk, dv)
            transfer = self._shift(total, self.here((rank - step - 1) % ranks), free)
        assert local_grads is not None
        if transfer is None:
            return local_grads
        last = transfer.wait().parts()
        return local_grads[0].add_(last[0]), local_grads[1].add_(last[1])

    @property
    def _most_tokens(self) -> int:
        """The largest token count of any rank; a buffer of this size fits the message of every rank."""
        return max(self.here(rank) for rank in range(self.mesh.size()))

    def _shift(self, message: _Message, tokens: int, buffer: Tensor | None) -> _Transfer:
        """Start sending to the next rank and receiving `tokens` tokens from the previous one into `buffer`."""
        rank, ranks, group = self.mesh.get_local_rank(), self.mesh.size(), self.mesh.get_group()
        incoming = _Message(torch.empty_like(message.buffer) if buffer is None else buffer, message.shapes, tokens)
        next_rank, previous_rank = (dist.get_global_rank(group, (rank + offset) % ranks) for offset in (1, -1))
        requests = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, message.used, next_rank, group),
                dist.P2POp(dist.irecv, incoming.used, previous_rank, group),
            ]
        )
        self.sent += message.used.nbytes
        return _Transfer(requests, message, incoming)


@dataclass(frozen=True)
class _Message:
    """Keys and values (or their gradients) of one rank, packed at the start of a flat buffer."""

    buffer: Tensor
    shapes: tuple[tuple[int, int, int], tuple[int, int, int]]
    """(batch, kv_head, dim) of both"""
    tokens: int

    @staticmethod
    def of(k: Tensor, v: Tensor, most: int) -> _Message:
        """Copy `k` and `v` into a new buffer with space for `most` tokens."""
        shapes = (k.shape[0], k.shape[1], k.shape[3]), (v.shape[0], v.shape[1], v.shape[3])
        message = _Message(k.new_empty(sum(b * h * most * d for b, h, d in shapes)), shapes, k.shape[2])
        for part, x in zip(message.parts(), (k, v), strict=True):
            part.copy_(x.detach())
        return message

    @property
    def used(self) -> Tensor:
        """The used part of the buffer, which is sent."""
        return self.buffer[: sum(b * h * self.tokens * d for b, h, d in self.shapes)]

    def parts(self) -> tuple[Tensor, Tensor]:
        """Keys and values of a message between ranks, as views."""
        (batch, heads, key_dim), (_, _, value_dim) = self.shapes
        sizes = [batch * heads * self.tokens * dim for dim in (key_dim, value_dim)]
        k, v = self.used.split(sizes)
        return k.view(batch, heads, self.tokens, key_dim), v.view(batch, heads, self.tokens, value_dim)

    def add(self, k: Tensor, v: Tensor) -> None:
        """Add gradients in place."""
        for part, x in zip(self.parts(), (k, v), strict=True):
            part.add_(x)


@dataclass(frozen=True)
class _Transfer:
    """A pending receive, and the message being sent, whose buffer must outlive the transfer."""

    requests: list[dist.Work]
    sent: _Message
    message: _Message

    def wait(self) -> _Message:
        for request in self.requests:
            request.wait()
        return self.message


def _bounds(tokens: int, count: int, chunk: int) -> tuple[int, int]:
    """(start, stop) of one of `count` chunks of the context; the first ones may be one token longer."""
    size, longer = divmod(tokens, count)
    first = chunk * size + min(chunk, longer)
    return first, first + size + (chunk < longer)
