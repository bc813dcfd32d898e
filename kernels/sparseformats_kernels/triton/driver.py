"""What we call of the CUDA driver: launches and the descriptors of the copy engine.

A launch through Triton's own front door binds and checks its arguments on every call. A plan has
done that once, so it calls the driver itself, with the parameters of the compiled kernel laid out
in memory: what changes from call to call is a pointer or two.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

__all__ = ["INVALID_CONTEXT", "LaunchConfig", "check", "encode_tiled", "enter_context", "library"]

INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT: this thread has not used the device yet

# CUtensorMapDataType by name of the dtype, from the driver API's reference.
_TYPES = {"float16": 6, "float32": 7, "bfloat16": 9}
_NO_INTERLEAVE, _PROMOTE_128B, _FILL_ZERO = 0, 2, 0


class LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig`` of the driver API."""

    _fields_ = (
        *((f"grid{axis}", ctypes.c_uint) for axis in "XYZ"),
        *((f"block{axis}", ctypes.c_uint) for axis in "XYZ"),
        ("sharedMemBytes", ctypes.c_uint),
        ("hStream", ctypes.c_void_p),
        ("attrs", ctypes.c_void_p),
        ("numAttrs", ctypes.c_uint),
    )


@lru_cache(maxsize=1)
def library() -> Any:
    """The driver's library.

    Raises
    ------
    OSError
        There is none.
    """
    return ctypes.CDLL("libcuda.so.1")


def check(status: int, call: str) -> None:
    """Raise what the driver says about a failed call.

    Raises
    ------
    RuntimeError
    """
    if status:
        text = ctypes.c_char_p()
        library().cuGetErrorString(status, ctypes.byref(text))
        said = text.value.decode() if text.value else "unknown error"
        raise RuntimeError(f"{call} failed: {said} ({status})")


def enter_context(device: int) -> None:
    """Make the device's primary context current in this thread."""
    cuda, place, context = library(), ctypes.c_int(), ctypes.c_void_p()
    check(cuda.cuDeviceGet(ctypes.byref(place), device), "cuDeviceGet")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), place), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")


def encode_tiled(
    where: int,
    dtype: str,
    address: int,
    shape: Sequence[int],
    row_bytes: int,
    box: Sequence[int],
    swizzle: int,
) -> None:
    """Write the descriptor of a matrix whose rows are contiguous; what lies outside reads as zero.

    Parameters
    ----------
    where : int
        Address of 128 bytes on a multiple of 64.
    dtype : str
    address : int
        Of the matrix, a multiple of 16.
    shape : (int, int)
        Rows and columns.
    row_bytes : int
        From row to row, a multiple of 16.
    box : (int, int)
        Rows and columns of one copy.
    swizzle : int
        ``CUtensorMapSwizzle``.

    Raises
    ------
    RuntimeError
    """
    sizes = (ctypes.c_uint64 * 2)(shape[1], shape[0])
    steps = (ctypes.c_uint64 * 1)(row_bytes)
    boxes = (ctypes.c_uint32 * 2)(box[1], box[0])
    ones = (ctypes.c_uint32 * 2)(1, 1)
    status = library().cuTensorMapEncodeTiled(
        *(ctypes.c_void_p(where), _TYPES[dtype], 2, ctypes.c_void_p(address)),
        *(sizes, steps, boxes, ones, _NO_INTERLEAVE, swizzle, _PROMOTE_128B, _FILL_ZERO),
    )
    check(status, "cuTensorMapEncodeTiled")
