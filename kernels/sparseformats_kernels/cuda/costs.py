"""What an H200 needs in microseconds, for the order of the kernels on CUDA devices.

A product takes the longest of its parts: reading and writing each byte once, multiplying, and,
for elements without blocks, gathering rows of the operand out of the L2 cache. The constants are
rounded measurements; they order kernels and do not predict a machine. Measured tables win.
"""

from __future__ import annotations

from sparseformats._dtypes import itemsize, kind
from sparseformats.dispatch.record import Query

__all__ = ["BANDWIDTH", "LAUNCH", "block_gemm", "columns", "dense", "gather", "moving"]
__all__ += ["rearranging", "slots", "width"]

BANDWIDTH = 4.3e6  # bytes a microsecond, of the device's memory
LAUNCH = 6.0  # microseconds of a call that does nothing
# Of torch's own product, however small: 8 in the replay of a graph, 28 from call to call.
_CALL, _START = 15.0, 2.5
_CHUNK = 256 << 20  # bytes that a sampled product gathers at a time
_STEPS = 40.0  # microseconds of the calls for one chunk

# Multiplications and additions a microsecond of cuBLAS at large sizes.
_RATES = {
    "float16": 7e8,
    "bfloat16": 7e8,
    "float32": 4.7e7,
    "float64": 5e7,
    "complex64": 4.7e7,
    "complex128": 5e7,
}


def columns(query: Query) -> int:
    """Columns of the operand, of all batches together."""
    return max(1, query.n * query.batch)


def slots(query: Query) -> float:
    """Elements that meet each column of the operand, from shapes alone."""
    if query.nnz is not None:
        return query.nnz
    if query.nbytes is None or query.a_dtype is None:
        return float(query.m) * query.k
    return query.nbytes / (itemsize(query.a_dtype) + (query.format == "n:m"))


def width(query: Query) -> int:
    """Bytes of one number of the result."""
    return itemsize(query.out_dtype or "float32")


def moving(nbytes: float) -> float:
    """Time to read or write bytes of the device's memory."""
    return nbytes / BANDWIDTH


def rearranging(query: Query) -> float:
    """Time to copy operands that a library cannot read or write where they lie."""
    strided = (query.x_layout == "strided") * query.k + (query.out_layout == "strided") * query.m
    cast = query.k if query.x_dtype != query.out_dtype else 0
    return moving(2.0 * (strided + cast) * columns(query) * width(query))


def dense(query: Query) -> float:
    """A GEMM of the whole shape."""
    m, k, n = query.m, query.k, columns(query)
    name = query.out_dtype or "float32"
    work = 2.0 * m * k * n * (4 if kind(name) == "c" else 1)
    nbytes = (float(m) * k + float(k) * n + float(m) * n) * width(query)
    device = _START + max(moving(nbytes), work / _RATES.get(name, 4.7e7))
    return max(_CALL, device) + rearranging(query)


def _sampled(query: Query, gathered: float) -> float:
    """Chunks of gathered bytes, one after the other."""
    return 100 + (1 + gathered // _CHUNK) * _STEPS + 3 * moving(gathered)


def gather(query: Query) -> float:
    """Two gathered rows and a dot product an element."""
    return _sampled(query, slots(query) * query.n * max(4, width(query)))


def block_gemm(query: Query) -> float:
    """Two gathered panels and a GEMM a block."""
    r, c = query.blocksize or (1, 1)
    return _sampled(query, slots(query) / (r * c) * (r + c) * query.n * max(4, width(query)))
