"""Strategies of dense operands in every memory layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from sparseformats import _arrays, _dtypes
from sparseformats.testing._values import Draw, Host, value_arrays

__all__ = ["LAYOUTS", "backed", "dense_operands", "laid_out"]

LAYOUTS = ("C", "F", "rows", "columns", "offset", "guarded", "reversed", "broadcast")
"""Memory layouts that `laid_out` makes: each the same values, read by other strides."""

GUARD = 64
"""Elements of garbage before and behind a ``"guarded"`` operand; they keep its alignment."""


def dense_operands(
    A: Any,
    *,
    left: bool = False,
    dtypes: Any = None,
    values: Any = "moderate",
    columns: int = 4,
    batched: bool = True,
) -> Any:
    """Strategy of operands X for ``A @ X``, or ``X @ A`` if `left`, where A's buffers are.

    Vectors, matrices and batches; contiguous, transposed, sliced, strided, reversed and broadcast.
    Memory beside a strided operand holds NaN, so that a kernel which ignores strides shows.

    Parameters
    ----------
    A : SparseMatrix
    left : bool
        Whether the operand stands on the left.
    dtypes : str, sequence of str or strategy, optional
        Value types; by default A's own.
    values : str or strategy
        As of `sparseformats.testing.matrices`.
    columns : int
        Largest number of vectors.
    batched : bool
        Whether batch axes may be drawn.

    Returns
    -------
    strategy of array
    """
    inner = A.shape[0] if left else A.shape[1]
    choices = _names(dtypes if dtypes is not None else A.dtype_name)

    def draw_operand(draw: Draw) -> Any:
        kind = draw(st.sampled_from(["matrix", "vector", "batch"] if batched else ["matrix"]))
        count = draw(st.integers(0, columns))
        pair = (count, inner) if left else (inner, count)
        shape = {"vector": (inner,), "matrix": pair}.get(kind, (draw(st.integers(0, 2)), *pair))
        dtype = str(draw(choices))
        size = int(np.prod(shape))
        X = draw(value_arrays(dtype, size, values)).reshape(shape)
        layout = draw(st.sampled_from(LAYOUTS))
        return laid_out(X, layout, A.lib, A.device)

    return st.composite(draw_operand)()


def _names(given: Any) -> Any:
    if hasattr(given, "example"):
        return given
    return st.just(given) if isinstance(given, str) else st.sampled_from(given)


def laid_out(X: Host, layout: str, lib: Any, device: str = "cpu") -> Any:
    """Array of library `lib` with the values of `X` and memory laid out as named.

    Parameters
    ----------
    X : (..., n) NumPy array
        Values; for ``"broadcast"`` only its first row counts.
    layout : str
        One of `LAYOUTS`; one that `X` or `lib` cannot have gives ``"C"``.
    lib : ArrayLibrary
        Such as ``A.lib``.
    device : str
        Where the array goes.
    """
    return backed(X, layout, lib, device)[1]


def backed(X: Host, layout: str, lib: Any, device: str = "cpu", guard: Any = None) -> Any:
    """Memory and the view of it that `laid_out` gives; `guard` fills what lies beside the view."""
    memory, view = _arranged(X, layout if _possible(X, layout, lib) else "C", guard)
    base = lib.from_numpy(np.ascontiguousarray(memory), device)
    return base, view(base)


def _possible(X: Host, layout: str, lib: Any) -> bool:
    if layout == "reversed":  # torch has no negative strides
        return X.ndim > 0 and lib.name in ("numpy", "cupy")
    if layout in ("F", "columns", "broadcast"):
        return X.ndim > 1 and (layout != "broadcast" or X.shape[-2] > 0)
    return X.ndim > 0


def _arranged(X: Host, layout: str, guard: Any) -> tuple[Host, Callable[[Any], Any]]:
    """Contiguous memory that holds `X`, and how to view `X` in it."""
    if layout == "F":
        return np.swapaxes(X, -1, -2), lambda base: base.mT
    if layout == "rows":  # every second row of a larger array
        key = (slice(None, None, 2),) if X.ndim == 1 else (..., slice(None, None, 2), slice(None))
        return _guarded(X, X.ndim - min(X.ndim, 2), guard), lambda base: base[key]
    if layout == "columns":
        return _guarded(X, X.ndim - 1, guard), lambda base: base[..., ::2]
    if layout == "offset":
        first = _garbage((*X.shape[:-1], 1), X.dtype, guard)
        return np.concatenate([first, X], axis=-1), lambda base: base[..., 1:]
    if layout == "guarded":  # contiguous, in the middle of a larger array
        beside = _garbage((GUARD,), X.dtype, guard)
        memory = np.concatenate([beside, X.reshape(-1), beside])
        return memory, lambda base: _arrays.of(base).xp.reshape(base[GUARD:-GUARD], X.shape)
    if layout == "reversed":
        return X[..., ::-1], lambda base: base[..., ::-1]
    if layout == "broadcast":
        return X[..., :1, :], lambda base: _arrays.of(base).xp.broadcast_to(base, X.shape)
    return X, lambda base: base


def _garbage(shape: tuple[int, ...], dtype: Any, guard: Any) -> Host:
    if guard is None:
        guard = np.nan if _dtypes.kind(dtype.name) in "fc" else 1
    return np.full(shape, guard).astype(dtype)


def _guarded(X: Host, axis: int, guard: Any) -> Host:
    """Array with `X` at every second place of an axis and garbage between."""
    garbage = _garbage(X.shape, X.dtype, guard)
    shape = (*X.shape[:axis], 2 * X.shape[axis], *X.shape[axis + 1 :])
    return np.stack([X, garbage], axis=axis + 1).reshape(shape)
