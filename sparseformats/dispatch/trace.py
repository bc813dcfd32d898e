"""Which kernels ran: a record of calls within a ``with`` block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple

from sparseformats.dispatch.query import Query

__all__ = ["Run", "Trace", "is_tracing", "record_run", "tracing"]


class Run(NamedTuple):
    """One run of one kernel.

    Attributes
    ----------
    op, kernel : str
        Operation and kernel.
    query : Query or None
        Facts of the call; None where a prepared plan ran, which has no need of them.
    seconds : float or None
        Time until the call returned (a device may still be working), where it was taken.
    """

    op: str
    kernel: str
    query: Query | None = None
    seconds: float | None = None

    def __str__(self) -> str:
        text = f"{self.op}: {self.kernel}"
        return text if self.seconds is None else f"{text}, {self.seconds * 1e6:,.1f} us"


@dataclass(slots=True)
class Trace:
    """The runs within a `tracing` block, in order. Print it, iterate over it, index it."""

    runs: list[Run] = field(default_factory=list)

    @property
    def kernels(self) -> list[str]:
        """Names of the kernels that ran, in order."""
        return [run.kernel for run in self.runs]

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, index: int) -> Run:
        return self.runs[index]

    def __str__(self) -> str:
        return "\n".join(map(str, self.runs)) or "no kernel ran"


_active: ContextVar[tuple[Trace, ...]] = ContextVar("sparseformats_tracing", default=())


@contextmanager
def tracing() -> Iterator[Trace]:
    """Record which kernels run within the block, in this thread or task.

    Blocks may be nested; each records all that runs within it.

    Examples
    --------
    >>> with tracing() as trace:
    ...     record_run("matmul", "reference")
    >>> print(trace)
    matmul: reference
    """
    trace = Trace()
    token = _active.set((*_active.get(), trace))
    try:
        yield trace
    finally:
        _active.reset(token)


def is_tracing() -> bool:
    """Tell whether someone listens: only then a call need be timed."""
    return bool(_active.get())


def record_run(
    op: str, kernel: str, query: Query | None = None, seconds: float | None = None
) -> None:
    """Tell all open `tracing` blocks that a kernel ran."""
    for trace in _active.get():
        trace.runs.append(Run(op, kernel, query, seconds))
