"""What is remembered beside matrices goes with them."""

from __future__ import annotations

import gc

import numpy as np

import sparseformats as sf
from sparseformats.formats.by_matrix import ByMatrix


def matrix() -> sf.CSR:
    return sf.from_dense(np.eye(3), "csr")


def test_alike_matrices_are_told_apart() -> None:
    kept: ByMatrix[int] = ByMatrix(4)
    a, b = matrix(), matrix()
    assert kept.put(a, "key", 1) == 1
    kept.put(b, "key", 2)
    assert (kept.get(a, "key"), kept.get(b, "key")) == (1, 2)
    assert kept.get(a, "other") is None
    assert kept.get(matrix(), "key") is None


def test_nothing_is_left_of_a_matrix_that_is_gone() -> None:
    kept: ByMatrix[int] = ByMatrix(4)
    for number in range(50):
        kept.put(matrix(), "key", number)  # most of them where the one before was
    gc.collect()
    assert len(kept) == 0
    a = matrix()
    assert kept.get(a, "key") is None
    kept.put(a, "key", 7)
    assert kept.get(a, "key") == 7


def test_few_keys_of_a_matrix_are_kept() -> None:
    kept: ByMatrix[int] = ByMatrix(4)
    a = matrix()
    for number in range(9):
        kept.put(a, number, number)
        assert kept.get(a, number) == number
    assert sum(kept.get(a, number) is not None for number in range(9)) <= 4
