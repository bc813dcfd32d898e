"""Transpose of a slot format as a view.

Layout
------
`base`, unchanged. Element (i, j) of the view is element (j, i) of the base.

Invariants
----------
1. ``base``: a valid BSR, BlockedELL or NM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

from sparseformats._arrays import Array
from sparseformats.errors import Problem
from sparseformats.formats.base import SparseMatrix, assign

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparseformats.formats.blocked_ell import BlockedELL
    from sparseformats.formats.bsr import BSR
    from sparseformats.formats.nm import NM

__all__ = ["Transposed"]


@final
@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, init=False, repr=False)
class Transposed(SparseMatrix):
    """Transpose of a BSR, Blocked-ELL or n:m matrix; costs nothing and shares everything.

    Parameters
    ----------
    base : BSR, BlockedELL or NM

    Raises
    ------
    TypeError
        `base` is of another type; CSR, CSC and COO have transposes of their own.

    Notes
    -----
    ``A.T.to(format)`` makes the transposed matrix, judged on its own rows.
    """

    family: ClassVar[str] = "transposed"

    base: BSR | BlockedELL | NM

    def __init__(self, base: BSR | BlockedELL | NM) -> None:
        if getattr(base, "family", None) not in ("bsr", "blocked_ell", "n:m"):
            raise TypeError(
                f"Transposed holds a BSR, BlockedELL or NM, got {type(base).__name__}; "
                "other formats have .T of their own"
            )
        assign(self, {"base": base})

    @property
    def data(self) -> Array:
        """The base's values, in the base's layout."""
        return self.base.data

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the transpose."""
        m, n = self.base.shape
        return n, m

    @property
    def nnz(self) -> int:
        """Stored elements."""
        return self.base.nnz

    @property
    def format(self) -> str:
        """The base's format with ``.T``, for example ``"bsr.T"``."""
        return f"{self.base.format}.T"

    @property
    def index_dtype(self) -> Any:
        """The base's index dtype."""
        return self.base.index_dtype

    @property
    def blocksize(self) -> tuple[int, int]:
        """Rows and columns of a block of the transpose."""
        r, c = self.base.blocksize
        return c, r

    @property
    def T(self) -> BSR | BlockedELL | NM:  # noqa: N802
        """The base."""
        return self.base

    def buffers(self) -> dict[str, Array]:
        """The base's arrays by name."""
        return self.base.buffers()

    def static(self) -> dict[str, Any]:
        """The base's type and what of it is not an array."""
        return {"base": type(self.base).__name__, **self.base.static()}

    @classmethod
    def from_parts(cls, buffers: Mapping[str, Array], static: Mapping[str, Any]) -> Self:
        """Rebuild from `buffers` and `static` (internal)."""
        from sparseformats import formats

        rest = {k: v for k, v in static.items() if k != "base"}
        return cls(getattr(formats, static["base"]).from_parts(buffers, rest))

    def value_buffers(self) -> tuple[Array, ...]:
        """The base's (internal)."""
        return self.base.value_buffers()

    def _conj_data(self) -> Array:
        return self.base._conj_data()

    def _repr_nnz(self) -> int | None:
        return self.base._repr_nnz()

    def _problems(self) -> list[Problem]:
        return self.base.problems()
