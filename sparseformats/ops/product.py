"""Products of a sparse matrix with a dense array: ``out <- alpha * (A @ X) + beta * out``.

A kernel sees one case only: a sparse matrix on the left (as stored, with a flag if its transpose is
meant) and a two-dimensional operand. Vectors become one column, a dense operand on the left is
transposed, batches are folded or looped over, all by views wherever that is possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any, cast

from sparseformats import dispatch
from sparseformats._arrays import Array
from sparseformats.dispatch import Explanation, Query
from sparseformats.formats import SparseMatrix
from sparseformats.ops.contract import MatmulKernel
from sparseformats.ops.facts import matmul_query
from sparseformats.ops.operands import (
    Operands,
    as_sparse,
    check_out,
    is_foreign,
    overlap,
    read,
)
from sparseformats.ops.scalars import Scalar, as_scalar
from sparseformats.ops.sparse_product import explain_sparse, sparse_product

__all__ = ["explain", "matmul", "matmul_operator"]

FOLD_BELOW = 32  # columns of a batch up to which one wide product beats a loop over batches
_PRECISIONS = {None: None, "ieee": None, "tf32": "tf32"}


def matmul(
    A: Any,
    X: Any,
    *,
    alpha: Any = 1,
    beta: Any = 0,
    out: Any = None,
    kernel: str | None = None,
    precision: str | None = None,
    assume_finite: bool = False,
) -> Any:
    """Multiply: ``out <- alpha * (A @ X) + beta * out``.

    Parameters
    ----------
    A, X : SparseMatrix or array
        At least one is sparse, (m, k) on the left or (k, n) on the right. The dense one is a NumPy,
        torch or CuPy array: a vector, a matrix, or a batch ``(..., k, n)`` (``(..., m, k)`` on
        the left), of any strides, of the sparse one's library and on its device. Lists are not
        taken. SciPy's, torch's and CuPy's sparse matrices are converted first.
    alpha, beta : number
        Python numbers that the result's dtype can hold.
    out : array, optional
        Takes the result: exactly its shape and dtype, any strides. Not read when beta is 0; may
        overlap `X`.
    kernel : str, optional
        Use this kernel, see `sparseformats.kernels`.
    precision : str, optional
        ``"tf32"`` allows a GPU to round float32 operands; default and ``"ieee"`` do not.
    assume_finite : bool
        Promise that the dense operand holds no NaN and no infinity.

    Returns
    -------
    array
        `out` if given, else a new array. A :class:`CSR` if both operands are sparse.

    Raises
    ------
    ValueError
        Shapes do not match; ``beta != 0`` without `out`; `out` of another shape or dtype.
    TypeError
        Operands of two libraries, or of kinds that cannot be multiplied.
    DeviceMismatchError
        Operands on two devices.
    NoKernelError
        No kernel can serve the call; the text has every reason.
    NotImplementedError
        An operand requires grad while grad mode is on.

    Notes
    -----
    The result's dtype is that of the library's promotion; int8 and int16 products are int32, uint8
    and uint16 uint32 (torch: int64), mixed signs int64. Half types are summed in float32 and
    rounded once. Wider integers wrap. Only stored elements of COO, CSR and CSC meet the operand;
    within a stored block of BSR and Blocked-ELL zeros do too (0 x inf = NaN), padding never does.

    Examples
    --------
    >>> import numpy as np
    >>> import sparseformats as sf
    >>> A = sf.CSR([2.0, 1.0, 5.0], [0, 0, 1], [0, 1, 3], (2, 2))
    >>> sf.matmul(A, np.array([1.0, 7.0]))
    array([ 2., 36.])
    """
    a, b = as_sparse(A), as_sparse(X)
    if isinstance(a, SparseMatrix) and isinstance(b, SparseMatrix):
        return sparse_product(a, b, alpha, beta, out, kernel)
    o = read(a, b)
    factor, summand = _scalars(o, alpha, beta, out)
    query = _query(o, out, factor, summand, precision, assume_finite)
    selection = dispatch.select(query, kernel)
    if out is not None and overlap(o.lib, out, o.x):
        return _run(selection, query, o, o.lib.copy(o.x), out, factor, summand)
    return _run(selection, query, o, o.x, out, factor, summand)


def explain(
    A: Any,
    X: Any,
    *,
    alpha: Any = 1,
    beta: Any = 0,
    out: Any = None,
    kernel: str | None = None,
    precision: str | None = None,
    assume_finite: bool = False,
) -> Explanation:
    """Tell which kernel `matmul` would run for these arguments, and why not any other one.

    Computes nothing and loads no kernel; refuses the same arguments as `matmul`.

    Parameters
    ----------
    A, X, alpha, beta, out, kernel, precision, assume_finite
        As in `matmul`.

    Returns
    -------
    Explanation
        Print it.
    """
    a, b = as_sparse(A), as_sparse(X)
    if isinstance(a, SparseMatrix) and isinstance(b, SparseMatrix):
        return explain_sparse(a, b, alpha, beta, out, kernel)
    o = read(a, b)
    factor, summand = _scalars(o, alpha, beta, out)
    return dispatch.explain(_query(o, out, factor, summand, precision, assume_finite), kernel)


def matmul_operator(a: Any, b: Any) -> Any:
    """``a @ b``; NotImplemented where an operand is of a type that we know nothing of."""
    if is_foreign(a) or is_foreign(b):
        return NotImplemented
    return matmul(a, b)


def _scalars(o: Operands, alpha: Any, beta: Any, out: Any) -> tuple[Scalar, Scalar]:
    factor, summand = as_scalar(alpha, "alpha", o.dtype), as_scalar(beta, "beta", o.dtype)
    if out is not None:
        check_out(o, out)
    elif summand != 0:
        raise ValueError(f"beta={beta!r} needs out=, the array that it scales")
    return factor, summand


def _query(
    o: Operands,
    out: Array | None,
    alpha: Scalar,
    beta: Scalar,
    precision: str | None,
    assume_finite: bool,
) -> Query:
    if precision not in _PRECISIONS:
        raise ValueError(f"precision must be None, 'ieee' or 'tf32', got {precision!r}")
    return matmul_query(
        o,
        out,
        alpha_one=alpha == 1,
        beta_zero=beta == 0,
        precision=_PRECISIONS[precision],
        assume_finite=bool(assume_finite),
    )


def _run(
    selection: dispatch.Selection,
    query: Query,
    o: Operands,
    x: Array,
    out: Array | None,
    alpha: Scalar,
    beta: Scalar,
) -> Array:
    """Pack the matrix, run the kernel over all pieces of the operand, tell who listens."""
    kernel = cast("MatmulKernel", selection.target)
    if not dispatch.is_tracing():
        return _multiply(kernel, kernel.pack(o.matrix, query), o, x, out, alpha, beta)
    start = perf_counter()
    y = _multiply(kernel, kernel.pack(o.matrix, query), o, x, out, alpha, beta)
    dispatch.record_run("matmul", selection.name, query, perf_counter() - start)
    return y


def _multiply(
    kernel: MatmulKernel,
    state: Any,
    o: Operands,
    x: Array,
    out: Array | None,
    alpha: Scalar,
    beta: Scalar,
) -> Array:
    if len(o.shape) == 1:
        y = kernel.run(state, x[:, None], None if out is None else out[:, None], alpha, beta)
        return y[:, 0] if out is None else out
    if len(o.shape) == 2 and not o.left:
        y = kernel.run(state, x, out, alpha, beta)
        return y if out is None else out
    if out is None and not o.left and o.columns < FOLD_BELOW:
        return _folded(kernel, state, o, x, alpha)
    result = o.lib.empty(o.shape, o.dtype, o.matrix.device) if out is None else out
    for piece, target in _pieces(o, x, result):
        kernel.run(state, piece, target, alpha, beta)
    return result


def _pieces(o: Operands, x: Array, out: Array) -> Iterator[tuple[Array, Array]]:
    """Two-dimensional operands and the views of `out` that take their products."""
    lib = o.lib
    if o.left and len(o.shape) > 2 and lib.is_contiguous(out):
        rows = o.batch * o.columns  # all batches are rows of one operand
        x, out = lib.xp.reshape(x, (rows, o.k)), lib.xp.reshape(out, (rows, o.m))
    if o.left:
        x, out = x.mT, out.mT
    yield from _batches(x, out)


def _batches(x: Array, out: Array) -> Iterator[tuple[Array, Array]]:
    if len(x.shape) == 2:
        yield x, out
        return
    for i in range(int(x.shape[0])):
        yield from _batches(x[i, ...], out[i, ...])


def _folded(kernel: MatmulKernel, state: Any, o: Operands, x: Array, alpha: Scalar) -> Array:
    """One product with all batches side by side: few columns each would waste a kernel."""
    xp, batch = o.lib.xp, tuple(int(s) for s in x.shape[:-2])
    axes = len(batch)
    wide = xp.permute_dims(x, (axes, *range(axes), axes + 1))
    y = kernel.run(state, xp.reshape(wide, (o.k, o.batch * o.columns)), None, alpha, 0)
    split = xp.reshape(y, (o.m, *batch, o.columns))
    return o.lib.contiguous(xp.permute_dims(split, (*range(1, axes + 1), 0, axes + 1)))
