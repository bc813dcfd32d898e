"""Compressed sparse columns.

Layout
------
``data (nnz,)``, ``indices (nnz,)`` rows, ``indptr (n + 1,)``: column i owns
``data[indptr[i]:indptr[i + 1]]``. The two index arrays share a dtype.

Invariants
----------
1. ``length``: ``data`` and ``indices`` have one length; ``indptr`` has n + 1 elements.
2. ``library``, ``device``: all arrays live in one library, on one device.
3. ``indptr-start``, ``indptr-end``, ``indptr-ascending``: from 0 to nnz, never falling.
4. ``index-range``: ``0 <= indices < m``.
5. ``sorted``: indices are strictly ascending within each column, so no position occurs twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

from sparseformats._arrays import Array, placed
from sparseformats.errors import Problem
from sparseformats.formats.base import SparseMatrix, assign
from sparseformats.formats.compressed import compressed_fields, compressed_problems

if TYPE_CHECKING:
    from sparseformats.formats.csr import CSR

__all__ = ["CSC"]


@final
@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, init=False, repr=False)
class CSC(SparseMatrix):
    """Sparse matrix as compressed columns.

    Parameters
    ----------
    data : (nnz,) array
    indices : (nnz,) integer array
        Row of each element, in any order; equal positions are summed.
    indptr : (n + 1,) integer array
    shape : (m, n)
    copy : bool
        ``False`` shares the arrays and promises that nobody writes to them.
    check : bool
        ``False`` promises canonical form.
    index_dtype : optional
        ``"int32"`` or ``"int64"``; default keeps the width given.

    Raises
    ------
    InvalidTensorError
        The arrays form no matrix; carries every problem.
    TypeError, DeviceMismatchError, OverflowError
        Wrong dtypes or mixed libraries; mixed devices; an integer sum or index does not fit.

    Examples
    --------
    >>> import sparseformats as sf
    >>> sf.CSC([8.0, 7.0, 9.0], [3, 1, 0], [0, 2, 3], (4, 2))
    <CSC 4x2, float64, nnz=3, numpy on cpu>
    """

    family: ClassVar[str] = "csc"

    data: Array
    indices: Array
    indptr: Array
    shape: tuple[int, int]

    @placed
    def __init__(
        self,
        data: Any,
        indices: Any,
        indptr: Any,
        shape: Any,
        *,
        copy: bool = True,
        check: bool = True,
        index_dtype: Any = None,
    ) -> None:
        options = {"copy": copy, "check": check, "index_dtype": index_dtype}
        assign(self, compressed_fields(CSC, data, indices, indptr, shape, **options))

    @property
    def nnz(self) -> int:
        """Stored elements."""
        return int(self.data.shape[0])

    @property
    def index_dtype(self) -> Any:
        """dtype of `indices` and `indptr`."""
        return self.indices.dtype

    @property
    def T(self) -> CSR:  # noqa: N802
        """Transpose as CSR, sharing the buffers."""
        from sparseformats.formats.csr import CSR

        m, n = self.shape
        return CSR.trusted(data=self.data, indices=self.indices, indptr=self.indptr, shape=(n, m))

    def buffers(self) -> dict[str, Array]:
        """The arrays by name."""
        return {"data": self.data, "indices": self.indices, "indptr": self.indptr}

    def static(self) -> dict[str, Any]:
        """What is not an array."""
        return {"shape": self.shape}

    def _repr_nnz(self) -> int | None:
        return self.nnz

    def _problems(self) -> list[Problem]:
        return compressed_problems(self)
