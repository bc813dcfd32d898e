"""What an edge is told beside its source."""

from __future__ import annotations

from dataclasses import dataclass

from sparseformats._arrays import Array
from sparseformats._dtypes import IndexWidth, index_width

__all__ = ["Options"]


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """Options of one conversion step.

    Attributes
    ----------
    blocksize : (R, C) or None
        Block size of the target, for block formats.
    n, m : int or None
        Pattern of the target, for n:m.
    index_dtype : str or None
        Width that was asked for. An edge may make it at once where that widens (`width` does);
        narrowing, with its check, is done after the last edge and is not an edge's business.
    mask : (m, n) bool array or None
        From dense: exactly these elements are stored.
    """

    blocksize: tuple[int, int] | None = None
    n: int | None = None
    m: int | None = None
    index_dtype: str | None = None
    mask: Array | None = None

    def width(self, current: str, *extents: int) -> IndexWidth:
        """Width of the target's index arrays: never narrower than the source's `current`.

        Parameters
        ----------
        current : str
            ``"int32"`` or ``"int64"``; ``"int32"`` for sources without index arrays.
        *extents : int
            Addresses (exclusive) and counts that the arrays must express.
        """
        return "int64" if self.index_dtype == "int64" else index_width(current, *extents)
