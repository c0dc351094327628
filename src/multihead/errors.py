"""The errors of the package. Each message names the values and the location, and ends with a hint."""

from __future__ import annotations

__all__ = ["MultiheadError", "SizeError", "TypeMismatchError", "CacheError", "AnatomyError", "ModelRunError"]


def __dir__() -> list[str]:
    return sorted(__all__)


class MultiheadError(Exception):
    """The base of all errors of this package: the fault, the values and a hint on how to fix it.

    Args:
        message: the fault, with the value passed.
        hint: how to fix it; shown below the message.

    >>> import multihead as mh
    >>> try:
    ...     mh.MultiHeadAttention(96, 7)
    ... except mh.MultiheadError as error:
    ...     print(type(error).__name__, "-", error.hint)
    SizeError - ...
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\n\nhint: {hint}")
        self.message = message
        self.hint = hint


class SizeError(MultiheadError, ValueError):
    """Sizes or shapes that do not fit together."""


class TypeMismatchError(MultiheadError, TypeError):
    """A dtype, device or type of object that is not accepted."""


class CacheError(MultiheadError, RuntimeError):
    """A cache that cannot store the keys and values it got, or cannot be used in this call."""


class AnatomyError(MultiheadError):
    """Head weights that were not found, or that do not reproduce the values of a run."""


class ModelRunError(MultiheadError, RuntimeError):
    """A model whose forward raised an error on its inputs."""
