"""The law of a product: right values, untouched inputs, and nothing written but `out`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sparseformats import _dtypes, reference
from sparseformats.reference.decoding import host_dtype
from sparseformats.testing._memory import unchanged
from sparseformats.testing.bounds import assert_close
from sparseformats.testing.operands import backed

__all__ = ["check_product", "rounded_here"]


def check_product(
    A: Any,
    X: Any,
    *,
    alpha: Any = 1,
    beta: Any = 0,
    out: str | None = None,
    left: bool = False,
    matmul: Callable[..., Any] | None = None,
    bound: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> None:
    """Compute ``alpha * (A @ X) + beta * out`` and check everything about it.

    The values are within `error_bound`; the operands are unchanged; `out` is what is returned,
    NaN in it is never read when beta is 0, and memory beside it stays as it was.

    Parameters
    ----------
    A : SparseMatrix
    X : array
        Operand, on the right of `A` or, if `left`, on the left.
    alpha, beta : number
    out : str, optional
        Memory layout of an `out` to compute into, one of `LAYOUTS` but ``"broadcast"``.
    left : bool
        Whether to compute ``X @ A``.
    matmul : callable, optional
        What computes, called as ``matmul(A, X, alpha=, beta=, out=, **options)``; by default
        `sparseformats.matmul`.
    bound : mapping
        Options of `error_bound`.
    **options : object
        Passed on, such as ``kernel="reference"``.

    Raises
    ------
    AssertionError
        Telling what is wrong.
    """
    if matmul is None:
        from sparseformats import matmul as library_matmul

        matmul = library_matmul
    memory, target, before = _output(A, X, out, beta, left)
    guard, beside = _beside(A, memory, before, out)
    operands = (X, A) if left else (A, X)
    with unchanged(A, X):
        Y = matmul(*operands, alpha=alpha, beta=beta, out=target, **options)
    if target is not None and Y is not target:
        raise AssertionError("the result is not the array that was given as out")
    if target is not None and A.lib.to_numpy(memory)[guard].tobytes() != beside:
        raise AssertionError("memory beside out was written to")
    summand = None if before is None else A.lib.from_numpy(before, A.device)
    assert_close(Y, A, X, alpha=alpha, beta=beta, out=summand, left=left, **bound)


def _output(A: Any, X: Any, layout: str | None, beta: Any, left: bool) -> tuple[Any, Any, Any]:
    """Memory, the view of it to write to, and a copy of the view's first values."""
    if layout is None:
        return None, None, None
    dtype, x, (m, k) = reference.product_dtype(A, X), tuple(X.shape), A.shape
    shape = (*x[:-1], k) if left else (m,) if len(x) == 1 else (*x[:-2], m, x[-1])
    values = (np.arange(int(np.prod(shape))) % 5).reshape(shape).astype(host_dtype(dtype))
    if beta == 0 and _dtypes.kind(dtype) in "fc":
        values[...] = np.nan
    memory, target = backed(values.copy(), layout, A.lib, A.device)
    return memory, target, values


def _beside(A: Any, memory: Any, before: Any, layout: str | None) -> tuple[Any, bytes]:
    """Mask of the memory beside the view, and its bytes."""
    if layout is None:
        return None, b""
    inside = np.ones(before.shape, np.bool_)
    marks = A.lib.to_numpy(backed(inside, layout, A.lib, A.device, guard=False)[0])
    guard = ~marks
    return guard, A.lib.to_numpy(memory)[guard].tobytes()


def rounded_here(
    A: Any,
    X: Any,
    *,
    alpha: Any,
    beta: Any,
    out: Any,
    kernel: str | None = None,
    precision: str | None = None,
    assume_finite: bool = False,
) -> Any:
    """`matmul` by a kernel that leaves half types in float32, and one rounding behind it.

    Raises
    ------
    AssertionError
        The result is in another dtype than that of its sums.
    """
    from sparseformats.ops import sums
    from sparseformats.ops.light import execute
    from sparseformats.ops.operands import read
    from sparseformats.ops.preparing import Options
    from sparseformats.ops.product import lights

    o = read(A, X)
    matrix, x = (X, A) if o.left else (A, X)
    options = Options(precision, assume_finite, kernel)
    light = lights(options, left=o.left)(matrix, x, None, alpha, 0, True)
    y, wide = execute(light, x, None, alpha, 0), _dtypes.accumulator(o.dtype)
    if o.lib.dtype_name(y) != wide:
        raise AssertionError(f"{light.kernel} gave {o.lib.dtype_name(y)}, was to leave {wide}")
    return sums.delivered(o.lib, y, out, beta, o.dtype)
