"""Dense to n:m by tables: the same buffers as by way of CSR, and the same refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats.convert import dense_nm
from sparseformats.convert.dense_nm import _tables

PATTERNS = [(1, 1), (1, 2), (2, 4), (1, 4), (4, 4), (3, 5), (4, 8), (7, 8), (9, 16)]
ids = "{0[0]}:{0[1]}".format


def drawn(rows: int, k: int, n: int, m: int, dtype: str = "float32", seed: int = 0) -> Any:
    """At most n non-zeros a group, NaN and infinities among them, zeros of both signs elsewhere."""
    rng = np.random.default_rng(seed)
    width = -(-k // m) * m
    order = np.argsort(rng.random((rows, width // m, m)), axis=2)
    kept = (order < rng.integers(0, n + 1, (rows, width // m, 1))).reshape(rows, width)[:, :k]
    values = rng.choice([1.5, -2.0, np.nan, np.inf, 2.0**-20], (rows, k))
    zeros = rng.choice([0.0, -0.0], (rows, k))
    return np.where(kept, values, zeros).astype(dtype)


@pytest.mark.parametrize("pattern", PATTERNS, ids=ids)
@pytest.mark.parametrize("k", [0, 1, 13, 64])
def test_as_by_way_of_csr(pattern: tuple[int, int], k: int) -> None:
    (n, m), name = pattern, ids(pattern)
    for number, dtype in enumerate(("float16", "float32", "complex64", "complex128")):
        D = drawn(37, k, n, m, dtype, seed=number)
        for array in (D, np.asfortranarray(D), torch.from_numpy(D)):
            A = sf.from_dense(array, name)
            sf.validate(A)
            assert A.zeros is None
            assert A.side is None
            assert sf.same(A, sf.from_dense(array, "csr").to(name), level="buffers")


def test_many_chunks_are_one_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    D = drawn(50, 30, 2, 4)
    whole = sf.from_dense(D, "2:4")
    monkeypatch.setattr("sparseformats.convert.chunks._ON_CPU", 64)
    assert sf.same(sf.from_dense(D, "2:4"), whole, level="buffers")
    assert sf.same(sf.from_dense(D, "9:16"), sf.from_dense(D, "csr").to("9:16"), level="buffers")


def test_crowded_groups_are_counted_over_all_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    D = drawn(50, 30, 2, 4)
    D[20, 8:12] = 1
    D[20, 28:30] = 1
    D[49, :3] = 1
    texts = []
    for chunk in (1 << 18, 64):
        monkeypatch.setattr("sparseformats.convert.chunks._ON_CPU", chunk)
        with pytest.raises(sf.PatternError) as found:
            sf.from_dense(D, "2:4")
        texts.append(str(found.value))
    with pytest.raises(sf.PatternError) as found:
        sf.from_dense(D, "csr").to("2:4")
    assert texts == [str(found.value)] * 2
    assert "row 20, group 2 has 4 (2 groups violate" in texts[0]


def test_a_mask_stores_zeros_too() -> None:
    D = np.array([[0.0, -0.0, 3.0, 0.0]])
    A = sf.from_dense(D, "2:4", mask=np.array([[False, True, True, True]]))
    assert A.nnz == 3
    assert sf.same(A, sf.from_dense(D, "csr", mask=np.array([[False, True, True, True]])))


def test_what_memory_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    D = np.zeros((64, 64), np.float32)
    lib = type(sf.from_dense(D, "2:4").lib)
    monkeypatch.setattr(lib, "free_bytes", lambda self, device: 100)
    with pytest.raises(MemoryError, match="2:4 form of a 64 x 64 matrix"):
        dense_nm.dense_to_nm(D, sf.convert.options.Options(n=2, m=4))


def test_tables_name_non_zeros_and_the_smallest_free_positions() -> None:
    filled, positions = _tables(2, 4)
    assert filled.tolist() == [bin(i).count("1") for i in range(16)]
    assert positions[0b0000].tolist() == [0, 1]
    assert positions[0b0001].tolist() == [0, 1]
    assert positions[0b1000].tolist() == [0, 3]
    assert positions[0b1100].tolist() == [2, 3]
