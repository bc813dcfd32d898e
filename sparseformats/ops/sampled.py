"""Sampled products: ``alpha * (X @ Y)`` computed only where a pattern stores an element."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple, cast

import numpy as np

from sparseformats import _arrays, dispatch
from sparseformats._arrays import Array, ArrayLibrary, placed
from sparseformats._dtypes import VALUE_DTYPES
from sparseformats.dispatch import Explanation, Query
from sparseformats.errors import DeviceMismatchError
from sparseformats.formats import SparseMatrix, Sum, Transposed
from sparseformats.formats.slots import Sampled, marks
from sparseformats.ops.compiling import DYNAMO, entry, modules, opaque, watched
from sparseformats.ops.facts import aligned, as_precision, layout, matrix_facts
from sparseformats.ops.known_calls import Decided, find, keep, key_of
from sparseformats.ops.operands import as_sparse, refuse_stand_in
from sparseformats.ops.scalars import Scalar, as_scalar, result_dtype

__all__ = ["SampledKernel", "explain_sddmm", "sddmm"]

SampledKernel = Callable[[SparseMatrix, Array, Array, Scalar, Query], Sampled | Array]
"""A kernel of the operation ``"sddmm"``: ``f(A, X, Y, alpha, query) -> values``.

`A` is the pattern as stored, never a `Transposed`; X (m, n) and Y (n, k) are of one dtype,
``query.x_dtype``, of any strides, and n is ``query.n``. Returned are new values of
``query.out_dtype`` in the shape of ``A.data``; what they are in slots that hold no stored element
does not matter. An n:m matrix here has no side record.
"""


class _Call(NamedTuple):
    """A sampled product as kernels see it: the pattern is as stored.

    An n:m matrix with stored zeros beside its slots is a pattern of COO, and `format` n:m.
    """

    lib: ArrayLibrary
    pattern: SparseMatrix
    X: Array
    Y: Array
    alpha: Scalar
    dtype: str
    transposed: bool
    format: str


@entry
@placed
def sddmm(
    pattern: Any,
    X: Any,
    Y: Any,
    *,
    alpha: Any = 1,
    kernel: str | None = None,
    precision: str | None = None,
) -> SparseMatrix:
    """Compute ``alpha * (X @ Y)`` at the stored elements of a pattern, and nowhere else.

    Only *where* the pattern stores elements matters, not its values: this is
    ``torch.sparse.sampled_addmm`` with beta = 0. Scale by the values afterwards where that is
    wanted.

    Parameters
    ----------
    pattern : SparseMatrix
        (m, k) of any format. SciPy's, torch's and CuPy's sparse matrices are converted first.
    X : (m, n) array
        Of the pattern's library and device, any strides.
    Y : (n, k) array
        As `X`; the two may differ in dtype.
    alpha : number
        A Python number that the result's dtype can hold.
    kernel : str, optional
        Use this kernel, see `sparseformats.kernels`.
    precision : str, optional
        As in `matmul`.

    Returns
    -------
    SparseMatrix
        Of the pattern's format (a `Sum` part by part), shape and stored elements: one that is
        computed as zero stays stored. Its dtype is that of ``X @ Y``, as `matmul` has it.

    Raises
    ------
    ValueError
        Shapes that do not match.
    PatternError
        An n:m pattern with more stored elements in a group than slots, whose values do not fit.
    TypeError, DeviceMismatchError
        Operands that are no matrices of the pattern's library, or on another device.
    NoKernelError
        No kernel can serve the call; the text has every reason.
    NotImplementedError
        An operand requires grad while grad mode is on.

    Notes
    -----
    Every element is a whole dot product: a NaN in row i of `X` reaches each stored element of row
    i, in every format. Half types are summed in float32 and rounded once.

    Examples
    --------
    >>> import numpy as np
    >>> import sparseformats as sf
    >>> P = sf.CSR([1.0, 1.0], [1, 0], [0, 1, 2], (2, 2))
    >>> S = sf.sddmm(P, np.array([[1.0, 2.0], [3.0, 4.0]]), np.eye(2))
    >>> S.to_dense()
    array([[0., 2.],
           [3., 0.]])
    """
    if DYNAMO in modules and watched():
        return opaque(sddmm)(pattern, X, Y, alpha=alpha, kernel=kernel, precision=precision)
    if isinstance(pattern, Sum):
        options: dict[str, Any] = {"alpha": alpha, "kernel": kernel, "precision": precision}
        return Sum.trusted(parts=tuple(sddmm(part, X, Y, **options) for part in pattern.parts))
    plain = type(alpha) in (int, float)
    key = key_of(pattern, (X, Y), alpha == 1, kernel, precision) if plain else None
    decided = find(pattern, key)
    if decided is None:
        call = _read(pattern, X, Y, alpha)
        query = _query(call, call.pattern, precision)
        decided = Decided(query, dispatch.select(query, kernel), call.dtype)
        same = _arrays.of(X).dtype_name(X) == _arrays.of(Y).dtype_name(Y)
        if call.pattern is pattern and same:
            keep(pattern, key, decided)
    else:
        lib = pattern.lib
        factor = as_scalar(alpha, "alpha", decided.dtype)
        operands = lib.native(X), lib.native(Y)
        call = _Call(lib, pattern, *operands, factor, decided.dtype, False, pattern.format)
    found = _like(call.pattern, _run(call, decided))
    if call.format != found.format:
        found = found.to(call.format)  # laid out anew: who needs a slot shows only now
    return found.T if call.transposed else found


def explain_sddmm(
    pattern: Any,
    X: Any,
    Y: Any,
    *,
    alpha: Any = 1,
    kernel: str | None = None,
    precision: str | None = None,
) -> Explanation:
    """Tell which kernel `sddmm` would run for these arguments, and why not any other one.

    Parameters
    ----------
    pattern, X, Y, alpha, kernel, precision
        As in `sddmm`.
    """
    if isinstance(pattern, Sum):
        raise TypeError(
            "explain('sddmm') tells about one kernel, and each part of a Sum gets its own: ask for "
            "each of S.parts"
        )
    call = _read(pattern, X, Y, alpha)
    return dispatch.explain(_query(call, call.pattern, precision), kernel)


def _read(pattern: Any, X: Any, Y: Any, alpha: Any) -> _Call:
    """Refuse what has no meaning; see a transposed pattern from its other side."""
    A = as_sparse(pattern)
    if not isinstance(A, SparseMatrix):
        raise TypeError(f"sddmm needs a sparse pattern, got {type(pattern).__name__}")
    lib = A.lib
    x, y = _operand(A, X, "X"), _operand(A, Y, "Y")
    (m, n), (n_too, k) = tuple(x.shape), tuple(y.shape)
    if (m, k) != A.shape or n != n_too:
        raise ValueError(
            f"sddmm: X {tuple(x.shape)} @ Y {tuple(y.shape)} does not match a pattern {A.shape}"
        )
    names = lib.dtype_name(x), lib.dtype_name(y)
    dtype = result_dtype(lib, *names)
    factor = as_scalar(alpha, "alpha", dtype)
    common = lib.result_dtype(*names)
    x, y = lib.astype(x, common), lib.astype(y, common)
    transposed = isinstance(A, Transposed)
    if isinstance(A, Transposed):
        A, x, y = A.base, y.mT, x.mT
    name = A.format
    if getattr(A, "side", None) is not None:
        A = A.to("coo")
    return _Call(lib, A, x, y, factor, dtype, transposed, name)


def _operand(A: SparseMatrix, x: Any, name: str) -> Array:
    lib = A.lib
    if isinstance(x, np.ma.MaskedArray) or not _arrays.is_array(x):
        raise TypeError(f"sddmm takes dense arrays, {name} is {type(x).__name__}")
    if _arrays.of(x) is not lib:
        raise TypeError(
            f"sddmm of a {lib.name} pattern, but {name} is a {_arrays.of(x).name} array: data "
            f"never moves between libraries unasked; use A.to_library({_arrays.of(x).name!r})"
        )
    if lib.device(x) != A.device:
        raise DeviceMismatchError(
            f"sddmm of a pattern on {A.device!r}, but {name} is on {lib.device(x)!r}: data never "
            "moves between devices unasked"
        )
    if lib.dtype_name(x) not in VALUE_DTYPES[lib.name]:
        raise TypeError(f"sddmm takes no {lib.name} array of dtype {x.dtype}, as {name} is")
    if len(x.shape) != 2:
        raise ValueError(f"sddmm takes matrices, {name} has shape {tuple(x.shape)}")
    if lib.requires_grad(x):
        raise NotImplementedError(
            f"sddmm: gradients are not supported yet, and {name} requires grad; detach it, or call "
            "under torch.no_grad()"
        )
    refuse_stand_in(lib, x, "sddmm")
    return lib.native(x)


def _query(call: _Call, A: SparseMatrix, precision: str | None) -> Query:
    lib = call.lib
    return Query(
        "sddmm",
        A.family,
        m=A.shape[0],
        k=A.shape[1],
        n=int(call.X.shape[1]),
        **matrix_facts(lib, A),
        x_dtype=lib.dtype_name(call.X),
        out_dtype=call.dtype,
        x_layout=layout(lib, call.X),
        x_aligned=aligned(lib, call.X),
        alpha_one=call.alpha == 1,
        precision=as_precision(precision, lib, call.X, call.dtype),
    )


def _run(call: _Call, decided: Decided) -> Sampled | Array:
    """Values in the layout of ``A.data``."""
    query, selection = decided.query, decided.selection
    kernel = cast("SampledKernel", selection.target)
    start = perf_counter()
    values = kernel(call.pattern, call.X, call.Y, call.alpha, query)
    if dispatch.is_tracing():
        dispatch.record_run("sddmm", selection.name, query, perf_counter() - start)
    return values


def _like(A: SparseMatrix, made: Sampled | Array) -> SparseMatrix:
    """`A` with other values: the same elements are stored, whatever their values."""
    lib, static = A.lib, A.static()
    buffers = {name: array for name, array in A.buffers().items() if name != "zeros"}
    values = made
    if isinstance(made, Sampled):
        values = made.values
        if made.vanished is None or not int(lib.item(made.vanished)):
            return type(A).from_parts({**buffers, "data": values}, static)
    if hasattr(A, "stored_mask"):
        stored = A.stored_mask()
        values = lib.where(stored, values, lib.zeros(1, lib.dtype_name(values), A.device))
        found = None if "zeros" in static else marks(lib, values, stored)
        if found is not None:
            buffers["zeros"] = found
    return type(A).from_parts({**buffers, "data": values}, static)
