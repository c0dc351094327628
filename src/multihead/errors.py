"""One base error, a few kinds; each says both values, the place, and a hint."""

from __future__ import annotations


class MultiheadError(Exception):
    """What went wrong, with both values and the place, then what to do about it."""

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
