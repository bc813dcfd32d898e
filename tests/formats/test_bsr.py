"""BSR: stored slots, duplicates, order, ragged edges."""

import numpy as np
import pytest

from sparseformats import BSR, _arrays, reference
from sparseformats.testing import unchanged
from tests.formats.examples import LIBRARIES, SHAPE, arrays, build, host


def _in(library, *parts):
    lib = _arrays.library(library)
    return [lib.from_numpy(np.array(x), "cpu") for x in parts]


@pytest.mark.parametrize("library", LIBRARIES)
def test_stored_nonzero_all_and_mask(library):
    A = build("bsr", library)
    assert (A.nnz, A.zeros, A.nnzb) == (5, None, 5)
    B = build("bsr", library, stored="all")
    # Blocks of 2 x 2 on 3 x 5: whole at (0, 0), (0, 1); cut at (0, 2), (1, 0), (1, 2).
    assert (B.nnz, B.zeros) == (4 + 4 + 2 + 2 + 1, "all")
    mask = host(A, "data") != 0
    mask[0, 1, 1] = mask[3, 0, 0] = True
    C = build("bsr", library, stored=_in(library, mask)[0])
    assert C.nnz == 7
    assert host(C, "zeros").tolist() == [3, 12]
    assert host(C, "zeros").dtype == np.int64
    for X in (A, B, C):
        assert X.problems() == []
        assert host_mask(X).sum() == X.nnz
    assert np.array_equal(host_mask(C), mask)


def host_mask(A):
    return A.lib.to_numpy(A.stored_mask())


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_mask_of_the_nonzeros_leaves_no_marks(library):
    mask = arrays("bsr")["data"] != 0
    assert build("bsr", library, stored=_in(library, mask)[0]).zeros is None


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_caller_may_write_to_the_mask_afterwards(library):
    (mask,) = _in("numpy", arrays("bsr")["data"] != 0)
    mask[0, 1, 1] = True
    A = build("bsr", stored=mask)
    mask[...] = False
    assert A.nnz == 6


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("stored", ["nonzero", "all"])
def test_unsorted_blocks(library, stored):
    order = [2, 0, 1, 4, 3]
    given = arrays("bsr")
    data, indices = _in(library, given["data"][order], given["indices"][order])
    A = BSR(data, indices, _in(library, given["indptr"])[0], SHAPE, stored=stored)
    B = build("bsr", library, stored=stored)
    for name, x in A.buffers().items():
        assert A.lib.equal_bits(x, B.buffers()[name]), name
    assert A.zeros == B.zeros


@pytest.mark.parametrize("library", LIBRARIES)
def test_unsorted_blocks_move_their_marks(library):
    data = np.zeros((2, 1, 2))
    mask = np.array([[[True, False]], [[False, True]]])
    parts = _in(library, data, np.array([1, 0]), np.array([0, 2]), mask)
    A = BSR(*parts[:3], (1, 4), stored=parts[3])
    assert set(reference.entries(A)) == {(0, 2), (0, 1)}
    assert host(A, "zeros").tolist() == [1, 2]


@pytest.mark.parametrize("library", LIBRARIES)
def test_equal_blocks_unite_stored_slots(library):
    data = np.array([[[1.0, 0], [0, -0.0]], [[-1.0, 2], [0, 0]], [[0, 0], [0, 7]]])
    mask = np.array([[[1, 0], [0, 1]], [[1, 1], [0, 0]], [[0, 0], [1, 1]]], bool)
    parts = _in(library, data, np.array([0, 0, 1]), np.array([0, 3]), mask)
    A = BSR(*parts[:3], (2, 4), stored=parts[3])
    found = {at: v.tobytes() for at, v in reference.entries(A).items()}
    zero, minus = np.float64(0).tobytes(), np.float64(-0.0).tobytes()
    two, seven = np.float64(2).tobytes(), np.float64(7).tobytes()
    assert found == {(0, 0): zero, (0, 1): two, (1, 1): minus, (1, 2): zero, (1, 3): seven}
    assert A.problems() == []


def test_equal_blocks_stored_all_stay_all():
    A = BSR(np.ones((3, 2, 2)), [1, 0, 1], [0, 3], (2, 3), stored="all", check=False)
    assert A.zeros == "all"
    data = np.zeros((3, 2, 2))
    A = BSR(data, [1, 0, 1], [0, 3], (2, 3), stored="all")
    assert (A.nnzb, A.zeros, A.nnz, A.problems()) == (2, "all", 6, [])


@pytest.mark.parametrize("library", LIBRARIES)
def test_equal_blocks_of_zeros_only(library):
    parts = _in(library, np.zeros((2, 2, 2)), np.array([0, 0]), np.array([0, 2]))
    A = BSR(*parts, (2, 2))
    assert (A.nnzb, A.nnz, A.problems()) == (1, 0, [])


@pytest.mark.parametrize("block", [(1, 1), (1, 5), (4, 1), (3, 2), (7, 9), (16, 16)])
@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (4, 6), (16, 16), (17, 15)])
def test_every_block_on_every_shape(block, shape):
    (m, n), (r, c) = shape, block
    rows, cols = -(-m // r), -(-n // c)
    count = rows * cols
    D = np.arange(1.0, rows * r * cols * c + 1).reshape(rows * r, cols * c)
    D[m:], D[:, n:] = 0, 0
    data = D.reshape(rows, r, cols, c).transpose(0, 2, 1, 3).reshape(count, r, c)
    indices, indptr = np.tile(np.arange(cols), rows), np.arange(rows + 1) * cols
    with unchanged(data, indices, indptr):
        A = BSR(data, indices, indptr, shape, stored="all")
    assert (A.problems(), A.nnz, A.density) == ([], m * n, 1.0)
    assert np.array_equal(reference.dense(A), D[:m, :n])
    if m % r:
        data[-1, -1, 0] = 1
        assert {p.rule for p in BSR.trusted(**_fields(A, data=data)).problems()} == {"padding"}


def _fields(A, **new):
    return {**A.buffers(), **A.static(), **new}


def test_minus_zero_and_fill_are_not_stored_by_default():
    A = BSR(np.array([[[-0.0, 1.0], [0.0, np.nan]]]), [0], [0, 1], (2, 2))
    assert set(reference.entries(A)) == {(0, 1), (1, 1)}
