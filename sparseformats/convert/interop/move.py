"""The same matrix on arrays of another library, or on another device."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from sparseformats import _arrays
from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import VALUE_DTYPES
from sparseformats.errors import DeviceMismatchError
from sparseformats.formats import SparseMatrix

__all__ = ["device_name", "to_device", "to_library"]

M = TypeVar("M", bound=SparseMatrix)
Move = Callable[[Array], Array]


def to_library(A: M, library: str) -> M:
    """Hold the buffers of `A` as arrays of another library, on the same device.

    Parameters
    ----------
    A : SparseMatrix
    library : str
        ``"numpy"``, ``"torch"`` or ``"cupy"``.

    Returns
    -------
    SparseMatrix
        `A` itself where it is of that library already; else the same format with every buffer,
        mark and side record.

    Raises
    ------
    TypeError
        The library has no such dtype; the text names it.
    DeviceMismatchError
        The library has no arrays on A's device: changing it is `to_device`.
    ValueError, ImportError
        Unknown library, or one that is not installed.

    Notes
    -----
    Between torch and CuPy on a GPU (through DLPack) and from torch to NumPy on the CPU the memory
    is shared: whoever writes to the torch or CuPy arrays then changes both matrices, which is as
    forbidden as writing to either. From NumPy to torch the arrays are copied, because torch
    cannot honour that NumPy's are read-only. *Loses*: nothing.

    Examples
    --------
    >>> import sparseformats as sf
    >>> sf.CSR([2.0], [1], [0, 1], (1, 2)).to_library("torch")
    <CSR 1x2, float64, nnz=1, torch on cpu>
    """
    source, target = A.lib, _arrays.library(library)
    if source is target:
        return A
    _require_dtype(A, library)
    if not _lives_on(library, A.device):
        raise DeviceMismatchError(
            f"{library} has no arrays on {A.device!r}, where A is; changing the device is "
            f"A.to_device({_home(library)!r}, {library!r})"
        )
    return _moved(A, _same_place(source, target, A.device))


def to_device(A: M, device: object, library: str | None = None) -> M:
    """Copy the buffers of `A` to another device.

    Parameters
    ----------
    A : SparseMatrix
    device : str or device object
        ``"cpu"``, ``"cuda"`` (the current one), ``"cuda:1"``, or an object of torch or CuPy.
    library : str, optional
        Whose arrays the result holds; default A's own. NumPy's live on the CPU and CuPy's on
        CUDA devices, so a move between the two needs it.

    Returns
    -------
    SparseMatrix
        `A` itself where it is there already; else the same format with every buffer, mark and
        side record.

    Raises
    ------
    ValueError
        Unknown library, a device on which the library has no arrays, or one that this machine
        does not have.
    TypeError
        `device` is no device, or the library has no such dtype.
    ImportError
        The library is not installed.

    Notes
    -----
    *Loses*: nothing. On the same device this is `to_library` and shares as it does.
    """
    where = device_name(device)
    name = A.library if library is None else library
    target = _arrays.library(name)
    if not _lives_on(name, where):
        hint = f"; pass library={_others(where)}" if library is None else f"; use {_others(where)}"
        raise ValueError(f"{name} has no arrays on {where!r}{hint}")
    where = _resolved(target, where)
    if where == A.device:
        return to_library(A, name)
    _require_dtype(A, name)
    source = A.lib
    if source is target:
        return _moved(A, lambda x: target.to_device(x, where))
    if A.device.startswith("cuda") and where.startswith("cuda"):
        crossed = to_library(A, name)
        return _moved(crossed, lambda x: target.to_device(x, where))
    return _moved(A, _through_host(source, target, where))


def device_name(device: object) -> str:
    """``"cpu"``, ``"cuda"``, ``"cuda:1"`` … from a string or a device object.

    Raises
    ------
    TypeError, ValueError
        No device, or one whose arrays hold no values.
    """
    text = device if isinstance(device, str) else None
    root = type(device).__module__.partition(".")[0]
    if root == "torch" and hasattr(device, "type"):
        text = str(device)
    elif root == "cupy" and hasattr(device, "id"):
        text = f"cuda:{device.id}"
    if text is None:
        raise TypeError(
            f"device must be a string such as 'cpu' or 'cuda:0' or a device object, got {device!r}"
        )
    kind, colon, index = text.partition(":")
    if not kind.isidentifier() or (colon and not index.isdecimal()):
        raise ValueError(f"device must look like 'cpu', 'cuda' or 'cuda:0', got {text!r}")
    if kind == "meta":
        raise ValueError("arrays on device 'meta' hold no values to build a matrix from")
    return "cpu" if kind == "cpu" else text


def _lives_on(library: str, device: str) -> bool:
    kind = device.partition(":")[0]
    return library == "torch" or kind == ("cuda" if library == "cupy" else "cpu")


def _home(library: str) -> str:
    return "cuda" if library == "cupy" else "cpu"


def _others(device: str) -> str:
    return {"cpu": "'numpy' or 'torch'", "cuda": "'torch' or 'cupy'"}.get(
        device.partition(":")[0], "'torch'"
    )


def _resolved(target: ArrayLibrary, device: str) -> str:
    """The device with its number, as the library spells it.

    Raises
    ------
    ValueError
        This machine has no such device.
    """
    if device == "cpu":
        return device
    try:
        return target.device(target.empty(1, "uint8", device))
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        # torch: AssertionError without CUDA support, RuntimeError for a wrong name or number.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{target.name} cannot use device {device!r}: {reason}") from error


def _require_dtype(A: SparseMatrix, library: str) -> None:
    allowed = VALUE_DTYPES[library]
    if A.dtype_name not in allowed:
        raise TypeError(
            f"{library} arrays of {A.dtype_name} are not supported, only {', '.join(allowed)}; "
            "cast A.data and build the matrix anew"
        )


def _moved(A: M, move: Move) -> M:
    buffers = {name: move(x) for name, x in A.buffers().items()}
    return type(A).from_parts(buffers, A.static())


def _same_place(source: ArrayLibrary, target: ArrayLibrary, device: str) -> Move:
    if device == "cpu":
        return _through_host(source, target, device)
    return lambda x: _by_dlpack(source, target, x)


def _through_host(source: ArrayLibrary, target: ArrayLibrary, device: str) -> Move:
    return lambda x: target.from_numpy(source.to_numpy(x), device)


def _by_dlpack(source: ArrayLibrary, target: ArrayLibrary, x: Array) -> Array:
    """The same memory as an array of `target`; bool travels as bytes, which all versions know."""
    name = source.dtype_name(x)
    if not math.prod(x.shape):
        return target.empty(tuple(x.shape), name, source.device(x))
    carried = source.bits(x) if name == "bool" else x
    made = target.xp.from_dlpack(carried)
    return target.from_bits(made, name) if name == "bool" else made
