"""The oracle on matrices that a person can check, format by format."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparseformats import reference
from sparseformats.formats import ALL, BSR, COO, CSC, CSR, NM, BlockedELL, Transposed
from sparseformats.reference.decoding import is_nonzero


def plain(A: Any) -> dict[tuple[int, int], float]:
    return {place: float(value) for place, value in reference.entries(A).items()}


def test_coo() -> None:
    A = COO(np.array([1.0, 0.0]), np.array([0, 1]), np.array([2, 0]), (2, 3))
    assert plain(A) == {(0, 2): 1, (1, 0): 0}


def test_csr_and_csc() -> None:
    parts = np.array([1.0, 0.0, 3.0]), np.array([0, 2, 1]), np.array([0, 2, 2, 3])
    assert plain(CSR(*parts, (3, 4))) == {(0, 0): 1, (0, 2): 0, (2, 1): 3}
    assert plain(CSC(*parts, (4, 3))) == {(0, 0): 1, (2, 0): 0, (1, 2): 3}


def bsr(zeros: Any) -> BSR:
    data = np.array([[[1.0, 0.0], [0.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]]])
    fields = {"data": data, "indices": np.array([1, 0]), "indptr": np.array([0, 1, 2])}
    return BSR.trusted(**fields, shape=(3, 3), zeros=zeros)


def test_bsr() -> None:
    data = np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 4.0], [0.0, 0.0]]])
    A = BSR(data, np.array([1, 0]), np.array([0, 1, 2]), (3, 3))
    assert plain(A) == {(0, 2): 1, (2, 1): 4}
    marked = BSR.trusted(
        data=data, indices=A.indices, indptr=A.indptr, shape=A.shape, zeros=np.array([2])
    )
    assert plain(marked) == {(0, 2): 1, (1, 2): 0, (2, 1): 4}
    every = BSR.trusted(data=data, indices=A.indices, indptr=A.indptr, shape=A.shape, zeros=ALL)
    assert plain(every) == {(0, 2): 1, (1, 2): 0, (2, 0): 0, (2, 1): 4}


def test_slots_of_bsr_meet_the_operand_only_inside_the_shape() -> None:
    s = reference.slots(bsr(None))
    places = sorted(zip(s.row.tolist(), s.col.tolist(), strict=True))
    assert places == [(0, 2), (1, 2), (2, 0), (2, 1)]
    assert s.stored.tolist() == [True, False, False, False]


def test_blocked_ell() -> None:
    data = np.zeros((2, 2, 2, 2))
    data[0, 0], data[1, 0] = [[1, 0], [2, 0]], [[0, 3], [0, 0]]
    A = BlockedELL(data, np.array([[1, -1], [0, -1]]), (3, 3))
    assert plain(A) == {(0, 2): 1, (1, 2): 2, (2, 1): 3}
    every = BlockedELL.trusted(data=data, col_indices=A.col_indices, shape=(3, 3), zeros=ALL)
    assert plain(every) == {(0, 2): 1, (1, 2): 2, (2, 0): 0, (2, 1): 3}


def test_an_empty_slot_is_no_slot() -> None:
    data = np.full((1, 1, 1, 1), 7.0)  # invalid, and still not block column 0
    A = BlockedELL.trusted(data=data, col_indices=np.array([[-1]]), shape=(1, 2))
    assert plain(A) == {}
    assert reference.slots(A).row.size == 0


def test_n_m() -> None:
    data = np.array([[[1.0, 0.0], [2.0, 0.0]]])
    indices = np.array([[[1, 3], [0, 1]]], np.uint8)
    side = COO(np.array([-0.0]), np.array([0]), np.array([2]), (1, 5))
    fields = {"data": data, "indices": indices, "shape": (1, 5), "n": 2, "m": 4}
    assert plain(NM.trusted(**fields)) == {(0, 1): 1, (0, 4): 2}
    assert plain(NM.trusted(**fields, side=side)) == {(0, 1): 1, (0, 2): 0, (0, 4): 2}
    assert plain(NM.trusted(**fields, zeros=np.array([1]))) == {(0, 1): 1, (0, 3): 0, (0, 4): 2}
    # The last slot is padding: its group has one column.
    assert plain(NM.trusted(**fields, zeros=ALL)) == {(0, 1): 1, (0, 3): 0, (0, 4): 2}


def test_transposed() -> None:
    assert plain(Transposed(bsr(np.array([1])))) == {(2, 0): 1}
    data = np.array([[[0.0, 5.0, 6.0]]])
    A = BSR(data, np.array([0]), np.array([0, 1, 1]), (2, 3))
    assert plain(A.T) == {(1, 0): 5, (2, 0): 6}
    assert reference.content(A.T).shape == (3, 2)


def test_bits_survive() -> None:
    values = np.array([0x7FF0000000000001, 0x8000000000000000, 1], np.uint64).view(np.float64)
    A = CSR(values, np.array([0, 1, 2]), np.array([0, 3]), (1, 3))
    assert list(reference.content(A).elements.values()) == [v.tobytes() for v in values]
    assert reference.dense(A).tobytes() == values.tobytes()


def test_same_content() -> None:
    A = COO(np.array([0.0]), np.array([0]), np.array([1]), (1, 2))
    assert reference.same_content(A, CSR(A.data, np.array([1]), np.array([0, 1]), (1, 2)))
    assert not reference.same_content(A, COO(np.array([-0.0]), A.row, A.col, (1, 2)))
    assert not reference.same_content(A, COO(A.data, A.row, A.col, (1, 3)))
    assert not reference.same_content(A, COO(A.data.astype(np.float32), A.row, A.col, (1, 2)))
    assert not reference.same_content(A, COO(A.data, A.row, np.array([0]), (1, 2)))


def test_a_position_stored_twice_is_refused() -> None:
    row, col = np.zeros(2, int), np.ones(2, int)
    A = COO.trusted(data=np.ones(2), row=row, col=col, shape=(1, 2))
    with pytest.raises(ValueError, match=r"coo matrix stores element \(0, 1\) twice"):
        reference.entries(A)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64])
def test_zeros_are_told_by_their_bits(dtype: Any) -> None:
    tiny = np.finfo(dtype).smallest_subnormal
    values = np.array([0, -0.0, 1, tiny, -tiny, np.nan], dtype)
    assert is_nonzero(values).tolist() == [False, False, True, True, True, True]


def test_integers_and_bools_are_told_by_their_bits() -> None:
    assert is_nonzero(np.array([0, -128, 1], np.int8)).tolist() == [False, True, True]
    assert is_nonzero(np.array([False, True])).tolist() == [False, True]


def test_torch_buffers_are_read_through_the_library() -> None:
    import torch

    data = torch.tensor([1.5, -0.0], dtype=torch.bfloat16)
    index = torch.tensor([0, 1])
    A = COO(data, index, index, (2, 2))
    assert plain(A) == {(0, 0): 1.5, (1, 1): 0}
    assert reference.content(A).elements[1, 1] == b"\x00\x80"
