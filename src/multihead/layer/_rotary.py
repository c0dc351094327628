"""Rotary position embedding: each pair of dimensions is rotated by an angle that grows with the position."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from multihead._base.arguments import (
    check_flag,
    check_instance,
    check_number,
    check_tensor,
    describe,
    holds_integers,
)
from multihead._base.recent import Recent
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer._host_integers import HostInts
from multihead.layer._rope_scaling import DynamicNTK, Scaling, exactly, frequencies, to_float32
from multihead.layer._tracing import is_compiling

# Factors of larger positions are computed in each call; a table of this length is 32 MB for 64 dimensions.
TABLE_LIMIT = 65_536
# Elements of a block that fits the second-level cache during the three passes over it.
BLOCK = 2**17


class Factors(NamedTuple):
    """cos pθ and sin pθ of some tokens: packed for `_apply_rotary`, with its halves; or unpacked, for tracers."""

    packed: Tensor | None
    cos: Tensor | None
    sin: Tensor | None


class Rotary(nn.Module):
    """(a, b) → (a cos pθ − b sin pθ, b cos pθ + a sin pθ) for each pair of dimensions at position p.

    RoPE (Su et al. 2021): q·k then depends only on the distance of the two positions. A pair is (i, i + dim/2) as
    in Llama and GPT-NeoX, or (2i, 2i + 1) as in GPT-J if `interleaved`. Only the first `dim` of the head's
    dimensions rotate, or that fraction of them if `dim` is a float.

    `angle_dtype` is the dtype of p·θ; if None, that of the input, at least float32. With float32 the angles are
    those of transformers (for some sizes a frequency or two differs in its last bit); float64 keeps large positions
    exact: within 4096 positions the two differ by up to 4e-4 radians. Half-precision input is rotated in float32
    and rounded once.

    It has no buffers, so the meta device and `.half()` cannot change the rotation.

    >>> q = torch.randn(2, 12, 5, 64)
    >>> Rotary()(q, torch.arange(5)).shape
    torch.Size([2, 12, 5, 64])
    """

    def __init__(
        self,
        base: float = 10_000.0,
        *,
        interleaved: bool = False,
        dim: int | float | None = None,
        scaling: Scaling | None = None,
        angle_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_number("base", base, above=1.0)
        check_flag("interleaved", interleaved)
        if dim is not None:
            check_number("dim", dim, above=0.0)
        if isinstance(dim, float) and dim > 1:
            raise SizeError(
                f"dim must be an integer, or a fraction in (0, 1], got {dim}",
                hint=f"for {int(dim)} dimensions write dim={int(dim)}",
            )
        if isinstance(dim, int) and dim % 2:
            raise SizeError(f"dim must be even, got {dim}: dimensions rotate in pairs", hint=f"choose {dim + 1}")
        if scaling is not None:
            check_instance(
                "scaling", scaling, Scaling, "a scaling object", hint="scaling=position.Linear(2.0), for example"
            )
        if angle_dtype not in (None, torch.float32, torch.float64):
            raise TypeMismatchError(
                f"angle_dtype must be float32 or float64, got {angle_dtype!r}",
                hint="choose torch.float32 or torch.float64",
            )
        self.base = float(base)
        self.interleaved = interleaved
        self.dim = dim
        self.scaling = scaling
        self.angle_dtype = angle_dtype

    def extra_repr(self) -> str:
        parts = [f"base={self.base:g}"]
        parts += ["interleaved"] if self.interleaved else []
        options = {"dim": self.dim, "scaling": self.scaling, "angle_dtype": self.angle_dtype}
        parts += [f"{name}={value}" for name, value in options.items() if value is not None]
        return ", ".join(parts)

    def rotated(self, head_dim: int) -> int:
        """The number of rotated dimensions of a head of size `head_dim`."""
        dim = int(head_dim * self.dim) if isinstance(self.dim, float) else self.dim
        if dim is None:
            dim = head_dim
        if dim > head_dim:
            raise SizeError(
                f"rotary dim must be at most head_dim={head_dim}, got dim={dim}", hint=f"choose dim <= {head_dim}"
            )
        if dim < 2 or dim % 2:
            raise SizeError(
                f"rotary dim must be even and at least 2, got dim={dim} of head_dim={head_dim}",
                hint=f"choose an even head_dim, or rotate part of it: dim={max(2, dim - 1)}",
            )
        return dim

    def forward(
        self,
        x: Float[Tensor, "batch head token key_dim"],
        positions: Int[Tensor, " token"] | Int[Tensor, "#batch token"] | int = 0,
        length: int | Int[Tensor, ""] | None = None,
    ) -> Float[Tensor, "batch head token key_dim"]:
        """Rotate each token by its position.

        An int is the first of consecutive positions; this form is the fastest, as no tensor has to be read.
        `length` is the length of the sequence, for scalings that depend on it; by default the last position + 1.
        """
        check_tensor("x", x)
        if not isinstance(positions, int | torch.SymInt):
            _check_positions(x, positions)
            positions = positions.long()
        return self.rotate(x, self.factors(x, positions, length))

    def factors(self, x: Tensor, positions: Tensor | int = 0, length: Tensor | int | None = None) -> Factors:
        """The factors that rotate x and every other tensor with the same positions."""
        dim = self.rotated(x.shape[-1])
        # Tracers and tensor subclasses get plain operations, and their tensors are not cached.
        if is_compiling() or type(x) not in (Tensor, nn.Parameter) or x.numel() == 0:
            return Factors(None, *self._angles(x, positions, dim, length))
        packed = self._packed(x, positions, dim, length)
        return Factors(packed, None, None) if self.interleaved else Factors(packed, *packed.unbind(0))

    def rotate(self, x: Tensor, factors: Factors) -> Tensor:
        """x with each pair of dimensions rotated."""
        if x.numel() == 0:
            return x
        if factors.packed is None:
            assert factors.cos is not None
            assert factors.sin is not None
            return _rotate_unpacked(x, factors.cos, factors.sin, interleaved=self.interleaved)
        return _apply_rotary(x, factors)

    @property
    def needs_length(self) -> bool:
        """Whether the rotation depends on the length of the sequence."""
        return isinstance(self.scaling, DynamicNTK)

    def _packed(self, x: Tensor, positions: Tensor | int, dim: int, length: Tensor | int | None) -> Tensor:
        """The packed factors of `_apply_rotary`, from a table if possible."""
        if self.needs_length and self._stretches(length):
            return _pack(*self._angles(x, positions, dim, length), interleaved=self.interleaved)
        start = positions if isinstance(positions, int) else consecutive_from(positions)
        if start is not None:
            stop = start + x.shape[-2]
            if start >= 0 and (table := self._table(stop, x, dim)) is not None:
                return table[..., start:stop, :]
            positions = start
        elif isinstance(positions, Tensor) and positions.device.type == "cpu" == x.device.type:
            smallest, largest = (int(end) for end in positions.aminmax())
            if smallest >= 0 and (table := self._table(largest + 1, x, dim)) is not None:
                rows = table[..., positions, :]
                return rows if positions.dim() == 1 else rows.unsqueeze(-3)  # the head axis
        return _pack(*self._angles(x, positions, dim, length), interleaved=self.interleaved)

    def _stretches(self, length: Tensor | int | None) -> bool:
        """Whether this length changes the rotary frequencies; True if the length is on the device."""
        if length is None or not isinstance(self.scaling, DynamicNTK):
            return False
        return isinstance(length, Tensor) or length > self.scaling.original

    def _table(self, stop: int, x: Tensor, dim: int) -> Tensor | None:
        """Packed rotary factors of positions 0..stop-1 or more; None if too large or dependent on the length."""
        if stop > TABLE_LIMIT or (isinstance(self.scaling, DynamicNTK) and stop > self.scaling.original):
            return None
        key = (self.base, dim, self.scaling, self.angle_dtype, self.interleaved, _working_dtype(x.dtype), x.device)
        try:
            table = _TABLES.get(key)
        except TypeError:  # a custom scaling may not be hashable
            return None
        if table is None or table.shape[-2] < stop:
            rows = max(256, 1 << (stop - 1).bit_length())  # doubling, so decoding rarely rebuilds it
            if isinstance(self.scaling, DynamicNTK):
                rows = min(rows, self.scaling.original)
            # A backward pass could not save a tensor created in inference mode.
            with torch.inference_mode(False), torch.no_grad():
                like = torch.empty((1, 1, rows, 0), dtype=x.dtype, device=x.device)
                table = _pack(*self._angles(like, 0, dim, None), interleaved=self.interleaved)
            if type(table) is Tensor:  # not a fake tensor of some mode
                _TABLES.put(key, table)
        return table

    def _angles(
        self, x: Tensor, positions: Tensor | int, dim: int, length: Tensor | int | None
    ) -> tuple[Tensor, Tensor]:
        """Rotary cos pθ and sin pθ times the scaling's gain, each (token, dim/2) or (batch, 1, token, dim/2)."""
        working = _working_dtype(x.dtype)
        angle_dtype = self.angle_dtype or working
        if isinstance(positions, int):
            positions = torch.arange(positions, positions + x.shape[-2], device=x.device)
        positions = positions.to(x.device)
        angle = positions[..., None].to(angle_dtype) * self._frequencies(dim, positions, angle_dtype, length)
        gain = 1.0 if self.scaling is None else self.scaling.gain
        cos, sin = (angle.cos() * gain).to(working), (angle.sin() * gain).to(working)
        return (cos, sin) if positions.dim() == 1 else (cos.unsqueeze(1), sin.unsqueeze(1))

    def _frequencies(self, dim: int, positions: Tensor, dtype: torch.dtype, length: Tensor | int | None) -> Tensor:
        """The rotary frequency θ of each pair of dimensions."""
        rounded = to_float32 if dtype == torch.float32 else exactly
        scaled = frequencies if self.scaling is None else self.scaling.frequencies
        theta = torch.tensor(scaled(self.base, dim, rounded), dtype=dtype, device=positions.device)
        if isinstance(self.scaling, DynamicNTK):
            length = positions.max() + 1 if length is None else torch.as_tensor(length, device=positions.device)
            theta = theta * self.scaling.stretch(length, dim).to(dtype)
        return theta


_TABLES = Recent[Tensor](8)
"""Shared by all layers with the same rotation."""


def _working_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the rotation: float64 for float64, float32 for all others."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def consecutive_from(positions: Tensor) -> int | None:
    """The first position if positions to rotate by are consecutive and equal in all rows; or if unknown, None."""
    if positions.device.type != "cpu" or type(positions) is not Tensor or positions.numel() == 0:
        return None
    if positions.dim() == 2:
        if positions.shape[0] > 1 and positions.stride(0) != 0:
            return None
        positions = positions[0]
    first, n = int(positions[0]), positions.shape[0]
    if n > 1 and not torch.equal(positions, torch.arange(first, first + n, dtype=positions.dtype)):
        return None
    return first


def sequence_length(
    queries: tuple[Tensor, Tensor | int],
    keys: tuple[Tensor, Tensor | int],
    lengths: HostInts | None,
    tokens: int | None = None,
) -> int | Int[Tensor, ""]:
    """The length of the sequence for rotary scaling: the last position + 1, without the padding of `ragged`.

    `tokens` is the length of a sequence split over ranks; one rank sees only some of its positions.
    """
    if tokens is not None:
        if lengths is None:
            return tokens
        return max(lengths.values, default=0) if lengths.on_host else lengths.tensor(queries[0].device).amax()
    ends = [_end(x, positions, lengths) for x, positions in (queries, keys)]
    if all(isinstance(end, int) for end in ends):
        return max(ends)
    return torch.stack([torch.as_tensor(end, device=queries[0].device) for end in ends]).amax()


def _end(x: Tensor, positions: Tensor | int, lengths: HostInts | None) -> int | Tensor:
    """The last position + 1 of the tokens that rotary embeddings rotate."""
    tokens = x.shape[2]
    if isinstance(positions, int):
        if lengths is None:
            return positions + tokens
        return positions + (max(lengths.values, default=0) if lengths.on_host else lengths.tensor(x.device).amax())
    if positions.numel() == 0 or x.shape[0] == 0:
        return 0
    if lengths is None:
        return positions.to(x.device).max() + 1
    real = torch.arange(tokens, device=x.device) < lengths.tensor(x.device)[:, None]
    return torch.where(real, positions.to(x.device), -1).max() + 1


def _check_positions(x: Tensor, positions: Tensor) -> None:
    """Raise unless the rotary embedding gets one integer position per token."""
    if not isinstance(positions, Tensor) or not holds_integers(positions):  # pyright: ignore[reportUnnecessaryIsInstance]  # users
        raise TypeMismatchError(
            f"positions must be a tensor of integers or an int, got {describe(positions)}",
            hint="count tokens: torch.arange(tokens)",
        )
    batch, tokens = x.shape[0], x.shape[-2]
    rows = positions.shape[0] if positions.dim() == 2 else 1
    if positions.dim() not in (1, 2) or positions.shape[-1] != tokens or rows not in (1, batch):
        raise SizeError(
            f"positions of shape {tuple(positions.shape)} do not fit batch={batch}, tokens={tokens}",
            hint=f"pass ({tokens},) or ({batch}, {tokens})",
        )


# ---- the rotation ---------------------------------------------------------------------------------


def _rotate_unpacked(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool) -> Tensor:
    """The rotation in plain operations, for compilers and exporters."""
    dim = 2 * cos.shape[-1]
    head = x[..., :dim].to(cos.dtype)
    a, b = (head[..., 0::2], head[..., 1::2]) if interleaved else head.chunk(2, dim=-1)
    pair = (a * cos - b * sin, b * cos + a * sin)
    rotated = torch.stack(pair, dim=-1).flatten(-2) if interleaved else torch.cat(pair, dim=-1)
    rotated = rotated.to(x.dtype)
    return rotated if dim == x.shape[-1] else torch.cat((rotated, x[..., dim:]), dim=-1)


def _pack(cos: Tensor, sin: Tensor, *, interleaved: bool) -> Tensor:
    """Rotary factors: cos + i sin if interleaved, else (cos, cos) for x and (−sin, sin) for swapped halves."""
    if interleaved:
        return torch.complex(cos, sin)
    return torch.stack((torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)))


def _apply_rotary(x: Tensor, factors: Factors) -> Tensor:
    """The rotation in eager mode: few passes over memory if x is large, few operations if it is small."""
    packed, width, dtype = factors.packed, x.shape[-1], x.dtype
    assert packed is not None
    dim = packed.shape[-1] * (2 if factors.cos is None else 1)
    working = _working_dtype(dtype)
    exact = x if dtype == working else x.to(working)
    head = exact if dim == width else exact[..., :dim]
    if x.numel() > BLOCK:
        out = _apply(head, packed)
    elif factors.cos is None or factors.sin is None:
        out = _rotate_pairs(head, packed)
    else:
        out = torch.addcmul(head * factors.cos, head.roll(dim // 2, -1), factors.sin)
    if dim < width:
        out = torch.cat((out, exact[..., dim:]), dim=-1)
    return out if dtype == working else out.to(dtype)


def _rotate_pairs(x: Tensor, packed: Tensor) -> Tensor:
    """The rotation of adjacent pairs, as one multiplication of complex numbers."""
    if x.stride(-1) != 1 or x.storage_offset() % 2 or any(step % 2 for step in x.stride()[:-1]):
        x = x.contiguous()  # a complex view needs whole pairs
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * packed).flatten(-2)


def _rotate_halves(x: Tensor, packed: Tensor) -> Tensor:
    """The rotation of halves in blocks of tokens, which stay in the CPU cache for all three passes."""
    cos, sin = packed.unbind(0)
    half = cos.shape[-1] // 2
    out = torch.empty_like(x)
    tokens = max(1, BLOCK * x.shape[-2] // x.numel())
    for source, target, c, s in zip(*(t.split(tokens, dim=-2) for t in (x, out, cos, sin)), strict=True):
        torch.mul(source, c, out=target)
        target[..., :half].addcmul_(source[..., half:], s[..., :half])
        target[..., half:].addcmul_(source[..., :half], s[..., half:])
    return out


def _apply(x: Tensor, packed: Tensor) -> Tensor:
    out: Tensor = _Rotation.apply(x, packed)  # pyright: ignore[reportAssignmentType]
    return out


class _Rotation(torch.autograd.Function):
    """The rotation and its derivative: the map is linear, so the gradient is rotated by −θ."""

    @staticmethod
    def forward(x: Tensor, packed: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _rotate_pairs(x, packed) if packed.is_complex() else _rotate_halves(x, packed)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.save_for_forward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (packed,) = ctx.saved_tensors
        back = packed.conj_physical() if packed.is_complex() else torch.stack((packed[0], -packed[1]))
        return _apply(grad, back), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _apply(tangent, *ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], x: Tensor, packed: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        # The new axis joins the heads, over which `packed` broadcasts.
        x = x.movedim(in_dims[0], 1)
        return _apply(x.flatten(1, 2), packed).unflatten(1, x.shape[1:3]), 1
