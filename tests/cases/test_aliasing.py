"""Nothing changes its source and results share no memory with the caller's arrays (C30)."""

import contextlib

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import sparseformats as sf
from sparseformats.testing import shares_memory, unchanged
from tests.cases.support import (
    LIBRARIES,
    SPARSE_LINES,
    array,
    content,
    dense,
    fits,
    host,
    in_every_format,
    name_of,
)

ROW, COL, DATA = [1, 1, 0], [0, 0, 2], [1.0, 2, 3]


def _use(A):
    """Whatever a person does with a matrix."""
    shape = (A.shape[1], 2)
    made = [
        A.to(format, **options) for format, options in SPARSE_LINES if fits(dense(A), (format,))
    ]
    made += [A.T, A.conj(), A.to_dense(), A @ array(np.ones(shape), A.library)]
    repr(A), A.nnz, A.problems(), A.validate(), sf.explain(A, array(np.ones(shape), A.library))
    return made


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_constructor_and_what_follows_leave_the_arguments_alone(library):
    row, col, data = (array(x, library) for x in (ROW, COL, DATA))
    csr = [array(x, library) for x in ([8.0, 7, 9], [3, 1, 0], [0, 2, 3])]
    with unchanged(row, col, data, *csr):
        for copy in (True, False):
            made = [sf.COO(data, row, col, (2, 3), copy=copy), sf.CSR(*csr, (2, 4), copy=copy)]
            for A in made:
                _use(A)


@pytest.mark.parametrize("library", LIBRARIES)
def test_results_share_nothing_with_the_arguments(library):
    csr = [array(x, library) for x in ([7.0, 8, 9], [1, 3, 0], [0, 2, 3])]  # canonical already
    A = sf.CSR(*csr, (2, 4))
    for made in [A, *_use(A)]:
        buffers = made.buffers().values() if isinstance(made, sf.SparseMatrix) else [made]
        for x in buffers:
            assert not any(shares_memory(x, y) for y in csr)


@pytest.mark.parametrize("library", LIBRARIES)
def test_writing_to_the_arguments_cannot_break_a_checked_matrix(library):
    for name, B in in_every_format(sf.from_dense(array(np.eye(4), library))):
        parts = {n: array(host(x), library) for n, x in B.buffers().items()}
        options = {"n": B.n, "m": B.m} if isinstance(B, sf.NM) else {}
        A = type(B)(**parts, shape=B.shape, **options)
        before = content(A)
        for x in parts.values():
            x[...] = 99
        assert A.problems() == [], name
        assert content(A) == before, name


@pytest.mark.parametrize("library", LIBRARIES)
def test_dense_sources_are_not_shared(library):
    D = array(np.arange(16.0).reshape(4, 4), library)
    mask = array(np.ones((4, 4), bool), library)
    with unchanged(D, mask):
        for format, options in (*SPARSE_LINES[:9], ("4:4", {})):
            for chosen in (None, mask):
                A = sf.from_dense(D, format, mask=chosen, **options)
                for name, x in A.buffers().items():
                    assert not shares_memory(x, D), (format, name)
                    assert not shares_memory(x, mask), (format, name)
                assert not shares_memory(A.to_dense(), A.data)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("target", SPARSE_LINES, ids=name_of)
def test_dense_results_are_the_callers_own(target, library):
    A = sf.from_dense(array(np.eye(4), library), target[0], **target[1])
    before = content(A)
    D, y = A.to_dense(), A @ array(np.eye(4), library)
    for result in (D, y):
        result[...] = 7  # writeable, and nothing of the matrix
    assert content(A) == before
    assert np.array_equal(host(A.to_dense()), np.eye(4))


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("format", ["coo", "csr", "csc", "bsr"])
def test_scipy_objects_stay_as_they_are(format, copy):
    S = sp.random_array((6, 8), density=0.4, rng=np.random.default_rng(0), format="csr")
    S.indices[:] = S.indices[::-1].copy() % 8  # unsorted, maybe repeated
    S = S.asformat("coo") if format == "coo" else S
    S = S.tocsc() if format == "csc" else S.tobsr((2, 2)) if format == "bsr" else S
    parts = [S.data, *(S.coords if format == "coo" else (S.indices, S.indptr))]
    with unchanged(*parts):
        A = sf.from_scipy(S, copy=copy)
        _use(A)
        back = A.to(format, **({"blocksize": (2, 2)} if format == "bsr" else {})).to_scipy()
        assert np.allclose(back.toarray(), dense(A))
    if copy:
        assert not any(shares_memory(x, y) for x in A.buffers().values() for y in parts)


@pytest.mark.parametrize("format", ["coo", "csr", "csc", "bsr"])
def test_a_scipy_result_cannot_change_the_matrix(format):
    options = {"blocksize": (2, 2)} if format == "bsr" else {}
    A = sf.from_dense(np.eye(4)).to(format, **options)
    before = content(A)
    S = A.to_scipy()
    with contextlib.suppress(ValueError):  # where the arrays are shared they are read-only
        S.data[...] = 9
    with contextlib.suppress(ValueError):
        S.sort_indices() if format != "coo" else S.sum_duplicates()
    assert content(A) == before
    assert A.problems() == []


@pytest.mark.filterwarnings("ignore:Sparse")
def test_torch_objects_stay_as_they_are():
    T = torch.eye(4, dtype=torch.float64)
    sparse = [
        T.to_sparse(),
        torch.sparse_coo_tensor([[1, 0, 1], [0, 2, 0]], torch.tensor([1.0, 2, 3]), (4, 4)),
        T.to_sparse_csr(),
        T.to_sparse_csc(),
        T.to_sparse_bsr((2, 2)),
        T.to_sparse_bsc((2, 2)),
    ]
    for S in sparse:
        before = S.to_dense().clone()
        A = sf.from_torch(S)
        _use(A)
        assert torch.equal(S.to_dense(), before)
        assert not any(
            shares_memory(x, S._values() if S.layout == torch.sparse_coo else S.values())
            for x in A.buffers().values()
        )


def test_printing_changes_nothing():
    row, col, data = (np.array(x) for x in (ROW, COL, DATA))
    A = sf.COO(data, row, col, (2, 3), copy=False, check=False)
    with unchanged(row, col, data):
        print(A, repr(A), A.problems())
        print(sf.explain_conversion(sf.from_dense(np.eye(2)), "bsr", blocksize=2))
