"""cuSPARSE's product of two sparse matrices, on the device from end to end.

The steps are those of "cusparseSpGEMM" in NVIDIA's documentation: estimate, compute, copy. The
pattern of the result is that of the operands, so an element that cancels to zero stays stored.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from sparseformats._arrays import Array
from sparseformats._dtypes import accumulator, index_width
from sparseformats.dispatch.query import Query
from sparseformats.formats import CSR
from sparseformats.formats.canonical import canonical_compressed
from sparseformats_kernels.cuda.devices import Device, device_of
from sparseformats_kernels.cuda.elements import Rows, as_rows
from sparseformats_kernels.cusparse import api as c
from sparseformats_kernels.cusparse.api import Api, Scalar
from sparseformats_kernels.cusparse.finding import the_api
from sparseformats_kernels.cusparse.handles import Owned, handle

__all__ = ["spgemm"]

_SHARE = 0.2  # of the intermediate products that the frugal algorithm holds at a time


def spgemm(A: CSR, B: CSR, query: Query) -> CSR:
    """``A @ B`` in canonical form."""
    lib = A.lib
    gives = query.out_dtype or A.dtype_name
    device = device_of(A.data, lib)
    shape = (A.shape[0], B.shape[1])
    with device.here():
        if A.nnz and B.nnz:
            left, right = (as_rows(each, False, accumulator(gives)) for each in (A, B))
            data, indices, indptr = _multiplied(device, left, right)
            data, indices, indptr = canonical_compressed(lib, data, indices, indptr)
        else:
            data, indices = device.empty((0,), gives), device.empty((0,), "int32")
            indptr = lib.zeros(shape[0] + 1, "int32", device.place)
        wide = "int64" in (lib.dtype_name(A.indices), lib.dtype_name(B.indices))
        name = index_width("int64" if wide else "int32", *shape, int(data.shape[0]))
        indices, indptr = lib.astype(indices, name), lib.astype(indptr, name)
        return CSR.trusted(
            data=lib.astype(data, gives), indices=indices, indptr=indptr, shape=shape
        )


def _multiplied(device: Device, left: Rows, right: Rows) -> tuple[Array, Array, Array]:
    try:
        return _Call(device, left, right, c.SPGEMM_DEFAULT).run()
    except _TooLargeError:
        return _Call(device, left, right, c.SPGEMM_ALG3).run()


class _TooLargeError(RuntimeError):
    """The default algorithm cannot hold all intermediate products."""


class _Call:
    """One product by one algorithm."""

    def __init__(self, device: Device, left: Rows, right: Rows, algorithm: int) -> None:
        self.device, self.lib, self.algorithm = device, device.lib, algorithm
        self.api: Api = the_api()
        self.dtype = self.lib.dtype_name(left.data)
        self.m, self.n = left.shape[0], right.shape[1]
        self.one, self.zero = Scalar(1, self.dtype), Scalar(0, self.dtype)
        self.operands = [self._describe(rows) for rows in (left, right)]
        self.kept: list[Any] = [left, right]
        self.indptr = device.empty((self.m + 1,), "int32")
        pointers = self.lib.address(self.indptr), None, None
        self.result = self._csr((self.m, self.n), 0, pointers)
        self.work = Owned(self.api, "cusparseSpGEMM_createDescr", "cusparseSpGEMM_destroyDescr")
        stream = device.stream()
        if device.capture(stream):
            raise RuntimeError(
                "a product of two sparse matrices cannot be recorded into a graph: its size is "
                "known only when it is computed; compute it before the capture"
            )
        self.handle = handle(self.api, device.index).on(stream)

    def _describe(self, rows: Rows) -> Owned:
        address = self.lib.address
        pointers = address(rows.indptr), address(rows.indices), address(rows.data)
        return self._csr(rows.shape, rows.nnz, pointers)

    def _csr(self, shape: tuple[int, int], nnz: int, pointers: tuple[Any, ...]) -> Owned:
        kinds = c.INDEX_32I, c.INDEX_32I, c.BASE_ZERO, c.VALUES[self.dtype]
        names = "cusparseCreateCsr", "cusparseDestroySpMat"
        return Owned(self.api, *names, *shape, nnz, *pointers, *kinds)

    def _arguments(self) -> tuple[Any, ...]:
        left, right = (each.pointer for each in self.operands)
        flips = c.NON_TRANSPOSE, c.NON_TRANSPOSE
        numbers = self.one.address, left, right, self.zero.address, self.result.pointer
        kinds = c.VALUES[self.dtype], self.algorithm, self.work.pointer
        return self.handle, *flips, *numbers, *kinds

    def _call(self, step: str, *more: Any) -> None:
        name = f"cusparseSpGEMM_{step}"
        status = self.api.function(name)(*self._arguments(), *more)
        if status == c.INSUFFICIENT_RESOURCES and self.algorithm == c.SPGEMM_DEFAULT:
            raise _TooLargeError(name)
        if status:
            raise self.api.failure(name, status)

    def _memory(self, nbytes: int) -> int:
        """Workspace that lives as long as this call; 0 bytes are a null pointer."""
        if not nbytes:
            return 0
        try:
            buffer = self.device.empty((nbytes,), "uint8")
        except (RuntimeError, MemoryError) as error:  # torch's and CuPy's errors for this
            if self.algorithm == c.SPGEMM_DEFAULT:
                raise _TooLargeError(f"{nbytes:,} bytes of workspace") from error
            raise
        self.kept.append(buffer)
        return self.lib.address(buffer)

    def _twice(self, step: str) -> None:
        """Ask for the size of the workspace, then do the step."""
        size = ctypes.c_size_t()
        self._call(step, ctypes.byref(size), None)
        self._call(step, ctypes.byref(size), self._memory(size.value))

    def run(self) -> tuple[Array, Array, Array]:
        """Values, columns and pointers of the result."""
        self._twice("workEstimation")
        if self.algorithm == c.SPGEMM_DEFAULT:
            self._twice("compute")
        else:
            self._compute_in_parts()
        rows, columns, nnz = (ctypes.c_int64() for _ in range(3))
        sizes = (ctypes.byref(size) for size in (rows, columns, nnz))
        self.api.call("cusparseSpMatGetSize", self.result.pointer, *sizes)
        count = nnz.value
        indices = self.device.empty((count,), "int32")
        data = self.device.empty((count,), self.dtype)
        if not count:
            return data, indices, self.lib.zeros(self.m + 1, "int32", self.device.place)
        address: Callable[[Array], int] = self.lib.address
        pointers = address(self.indptr), address(indices), address(data)
        self.api.call("cusparseCsrSetPointers", self.result.pointer, *pointers)
        self._call("copy")
        return data, indices, self.indptr

    def _compute_in_parts(self) -> None:
        """Estimate, which needs memory of its own, then compute some products at a time."""
        third, second = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("estimateMemory", _SHARE, ctypes.byref(third), None, None)
        memory = self._memory(third.value)
        self._call("estimateMemory", _SHARE, ctypes.byref(third), memory, ctypes.byref(second))
        self._call("compute", ctypes.byref(second), self._memory(second.value))
