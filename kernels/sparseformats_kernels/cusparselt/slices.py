"""int8 products whose sums stay exact, whatever the operand holds.

The library's 32-bit integer sums pass a single-precision epilogue: measured on an H200 with version
0.8.0, sums beyond 2**24 come out rounded to what float32 holds. No sum of a row leaves that range
while the row's absolute values add up to at most 2**24 / 128, since an int8 operand is at most 128
in size. A matrix with larger rows is cut into slices of columns that keep to it; their products are
added in integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, final

from sparseformats._arrays import Array
from sparseformats.formats import NM, SparseMatrix
from sparseformats_kernels.cuda.common import deliver
from sparseformats_kernels.cusparselt.state import State

__all__ = ["LARGEST", "Slices", "edges_of"]

LARGEST: Final = 2**24 // 128
"""What the absolute values of a row may add up to."""

Run = Callable[..., Array]


def edges_of(A: SparseMatrix, multiple: int) -> tuple[int, ...]:
    """Columns at which to cut, 0 and the last included: as few and as even slices as will do.

    Parameters
    ----------
    A : SparseMatrix
        n:m, of int8.
    multiple : int
        Of which edges are multiples.
    """
    if not isinstance(A, NM):
        raise TypeError(f"expected an n:m matrix, got {A.format}")
    lib, k = A.lib, A.shape[1]
    groups, each = int(A.data.shape[1]), max(1, multiple // A.m)
    sizes = lib.xp.sum(lib.xp.abs(lib.astype(A.data, "int32")), axis=2)
    pieces = max(1, -(-groups // each))
    for count in range(1, pieces + 1):
        step = -(-pieces // count) * each
        cuts = range(0, max(1, groups), step)
        if all(_largest(lib, sizes[:, a : a + step]) <= LARGEST for a in cuts):
            return (*(a * A.m for a in cuts), k)
    raise AssertionError("the shortest slice keeps to the limit")


def _largest(lib: Any, sizes: Array) -> int:
    return int(lib.item(lib.xp.max(lib.xp.sum(sizes, axis=1)))) if 0 not in sizes.shape else 0


@final
class Slices:
    """A matrix cut into slices of columns, each packed for itself.

    Parameters
    ----------
    parts : list of State
    edges : tuple of int
        Where they begin, and the end of the last.
    """

    __slots__ = ("edges", "parts")

    def __init__(self, parts: list[State], edges: tuple[int, ...]) -> None:
        self.parts, self.edges = parts, edges

    def run(self, runs: Sequence[Run]) -> Run:
        """The product of all slices by those of each: ``(x, out, alpha, beta, bias) -> y``."""

        def product(
            x: Array, out: Array | None, alpha: Any, beta: Any, bias: Array | None = None
        ) -> Array:
            state = self.parts[0]
            state.refuse_memory_in(state.device.capture(state.device.stream()))
            total: Any = None
            for run, (begin, end) in zip(runs, pairwise(self.edges), strict=True):
                part = run(x[begin:end], None, 1, 0)
                if total is None:
                    total = part
                else:
                    total += part
            if out is None and alpha == 1:
                return total
            if out is None:
                out = state.lib.empty(total.shape, state.out_dtype, state.device.place)
            return deliver(state.lib, total, out, alpha, beta)

        return product
