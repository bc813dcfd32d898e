"""Working on the device where the arrays are, in a library that computes on the current one only.

torch finds the device of each tensor by itself, NumPy has one. CuPy launches on the current
device, so each front door of this library makes the device of its operands the current one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

__all__ = ["placed", "switching"]

F = TypeVar("F", bound=Callable[..., Any])

switching: dict[str, Any] = {}
"""The loaded libraries that compute on the current device only, by name."""


def placed(function: F) -> F:
    """Run a function on the device of its first argument that has one.

    Arguments are arrays, matrices (things with an array as ``data``, or a tuple of such things as
    ``parts``), or lists that begin with one.
    Where no library that needs it is loaded, this is one look at an empty dict.
    """

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if not switching:
            return function(*args, **options)
        found = _first((*args, *options.values()))
        if found is None:
            return function(*args, **options)
        lib, x = found
        with lib.on(lib.device(x)):
            return function(*args, **options)

    return cast("F", call)


def _first(arguments: Any) -> tuple[Any, Any] | None:
    for argument in arguments:
        parts = getattr(argument, "parts", argument)
        if isinstance(parts, list | tuple):
            found = _first(parts[:1])
            if found is not None:
                return found
            continue
        for x in (argument, getattr(argument, "data", None)):
            for lib in switching.values():
                if lib.owns(x):
                    return lib, x
    return None
