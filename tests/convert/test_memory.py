"""What conversions allocate: never m x n, and never much more than input and output."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from sparseformats import dispatch

BLOCKS = {"blocksize": (8, 8)}
SPARSE: list[tuple[str, dict[str, Any]]] = [("coo", {}), ("csr", {}), ("csc", {}), ("bsr", BLOCKS)]


def peak(run: Callable[[], Any]) -> tuple[int, Any]:
    """Bytes that `run` held at most, and its result."""
    tracemalloc.start()
    try:
        made = run()
        return tracemalloc.get_traced_memory()[1], made
    finally:
        tracemalloc.stop()


def scattered(m: int, n: int, nnz: int) -> sf.COO:
    rng = np.random.default_rng(7)
    row, col = rng.integers(0, m, nnz), rng.integers(0, n, nnz)
    return sf.COO(np.ones(nnz, np.float32), row.astype(np.int32), col.astype(np.int32), (m, n))


@pytest.mark.parametrize("generic", [True, False])
@pytest.mark.parametrize(("source", "options"), SPARSE)
def test_hypersparse_matrices_cost_no_grid(
    source: str, options: dict[str, Any], generic: bool
) -> None:
    A = scattered(10**6, 10**6, 2000).to(source, **options)
    for target, wanted in SPARSE:
        with dispatch.temporary(only=generic):
            used, B = peak(lambda target=target, wanted=wanted: A.to(target, **wanted))
        # Pointers of a million rows or columns, several times; a grid would take 10**12.
        assert used < 3 * (A.nbytes + B.nbytes) + 60e6, (source, target, used)
        assert B.nnz == A.nnz


@pytest.mark.parametrize("generic", [True, False])
@pytest.mark.parametrize(("source", "options"), [*SPARSE, ("blocked_ell", {"blocksize": 8})])
def test_peak_is_bounded_by_input_and_output(
    source: str, options: dict[str, Any], generic: bool
) -> None:
    A = scattered(4096, 4096, 600_000).to(source, **options)
    targets = [*SPARSE, ("bsr", {"blocksize": (4, 4)}), ("blocked_ell", {"blocksize": 8})]
    for target, wanted in targets:
        with dispatch.temporary(only=generic):
            used, B = peak(lambda target=target, wanted=wanted: A.to(target, **wanted))
        assert used <= 3 * (A.nbytes + B.nbytes), (source, target, used / (A.nbytes + B.nbytes))


@pytest.mark.parametrize("size", [10**6, 2**31, 2**62])
@pytest.mark.parametrize("format", ["bsr", "blocked_ell", "bsr.T"])
@pytest.mark.parametrize("generic", [True, False])
def test_a_block_larger_than_memory_is_refused_with_its_size(
    format: str, size: int, generic: bool, library: str
) -> None:
    A = sf.CSR([1.0, 2.0], [0, 1], [0, 1, 2], (2, 2)).to_library(library)
    sources = [A, A.to("coo"), A.to("csc"), A.to("bsr", blocksize=1), A.to("2:4"), A.to_dense()]
    with dispatch.temporary(only=generic):
        for x in sources:
            with pytest.raises(MemoryError, match=f"{8 * size * size:,} bytes on 'cpu'"):
                sf.asformat(x, format, blocksize=size)


def test_blocks_larger_than_memory_together(monkeypatch: pytest.MonkeyPatch) -> None:
    A = scattered(10**4, 10**4, 2000).to("bsr", blocksize=1)
    monkeypatch.setattr(type(A.lib), "free_bytes", lambda self, device: 10**6)
    with (
        dispatch.temporary(only=True),
        pytest.raises(MemoryError, match=r"blocks of 64 x 64 needs [0-9,]+ bytes on 'cpu'"),
    ):
        A.to("bsr", blocksize=64)
