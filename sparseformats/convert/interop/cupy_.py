"""CuPy's sparse matrices (`cupyx.scipy.sparse`)."""

from __future__ import annotations

from typing import Any

from sparseformats._arrays import placed
from sparseformats._dtypes import INT32_MAX
from sparseformats.convert.interop.common import only_blocks_choose, without_spare_room
from sparseformats.convert.interop.move import to_library
from sparseformats.formats import COO, CSC, CSR, SparseMatrix

__all__ = ["from_cupy", "to_cupy"]

_CUPY_DTYPES = ("bool", "float32", "float64", "complex64", "complex128")


@placed
def from_cupy(
    C: Any,
    *,
    stored: str = "nonzero",
    copy: bool = True,
    check: bool = True,
    index_dtype: Any = None,
) -> SparseMatrix:
    """Take over a `cupyx.scipy.sparse` matrix, on its device.

    Parameters
    ----------
    C : sparse matrix or array of cupyx
        ``coo``, ``csr`` and ``csc`` keep their format; ``dia`` becomes CSR by CuPy's own
        conversion, which keeps only its non-zeros.
    stored : ``"nonzero"`` or ``"all"``
        For symmetry with `from_scipy`; CuPy has no block format, every element is stored.
    copy, check, index_dtype
        As of `from_scipy`.

    Returns
    -------
    COO, CSR or CSC
        Sorted, duplicates summed, spare room behind ``indptr[-1]`` cut off.

    Raises
    ------
    TypeError
        Not a sparse object of CuPy.
    ValueError
        Not two-dimensional.
    InvalidTensorError
        Broken structure; carries every problem.

    Notes
    -----
    `C` is never changed. *Loses*: nothing.
    """
    _require_matrix(C)
    only_blocks_choose("from_cupy", stored)
    options = {"copy": copy, "check": check, "index_dtype": index_dtype}
    shape = tuple(int(s) for s in C.shape)
    if C.format == "coo":
        return COO(C.data, C.row, C.col, shape, **options)
    if C.format not in ("csr", "csc"):
        C = C.tocsr()
    data, indices = without_spare_room(C.data, C.indices, C.indptr)
    cls = CSR if C.format == "csr" else CSC
    return cls(data, indices, C.indptr, shape, **options)


def _require_matrix(C: Any) -> None:
    # The library is asked only where the object claims to be its own: CuPy may not be installed.
    if type(C).__module__.partition(".")[0] == "cupyx":
        import cupyx.scipy.sparse as csp

        if csp.issparse(C):
            if len(C.shape) != 2:
                raise ValueError(
                    f"from_cupy: matrices have two dimensions, got a {C.format} array of shape "
                    f"{C.shape}"
                )
            return
    raise TypeError(
        f"from_cupy takes a sparse matrix of cupyx.scipy.sparse, got {type(C).__name__}; use "
        "sparseformats.from_dense for dense arrays, from_scipy or from_torch for those libraries"
    )


@placed
def to_cupy(A: SparseMatrix) -> Any:
    """`cupyx.scipy.sparse` matrix (``coo_matrix``, ``csr_matrix``, ``csc_matrix``) of `A`.

    The arrays are copies on the same device: CuPy's objects change in place. CuPy itself stores
    int64 indices as int32 where all of them fit.

    Parameters
    ----------
    A : COO, CSR or CSC
        With CuPy buffers, or torch buffers on a CUDA device.

    Raises
    ------
    TypeError
        CuPy has no such format or dtype, or the buffers are on the CPU; the text names
        alternatives.
    OverflowError
        The installed CuPy narrows indices that int32 cannot express.

    Notes
    -----
    *Loses*: nothing.
    """
    _refuse(A)
    held = to_library(A, "cupy")
    import cupy
    import cupyx.scipy.sparse as csp

    with cupy.cuda.Device(held.data.device.id):
        own = {name: held.lib.copy(x) for name, x in held.buffers().items()}
        if A.family == "coo":
            made = csp.coo_matrix((own["data"], (own["row"], own["col"])), shape=A.shape)
        else:
            cls = csp.csr_matrix if A.family == "csr" else csp.csc_matrix
            made = cls((own["data"], own["indices"], own["indptr"]), shape=A.shape)
    _require_width(held, made)
    return made


def _refuse(A: SparseMatrix) -> None:
    if A.family not in ("coo", "csr", "csc"):
        raise TypeError(f'CuPy has no {A.format} format; use A.to("csr") first')
    if A.dtype_name not in _CUPY_DTYPES:
        raise TypeError(
            f"CuPy's sparse matrices have no {A.dtype_name} values, only "
            f"{', '.join(_CUPY_DTYPES)}; cast A.data and build the matrix anew"
        )
    if not A.device.startswith("cuda"):
        raise TypeError(
            f"CuPy's arrays live on CUDA devices, the buffers are {A.library} arrays on "
            f'{A.device!r}; use A.to_device("cuda", "cupy").to_cupy()'
        )


def _require_width(A: SparseMatrix, made: Any) -> None:
    """Older CuPy casts every index to int32 without a look."""
    lib = A.lib
    kept = made.row if A.family == "coo" else made.indices
    if lib.dtype_name(kept) == "int64" or max(*A.shape, A.nnz) <= INT32_MAX:
        return
    index = [x for name, x in A.buffers().items() if name != "data"]
    largest = max(lib.max_int(x) for x in index)
    if largest > INT32_MAX:
        raise OverflowError(f"this CuPy stores indices as int32, which cannot express {largest}")
