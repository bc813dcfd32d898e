"""Conversions stay on the device: no array goes through the host on the way."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from sparseformats import _arrays, dispatch, reference
from sparseformats.formats import SparseMatrix
from tests.gpu.streams import synchronisations
from tests.kernels.triton.matrices import matrix

OPTIONS: dict[str, dict[str, Any]] = {
    "coo": {},
    "csr": {},
    "csc": {},
    "bsr": {"blocksize": (16, 8)},
    "blocked_ell": {"blocksize": 16},
    "2:4": {},
}


def source(format: str, library: str, device: str) -> Any:
    rng = np.random.default_rng(7)
    dense = np.zeros((203, 391), np.float32)
    rows = np.arange(0, 203, 3)
    for j in range(0, 391, 4):
        dense[rows, j] = rng.standard_normal(rows.size)
    dense[5, 8] = np.nan
    mask = dense != 0
    mask[1, 1], dense[1, 1] = True, -0.0
    made = sf.from_dense(dense, format, mask=mask, **OPTIONS[format])
    return made.to_device(device, library=library)


@pytest.mark.parametrize("library", ["torch", "cupy"])
@pytest.mark.parametrize(("a", "b"), list(itertools.product(OPTIONS, repeat=2)))
def test_every_pair_on_the_device(
    library: str, a: str, b: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = source(a, library, device)
    lib = matrix.lib
    bring = type(lib).to_numpy

    def few_only(self: Any, x: Any) -> Any:
        # A handful of numbers that steer the work may be read; the matrix may not.
        assert x.shape[0] <= 64, f"an array of shape {tuple(x.shape)} went through the host"
        return bring(self, x)

    def refuse(*_: Any) -> None:
        raise AssertionError("an array came from the host")

    with monkeypatch.context() as patch:
        patch.setattr(type(lib), "to_numpy", few_only)
        patch.setattr(type(lib), "from_numpy", refuse)
        converted = matrix.to(b, **OPTIONS[b])
        dense = converted.to_dense()
    assert (converted.library, converted.device) == (library, device)
    assert converted.problems() == []
    assert reference.same_content(matrix, converted)
    assert _arrays.library("numpy").equal_bits(lib.to_numpy(dense), reference.dense(matrix))


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_from_dense_on_the_device(library: str, device: str) -> None:
    lib = _arrays.library(library)
    host = np.zeros((37, 53), np.float32)
    host[::4, ::5] = 1.5
    host[0, 1] = -0.0
    host[2, 2] = np.nan
    dense = lib.from_numpy(host, device)
    for format, options in OPTIONS.items():
        made = sf.from_dense(dense, format, **options)
        assert (made.library, made.device) == (library, device)
        assert made.problems() == []
        expected = sf.from_dense(host, format, **options)
        assert reference.same_content(made, expected)
        assert made.nnz == int((host != 0).sum())


def test_more_duplicates_than_a_thread_block(device: str) -> None:
    """Sums of many equal positions are exact and the same on every run."""
    n = 100_003
    values = np.ones(n, np.int64)
    matrix = sf.COO(values, np.zeros(n, np.int64), np.arange(n) % 2, (1, 2))
    for library in ("torch", "cupy"):
        lib = _arrays.library(library)
        data = lib.from_numpy(values, device)
        row = lib.from_numpy(np.zeros(n, np.int64), device)
        col = lib.from_numpy(np.arange(n) % 2, device)
        moved = sf.COO(data, row, col, (1, 2))
        assert reference.same_content(moved, matrix)


MOVED = {
    "dense->bsr": ("dense", "bsr"),
    "bsr->dense": ("bsr", "dense"),
    "csr->bsr": ("csr", "bsr"),
    "bsr->csr": ("bsr", "csr"),
    "dense->csr": ("dense", "csr"),
    "csr->csc": ("csr", "csc"),
    "csc->csr": ("csc", "csr"),
}


def moved(source: Any, target: str, block: tuple[int, int]) -> Any:
    """A matrix or dense array in another format, blocks of one size."""
    options = {"blocksize": block} if target == "bsr" else {}
    if target == "dense":
        return source.to_dense()
    if not isinstance(source, SparseMatrix):
        return sf.from_dense(source, target, **options)
    return source.to(target, **options)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int8", "complex64"])
@pytest.mark.parametrize("block", [(16, 16), (64, 64), (3, 8)], ids=str)
@pytest.mark.parametrize("step", MOVED)
def test_moves_give_the_buffers_of_the_generic_edges(
    step: str, block: tuple[int, int], dtype: str, device: str
) -> None:
    """Shapes that several programs share, at addresses of every alignment, one after the other."""
    import torch

    first, target = MOVED[step]
    generator = torch.Generator().manual_seed(3)
    for m, n, skip in ((1203, 2391, 0), (64, 128, 0), (1200, 2390, 1), (5, 3000, 3)):
        grid = torch.rand((-(-m // block[0]), -(-n // block[1])), generator=generator) < 0.2
        mask = grid.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)[:m, :n]
        mask = mask & (torch.rand((m, n), generator=generator) < 0.7)
        host = (torch.randint(-9, 9, (m, n), generator=generator) * mask).to(getattr(torch, dtype))
        place = torch.zeros((m, n + skip), dtype=host.dtype, device=device)[:, skip:]
        place.copy_(host)
        D: Any = place
        if first == "dense":
            source, expected = D, moved(host, target, block)
        else:
            options = {"blocksize": block} if first == "bsr" else {}
            there = sf.from_dense(host, first, **options)
            source, expected = there.to_device(device), moved(there, target, block)
        with dispatch.use_kernel("triton-moves", f"convert:{step}"), sf.tracing() as trace:
            found, again = (moved(source, target, block) for _ in range(2))
        assert [run.kernel for run in trace if run.op == f"convert:{step}"] == ["triton-moves"] * 2
        if target == "dense":
            lib = _arrays.of(expected)
            assert lib.equal_bits(expected, found.cpu())
            assert lib.equal_bits(found, again)
            continue
        assert sf.same(expected, found.to_device("cpu"), level="buffers")
        assert sf.same(found, again, level="buffers")
        sf.validate(found)
        for x in found.buffers().values():
            assert x.untyped_storage().nbytes() == x.numel() * x.element_size()


OF_BLOCKS: list[tuple[str, int, int]] = [
    *(("bsr->blocked_ell", b, b) for b in (3, 16, 64)),
    *(("blocked_ell->bsr", b, b) for b in (3, 16, 64)),
    *(("bsr->bsr", *pair) for pair in ((64, 32), (32, 64), (16, 64), (16, 8), (1, 16), (16, 1))),
]


def of_blocks(
    step: str, size: int, dtype: str, index: str, shape: tuple[int, int], kind: str
) -> Any:
    """A matrix of torch's on the host for a step between blocks; some zeros, stored or not."""
    import torch

    A = matrix("bsr", shape, (size, size), "float32", values="integers", index=index, density=0.2)
    data = A.data.to(getattr(torch, dtype))
    if dtype.startswith(("float", "bfloat")):
        inside = sf.BSR(A.data, A.indices, A.indptr, shape, stored="all").stored_mask()
        data = torch.where((data == 0) & inside, -data.abs(), data)
    A = sf.BSR(data, A.indices, A.indptr, shape)
    if kind == "all":
        A = sf.BSR(data, A.indices, A.indptr, shape, stored="all")
    if kind == "marked":
        inside = sf.BSR(data, A.indices, A.indptr, shape, stored="all").stored_mask()
        some = (torch.arange(inside.numel()) % 7 == 0).view(inside.shape)
        A = sf.BSR(data, A.indices, A.indptr, shape, stored=A.stored_mask() | (inside & some))
    return A if step.startswith("bsr") else A.to("blocked_ell")


def reblocked(source: Any, step: str, into: int) -> Any:
    return source.to(step.partition("->")[2], blocksize=into)


@pytest.mark.parametrize("library", ["torch", "cupy"])
@pytest.mark.parametrize("kind", ["nonzero", "marked", "all"])
@pytest.mark.parametrize(("step", "size", "into"), OF_BLOCKS, ids=str)
def test_blocks_have_the_buffers_of_the_generic_edges(
    step: str, size: int, into: int, kind: str, library: str, device: str
) -> None:
    """Even and ragged shapes, rows without blocks, both widths of indices, several types."""
    cases = [("bfloat16", "int32"), ("float32", "int64"), ("int8", "int32"), ("float64", "int64")]
    for number, (dtype, index) in enumerate(cases):
        if library == "cupy" and dtype == "bfloat16":
            dtype = "float16"
        shape = [(1203, 2391), (64, 128), (1216, 2432), (5, 3000)][number]
        there = of_blocks(step, size, dtype, index, shape, kind)
        expected = reblocked(there, step, into)
        source = there.to_device(device, library=library)
        with dispatch.use_kernel("triton-moves", f"convert:{step}"), sf.tracing() as trace:
            found, again = (reblocked(source, step, into) for _ in range(2))
        assert trace.kernels == ["triton-moves"] * 2
        assert sf.same(expected, found.to_device("cpu", library="torch"), level="buffers")
        assert sf.same(found, again, level="buffers")
        sf.validate(found)


@pytest.mark.parametrize(("step", "size", "into"), OF_BLOCKS, ids=str)
def test_blocks_are_converted_after_one_wait(step: str, size: int, into: int, device: str) -> None:
    for kind in ("nonzero", "marked"):
        source = of_blocks(step, size, "float32", "int32", (1203, 2391), kind).to_device(device)
        reblocked(source, step, into)  # compiles
        with synchronisations() as waits:
            found = reblocked(source, step, into)
        assert len(waits) == 1, waits
        assert reference.same_content(source, found)


def test_sizes_that_do_not_divide_stay_on_the_device(device: str) -> None:
    there = of_blocks("bsr->bsr", 48, "float32", "int32", (1203, 2391), "marked")
    expected = there.to("bsr", blocksize=32)
    with sf.tracing() as trace:
        found = there.to_device(device).to("bsr", blocksize=32)
    assert trace.kernels == ["array-api"]
    assert sf.same(expected, found.to_device("cpu"), level="buffers")
