"""The errors of the library.

Each is both a `SparseFormatsError` and the built-in error that a caller would expect, so that
``except ValueError`` keeps working in code that knows nothing of this library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = [
    "CapacityError",
    "DeviceMismatchError",
    "InvalidTensorError",
    "KernelLoadWarning",
    "LossyConversionError",
    "NoKernelError",
    "PatternError",
    "Problem",
    "SparseFormatsError",
]

SHOWN = 8  # problems spelled out in an error's text; all of them are in `.problems`


class Problem(NamedTuple):
    """One broken rule of a format.

    Attributes
    ----------
    rule : str
        Stable name of the rule, as listed in the format's page of the reference.
    place : str
        Where it broke, for example ``"indices[3]"``.
    value : object
        The value found there.
    message : str
        What was expected and what was found.
    """

    rule: str
    place: str
    value: object
    message: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.place}: {self.message}"


class SparseFormatsError(Exception):
    """Base of all errors that this library defines."""


class InvalidTensorError(SparseFormatsError, ValueError):
    """The arrays do not form a valid matrix; ``problems`` lists every broken rule."""

    def __init__(self, what: str, problems: Sequence[Problem] = ()) -> None:
        self.what = what
        self.problems = tuple(problems)
        lines = [f"{what}: {len(self.problems)} problem{'s' * (len(self.problems) != 1)}"]
        lines += [f"  {p}" for p in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"  and {len(self.problems) - SHOWN} more (see .problems)")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type, tuple[str, tuple[Problem, ...]]]:
        return type(self), (self.what, self.problems)


class PatternError(SparseFormatsError, ValueError):
    """A group holds more non-zeros than an n:m pattern allows."""


class LossyConversionError(SparseFormatsError, ValueError):
    """A conversion cannot keep the content; the text names what would go and how much."""


class DeviceMismatchError(SparseFormatsError, ValueError):
    """Arrays of one call live on different devices."""


class CapacityError(SparseFormatsError, ValueError):
    """A conversion plan has no room for what it found: `needed` are more than `capacity`."""

    def __init__(self, message: str, needed: int, capacity: int) -> None:
        self.message, self.needed, self.capacity = message, needed, capacity
        super().__init__(message)

    def __reduce__(self) -> tuple[type, tuple[str, int, int]]:
        return type(self), (self.message, self.needed, self.capacity)


class NoKernelError(SparseFormatsError, NotImplementedError):
    """No kernel can run the call; ``explanation`` has each kernel's reasons."""

    def __init__(self, message: str, explanation: object = None) -> None:
        self.explanation = explanation
        super().__init__(message)


class KernelLoadWarning(UserWarning):
    """A kernel or a backend could not be loaded and is refused from now on."""
