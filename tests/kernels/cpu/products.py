"""Matrices of every format, made by their own constructors, and the cases of a kernel's record."""

from __future__ import annotations

from typing import Any

import numpy as np

import sparseformats as sf
from sparseformats import _arrays, _dtypes
from sparseformats.dispatch import ANY, KernelRecord, records
from sparseformats.dispatch.checks import Check

KERNELS = {record.name: record for record in records("matmul")}
LIBRARIES = ("numpy", "torch")
FORMATS = ("coo", "csr", "csc", "bsr", "bsr.T", "blocked_ell", "blocked_ell.T", "n:m", "n:m.T")


def allows(record: KernelRecord, fact: str, value: str) -> bool:
    """Whether the record's declared checks leave a fact open or allow the value."""
    declared = (check for check in record.checks if isinstance(check, Check))
    return all(value in check.allowed for check in declared if check.fact == fact)


def takes_format(record: KernelRecord, format: str) -> bool:
    return record.formats == ANY or format in record.formats


CASES = [
    (record.name, library, format)
    for record in KERNELS.values()
    for library in LIBRARIES
    for format in FORMATS
    if allows(record, "library", library) and allows(record, "device", "cpu")
    if takes_format(record, format)
]


def values(rng: np.random.Generator, dtype: str, shape: Any) -> Any:
    host = _arrays.library("numpy").dtype(dtype)
    kind = _dtypes.kind(dtype)
    if kind == "b":
        return rng.random(shape) < 0.5
    if kind in "iu":
        return rng.integers(0 if kind == "u" else -100, 100, shape).astype(host)
    made = rng.standard_normal(shape)
    if kind == "c":
        made = made + 1j * rng.standard_normal(shape)
    return made.astype(host)


def array(library: str, x: Any) -> Any:
    return _arrays.library(library).from_numpy(np.ascontiguousarray(x))


def matrix(
    format: str,
    shape: tuple[int, int],
    library: str = "numpy",
    dtype: str = "float32",
    *,
    index: str = "int64",
    block: tuple[int, int] = (3, 2),
    seed: int = 0,
) -> Any:
    """A random matrix; blocks are (3, 2), or (3, 3) in Blocked-ELL, groups 2:5."""
    rng = np.random.default_rng(seed)
    family, _, transposed = format.partition(".")
    if transposed:
        options = {"index": index, "block": block, "seed": seed}
        return matrix(family, shape[::-1], library, dtype, **options).T  # type: ignore[arg-type]
    make = {"bsr": bsr, "blocked_ell": blocked_ell, "n:m": nm}.get(family)
    if make is not None:
        return make(rng, shape, library, dtype, index, block)
    mask = rng.random(shape) < 0.4
    row, col = np.nonzero(mask if family != "csc" else mask.T)
    data, rows, cols = (array(library, x) for x in (values(rng, dtype, row.size), row, col))
    if family == "coo":
        return sf.COO(data, rows, cols, shape, index_dtype=index)
    starts = array(library, pointers(row, shape[family == "csc"]))
    cls = sf.CSR if family == "csr" else sf.CSC
    return cls(data, cols, starts, shape, index_dtype=index)


def pointers(row: Any, rows: int) -> Any:
    return np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))]).astype(np.int64)


def nm(rng: Any, shape: Any, library: str, dtype: str, index: str, block: Any) -> sf.NM:
    m, k = shape
    count = -(-k // 5)
    picked = np.argsort(rng.random((m, count, 5)), axis=2)[:, :, :2]
    picked = np.sort(picked, axis=2).astype(np.uint8)
    data = values(rng, dtype, picked.shape)
    data[picked + 5 * np.arange(count)[:, None] >= k] = 0
    return sf.NM(array(library, data), array(library, picked), shape, 2, 5)


def blocks(rng: Any, shape: Any, dtype: str, r: int, c: int) -> Any:
    """Row, column and values of random blocks; one block row has none."""
    (m, k), rows, cols = shape, -(-shape[0] // r), -(-shape[1] // c)
    mask = rng.random((rows, cols)) < 0.5
    if rows > 1:
        mask[rows // 2] = False
    row, col = np.nonzero(mask)
    data = values(rng, dtype, (row.size, r, c))
    data[rng.random(data.shape) < 0.3] = 0
    data[(row[:, None] * r + np.arange(r) >= m)] = 0
    np.swapaxes(data, 1, 2)[(col[:, None] * c + np.arange(c) >= k)] = 0
    return row, col, data


def bsr(rng: Any, shape: Any, library: str, dtype: str, index: str, block: Any) -> sf.BSR:
    row, col, data = blocks(rng, shape, dtype, *block)
    starts = pointers(row, -(-shape[0] // block[0]))
    parts = (array(library, x) for x in (data, col, starts))
    return sf.BSR(*parts, shape, index_dtype=index)


def blocked_ell(
    rng: Any, shape: Any, library: str, dtype: str, index: str, block: Any
) -> sf.BlockedELL:
    b = block[0]
    row, col, data = blocks(rng, shape, dtype, b, b)
    rows = -(-shape[0] // b)
    starts = pointers(row, rows)
    width = int(np.diff(starts).max(initial=0)) + 1
    columns = np.full((rows, width), -1)
    slots = np.zeros((rows, width, b, b), data.dtype)
    place = np.arange(row.size) - starts[row]
    columns[row, place], slots[row, place] = col, data
    return sf.BlockedELL(array(library, slots), array(library, columns), shape, index_dtype=index)


def needs_finite(kernel: str) -> bool:
    """Whether a kernel serves floating operands only under a promise that they are finite."""
    declared = (check for check in KERNELS[kernel].checks if isinstance(check, Check))
    return any(check.code == "needs-finite-operand" for check in declared)


def multiply(kernel: str, A: Any, X: Any, **options: Any) -> Any:
    """The product, and proof that the kernel asked for made it."""
    options.setdefault("assume_finite", needs_finite(kernel))
    with sf.tracing() as trace:
        y = sf.matmul(A, X, kernel=kernel, **options)
    assert trace.kernels == [kernel]
    return y
