"""The library's one cache of packed matrices and light plans, and what users may do with it."""

from __future__ import annotations

import os
from typing import Final

from sparseformats import _arrays
from sparseformats.dispatch.plan_cache import CacheInfo, PlanCache, protect_fork
from sparseformats.formats import SparseMatrix, Sum, Transposed

__all__ = ["CACHE", "ENVIRONMENT", "cache_info", "clear_cache", "set_cache_limit", "source"]

ENVIRONMENT = "SPARSEFORMATS_CACHE_BYTES"
_UNKNOWN = 1 << 30  # bytes, for a device that does not tell its memory

_limit: int | None = None
_limits: dict[str, int] = {}


def _limit_of(place: str) -> int:
    if _limit is not None:
        return _limit
    if place not in _limits:
        _limits[place] = _from_environment() or _quarter(place)
    return _limits[place]


def _from_environment() -> int | None:
    text = os.environ.get(ENVIRONMENT, "").strip()
    if not text:
        return None
    try:
        return _checked(int(text))
    except ValueError:
        raise ValueError(f"{ENVIRONMENT} must be a number of bytes >= 0, is {text!r}") from None


def _quarter(place: str) -> int:
    name = "numpy" if place == "cpu" else "torch"
    try:
        free = _arrays.library(name).free_bytes(place)
    except (ImportError, RuntimeError):
        free = None
    return _UNKNOWN if free is None else free // 4


def _checked(nbytes: int) -> int:
    if isinstance(nbytes, bool) or not isinstance(nbytes, int):
        raise TypeError(f"expected a number of bytes, got {type(nbytes).__name__}")
    if nbytes < 0:
        raise ValueError(f"a number of bytes must be >= 0, got {nbytes}")
    return nbytes


CACHE: Final = protect_fork(PlanCache(_limit_of))


def source(matrix: SparseMatrix) -> SparseMatrix:
    """The matrix under which things are kept: what a `Transposed` is a view of."""
    return matrix.base if isinstance(matrix, Transposed) else matrix


def set_cache_limit(nbytes: int | None) -> None:
    """Limit the bytes of packed states that are kept on each device.

    Parameters
    ----------
    nbytes : int or None
        0 keeps none that takes memory of its own. None is the default: the environment variable
        ``SPARSEFORMATS_CACHE_BYTES``, else a quarter of the memory that was free at first use.
    """
    global _limit  # noqa: PLW0603 - one cache a process
    _limit = None if nbytes is None else _checked(nbytes)
    _limits.clear()
    CACHE.trim()


def cache_info() -> CacheInfo:
    """Count the packed matrices and plans that are kept between calls.

    Returns
    -------
    CacheInfo
        ``matrices``, ``plans``, ``packed_bytes``, ``limit`` by device, ``hits``, ``misses``.

    Examples
    --------
    >>> import numpy as np
    >>> import sparseformats as sf
    >>> sf.clear_cache()
    >>> A, x = sf.eye(3), np.ones(3)
    >>> y, z = A @ x, A @ x
    >>> info = sf.cache_info()
    >>> info.matrices, info.plans, info.hits, info.misses
    (1, 1, 1, 1)
    """
    return CACHE.info()


def clear_cache(A: SparseMatrix | None = None) -> None:
    """Forget what was prepared for a matrix, or for all of them.

    Results do not change, the next call prepares anew. A `Plan` keeps what it needs.

    Parameters
    ----------
    A : SparseMatrix, optional
        Forget what belongs to this one only, and to its parts if it is a `Sum`.
    """
    if A is not None and not isinstance(A, SparseMatrix):
        raise TypeError(f"clear_cache takes a matrix of this library, got {type(A).__name__}")
    for part in A.parts if isinstance(A, Sum) else ():
        CACHE.clear(source(part))
    CACHE.clear(None if A is None else source(A))
