"""Weights packed with a bit mask, as compressed-tensors wrote them: two layouts.

Layout
------
Of a weight (rows, k):

``shape`` (2,) or (2, 1) integers
    rows and k.
``bitmask`` (rows, ceil(k / 8)) uint8
    Bit b of byte j in row i says whether element (i, 8 j + b) is kept; bits from k on are 0.
``compressed``
    The kept values, row after row. *sparse-24-bitmask*: (rows, k/2), two of each four columns,
    also where one of them is zero. *sparse-bitmask*: (kept,) or (kept, 1), whatever is not zero.
``row_offsets`` (rows,) or (rows, 1) integers
    *sparse-bitmask* only: where each row begins in ``compressed``.

References
----------
The package compressed-tensors, ``sparse_24_bitmask.py`` and ``sparse_bitmask.py`` among its
compressors, in the releases that had them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from sparseformats import _arrays
from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import VALUE_DTYPES, index_width
from sparseformats.convert.pointers import sorted_pointers
from sparseformats.errors import DeviceMismatchError
from sparseformats.formats import CSR, NM, SparseMatrix

__all__ = ["PARTS", "from_parts"]

PARTS = ("shape", "bitmask", "compressed", "row_offsets")


def from_parts(place: str, parts: Mapping[str, Any], stored: Any, copy: bool) -> SparseMatrix:
    """Matrix of one weight: 2:4, or CSR where there are row offsets.

    Parameters
    ----------
    place : str
        What the weight is called, for messages.
    parts : mapping
        The arrays by the names of `PARTS`.
    stored : ``"nonzero"`` or ``"all"``
        Of 2:4: whether kept elements that are zero are stored.
    copy : bool
        Whether the values may be shared.

    Raises
    ------
    ValueError
        The arrays contradict the layout or each other; names the array and the fault.
    TypeError, DeviceMismatchError
        Other things than arrays, of two libraries, of a wrong dtype; on two devices.
    NotImplementedError
        The values require grad while grad mode is on.
    """
    arrays = {name: x for name, x in parts.items() if name != "shape"}
    lib = _library(place, arrays)
    shape = _shape(place, parts["shape"])
    mask = _mask(place, lib, parts["bitmask"], shape)
    values = lib.native(_values(place, lib, parts["compressed"]))
    if "row_offsets" in parts:
        return _csr(place, lib, values, mask, parts["row_offsets"], shape, copy)
    data, indices = _two_of_four(place, lib, values, mask, shape)
    return NM(data, indices, shape, stored=stored, copy=copy)


def _fault(place: str, part: str, what: str) -> NoReturn:
    raise ValueError(f"{place}.{part}: {what}")


# ---- what each array must be


def _library(place: str, arrays: Mapping[str, Any]) -> ArrayLibrary:
    found: dict[str, ArrayLibrary] = {}
    for part, x in arrays.items():
        if not _arrays.is_array(x):
            raise TypeError(
                f"{place}.{part}: expected a NumPy, torch or CuPy array, got {type(x).__name__}"
            )
        found[part] = _arrays.of(x)
    lib = found["compressed"]
    for part, x in arrays.items():
        if found[part] is not lib:
            raise TypeError(
                f"{place}: compressed is a {lib.name} array but {part} is one of "
                f"{found[part].name}; convert one of them"
            )
        if lib.device(x) != lib.device(arrays["compressed"]):
            raise DeviceMismatchError(
                f"{place}: compressed is on {lib.device(arrays['compressed'])!r} but {part} is "
                f"on {lib.device(x)!r}"
            )
    return lib


def _shape(place: str, given: Any) -> tuple[int, int]:
    if _arrays.is_array(given):
        lib = _arrays.of(given)
        if lib.dtype_name(given)[:3] not in ("int", "uin"):
            _fault(place, "shape", f"must hold integers, got {lib.dtype_name(given)}")
        given = lib.to_numpy(given).reshape(-1).tolist()
    if not isinstance(given, (list, tuple)) or not all(map(_is_size, given)):
        _fault(place, "shape", f"must hold integers, got {given!r}")
    sizes = list(given)
    if len(sizes) != 2:
        _fault(place, "shape", f"a matrix has two dimensions, got {sizes}")
    rows, k = (int(s) for s in sizes)
    if min(rows, k) < 0:
        _fault(place, "shape", f"sizes are not negative, got {sizes}")
    return rows, k


def _is_size(given: Any) -> bool:
    return isinstance(given, (int, np.integer)) and not isinstance(given, bool)


def _mask(place: str, lib: ArrayLibrary, mask: Array, shape: tuple[int, int]) -> Array:
    rows, k = shape
    if lib.dtype_name(mask) != "uint8":
        _fault(place, "bitmask", f"must be uint8, got {lib.dtype_name(mask)}")
    _require_shape(place, "bitmask", mask, ((rows, -(-k // 8)),), shape)
    if k % 8:
        beyond = lib.flatnonzero(mask[:, -1] >> (k % 8))
        if int(beyond.shape[0]):
            row = int(lib.item(beyond[:1]))
            _fault(place, "bitmask", f"row {row} has bits set past column {k - 1}, the last one")
    return mask


def _values(place: str, lib: ArrayLibrary, values: Array) -> Array:
    name = lib.dtype_name(values)
    if name not in VALUE_DTYPES[lib.name]:
        wide = name in VALUE_DTYPES["torch"]
        instead = '; use torch tensors, for files library="torch"' if wide else ""
        raise TypeError(
            f"{place}.compressed: {lib.name} arrays of {name} are not supported{instead}"
        )
    if lib.requires_grad(values):
        raise NotImplementedError(
            f"{place}.compressed: gradients through a sparse matrix's values are not supported "
            "yet; pass detached values, or call it under torch.no_grad()"
        )
    return values


def _require_shape(
    place: str, part: str, x: Array, allowed: tuple[tuple[int, ...], ...], shape: tuple[int, int]
) -> None:
    found = tuple(int(s) for s in x.shape)
    if found not in allowed:
        options = " or ".join(str(each) for each in allowed)
        _fault(place, part, f"must have shape {options} for a matrix of {shape}, got {found}")


# ---- sparse-24-bitmask


def _two_of_four(
    place: str, lib: ArrayLibrary, values: Array, mask: Array, shape: tuple[int, int]
) -> tuple[Array, Array]:
    """Values and positions of slots, (rows, k/4, 2) each."""
    (rows, k), xp = shape, lib.xp
    if k % 4:
        _fault(place, "shape", f"sparse-24-bitmask needs a multiple of 4 columns, got {k}")
    _require_shape(place, "compressed", values, ((rows, k // 2),), shape)
    halves = xp.stack([mask & 15, mask >> 4], axis=-1)
    groups = lib.reshape(halves, (rows, 2 * int(mask.shape[1])))[:, : k // 4]
    b0, b1, b2, b3 = (groups >> i & 1 for i in range(4))
    _require_two(place, lib, b0 + b1 + b2 + b3, values)
    # Of two bits: how many zeros lie below the first, and where the second is.
    first = (b0 ^ 1) + ((b0 | b1) ^ 1)
    second = (b2 | b3) + b3 + 1
    return lib.reshape(values, (rows, k // 4, 2)), xp.stack([first, second], axis=-1)


def _require_two(place: str, lib: ArrayLibrary, kept: Array, values: Array) -> None:
    wrong = lib.flatnonzero(kept != 2)
    many = int(wrong.shape[0])
    if not many:
        return
    first = int(lib.item(wrong[:1]))
    row, group = divmod(first, int(kept.shape[1]))
    total = int(lib.item(lib.xp.sum(kept, dtype=lib.dtype("int64"))))
    _fault(
        place,
        "bitmask",
        f"keeps {int(lib.item(kept[row, group]))} of 4 columns in row {row}, group {group} "
        f"({many} such group{'s' * (many > 1)}; {total} kept in all, compressed holds "
        f"{int(values.shape[0] * values.shape[1])}); sparse-24-bitmask keeps 2 of each 4",
    )


# ---- sparse-bitmask


def _csr(
    place: str,
    lib: ArrayLibrary,
    values: Array,
    mask: Array,
    offsets: Array,
    shape: tuple[int, int],
    copy: bool,
) -> CSR:
    (rows, k), xp = shape, lib.xp
    bits = xp.stack([mask >> i & 1 for i in range(8)], axis=-1)
    inside = lib.reshape(bits, (rows, 8 * int(mask.shape[1])))[:, :k]
    where = lib.flatnonzero(inside != 0)
    count = int(where.shape[0])
    found = tuple(int(s) for s in values.shape)
    if found not in ((count,), (count, 1)):
        _fault(place, "bitmask", f"keeps {count} elements, compressed has shape {found}")
    width = index_width("int32", k, count)
    row, col = where // max(k, 1), lib.astype(where % max(k, 1), width)
    indptr = sorted_pointers(lib, row, rows, width)
    _require_offsets(place, lib, offsets, indptr, shape)
    return CSR(lib.reshape(values, (count,)), col, indptr, shape, copy=copy)


def _require_offsets(
    place: str, lib: ArrayLibrary, offsets: Array, indptr: Array, shape: tuple[int, int]
) -> None:
    if lib.dtype_name(offsets) not in ("int32", "int64"):
        _fault(place, "row_offsets", f"must be int32 or int64, got {lib.dtype_name(offsets)}")
    _require_shape(place, "row_offsets", offsets, ((shape[0],), (shape[0], 1)), shape)
    given = lib.astype(lib.reshape(offsets, (shape[0],)), "int64")
    expected = lib.astype(indptr[:-1], "int64")
    wrong = lib.flatnonzero(given != expected)
    if int(wrong.shape[0]):
        i = int(lib.item(wrong[:1]))
        says, is_ = (int(lib.item(x[i : i + 1])) for x in (given, expected))
        _fault(place, "row_offsets", f"row {i} begins at {says}, by the mask it is {is_}")
