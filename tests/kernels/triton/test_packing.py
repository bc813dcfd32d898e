"""Blocks by row, and packed tiles: every stored value at its place, and nothing anywhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from sparseformats_kernels.triton.packing import PAD, blocks_of, tiles

SHAPES = [(12, 20), (13, 7), (1, 40), (40, 1), (64, 64), (0, 8), (8, 0)]
BLOCKS = [(1, 1), (2, 2), (3, 5), (8, 4), (16, 16), (20, 3)]


def matrix(
    shape: tuple[int, int], block: tuple[int, int], format: str, density: float, library: str
) -> tuple[Any, Any]:
    rng = np.random.default_rng(7)
    r, c = block
    stored = rng.random((-(-shape[0] // r), -(-shape[1] // c))) < density
    mask = np.kron(stored, np.ones(block, np.bool_))[: shape[0], : shape[1]]
    dense = (mask * rng.integers(1, 99, shape)).astype(np.float32)
    made = sf.from_dense(dense, format, blocksize=block if format == "bsr" else r)
    return dense, made.to_library(library)


def as_numpy(A: Any, x: Any) -> Any:
    return A.lib.to_numpy(x)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("format", ["bsr", "blocked_ell"])
@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("shape", SHAPES)
def test_blocks_name_every_value(
    shape: tuple[int, int],
    block: tuple[int, int],
    density: float,
    format: str,
    transposed: bool,
    library: str,
) -> None:
    if format == "blocked_ell" and block[0] != block[1]:
        block = (block[0], block[0])
    dense, A = matrix(shape, block, format, density, library)
    found = blocks_of(A, transposed)
    columns = as_numpy(A, found.columns)
    places = np.arange(columns.size) if found.places is None else as_numpy(A, found.places)
    assert columns.dtype == np.int32
    assert (columns[-PAD:] == 0).all()
    values = as_numpy(A, A.data).reshape(-1, *A.data.shape[-2:])
    r, c = A.blocksize
    padded = np.zeros((-(-shape[0] // r) * r, -(-shape[1] // c) * c), np.float32)
    target = padded.T if transposed else padded
    high, wide = (c, r) if transposed else (r, c)
    for row, (begin, end) in enumerate(zip(found.begin, found.end, strict=True)):
        assert (np.diff(columns[begin:end]) > 0).all()
        for slot in range(begin, end):
            piece = values[places[slot]]
            top, left = row * high, columns[slot] * wide
            target[top : top + high, left : left + wide] = piece.T if transposed else piece
    assert np.array_equal(padded[: shape[0], : shape[1]], dense)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("format", ["bsr", "blocked_ell"])
@pytest.mark.parametrize("tile", [(4, 4), (16, 8), (2, 32)])
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("shape", SHAPES)
def test_tiles_hold_every_value(
    shape: tuple[int, int],
    block: tuple[int, int],
    tile: tuple[int, int],
    format: str,
    transposed: bool,
) -> None:
    if format == "blocked_ell":
        block = (block[0], block[0])
    dense, A = matrix(shape, block, format, 0.4, "numpy")
    wanted = dense.T if transposed else dense
    m, k = wanted.shape
    found = tiles(A, transposed, (m, k), tile)
    bm, bk = tile
    high_block = A.blocksize[1] if transposed else A.blocksize[0]
    parts = -(-high_block // bm)
    made = np.zeros_like(wanted)
    columns = found.columns.reshape(-1, bk)
    assert ((columns >= -1) & (columns < max(k, 1))).all()
    for row, (begin, end) in enumerate(zip(found.begin, found.end, strict=True)):
        top = row // parts * high_block + row % parts * bm
        rows = min(bm, high_block - row % parts * bm, m - top)
        for number in range(begin, end):
            at = np.flatnonzero(columns[number] >= 0)
            assert not found.values[number][:, columns[number] < 0].any()
            if rows > 0:
                made[top : top + rows, columns[number][at]] += found.values[number][:rows, at]
    assert np.array_equal(made, wanted)


def test_another_format_is_refused() -> None:
    with pytest.raises(TypeError, match="expected a block format, got csr"):
        blocks_of(sf.eye(4), False)
