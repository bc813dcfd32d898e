"""Conversions to 2:4 on the device."""

from __future__ import annotations

from typing import Any

from sparseformats import _arrays
from sparseformats._arrays import Array
from sparseformats._dtypes import itemsize, kind
from sparseformats.formats import NM
from sparseformats.formats.groups import refuse_crowded
from sparseformats_kernels.triton.convert.packing import pack
from sparseformats_kernels.triton.launching import Launcher

__all__ = ["BLOCK", "WARPS", "constants_of", "dense_to_nm"]

BLOCK, WARPS = 256, 4  # groups and warps of a program
_N, _M = 2, 4


def dense_to_nm(D: Array, options: Any) -> NM:
    """Store what is not zero; groups are counted on the way.

    Raises
    ------
    PatternError
        A group has more than 2 non-zeros.
    MemoryError
        The result is larger than free memory.
    """
    lib = _arrays.of(D)
    D, name, (rows, k), place = lib.native(D), lib.dtype_name(D), D.shape, lib.device(D)
    count, size = -(-k // _M), itemsize(name)
    what = f"{_N}:{_M} form of a {rows} x {k} matrix"
    lib.ensure_fits(rows * count * _N * (size + 1), place, what)
    data = lib.empty((rows, count, _N), name, place)
    indices = lib.empty((rows, count, _N), "uint8", place)
    if rows * count:
        crowded = lib.zeros(2, "int64", place)
        row_step, column_step = (step // size for step in lib.strides(D))
        given = {"dense": D, "row_step": row_step, "column_step": column_step, "data": data}
        given |= {"indices": indices, "crowded": crowded}
        given |= {"K": int(k), "GROUPS": count, "TOTAL": rows * count}
        constants = constants_of(name, k % _M == 0 and lib.is_contiguous(D), k % _M == 0)
        programs = -(-rows * count // BLOCK)
        Launcher(lib, D, bits=True)(pack, programs, given, constants, WARPS)
        many, distance = (int(x) for x in lib.to_numpy(crowded))  # the only synchronisation
        if many:
            _refuse(D, rows * count - distance, many, count)
    return NM.trusted(data=data, indices=indices, shape=(int(rows), int(k)), n=_N, m=_M)


def _refuse(D: Array, first: int, many: int, count: int) -> None:
    lib, (i, j) = _arrays.of(D), divmod(first, count)
    group = lib.nonzero_mask(D[i : i + 1, j * _M : (j + 1) * _M])
    refuse_crowded([(first, lib.count_nonzero(group), many)], count, _N, _M)


def constants_of(name: str, flat: bool, whole: bool) -> dict[str, Any]:
    """Constants of the kernel for values of a dtype: groups in one piece, rows of whole groups."""
    sign = -(1 << 8 * itemsize(name) - 1) if kind(name) == "f" else 0
    return {"FLAT": flat, "WHOLE": whole, "SIGN": sign, "BLOCK": BLOCK}
