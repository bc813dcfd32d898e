"""Is a product right? Sampled rows against float64, element by element, and every element finite.

The bound is that of summing L products in float32, ``L eps |A| |X|``, plus one rounding to the
result's dtype: what the certified kernels promise, with a factor of two for the rounding. Other
libraries may add parts of a sum in the result's dtype (cuBLAS does, by torch's default): theirs has
four roundings of a typical part more, so that no fast peer is turned away.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch

from benchmarks.gpu.matrices import Problem

__all__ = ["Reference", "WrongResult"]

ROWS, COLUMNS = 24, 2048  # rows that are drawn; columns that are computed at a time
ROUNDING = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
ROUNDING |= {"int8": 0.0, "float8_e4m3fn": 2.0**-3}
UNIT = 2.0**-23  # of float32
TINIEST = 2.0**-24  # spacing of float16's subnormals, the coarsest of those of two bytes or more
TINIEST_FP8 = 2.0**-9
POISON = 2**30  # of integers, which have no NaN


class WrongResult(AssertionError):
    """A kernel gave a wrong product; it has no time."""


class Reference:
    """Some rows of the right product of a problem, and how far results may be from them."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def check(
        self, name: str, call: Callable[[], Any], view: Any = None, *, foreign: bool = False
    ) -> None:
        """Run once over a poisoned result array and compare.

        Parameters
        ----------
        view : callable, optional
            Turns what `call` returns into a torch tensor.
        foreign : bool
            It is another library's product.

        Raises
        ------
        WrongResult
            Some element is beyond the bound or was not written; the text has the worst one.
        """
        case = self.problem.case
        whole = self._gives == "int8"
        self.problem.Y.fill_(POISON if whole else float("nan"))
        y = call()
        y = y if view is None else view(y)
        y = y.float() if y.dtype.itemsize == 1 else y
        if tuple(y.shape) != (case.m, case.n):
            raise WrongResult(f"{name}: expected shape {(case.m, case.n)}, got {tuple(y.shape)}")
        unwritten = int((y == POISON if whole else ~torch.isfinite(y)).sum())
        if unwritten:
            raise WrongResult(f"{name}: {unwritten} elements are not finite or not written")
        exact, bound, part = self._product
        bound = bound + 4 * part if foreign else bound
        error = (y[self._rows].double() - exact).abs() / bound
        if not bool((error <= 1).all()):
            raise WrongResult(f"{name}: {self._worst(error)}")

    @property
    def _gives(self) -> str:
        """The dtype that results are rounded to."""
        return self.problem.case.gives or self.problem.case.dtype

    @cached_property
    def _rows(self) -> Any:
        """First, last, the longest and the shortest block row's, and rows drawn anywhere."""
        m, r = self.problem.case.m, self.problem.case.block[0]
        counts = self.problem.parts.pointers.diff()
        edges = torch.stack([counts.argmax(), counts.argmin()]).cpu() * r
        drawn = torch.randint(0, m, (ROWS,), generator=torch.Generator().manual_seed(1))
        ends = torch.tensor([0, m - 1])
        found = torch.cat([ends, edges, (edges + r - 1).clamp(max=m - 1), drawn])
        return found.unique().to(counts.device)

    @cached_property
    def _product(self) -> tuple[Any, Any, Any]:
        """Those rows in float64, the bound of each error, and one rounding of a typical part."""
        A, terms = self._matrix()
        dtype = self._gives
        rounding, exact, size = ROUNDING[dtype], [], []
        for X in self.problem.X.split(COLUMNS, dim=1):
            X = X.double()
            exact.append(A @ X)
            size.append(A.abs() @ X.abs())
        y, sizes = torch.cat(exact, 1), torch.cat(size, 1)
        tiniest = TINIEST_FP8 if dtype.startswith("float8") else TINIEST
        unit = 0.0 if dtype == "int8" else UNIT  # sums of integers are exact
        bound = terms * unit * sizes + rounding * y.abs() + tiniest
        return y, bound, rounding * sizes / terms.sqrt()

    def _matrix(self) -> tuple[Any, Any]:
        """Those rows of the matrix, and how many terms their sums have (a column)."""
        parts, case = self.problem.parts, self.problem.case
        (r, c), columns = case.block, case.grid[1]
        rows = self._rows.tolist()
        A = torch.zeros(len(rows), columns, c, dtype=torch.float64, device=parts.data.device)
        counts = []
        for number, row in enumerate(rows):
            low, high = parts.pointers[row // r : row // r + 2].tolist()
            A[number, parts.columns[low:high].long()] = parts.data[low:high, row % r].double()
            counts.append(max(1, (high - low) * c))
        terms = torch.tensor(counts, dtype=torch.float64, device=A.device)[:, None]
        return A.view(len(rows), columns * c)[:, : case.k], terms

    def _worst(self, error: Any) -> str:
        error = error.nan_to_num(nan=float("inf"))
        row, column = divmod(int(error.argmax()), error.shape[1])
        place = (int(self._rows[row]), column)
        times = float(error[row, column])
        return f"element {place} is off by {times:.3g} times the allowed error"
