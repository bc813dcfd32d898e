"""Pickle and deep copies (C27), Matrix Market (C28)."""

import copy
import io
import pickle

import numpy as np
import pytest
import scipy.io
import torch

import sparseformats as sf
from sparseformats._dtypes import VALUE_DTYPES
from sparseformats.testing import shares_memory
from tests.cases.support import LIBRARIES, SPARSE_LINES, array, content, dense, in_every_format

WAYS = {
    "pickle": lambda A: pickle.loads(pickle.dumps(A)),
    "pickle of old": lambda A: pickle.loads(pickle.dumps(A, 2)),
    "deepcopy": copy.deepcopy,
}


# C27: copies are equal in every part and share nothing.
def _check(A, B):
    assert type(B) is type(A)
    assert (B.shape, B.blocksize, B.dtype, B.index_dtype) == (
        *(A.shape, A.blocksize, A.dtype, A.index_dtype),
    )
    assert sf.same(A, B, level="buffers")
    assert B.static() == A.static()
    for name, x in B.buffers().items():
        assert not shares_memory(x, A.buffers()[name]), name
        assert A.library != "numpy" or not x.flags.writeable, name
    assert B.problems() == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_every_format(library, index, way):
    data = array([1.0, 0.0, -0.0, np.nan, 5.0], library)
    parts = (array(x, library, index) for x in ([0, 1, 3, 2, 4], [0, 3, 4, 5]))
    A = sf.CSR(data, *parts, (3, 5))
    for name, B in in_every_format(A):
        _check(B, WAYS[way](B))
        assert name
        _check(B.T, WAYS[way](B.T))
    full = A.to("bsr", blocksize=(2, 2))
    full = sf.BSR(full.data, full.indices, full.indptr, full.shape, stored="all")
    for B in (full, full.to("blocked_ell"), full.T):
        _check(B, WAYS[way](B))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_every_dtype(library, way):
    lib = sf._arrays.library(library)
    for dtype in VALUE_DTYPES[library]:
        A = sf.CSR(
            lib.astype(array([1.0, 0, 1], library), dtype),
            *(array(x, library) for x in ([1, 0, 2], [0, 1, 3])),
            (2, 3),
        )
        for _, B in in_every_format(A):
            _check(B, WAYS[way](B))


def test_the_case_itself():
    B = sf.BSR([[[1.0, 0], [0, 2]]], [1], [0, 1], (2, 4))
    for way in WAYS.values():
        _check(B, way(B))


def test_a_module_that_holds_a_matrix_deep_copies():
    module = torch.nn.Linear(2, 2)
    module.mask = sf.from_dense(torch.eye(2))
    again = copy.deepcopy(module)
    _check(module.mask, again.mask)


@pytest.mark.parametrize("library", LIBRARIES)
def test_files_keep_everything(library, tmp_path):
    data = array([1.0, 0.0, -0.0, np.nan, 5.0], library)
    A = sf.CSR(data, *(array(x, library) for x in ([0, 1, 3, 2, 4], [0, 3, 4, 5])), (3, 5))
    for name, B in in_every_format(A):
        path = tmp_path / "matrix.npz"
        sf.io.save(path, B)
        C = sf.io.load(path)
        assert content(C) == content(B), name
        assert C.format == B.format
        assert C.static() == B.static()


# C28: symmetric diagonals once, pattern entries are ones.
SYM = b"%%MatrixMarket matrix coordinate real symmetric\n3 3 4\n1 1 2\n2 1 -1\n2 2 5\n3 3 1\n"
PAT = b"%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 3\n"
HEAD = b"%%MatrixMarket matrix coordinate "
FILES = {
    "sym": (SYM, [[2, -1, 0], [-1, 5, 0], [0, 0, 1]], 5),
    "pat": (PAT, [[0, 1, 0], [1, 0, 0], [0, 0, 1]], 3),
    "pattern general": (HEAD + b"pattern general\n2 3 2\n1 3\n2 1\n", [[0, 0, 1], [1, 0, 0]], 2),
    "integer": (HEAD + b"integer general\n2 2 2\n1 1 7\n2 1 -3\n", [[7, 0], [-3, 0]], 2),
    "skew": (HEAD + b"real skew-symmetric\n2 2 1\n2 1 3\n", [[0, -3], [3, 0]], 2),
    "hermitian": (
        HEAD + b"complex hermitian\n2 2 2\n1 1 4 0\n2 1 1 2\n",
        [[4, 1 - 2j], [1 + 2j, 0]],
        3,
    ),
    "complex symmetric": (
        HEAD + b"complex symmetric\n2 2 1\n2 1 1 2\n",
        [[0, 1 + 2j], [1 + 2j, 0]],
        2,
    ),
    "comments": (
        HEAD + b"real general\n% a comment\n%\n2 2 2\n1 1 1.5\n2 2 -2e-3\n",
        [[1.5, 0], [0, -2e-3]],
        2,
    ),
    "duplicates": (HEAD + b"real general\n2 2 3\n1 1 1\n1 1 2\n2 2 4\n", [[3, 0], [0, 4]], 2),
    "stored zero": (HEAD + b"real general\n2 2 2\n1 1 0\n2 2 4\n", [[0, 0], [0, 4]], 2),
    "empty": (HEAD + b"real general\n2 3 0\n", [[0, 0, 0], [0, 0, 0]], 0),
}


@pytest.mark.parametrize("case", FILES)
@pytest.mark.parametrize("target", SPARSE_LINES[:9])
def test_matrix_market(case, target):
    text, expected, nnz = FILES[case]
    A = sf.io.read_matrix_market(io.BytesIO(text), target[0], **target[1])
    assert A.problems() == []
    assert np.array_equal(dense(A), expected)
    assert A.nnz == nnz
    assert A.format == target[0]


def test_matrix_market_places():
    A = sf.io.read_matrix_market(io.BytesIO(PAT), "coo")
    assert list(zip(A.row.tolist(), A.col.tolist(), strict=True)) == [(0, 1), (1, 0), (2, 2)]
    assert A.data.tolist() == [1, 1, 1]


def test_matrix_market_round_trip(tmp_path):
    data = np.array([0.1, 1 / 3, 1e-308, 1.7976931348623157e308, -0.0, 5e-324])
    A = sf.COO(data, [0, 0, 1, 2, 2, 2], [0, 4, 2, 0, 1, 3], (3, 5))
    for name, B in in_every_format(A):
        path = tmp_path / "matrix.mtx"
        sf.io.write_matrix_market(path, B)
        C = sf.io.read_matrix_market(path, "coo")
        assert C.shape == A.shape, name
        assert content(C) == content(A), name
        assert np.array_equal(scipy.io.mmread(path, spmatrix=False).toarray(), dense(A)), name


@pytest.mark.parametrize(
    "text",
    [
        HEAD + b"real general\n2 2 1\n3 1 1.0\n",
        HEAD + b"real general\n2 2 1\n0 1 1.0\n",
        HEAD + b"real general\n2 2 2\n1 1 1.0\n",
        HEAD + b"real general\n2 2 1\n1 1 x\n",
        HEAD + b"real symmetric\n2 3 1\n1 1 1\n",
        HEAD + b"real strange\n2 2 1\n1 1 1\n",
        b"not a matrix\n",
        b"",
    ],
)
def test_matrix_market_errors_say_where(text):
    with pytest.raises(sf.io.MatrixMarketError) as caught:
        sf.io.read_matrix_market(io.BytesIO(text))
    assert isinstance(caught.value, ValueError)
    assert "line" in str(caught.value) or not text
    assert "{" not in str(caught.value)
