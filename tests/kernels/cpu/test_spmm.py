"""Every matmul kernel against the oracle, on every format, dtype and kind of call it names."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import sparseformats as sf
from sparseformats import _arrays, _dtypes
from sparseformats.ops.scalars import result_dtype
from sparseformats.testing import LAYOUTS, assert_close, dense_operands, laid_out, matrices
from tests.kernels.cpu.products import (
    CASES,
    KERNELS,
    allows,
    array,
    matrix,
    multiply,
    needs_finite,
    values,
)

EACH = pytest.mark.parametrize(("kernel", "library", "format"), CASES)
SHAPES = [(14, 11), (9, 6), (1, 1), (2, 13), (7, 5)]


def operand(A: Any, shape: Any, dtype: str = "float32", seed: int = 9) -> Any:
    return array(A.library, values(np.random.default_rng(seed), dtype, shape))


@EACH
@pytest.mark.parametrize("shape", SHAPES)
def test_both_sides(kernel: str, library: str, format: str, shape: tuple[int, int]) -> None:
    A = matrix(format, shape, library)
    for n in (1, 5, 40):
        X = operand(A, (shape[1], n))
        assert_close(multiply(kernel, A, X), A, X)
    flipped = {"csr": "csc", "csc": "csr"}.get(format, f"{format}.T".removesuffix(".T.T"))
    if (kernel, library, flipped) in CASES:
        Z = operand(A, (5, shape[0]))
        assert_close(multiply(kernel, Z, A), A, Z, left=True)


@EACH
def test_every_dtype_that_the_record_allows(kernel: str, library: str, format: str) -> None:
    lib, tried = _arrays.library(library), 0
    for dtype in _dtypes.VALUE_DTYPES[library]:
        if allows(KERNELS[kernel], "out_dtype", result_dtype(lib, dtype, dtype)):
            A, X = matrix(format, (14, 11), library, dtype), None
            X = operand(A, (11, 5), dtype)
            assert_close(multiply(kernel, A, X), A, X)
            tried += 1
    assert tried >= 6


@EACH
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_of_the_operand(kernel: str, library: str, format: str, layout: str) -> None:
    A = matrix(format, (14, 11), library)
    for n in (1, 6):
        host = values(np.random.default_rng(1), "float32", (11, n))
        X = laid_out(host, layout, A.lib)
        before = A.lib.to_numpy(X).copy()
        assert_close(multiply(kernel, A, X), A, X)
        np.testing.assert_array_equal(A.lib.to_numpy(X), before)


def outs(lib: Any, shape: tuple[int, int], dtype: str) -> list[Any]:
    """Arrays full of NaN: row-major, column-major, every second row, every second column."""
    m, n = shape
    full = [lib.full(s, float("nan"), dtype) for s in (shape, (n, m), (2 * m, n), (m, 2 * n))]
    return [full[0], full[1].mT, full[2][::2], full[3][:, ::2]]


@EACH
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_out_is_written_and_never_read_with_beta_zero(
    kernel: str, library: str, format: str, dtype: str
) -> None:
    A = matrix(format, (14, 11), library, dtype)
    X = operand(A, (11, 5), dtype)
    for out in outs(A.lib, (14, 5), dtype):
        assert multiply(kernel, A, X, out=out) is out
        assert_close(out, A, X)
        multiply(kernel, A, X, out=out, alpha=-1.5)
        assert_close(out, A, X, alpha=-1.5)


@EACH
@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64", "int32"])
def test_alpha_and_beta(kernel: str, library: str, format: str, dtype: str) -> None:
    if not allows(KERNELS[kernel], "out_dtype", dtype):
        with pytest.raises(sf.NoKernelError, match="OUT"):
            sf.matmul(
                matrix(format, (14, 11), library, dtype),
                operand(matrix(format, (1, 1), library), (11, 5), dtype),
                kernel=kernel,
            )
        return
    A = matrix(format, (14, 11), library, dtype)
    X = operand(A, (11, 5), dtype)
    start = operand(A, (14, 5), dtype, seed=4)
    scalars: list[tuple[Any, Any]] = [(1, 1), (-2, 3), (0, 1)]
    scalars += [(2 - 1j, 0.5j)] if dtype == "complex64" else []
    for alpha, beta in scalars:
        out = A.lib.copy(start)
        multiply(kernel, A, X, out=out, alpha=alpha, beta=beta)
        assert_close(out, A, X, alpha=alpha, beta=beta, out=start)


@EACH
def test_non_finite_operands(kernel: str, library: str, format: str) -> None:
    for shape in ((14, 11), (9, 6)):
        A = matrix(format, shape, library)
        host = values(np.random.default_rng(3), "float32", (shape[1], 4))
        host[0, 0], host[-1, 1], host[shape[1] // 2, 2] = np.inf, -np.inf, np.nan
        X = array(library, host)
        if needs_finite(kernel):
            with pytest.raises(sf.NoKernelError, match="needs-finite-operand"):
                multiply(kernel, A, X, assume_finite=False)
            continue
        assert_close(multiply(kernel, A, X), A, X)


@EACH
@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0), (5, 7)])
def test_empty_sizes(kernel: str, library: str, format: str, shape: tuple[int, int]) -> None:
    A = matrix(format, shape, library)
    for n in (0, 1, 3):
        X = operand(A, (shape[1], n))
        assert_close(multiply(kernel, A, X), A, X)
        out = A.lib.full((shape[0], n), float("nan"), "float32")
        assert_close(multiply(kernel, A, X, out=out), A, X)


@EACH
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_both_index_widths(kernel: str, library: str, format: str, index: str) -> None:
    A = matrix(format, (14, 11), library, index=index)
    X = operand(A, (11, 3))
    assert_close(multiply(kernel, A, X), A, X)


@EACH
def test_batches(kernel: str, library: str, format: str) -> None:
    A = matrix(format, (14, 11), library)
    for shape in ((2, 11, 3), (2, 3, 11, 4), (2, 11, 33), (0, 11, 4)):
        X = operand(A, shape)
        assert_close(multiply(kernel, A, X), A, X)
        out = A.lib.full((*shape[:-2], 14, shape[-1]), float("nan"), "float32")
        assert_close(multiply(kernel, A, X, out=out), A, X)


@pytest.mark.parametrize(("kernel", "library"), sorted({case[:2] for case in CASES}))
def test_drawn_matrices(kernel: str, library: str) -> None:
    formats = [f for name, lib, f in CASES if (name, lib) == (kernel, library)]
    lib = _arrays.library(library)
    dtypes = [
        dtype
        for dtype in _dtypes.VALUE_DTYPES[library]
        if allows(KERNELS[kernel], "out_dtype", result_dtype(lib, dtype, dtype))
    ]

    @given(st.data())
    def run(data: Any) -> None:
        pool = "moderate" if needs_finite(kernel) else "any"
        A = data.draw(matrices(formats, library=library, dtypes=dtypes, values=pool))
        X = data.draw(dense_operands(A, values=pool))
        assert_close(multiply(kernel, A, X), A, X)

    run()


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize(
    ("block", "k", "n"), [(16, 16, 33), (16, 48, 33), (16, 80, 33), (64, 512, 64), (64, 500, 65)]
)
def test_blocks_of_every_size_are_exact(library: str, block: int, k: int, n: int) -> None:
    rng = np.random.default_rng(0)
    X = array(library, rng.integers(-3, 4, (k, n)).astype(np.float32))
    rows = -(-100 // block)
    cols = -(-k // block)
    row, col = (x.reshape(-1) for x in np.mgrid[:rows, :cols])
    data = rng.integers(-3, 4, (row.size, block, block)).astype(np.float32)
    data[row * block + block > 100, 100 % block :] = 0
    data[col * block + block > k, :, k % block :] = 0
    start = np.arange(rows + 1) * cols
    A = sf.BSR(*(array(library, x) for x in (data, col, start)), (100, k))
    dense = sum_of_blocks(row, col, data, block)[:100, :k]
    for kernel in (f"{library}-blocks", "scipy-bsr", "scipy-csr"):
        y = A.lib.to_numpy(multiply(kernel, A, X))
        np.testing.assert_array_equal(y, dense @ A.lib.to_numpy(X))


def sum_of_blocks(row: Any, col: Any, data: Any, b: int) -> Any:
    dense = np.zeros(((row.max() + 1) * b, (col.max() + 1) * b), data.dtype)
    for i, j, block in zip(row, col, data, strict=True):
        dense[i * b : i * b + b, j * b : j * b + b] = block
    return dense


@pytest.mark.parametrize(("kernel", "library", "format"), CASES[::3])
def test_eight_threads_multiply_one_matrix(kernel: str, library: str, format: str) -> None:
    A = matrix(format, (14, 11), library)
    X = operand(A, (11, 5))
    options: dict[str, Any] = {"kernel": kernel, "assume_finite": needs_finite(kernel)}
    expected = A.lib.to_numpy(sf.matmul(A, X, **options))
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda _: sf.matmul(A, X, **options), range(32))
        for y in found:
            np.testing.assert_array_equal(A.lib.to_numpy(y), expected)
