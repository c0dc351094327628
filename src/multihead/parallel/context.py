"""Context parallelism: the tokens of one sequence over several ranks, attention exact.

>>> import torch.distributed as dist
>>> import multihead as mh
>>> from multihead import mask, position
>>> from torch.distributed.device_mesh import init_device_mesh
>>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # torchrun does this for many
>>> attn, x = mh.MultiHeadAttention(24, 6, position=position.Rotary()), torch.randn(2, 7, 24)
>>> spread = mh.context_parallel(init_device_mesh("cpu", (1,)), tokens=7)
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
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError, SizeError
from multihead.layer.apart import begin, end
from multihead.layer.problem import Problem
from multihead.layer.share import joined, local
from multihead.parallel.ring import Chunk, ring_attend


def context_parallel(mesh: DeviceMesh, tokens: int) -> ContextParallel:
    """A block in which our layers attend over a sequence of `tokens` tokens, spread over the ranks of a 1-D mesh.

    Every rank calls the model with its own tokens, `block.split(x)`. Masks speak of the whole sequence, as in one
    process: `mask.lengths` has whole lengths. Keys and values go around the ranks, with fp64 results equal to one
    process to 1e-10; a rank holds 1/ranks of everything. Parameters get the gradient of this rank's tokens:
    `block.sum_gradients(model.parameters())` makes it that of all.
    """
    ranks = mesh.size()
    if mesh.ndim != 1:
        raise SizeError(
            f"the mesh has {mesh.ndim} dimensions, {tuple(mesh.shape)}",
            hint='slice it: mh.context_parallel(mesh["context"], tokens)',
        )
    if tokens < 2 * ranks:
        raise SizeError(
            f"{tokens} tokens cannot be spread over {ranks} ranks in 2 x {ranks} chunks",
            hint=f"use at most {max(1, tokens // 2)} ranks, or at least {2 * ranks} tokens",
        )
    return ContextParallel(mesh, tokens)


@dataclass
class ContextParallel:
    """2·ranks chunks of a sequence; rank r has chunk r and chunk 2·ranks−1−r.

    Under a causal mask early queries see few keys and late ones many: paired like this every rank has the same work
    (the zig-zag order of ring attention; cf. Brandon et al. 2023, Striped Attention).
    """

    mesh: DeviceMesh
    tokens: int
    ran: int = 0
    """attentions that ran in the block"""
    sent: int = 0
    """bytes of keys, values and their gradients that this rank has sent"""

    # ---- the block ----------------------------------------------------------------------------

    def __enter__(self) -> ContextParallel:
        begin(self)
        self.ran = 0
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        end()
        if kind is None and not self.ran:
            raise MultiheadError(
                f"no attention layer of ours ran in the block, which is for {self.tokens} tokens "
                f"over {self.mesh.size()} ranks",
                hint="others attend to the tokens of their own rank only; for models on torch's kernel see "
                "torch.distributed.tensor.experimental.context_parallel",
            )

    def attend(self, problem: Problem) -> HeadOutputs:
        """softmax(scores) v of the queries here over the keys of all ranks."""
        if problem.scores.dropout:
            raise MultiheadError(
                f"dropout={problem.scores.dropout:g} on weights that are spread over {self.mesh.size()} ranks",
                hint="dropout=0.0, or model.eval()",
            )
        self.ran += 1
        return ring_attend(problem, self)

    # ---- who has which tokens -----------------------------------------------------------------

    def chunks(self, rank: int | None = None) -> list[Chunk]:
        """(first place, one past the last, where it begins on its rank) of the two chunks of a rank."""
        rank, ranks = self.mesh.get_local_rank() if rank is None else rank, self.mesh.size()
        early, late = (_bounds(self.tokens, 2 * ranks, chunk) for chunk in (rank, 2 * ranks - 1 - rank))
        return [(*early, 0), (*late, early[1] - early[0])]

    def here(self, rank: int | None = None) -> int:
        """How many tokens a rank has; this one, by default."""
        return sum(last - first for first, last, _ in self.chunks(rank))

    def places(self, here: int | None = None) -> Int[Tensor, " token"]:
        """Where the tokens of this rank stand in the sequence."""
        if here is not None and here != self.here():
            raise SizeError(
                f"this rank has {self.here()} of {self.tokens} tokens, the layer got {here}",
                hint="x = block.split(x) gives a rank its tokens",
            )
        device = torch.device(self.mesh.device_type)
        return torch.cat([torch.arange(first, last, device=device) for first, last, _ in self.chunks()])

    def split(self, x: Tensor, dim: int = 1) -> Tensor:
        """The tokens of this rank, of a tensor that holds all along `dim`."""
        if x.shape[dim] != self.tokens:
            raise SizeError(
                f"x of shape {tuple(x.shape)} has {x.shape[dim]} tokens along dim {dim}, the block {self.tokens}",
                hint="mh.context_parallel(mesh, tokens=x.shape[dim])",
            )
        return torch.cat([x.narrow(dim, first, last - first) for first, last, _ in self.chunks()], dim)

    def join(self, x: Tensor, dim: int = 1) -> Tensor:
        """All tokens on every rank, in order, of a tensor that holds those of this rank along `dim`."""
        self.places(x.shape[dim])
        dim %= x.ndim
        whole = x.new_zeros(*x.shape[:dim], self.tokens, *x.shape[dim + 1 :])
        return joined(whole.index_copy(dim, self.places().to(x.device), x), self.mesh)

    @torch.no_grad()
    def sum_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Each parameter's gradient becomes the sum over the ranks: that of all tokens."""
        for p in parameters:
            if p.requires_grad:
                if p.grad is None:
                    p.grad = torch.zeros_like(p)
                dist.all_reduce(local(p.grad), group=self.mesh.get_group())

    # ---- from rank to rank --------------------------------------------------------------------

    def around(self, k: Tensor, v: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        """(rank, its keys, its values) for every rank, this one first; the next ones travel while one is used."""
        rank, ranks = self.mesh.get_local_rank(), self.mesh.size()
        if ranks == 1:
            yield rank, k, v
            return
        held, spare = _Message.of(k, v, self._most), None
        for step in range(ranks):
            owner, coming = (rank - step) % ranks, None
            if step < ranks - 1:
                coming = self._pass_on(held, self.here((owner - 1) % ranks), spare)
            yield owner, *held.parts()
            if coming is not None:
                spare, held = held.room, coming.wait()

    def home(self, parts: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """dK and dV of this rank's tokens, from what every rank gives to those of each in the order of `around`.

        Sums travel with the keys they belong to, one step behind, and end where these began.
        """
        rank, ranks = self.mesh.get_local_rank(), self.mesh.size()
        own: tuple[Tensor, Tensor] | None = None
        coming: _Coming | None = None
        for step, (dk, dv) in enumerate(parts):
            if step == 0:
                own = dk, dv
                continue
            if coming is None:
                spare, total = None, _Message.of(dk, dv, self._most)
            else:
                spare, total = coming.sent.room, coming.wait()
                total.add(dk, dv)
            coming = self._pass_on(total, self.here((rank - step - 1) % ranks), spare)
        assert own is not None
        if coming is None:
            return own
        last = coming.wait().parts()
        return own[0].add_(last[0]), own[1].add_(last[1])

    @property
    def _most(self) -> int:
        """The tokens of the rank that has most: a room for them takes the message of any."""
        return max(self.here(rank) for rank in range(self.mesh.size()))

    def _pass_on(self, message: _Message, tokens: int, room: Tensor | None) -> _Coming:
        """Send a message to the next rank, while the previous one sends that of so many tokens into `room`."""
        rank, ranks, group = self.mesh.get_local_rank(), self.mesh.size(), self.mesh.get_group()
        coming = _Message(torch.empty_like(message.room) if room is None else room, message.shapes, tokens)
        to, of = (dist.get_global_rank(group, (rank + turn) % ranks) for turn in (1, -1))
        work = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, message.used, to, group), dist.P2POp(dist.irecv, coming.used, of, group)]
        )
        self.sent += message.used.nbytes
        return _Coming(work, message, coming)

    def wire_bytes(
        self, batch: int, kv_heads: int, key_dim: int, value_dim: int, dtype: torch.dtype, *, backward: bool = False
    ) -> int:
        """Bytes that this rank sends for one layer.

        (ranks − 1) · batch · kv_heads · (key_dim + value_dim) · tokens / ranks · bytes of a number. Backward, keys
        and values go around again, and with them their gradients, in at least fp32.
        """
        rank, ranks = self.mesh.get_local_rank(), self.mesh.size()
        number = batch * kv_heads * (key_dim + value_dim)
        keys = sum(self.here((rank - step) % ranks) for step in range(ranks - 1))
        gradients = sum(self.here((rank - step) % ranks) for step in range(1, ranks))
        if not backward:
            return number * keys * dtype.itemsize
        return number * (keys * dtype.itemsize + gradients * torch.promote_types(dtype, torch.float32).itemsize)


@dataclass(frozen=True)
class _Message:
    """Keys and values (or their gradients) of one rank side by side, at the beginning of a flat room."""

    room: Tensor
    shapes: tuple[tuple[int, int, int], tuple[int, int, int]]
    """(batch, kv_head, dim) of both"""
    tokens: int

    @staticmethod
    def of(k: Tensor, v: Tensor, most: int) -> _Message:
        """Copied into a new room, in which there is place for `most` tokens."""
        shapes = (k.shape[0], k.shape[1], k.shape[3]), (v.shape[0], v.shape[1], v.shape[3])
        made = _Message(k.new_empty(sum(b * h * most * d for b, h, d in shapes)), shapes, k.shape[2])
        for part, x in zip(made.parts(), (k, v), strict=True):
            part.copy_(x.detach())
        return made

    @property
    def used(self) -> Tensor:
        """What is sent."""
        return self.room[: sum(b * h * self.tokens * d for b, h, d in self.shapes)]

    def parts(self) -> tuple[Tensor, Tensor]:
        """Keys and values, as views."""
        (batch, heads, key_dim), (_, _, value_dim) = self.shapes
        sizes = [batch * heads * self.tokens * dim for dim in (key_dim, value_dim)]
        k, v = self.used.split(sizes)
        return k.view(batch, heads, self.tokens, key_dim), v.view(batch, heads, self.tokens, value_dim)

    def add(self, k: Tensor, v: Tensor) -> None:
        """Take in more."""
        for part, x in zip(self.parts(), (k, v), strict=True):
            part.add_(x)


@dataclass(frozen=True)
class _Coming:
    """A message on its way here, and the one that was sent, which must live as long."""

    work: list[dist.Work]
    sent: _Message
    message: _Message

    def wait(self) -> _Message:
        for work in self.work:
            work.wait()
        return self.message


def _bounds(tokens: int, count: int, chunk: int) -> tuple[int, int]:
    """Where one of `count` chunks begins and ends; the first ones are one longer where they cannot be equal."""
    size, more = divmod(tokens, count)
    first = chunk * size + min(chunk, more)
    return first, first + size + (chunk < more)
