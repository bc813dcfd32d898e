"""Planted bugs in kernels: the law of a product, on ordinary examples, must reject each of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings, strategies as st

from sparseformats import dispatch, reference, testing
from sparseformats.dispatch import KernelRecord
from sparseformats.testing import certify, dense_operands, matrices

Kernel = Callable[..., Any]

EXAMPLES = settings(
    max_examples=150, deadline=None, derandomize=True, database=None, phases=[Phase.generate]
)
OUT = ["C", "F", "rows", "columns", "offset", "reversed"]


def product(kernel: Kernel, *, formats: Any = None, values: str = "any", **options: Any) -> None:
    """The ordinary check of a product."""

    @EXAMPLES
    @given(
        matrices(formats, values=values, **options),
        st.data(),
        st.sampled_from([None, *OUT]),
        st.sampled_from([(1, 0), (2, 0), (1, 1)]),
    )
    def law(A: Any, data: Any, out: str | None, scalars: tuple[int, int]) -> None:
        X = data.draw(dense_operands(A, values=values))
        alpha, beta = (1, 0) if out is None or A.dtype_name == "bool" else scalars
        testing.check_product(A, X, alpha=alpha, beta=beta, out=out, matmul=kernel)

    law()


def finished(Y: Any, alpha: Any, beta: Any, out: Any, dtype: Any) -> Any:
    """Scale, add and store as a careful kernel does."""
    Y = Y if alpha == 1 else Y * np.asarray(alpha, Y.dtype)
    if beta != 0:
        Y = Y + np.asarray(beta).astype(Y.dtype) * out.astype(Y.dtype)
    Y = Y.astype(dtype)
    if out is None:
        return Y
    out[...] = Y
    return out


def honest(A: Any, X: Any, *, alpha: Any, beta: Any, out: Any) -> Any:
    Y = reference.matmul(A, X, alpha=alpha, beta=beta, out=out).rounded()
    return finished(Y, 1, 0, out, Y.dtype)


def dense(A: Any, X: Any, *, alpha: Any, beta: Any, out: Any) -> Any:
    """Dense arithmetic with the stored elements."""
    dtype = np.dtype(testing.host_dtype(reference.product_dtype(A, X)))
    wide = np.result_type(dtype, np.float64) if dtype.kind in "fcV" else dtype
    Y = reference.dense(A).astype(wide) @ X.astype(wide)
    return finished(Y, alpha, beta, out, dtype)


# ---- bugs


def accumulates_in_float16(A: Any, X: Any, *, alpha: Any, beta: Any, out: Any) -> Any:
    D, Y = reference.dense(A), np.zeros(np.matmul(reference.dense(A), X).shape, np.float16)
    for j in range(D.shape[1]):
        row = X[j] if X.ndim == 1 else X[..., j : j + 1, :]
        Y = Y + D[:, j] * row if X.ndim == 1 else Y + D[:, j : j + 1] * row
    return finished(Y, alpha, beta, out, np.float16)


def rounds_operands(A: Any, X: Any, *, alpha: Any, beta: Any, out: Any) -> Any:
    return honest(A, X.astype(np.float16).astype(X.dtype), alpha=alpha, beta=beta, out=out)


def reads_out_under_beta_0(A: Any, X: Any, *, alpha: Any, beta: Any, out: Any) -> Any:
    Y = reference.matmul(A, X, alpha=alpha).value
    if out is not None:
        Y = Y + np.asarray(beta).astype(Y.dtype) * out.astype(Y.dtype)
    return finished(Y, 1, 0, out, testing.host_dtype(reference.product_dtype(A, X)))


def skips_the_last_odd_tile(A: Any, X: Any, *, alpha: Any, beta: Any, out: Any) -> Any:
    X = X.copy()
    if X.ndim == 1:
        X[X.shape[0] // 2 * 2 :] = 0
    else:
        X[..., X.shape[-2] // 2 * 2 :, :] = 0
    return honest(A, X, alpha=alpha, beta=beta, out=out)


def ignores_strides(A: Any, X: Any, *, alpha: Any, beta: Any, out: Any) -> Any:
    memory = X if X.base is None or X.base.size < X.size else X.base
    read = np.ascontiguousarray(memory).reshape(-1)[: X.size].reshape(X.shape)
    return honest(A, read, alpha=alpha, beta=beta, out=out)


def ignores_strides_of_out(A: Any, X: Any, *, alpha: Any, beta: Any, out: Any) -> Any:
    Y = honest(A, X, alpha=alpha, beta=beta, out=None if beta == 0 else out.copy())
    if out is None:
        return Y
    memory = out if out.base is None else out.base
    memory.reshape(-1)[: Y.size] = Y.reshape(-1)
    return out


def forgets_out(A: Any, X: Any, *, alpha: Any, beta: Any, out: Any) -> Any:
    return honest(A, X, alpha=alpha, beta=beta, out=None if out is None else out.copy())


def forgets_alpha(A: Any, X: Any, *, alpha: Any, beta: Any, out: Any) -> Any:
    return honest(A, X, alpha=1, beta=beta, out=out)


def forgets_beta(A: Any, X: Any, *, alpha: Any, beta: Any, out: Any) -> Any:
    return honest(A, X, alpha=alpha, beta=int(beta != 0) * 2, out=out)


def drops_nan(A: Any, X: Any, *, alpha: Any, beta: Any, out: Any) -> Any:
    X = np.where(np.isnan(X), 0, X).astype(X.dtype) if X.dtype.kind in "fc" else X
    return honest(A, X, alpha=alpha, beta=beta, out=out)


def takes_inf_for_the_largest(A: Any, X: Any, *, alpha: Any, beta: Any, out: Any) -> Any:
    if X.dtype.kind == "f":
        X = np.clip(X, np.finfo(X.dtype).min, np.finfo(X.dtype).max)
    return honest(A, X, alpha=alpha, beta=beta, out=out)


def scales_its_operand(A: Any, X: Any, *, alpha: Any, beta: Any, out: Any) -> Any:
    X *= np.asarray(alpha).astype(X.dtype)
    return honest(A, X, alpha=1, beta=beta, out=out)


def stays_narrow(A: Any, X: Any, *, alpha: Any, beta: Any, out: Any) -> Any:
    Y = (reference.dense(A) @ X).astype(np.int32)
    return finished(Y, alpha, beta, out, np.int32)


def sums_integers_in_float32(A: Any, X: Any, *, alpha: Any, beta: Any, out: Any) -> Any:
    Y = reference.dense(A).astype(np.float32) @ X.astype(np.float32)
    return finished(Y, alpha, beta, out, X.dtype)


def forgets_empty_rows(A: Any, X: Any, *, alpha: Any, beta: Any, out: Any) -> Any:
    Y = honest(A, X, alpha=alpha, beta=beta, out=None if beta == 0 else out)
    if out is None:
        return Y
    full = [i for i in range(A.shape[0]) if any(r == i for r, _ in reference.entries(A))]
    out[(full,) if X.ndim == 1 else (..., full, slice(None))] = Y[
        (full,) if X.ndim == 1 else (..., full, slice(None))
    ]
    return out


def meets_the_operand_where_nothing_is_stored(A: Any, X: Any, **call: Any) -> Any:
    return dense(A, X, **call)


def skips_fill_of_blocks(A: Any, X: Any, **call: Any) -> Any:
    return honest(A.to("csr"), X, **call)


def multiplies_padding(A: Any, X: Any, *, alpha: Any, beta: Any, out: Any) -> Any:
    """An empty slot reads the first block of the operand and multiplies it by zero."""
    Y = reference.matmul(A, X, alpha=alpha, beta=beta, out=out).value
    empty = np.repeat((A.col_indices < 0).any(axis=1), A.blocksize[0])[: A.shape[0]]
    if X.ndim == 2 and X.size and empty.any():
        with np.errstate(all="ignore"):
            Y = Y + empty[:, None] * (0 * X[: A.blocksize[0]].sum(axis=0))
    return finished(Y, 1, 0, out, testing.host_dtype(reference.product_dtype(A, X)))


FLOATS = ["float32", "float64"]
PLANTED: list[tuple[Kernel, dict[str, Any]]] = [
    (accumulates_in_float16, {"dtypes": "float16", "values": "moderate"}),
    (rounds_operands, {"dtypes": "float32", "values": "moderate"}),
    (reads_out_under_beta_0, {"values": "moderate", "dtypes": FLOATS}),
    (skips_the_last_odd_tile, {"values": "small"}),
    (ignores_strides, {"values": "small"}),
    (ignores_strides_of_out, {"values": "small"}),
    (forgets_out, {"values": "small"}),
    (forgets_alpha, {"values": "small"}),
    (forgets_beta, {"values": "small"}),
    (drops_nan, {"dtypes": FLOATS}),
    (takes_inf_for_the_largest, {"dtypes": FLOATS}),
    (scales_its_operand, {"values": "small", "dtypes": FLOATS}),
    (stays_narrow, {"dtypes": "int8"}),
    (sums_integers_in_float32, {"dtypes": ["int32", "int64"]}),
    (forgets_empty_rows, {"values": "moderate", "dtypes": FLOATS}),
    (meets_the_operand_where_nothing_is_stored, {"formats": ["csr", "coo"], "dtypes": FLOATS}),
    (skips_fill_of_blocks, {"formats": ["bsr", "blocked_ell"], "dtypes": FLOATS}),
    (multiplies_padding, {"formats": "blocked_ell", "dtypes": FLOATS}),
]


def test_an_honest_kernel_passes() -> None:
    product(honest)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_dense_arithmetic_passes_on_finite_values() -> None:
    product(dense, values="moderate")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("kernel", "options"), PLANTED, ids=lambda x: getattr(x, "__name__", ""))
def test_a_planted_bug_is_rejected(kernel: Kernel, options: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        product(kernel, **options)


# ---- certification of registered kernels


class DropsTheLastRow:
    def pack(self, A: Any, query: Any) -> Any:
        slots = reference.slots(A)
        return (slots.transposed() if query.transposed else slots), query

    def run(self, state: Any, x: Any, out: Any, alpha: Any, beta: Any) -> Any:
        slots, query = state
        Y = reference.multiply(slots, x, query.out_dtype, alpha, beta, out).rounded()
        Y[-1:] = 0
        return finished(Y, 1, 0, out, Y.dtype)


class Obvious(DropsTheLastRow):
    def run(self, state: Any, x: Any, out: Any, alpha: Any, beta: Any) -> Any:
        slots, query = state
        Y = reference.multiply(slots, x, query.out_dtype, alpha, beta, out).rounded()
        return finished(Y, 1, 0, out, Y.dtype)


drops_the_last_row, obvious_kernel = DropsTheLastRow(), Obvious()


def record(name: str, **options: Any) -> KernelRecord:
    formats = options.pop("formats", ("csr", "bsr", "bsr.T"))
    target = f"{__name__}:{name}"
    return KernelRecord(name, "matmul", formats, target, cost=lambda query: 1.0, **options)


def test_a_sound_kernel_is_certified() -> None:
    certificate = testing.certify_kernel(record("obvious_kernel"), examples=30, dtypes=FLOATS)
    assert certificate.served <= {(f, d) for f in ("csr", "bsr", "bsr.T") for d in FLOATS}
    assert sum(certificate.runs.values()) + sum(certificate.refusals.values()) >= 30


def test_an_unsound_kernel_is_not_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    unshrunk = functools.partial(settings, phases=[Phase.generate], database=None)
    monkeypatch.setattr(certify, "settings", unshrunk)
    with pytest.raises(AssertionError, match="elements are wrong"):
        testing.certify_kernel(record("drops_the_last_row"), values="small", dtypes="float64")


def test_a_kernel_that_refuses_everything_is_not_certified() -> None:
    never = dispatch.checks.library_is("torch")
    with pytest.raises(AssertionError, match=r"served no example.*library"):
        testing.certify_kernel(record("obvious_kernel", checks=(never,)), examples=5)


def test_a_run_of_another_kernel_is_noticed() -> None:
    trace = dispatch.Trace([dispatch.Run("matmul", "another")])
    with pytest.raises(AssertionError, match="what ran is"):
        certify._check_ran(trace, record("obvious_kernel"))


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="no kernel 'nobody' of 'matmul'"):
        testing.certify_kernel("nobody")
