"""Conversions to 2:4 on the device."""

from __future__ import annotations

from typing import Any

import triton

from sparseformats import _arrays
from sparseformats._arrays import Array
from sparseformats._dtypes import itemsize, kind
from sparseformats.formats import NM
from sparseformats.formats.groups import refuse_crowded
from sparseformats_kernels.cuda.devices import Device, device_of
from sparseformats_kernels.triton.convert.packing import pack
from sparseformats_kernels.triton.launch import Launch, Specimen, compiled

__all__ = ["dense_to_nm", "specimen_of_pack"]

_BLOCK, _WARPS = 256, 4  # groups and warps of a program
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
    lib, name = _arrays.of(D), _arrays.of(D).dtype_name(D)
    (rows, k), device = (int(s) for s in D.shape), lib.device(D)
    count, size = -(-k // _M), itemsize(name)
    what = f"{_N}:{_M} form of a {rows} x {k} matrix"
    lib.ensure_fits(rows * count * _N * (size + 1), device, what)
    data = lib.empty((rows, count, _N), name, device)
    indices = lib.empty((rows, count, _N), "uint8", device)
    if rows * count:
        crowded = lib.zeros(2, "int64", device)
        _launch(D, data, indices, crowded)
        many, distance = (int(x) for x in lib.to_numpy(crowded))  # the only synchronisation
        if many:
            first = rows * count - distance
            i, j = divmod(first, count)
            group = lib.nonzero_mask(lib.native(D)[i : i + 1, j * _M : (j + 1) * _M])
            refuse_crowded([(first, lib.count_nonzero(group), many)], count, _N, _M)
    return NM.trusted(data=data, indices=indices, shape=(rows, k), n=_N, m=_M)


def _launch(D: Array, data: Array, indices: Array, crowded: Array) -> None:
    lib = _arrays.of(D)
    name, bits = lib.dtype_name(D), lib.bits(lib.native(D))
    size, (rows, k) = itemsize(name), (int(s) for s in D.shape)
    steps = tuple(step // size for step in lib.strides(bits))
    count = int(data.shape[1])
    flat = k % _M == 0 and lib.is_contiguous(bits)
    numbers = {"row_step": steps[0], "column_step": steps[1]}
    numbers |= {"K": k, "GROUPS": count, "TOTAL": rows * count}
    programs = -(-rows * count // _BLOCK)
    if lib.device(D) == "cpu":
        if not triton.knobs.runtime.interpret:
            raise RuntimeError("Triton runs on a CPU only under its interpreter")
        arrays = {"dense": bits, "data": lib.bits(data), "indices": indices, "crowded": crowded}
        pack[(programs,)](**arrays, **numbers, **_constants(name, flat, k % _M == 0))
        return
    device: Device = device_of(D, lib)
    aligned = lib.address(bits) % 16 == 0 and (flat or steps[0] % 16 == 0)
    facts = {"aligned": aligned, "by_rows": steps[1] == 1, "whole": k % _M == 0}
    made = specimen_of_pack(name, flat=flat, **facts)
    with device.here():
        major, minor = lib.capability(lib.device(D)) or (9, 0)
        launch = Launch(compiled(made, 10 * major + minor, device.index), programs, device.index)
        held = set(dict(made.constants))
        launch.set(**{name: number for name, number in numbers.items() if name not in held})
        launch.set(dense=lib.address(bits), data=lib.address(data))
        launch.set(indices=lib.address(indices), crowded=lib.address(crowded))
        launch(device.stream())


def _constants(name: str, flat: bool, whole: bool) -> dict[str, Any]:
    size = itemsize(name)
    sign = -(1 << 8 * size - 1) if kind(name) == "f" else 0
    return {"FLAT": flat, "WHOLE": whole, "SIGN": sign, "BLOCK": _BLOCK}


def specimen_of_pack(
    name: str, *, flat: bool, aligned: bool, by_rows: bool, whole: bool
) -> Specimen:
    """The kernel for values of a dtype.

    Parameters
    ----------
    name : str
    flat : bool
        Groups lie one behind the other.
    aligned : bool
        The dense array's address is a multiple of 16 bytes, and its rows' step of 16 elements.
    by_rows : bool
        Its rows are contiguous.
    whole : bool
        They are made of whole groups.
    """
    word = f"*i{8 * itemsize(name)}"
    types = {"dense": word, "data": word, "indices": "*i8", "crowded": "*i64"}
    types |= dict.fromkeys(("row_step", "column_step", "K", "GROUPS", "TOTAL"), "i64")
    constants = _constants(name, flat, whole) | ({"column_step": 1} if by_rows else {})
    names = pack.arg_names
    steps = {"dense", *(() if flat else ("row_step",))}
    return Specimen(
        pack,
        tuple((n, types[n]) for n in names if n in types and n not in constants),
        tuple((n, constants[n]) for n in names if n in constants),
        frozenset({"data", "indices", "crowded"} | (steps if aligned else set())),
        _WARPS,
    )
