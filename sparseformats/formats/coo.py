"""Coordinates: one row, one column and one value per stored element.

Layout
------
``data (nnz,)``, ``row (nnz,)``, ``col (nnz,)``; the two index arrays share a dtype.

Invariants
----------
1. ``length``: the three arrays have one length.
2. ``library``, ``device``: they live in one library, on one device.
3. ``index-range``: ``0 <= row < m`` and ``0 <= col < n``.
4. ``sorted``: pairs (row, col) are strictly ascending, so no position occurs twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from sparseformats._arrays import Array, placed
from sparseformats.errors import InvalidTensorError, Problem
from sparseformats.formats import checks
from sparseformats.formats.base import SparseMatrix, assign
from sparseformats.formats.canonical import canonical_coordinates
from sparseformats.formats.inputs import as_shape, index_name, narrowed, prepare

__all__ = ["COO"]


@final
@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, init=False, repr=False)
class COO(SparseMatrix):
    """Sparse matrix as sorted coordinates.

    Parameters
    ----------
    data : (nnz,) array
    row, col : (nnz,) integer arrays
        Any order; equal positions are summed.
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
    >>> sf.COO([1.0, 2.0, 4.0], [1, 1, 0], [0, 0, 2], (2, 3))
    <COO 2x3, float64, nnz=2, numpy on cpu>
    """

    family: ClassVar[str] = "coo"

    data: Array
    row: Array
    col: Array
    shape: tuple[int, int]

    @placed
    def __init__(
        self,
        data: Any,
        row: Any,
        col: Any,
        shape: Any,
        *,
        copy: bool = True,
        check: bool = True,
        index_dtype: Any = None,
    ) -> None:
        size = as_shape(shape)
        width = index_name(index_dtype)
        lib, values, index = prepare(
            "COO",
            data,
            {"row": row, "col": col},
            ndim=1,
            index_ndim={"row": 1, "col": 1},
            copy=copy,
        )
        row, col = index["row"], index["col"]
        if check:
            problems = _structure(COO.trusted(data=values, row=row, col=col, shape=size))
            if problems:
                raise InvalidTensorError("COO", problems)
            values, row, col = canonical_coordinates(lib, values, row, col)
        if width is not None:
            row, col = narrowed(lib, row, width, "row"), narrowed(lib, col, width, "col")
        assign(self, {"data": values, "row": row, "col": col, "shape": size})

    @property
    def nnz(self) -> int:
        """Stored elements."""
        return int(self.data.shape[0])

    @property
    def index_dtype(self) -> Any:
        """dtype of `row` and `col`."""
        return self.row.dtype

    @property
    def T(self) -> COO:  # noqa: N802
        """Transpose: a new COO in canonical order."""
        lib = self.lib
        order = lib.lexsort(self.col, self.row)
        m, n = self.shape
        return COO.trusted(
            data=lib.take(self.data, order),
            row=lib.take(self.col, order),
            col=lib.take(self.row, order),
            shape=(n, m),
        )

    def buffers(self) -> dict[str, Array]:
        """The arrays by name."""
        return {"data": self.data, "row": self.row, "col": self.col}

    def static(self) -> dict[str, Any]:
        """What is not an array."""
        return {"shape": self.shape}

    def _repr_nnz(self) -> int | None:
        return self.nnz

    def _problems(self) -> list[Problem]:
        problems = _structure(self)
        if not checks.only_range(problems):
            return problems
        row, col, lib = self.row, self.col, self.lib
        later = (row[1:] > row[:-1]) | ((row[1:] == row[:-1]) & (col[1:] > col[:-1]))
        return problems + checks.violations(
            lib,
            ~later,
            col[1:],
            "sorted",
            lambda p: f"row[{p + 1}], col[{p + 1}]",
            lambda v: f"positions must be strictly ascending, got column {v} out of order",
        )


def _structure(a: COO) -> list[Problem]:
    lib = a.lib
    problems = checks.same_placement(lib, a.buffers())
    if problems:
        return problems
    count = tuple(a.data.shape)
    problems = checks.lengths(
        {"row": (count, tuple(a.row.shape)), "col": (count, tuple(a.col.shape))}
    )
    m, n = a.shape
    problems += checks.index_range(lib, "row", a.row, m, "row")
    return problems + checks.index_range(lib, "col", a.col, n, "column")
