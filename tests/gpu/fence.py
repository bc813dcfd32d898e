"""Device memory that ends where nothing is mapped: a read or write beyond it cannot go unnoticed.

Run as ``python -m tests.gpu.fence``: every block kernel multiplies operands that lie flush against
the end, and then against the beginning, of mapped memory. An access beyond is an error of the
driver that no process survives, so this is a process of its own; exit status 0 says that there was
none. ``--planted BUG`` runs a kernel of `tests.kernels.triton.planted` instead.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from typing import Any

import numpy as np

PINNED, ON_DEVICE, READ_WRITE = 1, 1, 3  # of CUmemAllocationType, CUmemLocationType, CUmemAccess


class Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


def _call(name: str, *args: Any) -> None:
    status = getattr(ctypes.CDLL("libcuda.so.1"), name)(*args)
    if status:
        raise RuntimeError(f"{name} failed with status {status}")


class _Interface:
    """What torch and CuPy take as an array."""

    def __init__(self, address: int, shape: tuple[int, ...], typestr: str) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (address, False),
            "version": 3,
        }


class Fence:
    """Memory of one array, with unmapped addresses directly behind it, or directly before."""

    def __init__(self, nbytes: int, device: int) -> None:
        place = Location(ON_DEVICE, device)
        properties = Properties(PINNED, 0, place)
        unit = ctypes.c_size_t()
        _call("cuMemGetAllocationGranularity", ctypes.byref(unit), ctypes.byref(properties), 0)
        size = -(-max(nbytes, 1) // unit.value) * unit.value
        reserved, zero = ctypes.c_uint64(), ctypes.c_size_t(0)
        whole = ctypes.c_size_t(size + 2 * unit.value)  # nothing is mapped at either end
        _call(
            "cuMemAddressReserve",
            ctypes.byref(reserved),
            whole,
            zero,
            ctypes.c_uint64(0),
            ctypes.c_ulonglong(0),
        )
        handle = ctypes.c_ulonglong()
        _call(
            "cuMemCreate",
            ctypes.byref(handle),
            ctypes.c_size_t(size),
            ctypes.byref(properties),
            ctypes.c_ulonglong(0),
        )
        self.start = reserved.value + unit.value
        self.end = self.start + size
        start = ctypes.c_uint64(self.start)
        _call("cuMemMap", start, ctypes.c_size_t(size), zero, handle, ctypes.c_ulonglong(0))
        access = Access(place, READ_WRITE)
        _call(
            "cuMemSetAccess", start, ctypes.c_size_t(size), ctypes.byref(access), ctypes.c_size_t(1)
        )


def fenced(x: Any, *, at_the_end: bool) -> Any:
    """A copy of a torch tensor on a CUDA device in memory of its own, flush with one end of it.

    The copy keeps the strides of rows and columns; it is never freed.
    """
    import torch

    order = sorted(range(x.ndim), key=lambda axis: -x.stride(axis))
    dense = x.permute(order).contiguous()
    nbytes = dense.numel() * dense.element_size()
    fence = Fence(nbytes, x.device.index or 0)
    address = fence.end - nbytes if at_the_end else fence.start
    memory = torch.as_tensor(_Interface(address, (nbytes,), "|u1"), device=x.device)
    made = memory.view(dense.dtype).view(dense.shape)
    made.copy_(dense)
    return made.permute([int(axis) for axis in np.argsort(order)])


def fenced_matrix(A: Any, *, at_the_end: bool) -> Any:
    """The matrix with every buffer behind a fence."""
    if A.format.endswith(".T"):
        return fenced_matrix(A.T, at_the_end=at_the_end).T
    buffers = {k: fenced(x, at_the_end=at_the_end) for k, x in A.buffers().items()}
    return type(A).from_parts(buffers, A.static())


def run(kernel: str, device: str) -> tuple[int, int]:
    """Products of many shapes by one kernel; counts of those served and refused."""
    import torch

    from tests.kernels.triton.matrices import FORMATS, dense, matrix
    from tests.kernels.triton.ordeal import Subject

    subject = Subject(kernel, device)
    for at_the_end in (True, False):
        for number, block in enumerate([(64, 64), (16, 16), (32, 32), (24, 24), (3, 5)]):
            for turn, n in enumerate((33, 64)):
                format = FORMATS[(number + turn) % 4]
                dtype = ("float16", "float32")[turn]
                A = matrix(format, (130, 170), block, dtype, device=device)
                x = dense((A.shape[1], n), dtype, device=device)
                x = x.T.contiguous().T if number % 2 else x
                out = torch.empty((A.shape[0], n), dtype=x.dtype, device=device)
                M, X, Y = (
                    fenced_matrix(A, at_the_end=at_the_end),
                    *(fenced(t, at_the_end=at_the_end) for t in (x, out)),
                )
                if subject.matmul(M, X, out=Y, assume_finite=True) is not None:
                    torch.cuda.synchronize(device)
                    expected = (A.to_dense().double() @ x.double()).to(Y.dtype)
                    torch.testing.assert_close(Y, expected, rtol=2e-2, atol=2e-2)
    return subject.served, sum(subject.refused.values())


def main() -> int:
    """Run all kernels, or a planted one, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--planted", default=None, help="a bug of tests.kernels.triton.planted")
    options = parser.parse_args()
    import torch

    from sparseformats import dispatch
    from tests.gpu.kernels import block_kernels
    from tests.kernels.triton import planted

    torch.empty(1, device=options.device)  # makes the device's context current
    names = block_kernels(options.device)
    record = planted.record(options.planted or "", device="cuda")
    names = [record.name] if options.planted is not None else [record.name, *names]
    with dispatch.temporary(record):
        for name in names:
            served, refused = run(name, options.device)
            print(f"{name}: {served} served, {refused} reasons to refuse", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
