"""A matrix as the library reads it: pruned to half its places, compressed into memory of ours.

An n:m matrix is written into a dense array, +0 where it has no non-zero, which the library then
compresses; the array is freed. What the compressed bytes mean is not documented, so nothing here
reads them. That at most half of the places are non-zero is proven by the format, so the library's
own check (``cusparseLtSpMMAPruneCheck``) is not asked.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final, NamedTuple, final

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import itemsize
from sparseformats.formats import NM, SparseMatrix
from sparseformats_kernels.cuda.devices import Device
from sparseformats_kernels.cuda.elements import as_dense
from sparseformats_kernels.cusparselt import api as c
from sparseformats_kernels.cusparselt.handles import Handle

if TYPE_CHECKING:
    from sparseformats_kernels.cusparselt.api import Api, Opaque

__all__ = ["Blob", "Tile", "padded", "tile", "unpacked"]


class Tile(NamedTuple):
    """Multiples that sizes must be of.

    Attributes
    ----------
    sparse : int
        Rows and columns of the sparse matrix.
    dense : int
        Columns of the operand.
    """

    sparse: int
    dense: int


_BY_SIZE: Final = {1: Tile(32, 16), 2: Tile(16, 8), 4: Tile(8, 4)}


def tile(dtype: str) -> Tile:
    """The multiples for a value type."""
    return _BY_SIZE[itemsize(dtype)]


def padded(size: int, multiple: int) -> int:
    """The next multiple, of at least one."""
    return max(1, -(-size // multiple)) * multiple


def unpacked(A: SparseMatrix, dtype: str) -> Array:
    """The matrix in a dense array whose sizes are multiples of what the library asks for."""
    if not isinstance(A, NM):
        raise TypeError(f"expected an n:m matrix, got {A.format}")
    lib, (m, k) = A.lib, A.shape
    edge = tile(dtype).sparse
    size = padded(m, edge), padded(k, edge)
    dense = as_dense(A, False, dtype)
    if size == (m, k):
        return lib.contiguous(dense)
    whole = lib.zeros(size, dtype, A.device)
    whole[:m, :k] = dense
    return whole


@final
class Blob:
    """A compressed matrix.

    Attributes
    ----------
    array : uint8 array
        The library's own bytes.
    m, k : int
        The shape that the library sees.
    dtype, gives : str
        Of the values and the operand, and of what the library writes.
    computes : int
        Of ``cusparseComputeType``.
    """

    __slots__ = ("array", "computes", "dtype", "gives", "k", "m")

    def __init__(
        self, api: Api, handle: Handle, device: Device, dense: Array, dtype: str, gives: str
    ) -> None:
        self.m, self.k = (int(size) for size in dense.shape)
        self.dtype, self.gives = dtype, gives
        self.computes = c.COMPUTE_32I if gives == "int32" else c.COMPUTE_32F
        self.array = self._compress(api, handle.address, device, dense)

    def describe(self, api: Api, handle: int) -> Opaque:
        """A descriptor of the matrix; who calls destroys it."""
        struct = api.opaque()
        facts = self.m, self.k, self.k, 16, c.VALUES[self.dtype], c.ORDER_ROW, c.HALF_OF_ALL
        api.call("cusparseLtStructuredDescriptorInit", handle, struct.address, *facts)
        return struct

    def _compress(self, api: Api, handle: int, device: Device, dense: Array) -> Array:
        lib: ArrayLibrary = device.lib
        struct = self.describe(api, handle)
        try:
            size, extra = ctypes.c_size_t(), ctypes.c_size_t()
            where = ctypes.addressof(size), ctypes.addressof(extra)
            api.call("cusparseLtSpMMACompressedSize2", handle, struct.address, *where)
            found = device.empty((max(1, size.value),), "uint8")
            buffer = device.empty((max(1, extra.value),), "uint8")
            places = (lib.address(x) for x in (dense, found, buffer))
            api.call(
                "cusparseLtSpMMACompress2",
                *(handle, struct.address, 1, c.NON_TRANSPOSE, *places, device.stream()),
            )
        finally:
            api.function("cusparseLtMatDescriptorDestroy")(struct.address)
        return found
