"""Transposed BSR -> BSR: blocks move to their mirrored places and are transposed themselves."""

from __future__ import annotations

from sparseformats._arrays import Array
from sparseformats.convert.chunks import limit
from sparseformats.convert.options import Options
from sparseformats.convert.pointers import sorted_pointers
from sparseformats.formats import BSR, Transposed
from sparseformats.formats.canonical import expand

__all__ = ["bsr_transposed_to_bsr"]


def bsr_transposed_to_bsr(A: Transposed, options: Options) -> BSR:
    """Sort blocks by their block column; values stay in their blocks, so no element is sorted."""
    base = A.base
    assert isinstance(base, BSR)
    lib, (r, c), (m, n) = base.lib, base.blocksize, base.shape
    width = options.width(lib.dtype_name(base.indices), -(-m // r), base.nnzb)
    order = lib.argsort(base.indices)
    row = expand(lib, lib.astype(base.indptr, width), base.nnzb)
    column = lib.take(base.indices, order)
    zeros = base.zeros
    if zeros is not None and not isinstance(zeros, str):
        block, within = zeros // (r * c), zeros % (r * c)
        place = lib.scatter(base.nnzb, order, lib.arange(base.nnzb, device=base.device))
        moved = lib.take(place, block) * (r * c) + within % c * r + within // c
        zeros = lib.take(moved, lib.argsort(moved))
    return BSR.trusted(
        data=_turned(base, order),
        indices=lib.take(row, order),
        indptr=sorted_pointers(lib, column, -(-n // c), width),
        shape=A.shape,
        zeros=zeros,
    )


def _turned(a: BSR, order: Array) -> Array:
    """Blocks in a new order, each transposed."""
    lib, (r, c) = a.lib, a.blocksize
    out = lib.empty((a.nnzb, c, r), a.dtype_name, a.device)
    step = max(1, limit(a.device) // (r * c))
    for i in range(0, a.nnzb, step):
        j = min(i + step, a.nnzb)
        out[i:j, ...] = lib.xp.permute_dims(lib.take(a.data, order[i:j]), (0, 2, 1))
    return out
