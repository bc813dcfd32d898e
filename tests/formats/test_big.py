"""More than 2**31 slots behind a broadcast: counted exactly, never copied."""

import time

import numpy as np
import pytest

from sparseformats import BSR, NM, BlockedELL
from sparseformats.formats import slots
from sparseformats.testing import unchanged

GIB = 2**30


@pytest.fixture
def peak():
    """Measure what Python's allocators hold at most, in bytes, since the fixture began."""
    import tracemalloc

    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def _blocks(*lead):
    return np.broadcast_to(np.float32(1), (*lead, 256, 256))


def test_bsr(peak):
    indices, indptr = np.arange(2**15, dtype=np.int32), np.array([0, 2**15], np.int32)
    started = time.perf_counter()
    A = BSR(_blocks(2**15), indices, indptr, (256, 256 * 2**15), copy=False)
    assert time.perf_counter() - started < 1
    assert A.nnz == 2**31
    assert A.density == 1.0
    assert A.nnzb == 2**15
    assert A.index_dtype == np.int32
    assert A.nbytes == 2**33 + A.indices.nbytes + A.indptr.nbytes
    assert BSR(_blocks(2**15), indices, indptr, A.shape, copy=False, stored="all").nnz == 2**31
    assert A.problems() == []
    assert peak() < GIB / 8


def test_bsr_with_ragged_edges(peak):
    """Every block is cut, so that checks read all of them, in chunks."""
    count = 2**13
    shape = (255, 256 * count)
    data = np.broadcast_to(np.zeros((256, 256), np.int8), (count, 256, 256))
    A = BSR(data, np.arange(count), [0, count], shape, copy=False, stored="all")
    assert A.nnz == 255 * 256 * count
    assert data.nbytes == GIB / 2
    assert peak() < GIB / 16


def test_blocked_ell(peak):
    cols = np.arange(2**15, dtype=np.int32).reshape(1, -1)
    shape = (256, 256 * 2**15)
    A = BlockedELL(_blocks(1, 2**15), cols, shape, copy=False, stored="all")
    assert A.nnz == 2**31
    assert A.problems() == []
    assert peak() < GIB / 8


def test_nm(peak, monkeypatch):
    """n:m checks read every slot, so in chunks of rows."""
    monkeypatch.setattr(slots, "CHUNK", 2**18)
    rows, groups = 2**11, 2**12
    data = np.broadcast_to(np.float32(1), (rows, groups, 2))
    indices = np.broadcast_to(np.array([1, 3], np.uint8), (rows, groups, 2))
    with unchanged(data):
        A = NM(data, indices, (rows, groups * 4), copy=False)
    assert A.nnz == 2**24
    assert peak() < data.nbytes / 4
