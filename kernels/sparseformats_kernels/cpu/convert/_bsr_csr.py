"""BSR to CSR for NumPy arrays: what is stored, without the fill, row by row.

How a run of block rows is converted depends on the share of its slots that is stored:

- *full*: SciPy's ``bsr_tocsr`` writes the result itself.
- *dense*: expand the run in the cache, and take what is stored.
- *sparse*: never look at empty slots one by one. The mask of stored slots is read as words of up
  to 8 slots; those with a stored slot are sorted by row and taken apart. The result is kept until
  its size is known, so that a large matrix of mostly fill is read from memory only once.

A matrix that is *nearly full*, by a sample, is not counted first: SciPy drops what little fill
there is in place, one seldom mispredicted branch a slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import _sparsetools as sparsetools

from sparseformats._dtypes import index_width
from sparseformats_kernels.cpu.convert._bits import (
    CHUNK,
    Array,
    as_bits,
    nonzero,
    ranges,
    to_width,
)
from sparseformats_kernels.cpu.convert._scratch import scratch

__all__ = ["bsr_to_csr"]

# Measured on float32 8192 x 8192, blocks (2, 2) to (64, 64), random and block-structured, by CPU
# time, best of 9: the share of stored slots up to which *sparse* wins, by slots a word, and from
# which *nearly full* wins; slots handled together (2**16 lost 10 to 40 %, 2**19 won nothing).
SPARSE_SHARE = {8: 0.18, 4: 0.12, 2: 0.03, 1: 0.01}
NEARLY_FULL = 0.75
SAMPLES, SAMPLE = 8, 1024  # runs of a sample, and slots of each
SMALL = 1 << 14  # so few slots that the number of calls decides: *dense* has the fewest
SLOTS = 4 * CHUNK
SEARCH = 32  # slots that can be counted in the time of one search

Mask: TypeAlias = NDArray[np.bool_]
Part: TypeAlias = tuple[Array, Array, Array]  # values, columns, pointers of the rows of a run


@dataclass(frozen=True, slots=True)
class _Run:
    """Block rows that are handled together; positions and pointers count from its start."""

    data: Array  # (blocks, R, C)
    columns: Array  # (blocks,) block columns
    pointers: Array  # (brows + 1,)
    bcols: int
    row: int  # the first scalar row
    stored: Array | None  # mask, where it differs from what is not zero
    count: int = 0


def bsr_to_csr(
    data: Array,
    indices: Array,
    indptr: Array,
    shape: tuple[int, int],
    zeros: Array | str | None = None,
) -> Part:
    """Convert canonical BSR to canonical CSR.

    Parameters
    ----------
    data, indices, indptr : arrays
    shape : (m, n)
    zeros : None, "all" or int64 array
        Which zeros are stored: none, every slot inside the shape, or the flat positions listed.

    Returns
    -------
    data, indices, indptr : arrays
        Of the stored elements only.
    """
    m, n = shape
    share = SPARSE_SHARE[_word(data.shape[2])] if data.size > SMALL else -1.0
    if zeros is None and data.size > SLOTS and _is_nearly_full(data, indices, n):
        return _convert_nearly_full(data, indices, indptr, shape)
    runs: list[_Run] = []
    parts: dict[int, Part] = {}
    for run in _runs(data, indices, indptr, shape, zeros):
        mask = run.stored
        if mask is None:
            room = scratch("mask", run.data.size, np.bool_).reshape(run.data.shape)
            mask = nonzero(run.data, room)
        count = int(np.count_nonzero(mask))
        if count <= share * mask.size:
            parts[len(runs)] = _convert_sparse(run, mask)
        runs.append(replace(run, count=count))
    total = sum(run.count for run in runs)
    name = index_width(str(indices.dtype), n, total)
    values, index = np.empty(total, as_bits(data).dtype), np.empty(total, name)
    pointers, end = np.zeros(m + 1, name), 0
    for number, run in enumerate(runs):
        local = _put(run, parts.pop(number, None), values[end:], index[end:])
        rows = pointers[run.row : run.row + len(local)]
        rows[:] = local[: len(rows)] + end
        end += run.count
    return values.view(data.dtype), index, pointers


def _runs(
    data: Array, indices: Array, indptr: Array, shape: tuple[int, int], zeros: Array | str | None
) -> Iterator[_Run]:
    _, R, C = data.shape
    size, bcols = R * C, -(-shape[1] // C)
    for first, last in ranges(indptr, max(1, SLOTS // size)):
        begin, end = int(indptr[first]), int(indptr[last])
        # Columns of padding are computed before they are dropped, and slots are counted.
        work = index_width(str(indices.dtype), bcols * C, (end - begin) * size)
        columns = to_width(indices[begin:end], work)
        local = to_width(indptr[first : last + 1] - indptr[first], work)
        run = _Run(data[begin:end], columns, local, bcols, first * R, None)
        if isinstance(zeros, str):
            run = replace(run, stored=_inside(run, shape))
        elif zeros is not None:
            low, high = np.searchsorted(zeros, [begin * size, end * size])
            if low < high:
                stored = nonzero(run.data)
                stored.reshape(-1)[zeros[low:high] - begin * size] = True
                run = replace(run, stored=stored)
        yield run


def _inside(run: _Run, shape: tuple[int, int]) -> Mask:
    """Mask of slots inside the logical shape."""
    (m, n), (_, R, C) = shape, run.data.shape
    mask = np.ones(run.data.shape, np.bool_)
    if n % C:
        mask[run.columns == run.bcols - 1, :, n % C :] = False
    if run.row + (len(run.pointers) - 1) * R > m:
        mask[run.pointers[-2] :, m % R :] = False
    return mask


def _put(run: _Run, part: Part | None, values: Array, index: Array) -> Array:
    """Write a run's elements at the front of `values` and `index`; return its row pointers."""
    size, count = run.data.size, run.count
    bits = as_bits(run.data)
    if part is None and count == size and index.dtype == run.columns.dtype:
        return _expand(run, bits, values[:size], index[:size])
    if part is None:
        return _convert_dense(run, bits, values[:count], index[:count])
    values[:count], index[:count], pointers = part
    return pointers


def _is_nearly_full(data: Array, indices: Array, n: int) -> bool:
    """Judge a sample, and whether SciPy can express and recognise what there is."""
    C = data.shape[2]
    if index_width(str(indices.dtype), -(-n // C) * C, data.size) != str(indices.dtype):
        return False
    if data.dtype.kind not in "biufc" or data.dtype == np.float16:
        return False  # as integers their -0.0 is not zero
    if data.dtype.kind in "fc" and not np.count_nonzero(np.finfo(data.dtype).smallest_subnormal):
        return False  # the processor flushes subnormals, SciPy would drop them
    flat = data.reshape(-1)
    parts = [flat[i : i + SAMPLE] for i in range(0, len(flat), len(flat) // SAMPLES + 1)]
    share = np.mean([np.count_nonzero(nonzero(part)) / len(part) for part in parts])
    return NEARLY_FULL <= float(share) < 1


def _convert_nearly_full(
    data: Array, indices: Array, indptr: Array, shape: tuple[int, int]
) -> Part:
    m, n = shape
    bits, end = as_bits(data), 0
    values, index = np.empty(data.size, bits.dtype), np.empty(data.size, indices.dtype)
    pointers = np.zeros(m + 1, indices.dtype)
    for run in _runs(data, indices, indptr, shape, None):
        part = values[end : end + run.data.size], index[end : end + run.data.size]
        local = _expand(run, as_bits(run.data), *part)
        typed = part[0].view(data.dtype)
        sparsetools.csr_eliminate_zeros(len(local) - 1, n, local, part[1], typed)
        rows = pointers[run.row : run.row + len(local)]
        rows[:] = local[: len(rows)] + end
        end += int(local[-1])
    values, index = values[:end].view(data.dtype), index[:end]
    if end < data.size // 2:  # the sample was not like the rest: do not hold on to the room
        values, index = values.copy(), index.copy()
    return values, index, pointers


def _expand(run: _Run, blocks: Array, values: Array, index: Array) -> Array:
    """Write all slots of `blocks` in row order; return row pointers."""
    brows, (_, R, C) = len(run.pointers) - 1, blocks.shape
    bcols = run.bcols * (run.data.shape[2] // C)
    pointers = np.empty(brows * R + 1, run.columns.dtype)
    sparsetools.bsr_tocsr(
        brows, bcols, R, C, run.pointers, run.columns, blocks.reshape(-1), pointers, index, values
    )
    return pointers


def _convert_dense(run: _Run, bits: Array, values: Array, index: Array) -> Array:
    all_values = scratch("values", bits.size, bits.dtype)
    all_index = scratch("index", bits.size, run.columns.dtype)
    pointers = _expand(run, bits, all_values, all_index)
    keep = scratch("mask", bits.size, np.bool_)
    if run.stored is None:
        nonzero(all_values.view(run.data.dtype), keep)
    else:
        flags, waste = run.stored.view(np.int8), np.empty_like(all_index)
        _expand(run, flags, keep.view(np.int8), waste)
    kept = np.flatnonzero(keep)
    np.take(all_values, kept, out=values, mode="clip")  # other modes make a copy first
    if index.dtype == all_index.dtype:
        np.take(all_index, kept, out=index, mode="clip")
    else:
        index[:] = all_index.take(kept)
    if len(pointers) * SEARCH < bits.size:
        return np.searchsorted(kept, pointers)
    counts = scratch("counts", bits.size + 1, pointers.dtype)
    counts[0] = 0
    np.cumsum(keep, out=counts[1:])
    return counts.take(pointers)


def _word(C: int) -> int:
    """Slots that are looked at together: the largest of 8, 4, 2, 1 that divides a block's row."""
    return min(8, C & -C)


def _convert_sparse(run: _Run, mask: Mask) -> Part:
    _, R, C = mask.shape
    length, name = _word(C), run.columns.dtype
    words = mask.reshape(-1).view(f"u{length}")
    place, pointers = _ordered_words(run, words, R, C // length)
    block = place // (R * C // length)
    column = place - block * (R * C // length)
    column = column % (C // length) * length + run.columns.take(block) * C
    words = words.take(place)
    counts = np.zeros(len(words) + 1, name)
    np.cumsum(np.bitwise_count(words), out=counts[1:])
    found = np.flatnonzero(words.view(np.bool_))
    word = found >> (length.bit_length() - 1)
    slot = place * length
    # Where in its word a slot is, is what its number has beyond the word's first.
    start = np.arange(0, len(words) * length, length, dtype=name)
    index = found.astype(name)
    index += (column - start).take(word)
    found += (slot - start).take(word)
    values = as_bits(run.data).reshape(-1).take(found)
    return values, index, counts.take(pointers)


def _ordered_words(run: _Run, words: Array, R: int, S: int) -> tuple[Array, Array]:
    """Numbers of the words with a stored slot in row order, and pointers of the rows to them."""
    brows, name = len(run.pointers) - 1, run.columns.dtype
    hot = np.not_equal(words, 0, out=scratch("hot", len(words), np.bool_))
    picked = np.flatnonzero(hot).astype(name)
    block = picked // (R * S)
    row = np.repeat(np.arange(0, brows * R, R, dtype=name), np.diff(run.pointers)).take(block)
    row += (picked - block * (R * S)) // S
    edges, pointers = np.array([0, len(picked)], name), np.empty(brows * R + 1, name)
    order, waste = np.empty_like(picked), np.empty_like(picked)
    # A counting sort, stable: within a row the words keep their order, that of the columns.
    sparsetools.csr_tocsc(1, brows * R, edges, row, picked, pointers, waste, order)
    return order, pointers
