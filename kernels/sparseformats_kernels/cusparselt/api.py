"""The functions of libcusparseLt that the kernels call, by their C signatures.

Names, values and orders of arguments are those of ``cusparseLt.h`` (0.7.1, 0.8.0 and 0.8.1), of
``cusparse.h`` and of ``library_types.h``; the semantics are in NVIDIA's cuSPARSELt documentation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final, final

from sparseformats_kernels.cusparse.api import STATUSES
from sparseformats_kernels.cusparselt.versions import KNOWN, Layout, Version, written

__all__ = ["SIGNATURES", "VALUES", "Api", "Opaque", "UnknownVersion"]

# cudaDataType_t
VALUES: Final = {
    "float32": 0,
    "float16": 2,
    "int8": 3,
    "int32": 10,
    "bfloat16": 14,
    "float8_e4m3fn": 28,
}

# cusparseOperation_t, cusparseOrder_t, cusparseLtSparsity_t
NON_TRANSPOSE, TRANSPOSE = 0, 1
ORDER_COL, ORDER_ROW = 1, 2
HALF_OF_ALL = 0  # CUSPARSELT_SPARSITY_50_PERCENT

# cusparseComputeType: of 0.7 and later; 1 is CUSPARSE_COMPUTE_16F
COMPUTE_32I, COMPUTE_32F = 0, 2

# cusparseLtMatDescAttribute_t
NUM_BATCHES, BATCH_STRIDE = 0, 1

# cusparseLtMatmulDescAttribute_t
ACTIVATION_RELU, ALPHA_VECTOR, BIAS_POINTER = 0, 5, 8

# cusparseLtMatmulAlg_t, cusparseLtMatmulAlgAttribute_t, cusparseLtSplitKMode_t
ALG_DEFAULT = 0
CONFIG_ID, CONFIG_MAX_ID, SPLIT_K, SPLIT_K_MODE = 0, 1, 3, 4
ONE_KERNEL, TWO_KERNELS = 1, 2

_C = {
    "p": ctypes.c_void_p,  # structs, numbers on the host, addresses on the device
    "i": ctypes.c_int,  # enumerations
    "u": ctypes.c_uint32,
    "q": ctypes.c_int64,
    "z": ctypes.c_size_t,
}
_ATTRIBUTE = "ppipz"  # handle, struct, attribute, data, bytes

SIGNATURES: Final = {
    "cusparseLtInit": "p",
    "cusparseLtDestroy": "p",
    "cusparseLtDenseDescriptorInit": "ppqqquii",
    "cusparseLtStructuredDescriptorInit": "ppqqquiii",
    "cusparseLtMatDescriptorDestroy": "p",
    "cusparseLtMatDescSetAttribute": _ATTRIBUTE,
    "cusparseLtMatmulDescriptorInit": "ppiippppi",
    "cusparseLtMatmulDescSetAttribute": _ATTRIBUTE,
    "cusparseLtMatmulAlgSelectionInit": "pppi",
    "cusparseLtMatmulAlgSetAttribute": _ATTRIBUTE,
    "cusparseLtMatmulAlgGetAttribute": _ATTRIBUTE,
    "cusparseLtMatmulGetWorkspace": "ppp",
    "cusparseLtMatmulPlanInit": "pppp",
    "cusparseLtMatmulPlanDestroy": "p",
    # handle, plan, alpha, A, B, beta, C, D, workspace, streams, how many streams
    "cusparseLtMatmul": "p" * 10 + "i",
    "cusparseLtSpMMACompressedSize2": "pppp",
    # handle, sparse matrix, whether it is A, operation, dense, compressed, buffer, stream
    "cusparseLtSpMMACompress2": "ppiipppp",
}
_FREES_SELECTION = "cusparseLtMatmulAlgSelectionDestroy"


class UnknownVersion(RuntimeError):
    """The library is of a version whose structs are not known; `version` is which."""

    def __init__(self, path: str, version: Version) -> None:
        super().__init__(f"cuSPARSELt {written(version)} from {path} is not a version known here")
        self.version = version


@final
class Opaque:
    """Memory of one of the library's structs. It must not move: the library keeps addresses of it.

    Attributes
    ----------
    address : int
    """

    __slots__ = ("_memory", "address")

    def __init__(self, layout: Layout) -> None:
        self._memory = ctypes.create_string_buffer(layout.size + layout.alignment)
        start = ctypes.addressof(self._memory)
        self.address = -(-start // layout.alignment) * layout.alignment


@final
class Api:
    """A loaded libcusparseLt.

    Parameters
    ----------
    path : str
        Or a name that the linker knows.

    Raises
    ------
    OSError, AttributeError
        It cannot be loaded, or lacks a function.
    UnknownVersion

    Attributes
    ----------
    version : (int, int, int)
    layout : Layout
    """

    __slots__ = ("_functions", "_library", "layout", "path", "version")

    def __init__(self, path: str) -> None:
        self.path = path
        self._library: Any = ctypes.CDLL(path)
        first, second, third = (self._property(kind) for kind in range(3))
        self.version: Version = (first, second, third)
        layout = KNOWN.get(self.version[:2])
        if layout is None:
            raise UnknownVersion(path, self.version)
        self.layout = layout
        self._functions: dict[str, Callable[..., int]] = {}
        signatures = SIGNATURES | ({_FREES_SELECTION: "p"} if layout.frees_selections else {})
        for name, codes in signatures.items():
            function = getattr(self._library, name)
            function.restype = ctypes.c_int
            function.argtypes = [_C[code] for code in codes]
            self._functions[name] = function

    def _property(self, kind: int) -> int:
        """A part of the version; the library needs no device to tell."""
        value, function = ctypes.c_int(), self._library.cusparseLtGetProperty
        function.restype, function.argtypes = ctypes.c_int, [ctypes.c_int, ctypes.c_void_p]
        status = function(kind, ctypes.byref(value))
        if status:
            raise self.failure("cusparseLtGetProperty", status)
        return value.value

    def opaque(self) -> Opaque:
        """Memory for one of the library's structs."""
        return Opaque(self.layout)

    def function(self, name: str) -> Callable[..., int]:
        """A function itself, whose status the caller checks."""
        return self._functions[name]

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

    def set(self, name: str, handle: int, struct: int, attribute: int, value: Any) -> None:
        """Set an attribute of a struct to a number of C."""
        where = ctypes.addressof(value)
        self.call(name, handle, struct, attribute, where, ctypes.sizeof(value))

    def failure(self, name: str, status: int) -> RuntimeError:
        """What to raise for a status other than success."""
        version = written(self.version) if hasattr(self, "version") else "?"
        status_name = STATUSES.get(status, "UNKNOWN")
        return RuntimeError(
            f"{name} of cuSPARSELt {version} failed: CUSPARSE_STATUS_{status_name} ({status})"
        )
