"""Work on several cores: NumPy lets go of the interpreter's lock while it multiplies.

BLAS has threads of its own, which meet at the end of each call. Where calls are many and small and
the machine is busy, the meetings cost more than the work: a thread that lost its core holds up all
others for a time slice, thousands of times. So small products are kept below the size from which
BLAS uses threads, and whole tasks are spread here instead: whoever is free takes the next one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, Generic, TypeVar

__all__ = ["share", "workers"]

T = TypeVar("T")

_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")

_pool: ThreadPoolExecutor | None = None
_lock = Lock()


def workers() -> int:
    """Threads that may work at once: this process's cores, or fewer if the user says so to BLAS."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    said = (os.environ.get(name, "").partition(",")[0].strip() for name in _VARIABLES)
    return max(1, min([cores or 1, *(int(text) for text in said if text.isdigit() and int(text))]))


def share(work: Callable[[Iterator[T]], None], tasks: Iterable[T], count: int) -> None:
    """Let up to `count` threads, this one among them, do `work` on tasks that they draw.

    Parameters
    ----------
    work : callable
        Takes an iterator and goes through it; called once in each thread.
    tasks : iterable
        What the iterators give, each task to one thread.
    """
    source = _Source(tasks)
    if count < 2:
        work(source)
        return
    helpers = [_executor().submit(work, source) for _ in range(count - 1)]
    try:
        work(source)
    finally:
        running = [helper for helper in helpers if not helper.cancel()]
        errors = [error for error in (helper.exception() for helper in running) if error]
    if errors:
        raise errors[0]


class _Source(Generic[T]):
    """An iterator that several threads may draw from."""

    def __init__(self, tasks: Iterable[T]) -> None:
        self._tasks = iter(tasks)
        self._lock = Lock()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._lock:
            return next(self._tasks)


def _executor() -> ThreadPoolExecutor:
    global _pool  # noqa: PLW0603 - one pool a process
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(max(1, workers() - 1), "sparseformats")
        return _pool


def _after_fork() -> None:
    global _pool, _lock
    _pool, _lock = None, Lock()  # the child has neither the threads nor the lock's owner


if hasattr(os, "register_at_fork"):
    _hook: Any = _after_fork
    os.register_at_fork(after_in_child=_hook)
