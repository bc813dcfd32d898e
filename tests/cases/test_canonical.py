"""Canonical form: duplicates (C03), stale flags (C04), order of coordinates (C05)."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import sparseformats as sf
from sparseformats.testing import unchanged
from tests.cases.support import (
    LIBRARIES,
    SPARSE_LINES,
    STRICT,
    array,
    convert,
    dense,
    fits,
    host,
    in_every_format,
    name_of,
    products,
)


# C03: repeated positions add up on every path.
@pytest.mark.parametrize("library", STRICT)
def test_duplicates_are_summed_on_every_path(library):
    data, row, col = [1.0, 2, 4], [1, 1, 0], [0, 0, 2]
    D = np.array([[0, 0, 4], [3, 0, 0]], float)
    A = sf.COO(array(data, library), array(row, library), array(col, library), (2, 3))
    for name, B in in_every_format(A):
        assert np.array_equal(dense(B), D), name
        assert B.nnz == 2, name
    C = A.to("csr")
    assert host(C.indices).tolist() == [2, 0]
    assert host(C.data).tolist() == [4, 3]


def test_duplicates_from_scipy_and_torch():
    torch = pytest.importorskip("torch")
    data, row, col = np.array([1.0, 2, 4]), np.array([1, 1, 0]), np.array([0, 0, 2])
    D = np.array([[0, 0, 4], [3, 0, 0]], float)
    S = sp.coo_array((data, (row, col)), shape=(2, 3))
    T = torch.sparse_coo_tensor(np.stack([row, col]), data, (2, 3), check_invariants=True)
    assert not T.is_coalesced()
    unsummed = sp.csr_array((data.copy(), np.array([2, 0, 0]), np.array([0, 1, 3])), shape=(2, 3))
    unsummed.data[:] = [4, 1, 2]
    with unchanged(S.data, S.coords[0], unsummed.data, unsummed.indices):
        made = [sf.from_scipy(S), sf.from_torch(T), sf.from_scipy(unsummed)]
    for A in made:
        assert A.nnz == 2
        assert np.array_equal(dense(A), D)
    assert not T.is_coalesced()


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_duplicates_in_any_order(order):
    data, row, col = (np.array(x)[list(order)] for x in ([1, 2, 4, 8], [1, 1, 0, 1], [0, 0, 2, 0]))
    A = sf.COO(data, row, col, (2, 3))
    assert np.array_equal(dense(A), [[0, 0, 4], [11, 0, 0]])


@pytest.mark.parametrize("make", [sf.CSR, sf.CSC])
def test_duplicates_of_compressed(make):
    A = make([1.0, 2, 4, 8], [1, 0, 1, 1], [0, 3, 4], (2, 2))
    expected = np.array([[2, 5], [0, 8]], float)
    assert np.array_equal(dense(A), expected if make is sf.CSR else expected.T)
    assert A.nnz == 3


# C04: nothing is remembered that could go stale.
def test_sorting_makes_canonical_and_nothing_remembers_otherwise():
    S = sp.csr_array(
        (np.array([1.0, 2, 3, 4]), np.array([3, 0, 2, 1]), np.array([0, 2, 4])), shape=(2, 4)
    )
    A = sf.from_scipy(S)
    assert A.problems() == []
    B = A.to_scipy()
    assert B.has_sorted_indices
    assert B.has_canonical_format
    # SciPy remembers a flag that is no longer true; the arrays are read, not the flag.
    lying = sp.csr_array(
        (np.array([1.0, 2, 3, 4]), np.array([0, 3, 1, 2]), np.array([0, 2, 4])), shape=(2, 4)
    )
    assert lying.has_canonical_format
    lying.indices[:2] = [3, 0]
    C = sf.from_scipy(lying)
    assert C.problems() == []
    assert np.array_equal(dense(C), [[2, 0, 0, 1], [0, 3, 4, 0]])
    lying.indices[:2] = [1, 1]
    assert np.array_equal(dense(sf.from_scipy(lying)), [[0, 3, 0, 0], [0, 3, 4, 0]])


def test_no_flag_is_kept_by_a_matrix():
    bad = {"data": np.array([1.0, 2]), "indices": np.array([2, 0]), "indptr": np.array([0, 2])}
    A = sf.CSR(**bad, shape=(1, 3), check=False, copy=False)
    assert [p.rule for p in A.problems()] == ["sorted"]
    bad["indices"][:] = [0, 2]  # a promise broken, on purpose: shared arrays were written to
    assert A.problems() == []
    bad["indices"][:] = [2, 2]
    assert [p.rule for p in A.problems()] == ["sorted"]


def test_index_arrays_cannot_be_written():
    A = sf.CSR([1.0, 2], [2, 0], [0, 2], (1, 3))
    for name, x in A.buffers().items():
        with pytest.raises(ValueError, match="read-only"):
            x[0] = 1
        assert name


# C05: coordinates in column order reach every kernel in row order.
@pytest.mark.parametrize("library", LIBRARIES)
def test_column_order_loses_no_terms(library):
    row, col = [1, 2, 0, 2, 0, 1, 2], [0, 0, 1, 1, 2, 2, 2]
    data, x = np.ones(7, np.float32), array(np.ones(3, np.float32), library)
    A = sf.COO(array(data, library), array(row, library), array(col, library), (3, 3))
    for target in (
        *SPARSE_LINES,
        ("bsr", {"blocksize": (3, 3)}),
        ("blocked_ell", {"blocksize": 3}),
    ):
        if fits(dense(A), target):
            B = convert(A, target)
            for kernel, y in products(B, x):
                assert y.tolist() == [2, 2, 3], (name_of(target), kernel)


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_route_out_of_shuffled_coordinates(library):
    rng = np.random.default_rng(2)
    D = np.round(rng.standard_normal((13, 11)), 2) * (rng.random((13, 11)) < 0.3)
    row, col = np.nonzero(D)
    data = D[row, col]
    for order in (np.lexsort((row, col)), rng.permutation(len(row)), np.arange(len(row))[::-1]):
        A = sf.COO(*(array(x[order], library) for x in (data, row, col)), D.shape)
        for name, B in in_every_format(A):
            assert np.array_equal(dense(B), D), name
