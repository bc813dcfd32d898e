"""The front doors of conversion: `convert`, `to_dense`, `from_dense`, `asformat`."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparseformats import _arrays
from sparseformats._arrays import Array, ArrayLibrary, placed
from sparseformats._dtypes import VALUE_DTYPES
from sparseformats.convert.graph import Node, path
from sparseformats.convert.request import node_of, requested
from sparseformats.convert.run import follow
from sparseformats.errors import DeviceMismatchError
from sparseformats.formats import SparseMatrix, Sum, Transposed
from sparseformats.formats.inputs import index_name, narrowed

__all__ = ["asformat", "convert", "dense_of", "from_dense", "mask_of", "to_dense"]

_NOT_INDICES = ("data", "side_data", "zeros")


@placed
def convert(
    A: SparseMatrix, format: str, *, blocksize: Any = None, index_dtype: Any = None
) -> SparseMatrix:
    """Convert a matrix to another format without losing anything; see `SparseMatrix.to`.

    Raises
    ------
    TypeError, ValueError
        `A` is no matrix of this library; unknown format; missing or bad block size.
    PatternError, OverflowError, MemoryError
        The target cannot hold the content, the index width, or memory the result.
    NotImplementedError
        The values require grad while grad mode is on.
    """
    if not isinstance(A, SparseMatrix):
        raise TypeError(
            f"convert takes a matrix of this library, got {type(A).__name__}; use "
            "sparseformats.asformat for anything else"
        )
    source = node_of(A)
    target = requested(format, blocksize, source)
    width = index_name(index_dtype)
    if source != target:
        _refuse_grad(A.lib, f"to({format!r})", *A.value_buffers())
        A = follow(A, path(source, target), width)
    return A if width is None else _in_width(A, width)


@placed
def to_dense(A: SparseMatrix) -> Array:
    """Dense array (m, n) of the same library and device; see `SparseMatrix.to_dense`.

    That of a transposed view is the transpose of its base's, and so in column-major order.
    """
    _refuse_grad(A.lib, "to_dense", *A.value_buffers())
    return follow(A, path(node_of(A), Node("dense")))


@placed
def from_dense(
    D: Any,
    format: str = "csr",
    *,
    mask: Any = None,
    blocksize: Any = None,
    index_dtype: Any = None,
) -> SparseMatrix:
    """Make a sparse matrix from a dense array, on the array's device.

    Parameters
    ----------
    D : (m, n) array of any library and strides, or nested lists
    format : str
        As of `SparseMatrix.to`.
    mask : (m, n) bool array, optional
        Store exactly the elements that it selects, zeros included. By default an element is
        stored when it is not zero; -0.0 is a zero here, NaN is not.
    blocksize : (R, C) or int, optional
        For the block formats.
    index_dtype : optional
        ``"int32"`` (the default where it suffices) or ``"int64"``.

    Returns
    -------
    SparseMatrix
        Shares no memory with `D`.

    Raises
    ------
    TypeError
        `D` is sparse already, is no array, or has an unsupported dtype; `mask` is not bool.
    ValueError
        `D` is not 2-D, `mask` has another shape; unknown format or bad block size.
    DeviceMismatchError
        `mask` is on another device.
    PatternError, OverflowError, MemoryError
        As of `SparseMatrix.to`.
    NotImplementedError
        `D` requires grad while grad mode is on.

    Notes
    -----
    *Loses*: the sign of zeros that are not selected by a mask.

    Examples
    --------
    >>> import sparseformats as sf
    >>> sf.from_dense([[0.0, 2.0], [0.0, 0.0]])
    <CSR 2x2, float64, nnz=1, numpy on cpu>
    """
    lib, D = dense_of(D, "from_dense")
    target = requested(format, blocksize, Node("dense"), "from_dense")
    width = index_name(index_dtype)
    chosen = None if mask is None else mask_of(lib, mask, D, "from_dense")
    made: SparseMatrix = follow(D, path(Node("dense"), target), width, chosen)
    return made if width is None else _in_width(made, width)


def asformat(x: Any, format: str | None = None, **options: Any) -> SparseMatrix:
    """Make a matrix of this library from anything that is a matrix.

    Parameters
    ----------
    x : SparseMatrix, SciPy, CuPy or torch sparse object, dense array or nested lists
    format : str, optional
        As of `SparseMatrix.to`; by default that of `x` (``"csr"`` for dense).
    **options
        ``blocksize``, ``index_dtype``, and ``mask`` for dense `x`.

    Raises
    ------
    TypeError
        `x` is nothing of the kind.
    ValueError, PatternError, OverflowError, MemoryError
        As of `SparseMatrix.to` and `from_dense`.

    Examples
    --------
    >>> import scipy.sparse
    >>> import sparseformats as sf
    >>> sf.asformat(scipy.sparse.eye_array(3, format="csr"), "coo")
    <COO 3x3, float64, nnz=3, numpy on cpu>
    """
    if not isinstance(x, SparseMatrix):
        importer = _importer(x)
        if importer is None:
            return from_dense(x, format or "csr", **options)
        from sparseformats.convert import interop

        x = getattr(interop, importer)(x)
    if "mask" in options:
        raise TypeError(
            f"asformat: mask= selects elements of a dense array, got a sparse {x.format} matrix"
        )
    return x if format is None and not options else convert(x, format or x.format, **options)


def _importer(x: Any) -> str | None:
    """Name of the interop function for a sparse object; None for what may be dense."""
    if str(getattr(x, "layout", "")).startswith("torch.sparse") or _arrays.is_packed(x):
        return "from_torch"
    modules = {cls.__module__ for cls in type(x).__mro__}
    if any(name.startswith("cupyx.scipy.sparse") for name in modules):
        return "from_cupy"
    return "from_scipy" if any(name.startswith("scipy.sparse") for name in modules) else None


def dense_of(D: Any, what: str) -> tuple[ArrayLibrary, Array]:
    """Read a dense array; `what` is the operation, for messages."""
    if isinstance(D, SparseMatrix) or _importer(D) is not None:
        name = _importer(D) or "A.to"
        raise TypeError(f"{what} takes a dense array, got {type(D).__name__}; use {name}")
    if isinstance(D, np.ma.MaskedArray):
        raise TypeError(f"{what}: got a masked array; fill it first, e.g. D.filled(0)")
    if isinstance(D, list | tuple):
        D = np.asarray(D)
    if not _arrays.is_array(D):
        raise TypeError(
            f"{what} takes a NumPy, torch or CuPy array or lists, got {type(D).__name__}"
        )
    lib = _arrays.of(D)
    name = lib.dtype_name(D)
    if name not in VALUE_DTYPES[lib.name]:
        raise TypeError(
            f"{what}: values of dtype {name} are not supported for {lib.name} arrays, "
            f"expected one of {', '.join(VALUE_DTYPES[lib.name])}"
        )
    if len(D.shape) != 2:
        raise ValueError(f"{what} takes a 2-D array, got shape {tuple(D.shape)}")
    _refuse_grad(lib, what, D)
    if lib.device(D) == "meta":
        raise ValueError(f"{what}: an array on device 'meta' holds no values")
    return lib, lib.native(D)


def mask_of(lib: ArrayLibrary, mask: Any, D: Array, what: str) -> Array:
    """Read the mask of a dense array."""
    mask = lib.asarray(mask, device=lib.device(D)) if isinstance(mask, list | tuple) else mask
    sparse = _importer(mask) is not None
    if sparse or not lib.owns(mask) or lib.dtype_name(mask) != "bool":
        found = f"a sparse {type(mask).__name__}" if sparse else type(mask).__name__
        found = lib.dtype_name(mask) if lib.owns(mask) and not sparse else found
        raise TypeError(f"{what}: mask must be a bool array of {lib.name}, got {found}")
    if tuple(mask.shape) != tuple(D.shape):
        raise ValueError(
            f"{what}: mask must have the array's shape {tuple(D.shape)}, got {tuple(mask.shape)}"
        )
    if lib.device(mask) != lib.device(D):
        raise DeviceMismatchError(
            f"{what}: D is on {lib.device(D)!r} but mask is on {lib.device(mask)!r}"
        )
    return mask


def _refuse_grad(lib: ArrayLibrary, what: str, *values: Array) -> None:
    if any(lib.requires_grad(x) for x in values):
        raise NotImplementedError(
            f"{what}: gradients through a conversion are not supported yet; detach the values, "
            "or call it under torch.no_grad()"
        )


def _in_width(A: SparseMatrix, width: str) -> SparseMatrix:
    """`A` with index arrays of a width; `A` itself where they have it."""
    if isinstance(A, Transposed):
        base = _in_width(A.base, width)
        return A if base is A.base else base.T
    if isinstance(A, Sum):
        parts = tuple(_in_width(part, width) for part in A.parts)
        same = all(new is old for new, old in zip(parts, A.parts, strict=True))
        return A if same else Sum.trusted(parts=parts)
    lib, buffers = A.lib, A.buffers()
    wrong = {
        name: x
        for name, x in buffers.items()
        if name not in _NOT_INDICES and lib.dtype_name(x) in {"int32", "int64"} - {width}
    }
    if not wrong:
        return A
    made = {name: narrowed(lib, x, width, name) for name, x in wrong.items()}
    return type(A).from_parts({**buffers, **made}, A.static())
