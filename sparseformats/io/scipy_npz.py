"""SciPy's ``.npz`` of sparse matrices, for what it can hold."""

from __future__ import annotations

from typing import Any

from sparseformats.convert.interop import from_scipy, to_device, to_scipy
from sparseformats.errors import LossyConversionError
from sparseformats.formats import SparseMatrix
from sparseformats.formats.slots import count_nonzero
from sparseformats.io.files import DAMAGED, File, name_of, reading, writing

__all__ = ["load_scipy_npz", "save_scipy_npz"]


def save_scipy_npz(target: File, A: SparseMatrix, *, compressed: bool = True) -> None:
    """Write a file that `scipy.sparse.load_npz` reads.

    Parameters
    ----------
    target : path or file object
        As of `save`.
    A : COO, CSR, CSC or BSR
        Of any library and device.
    compressed : bool
        Whether members are deflated.

    Raises
    ------
    LossyConversionError
        A BSR with stored zeros: the file cannot mark them.
    TypeError
        SciPy has no such format or dtype, or the blocks do not divide the shape; the text names
        alternatives.

    Notes
    -----
    *Loses*: nothing.
    """
    if not isinstance(A, SparseMatrix):
        raise TypeError(f"expected a matrix of sparseformats, got {type(A).__name__}")
    zeros = getattr(A, "zeros", None)
    if zeros is not None:
        many = A.nnz - count_nonzero(A.lib, A.data)
        if many:
            raise LossyConversionError(
                f"SciPy's .npz cannot mark stored zeros of blocks: {many} of the {A.nnz} stored "
                'elements would become fill; use sparseformats.io.save, or A.to("csr")'
            )
    S = to_scipy(A if A.library == "numpy" else to_device(A, "cpu", "numpy"))
    import scipy.sparse as sp

    with writing(target) as stream:
        sp.save_npz(stream, S, compressed=compressed)


def load_scipy_npz(
    source: File, *, stored: Any = "nonzero", check: bool = True, index_dtype: Any = None
) -> SparseMatrix:
    """Read a file of `scipy.sparse.save_npz`.

    Parameters
    ----------
    source : path or file object
    stored, check, index_dtype
        As of `from_scipy`.

    Returns
    -------
    COO, CSR, CSC or BSR
        On NumPy arrays; ``dia`` becomes COO.

    Raises
    ------
    ValueError
        Not such a file, or damaged.
    InvalidTensorError, TypeError
        As of `from_scipy`.
    """
    import scipy.sparse as sp

    name = name_of(source)
    with reading(source) as stream:
        try:
            S = sp.load_npz(stream)
        except (*DAMAGED, ValueError, KeyError, TypeError) as error:
            reason = str(error) or type(error).__name__
            raise ValueError(
                f"{name} is no file of scipy.sparse.save_npz, or is damaged: {reason}"
            ) from error
    return from_scipy(S, stored=stored, copy=False, check=check, index_dtype=index_dtype)
