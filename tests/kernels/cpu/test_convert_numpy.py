"""Conversions of raw NumPy arrays against dictionaries of elements: slow, and plain to see."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sparseformats_kernels.cpu.convert import (
    _bits,
    _bsr_csr,
    _compressed,
    _csr_bsr,
    _dense,
    _dense_bsr,
    _grid,
)

DTYPES = ("float32", "float64", "float16", "bfloat16", "complex64", "complex128")
DTYPES += ("bool", "int8", "uint16", "int64")
SHAPES = ((0, 0), (0, 5), (5, 0), (1, 1), (7, 11), (16, 24), (23, 17), (3, 70), (70, 3))
BLOCKS = ((1, 1), (2, 3), (16, 16), (8, 8), (1, 4), (4, 1), (4, 4), (3, 8), (100, 50))

Elements = dict[tuple[int, int], bytes]
Case = tuple[Any, Any, Any, tuple[int, int]]


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def awkward(rng: np.random.Generator, count: int, dtype: np.dtype[Any]) -> Any:
    """Random bits, so NaNs of all payloads and subnormals too, with zeros of both signs."""
    if dtype == np.bool_:
        return rng.integers(0, 2, count).astype(np.bool_)
    raw = rng.integers(0, 256, (count, dtype.itemsize), dtype=np.uint8)
    values = raw.reshape(-1).view(dtype).copy()
    values[rng.random(count) < 0.15] = 0
    if dtype.kind not in "iu":
        values[rng.random(count) < 0.15] = dtype.type(-0.0)
    return values


def random_csr(
    seed: int, shape: tuple[int, int], density: float, dtype: str = "float32", index: str = "int32"
) -> Case:
    """Canonical CSR: data, indices, indptr, shape."""
    rng = np.random.default_rng(seed)
    mask = rng.random(shape) < density
    row, col = np.nonzero(mask)
    indptr = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(index)
    return awkward(rng, len(row), dtype_of(dtype)), col.astype(index), indptr, shape


def is_zero(value: Any) -> bool:
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return bool(value == 0)


def csr_elements(data: Any, indices: Any, indptr: Any) -> Elements:
    found = {}
    for row in range(len(indptr) - 1):
        columns = [int(indices[k]) for k in range(indptr[row], indptr[row + 1])]
        assert columns == sorted(set(columns))
        for k in range(indptr[row], indptr[row + 1]):
            found[row, int(indices[k])] = data[k].tobytes()
    return found


def bsr_elements(data: Any, indices: Any, indptr: Any, zeros: Any, shape: Any) -> Elements:
    """Stored elements; checks canonical form and padding on the way."""
    _, R, C = data.shape
    assert len(indptr) == -(-shape[0] // R) + 1
    if zeros is not None and not isinstance(zeros, str):
        assert len(zeros)
        assert zeros.dtype == np.int64
        assert (np.diff(zeros) > 0).all()
    marked = set() if zeros is None or isinstance(zeros, str) else {int(z) for z in zeros}
    found = {}
    for brow in range(len(indptr) - 1):
        columns = [int(c) for c in indices[indptr[brow] : indptr[brow + 1]]]
        assert columns == sorted(set(columns))
        for block in range(indptr[brow], indptr[brow + 1]):
            for r, c in np.ndindex(R, C):
                place = (brow * R + r, int(indices[block]) * C + c)
                value, slot = data[block, r, c], (block * R + r) * C + c
                inside = place[0] < shape[0] and place[1] < shape[1]
                assert inside or (is_zero(value) and slot not in marked)
                assert slot not in marked or is_zero(value)
                if inside and (isinstance(zeros, str) or not is_zero(value) or slot in marked):
                    found[place] = value.tobytes()
    return found


def dense_of(elements: Elements, shape: tuple[int, int], dtype: np.dtype[Any]) -> Any:
    dense = np.zeros(shape, dtype)
    for place, value in elements.items():
        dense[place] = np.frombuffer(value, dtype)[0]
    return dense


def assert_same_bits(a: Any, b: Any) -> None:
    assert a.shape == b.shape
    assert a.dtype == b.dtype
    assert np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def assert_width(index: str, *arrays: Any) -> None:
    assert [str(array.dtype) for array in arrays] == [index] * len(arrays)


def cases() -> list[Case]:
    found = []
    for number, shape in enumerate(SHAPES):
        densities = (0.05, 0.4, 1.0) if number > 3 else (1.0,)
        found += [random_csr(number, shape, density) for density in densities]
    found.append(random_csr(1, (23, 17), 0.0))
    found += [random_csr(5, (23, 17), 0.3, dtype) for dtype in DTYPES]
    found += [random_csr(6, (23, 17), 0.3, dtype, "int64") for dtype in ("float32", "complex128")]
    return found


@pytest.fixture(params=["chosen", "bitmap", "sorting", "direct"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way to find blocks, with chunks of a few elements."""
    name: str = request.param
    if name != "chosen":
        monkeypatch.setattr(_grid, "CHUNK", 9)
        monkeypatch.setattr(_csr_bsr, "WHOLE_ROW", 1 if name == "bitmap" else 10**9)
        monkeypatch.setattr(_grid, "BITMAP_CELLS", 10**9 if name == "bitmap" else -1)
        monkeypatch.setattr(_csr_bsr, "DIRECT_BYTES", 10**9 if name == "direct" else -1)
        monkeypatch.setattr(_csr_bsr, "SMALL", -1)
        monkeypatch.setattr(_csr_bsr, "DIRECT_COLUMNS", 10**9 if name == "direct" else -1)
    return name


@pytest.mark.parametrize("blocksize", BLOCKS)
def test_csr_to_bsr(way: str, blocksize: tuple[int, int]) -> None:
    for data, indices, indptr, shape in cases():
        made = _csr_bsr.csr_to_bsr(data, indices, indptr, shape, blocksize)
        assert made[0].dtype == data.dtype
        assert made[0].shape[1:] == blocksize
        assert_width(str(indices.dtype), made[1], made[2])
        assert bsr_elements(*made, shape) == csr_elements(data, indices, indptr)
        # No block without an element.
        assert len(made[1]) == len(
            {(r // blocksize[0], c // blocksize[1]) for r, c in csr_elements(data, indices, indptr)}
        )


@pytest.mark.parametrize("share", ["chosen", "sparse", "dense", "nearly-full"])
@pytest.mark.parametrize("blocksize", BLOCKS)
def test_bsr_to_csr(
    share: str, blocksize: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if share != "chosen":
        monkeypatch.setattr(_bsr_csr, "SLOTS", 130)
        monkeypatch.setattr(_bsr_csr, "SMALL", 0)
        limit = 1 if share == "sparse" else -1
        monkeypatch.setattr(_bsr_csr, "SPARSE_SHARE", dict.fromkeys((1, 2, 4, 8), limit))
        monkeypatch.setattr(_bsr_csr, "NEARLY_FULL", 0 if share == "nearly-full" else 2)
    for data, indices, indptr, shape in cases():
        blocks, index, pointers, zeros = _csr_bsr.csr_to_bsr(
            data, indices, indptr, shape, blocksize
        )
        back = _bsr_csr.bsr_to_csr(blocks, index, pointers, shape, zeros)
        for given, made in zip((data, indices, indptr), back, strict=True):
            assert_same_bits(made, given)
        # Without the marks only non-zeros are stored, with "all" every slot inside the shape.
        for marks in (None, "all"):
            back = _bsr_csr.bsr_to_csr(blocks, index, pointers, shape, marks)
            stored = bsr_elements(blocks, index, pointers, marks, shape)
            assert csr_elements(*back) == stored


@pytest.mark.parametrize("dtype", DTYPES)
def test_negative_zeros_and_subnormals_in_nearly_full_blocks(dtype: str) -> None:
    rng = np.random.default_rng(0)
    data = np.ones(64 * 64 * 40, dtype_of(dtype))
    some = rng.choice(len(data), len(data) // 20, replace=False)
    data[some] = 0 if data.dtype.kind in "biu" else data.dtype.type(-0.0)
    if data.dtype.itemsize < 16 and data.dtype != np.bool_:
        data.view(f"i{data.dtype.itemsize}")[::7] = 1  # the smallest subnormal, or 1
    blocks, index = data.reshape(-1, 64, 64), np.arange(40, dtype=np.int32)
    pointers, shape = np.array([0, 40], np.int32), (64, 40 * 64)
    made = _bsr_csr.bsr_to_csr(blocks, index, pointers, shape)
    stored = _bits.nonzero(blocks).transpose(1, 0, 2).reshape(shape)
    dense = blocks.transpose(1, 0, 2).reshape(shape)
    assert_same_bits(made[0], dense[stored])
    np.testing.assert_array_equal(made[1], np.nonzero(stored)[1])
    np.testing.assert_array_equal(made[2], np.concatenate([[0], stored.sum(axis=1).cumsum()]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("blocksize", BLOCKS)
def test_bsr_to_dense(dtype: str, blocksize: tuple[int, int]) -> None:
    for seed, shape in enumerate(SHAPES):
        given = random_csr(seed, shape, 0.3, dtype)
        blocks, index, pointers, zeros = _csr_bsr.csr_to_bsr(*given, blocksize)
        if blocks.dtype.kind not in "biu":  # fill may be -0.0; a dense array has none of it
            fill = ~_bits.nonzero(blocks)
            if zeros is not None:
                fill.reshape(-1)[zeros] = False
            blocks = np.where(fill, blocks.dtype.type(-0.0), blocks)
        for marks in (zeros, None, "all"):
            made = _dense_bsr.bsr_to_dense(blocks, index, pointers, shape, marks)
            stored = bsr_elements(blocks, index, pointers, marks, shape)
            assert_same_bits(made, dense_of(stored, shape, blocks.dtype))


def layouts(dense: Any) -> list[Any]:
    return [dense, np.asfortranarray(dense), np.repeat(dense, 2, axis=1)[:, ::2], dense[::-1][::-1]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dense_to_bsr_and_csr(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for slab in (_dense.SLAB, 60):
        monkeypatch.setattr(_dense, "SLAB", slab)
        monkeypatch.setattr(_dense_bsr, "SLAB", slab)
        for seed, shape in enumerate(SHAPES):
            data, indices, indptr, _ = random_csr(seed, shape, 0.3, dtype)
            dense = dense_of(csr_elements(data, indices, indptr), shape, data.dtype)
            expected = {
                (i, j): dense[i, j].tobytes()
                for i, j in np.ndindex(shape)
                if not is_zero(dense[i, j])
            }
            for array in layouts(dense):
                made = _dense.dense_to_csr(array)
                assert made[0].dtype == dense.dtype
                assert_width("int32", made[1], made[2])
                assert csr_elements(*made) == expected
                for blocksize in BLOCKS[1:] if array is dense else BLOCKS[1:3]:
                    blocks = _dense_bsr.dense_to_bsr(array, blocksize)
                    assert_width("int32", blocks[1], blocks[2])
                    assert bsr_elements(*blocks, None, shape) == expected
                    assert not len(blocks[0]) or _bits.nonzero(blocks[0]).any(axis=(1, 2)).all()


def test_a_dense_array_of_full_blocks() -> None:
    dense = np.arange(1, 24 * 36 + 1, dtype=np.float32).reshape(24, 36)
    blocks = _dense_bsr.dense_to_bsr(dense, (4, 6))
    assert_same_bits(blocks[0][7], dense[4:8, 6:12])
    assert_same_bits(_dense_bsr.bsr_to_dense(*blocks, dense.shape), dense)


def test_csr_to_dense() -> None:
    for data, indices, indptr, shape in cases():
        made = _dense.csr_to_dense(data, indices, indptr, shape)
        elements = csr_elements(data, indices, indptr)
        assert_same_bits(made, dense_of(elements, shape, data.dtype))


def test_compressed() -> None:
    for data, indices, indptr, shape in cases():
        row = _compressed.expand(indptr)
        assert_width(str(indices.dtype), row)
        assert_same_bits(_compressed.compress(row, shape[0]), indptr)
        turned = _compressed.transpose(data, indices, indptr, shape)
        sorted_ = _compressed.sort_by_column(data, row, indices, shape)
        for one, other in zip(turned, sorted_, strict=True):
            assert_same_bits(one, other)
        assert_width(str(indices.dtype), *turned[1:])
        elements = csr_elements(data, indices, indptr)
        assert csr_elements(*turned) == {(j, i): value for (i, j), value in elements.items()}
        for given, made in zip(
            (data, indices, indptr), _compressed.transpose(*turned, shape[::-1]), strict=True
        ):
            assert_same_bits(made, given)


def test_many_elements_in_few_rows() -> None:
    row = np.repeat(np.array([0, 2], np.int32), 100)
    np.testing.assert_array_equal(_compressed.compress(row, 4), [0, 100, 100, 200, 200])


def test_huge_shapes_take_no_memory_of_their_size() -> None:
    width = 2**40
    indices, indptr = np.array([0, width - 1, 5], np.int64), np.array([0, 2, 3], np.int64)
    data = np.array([1, 2, 3], np.float32)
    blocks, index, pointers, zeros = _csr_bsr.csr_to_bsr(data, indices, indptr, (2, width), (2, 2))
    np.testing.assert_array_equal(index, [0, 2, width // 2 - 1])
    np.testing.assert_array_equal(pointers, [0, 3])
    assert zeros is None
    back = _bsr_csr.bsr_to_csr(blocks, index, pointers, (2, width))
    for given, made in zip((data, indices, indptr), back, strict=True):
        assert_same_bits(made, given)


def test_indices_widen_where_the_shape_needs_it() -> None:
    shape = (2, 2**32)  # the block columns fit int32, the columns do not
    index, pointers = np.array([2**30 - 1], np.int32), np.array([0, 1], np.int32)
    made = _bsr_csr.bsr_to_csr(np.ones((1, 2, 4), np.int8), index, pointers, shape)
    assert_width("int64", made[1], made[2])
    np.testing.assert_array_equal(made[1], np.tile(np.arange(2**32 - 4, 2**32), 2))


@pytest.mark.parametrize("dtype", DTYPES)
def test_nonzero_goes_by_bits(dtype: str) -> None:
    kind = dtype_of(dtype)
    zeros = np.zeros(3, kind)
    if kind.kind not in "biu":
        zeros[1] = kind.type(-0.0)
    assert not _bits.nonzero(zeros).any()
    raw = np.zeros((3, kind.itemsize), np.uint8)
    raw[:, 0] = 1  # the smallest subnormal
    assert _bits.nonzero(raw.reshape(-1).view(kind)).all()


@pytest.mark.parametrize("in_order", [True, False])
def test_large_blocks_are_left_to_scipy_where_it_meets_them_in_order(in_order: bool) -> None:
    size = 200 * 16  # a band; or one element a row, of which the first two swap their blocks
    row, col = np.arange(size), np.arange(size)
    if not in_order:
        col = col.reshape(-1, 16)[::-1].reshape(-1).copy()
        col[::16], col[1::16] = (col[1::16] + size // 2) % size, col[::16]
    indptr = np.arange(size + 1, dtype=np.int32)
    data, indices = (row + 1).astype(np.float32), col.astype(np.int32)
    grid = _grid.Grid(indices, indptr, indptr[::16].copy(), size // 16, 16, 16)
    assert _csr_bsr._meets_blocks_in_order(grid) is in_order
    made = _csr_bsr.csr_to_bsr(data, indices, indptr, (size, size), (16, 16))
    back = _bsr_csr.bsr_to_csr(*made[:3], (size, size))
    for given, got in zip((data, indices, indptr), back, strict=True):
        assert_same_bits(got, given)
