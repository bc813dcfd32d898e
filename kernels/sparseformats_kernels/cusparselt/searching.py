"""Which algorithm is the quickest for a product: all are tried, the library's own choice too.

The library's default is up to half as slow again as the best, and sometimes is the best; so it is
one candidate like the others. A first round is short; the best few, and the default, are measured
again side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from sparseformats_kernels.cusparselt.api import ONE_KERNEL, TWO_KERNELS
from sparseformats_kernels.cusparselt.plans import DEFAULT, Algorithm

__all__ = [
    "MEASURED",
    "TRUSTED",
    "Found",
    "Measure",
    "everything",
    "is_tried",
    "search",
    "splits",
    "trusted",
    "whole",
]

Measure = Callable[[Sequence[Algorithm], bool], Mapping[Algorithm, float]]
"""``(algorithms, thoroughly) -> microseconds``, of those that the library takes."""

_SPLITS: Final = (2, 4, 8)
_SEGMENTS: Final = -1  # the library cuts as it likes; compute capability 9.0 and later
_FINALISTS = 4
_SPLIT = 2  # algorithms whose sums are cut as well


TRUSTED: Final = 36
"""Ids from here on are not tried.

With version 0.8.0 on an H200 those from 36 on, offered for float16 and an operand of one column,
executed an illegal instruction, which no process survives; all below ran, each with whole sums and
with sums in parts, for float16, bfloat16, int8 and float8_e4m3fn, one to 504 columns.
"""

MEASURED: Final = frozenset(
    {
        ("float16", "float16"),
        ("bfloat16", "bfloat16"),
        ("int8", "int32"),
        ("float8_e4m3fn", "float32"),
        ("float8_e4m3fn", "float16"),
        ("float8_e4m3fn", "bfloat16"),
    }
)
"""Dtypes of operands and of results for which that was tried, by ``tests.gpu.cusparselt_limits``.

Of others the library's own choice alone is taken.
"""


def trusted(dtype: str, gives: str) -> int:
    """Ids of algorithms for these dtypes of operands and results are tried below this one."""
    return TRUSTED if (dtype, gives) in MEASURED else 0


class Found(NamedTuple):
    """The outcome of a search.

    Attributes
    ----------
    algorithm : Algorithm
    us, default_us : float
        Microseconds of it, and of the library's own choice; infinite where that does not run.
    """

    algorithm: Algorithm
    us: float
    default_us: float


def whole(most: int) -> list[Algorithm]:
    """Algorithms that add up whole sums, the library's own choice first."""
    return [DEFAULT, *(Algorithm(i) for i in range(min(most, TRUSTED)))]


def splits(algorithm: Algorithm) -> list[Algorithm]:
    """The same with sums in parts."""
    cut = [Algorithm(algorithm.id, s, mode) for s in _SPLITS for mode in (ONE_KERNEL, TWO_KERNELS)]
    return [*cut, Algorithm(algorithm.id, _SEGMENTS)]


def is_tried(algorithm: Algorithm) -> bool:
    """Whether a search may take it, whatever the library offers."""
    known = 0 <= algorithm.id < TRUSTED
    sums = [Algorithm(algorithm.id), *splits(algorithm)]
    return algorithm == DEFAULT or (known and algorithm in sums)


def everything(most: int) -> list[Algorithm]:
    """All that can be chosen, for an exhaustive search."""
    return [*whole(most), *(cut for each in whole(most)[1:] for cut in splits(each))]


def search(most: int, measure: Measure, *, same_bits: bool) -> Found | None:
    """Find the quickest algorithm.

    Parameters
    ----------
    most : int
        Ids are below that.
    measure : Measure
    same_bits : bool
        Sums are not cut: their parts may be added in any order.

    Returns
    -------
    Found or None
        None where the library takes none of them.
    """
    times = dict(measure(whole(most), False))
    if not same_bits:
        ranked = sorted((a for a in times if a.id >= 0), key=times.__getitem__)
        cut = [each for algorithm in ranked[:_SPLIT] for each in splits(algorithm)]
        times |= measure(cut, False) if cut else {}
    best = sorted(times, key=times.__getitem__)[:_FINALISTS]
    if DEFAULT in times and DEFAULT not in best:
        best.append(DEFAULT)
    final = measure(best, True) if best else {}
    if not final:
        return None
    winner = min(final, key=final.__getitem__)
    return Found(winner, final[winner], final.get(DEFAULT, float("inf")))
