"""What constructors do with their arguments before any rule of a format is checked."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from sparseformats import _arrays
from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import INT32_MAX, INT64_MAX, VALUE_DTYPES
from sparseformats.errors import DeviceMismatchError, InvalidTensorError, Problem
from sparseformats.formats.checks import violations

__all__ = ["Inputs", "as_blocksize", "as_shape", "index_name", "narrowed", "prepare"]


_INDEX_SOURCES = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))


class Inputs(NamedTuple):
    """Arguments of a constructor as arrays of one library on one device."""

    lib: ArrayLibrary
    data: Array
    positions: dict[str, Array]


def as_shape(shape: Any) -> tuple[int, int]:
    """Two non-negative integers.

    Raises
    ------
    TypeError, ValueError
        Anything else.
    """
    try:
        items = tuple(shape)
        if any(isinstance(s, (bool, np.bool_)) for s in items):
            raise TypeError("bool")
        sizes = tuple(operator.index(s) for s in items)
    except TypeError as error:
        raise TypeError(f"shape must be two integers, got {shape!r}") from error
    if len(sizes) != 2:
        raise ValueError(f"shape must have two dimensions, got {shape!r}")
    if min(sizes) < 0 or max(sizes) > INT64_MAX:
        raise ValueError(f"shape must be within 0 … 2**63 - 1, got {sizes}")
    return sizes


def index_name(index_dtype: Any) -> str | None:
    """``"int32"``, ``"int64"`` or None from any library's spelling of it."""
    if index_dtype is None:
        return None
    name: str | None
    if not isinstance(index_dtype, str):
        # torch and array-api-strict spell a dtype "library.name".
        text = str(index_dtype).rpartition(".")[2]
        name = text if text in ("int32", "int64") else _numpy_name(index_dtype)
    else:
        name = index_dtype
    if name not in ("int32", "int64"):
        raise TypeError(f"index_dtype must be 'int32' or 'int64', got {index_dtype!r}")
    return name


def _numpy_name(dtype: Any) -> str | None:
    try:
        return str(np.dtype(dtype).name)
    except (TypeError, ValueError):
        return None


def narrowed(lib: ArrayLibrary, x: Array, name: str, where: str) -> Array:
    """`x` as int32 or int64.

    Raises
    ------
    OverflowError
        An element does not fit.
    """
    if lib.dtype_name(x) == name:
        return x
    if name == "int32":
        largest = lib.max_int(x)
        if largest > INT32_MAX:
            raise OverflowError(f"{where} holds {largest}, which int32 cannot express")
    return lib.astype(x, name)


def _library(what: str, arrays: Mapping[str, Any]) -> ArrayLibrary:
    given = [x for x in arrays.values() if _arrays.is_array(x)]
    for name, x in arrays.items():
        if isinstance(x, np.ma.MaskedArray):
            raise TypeError(f"{what}: {name} is a masked array; fill it first, e.g. .filled(0)")
        if not (_arrays.is_array(x) or isinstance(x, (list, tuple, range))):
            raise TypeError(
                f"{what}: {name} must be a NumPy, torch or CuPy array or a list, "
                f"got {type(x).__name__}"
            )
        layout = str(getattr(x, "layout", "torch.strided"))
        if _arrays.is_packed(x):
            layout = type(x).__name__
        if layout != "torch.strided":
            raise TypeError(
                f"{what}: {name} is a sparse tensor ({layout}); use sparseformats.from_torch"
            )
    return _arrays.of(*given) if given else _arrays.library("numpy")


def _value_array(lib: ArrayLibrary, what: str, x: Any, device: str | None) -> Array:
    if lib.owns(x) and lib.requires_grad(x):
        raise NotImplementedError(
            f"{what}: gradients through a sparse matrix's values are not supported yet; "
            "pass data.detach(), or build it under torch.no_grad()"
        )
    array = x if lib.owns(x) else lib.asarray(x, device=device)
    name = lib.dtype_name(array)
    if name not in VALUE_DTYPES[lib.name]:
        raise TypeError(
            f"{what}: values of dtype {name} are not supported for {lib.name} arrays, "
            f"expected one of {', '.join(VALUE_DTYPES[lib.name])}"
        )
    return lib.native(array)


def _index_array(
    lib: ArrayLibrary, what: str, name: str, x: Any, device: str, positions: bool
) -> Array:
    """`x` as int32 or int64; positions within a group, which fit a byte, may stay uint8."""
    if not lib.owns(x):
        x = lib.asarray(x, None, device)
        if 0 in x.shape:  # an empty list has no dtype of its own
            x = lib.astype(x, "int64")
    dtype = lib.dtype_name(x)
    if dtype not in _INDEX_SOURCES:
        raise TypeError(f"{what}: {name} must have an integer dtype, got {dtype}")
    x = lib.native(x)
    if dtype in ("int32", "int64") or (positions and dtype == "uint8"):
        return x
    if dtype not in ("uint32", "uint64"):
        return lib.astype(x, "int32")
    wide = lib.astype(x, "int64")
    problems = violations(
        lib,
        wide < 0,
        wide,
        "index-range",
        lambda p: f"{name}.flat[{p}]",
        lambda v: f"{v} does not fit int64",
        shown=lambda v: v + 2**64,
    )
    if problems:
        raise InvalidTensorError(what, problems)
    return wide


def prepare(
    what: str,
    data: Any,
    index: Mapping[str, Any],
    *,
    ndim: int,
    index_ndim: Mapping[str, int],
    copy: bool,
    uint8: tuple[str, ...] = (),
) -> Inputs:
    """Turn a constructor's arguments into native arrays of one library on one device.

    Parameters
    ----------
    what : str
        Name of the class, for messages.
    data, index
        The arguments; lists are taken as arrays of the others' library.
    ndim, index_ndim
        Required numbers of dimensions.
    copy : bool
        Whether the result may share memory with the arguments.
    uint8 : tuple of str
        Index arguments kept as uint8 positions instead of int32 or int64.

    Raises
    ------
    TypeError
        Mixed libraries, wrong kinds of argument or dtype.
    InvalidTensorError
        Wrong number of dimensions, or an index beyond int64.
    DeviceMismatchError
        Arrays on different devices.
    NotImplementedError
        Values that autograd would record.
    """
    lib = _library(what, {"data": data, **index})
    device = _device(lib, what, {"data": data, **index})
    values = _value_array(lib, what, data, device)
    made: dict[str, Array] = {}
    for name, x in index.items():
        made[name] = _index_array(lib, what, name, x, lib.device(values), name in uint8)
    _check_ndim(what, {"data": values, **made}, {"data": ndim, **index_ndim})
    if copy:
        values = lib.copy(values)
        made = {name: lib.copy(x) for name, x in made.items()}
    for name in uint8:
        made[name] = _as_positions(lib, what, name, made[name])
    wide = any(lib.dtype_name(x) == "int64" for n, x in made.items() if n not in uint8)
    width = "int64" if wide else "int32"
    made = {n: x if n in uint8 else lib.astype(x, width) for n, x in made.items()}
    return Inputs(lib, values, made)


def _device(lib: ArrayLibrary, what: str, arrays: Mapping[str, Any]) -> str | None:
    """The one device of all arguments that are arrays; None where all are lists."""
    found = {name: lib.device(x) for name, x in arrays.items() if lib.owns(x)}
    first = next(iter(found), None)
    if first is None:
        return None
    device = found[first]
    for name, other in found.items():
        if other != device:
            raise DeviceMismatchError(
                f"{what}: {first} is on {device!r} but {name} is on {other!r}"
            )
    if device == "meta":
        raise ValueError(f"{what}: arrays on device 'meta' hold no values to build a matrix from")
    return device


def _as_positions(lib: ArrayLibrary, what: str, name: str, x: Array) -> Array:
    if lib.dtype_name(x) == "uint8":
        return x
    problems = violations(
        lib,
        (x < 0) | (x > 255),
        x,
        "position-range",
        lambda p: f"{name}.flat[{p}]",
        lambda v: f"position {v} is not within 0 … 255",
    )
    if problems:
        raise InvalidTensorError(what, problems)
    return lib.astype(x, "uint8")


def _check_ndim(what: str, arrays: Mapping[str, Array], expected: Mapping[str, int]) -> None:
    problems = [
        Problem(
            "ndim",
            name,
            tuple(x.shape),
            f"{name} must be {expected[name]}-D, got shape {tuple(x.shape)}",
        )
        for name, x in arrays.items()
        if len(x.shape) != expected[name]
    ]
    if problems:
        raise InvalidTensorError(what, problems)


def as_blocksize(blocksize: Any) -> tuple[int, int]:
    """(R, C) from a pair of positive integers, or from one for square blocks.

    Raises
    ------
    TypeError, ValueError
        Anything else; the text shows the value given and what is needed.
    """
    need = f"blocksize must be two positive integers such as (32, 32), got {blocksize!r}"
    pair = (blocksize, blocksize) if isinstance(blocksize, (int, np.integer)) else blocksize
    try:
        items = tuple(pair)
        if any(isinstance(s, (bool, np.bool_)) for s in items):
            raise TypeError(need)
        sizes = tuple(operator.index(s) for s in items)
    except TypeError as error:
        raise TypeError(need) from error
    if len(sizes) != 2 or min(sizes) < 1:
        raise ValueError(need)
    if max(sizes) > INT64_MAX:
        raise ValueError(f"blocksize must be within 1 … 2**63 - 1, got {sizes}")
    return sizes
