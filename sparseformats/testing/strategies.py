"""Hypothesis strategies that build every format directly, never by a conversion.

A law that is tested only on what COO can express misses what a conversion gets wrong about the
other formats' own structure. So each format is drawn in its own terms: blocks with marked and
unmarked zeros, empty slots between used ones, groups with fewer non-zeros than slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from sparseformats import _dtypes
from sparseformats.testing._raw_plain import draw_coo, draw_csc, draw_csr
from sparseformats.testing._raw_slots import draw_blocked_ell, draw_bsr, draw_nm
from sparseformats.testing._raw_sum import draw_sum
from sparseformats.testing._values import Draw
from sparseformats.testing.raw import Choices, RawInput
from sparseformats.testing.strict import register_strict

__all__ = ["FORMATS", "blocksizes", "matrices", "raw_inputs", "shapes"]

FORMATS = ("coo", "csr", "csc", "bsr", "blocked_ell", "n:m", "sum")
"""Families that `matrices` draws; ``"bsr.T"``, ``"blocked_ell.T"`` and ``"n:m.T"`` work too."""

_TRANSPOSED = ("bsr.T", "blocked_ell.T", "n:m.T")
_PATTERNS = ((2, 4), (1, 2), (1, 4), (3, 5), (4, 4))
_DRAW: dict[str, Callable[[Draw, Choices], RawInput]] = {
    "coo": draw_coo,
    "csr": draw_csr,
    "csc": draw_csc,
    "bsr": draw_bsr,
    "blocked_ell": draw_blocked_ell,
    "n:m": draw_nm,
    "sum": draw_sum,
}


def shapes(most: int = 7) -> Any:
    """Strategy of matrix shapes (m, k), empty ones included.

    Parameters
    ----------
    most : int
        Largest extent.
    """
    # Empty extents matter, but a matrix without elements has little to lose.
    extent = st.sampled_from([*range(1, most + 1), *range(1, most + 1), 0])
    return st.tuples(extent, extent)


def blocksizes(most: int = 4) -> Any:
    """Strategy of block sizes (R, C), rectangular and larger than the matrix too.

    Parameters
    ----------
    most : int
        Largest extent.
    """
    return st.tuples(st.integers(1, most), st.integers(1, most))


def matrices(
    format: str | Sequence[str] | None = None,
    *,
    dtypes: Any = None,
    library: str = "numpy",
    device: str = "cpu",
    shapes: Any = None,
    blocksizes: Any = None,
    index_dtypes: Any = ("int32", "int64"),
    values: Any = "any",
) -> Any:
    """Strategy of valid matrices of one format or of any, built by their own constructors.

    Parameters
    ----------
    format : str or sequence of str, optional
        ``"coo"``, ``"csr"``, ``"csc"``, ``"bsr"``, ``"blocked_ell"``, ``"sum"``, ``"n:m"`` (any
        n and m) or one pattern such as ``"2:4"``; with ``".T"`` the transposed of one with slots.
        None: any.
    dtypes, index_dtypes : str, sequence of str or strategy, optional
        Names of value and index types; by default all that the library has.
    library, device : str
        Where the arrays live.
    shapes, blocksizes : (int, int) or strategy, optional
        Logical shape; block size of BSR (Blocked-ELL takes the first number).
    values : {"any", "moderate", "small"} or strategy
        ``"any"``: every bit pattern (NaN payloads, infinities, subnormals, both zeros);
        ``"moderate"``: finite and of modest size; ``"small"``: integers of size 3 at most; or a
        strategy of Python numbers.

    Returns
    -------
    strategy of SparseMatrix

    Examples
    --------
    >>> from hypothesis import given
    >>> from sparseformats.testing import matrices, check_valid
    >>> @given(matrices("bsr", dtypes="float32"))
    ... def test_valid(A):
    ...     check_valid(A)
    >>> test_valid()
    """
    choices = _choices(library, dtypes, shapes, blocksizes, index_dtypes, values)

    def draw_matrix(draw: Draw) -> Any:
        raw, transpose = _draw_raw(draw, format, choices)
        # Canonical arrays need no checks; then nothing of a constructor stands between the
        # drawn buffers and the law under test.
        trusting = raw.canonical and draw(st.booleans())
        A = raw.build(library, device, **({"check": False} if trusting else {}))
        return A.T if transpose else A

    return st.composite(draw_matrix)()


def raw_inputs(
    format: str | Sequence[str] | None = None,
    *,
    dtypes: Any = None,
    library: str = "numpy",
    shapes: Any = None,
    blocksizes: Any = None,
    index_dtypes: Any = ("int32", "int64"),
    values: Any = "any",
) -> Any:
    """Strategy of constructor arguments with an independent account of what they mean.

    Parameters
    ----------
    format, dtypes, library, shapes, blocksizes, index_dtypes, values
        As of `matrices`; `library` only limits the value types.

    Returns
    -------
    strategy of RawInput

    Examples
    --------
    >>> from hypothesis import given
    >>> from sparseformats.testing import raw_inputs
    >>> @given(raw_inputs("csr"))
    ... def test_constructor(raw):
    ...     raw.check(raw.build())
    >>> test_constructor()
    """
    choices = _choices(library, dtypes, shapes, blocksizes, index_dtypes, values)
    return st.composite(lambda draw: _draw_raw(draw, format, choices, transposed=False)[0])()


def _choices(
    library: str, dtypes: Any, extents: Any, blocks: Any, index_dtypes: Any, values: Any
) -> Choices:
    register_strict()
    return Choices(
        dtypes=_strategy(dtypes or _weighted(_dtypes.VALUE_DTYPES[library])),
        shapes=_strategy(shapes() if extents is None else extents, one=tuple),
        blocksizes=_strategy(blocksizes() if blocks is None else blocks, one=tuple),
        index_dtypes=_strategy(index_dtypes),
        patterns=st.sampled_from(_PATTERNS),
        values=values,
        library=library,
    )


def _weighted(names: Sequence[str]) -> list[str]:
    """Floating types more often: they have more to lose."""
    return [*names, *(2 * [name for name in names if _dtypes.kind(name) in "fc"])]


def _strategy(given: Any, one: type = str) -> Any:
    """Read a single value, a sequence of values or a strategy as a strategy."""
    if hasattr(given, "example"):
        return given
    return st.just(given) if isinstance(given, one) else st.sampled_from(given)


def _draw_raw(
    draw: Draw, format: str | Sequence[str] | None, choices: Choices, transposed: bool = True
) -> tuple[RawInput, bool]:
    if format is None:
        format = FORMATS + _TRANSPOSED if transposed else FORMATS
    name = format if isinstance(format, str) else str(draw(st.sampled_from(format)))
    family = name.removesuffix(".T")
    if ":" in family and family != "n:m":
        n, _, m = family.partition(":")
        choices = _with_pattern(choices, int(n), int(m))
        family = "n:m"
    return _DRAW[family](draw, choices), name.endswith(".T")


def _with_pattern(choices: Choices, n: int, m: int) -> Choices:
    return replace(choices, patterns=st.just((n, m)))
