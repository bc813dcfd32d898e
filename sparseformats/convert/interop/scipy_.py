"""SciPy's sparse arrays and matrices."""

from __future__ import annotations

from typing import Any

from sparseformats._dtypes import VALUE_DTYPES
from sparseformats.convert.interop.common import (
    instead_of,
    only_blocks_choose,
    ragged,
    without_spare_room,
)
from sparseformats.formats import BSR, COO, CSC, CSR, SparseMatrix

__all__ = ["from_scipy", "to_scipy"]

# scipy.sparse takes any dtype at some of its doors, but computes with these only.
_SCIPY_DTYPES = tuple(name for name in VALUE_DTYPES["numpy"] if name not in ("float16", "bfloat16"))
_FOREIGN = {"torch": "sparseformats.from_torch", "cupyx": "sparseformats.from_cupy"}


def from_scipy(
    S: Any,
    *,
    stored: Any = "nonzero",
    copy: bool = True,
    check: bool = True,
    index_dtype: Any = None,
) -> SparseMatrix:
    """Take over a SciPy sparse array or matrix.

    Parameters
    ----------
    S : sparse array or matrix
        ``coo``, ``csr``, ``csc`` and ``bsr`` keep their format. ``dia`` and ``dok`` become COO and
        ``lil`` becomes CSR by SciPy's own conversion, which keeps explicit entries of ``dok`` and
        ``lil`` and only the non-zeros of ``dia``.
    stored : ``"nonzero"``, ``"all"`` or (nnzb, R, C) bool array
        Of ``bsr``: which slots of its blocks are stored elements, see `BSR`.
    copy : bool
        ``False`` shares the arrays where nothing has to be sorted or summed, and promises that
        nobody writes to them, SciPy's own in-place methods included.
    check : bool
        ``False`` promises canonical form.
    index_dtype : optional
        ``"int32"`` or ``"int64"``; default keeps the width given.

    Returns
    -------
    COO, CSR, CSC or BSR
        Sorted, duplicates summed, spare room behind ``indptr[-1]`` cut off.

    Raises
    ------
    TypeError
        Not a SciPy sparse object, or a dtype such as object or longdouble.
    ValueError
        Not two-dimensional, or a BSR whose blocks do not divide its shape.
    InvalidTensorError
        Broken structure; carries every problem.
    OverflowError
        A sum of integer duplicates, or an index, does not fit.

    Notes
    -----
    `S` is never changed: no in-place method of SciPy is called on it.
    *Loses*: nothing.

    Examples
    --------
    >>> import scipy.sparse, sparseformats as sf
    >>> sf.from_scipy(scipy.sparse.csr_array([[0.0, 2.0], [3.0, 0.0]]))
    <CSR 2x2, float64, nnz=2, numpy on cpu>
    """
    _require_matrix(S)
    options = {"copy": copy, "check": check, "index_dtype": index_dtype}
    if S.format in ("dia", "dok"):
        S = S.tocoo()
    elif S.format == "lil":
        S = S.tocsr()
    if S.format != "bsr":
        only_blocks_choose("from_scipy", stored)
    if S.format == "coo":
        return COO(S.data, S.row, S.col, S.shape, **options)
    data, indices = without_spare_room(S.data, S.indices, S.indptr)
    if S.format == "bsr":
        _require_divided(S)
        return BSR(data, indices, S.indptr, S.shape, stored=stored, **options)
    cls = CSR if S.format == "csr" else CSC
    return cls(data, indices, S.indptr, S.shape, **options)


def _require_matrix(S: Any) -> None:
    import scipy.sparse as sp

    if not sp.issparse(S):
        root = type(S).__module__.partition(".")[0]
        instead = _FOREIGN.get(root, "sparseformats.from_dense for dense arrays")
        raise TypeError(
            f"from_scipy takes a SciPy sparse array or matrix, got {type(S).__name__}; "
            f"use {instead}"
        )
    if len(S.shape) != 2:
        raise ValueError(
            f"from_scipy: matrices have two dimensions, got a {S.format} array of shape "
            f"{S.shape}; reshape it first, for example S.reshape(1, -1)"
        )


def _require_divided(S: Any) -> None:
    (m, n), (r, c) = S.shape, S.blocksize
    if m % r or n % c:
        # SciPy's constructor lets this pass and then never reads the last rows and columns.
        raise ValueError(
            f"from_scipy: a SciPy bsr array of shape {(m, n)} must be a multiple of its "
            f"blocksize {(r, c)}; build sparseformats.BSR from its arrays to mean a ragged edge"
        )


def to_scipy(A: SparseMatrix) -> Any:
    """SciPy sparse array (``coo_array``, ``csr_array``, ``csc_array``, ``bsr_array``) of `A`.

    The arrays are copies: SciPy's objects change in place. Index widths are kept, and the flags
    of canonical form are set, because it holds.

    Parameters
    ----------
    A : COO, CSR, CSC or BSR
        With NumPy buffers; the blocks of a BSR must divide its shape.

    Raises
    ------
    TypeError
        SciPy has no such format or dtype, the blocks do not divide the shape, or the buffers are
        not NumPy arrays. The text names alternatives.

    Notes
    -----
    *Loses*: of a BSR, the marks of stored zeros; every value and block is kept.

    Examples
    --------
    >>> import sparseformats as sf
    >>> sf.CSR([2.0, 3.0], [1, 0], [0, 1, 2], (2, 2)).to_scipy().toarray()
    array([[0., 2.],
           [3., 0.]])
    """
    _refuse(A)
    import scipy.sparse as sp

    own = {name: A.lib.copy(x) for name, x in A.buffers().items()}
    if A.family == "coo":
        row, col = own["row"], own["col"]
        S = sp.coo_array((own["data"], (row, col)), shape=A.shape)
        S.coords = (row, col)  # the constructor may have changed the width
        S.has_canonical_format = True
        return S
    cls = {"csr": sp.csr_array, "csc": sp.csc_array, "bsr": sp.bsr_array}[A.family]
    S = cls((own["data"], own["indices"], own["indptr"]), shape=A.shape)
    S.indices, S.indptr = own["indices"], own["indptr"]
    S.has_sorted_indices = True
    S.has_canonical_format = True
    return S


def _refuse(A: SparseMatrix) -> None:
    if A.family not in ("coo", "csr", "csc", "bsr"):
        raise TypeError(f"SciPy has no {A.format} format; use {instead_of(A)} first")
    if A.library != "numpy":
        way = 'A.to_library("numpy")' if A.device == "cpu" else 'A.to_device("cpu", "numpy")'
        raise TypeError(
            f"SciPy holds NumPy arrays, the buffers are {A.library} arrays on {A.device!r}; "
            f"use {way}.to_scipy()"
        )
    if A.dtype_name not in _SCIPY_DTYPES:
        raise TypeError(
            f"scipy.sparse has no {A.dtype_name} values, only {', '.join(_SCIPY_DTYPES)}; cast "
            'A.data and build the matrix anew, or use A.to_library("torch").to_torch()'
        )
    uneven = ragged(A)
    if uneven:
        raise TypeError(
            f'SciPy\'s bsr must be divided by its blocks, {uneven}; use A.to("csr"), or a '
            "blocksize that divides the shape"
        )
