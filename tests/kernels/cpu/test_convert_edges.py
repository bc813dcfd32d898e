"""The registered conversions of NumPy arrays: what runs, and that it agrees with the edges' own."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from sparseformats import dispatch
from sparseformats.convert.edges import EDGES
from sparseformats.convert.options import Options
from sparseformats.convert.run import implementation
from sparseformats.testing import check_valid
from sparseformats_kernels.cpu.convert import RECORDS, _bsr_transpose, _scratch, edges

DTYPES = ("float32", "float16", "complex64", "complex128", "int8", "bool")
FAST = tuple(edge for edge in EDGES if edge.op in {record.op for record in RECORDS})


def sources(seed: int, dtype: str, blocksize: tuple[int, int], index: str) -> dict[str, Any]:
    """One matrix, with stored zeros of both signs, in every format that an edge leaves."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(s) for s in rng.integers(0, 50, 2))
    mask = rng.random(shape) < rng.choice([0, 0.1, 0.5, 1])
    dense = np.where(mask, rng.integers(-1, 3, shape), 0).astype(dtype)
    if np.dtype(dtype).kind in "fc":
        dense[rng.random(shape) < 0.2] = np.dtype(dtype).type(-0.0)
    coo = sf.COO(dense[mask], *np.nonzero(mask), shape, index_dtype=index)
    bsr = coo.to("bsr", blocksize=blocksize)
    found = {name: coo.to(name) for name in ("csr", "csc")}
    return {**found, "coo": coo, "bsr": bsr, "bsr.T": bsr.T, "dense": dense}


def test_every_record_serves_an_edge() -> None:
    assert len(FAST) == len(RECORDS)


@pytest.mark.parametrize("edge", FAST, ids=lambda edge: edge.op)
@pytest.mark.parametrize("dtype", DTYPES)
def test_agrees_with_the_edge(edge: Any, dtype: str) -> None:
    for seed in range(12):
        blocksize = [(1, 1), (2, 3), (4, 4), (16, 16)][seed % 4]
        x = sources(seed, dtype, blocksize, ("int32", "int64")[seed % 3 == 0])[edge.source]
        options = Options(blocksize=blocksize, index_dtype=(None, "int64")[seed % 2])
        name, run, _ = implementation(edge, x, options)
        assert name == "numpy-scipy"
        made, expected = run(x, options), edge.run(x, options)
        if edge.target == "dense":
            assert made.dtype == expected.dtype
            assert made.shape == expected.shape
            assert np.ascontiguousarray(made).tobytes() == expected.tobytes()
        else:
            check_valid(made)
            assert sf.same(made, expected, level="buffers")
            assert made.index_dtype == expected.index_dtype


def test_the_public_call_runs_them() -> None:
    A = sf.random(40, 30, 0.2, format="csr", seed=0)
    with dispatch.tracing() as trace:
        A.to("bsr", blocksize=(4, 4)).to("csr")
    assert "numpy-scipy" in str(trace)
    assert "array-api" not in str(trace)


def test_estimates_grow_with_the_matrix() -> None:
    for record in RECORDS:
        small = dispatch.Query(record.op, record.formats[0], m=10, k=10, nnz=10)
        large = dispatch.Query(record.op, record.formats[0], m=10**4, k=10**4, nnz=10**7)
        assert 0 < record.estimate(small) < record.estimate(large)
    bsr = next(record for record in RECORDS if record.op == "convert:bsr->csr")
    assert bsr.estimate(dispatch.Query(bsr.op, "bsr", nbytes=4000)) == pytest.approx(23)


def test_edges_called_without_what_they_need() -> None:
    options = SimpleNamespace(blocksize=None, width=Options().width)
    with pytest.raises(ValueError, match=r"csr_to_bsr needs options\.blocksize, got None"):
        edges.csr_to_bsr(sf.eye(3, format="csr"), options)
    with pytest.raises(ValueError, match=r"dense_to_bsr needs options\.blocksize, got None"):
        edges.dense_to_bsr(np.eye(3), options)
    ell = sf.eye(4).to("blocked_ell", blocksize=2)
    with pytest.raises(TypeError, match=r"needs a transposed BSR, got blocked_ell\.T"):
        edges.bsr_transposed_to_bsr(ell.T, options)


def test_a_dense_form_that_memory_cannot_hold_is_refused_before() -> None:
    indptr = np.zeros(3_000_001, np.int32)
    A = sf.CSR(np.zeros(0), np.zeros(0, np.int32), indptr, (3_000_000, 3_000_000))
    with pytest.raises(MemoryError, match="dense form of a 3000000 x 3000000 matrix"):
        A.to_dense()


def test_conversions_in_threads_do_not_share_temporaries() -> None:
    matrices = [sf.random(600, 500, 0.05, format="csr", seed=seed) for seed in range(4)]
    expected = [A.to("bsr", blocksize=(4, 4)) for A in matrices]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(10):
            made = matrices[number].to("bsr", blocksize=(4, 4))
            same = sf.same(made, expected[number], level="buffers")
            if not (same and sf.same(made.to("csr"), matrices[number], level="buffers")):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_temporaries_are_kept_up_to_a_limit() -> None:
    first = _scratch.scratch("test", 100, np.int32)
    assert first.dtype == np.int32
    assert first.shape == (100,)
    assert np.shares_memory(first, _scratch.scratch("test", 50, "int64"))
    assert not np.shares_memory(first, _scratch.scratch("other", 100, np.int32))
    large = [_scratch.scratch("test", _scratch.LIMIT + 1, np.int8) for _ in range(2)]
    assert not np.shares_memory(*large)


def test_results_do_not_alias_temporaries() -> None:
    A = sf.random(300, 300, 0.1, format="csr", seed=1)
    first = A.to("bsr", blocksize=(4, 4))
    kept = {name: buffer.copy() for name, buffer in first.buffers().items()}
    sf.random(300, 300, 0.1, format="csr", seed=2).to("bsr", blocksize=(4, 4)).to("csr")
    for name, buffer in first.buffers().items():
        np.testing.assert_array_equal(buffer, kept[name])


def test_blocks_without_zeros_listed_turn_to_blocks_without() -> None:
    data = np.arange(1, 13, dtype=np.float32).reshape(2, 2, 3)
    indices, indptr = np.array([0, 1], np.int32), np.array([0, 2], np.int32)
    made = _bsr_transpose.bsr_transpose(data, indices, indptr, (2, 6))
    np.testing.assert_array_equal(made[0], data.transpose(0, 2, 1))
    np.testing.assert_array_equal(made[1], [0, 0])
    np.testing.assert_array_equal(made[2], [0, 1, 2])
    assert made[3] is None


def test_a_large_output_is_estimated_first(monkeypatch: pytest.MonkeyPatch) -> None:
    A = sf.COO(np.ones(40), np.arange(40) * 1000, np.arange(40) * 1000, (40_000, 40_000)).to("csr")
    monkeypatch.setattr(type(A.lib), "free_bytes", lambda self, device: 10**8)
    with sf.tracing() as trace, pytest.raises(MemoryError, match=r"40 blocks of 1000 x 1000"):
        A.to("bsr", blocksize=1000)
    assert not trace  # the fast record was chosen and refused; nothing ran instead
