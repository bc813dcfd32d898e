"""Kernels between BSR and Blocked-ELL: blocks move as they are, rows get one length or their own.

Values come as integers of their width. One program writes what no other one writes. Slots are
numbered in 64 bits: of uneven rows there are more than blocks.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["count_slots", "fill_slots", "take_slots", "widest"]


@triton.jit
def widest(indptr, most, rows, span, E: tl.constexpr):
    """Blocks of the fullest row of each `span` of rows, a multiple of E."""
    first = tl.program_id(0) * span
    found = tl.zeros((E,), tl.int64)
    for start in range(0, span, E):
        row = first + start + tl.arange(0, E)
        begin = tl.load(indptr + row, mask=row < rows, other=0)
        end = tl.load(indptr + row + 1, mask=row < rows, other=0)
        found = tl.maximum(found, (end - begin).to(tl.int64))
    tl.store(most + tl.program_id(0), tl.max(found, axis=0))


@triton.jit
def count_slots(columns, counts, rows, width, RB: tl.constexpr, W: tl.constexpr):
    """Slots of each row that hold a block; one program counts RB rows."""
    row = tl.program_id(0) * RB + tl.arange(0, RB)
    line = (row.to(tl.int64) * width)[:, None]
    count = tl.zeros((RB,), tl.int32)
    for start in range(0, width, W):
        slot = start + tl.arange(0, W)
        inside = (row < rows)[:, None] & (slot < width)[None, :]
        named = tl.load(columns + line + slot[None, :], mask=inside, other=-1)
        count += tl.sum((named >= 0).to(tl.int32), axis=1)
    tl.store(counts + row, count, mask=row < rows)


@triton.jit
def _blocks_of(indptr, width, slots, parts, NB: tl.constexpr):
    """Slots of a program, the block that belongs into each, and whether there is one."""
    slot = tl.cast(tl.program_id(0) // parts, tl.int64) * NB + tl.arange(0, NB)
    row = slot // width
    begin = tl.load(indptr + row, mask=slot < slots, other=0)
    end = tl.load(indptr + row + 1, mask=slot < slots, other=0)
    block = begin + (slot - row * width)
    return slot, block, block < end


@triton.jit
def fill_slots(
    data,
    indices,
    indptr,
    values,
    columns,
    width,
    slots,
    parts,
    R: tl.constexpr,
    C: tl.constexpr,
    NB: tl.constexpr,
    E: tl.constexpr,
):
    """All of ``values (slots, R, C)`` and their `columns`: blocks, then zeros and -1 in each row.

    One program writes one of so many parts, of E elements, of NB slots.
    """
    slot, block, there = _blocks_of(indptr, width, slots, parts, NB)
    part = tl.program_id(0) % parts
    first = (slot < slots) & (part == 0)
    named = tl.load(indices + block, mask=first & there, other=-1)
    tl.store(columns + slot, named.to(columns.dtype.element_ty), mask=first)
    element = part * E + tl.arange(0, E)
    within = (element < R * C)[None, :]
    source = (block * (R * C))[:, None] + element[None, :]
    bits = tl.load(data + source, mask=there[:, None] & within, other=0)
    at = (slot * (R * C))[:, None] + element[None, :]
    tl.store(values + at, bits, mask=(slot < slots)[:, None] & within)


@triton.jit
def take_slots(
    values,
    columns,
    indptr,
    data,
    indices,
    width,
    slots,
    parts,
    R: tl.constexpr,
    C: tl.constexpr,
    NB: tl.constexpr,
    E: tl.constexpr,
):
    """The other way about: ``data`` and `indices` of the blocks, empty slots left out."""
    slot, block, there = _blocks_of(indptr, width, slots, parts, NB)
    part = tl.program_id(0) % parts
    named = tl.load(columns + slot, mask=there & (part == 0), other=0)
    tl.store(indices + block, named.to(indices.dtype.element_ty), mask=there & (part == 0))
    element = part * E + tl.arange(0, E)
    mask = there[:, None] & (element < R * C)[None, :]
    source = (slot * (R * C))[:, None] + element[None, :]
    bits = tl.load(values + source, mask=mask, other=0)
    tl.store(data + (block * (R * C))[:, None] + element[None, :], bits, mask=mask)
