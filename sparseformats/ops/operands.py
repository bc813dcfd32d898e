"""Reading the two operands of a product, and refusing what cannot be multiplied.

Everything here happens before any kernel runs: a mistake leaves all arrays as they were.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparseformats import _arrays
from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import VALUE_DTYPES
from sparseformats.errors import DeviceMismatchError
from sparseformats.formats import SparseMatrix
from sparseformats.ops.scalars import result_dtype

__all__ = ["Operands", "as_sparse", "check_out", "is_foreign", "read"]
__all__ += ["check_target", "guard", "refuse_stand_in", "same_place", "separate"]

_SHARED = "out shares memory with the sparse matrix, whose values never change"
_NOWHERE = (1 << 62, -(1 << 62))  # of an empty array: meets nothing


@dataclass(frozen=True, slots=True, eq=False)
class Operands:
    """A product of one sparse and one dense operand, as kernels see it.

    Attributes
    ----------
    lib : ArrayLibrary
        Library of all arrays.
    matrix : SparseMatrix
        The sparse operand as stored: never a `Transposed`.
    transposed : bool
        The product is with the transpose of `matrix`.
    m, k : int
        Shape of the sparse operand after that.
    x : array
        The dense operand with its own axes.
    left : bool
        The dense operand stands on the left: ``x @ B`` is computed as ``(B.T @ x.T).T``.
    shape : tuple of int
        Shape of the result.
    dtype : str
        Dtype of the result.
    """

    lib: ArrayLibrary
    matrix: SparseMatrix
    transposed: bool
    m: int
    k: int
    x: Array
    left: bool
    shape: tuple[int, ...]
    dtype: str

    @property
    def columns(self) -> int:
        """Columns of the dense operand, one batch's worth, once it stands on the right."""
        return _columns(tuple(self.x.shape), self.left)

    @property
    def batch(self) -> int:
        """Product of the leading batch axes."""
        return math.prod(self.x.shape[:-2])


def is_foreign(x: object) -> bool:
    """Whether `x` is neither a matrix of ours, nor an array, nor another library's sparse one."""
    return not (
        isinstance(x, (SparseMatrix, np.ma.MaskedArray))
        or _arrays.is_array(x)
        or _foreign_sparse(x) is not None
    )


def _foreign_sparse(x: object) -> str | None:
    """Which converter reads a sparse object of another library; None where `x` is none."""
    module = type(x).__module__
    if module.startswith("scipy.sparse"):
        return "from_scipy"
    if module.startswith("cupyx.scipy.sparse"):
        return "from_cupy"
    if not module.startswith("torch"):
        return None
    strided = str(getattr(x, "layout", "torch.strided")) == "torch.strided"
    return "from_torch" if not strided or _arrays.is_packed(x) else None


def as_sparse(x: Any) -> Any:
    """`x` as a matrix of ours if it is a sparse object of another library, else `x` itself."""
    converter = None if isinstance(x, SparseMatrix) else _foreign_sparse(x)
    if converter is None:
        return x
    from sparseformats import convert

    return getattr(convert, converter)(x)


def read(a: Any, b: Any) -> Operands:
    """Understand ``a @ b`` of exactly one sparse and one dense operand.

    Raises
    ------
    TypeError
        No sparse operand, no array, arrays of two libraries, or dtypes without promotion.
    ValueError
        Shapes that do not match, or a scalar operand.
    DeviceMismatchError
        Operands on two devices.
    NotImplementedError
        The dense operand requires grad while grad mode is on.
    """
    left = not isinstance(a, SparseMatrix)
    sparse, dense = (b, a) if left else (a, b)
    if not isinstance(sparse, SparseMatrix):
        raise TypeError(
            f"matmul needs a sparse matrix, got {type(a).__name__} and {type(b).__name__}"
        )
    lib = sparse.lib
    x = _dense(lib, dense, sparse)
    matrix, transposed = _stored(sparse, left)
    m, k = sparse.shape[::-1] if left else sparse.shape
    shape = _result_shape(sparse.shape, tuple(x.shape), left)
    dtype = result_dtype(lib, sparse.dtype_name, lib.dtype_name(x))
    return Operands(lib, matrix, transposed, m, k, x, left, shape, dtype)


def _dense(lib: ArrayLibrary, x: Any, sparse: SparseMatrix) -> Array:
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError("matmul takes no masked array: fill it first, for example x.filled(0)")
    if not _arrays.is_array(x):
        raise TypeError(
            f"matmul takes a NumPy, torch or CuPy array, got {type(x).__name__}; "
            "make an array of it first, for example with numpy.asarray"
        )
    same_place(sparse, x)
    if lib.dtype_name(x) not in VALUE_DTYPES[lib.name]:
        raise TypeError(
            f"matmul takes no {lib.name} array of dtype {x.dtype}, "
            f"expected one of {', '.join(VALUE_DTYPES[lib.name])}"
        )
    if lib.requires_grad(x):
        raise NotImplementedError(
            "matmul: gradients are not supported yet, and the dense operand requires grad; "
            "detach it, or call under torch.no_grad()"
        )
    refuse_stand_in(lib, x, "matmul")
    return lib.native(x)


def refuse_stand_in(lib: ArrayLibrary, x: Array, op: str) -> None:
    """Refuse what only looks like an array.

    Raises
    ------
    NotImplementedError
    """
    if lib.is_stand_in(x):
        raise NotImplementedError(
            f"{op}: transformations of {lib.name} are not supported: got an array that is a "
            "stand-in without memory or carries a tangent (vmap, jvp, forward_ad, fake tensors)"
        )


def same_place(sparse: SparseMatrix, x: Array) -> None:
    """Refuse operands of two libraries or on two devices.

    Raises
    ------
    TypeError, DeviceMismatchError
    """
    lib, other = sparse.lib, _arrays.of(x)
    if lib is not other:
        raise TypeError(
            f"matmul of a {lib.name} matrix and a {other.name} array: data never moves between "
            f"libraries unasked; use A.to_library({other.name!r})"
        )
    here, there = sparse.device, lib.device(x)
    if here != there:
        raise DeviceMismatchError(
            f"matmul of a matrix on {here!r} and an array on {there!r}: data never moves between "
            f"devices unasked; use A.to_device({there!r})"
        )


def _stored(sparse: SparseMatrix, flip: bool) -> tuple[SparseMatrix, bool]:
    """The matrix as stored, and whether the product needs its transpose."""
    transposed = flip
    if sparse.family == "transposed":
        sparse, transposed = sparse.T, not flip
    if transposed and sparse.family in ("csr", "csc"):
        return sparse.T, False  # shares the buffers
    return sparse, transposed


def _columns(shape: tuple[int, ...], left: bool) -> int:
    if len(shape) == 1:
        return 1
    return int(shape[-2] if left else shape[-1])


def _result_shape(a: tuple[int, int], x: tuple[int, ...], left: bool) -> tuple[int, ...]:
    if not x:
        raise ValueError("matmul takes no scalars: the dense operand is 0-dimensional")
    inner = x[-1] if left or len(x) == 1 else x[-2]
    if inner != (a[0] if left else a[1]):
        shapes = (x, a) if left else (a, x)
        raise ValueError(f"matmul: shapes {shapes[0]} and {shapes[1]} do not match")
    if left:
        return (*x[:-1], a[1])
    return (a[0],) if len(x) == 1 else (*x[:-2], a[0], x[-1])


def check_out(o: Operands, out: Any) -> None:
    """Refuse an `out` that cannot take the result; see `check_target`."""
    check_target(o.lib, o.matrix.device, o.shape, o.dtype, out)


def check_target(
    lib: ArrayLibrary, device: str, expected: tuple[int, ...], dtype: str, out: Any
) -> None:
    """Refuse an `out` that cannot take a result of this place, shape and dtype.

    Raises
    ------
    TypeError
        Not an array of the operands' library.
    ValueError
        Wrong shape or dtype, read-only, conjugated or negated when it is read, or broadcast.
    DeviceMismatchError
        It lies on another device.
    """
    if not _arrays.is_array(out) or _arrays.of(out) is not lib:
        raise TypeError(f"out must be a {lib.name} array, got {type(out).__name__}")
    if lib.device(out) != device:
        raise DeviceMismatchError(f"out is on {lib.device(out)!r}, the operands are on {device!r}")
    shape = tuple(int(s) for s in out.shape)
    if shape != expected:
        raise ValueError(f"out must have shape {expected}, got {shape}")
    if lib.dtype_name(out) != dtype or lib.native(out).dtype != out.dtype:
        raise ValueError(f"out must have dtype {dtype}, got {out.dtype}")
    if not lib.is_writeable(out):
        raise ValueError("out is read-only")
    if lib.is_lazy(out):
        raise ValueError(
            f"out is a view that {lib.name} conjugates or negates when it is read, and a kernel "
            "writes to its memory; pass what it is a view of"
        )
    if lib.requires_grad(out):
        raise NotImplementedError("matmul: gradients are not supported yet, and out requires grad")
    steps = zip(lib.strides(out), shape, strict=True)
    if 0 not in shape and any(step == 0 and size > 1 for step, size in steps):
        raise ValueError("out has elements that share memory (a broadcast view)")


def separate(lib: ArrayLibrary, x: Array, out: Array, buffers: Iterable[Array]) -> Array:
    """Return `x`, or a copy of it where writing to `out` would change it.

    Raises
    ------
    ValueError
        `out` shares memory with a buffer of the sparse matrix.
    """
    for buffer in buffers:
        if lib.overlaps(out, buffer):
            raise ValueError(_SHARED)
    return lib.copy(x) if lib.overlaps(out, x) else x


def guard(
    lib: ArrayLibrary, x: Array, out: Array, buffers: Iterable[Array]
) -> Callable[[Array, Array], Array]:
    """Return `separate` for operands shaped and strided as these, which reads two addresses only.

    Keeps neither `x` nor `out`.
    """
    if not lib.addressed:
        kept = tuple(buffers)
        return lambda x, out: separate(lib, x, out, kept)
    (x_low, x_high), (out_low, out_high) = _reach(lib, x), _reach(lib, out)
    spans = [span for span in map(lib.extent, buffers) if span[0] < span[1]]
    first = min((start for start, _ in spans), default=0)
    last = max((end for _, end in spans), default=0)
    address = lib.pointer()

    def separated(x: Array, out: Array) -> Array:
        at = address(out)
        low, high = at + out_low, at + out_high
        if low < last and first < high:  # most often they lie elsewhere altogether
            for start, end in spans:
                if low < end and start < high:
                    raise ValueError(_SHARED)
        at = address(x)
        return lib.copy(x) if low < at + x_high and at + x_low < high else x

    return separated


def _reach(lib: ArrayLibrary, x: Array) -> tuple[int, int]:
    """The extent of an array, counted from its first element."""
    if 0 in x.shape:
        return _NOWHERE
    at = lib.address(x)
    low, high = lib.extent(x)
    return low - at, high - at
