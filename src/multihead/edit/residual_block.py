"""A block of a model: the maps that write into the residual stream, where it is read, and the order of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor

from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError
from multihead.model.call import Call, ragged_rows
from multihead.model.layer_anatomy import LayerAnatomy

Rows = Float[Tensor, "token width"]


@dataclass(frozen=True)
class Tap:
    """A tensor that a module is given, by the position or name of the argument, or the first that it returns."""

    module: str
    side: Literal["input", "output"]
    argument: int | str = 0

    def __str__(self) -> str:
        return f"{self.side} of {self.module}"


@dataclass(frozen=True)
class Writer:
    """A linear map o = W z + b that writes c·o into the residual stream."""

    parameter: str
    tap: Tap | None = None
    """where the stream with o added is read; None if no equation was found"""
    scale: float | Float[Tensor, " width"] = 1.0
    """c: a number, or one for every channel (layer scale)"""
    transposed: bool = False
    """whether the parameter is Wᵀ"""
    token_first: bool = False
    """whether the rows of z and o run over (token, document), as in torch.nn, not over (document, token)"""
    tap_token_first: bool = False

    @property
    def module(self) -> str:
        """The module that holds the parameter."""
        return self.parameter.rpartition(".")[0]


@dataclass(frozen=True)
class Block:
    """One attention and all that runs between the start of its block and the next: its writers, in order."""

    path: str
    """"": the whole model"""
    layer: LayerAnatomy
    writers: tuple[Writer, ...]
    output: Tap | None = None
    """where the stream is read behind the last writer, else what the block returns; None if neither was seen"""
    token_first: bool = False
    """whether the rows of the output run over (token, document)"""


@dataclass(frozen=True)
class TokenLayout:
    """The tokens of one attention: how many, which are real, and which a ragged mask leaves."""

    documents: int
    tokens: int
    valid: Bool[Tensor, "document token"] | None = None
    packed: Bool[Tensor, "document token"] | None = None

    @staticmethod
    def of(call: Call, heads: HeadOutputs) -> TokenLayout:
        return TokenLayout(heads.shape[0], heads.shape[2], call.queries.valid, ragged_rows(call.problem))

    def rows(self, x: Float[Tensor, "*token width"], token_first: bool = False) -> Rows:
        """The real tokens of the stream, document by document."""
        count, flat = x.shape[:-1].numel(), x.reshape(x.shape[:-1].numel(), x.shape[-1])
        if self.valid is not None and self.packed is not None and count == int(self.packed.sum()) + 1:
            return flat[:-1][self.valid[self.packed]]  # W_O reads the real tokens, and one row for all padding
        if count != self.documents * self.tokens:
            if self.valid is None or bool(self.valid.all()):
                return flat
            raise MultiheadError(
                f"{count} rows went through a linear map, "
                f"{self.documents} × {self.tokens} tokens through the attention",
                hint="padding cannot be distinguished from text; pass documents of one length, or one at a time",
            )
        if token_first:
            flat = flat.view(self.tokens, self.documents, -1).transpose(0, 1).flatten(0, 1)
        return flat if self.valid is None else flat[self.valid.reshape(-1)]
