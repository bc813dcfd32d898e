"""Blocked-ELL: empty slots anywhere, leftovers, duplicates, the flat layout."""

import numpy as np
import pytest

from sparseformats import BlockedELL, _arrays, reference
from tests.formats.examples import LIBRARIES, SHAPE, arrays, build, host


def _in(library, *parts):
    lib = _arrays.library(library)
    return [lib.from_numpy(np.array(x), "cpu") for x in parts]


def _values(A):
    return {at: float(v) for at, v in reference.entries(A).items()}


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_empty_slots_move_last_and_leftovers_go(library, index):
    cols = np.array([[-1, 2, -1, 0], [-1, -1, -1, -1], [1, -1, 0, 3]], index)
    data = np.arange(1.0, 13).reshape(3, 4, 1, 1)
    A = BlockedELL(*_in(library, data, cols), (3, 4))
    assert host(A, "col_indices").tolist() == [[0, 2, -1, -1], [-1] * 4, [0, 1, 3, -1]]
    assert host(A, "data").reshape(3, 4).tolist() == [[4, 2, 0, 0], [0] * 4, [11, 9, 12, 0]]
    assert (A.nnz, A.width, A.problems()) == (5, 4, [])
    assert A.lib.dtype_name(A.index_dtype) == index


@pytest.mark.parametrize("stored", ["nonzero", "all"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_leftovers_of_sorted_rows_go_too(library, stored):
    data = arrays("blocked_ell")["data"].copy()
    data[1, 2] = np.nan
    given = _in(library, data, arrays("blocked_ell")["col_indices"])
    A = BlockedELL(*given, SHAPE, stored=stored)
    B = build("blocked_ell", library, stored=stored)
    assert A.lib.equal_bits(A.data, B.data)
    assert A.nnz == B.nnz == (5 if stored == "nonzero" else 13)


def test_leftovers_in_the_callers_array_stay():
    data = arrays("blocked_ell")["data"]
    data[1, 2] = 9
    BlockedELL(data, arrays("blocked_ell")["col_indices"], SHAPE, copy=False)
    assert (data[1, 2] == 9).all()


def test_check_false_promises_that_there_are_no_leftovers():
    data = arrays("blocked_ell")["data"]
    data[1, 2] = 9
    A = BlockedELL(data, arrays("blocked_ell")["col_indices"], SHAPE, check=False)
    assert {p.rule for p in A.problems()} == {"padding"}


@pytest.mark.parametrize("library", LIBRARIES)
def test_leftovers_are_found_where_blocks_divide_the_shape(library):
    data, cols = _in(library, np.ones((1, 2, 1, 1)), np.array([[0, -1]]))
    (problem,) = BlockedELL.trusted(data=data, col_indices=cols, shape=(1, 3)).problems()
    assert (problem.rule, problem.place, problem.value) == ("padding", "data[0, 1, 0, 0]", 1.0)


@pytest.mark.parametrize("library", LIBRARIES)
def test_equal_blocks_are_summed_and_leave_empty_slots(library):
    cols = [[1, 0, 1], [2, -1, 2]]
    data = np.array([[1.0, 2, 3], [5, 50, -5]]).reshape(2, 3, 1, 1)
    A = BlockedELL(*_in(library, data, cols), (2, 3))
    assert host(A, "col_indices").tolist() == [[0, 1, -1], [2, -1, -1]]
    assert _values(A) == {(0, 0): 2, (0, 1): 4, (1, 2): 0}
    assert A.problems() == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_marks_move_with_their_blocks(library):
    data, cols = np.zeros((1, 3, 1, 1)), np.array([[2, -1, 0]])
    mask = np.array([True, False, False]).reshape(1, 3, 1, 1)
    data[0, 2] = 4
    mask[0, 2] = True
    data, cols, mask = _in(library, data, cols, mask)
    A = BlockedELL(data, cols, (1, 3), stored=mask)
    assert _values(A) == {(0, 0): 4, (0, 2): 0}
    assert host(A, "zeros").tolist() == [1]
    assert A.problems() == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_stored_all_leaves_out_padding_and_empty_slots(library):
    A = build("blocked_ell", library, stored="all")
    assert A.nnz == 13
    assert A.lib.to_numpy(A.stored_mask()).sum() == 13


@pytest.mark.parametrize("library", LIBRARIES)
def test_flat_layout_round_trip(library):
    A = build("blocked_ell", library)
    flat = A.to_flat()
    assert tuple(flat.shape) == (4, 6)
    assert A.lib.to_numpy(flat).tolist() == [
        [1, 0, 0, 2, 0, 0],
        [0, 0, 0, 0, 3, 0],
        [0, 4, 5, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
    ]
    B = BlockedELL.from_flat(flat, A.col_indices, SHAPE, 2)
    assert A.lib.equal_bits(A.data, B.data)
    flat[...] = 7  # a copy: the matrix stays
    assert A.problems() == []


def test_flat_layout_from_lists():
    A = BlockedELL.from_flat([[1.0, 0.0], [0.0, 2.0]], [[1]], (2, 4), 2)
    assert _values(A) == {(0, 2): 1, (1, 3): 2}


@pytest.mark.parametrize("library", LIBRARIES)
def test_no_slots_at_all(library):
    data, cols = _in(library, np.zeros((3, 0, 2, 2)), np.zeros((3, 0), int))
    A = BlockedELL(data, cols, (5, 5))
    assert (A.nnz, A.width, A.problems(), tuple(A.to_flat().shape)) == (0, 0, [], (6, 0))
