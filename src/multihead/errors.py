"""One base error, a few kinds; each says both values, the place, and a hint."""

from __future__ import annotations


class MultiheadError(Exception):
    """The base of all errors of this package: what went wrong, with the values, and a hint how to fix it.

    Args:
        message: the fault, with the value that was given.
        hint: what to do about it; shown below the message.

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
    """A dtype, a device or a kind of object that does not fit here."""


class CacheError(MultiheadError, RuntimeError):
    """A cache that cannot take what it was given."""


class AnatomyError(MultiheadError):
    """Weights of heads that could not be found, or that the numbers do not agree with."""


class ModelRunError(MultiheadError, RuntimeError):
    """A model that raised an error in its forward, on inputs that it cannot use."""
