"""Strategies of dense operands in every memory layout."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from sparseformats import _dtypes
from sparseformats.testing._values import Draw, Host, host_dtype, value_arrays

__all__ = ["LAYOUTS", "dense_operands", "laid_out"]

LAYOUTS = ("C", "F", "rows", "columns", "offset", "reversed", "broadcast")
"""Memory layouts that `laid_out` makes: each the same values, read by other strides."""


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
    if X.ndim == 0 or (layout in ("F", "columns", "broadcast") and X.ndim < 2):
        layout = "C"
    if layout == "F":
        return lib.from_numpy(np.ascontiguousarray(np.swapaxes(X, -1, -2)), device).mT
    if layout == "rows":  # every second row of a larger array
        return lib.from_numpy(_guarded(X, X.ndim - min(X.ndim, 2), 2), device)[_every(X)]
    if layout == "columns":
        return lib.from_numpy(_guarded(X, X.ndim - 1, 2), device)[..., ::2]
    if layout == "offset":
        wide = np.concatenate([_garbage(X)[..., :1], X], axis=-1) if X.shape[-1] else X
        return lib.from_numpy(wide, device)[..., 1 if X.shape[-1] else 0 :]
    if layout == "reversed" and lib.name in ("numpy", "cupy"):
        return lib.from_numpy(X[..., ::-1].copy(), device)[..., ::-1]
    if layout == "broadcast" and X.shape[-2]:
        return lib.xp.broadcast_to(lib.from_numpy(X[..., :1, :].copy(), device), X.shape)
    return lib.from_numpy(X.copy(), device)


def _every(X: Host) -> Any:
    return (slice(None, None, 2),) if X.ndim == 1 else (..., slice(None, None, 2), slice(None))


def _garbage(X: Host) -> Host:
    if _dtypes.kind(str(X.dtype.name)) in "fc":
        return np.full(X.shape, np.nan).astype(host_dtype(X.dtype.name))
    return np.full(X.shape, 1).astype(X.dtype)


def _guarded(X: Host, axis: int, step: int) -> Host:
    """Array with `X` at every `step`-th place of an axis and garbage between."""
    return np.stack([X, _garbage(X)], axis=axis + 1).reshape(
        *X.shape[:axis], step * X.shape[axis], *X.shape[axis + 1 :]
    )
