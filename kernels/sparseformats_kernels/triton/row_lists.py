"""Which rows, and parts of rows, a program multiplies: rows of about one length side by side.

Long entries come first, so that all programs end together. Entries of as many steps keep the order
of their rows, which in many matrices meet the same rows of the operand as their neighbours.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["Entries", "entries_of", "longest"]

Host = np.ndarray[Any, np.dtype[Any]]

SHARE = 0.02  # of all elements that a processor has, which a row must be longer than to be cut
STEPS = 4  # that a row must take longer than to be cut
_MOST = 2**15  # steps of an entry, so that they sort quickly


class Entries(NamedTuple):
    """Rows and parts of rows, BM of them a program.

    Attributes
    ----------
    row : (entries,) int64
        Row of the result; the number of rows for what fills up the last program.
    begin, end : (entries,) int64
        Its elements.
    number : (entries,) int64
        Of a part, among the parts of all rows; -1 for a row that is whole.
    steps : (programs,) int64
        Times that a program's longest entry takes BK elements.
    split : three (rows,) int64 arrays
        Rows that were cut, with the number of their first part and that behind their last.
    """

    row: Host
    begin: Host
    end: Host
    number: Host
    steps: Host
    split: tuple[Host, Host, Host]

    @property
    def parts(self) -> int:
        """Parts of all rows that were cut."""
        return int(self.split[2].max(initial=0))


def longest(m: int, nnz: int, processors: int, bk: int) -> int:
    """Elements of a row beyond which it is cut: a multiple of `bk`.

    A cut costs a second launch, so it must be a row of twice the mean that would keep its program
    busy for long.
    """
    mean, share = nnz / max(1, m), nnz / max(1, processors)
    limit = max(2 * mean, SHARE * share, STEPS * bk)
    return min(-int(-limit // bk), _MOST) * bk


def entries_of(begin: Host, end: Host, limit: int, bm: int, bk: int) -> Entries:
    """Cut rows of more than `limit` elements into parts of about one length, and sort all."""
    length = end - begin
    count = np.maximum(1, -(-length // limit))
    row = np.repeat(np.arange(length.size), count)
    last = np.cumsum(count)
    rank = np.arange(row.size) - np.repeat(last - count, count)
    several = count[row] > 1
    number = np.where(several, np.cumsum(several) - 1, -1)
    first = begin[row] + length[row] * rank // count[row]
    behind = begin[row] + length[row] * (rank + 1) // count[row]
    steps = -(-(behind - first) // bk)
    order = np.argsort((_MOST - steps).astype(np.uint16), kind="stable")
    fill = -order.size % bm
    parts = np.cumsum(np.where(count > 1, count, 0))
    long = np.flatnonzero(count > 1)
    return Entries(
        np.pad(row[order], (0, fill), constant_values=length.size),
        np.pad(first[order], (0, fill)),
        np.pad(behind[order], (0, fill)),
        np.pad(number[order], (0, fill), constant_values=-1),
        steps[order][::bm],
        (long, parts[long] - count[long], parts[long]),
    )
