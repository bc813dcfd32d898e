"""How fast a product could be: arithmetic, bytes of device memory, bytes of the second-level cache.

The roofline is the larger of two times that no kernel can beat: the stored blocks' operations at
the measured rate of the unit that does them, and each byte moved once at the measured bandwidth.
The cache model is apart: it counts what a simple kernel brings into the multiprocessors, where
every dense element is used for one block row only; kernels that share tiles beat it.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CEILINGS", "TILE", "Work", "l2_model_us", "roofline_us", "work_of"]

CEILINGS = {
    "bfloat16": 790e12,  # operations a second: cuBLAS 8192^3 on normal values
    "float16": 790e12,
    "int8": 1979e12,  # by the data sheet, not measured
    "float8_e4m3fn": 1979e12,  # likewise
    "float32": 51e12,
    "tf32": 362e12,
    "memory": 4.3e12,  # bytes a second: device copy, read and written bytes
    "l2": 6.95e12,  # bytes a second: reads
}
"""Measured on an H200; `benchmarks.run --ceilings` measures them again."""

TILE = 256  # columns of the result that a block of threads computes, in the cache model
ITEM = {"float16": 2, "bfloat16": 2, "float32": 4, "int8": 1, "float8_e4m3fn": 1}
GIVES = {"int8": 4}  # bytes of a result, where it has another type
INDEX = 4


class Work(NamedTuple):
    """What a product has to do.

    Attributes
    ----------
    operations : float
        Two for each stored element and column.
    moved : float
        Bytes, each once: values, indices, the operand's rows that are met, the result.
    cached : float
        Bytes into the multiprocessors by the cache model.
    """

    operations: float
    moved: float
    cached: float


def work_of(
    *,
    shape: tuple[int, int, int],
    block: tuple[int, int],
    blocks: int,
    used_columns: int,
    dtype: str,
    index: float | None = None,
    gives: str | None = None,
) -> Work:
    """Count the work of a product.

    Parameters
    ----------
    shape : (m, k, n)
    blocks : int
        Stored blocks.
    used_columns : int
        Block columns that hold any: only those rows of the operand are read.
    index : float, optional
        Bytes of the index of a block, without pointers to rows; by default those of int32 with.
    gives : str, optional
        Dtype of the result, where it is not that of the product.
    """
    (m, k, n), (r, c), item = shape, block, ITEM[dtype]
    values = blocks * r * c * item
    where = INDEX * (blocks + -(-m // r) + 1) if index is None else index * blocks
    met = min(k, used_columns * c) * n * item
    tiles = -(-n // TILE)
    cached = blocks * c * n * item + values * tiles
    result = m * n * (ITEM[gives] if gives else GIVES.get(dtype, item))
    return Work(2.0 * blocks * r * c * n, values + where + met + result, float(cached))


def roofline_us(work: Work, dtype: str) -> float:
    """The larger of the time of the arithmetic and of the bytes, in microseconds."""
    return max(work.operations / CEILINGS[dtype], work.moved / CEILINGS["memory"]) * 1e6


def l2_model_us(work: Work) -> float:
    """Time of the cache model, in microseconds."""
    return work.cached / CEILINGS["l2"] * 1e6
