"""Kernels that the user asks for by name: an argument, a context, an environment variable."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from sparseformats.dispatch.registry import REGISTRY

__all__ = ["ENVIRONMENT", "Forced", "forced_by", "state", "use_kernel"]

ENVIRONMENT = "SPARSEFORMATS_KERNEL"

_stack: ContextVar[tuple[tuple[str, str | None], ...]] = ContextVar(
    "sparseformats_use_kernel", default=()
)  # (name, operation or None) from the outermost block to the innermost
_environment: str | None = None  # None: not read yet, "": not set


class Forced(NamedTuple):
    """A kernel asked for by name, and where."""

    name: str
    source: str


@contextmanager
def use_kernel(name: str, op: str | None = None) -> Iterator[None]:
    """Use one kernel within a ``with`` block, in this thread or task only.

    It applies to every operation that has a kernel of that name; other operations choose as usual.
    An inner block wins over an outer one.

    Parameters
    ----------
    name : str
        A name that `kernels` lists.
    op : str or None
        Apply to this operation only.

    Raises
    ------
    ValueError
        No (such) operation has a kernel of that name.
    """
    _check_known(name, op, "use_kernel")
    token = _stack.set((*_stack.get(), (name, op)))
    try:
        yield
    finally:
        _stack.reset(token)


def state() -> tuple[tuple[str, str | None], ...]:
    """Return the open `use_kernel` blocks, as a part of cache keys."""
    return _stack.get()


def forced_by(op: str, kernel: str | None) -> Forced | None:
    """Find the kernel asked for in this call of `op`: by argument, context or environment.

    Raises
    ------
    ValueError
        The argument names no kernel of `op`, or the environment variable no kernel at all.
    """
    if kernel is not None:
        _check_known(kernel, op, "kernel=")
        return Forced(kernel, "kernel=")
    names = {record.name for record in REGISTRY.records(op)}
    for name, only in reversed(_stack.get()):
        if name in names and only in (None, op):
            return Forced(name, "use_kernel")
    name = _from_environment()
    if not name:
        return None
    if name not in names:
        _check_known(name, None, ENVIRONMENT)  # a kernel of another operation is not a mistake
        return None
    return Forced(name, ENVIRONMENT)


def _from_environment() -> str:
    global _environment  # noqa: PLW0603 - read once by contract
    if _environment is None:
        _environment = os.environ.get(ENVIRONMENT, "").strip()
    return _environment


def _check_known(name: str, op: str | None, source: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{source}: expected a kernel's name, got {type(name).__name__}")
    names = sorted({record.name for record in REGISTRY.records(op)})
    if name not in names:
        raise ValueError(_unknown(name, names, op, source))


def _unknown(name: str, names: list[str], op: str | None, source: str) -> str:
    import difflib  # only ever for this message

    where = "" if op is None else f" of {op!r}"
    parts = [f"{source}: expected the name of a kernel{where}, got {name!r}"]
    others = sorted({record.op for record in REGISTRY.records() if record.name == name})
    if others:
        parts.append(f"which is a kernel of {', '.join(map(repr, others))}")
    close = difflib.get_close_matches(name, names, n=3)
    if close:
        parts.append(f"did you mean {' or '.join(map(repr, close))}?")
    parts.append(f"known: {', '.join(names) or 'none'}")
    if REGISTRY.refusals(op):
        parts.append("some kernels could not be registered, see sparseformats.kernels()")
    return "; ".join(parts)
