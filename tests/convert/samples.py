"""Small matrices in every format, with all that conversions like to lose."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparseformats import BSR, COO, CSC, CSR, NM, BlockedELL, Sum, _arrays

LIBRARIES = ("numpy", "torch", "array_api_strict")

# NaN with a payload, -0.0, +0.0, a subnormal, an infinity, plain numbers.
BITS = np.array(
    [
        0x7FC12345,
        0x80000000,
        0x00000000,
        0x00000001,
        0xFF800000,
        0x3F800000,
        0xC0490FDB,
        0x7F800001,
    ],
    np.uint32,
)


def values(count: int) -> np.ndarray[Any, Any]:
    """The special values over and over, as float32."""
    return np.resize(BITS, count).view(np.float32)


def put(library: str, x: Any) -> Any:
    """A NumPy array in another library."""
    return _arrays.library(library).from_numpy(np.array(x))


def csr(library: str, index: str = "int32") -> CSR:
    """7 x 9 with an empty row and stored zeros of both signs."""
    indptr, indices = [0, 3, 3, 5, 9, 10, 12, 13], [0, 4, 8, 1, 2, 0, 3, 6, 7, 5, 2, 8, 4]
    parts = (values(13), np.array(indices, index), np.array(indptr, index))
    return CSR(*(put(library, x) for x in parts), (7, 9))


def coo(library: str, index: str = "int32") -> COO:
    """The elements of `csr`, given in another order."""
    row = np.repeat(np.arange(7), [3, 0, 2, 4, 1, 2, 1]).astype(index)
    col = np.array([0, 4, 8, 1, 2, 0, 3, 6, 7, 5, 2, 8, 4], index)
    order = np.array([5, 0, 12, 3, 1, 2, 9, 11, 4, 6, 8, 7, 10])
    return COO(*(put(library, x[order]) for x in (values(13), row, col)), (7, 9))


def csc(library: str, index: str = "int32") -> CSC:
    """9 x 7: the transpose of `csr`, read from the same buffers."""
    a = csr(library, index)
    return CSC(a.data, a.indices, a.indptr, (9, 7))


def bsr(library: str, stored: str = "nonzero", index: str = "int32") -> BSR:
    """7 x 10 in ragged (2, 3) blocks, one of them without a stored element."""
    indices, indptr = np.array([0, 3, 1, 1, 2, 3], index), np.array([0, 2, 3, 4, 6], index)
    data = np.resize(values(8), (6, 2, 3)).copy()
    data[2] = 0
    data[1, :, 1:] = 0  # columns 10 and 11 do not exist
    data[4:, 1, :] = 0  # nor does row 7
    data[5, :, 1:] = 0
    mark: Any = stored
    if stored == "mask":
        inside = np.ones(data.shape, bool)
        inside[[1, 5], :, 1:] = inside[4:, 1, :] = False
        full = (data.view(np.uint32) << 1) != 0
        mark = put(library, full | (inside & (np.arange(data.size).reshape(data.shape) % 2 == 0)))
    return BSR(*(put(library, x) for x in (data, indices, indptr)), (7, 10), stored=mark)


def blocked_ell(library: str, stored: str = "nonzero", index: str = "int32") -> BlockedELL:
    """5 x 7 in ragged 2 x 2 blocks, with empty slots."""
    columns = np.array([[0, 3, -1], [1, -1, -1], [0, 2, 3]], index)
    data = np.resize(values(8), (3, 3, 2, 2)).copy()
    data[columns < 0] = 0
    data[[0, 2], [1, 2], :, 1] = 0  # column 7 does not exist
    data[2, :, 1, :] = 0  # nor does row 5
    mark: Any = stored
    if stored == "mask":
        inside = np.broadcast_to((columns >= 0)[:, :, None, None], data.shape).copy()
        inside[[0, 2], [1, 2], :, 1] = inside[2, :, 1, :] = False
        full = (data.view(np.uint32) << 1) != 0
        mark = put(library, full | (inside & (np.arange(data.size).reshape(data.shape) % 3 == 0)))
    return BlockedELL(put(library, data), put(library, columns), (5, 7), stored=mark)


def nm(library: str, stored: str = "nonzero", aside: bool = True) -> NM:
    """3 x 7 as 2:4 with a ragged last group and zeros that lie aside."""
    indices = np.array([[[0, 3], [1, 2]], [[1, 2], [0, 1]], [[0, 1], [0, 2]]], np.uint8)
    data = np.resize(BITS[[0, 3, 5, 1, 6, 7]].view(np.float32), (3, 2, 2)).copy()
    data[2] = 0
    mark: Any = stored
    if stored == "mask":
        full = (data.view(np.uint32) << 1) != 0
        keep = np.zeros(data.shape, bool)
        keep[2, 1, 1] = keep[0, 1, 1] = True
        mark = put(library, full | keep)
    side = None
    if aside:
        zeros = (np.array([-0.0, 0.0], np.float32), np.array([0, 1]), np.array([1, 3]))
        side = COO(*(put(library, x) for x in zeros), (3, 7))
    return NM(put(library, data), put(library, indices), (3, 7), stored=mark, side=side)


def in_parts(library: str, stored: str = "nonzero", index: str = "int32") -> Sum:
    """3 x 7: `nm` and, between its elements, a row-wise rest and a lone coordinate."""
    indices, indptr = np.array([2, 4, 0, 6], index), np.array([0, 2, 4, 4], index)
    rest = CSR(*(put(library, x) for x in (values(4), indices, indptr)), (3, 7))
    lone = COO(*(put(library, x) for x in (values(3)[2:], np.array([2]), np.array([3]))), (3, 7))
    return Sum([nm(library, stored), rest, lone])


def dense(library: str) -> Any:
    """5 x 7 dense array of special values, row- and column-wise ragged for most blocks."""
    full = np.resize(values(8), (5, 7)).copy()
    full[1] = 0
    return put(library, full)


def sources(library: str) -> list[Any]:
    """A matrix or more of every format."""
    made: list[Any] = [coo(library), csr(library), csc(library)]
    for stored in ("nonzero", "all", "mask"):
        made += [bsr(library, stored), blocked_ell(library, stored), nm(library, stored)]
    made += [m.T for m in made[3:]]
    made += [csr(library, "int64"), bsr(library, "mask", "int64"), nm(library, aside=False)]
    made += [in_parts(library), in_parts(library, "mask", "int64")]
    return [*made, made[-1].T]
