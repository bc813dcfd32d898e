"""A matrix as the library reads it: pruned to half its places, compressed into memory of ours.

An n:m matrix is written into a dense array, +0 where it has no non-zero, which the library then
compresses; the array is freed. That at most half of the places are non-zero is proven by the
format, so the library's own check (``cusparseLtSpMMAPruneCheck``) is not asked.

What the compressed bytes mean is not documented. Where it was learnt, see
`sparseformats.formats.blob24`, a 2:4 matrix can be written into them without the dense array, on
request: ``SPARSEFORMATS_CUSPARSELT_PACK=direct``. The bytes are the same.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Final, NamedTuple, Self, final

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import itemsize
from sparseformats.formats import NM, SparseMatrix
from sparseformats.formats.blob24 import LEARNT, BlobLayout, as_number, encode
from sparseformats_kernels.cuda.devices import Device
from sparseformats_kernels.cuda.elements import as_dense
from sparseformats_kernels.cusparselt import api as c
from sparseformats_kernels.cusparselt.handles import Handle

if TYPE_CHECKING:
    from sparseformats_kernels.cusparselt.api import Api, Opaque

__all__ = ["PACK", "Blob", "Tile", "direct", "padded", "tile", "unpacked"]

PACK = "SPARSEFORMATS_CUSPARSELT_PACK"
"""Name of the variable in the environment that asks for packing without a dense array."""


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


def direct(
    api: Api,
    handle: Handle,
    device: Device,
    A: SparseMatrix,
    gives: str,
    capability: tuple[int, int] | None,
) -> Blob | None:
    """The blob of a 2:4 matrix without a dense array, where that is asked for and was learnt."""
    if os.environ.get(PACK, "").strip() != "direct" or not isinstance(A, NM) or capability is None:
        return None
    layout = LEARNT.get((as_number(api.version), capability, A.dtype_name))
    if layout is None or (A.n, A.m) != (2, 4) or layout.unfit(A.shape):
        return None
    made = Blob.laid_out(A, layout, gives)
    # Were the library's blob of another size, this would not be its layout.
    size, _ = made.sizes(api, handle.address)
    return made if size == made.array.nbytes else None


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
    adds, bias : str
        Of a matrix that is added to the result, and of a bias.
    computes : int
        Of ``cusparseComputeType``.
    """

    __slots__ = ("adds", "array", "bias", "computes", "dtype", "gives", "k", "m")

    def __init__(
        self, api: Api, handle: Handle, device: Device, dense: Array, dtype: str, gives: str
    ) -> None:
        self._name(tuple(int(size) for size in dense.shape), dtype, gives)
        self.array = self._compress(api, handle.address, device, dense)

    @classmethod
    def laid_out(cls, A: NM, layout: BlobLayout, gives: str) -> Self:
        """The blob of a 2:4 matrix as this library writes it, not cuSPARSELt."""
        made = object.__new__(cls)
        made._name(A.shape, A.dtype_name, gives)
        made.array = encode(layout, A)
        return made

    def giving(self, gives: str, bias: str | None = None) -> Blob:
        """The same bytes, for results of another dtype and biases of one."""
        made = object.__new__(Blob)
        made._name((self.m, self.k), self.dtype, gives)
        made.array, made.bias = self.array, bias or gives
        return made

    def describe(self, api: Api, handle: int) -> Opaque:
        """A descriptor of the matrix; who calls destroys it."""
        struct = api.opaque()
        facts = self.m, self.k, self.k, 16, c.VALUES[self.dtype], c.ORDER_ROW, c.HALF_OF_ALL
        api.call("cusparseLtStructuredDescriptorInit", handle, struct.address, *facts)
        return struct

    def sizes(self, api: Api, handle: int) -> tuple[int, int]:
        """Bytes of the compressed matrix, and of the memory that compressing takes meanwhile."""
        struct = self.describe(api, handle)
        try:
            return _sizes(api, handle, struct)
        finally:
            api.function("cusparseLtMatDescriptorDestroy")(struct.address)

    def _name(self, shape: tuple[int, ...], dtype: str, gives: str) -> None:
        self.m, self.k = shape
        self.dtype, self.gives, self.bias = dtype, gives, gives
        # To results of 8 bits the library adds what has 16.
        self.adds = "float16" if gives == "float8_e4m3fn" else gives
        self.computes = c.COMPUTE_32I if gives == "int32" else c.COMPUTE_32F

    def _compress(self, api: Api, handle: int, device: Device, dense: Array) -> Array:
        lib: ArrayLibrary = device.lib
        struct = self.describe(api, handle)
        try:
            size, extra = _sizes(api, handle, struct)
            found = device.empty((max(1, size),), "uint8")
            buffer = device.empty((max(1, extra),), "uint8")
            places = (lib.address(x) for x in (dense, found, buffer))
            api.call(
                "cusparseLtSpMMACompress2",
                *(handle, struct.address, 1, c.NON_TRANSPOSE, *places, device.stream()),
            )
        finally:
            api.function("cusparseLtMatDescriptorDestroy")(struct.address)
        return found


def _sizes(api: Api, handle: int, struct: Opaque) -> tuple[int, int]:
    size, extra = ctypes.c_size_t(), ctypes.c_size_t()
    where = ctypes.addressof(size), ctypes.addressof(extra)
    api.call("cusparseLtSpMMACompressedSize2", handle, struct.address, *where)
    return size.value, extra.value
