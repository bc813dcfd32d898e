"""Room of a fixed size: what conversion plans fill, and how a matrix comes out of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import IndexWidth, itemsize
from sparseformats.errors import CapacityError
from sparseformats.formats import ALL, BSR, CSR, BlockedELL, SparseMatrix
from sparseformats.formats.canonical import expand
from sparseformats.formats.slots import count_inside, count_stored

__all__ = ["Room", "room_for"]


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """Buffers for at most so many elements, blocks, or slots of each block row.

    Attributes
    ----------
    lib : ArrayLibrary
    device, dtype : str
    format : ``"csr"``, ``"bsr"`` or ``"blocked_ell"``
    shape : (m, n)
    blocksize : (R, C) or None
    capacity : int
        Elements of CSR, blocks of BSR, slots of a block row of Blocked-ELL.
    data, indices : arrays
        As in a matrix, with the capacity in place of what is stored.
    starts, ends : (rows,) index arrays
        Where each row begins and ends among the elements or blocks, none beyond the capacity.
    count : (1,) int64 array
        How many were found: may be more than there is room for.
    overflow : (1,) bool array
        Whether it was. True until something has been converted.
    indptr : (rows + 1,) index array or None
        Of which `starts` and `ends` are parts; None for Blocked-ELL.
    marked : bool array, shaped as `data`, or None
        Stored zeros; None where there are none, or where the format says so by itself.
    """

    lib: ArrayLibrary
    device: str
    dtype: str
    format: str
    shape: tuple[int, int]
    blocksize: tuple[int, int] | None
    capacity: int
    data: Array
    indices: Array
    starts: Array
    ends: Array
    count: Array
    overflow: Array
    indptr: Array | None
    marked: Array | None

    def buffers(self) -> dict[str, Array]:
        """All arrays by name; `starts` and `ends` only where they are no parts of `indptr`."""
        found = {"data": self.data, "indices": self.indices, "indptr": self.indptr}
        if self.indptr is None:
            found |= {"starts": self.starts, "ends": self.ends}
        found |= {"marked": self.marked, "count": self.count, "overflow": self.overflow}
        return {name: x for name, x in found.items() if x is not None}

    def needed(self) -> int:
        """What was found, if there was room for it; waits for the device.

        Raises
        ------
        CapacityError
        """
        found = int(self.lib.item(self.count))
        if found <= self.capacity:
            return found
        what = {"csr": "elements", "bsr": "blocks"}.get(self.format, "slots a block row")
        raise CapacityError(
            f"plan_conversion: the last source needs {found:,} {what}, the capacity is "
            f"{self.capacity:,}; plan again with capacity={found} or more",
            found,
            self.capacity,
        )

    def matrix(self, count: int, *, like_csr: bool = False) -> SparseMatrix:
        """Copy the first `count` elements, blocks or slots into a matrix.

        Parameters
        ----------
        like_csr : bool
            Say that all slots are stored where they are, as the conversion from CSR does.
        """
        lib, shape = self.lib, self.shape
        if self.format == "blocked_ell":
            data, columns = self.data[:, :count, ...], self.indices[:, :count]
            zeros = None if self.marked is None else self._zeros(self.marked[:, :count, ...])
            return BlockedELL.trusted(
                data=lib.copy(data), col_indices=lib.copy(columns), shape=shape, zeros=zeros
            )
        arrays = {
            "data": self.data[:count, ...],
            "indices": self.indices[:count],
            "indptr": self.indptr,
        }
        copies = {name: lib.copy(x) for name, x in arrays.items()}
        if self.format == "csr":
            return CSR.trusted(**copies, shape=shape)
        zeros = None if self.marked is None else self._zeros(self.marked[:count, ...])
        made = BSR.trusted(**copies, shape=shape, zeros=zeros)
        if like_csr and zeros is not None and _is_full(made):
            return BSR.trusted(**copies, shape=shape, zeros=ALL)
        return made

    def _zeros(self, marked: Array) -> Array | None:
        found = self.lib.flatnonzero(self.lib.contiguous(marked))
        return found if int(found.shape[0]) else None

    def take(self, A: SparseMatrix) -> None:
        """Copy a matrix in, as much of it as there is room for."""
        needed, lib = _size(A), self.lib
        kept = min(needed, self.capacity)
        self.count[0], self.overflow[0] = needed, needed > self.capacity
        if isinstance(A, BlockedELL):
            self.indices[...] = -1
            self.indices[:, :kept] = A.col_indices[:, :kept]
            lib.bits(self.data)[...] = 0
            lib.bits(self.data)[:, :kept, ...] = lib.bits(A.data)[:, :kept, ...]
            used = lib.xp.sum(lib.astype(self.indices >= 0, "int64"), axis=1)
            self.ends[...] = lib.astype(self.starts + used, lib.dtype_name(self.ends))
        elif isinstance(A, (CSR, BSR)):
            lib.bits(self.data)[:kept, ...] = lib.bits(A.data)[:kept, ...]
            self.indices[:kept] = A.indices[:kept]
            limit = lib.full(1, self.capacity, lib.dtype_name(A.indptr), self.device)
            assert self.indptr is not None
            self.indptr[...] = lib.where(A.indptr > limit, limit, A.indptr)
        if self.marked is not None and isinstance(A, (BSR, BlockedELL)):
            zeros = A.stored_mask() & ~lib.nonzero_mask(A.data)
            self.marked[...] = False
            rows = (slice(None),) if isinstance(A, BlockedELL) else ()
            at = (*rows, slice(kept), ...)
            self.marked[at] = zeros[at]


def _size(A: SparseMatrix) -> int:
    """What is held against the capacity."""
    return A.width if isinstance(A, BlockedELL) else int(A.data.shape[0])


def _is_full(A: BSR) -> bool:
    """Whether every slot inside the shape is stored."""
    lib = A.lib
    rows = expand(lib, A.indptr, A.nnzb)
    inside = count_inside(lib, rows, A.indices, A.blocksize, A.shape)
    return count_stored(lib, A.data, A.zeros, inside) == inside


def room_for(
    lib: ArrayLibrary,
    place: tuple[str, str],
    format: str,
    shape: tuple[int, int],
    blocksize: tuple[int, int] | None,
    capacity: int,
    width: IndexWidth,
    *,
    marked: bool,
) -> Room:
    """Make room for matrices of one kind.

    Parameters
    ----------
    place : (device, dtype)
    width : str
        Of index arrays.
    marked : bool
        Whether there may be stored zeros in blocks.

    Raises
    ------
    MemoryError
        It would not fit.
    """
    device, dtype = place
    r, c = blocksize or (1, 1)
    rows = -(-shape[0] // r)
    slots = (rows, capacity) if format == "blocked_ell" else (capacity,)
    size = slots if blocksize is None else (*slots, r, c)
    marks = marked and blocksize is not None
    needs = math.prod(size) * (itemsize(dtype) + marks) + math.prod(slots) * itemsize(width)
    lib.ensure_fits(needs, device, f"room for {capacity:,} in a conversion plan")
    indptr, starts = None, None
    if len(slots) == 2:
        starts = lib.astype(lib.arange(rows, "int64", device) * capacity, width)
        ends = lib.copy(starts)
    else:
        indptr = lib.zeros(rows + 1, width, device)
        starts, ends = indptr[:-1], indptr[1:]
    made: dict[str, Any] = {
        "data": lib.zeros(size, dtype, device),
        "indices": lib.full(slots, 0 if indptr is not None else -1, width, device),
        "starts": starts,
        "ends": ends,
        "indptr": indptr,
        "count": lib.full(1, -1, "int64", device),
        "overflow": lib.full(1, True, "bool", device),
        "marked": lib.zeros(size, "bool", device) if marks else None,
    }
    return Room(lib, device, dtype, format, shape, blocksize, capacity, **made)
