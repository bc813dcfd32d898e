"""The functions of libcusparse that the kernels call, by their C signatures.

Names, values and orders of arguments are those of ``cusparse.h`` (12.6) and of ``library_types.h``
for `VALUES`; the semantics are in NVIDIA's cuSPARSE documentation, "cuSPARSE Generic APIs".
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final, final

__all__ = ["SIGNATURES", "VALUES", "Api", "Scalar", "scalar_type"]

# cudaDataType_t
VALUES: Final = {
    "float32": 0,
    "float64": 1,
    "float16": 2,
    "int8": 3,
    "complex64": 4,
    "complex128": 5,
    "int32": 10,
    "bfloat16": 14,
}

# cusparseOperation_t, cusparseOrder_t, cusparseIndexType_t, cusparseIndexBase_t
NON_TRANSPOSE, TRANSPOSE = 0, 1
ORDER_COL, ORDER_ROW = 1, 2
INDEX_32I = 2
BASE_ZERO = 0
POINTER_MODE_HOST = 0

# cusparseSpMVAlg_t, cusparseSpMMAlg_t, cusparseSpGEMMAlg_t
SPMV_CSR_ALG2 = 3
SPMM_CSR_ALG1, SPMM_CSR_ALG2, SPMM_CSR_ALG3 = 4, 6, 12
SPMM_BLOCKED_ELL_ALG1, SPMM_BSR_ALG1 = 13, 14
SPGEMM_DEFAULT, SPGEMM_ALG3 = 0, 5

# cusparseStatus_t
INSUFFICIENT_RESOURCES = 11
STATUSES: Final = {
    1: "NOT_INITIALIZED",
    2: "ALLOC_FAILED",
    3: "INVALID_VALUE",
    4: "ARCH_MISMATCH",
    5: "MAPPING_ERROR",
    6: "EXECUTION_FAILED",
    7: "INTERNAL_ERROR",
    8: "MATRIX_TYPE_NOT_SUPPORTED",
    9: "ZERO_PIVOT",
    10: "NOT_SUPPORTED",
    INSUFFICIENT_RESOURCES: "INSUFFICIENT_RESOURCES",
}

_C = {
    "p": ctypes.c_void_p,  # handles, descriptors, addresses on the device, results by address
    "i": ctypes.c_int,  # enumerations
    "q": ctypes.c_int64,
    "f": ctypes.c_float,
}
_SPMM = "piippppp" + "ii"  # handle, opA, opB, alpha, A, B, beta, C, compute type, algorithm
_SPMV = "pipppppii"  # handle, opA, alpha, A, x, beta, y, compute type, algorithm
_SPGEMM = "piippppp" + "iip"  # as _SPMM, then the descriptor of the product

SIGNATURES: Final = {
    "cusparseGetProperty": "ip",
    "cusparseCreate": "p",
    "cusparseDestroy": "p",
    "cusparseSetStream": "pp",
    "cusparseSetPointerMode": "pi",
    "cusparseCreateCsr": "pqqqpppiiii",
    "cusparseCreateBsr": "pqqqqqpppiiiii",
    "cusparseCreateBlockedEll": "pqqqqppiii",
    "cusparseDestroySpMat": "p",
    "cusparseSpMatGetSize": "pppp",
    "cusparseCsrSetPointers": "pppp",
    "cusparseCreateDnMat": "pqqqpii",
    "cusparseDnMatSetValues": "pp",
    "cusparseDestroyDnMat": "p",
    "cusparseCreateDnVec": "pqpi",
    "cusparseDnVecSetValues": "pp",
    "cusparseDestroyDnVec": "p",
    "cusparseSpMM_bufferSize": _SPMM + "p",
    "cusparseSpMM_preprocess": _SPMM + "p",
    "cusparseSpMM": _SPMM + "p",
    "cusparseSpMV_bufferSize": _SPMV + "p",
    "cusparseSpMV_preprocess": _SPMV + "p",
    "cusparseSpMV": _SPMV + "p",
    "cusparseSpGEMM_createDescr": "p",
    "cusparseSpGEMM_destroyDescr": "p",
    "cusparseSpGEMM_workEstimation": _SPGEMM + "pp",
    "cusparseSpGEMM_estimateMemory": _SPGEMM + "fppp",
    "cusparseSpGEMM_compute": _SPGEMM + "pp",
    "cusparseSpGEMM_copy": _SPGEMM,
}


@final
class Api:
    """A loaded libcusparse.

    Parameters
    ----------
    path : str
        Or a name that the linker knows.

    Raises
    ------
    OSError, AttributeError
        It cannot be loaded, or lacks a function.

    Attributes
    ----------
    version : (int, int, int)
    """

    __slots__ = ("_functions", "_library", "path", "version")

    def __init__(self, path: str) -> None:
        self.path = path
        self._library: Any = ctypes.CDLL(path)
        self._functions: dict[str, Callable[..., int]] = {}
        for name, codes in SIGNATURES.items():
            function = getattr(self._library, name)
            function.restype = ctypes.c_int
            function.argtypes = [_C[code] for code in codes]
            self._functions[name] = function
        self._library.cusparseGetErrorString.restype = ctypes.c_char_p
        self._library.cusparseGetErrorString.argtypes = [ctypes.c_int]
        self.version = tuple(self._property(kind) for kind in range(3))

    def _property(self, kind: int) -> int:
        value = ctypes.c_int()
        self.call("cusparseGetProperty", kind, ctypes.byref(value))
        return value.value

    def function(self, name: str) -> Callable[..., int]:
        """A function itself, whose status the caller checks."""
        return self._functions[name]

    def converted(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        """Arguments as C has them, made once for calls that repeat them."""
        return tuple(_C[code](x) for code, x in zip(SIGNATURES[name], arguments, strict=True))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises
        ------
        RuntimeError
            Any other status than success.
        """
        status = self._functions[name](*arguments)
        if status:
            raise self.failure(name, status)

    def failure(self, name: str, status: int) -> RuntimeError:
        """What to raise for a status other than success."""
        text = self._library.cusparseGetErrorString(status) or b""
        version = ".".join(map(str, self.version)) if hasattr(self, "version") else "?"
        return RuntimeError(
            f"{name} of cuSPARSE {version} failed: CUSPARSE_STATUS_"
            f"{STATUSES.get(status, 'UNKNOWN')} ({status}), {text.decode(errors='replace')}"
        )

    def made(self, name: str, *arguments: Any) -> int:
        """What a ``cusparseCreate…`` writes to its first argument."""
        pointer = ctypes.c_void_p()
        self.call(name, ctypes.byref(pointer), *arguments)
        if not pointer.value:
            raise RuntimeError(f"{name} of cuSPARSE gave a null pointer")
        return pointer.value


_SCALARS: Final[dict[str, tuple[Any, int]]] = {
    "float32": (ctypes.c_float, 1),
    "float64": (ctypes.c_double, 1),
    "complex64": (ctypes.c_float, 2),
    "complex128": (ctypes.c_double, 2),
    "int32": (ctypes.c_int32, 1),
}


def scalar_type(compute: str) -> Any:
    """The C type of alpha and beta for a type of computation."""
    kind, count = _SCALARS[compute]
    return kind * count


@final
class Scalar:
    """A number in the host's memory, where the library reads it when it is called."""

    __slots__ = ("_memory", "address")

    def __init__(self, value: Any, compute: str) -> None:
        parts = (value.real, value.imag) if compute.startswith("complex") else (value,)
        kind, _ = _SCALARS[compute]
        self._memory = scalar_type(compute)(*(kind(part).value for part in parts))
        self.address = ctypes.addressof(self._memory)
