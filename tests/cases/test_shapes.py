"""Shapes: empty ones (C08), blocks that do not divide (C10), odd multiples of 16 (C24)."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparseformats as sf
from sparseformats._dtypes import VALUE_DTYPES
from tests.cases.support import (
    LIBRARIES,
    SPARSE_LINES,
    STRICT,
    TARGETS,
    array,
    content,
    convert,
    dense,
    host,
    in_every_format,
    name_of,
    products,
)


# C08: products and conversions with a dimension of zero.
@pytest.mark.parametrize("target", SPARSE_LINES, ids=name_of)
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 0), (0, 2)), ((4, 4), (4, 0)), ((0, 4), (4, 2)), ((0, 0), (0, 0)), ((0, 0), (0, 3))]
    + [((3, 0), (0,)), ((0, 4), (4,)), ((0, 0), (0,)), ((2, 0), (5, 0, 2)), ((2, 3), (0, 3, 2))],
)
def test_products_of_empty_shapes(target, library, left, right):
    D, X = np.zeros(left), np.zeros(right)
    A = sf.from_dense(array(D, library), target[0], **target[1])
    expected = D @ X
    for kernel, y in products(A, array(X, library)):
        assert y.shape == expected.shape, kernel
        assert y.dtype == expected.dtype, kernel
        assert not y.any(), kernel  # nothing uninitialised
    if len(right) == 2:
        y = host(array(X.T.copy(), library) @ A.T)
        assert y.shape == expected.T.shape
        assert not y.any()


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_empty_result_keeps_what_a_product_writes(library):
    """`out` full of NaN comes back as zeros, also where no stored element reaches."""
    for name, A in in_every_format(sf.from_dense(array(np.zeros((3, 0)), library))):
        out = array(np.full((3, 2), np.nan), library)
        sf.matmul(A, array(np.zeros((0, 2)), library), out=out)
        assert not host(out).any(), name


@pytest.mark.parametrize("library", STRICT)
@pytest.mark.parametrize("shape", [(0, 0), (0, 6), (6, 0), (1, 0), (0, 1)])
@pytest.mark.parametrize("source", SPARSE_LINES, ids=name_of)
def test_conversions_of_empty_shapes(source, shape, library):
    A = sf.from_dense(array(np.zeros(shape, np.float32), library), source[0], **source[1])
    for target in SPARSE_LINES:
        B = convert(A, target)
        assert (B.shape, B.dtype_name, B.nnz) == (shape, "float32", 0)
        assert content(B) == {}
        assert B.T.shape == shape[::-1]
        assert B.density == 0.0
        if target[0] in ("csr", "csc"):
            lines = shape[0] if target[0] == "csr" else shape[1]
            assert host(B.indptr).tolist() == [0] * (lines + 1)
    assert tuple(A.to_dense().shape) == shape


def test_blocks_fit_an_empty_shape():
    A = sf.from_dense(np.zeros((0, 6)), "bsr", blocksize=(2, 3))
    assert (A.blocksize, A.indptr.tolist(), A.data.shape) == ((2, 3), [0], (0, 2, 3))


@pytest.mark.parametrize("format", ["csr", "csc", "coo"])
def test_empty_shapes_to_the_neighbours(format):
    for shape in ((0, 0), (0, 6), (6, 0)):
        A = sf.from_dense(np.zeros(shape, np.float32), format)
        S = A.to_scipy()
        assert S.shape == shape
        assert S.dtype == np.float32
        assert sf.from_scipy(S).shape == shape
        T = A.to_library("torch").to_torch()
        assert tuple(T.shape) == shape
        assert sf.from_torch(T).shape == shape


# C10: blocks that do not divide the shape: the logical shape is kept, padding never leaks.
RAGGED = [(2, 3), (3, 2), (4, 4), (5, 7), (8, 8), (1, 6)]


@pytest.mark.parametrize("library", STRICT)
@pytest.mark.parametrize("block", RAGGED)
def test_ragged_blocks_keep_the_logical_shape(block, library):
    X = np.arange(1.0, 36).reshape(5, 7)
    A = sf.from_dense(array(X, library), "bsr", blocksize=block)
    E = sf.from_dense(array(X, library), "blocked_ell", blocksize=block[0])
    for B in (A, E, A.to("blocked_ell", blocksize=block[1]), E.to("bsr")):
        assert (B.shape, B.nnz, B.density) == ((5, 7), 35, 1.0)
        assert np.array_equal(host(B.to_dense()), X)
        assert content(B)[4, 6] == np.float64(35).tobytes()
        for target in TARGETS:
            assert content(convert(B, target)) == content(A)
        assert B.T.shape == (7, 5)
        assert np.array_equal(host(B.T.to_dense()), X.T)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("block", RAGGED)
def test_ragged_blocks_never_touch_the_operand_beyond_its_end(block, library):
    X = np.arange(1.0, 36).reshape(5, 7)
    # Guarded by NaN on all sides: a read beyond the logical columns would show.
    guarded = np.full((9, 5), np.nan)
    guarded[1:8, 1:4] = 1
    operand, vector = array(guarded, library)[1:8, 1:4], array(guarded, library)[1:8, 2]
    for format, size in (("bsr", block), ("blocked_ell", block[0])):
        A = sf.from_dense(array(X, library), format, blocksize=size)
        for kernel, y in products(A, operand):
            assert np.array_equal(y, X.sum(1)[:, None] * np.ones((1, 3))), kernel
        for kernel, y in products(A, vector):
            assert y.shape == (5,), kernel
            assert np.array_equal(y, X.sum(1)), kernel


def test_scipy_has_no_ragged_blocks_and_says_so():
    A = sf.from_dense(np.ones((5, 7)), "bsr", blocksize=(2, 3))
    with pytest.raises((TypeError, ValueError)) as caught:
        A.to_scipy()
    assert "(5, 7)" in str(caught.value) or "5 x 7" in str(caught.value)
    assert "(2, 3)" in str(caught.value) or "2 x 3" in str(caught.value)
    assert A.to("csr").to_scipy().shape == (5, 7)


# C24: K an odd multiple of the block.
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("k", [16, 48, 80])
def test_odd_multiples_of_the_block(k, library, dtype):
    rng = np.random.default_rng(0)
    D = rng.integers(-3, 4, (32, k)).astype(dtype)
    D[:16, :16] = 0
    X = rng.integers(-3, 4, (k, 33)).astype(dtype)
    expected = D.astype("float64") @ X.astype("float64")
    for format in ("bsr", "blocked_ell", "csr", "coo"):
        options = {} if format in ("csr", "coo") else {"blocksize": 16}
        A = sf.from_dense(array(D, library), format, **options)
        for columns in (1, 2, 7, 32, 33):
            for kernel, y in products(A, array(X[:, :columns], library)):
                assert np.array_equal(y.astype("float64"), expected[:, :columns]), kernel


def test_every_value_dtype_makes_every_empty_matrix():
    for library in LIBRARIES:
        lib = sf._arrays.library(library)
        for dtype in VALUE_DTYPES[library]:
            A = sf.CSR(lib.zeros(0, dtype), lib.zeros(0, "int32"), lib.zeros(3, "int32"), (2, 5))
            for name, B in in_every_format(A):
                assert B.dtype_name == dtype, name
                assert dense(B).shape == (2, 5)


def test_scipy_agrees_on_empty_products():
    S = sp.csr_array((3, 0))
    assert np.array_equal(sf.from_scipy(S) @ np.zeros((0, 2)), S @ np.zeros((0, 2)))
