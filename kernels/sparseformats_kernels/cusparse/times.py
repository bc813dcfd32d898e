"""What a product by each algorithm for CSR takes on an H200, and the quickest way to make one.

Fitted to times of warm calls of cuSPARSE 12.6.3 on an H200, 16,384 x 16,384, 5 to 163 elements a
row, even and power-law rows, 16 to 1,024 columns. The algorithms differ in what they wait for:

- ALG2 shares elements out evenly. Each costs the same in every type up to float32, and as much for
  one column as for about a hundred. It adds to results in memory, in their type: half types are
  made in float32 beside the result and rounded once.
- ALG3 shares out rows as well. It costs less an element of few columns and of half types, and more
  where rows are uneven; half types wait for the longest row, which one group of threads sums up.
  It fills rows up with zeros, which meet row 0 of the operand: a NaN there would reach results that
  no element takes there, so the operand must be finite.
- ALG1 is for column-major operands, fills up as ALG3 does and is wrong past 1,048,560 columns. It
  is never taken: no row-major case was quickest by it.

Column-major operands make all of them several times as slow. A transposing copy of the operand, and
one of the result, is worth its time in all but small products.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from sparseformats_kernels.cusparse.api import SPMM_CSR_ALG2, SPMM_CSR_ALG3

__all__ = ["Case", "Way", "Work", "best", "copying", "offered", "product", "rounding"]


class Work(NamedTuple):
    """What is to be multiplied, beside the number of columns.

    Attributes
    ----------
    m, k : int
        Shape of the sparse matrix.
    nnz : float
        Elements.
    longest : float
        Those of the longest row.
    size : int
        Bytes of a number.
    """

    m: int
    k: int
    nnz: float
    longest: float
    size: int

    @property
    def imbalance(self) -> float:
        """How often the longest row doubles the mean."""
        return math.log2(max(1.0, self.longest * self.m / max(1.0, self.nnz)))


class Case(NamedTuple):
    """What an algorithm is chosen for, beside the matrix.

    Attributes
    ----------
    n : int
        Columns; 0 is a vector.
    x_by_row, y_by_row : bool
        The operand, and the array for the result, are row-major.
    deterministic : bool
        The same bits on every run.
    finite : bool
        The operand holds no NaN and no infinity.
    learns : bool
        The matrix can be looked at ahead.
    allocates : bool
        There is memory for copies.
    """

    n: int
    x_by_row: bool = True
    y_by_row: bool = True
    deterministic: bool = False
    finite: bool = False
    learns: bool = True
    allocates: bool = True


class Way(NamedTuple):
    """How a case is served.

    Attributes
    ----------
    algorithm : int
    x_by_row, y_by_row : bool
        Orders in which it gets the operand and the result: what lies otherwise is copied.
    aside : bool
        The result is made in another array, in the dtype of computation.
    """

    algorithm: int
    x_by_row: bool
    y_by_row: bool
    aside: bool = False


class _Rate(NamedTuple):
    """Microseconds."""

    launch: float  # between calls, however small
    start: float
    element: float  # an element and column
    narrow: float  # columns below which an element costs no less
    result: float  # a number of the result
    uneven: float = 0.0  # share that each doubling of `Work.imbalance` adds to `element`
    longest: float = 0.0  # an element of the longest row


_ROWS: Final = {
    SPMM_CSR_ALG2: _Rate(48, 23, 4.25e-7, 104, 1.6e-6),
    SPMM_CSR_ALG3: _Rate(36, 1, 4e-7, 38, 6.6e-6, uneven=0.054),
}
_COLUMNS: Final = {
    SPMM_CSR_ALG2: _Rate(48, 25, 6.5e-6, 1, 1.5e-5),
    SPMM_CSR_ALG3: _Rate(36, 30, 2.8e-6, 1, 1.5e-5, uneven=0.054),
}
_ROWS_HALF: Final = _Rate(36, 1, 2.1e-7, 30, 5e-6, uneven=0.013, longest=0.062)
_COLUMNS_HALF: Final = _Rate(36, 30, 1.6e-6, 1, 1.5e-5, uneven=0.013, longest=0.062)

_COPY = 14.0  # a call of a copy, however small
_TURNED = 7e-6  # a number that a transposing copy moves
_MOVED = 3e6  # bytes a microsecond of one that keeps the order


def _rate(algorithm: int, by_row: bool, size: int) -> _Rate:
    if algorithm == SPMM_CSR_ALG3 and size < 4:
        return _ROWS_HALF if by_row else _COLUMNS_HALF
    return (_ROWS if by_row else _COLUMNS)[algorithm]


def product(algorithm: int, by_row: bool, work: Work, n: int) -> float:
    """Microseconds of a product where operands lie.

    Parameters
    ----------
    algorithm : int
    by_row : bool
        Operand and result are row-major; else one of them, or both, is column-major.
    work : Work
    n : int
        Columns.
    """
    rate = _rate(algorithm, by_row, work.size)
    wide = max(1.0, work.size / 4)  # of float32
    elements = rate.element * work.nnz * max(n, rate.narrow) * (1 + rate.uneven * work.imbalance)
    device = rate.start + wide * (elements + rate.result * work.m * n)
    waiting = rate.launch / 2 + rate.longest * work.longest if rate.longest else 0.0
    return max(rate.launch, device, waiting)


def copying(numbers: int) -> float:
    """Microseconds of a transposing copy."""
    return max(_COPY, 2 + _TURNED * numbers)


def rounding(numbers: int) -> float:
    """Microseconds of a copy from float32 to a half type."""
    return max(_COPY, 2 + 6 * numbers / _MOVED)


def offered(gives: str | None, case: Case) -> tuple[int, ...]:
    """The algorithms that may serve a case with results of dtype `gives`; none if there is none."""
    even = gives != "int32" and not case.deterministic  # bytes have no other than ALG3
    rows = case.finite and (case.learns or not even)
    return (SPMM_CSR_ALG2,) * even + (SPMM_CSR_ALG3,) * rows


def _served(algorithm: int, work: Work, case: Case, by_row: bool) -> tuple[float, Way]:
    """One way, with operands as they lie or all of them row-major."""
    aside = algorithm == SPMM_CSR_ALG2 and work.size < 4
    x, y = case.x_by_row or by_row, case.y_by_row or by_row or aside
    found = product(algorithm, x and y, work, case.n)
    if x != case.x_by_row:
        found += copying(work.k * case.n)
    if y != case.y_by_row:
        found += copying(work.m * case.n)
    elif aside:
        found += rounding(work.m * case.n)
    return found, Way(algorithm, x, y, aside)


def best(work: Work, case: Case, algorithms: tuple[int, ...]) -> tuple[float, Way]:
    """The quickest way of those allowed, with its microseconds."""
    turns = (False, True) if case.allocates else (False,)
    return min(_served(a, work, case, by_row) for a in algorithms for by_row in turns)
