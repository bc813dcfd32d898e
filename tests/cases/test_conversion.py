"""Conversions: block order (C01), zeros of both kinds (C02), NaN from dense (C16)."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import sparseformats as sf
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
)

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")


# C01: block columns come out in ascending order, whatever row meets them first.
@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8", "bool", "complex64"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_block_columns_are_sorted(library, dtype, index):
    A = sf.CSR(
        array([1, 2, 3, 4], library, dtype),
        array([4, 5, 0, 1], library, index),
        array([0, 2, 4], library, index),
        (2, 6),
    )
    for source in (A, A.to("coo"), A.to("csc"), A.to("bsr", blocksize=1)):
        B = convert(source, ("bsr", {"blocksize": (2, 2)}))
        assert host(B.indices).tolist() == [0, 2]
        assert host(B.indptr).tolist() == [0, 2]
        expected = np.array([[[0, 0], [3, 4]], [[1, 2], [0, 0]]]).astype(dtype)
        assert np.array_equal(host(B.data), expected)
        E = convert(source, ("blocked_ell", {"blocksize": 2}))
        assert host(E.col_indices).tolist() == [[0, 2]]
        assert np.array_equal(host(E.data)[0], expected)


def test_block_columns_are_sorted_for_many_rows():
    rng = np.random.default_rng(1)
    S = sp.random_array((64, 96), density=0.05, rng=rng, format="csr")
    A = sf.from_scipy(S)
    for block in ((4, 8), (5, 7), (64, 1), (1, 96), (3, 200)):
        B = convert(A, ("bsr", {"blocksize": block}))
        assert np.array_equal(dense(B), S.toarray())


# C02: fill is not content, a stored zero is.
@pytest.mark.parametrize("library", LIBRARIES)
def test_fill_is_dropped_and_stored_zeros_are_kept(library):
    D = np.diag([1.0, 2, 3, 4])
    B = sf.from_dense(array(D, library), "bsr", blocksize=(2, 2))
    assert (B.nnzb, B.nnz) == (2, 4)
    for target in SPARSE_LINES:
        C = convert(B, target)
        assert C.nnz == 4, target
        assert content(C) == content(B)
    full = sf.BSR(B.data, B.indices, B.indptr, (4, 4), stored="all")
    assert full.nnz == 8
    for target in TARGETS:
        C = convert(full, target)
        assert C.nnz == 8, target
        assert content(C) == content(full)
        assert content(C.to("bsr", blocksize=(2, 2))) == content(full)


@pytest.mark.parametrize("library", LIBRARIES)
def test_pattern_comes_back_through_blocks(library):
    """csr -> any -> csr returns exactly the pattern, explicit zeros of both signs included."""
    data = array([0.0, 2.0, -0.0, 5.0, 0.0], library)
    Z = sf.CSR(data, array([0, 1, 0, 3, 4], library), array([0, 1, 3, 5], library), (3, 5))
    assert Z.nnz == 5
    for name, B in in_every_format(Z):
        assert B.nnz == 5, name
        C = B.to("csr")
        for part in ("data", "indices", "indptr"):
            x, y = (host(M.buffers()[part]) for M in (C, Z))
            if part != "data" and name in ("2:4", "4:4"):
                y = y.astype(x.dtype)  # n:m has positions in a byte and no width to keep
            assert (x.dtype, x.tobytes()) == (y.dtype, y.tobytes()), (name, part)


def test_explicit_zero_of_scipy_survives():
    Z = sp.csr_array((np.array([0.0, 2]), np.array([0, 1]), np.array([0, 1, 2])), shape=(2, 3))
    for S in (Z, Z.tocsc(), Z.tocoo()):
        A = sf.from_scipy(S)
        assert A.nnz == 2
        for format in ("csc", "coo", "csr"):
            assert A.to(format).nnz == 2
            assert A.to(format).to_scipy().nnz == 2
        for name, B in in_every_format(A):
            assert (B.nnz, B.to("csr").nnz) == (2, 2), name


def test_scipy_blocks_say_which_zeros_are_stored():
    S = sp.bsr_array(np.diag([1.0, 2, 3, 4]), blocksize=(2, 2))
    assert sf.from_scipy(S).nnz == 4
    assert sf.from_scipy(S).to("csr").nnz == 4
    assert sf.from_scipy(S, stored="all").nnz == 8
    assert sf.from_scipy(S, stored="all").to("csr").nnz == 8


def test_dense_views_and_sums_of_zero_never_become_something():
    D = np.zeros((6, 8))
    D[1, 2], D[4, 7] = -0.0, 3.0
    A = sf.from_dense(D)
    assert A.nnz == 1
    for name, B in in_every_format(A):
        assert np.array_equal(host(B.to_dense()), D), name
        assert not np.signbit(host(B.to_dense())).any(), name


@pytest.mark.parametrize("target", SPARSE_LINES, ids=name_of)
def test_a_mask_stores_exactly_what_it_selects(target):
    D = np.array([[0.0, -0.0, 3, 0], [0, 0, 0, 4]])
    mask = np.array([[True, True, False, False], [False, False, True, True]])
    A = sf.from_dense(D, target[0], mask=mask, **target[1])
    assert A.nnz == 4
    assert content(A) == {(i, j): D[i, j].tobytes() for i, j in np.argwhere(mask).tolist()}


# C16: NaN is a value.
NANS = {
    "float16": ("uint16", [0x7E01, 0xFE00, 0x7C01]),
    "float32": ("uint32", [0x7FC00123, 0xFFC00000, 0x7F800001]),
    "float64": ("uint64", [0x7FF8000000000ABC, 0xFFF8000000000000, 0x7FF0000000000001]),
}


@pytest.mark.parametrize("dtype", NANS)
@pytest.mark.parametrize("library", STRICT)
def test_nan_payloads_from_dense(library, dtype):
    if library == "array_api_strict" and dtype == "float16":
        return  # the standard has no such type
    bits, payloads = NANS[dtype]
    D = np.zeros((2, 12), dtype)
    view = D.view(bits)
    view[0, 2], view[0, 7], view[1, 0] = payloads
    D[1, 4] = -np.inf
    A = sf.from_dense(array(D, library))
    assert A.nnz == 4
    for name, B in in_every_format(A):
        assert B.nnz == 4, name
        assert content(B) == content(A), name
        assert host(B.to_dense()).tobytes() == D.tobytes(), name
    for target in SPARSE_LINES:
        B = sf.from_dense(array(D, library), target[0], **target[1])
        assert content(B) == content(A), target


def test_nan_counts_everywhere():
    X = np.full((1, 9), 3.0)
    X[0, 2] = np.nan
    Y = np.array([[np.nan, 0, 0, 0, -np.inf, 0, 0, 0]], np.float32)
    for name, A in in_every_format(sf.from_dense(X)):
        assert A.nnz == 9, name
    for target in SPARSE_LINES:
        assert sf.from_dense(Y, target[0], **target[1]).nnz == 2


@pytest.mark.parametrize("library", LIBRARIES)
def test_nan_is_a_nonzero_of_its_group(library):
    D = np.array([[np.nan, 1, 2, 0, 0, 0, 0, 0]])
    with pytest.raises(sf.PatternError, match="row 0, group 0 has 3"):
        sf.from_dense(array(D, library), "2:4")
    with pytest.raises(sf.PatternError, match="row 0, group 0 has 3"):
        sf.from_dense(array(D, library)).to("2:4")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 5e-324])
def test_special_values_through_the_neighbours(value):
    D = np.array([[value, 0, 0, 1], [0, value, 0, 0]])
    A = sf.from_scipy(sp.csr_array(D))
    for format in ("csr", "csc", "coo"):
        assert content(sf.from_scipy(A.to(format).to_scipy())) == content(A)
    T = A.to_library("torch")
    for format in ("csr", "csc", "coo"):
        assert content(sf.from_torch(T.to(format).to_torch())) == content(A)
    assert content(sf.from_torch(torch.from_numpy(D))) == content(A)
