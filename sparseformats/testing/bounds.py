"""Element-wise error bounds of products, from dot length and accumulator type."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparseformats import _arrays, _dtypes, reference
from sparseformats.reference import Product
from sparseformats.reference.decoding import host_dtype

__all__ = ["assert_close", "assert_product", "error_bound"]

Host = np.ndarray[Any, np.dtype[Any]]

_REAL = {"complex64": "float32", "complex128": "float64"}


def _finfo(dtype: str) -> Any:
    name = _REAL.get(dtype, dtype)
    if name in ("float16", "float32", "float64"):
        return np.finfo(name)
    import ml_dtypes

    return ml_dtypes.finfo(host_dtype(name))


def error_bound(
    product: Product,
    *,
    accumulator: str | None = None,
    factor: float = 1.0,
    extra: float = 0.0,
    flush: bool = False,
) -> Host:
    """Bound of ``|computed - exact|`` for every element of a floating product.

    For a dot product of n terms in any order, ``(n + 4) u_acc sum|a||x|`` bounds the rounding of
    operands, products, sums and scaling in the accumulator; rounding to the result's type adds
    ``u_out |y|``; underflow adds the smallest subnormal a term (or the smallest normal number,
    where a device flushes subnormals).

    Parameters
    ----------
    product : Product
        Of `sparseformats.reference`.
    accumulator : str, optional
        Type of the sums; by default the one that the result's type demands.
    factor : float
        Multiple of the rounding in sums that is allowed.
    extra : float
        Further relative error of each term, for example ``2 * 2**-11`` for TF32 operands.
    flush : bool
        Whether the kernel may flush subnormals to zero.

    Returns
    -------
    (m, n) float64

    References
    ----------
    N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1.
    """
    acc, out = _finfo(accumulator or _dtypes.accumulator(product.dtype)), _finfo(product.dtype)
    tiny = [float(f.smallest_normal if flush else f.smallest_subnormal) for f in (acc, out)]
    # Each part of a complex dot product is a real one of twice the length: at most 2 sqrt(2).
    factor *= 3.0 if _dtypes.kind(product.dtype) == "c" else 1.0
    terms = product.length.astype(np.float64) + 4
    with np.errstate(all="ignore"):
        bound = factor * (terms * float(acc.eps) / 2 + extra) * product.magnitude
        bound = bound + factor * terms * tiny[0]
        size = np.abs(product.value).astype(np.float64)
        total: Host = bound + float(out.eps) / 2 * (size + bound) + tiny[1]
    return total


def assert_close(
    actual: Any,
    A: Any,
    X: Any,
    *,
    alpha: Any = 1,
    beta: Any = 0,
    out: Any = None,
    left: bool = False,
    **bound: Any,
) -> None:
    """Check a computed ``alpha * (A @ X) + beta * out`` against the reference.

    Integers and bools must agree exactly; floats within `error_bound`, with NaN and infinities
    exactly where they belong (n:m: except where a non-finite operand meets no non-zero).

    Parameters
    ----------
    actual : array
        The result to judge.
    A : SparseMatrix
    X : array
        Operand, on the right of `A` or, if `left`, on the left.
    alpha, beta, out
        As they were for `actual`; `out` as it was before the call.
    left : bool
        Whether ``X @ A`` was computed.
    **bound
        Options of `error_bound`, and `nan_for_infinity` as a record's tolerance has it.

    Raises
    ------
    AssertionError
        With the worst element, its error and its bound.
    """
    oracle = reference.rmatmul(X, A, alpha=alpha, beta=beta, out=out) if left else None
    product = oracle or reference.matmul(A, X, alpha=alpha, beta=beta, out=out)
    lib = _arrays.of(actual)
    if lib.name != A.library or lib.device(actual) != A.device:
        raise AssertionError(f"the result is a {lib.name} array on {lib.device(actual)}")
    if lib.dtype_name(actual) != product.dtype:
        raise AssertionError(f"expected {product.dtype}, got {lib.dtype_name(actual)}")
    assert_product(lib.to_numpy(actual), product, **bound)


def assert_product(actual: Host, product: Product, **options: Any) -> None:
    """Check a NumPy array against a `Product` of the reference.

    Parameters
    ----------
    actual : (m, n)
        The result to judge.
    product : Product
        What `sparseformats.reference` makes of the same operands.
    **options
        Options of `error_bound`, and `nan_for_infinity` as a record's tolerance has it.
    """
    lost = options.pop("nan_for_infinity", False)
    if actual.shape != product.value.shape:
        raise AssertionError(f"expected shape {product.value.shape}, got {actual.shape}")
    if _dtypes.kind(product.dtype) in "biu":
        wrong = actual != product.rounded()
        _report(wrong, actual, product, np.zeros(wrong.shape), np.ones(wrong.shape))
        return
    bound = error_bound(product, **options)
    with np.errstate(all="ignore"):
        wide = actual.astype(product.value.dtype)
        error = np.abs(wide - product.value).astype(np.float64)
        judged = _judged(product, wide, bound)
        wrong = judged & _misplaced(product, wide)
        wrong &= ~(np.isnan(wide) & np.isinf(product.value)) | (not lost)
        both = np.isfinite(wide) & np.isfinite(product.value)
        wrong |= judged & both & ~(error <= bound)
    _report(wrong, actual, product, bound, error)


def _judged(product: Product, wide: Host, bound: Host) -> Host:
    """Where the result is determined: not unspecified, and no sum or result near overflow."""
    acc, out = (_finfo(f) for f in (_dtypes.accumulator(product.dtype), product.dtype))
    size = np.abs(product.value).astype(np.float64)
    rounds_over = (size + bound >= float(out.max)) & np.isinf(wide) & (size > 0)
    if _dtypes.kind(product.dtype) == "f":
        rounds_over &= (wide > 0) == (product.value > 0)
    # e4m3fn has no infinity: what is too large for it becomes NaN or, in newer torch, saturates.
    no_infinity = product.dtype == "float8_e4m3fn"
    saturates = np.isnan(wide) | (wide == np.copysign(float(out.max), product.value.real))
    rounds_over |= no_infinity & (size + bound >= float(out.max)) & saturates
    overflows = product.magnitude >= float(acc.max) * (1 - 1e-6)
    over = np.isfinite(product.value) & rounds_over
    judged: Host = ~(product.unspecified | overflows | over)
    return judged


def _misplaced(product: Product, wide: Host) -> Host:
    """Where NaN or an infinity is missing or invented."""
    if _dtypes.kind(product.dtype) == "c" or product.dtype == "float8_e4m3fn":
        # What inf times a complex number is depends on the order of its four products; e4m3fn has
        # no infinity.
        different: Host = np.isfinite(wide) != np.isfinite(product.value)
        return different
    expected = product.value
    different = (np.isnan(wide) != np.isnan(expected)) | (np.isinf(wide) != np.isinf(expected))
    opposite = np.isinf(expected) & np.isinf(wide) & (wide != expected)
    misplaced: Host = different | opposite
    return misplaced


def _report(wrong: Host, actual: Host, product: Product, bound: Host, error: Host) -> None:
    if not wrong.any():
        return
    with np.errstate(all="ignore"):
        excess = np.where(wrong, np.nan_to_num(error / bound, nan=np.inf), -1)
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(excess)), wrong.shape))
    raise AssertionError(
        f"{int(wrong.sum())} of {wrong.size} elements are wrong; the worst, {at}: expected "
        f"{product.value[at]}, got {actual[at]} ({product.dtype}), error {error[at]:.3g}, bound "
        f"{bound[at]:.3g} from {int(product.length[at])} terms of total size "
        f"{product.magnitude[at]:.3g}"
    )
