"""Numbering large blocks: bitmap, sort, sort by two keys; and the mark "all"."""

from __future__ import annotations

import numpy as np
import pytest

import sparseformats as sf
from sparseformats.convert import Options, numbering
from sparseformats.convert.bsr_bsr import bsr_to_bsr
from sparseformats.convert.csr_bsr import csr_to_bsr
from sparseformats.testing import check_content_preserved, check_valid
from tests.convert import samples


def test_block_grids_beyond_64_bits(library: str) -> None:
    n = 2**63 - 1
    indices = np.array([0, n - 1, 5, n - 2, 0, 7], np.int64)
    parts = (samples.values(6), indices, np.array([0, 2, 4, 4, 5, 6], np.int64))
    A = sf.CSR(*(samples.put(library, x) for x in parts), (5, n))
    B = csr_to_bsr(A, Options(blocksize=(2, 1)))
    check_valid(B)
    check_content_preserved(A, B)
    assert B.lib.to_numpy(B.indices).tolist() == [0, 5, n - 2, n - 1, 0, 7]


def test_bitmap_and_sort_agree(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    A = samples.csr(library)
    for size in ((2, 2), (3, 4), (7, 1)):
        B = csr_to_bsr(A, Options(blocksize=size))
        with monkeypatch.context() as patch:
            patch.setattr(numbering, "_BITMAP", 0)
            patch.setattr(numbering, "_ALWAYS", 0)
            C = csr_to_bsr(A, Options(blocksize=size))
        assert sf.same(B, C, level="buffers")


def test_golden_blocks() -> None:
    A = sf.CSR([1.0, 2, 3, 4], [4, 5, 0, 1], [0, 2, 4], (2, 6))
    B = csr_to_bsr(A, Options(blocksize=(2, 2)))
    assert B.indices.tolist() == [0, 2]
    assert B.indptr.tolist() == [0, 2]
    assert B.data.tolist() == [[[0, 0], [3, 4]], [[1, 2], [0, 0]]]
    assert B.zeros is None


def test_listed_zeros_move_with_their_blocks() -> None:
    A = sf.CSR([0.0, 2, -0.0], [0, 1, 3], [0, 1, 3], (2, 4))
    B = csr_to_bsr(A, Options(blocksize=(2, 2)))
    assert B.zeros.tolist() == [0, 7]
    C = bsr_to_bsr(B, Options(blocksize=(1, 4)))
    assert C.zeros.tolist() == [0, 7]


@pytest.mark.parametrize("shape", [(4, 4), (3, 3)])
def test_full_blocks_are_marked_all(library: str, shape: tuple[int, int]) -> None:
    D = samples.put(library, np.zeros(shape, np.float32))
    full = samples.put(library, np.ones(shape, bool))
    A = sf.from_dense(D, "csr", mask=full)
    B = csr_to_bsr(A, Options(blocksize=(2, 2)))
    assert B.zeros == "all"
    check_content_preserved(A, B)
    for size in ((1, 1), (4, 4), (2, 1), (1, 3)):
        C = bsr_to_bsr(B, Options(blocksize=size))
        assert C.zeros == "all"
        check_content_preserved(A, C)


def test_all_becomes_a_list_where_blocks_are_not_full() -> None:
    A = sf.BSR([[[0.0, 1.0]]], [0], [0, 1, 1], (2, 4), stored="all")
    B = bsr_to_bsr(A, Options(blocksize=(2, 2)))
    assert B.zeros.tolist() == [0]
    check_content_preserved(A, B)


def test_blocks_without_a_stored_element_are_dropped() -> None:
    A = sf.BSR(np.zeros((2, 2, 2)), [0, 1], [0, 2], (2, 4))
    assert bsr_to_bsr(A, Options(blocksize=(1, 1))).nnzb == 0
    assert A.to("blocked_ell").width == 2  # moved as they are
    assert A.to("csr").nnz == 0
