"""Where a matrix breaks an n:m pattern, and what keeping the pattern would lose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary, placed
from sparseformats._dtypes import kind
from sparseformats.algebra.ranking import operand, parsed, parts

__all__ = ["PatternReport", "check_pattern"]

SHOWN = 5  # violating groups spelled out


@dataclass(frozen=True, slots=True, eq=False)
class PatternReport:
    """How a matrix keeps an n:m pattern along its rows; print it.

    Attributes
    ----------
    n, m : int
        At most n non-zeros in each group of m neighbours.
    shape : (rows, k)
    groups : int
        Groups in all, ``rows * ceil(k / m)``.
    violations : int
        Groups with more than n non-zeros.
    histogram : tuple of int
        ``histogram[c]`` groups have c non-zeros, c from 0 to m.
    row_violations : (rows,) int64 NumPy array
        Violating groups of each row.
    places : tuple of (row, group, non-zeros)
        The first violating groups.
    lost_elements : int
        Non-zeros that `prune` would drop.
    energy_lost : float
        Their share of the sum of squares; NaN where float64 does not hold that sum, which is
        infinite, NaN or too small.
    """

    n: int
    m: int
    shape: tuple[int, int]
    groups: int
    violations: int
    histogram: tuple[int, ...]
    row_violations: np.ndarray[Any, np.dtype[np.int64]]
    places: tuple[tuple[int, int, int], ...]
    lost_elements: int
    energy_lost: float

    @property
    def ok(self) -> bool:
        """Whether no group violates the pattern."""
        return self.violations == 0

    def __str__(self) -> str:
        rows, k = self.shape
        head = f"{self.n}:{self.m} along the rows of a {rows} x {k} matrix"
        counts = ", ".join(f"{c}: {many:,}" for c, many in enumerate(self.histogram) if many)
        lines = [f"{head}: {self.violations:,} of {self.groups:,} groups violate"]
        lines.append(f"  groups by number of non-zeros: {counts or 'none'}")
        if self.ok:
            return "\n".join(lines)
        bad_rows = int(np.count_nonzero(self.row_violations))
        worst = int(np.argmax(self.row_violations))
        lines.append(
            f"  rows with violations: {bad_rows:,} of {rows:,}, most in row {worst} "
            f"({int(self.row_violations[worst]):,})"
        )
        shown = "; ".join(f"row {i}, group {g} has {c}" for i, g, c in self.places)
        more = self.violations - len(self.places)
        lines.append(f"  first: {shown}" + (f"; and {more:,} more" if more else ""))
        lines.append(
            f"  pruning by magnitude would drop {self.lost_elements:,} non-zeros, "
            f"{self.energy_lost:.2%} of the sum of squares"
        )
        return "\n".join(lines)


@placed
def check_pattern(W: Any, pattern: str = "2:4") -> PatternReport:
    """Count and place the groups of a matrix that break an n:m pattern.

    Parameters
    ----------
    W : SparseMatrix, or (rows, k) array of any library, or nested lists
        Groups lie along the last axis; zeros of either sign, stored or not, are zeros and NaN
        is not. For patterns down the columns pass ``W.T``.
    pattern : str
        ``"2:4"`` or another ``"n:m"``.

    Returns
    -------
    PatternReport
        Its text is for people; ``.ok`` says whether the pattern is kept.

    Raises
    ------
    TypeError, ValueError
        `W` is no matrix; bad pattern.
    NotImplementedError
        `W` requires grad while grad mode is on.

    Examples
    --------
    >>> import sparseformats as sf
    >>> report = sf.check_pattern([[1.0, 2.0, 3.0, 0.0], [0.0, 0.0, 4.0, 5.0]], "2:4")
    >>> report.ok, report.violations, report.places
    (False, 1, ((0, 0, 3),))
    """
    n, m = parsed("check_pattern", pattern)
    W = operand("check_pattern", W)
    rows, k = (int(s) for s in W.shape)
    histogram, by_row = np.zeros(m + 1, np.int64), np.zeros(rows, np.int64)
    places: list[tuple[int, int, int]] = []
    lost, energy, all_energy = 0, 0.0, 0.0
    for part in parts(W, n, m):
        lib = part.lib
        counts = lib.to_numpy(part.counts)
        histogram += np.bincount(counts, minlength=m + 1)
        bad = lib.flatnonzero(part.counts > n)
        bad_rows = lib.to_numpy(lib.take(part.group_row, bad))
        by_row += np.bincount(bad_rows, minlength=rows)
        first = bad[: SHOWN - len(places)]
        found = (part.group_row, part.group, part.counts)
        places += zip(*(lib.to_numpy(lib.take(x, first)).tolist() for x in found), strict=True)
        dropped = lib.flatnonzero(~part.kept)
        lost += int(dropped.shape[0])
        energy += _energy(lib, lib.take(part.data, dropped))
        all_energy += _energy(lib, part.data)
    groups = rows * -(-k // m)
    histogram[0] = groups - int(histogram[1:].sum())
    return PatternReport(
        n=n,
        m=m,
        shape=(rows, k),
        groups=groups,
        violations=int(histogram[n + 1 :].sum()),
        histogram=tuple(histogram.tolist()),
        row_violations=by_row,
        places=tuple(places),
        lost_elements=lost,
        energy_lost=_share(lost, energy, all_energy),
    )


def _share(lost: int, part: float, whole: float) -> float:
    if not lost and np.isfinite(whole):
        return 0.0
    held = np.finfo(np.float64).tiny <= whole < np.inf  # smaller ones lack digits
    return part / whole if held else float("nan")


def _energy(lib: ArrayLibrary, x: Array) -> float:
    """Sum of squares in float64."""
    if not int(x.shape[0]):
        return 0.0
    with np.errstate(all="ignore"):
        if kind(lib.dtype_name(x)) == "c":
            parts = (lib.astype(y, "float64") for y in (lib.xp.real(x), lib.xp.imag(x)))
            return sum(float(lib.item(lib.xp.sum(y * y))) for y in parts)
        wide = lib.astype(x, "float64")
        return float(lib.item(lib.xp.sum(wide * wide)))
