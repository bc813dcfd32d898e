"""The product as users call it: operators, shapes, layouts, dtypes, out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, strategies as st

import sparseformats as sf
from sparseformats.testing import assert_close, dense_operands, matrices, register_strict, unchanged

FORMATS = ("coo", "csr", "csc", "bsr", "blocked_ell", "2:4")


def every_format(D: Any, formats: Any = FORMATS, blocksize: Any = (2, 2)) -> dict[str, Any]:
    """A dense array in each format that can hold it."""
    blocked = {"bsr": blocksize, "blocked_ell": (blocksize[0],) * 2}
    return {f: sf.from_dense(D, f, blocksize=blocked.get(f)) for f in formats}


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("left", [False, True])
def test_any_matrix_with_any_operand(library: str, left: bool) -> None:
    @given(st.data())
    def run(data: Any) -> None:
        A = data.draw(matrices(library=library, values="any"))
        X = data.draw(dense_operands(A, left=left, values="any"))
        y = X @ A if left else A @ X
        assert_close(y, A, X, left=left)
        assert A.lib.is_contiguous(y)

    run()


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_operands_of_two_dtypes(library: str) -> None:
    names = ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "complex64"]
    names += ["uint16", "uint32", "uint64"] if library == "numpy" else ["bfloat16"]

    @given(st.data())
    def run(data: Any) -> None:
        A = data.draw(matrices(library=library, dtypes=names, values="moderate"))
        X = data.draw(dense_operands(A, dtypes=names, values="moderate"))
        assert_close(A @ X, A, X)

    run()


@pytest.mark.parametrize("format", FORMATS)
def test_the_matrix_and_the_operand_stay_as_they_were(format: str) -> None:
    A = every_format(np.diag(np.arange(1.0, 9.0)))[format]
    X = np.arange(24.0).reshape(8, 3)
    parts = list(A.buffers().values())
    with unchanged(X, *parts):
        A @ X
        X.T @ A


# Results have the shape and the layout that NumPy's own product has.


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("shape", [(8,), (8, 3), (8, 1), (2, 8, 3), (2, 3, 8, 40), (1, 8, 2)])
def test_right_operands_of_every_rank(format: str, shape: tuple[int, ...]) -> None:
    D = np.kron(np.eye(4), np.array([[1.0, 2], [3, 4]]))[:6]
    A, X = every_format(D)[format], np.random.default_rng(0).standard_normal(shape)
    y = A @ X
    np.testing.assert_allclose(y, D @ X, rtol=1e-13)
    assert y.flags.c_contiguous
    assert_close(y, A, X)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("shape", [(6,), (3, 6), (1, 6), (2, 3, 6), (2, 3, 4, 6)])
def test_left_operands_of_every_rank(format: str, shape: tuple[int, ...]) -> None:
    D = np.kron(np.eye(4), np.array([[1.0, 2], [3, 4]]))[:6]
    A, X = every_format(D)[format], np.random.default_rng(0).standard_normal(shape)
    y = X @ A
    np.testing.assert_allclose(y, X @ D, rtol=1e-13)
    assert y.flags.c_contiguous


def test_left_batches_with_strides_that_do_not_fold() -> None:
    A = sf.from_dense(np.arange(6.0).reshape(2, 3), "csr")
    X = np.arange(24.0).reshape(2, 3, 2, 2).transpose(2, 1, 0, 3)
    out = np.full((3, 3, 2, 2), np.nan).transpose(3, 0, 2, 1)
    expected = X @ A.to_dense()
    assert sf.matmul(X, A, out=out) is out
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(X @ A, expected)


# Cases that people reported against other libraries.


def test_coordinates_sorted_by_column() -> None:
    row, col = np.array([1, 2, 0, 2, 0, 1, 2]), np.array([0, 0, 1, 1, 2, 2, 2])
    A = sf.from_scipy(sp.coo_array((np.ones(7, np.float32), (row, col)), shape=(3, 3)))
    for B in (
        A,
        A.to("csr"),
        A.to("bsr", blocksize=(1, 1)),
        A.to("bsr", blocksize=(3, 3)),
        A.to("blocked_ell", blocksize=(2, 2)),
        A.to("csc"),
    ):
        np.testing.assert_array_equal(B @ np.ones(3, np.float32), [2, 2, 3])


def test_products_with_a_zero_dimension() -> None:
    a, b = np.zeros((3, 0)), np.zeros((0, 2))
    c, d = np.arange(16.0).reshape(4, 4), np.zeros((4, 0))
    for A in every_format(a).values():
        np.testing.assert_array_equal(A @ b, np.zeros((3, 2)))
        assert (np.zeros((0, 3)) @ A).shape == (0, 0)
    for A in every_format(c, FORMATS[:-1]).values():
        assert (A @ d).shape == (4, 0)
        assert (d.T @ A).shape == (0, 4)


def test_empty_slots_of_blocked_ell_are_no_block() -> None:
    columns = np.array([[1, -1], [0, 3], [2, -1], [3, 1]], np.int32)
    blocks = np.array([[2.0, 50], [3, 4], [5, 60], [6, 7]]).reshape(4, 2, 1, 1)
    A = sf.BlockedELL(blocks, columns, (4, 4))
    for x in (np.array([1.0, 2, 3, 4]), np.array([np.inf, 2, 3, 4])):
        y = A @ x
        assert y[0] == 4
        assert y[2] == 15
    np.testing.assert_array_equal(A @ np.array([1.0, 2, 3, 4]), [4, 19, 15, 38])


def test_the_axis_of_two_to_four_and_a_linear_layer() -> None:
    W = np.tile(np.array([0, 1, 0, 2], np.float16), (32, 16))
    A = sf.from_dense(W, "2:4")
    x = np.ones((1, 64), np.float16)
    np.testing.assert_array_equal(x @ A.T, np.full((1, 32), 48, np.float16))
    P = np.tile(np.array([1, 0, 1, 0], np.float16), (8, 2))
    with pytest.raises(sf.PatternError):
        sf.from_dense(P.T, "2:4")
    ragged = sf.from_dense(np.array([[1, 0, 0, 0, 2, 3]], np.float16), "2:4")
    assert (ragged @ np.ones(6, np.float16)).tolist() == [6]


def test_stored_nan_and_infinite_operands() -> None:
    A, C = np.array([[5, np.nan], [1, 2.0]]), np.array([[0.0, 1], [0, 0]])
    for M in every_format(A, FORMATS[:-1]).values():
        np.testing.assert_array_equal(M @ C, [[np.nan, np.nan], [0, 1]])
    X, B = np.eye(2), np.array([[1.0], [np.inf]])
    for format, M in every_format(X, FORMATS[:-1]).items():
        blocked = format in ("bsr", "blocked_ell")
        np.testing.assert_array_equal(M @ B, [[np.nan if blocked else 1], [np.inf]])


@pytest.mark.parametrize("format", FORMATS)
def test_half_sums_do_not_saturate(format: str) -> None:
    D = np.ones((1, 4096), np.float16)
    A = every_format(D, [format])[format] if format != "2:4" else sf.from_dense(D, "4:4")
    assert (A @ np.ones((4096, 1), np.float16)).tolist() == [[4096]]
    y = A @ np.full((4096, 1), 1e-3, np.float16)
    assert y.dtype == np.float16
    assert abs(float(y[0, 0]) - 4.098) < 4.098 * 2**-9


def test_mixed_and_narrow_dtypes() -> None:
    A32, x64 = np.eye(2, dtype=np.float32), np.array([[1e-40], [1 + 2.0**-40]])
    Ai, xf = np.array([[2, 0], [0, 3]], np.int32), np.array([[0.5], [0.5]])
    I8 = np.array([[100, 100]], np.int8)
    for format in FORMATS:
        y = sf.from_dense(A32, format, blocksize=2 if "b" in format else None) @ x64
        assert y.dtype == np.float64
        np.testing.assert_array_equal(y, x64)
        z = sf.from_dense(Ai, format, blocksize=2 if "b" in format else None) @ xf
        np.testing.assert_array_equal(z, [[1.0], [1.5]])
        w = sf.from_dense(I8, format, blocksize=1 if "b" in format else None) @ I8.T
        assert (w.dtype, w.tolist()) == (np.int32, [[20000]])


def test_strided_operands() -> None:
    D = np.array([[2.0, 0], [1, 5]])
    X, Xt = np.array([[1.0, 7], [3, 2]]).T, np.arange(12.0).reshape(2, 6)[:, ::2]
    for A in every_format(D).values():
        np.testing.assert_array_equal(A @ X, [[2, 6], [36, 13]])
        np.testing.assert_array_equal(A @ Xt, D @ Xt)
        np.testing.assert_array_equal(A @ X[:, 0], D @ X[:, 0])


def test_out_of_any_layout() -> None:
    D = np.kron(np.eye(2), np.ones((2, 2))) * np.array([[1.0], [1], [0], [0]])
    base = np.full((8, 3), np.nan)
    for A in every_format(D).values():
        for out in (np.full((4, 3), np.nan), np.full((4, 3), np.nan, order="F"), base[::2]):
            assert sf.matmul(A, np.ones((4, 3)), out=out) is out
            np.testing.assert_array_equal(out, [[2] * 3, [2] * 3, [0] * 3, [0] * 3])
        assert np.isnan(base[1::2]).all()


def test_adjoints() -> None:
    D, x = np.array([[1j, 2], [0, 3 - 1j]]), np.ones((2, 1))
    for A in every_format(D).values():
        np.testing.assert_array_equal(A.conj().T @ x, [[-1j], [5 + 1j]])
        np.testing.assert_array_equal(A.T @ x, [[1j], [5 - 1j]])


def test_out_may_be_the_operand() -> None:
    D = np.arange(9.0).reshape(3, 3)
    for A in every_format(D, FORMATS[:-1], (3, 3)).values():
        X = np.arange(9.0).reshape(3, 3) + 1
        expected = 2 * (D @ X) + 3 * X
        np.testing.assert_array_equal(sf.matmul(A, X, out=X, alpha=2, beta=3), expected)
        big = np.arange(12.0).reshape(4, 3)
        expected = D @ big[:3]
        np.testing.assert_array_equal(sf.matmul(A, big[:3], out=big[1:]), expected)


def test_out_may_overlap_the_operand_in_torch() -> None:
    A = sf.from_dense(torch.arange(9.0).reshape(3, 3), "csr")
    X = torch.arange(12.0).reshape(4, 3)
    expected = A.to_dense() @ X[:3]
    sf.matmul(A, X[:3], out=X[1:])
    assert torch.equal(X[1:], expected)


def test_vectors_with_out_alpha_and_beta() -> None:
    A, x = sf.from_dense(np.array([[2.0, 0], [1, 5]]), "csr"), np.array([1.0, 2])
    out = np.array([10.0, 0, 20.0])[::2]
    assert sf.matmul(A, x, out=out, alpha=2, beta=0.5) is out
    assert out.tolist() == [9, 32]
    assert sf.matmul(x, A, out=out).tolist() == [4, 10]


def test_neighbours_matrices_are_converted() -> None:
    S = sp.csr_array(np.array([[2.0, 0], [1, 5]]))
    A, x = sf.from_dense(np.eye(2), "csr"), np.array([1.0, 2])
    assert sf.matmul(S, x).tolist() == [2, 11]
    assert sf.matmul(x, S).tolist() == [4, 10]
    assert isinstance(sf.matmul(S, A), sf.CSR)
    assert isinstance(A @ S, sf.CSR)
    with pytest.raises(TypeError, match="from_scipy"):
        S @ A
    T = torch.tensor([[2.0, 0], [1, 5]]).to_sparse_csr()
    assert sf.matmul(T, torch.tensor([1.0, 2])).tolist() == [2, 11]


def test_a_numpy_matrix_is_read_as_an_array() -> None:
    A = sf.from_dense(np.array([[2.0, 0], [1, 5]]), "csr")
    with pytest.warns(PendingDeprecationWarning):
        M = np.asmatrix(np.ones((2, 1)))
    y = A @ M
    assert type(y) is np.ndarray
    assert y.tolist() == [[2], [6]]


def test_byte_swapped_operands() -> None:
    A = sf.from_dense(np.array([[2.0, 0], [1, 5]]), "csr")
    assert (A @ np.array([1.0, 2]).astype(">f8")).tolist() == [2, 11]


@pytest.mark.parametrize("format", FORMATS)
def test_arrays_of_a_library_that_only_the_reference_reads(format: str) -> None:
    xp = pytest.importorskip("array_api_strict")
    register_strict()
    A = every_format(np.array([[2.0, 0], [1, 5]]))[format].to_library("array_api_strict")
    with sf.tracing() as trace:
        y = sf.matmul(A, xp.ones((2, 2)), out=xp.zeros((2, 2)), alpha=2)
    assert trace.kernels == ["reference"]
    assert A.lib.to_numpy(y).tolist() == [[4, 4], [12, 12]]


def test_explain_names_what_matmul_runs() -> None:
    for A in every_format(np.eye(8)).values():
        X = np.ones((8, 3))
        explanation = sf.explain(A, X)
        with sf.tracing() as trace:
            A @ X
        assert trace.kernels == [explanation.chosen]
        assert trace[0].query == explanation.query
        assert trace[0].seconds is not None
        assert "cost model" in str(explanation)


def test_facts_of_a_call() -> None:
    A = sf.from_dense(np.eye(6, 4), "bsr", blocksize=(3, 2))
    X = np.ones((5, 2, 6))
    q = sf.explain(X, A, alpha=2, out=np.zeros((5, 2, 4)), beta=1, assume_finite=True).query
    assert (q.op, q.format_name, q.m, q.k, q.n, q.batch) == ("matmul", "bsr.T", 4, 6, 2, 5)
    assert (q.blocksize, q.nnz, q.nbytes) == ((3, 2), None, A.nbytes)
    assert (q.a_dtype, q.x_dtype, q.out_dtype) == ("float64",) * 3
    assert (q.x_layout, q.out_layout) == ("F", "F")
    assert (q.alpha_one, q.beta_zero, q.assume_finite, q.fits_int32) == (False, False, True, True)
    q = sf.explain(A.T, np.ones((8, 6)).T[:, ::2], precision="tf32").query
    assert (q.transposed, q.x_layout, q.precision) == (True, "strided", "tf32")
    assert sf.explain(A.to("csr"), np.ones(4), precision="ieee").query.precision is None


def test_validate() -> None:
    A = sf.from_dense(np.eye(2), "csr")
    assert sf.validate(A) is None
    broken = sf.CSR.trusted(data=A.data, indices=np.array([0, 9]), indptr=A.indptr, shape=A.shape)
    with pytest.raises(sf.InvalidTensorError, match="index-range"):
        sf.validate(broken)
    with pytest.raises(TypeError, match="asformat"):
        sf.validate(np.eye(2))  # type: ignore[arg-type]
