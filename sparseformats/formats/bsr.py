"""Block compressed sparse rows: dense blocks of R x C at sparse positions.

Layout
------
``data (nnzb, R, C)``, ``indices (nnzb,)`` block columns, ``indptr (ceil(m / R) + 1,)``: block
row i owns blocks ``indptr[i]:indptr[i + 1]``. Element (r, c) of a block at block position
(i, j) is the matrix's element (i R + r, j C + c). `zeros` marks stored zeros, see
`sparseformats.formats.slots`.

Invariants
----------
1. ``length``, ``blocksize``: shapes as above, R and C at least 1.
2. ``library``, ``device``: all arrays live in one library, on one device.
3. ``indptr-start``, ``indptr-end``, ``indptr-ascending``: from 0 to nnzb, never falling.
4. ``index-range``: ``0 <= indices < ceil(n / C)``.
5. ``sorted``: block columns are strictly ascending within each block row.
6. ``padding``: slots outside the logical shape hold zeros and are not stored.
7. ``zeros-*``: marks are int64, ascending, in range, inside the shape, at zero values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, final

from sparseformats._arrays import Array, placed
from sparseformats.errors import InvalidTensorError, Problem
from sparseformats.formats import checks, slots
from sparseformats.formats.base import SparseMatrix, assign
from sparseformats.formats.canonical import canonical_blocks, expand, pointers
from sparseformats.formats.inputs import as_blocksize, as_shape, index_name, narrowed, prepare
from sparseformats.formats.transposed import Transposed

__all__ = ["BSR"]


@final
@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, init=False, repr=False)
class BSR(SparseMatrix):
    """Sparse matrix of dense R x C blocks.

    Parameters
    ----------
    data : (nnzb, R, C) array
    indices : (nnzb,) integer array
        Block column of each block, in any order; equal positions are summed.
    indptr : (ceil(m / R) + 1,) integer array
    shape : (m, n)
        Need not be a multiple of the block; slots beyond it must hold zeros.
    stored : ``"nonzero"``, ``"all"`` or (nnzb, R, C) bool array
        Which slots are stored elements: those that are not zero, all inside the shape, or those
        of a mask (which must cover every non-zero).
    blocksize : (R, C), optional
        Only compared with the data's.
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
    >>> sf.BSR([[[1.0, 0.0], [0.0, 2.0]]], [1], [0, 1], (2, 4))
    <BSR 2x4, float64, blocksize=(2, 2), numpy on cpu>
    """

    family: ClassVar[str] = "bsr"

    data: Array
    indices: Array
    indptr: Array
    shape: tuple[int, int]
    zeros: Array | str | None = None
    _nnz: int | None = field(default=None, init=False)

    @placed
    def __init__(
        self,
        data: Any,
        indices: Any,
        indptr: Any,
        shape: Any,
        *,
        stored: Any = "nonzero",
        blocksize: Any = None,
        copy: bool = True,
        check: bool = True,
        index_dtype: Any = None,
    ) -> None:
        size = as_shape(shape)
        width = index_name(index_dtype)
        lib, values, index = prepare(
            "BSR",
            data,
            {"indices": indices, "indptr": indptr},
            ndim=3,
            index_ndim={"indices": 1, "indptr": 1},
            copy=copy,
        )
        draft = BSR.trusted(data=values, shape=size, **index)
        problems = _size_problems(draft) or _asked_problems(draft, blocksize)
        if check and not _size_problems(draft):
            problems += _structure(draft) or _padding(draft)
        if problems:
            raise InvalidTensorError("BSR", problems)
        inside = None
        if not isinstance(stored, str) or (check and not _is_sorted(draft)):
            inside = _inside(draft)
        zeros = slots.requested(lib, "BSR", stored, values, inside)
        fields = _canonical(draft, zeros, inside, check)
        if width is not None:
            fields["indices"] = narrowed(lib, fields["indices"], width, "indices")
            fields["indptr"] = narrowed(lib, fields["indptr"], width, "indptr")
        assign(self, fields)

    @property
    @placed
    def nnz(self) -> int:
        """Stored elements; counted on first use, which reads all values."""
        if self._nnz is None:
            inside = 0
            if isinstance(self.zeros, str):
                inside = slots.count_inside(
                    self.lib, _block_rows(self), self.indices, self.blocksize, self.shape
                )
            count = slots.count_stored(self.lib, self.data, self.zeros, inside)
            object.__setattr__(self, "_nnz", count)
        return int(self._nnz or 0)

    @property
    def nnzb(self) -> int:
        """Stored blocks."""
        return int(self.data.shape[0])

    @property
    def index_dtype(self) -> Any:
        """dtype of `indices` and `indptr`."""
        return self.indices.dtype

    @property
    def blocksize(self) -> tuple[int, int]:
        """Rows and columns of a block, (R, C)."""
        return int(self.data.shape[1]), int(self.data.shape[2])

    @property
    def T(self) -> Transposed:  # noqa: N802
        """Transpose as a view: no data moves."""
        return Transposed(self)

    @placed
    def stored_mask(self) -> Array:
        """Mask of stored slots, (nnzb, R, C) bool."""
        inside = _inside(self) if isinstance(self.zeros, str) else None
        return slots.stored_slots(self.lib, self.data, self.zeros, inside)

    def buffers(self) -> dict[str, Array]:
        """The arrays by name."""
        arrays = {"data": self.data, "indices": self.indices, "indptr": self.indptr}
        if self.zeros is not None and not isinstance(self.zeros, str):
            arrays["zeros"] = self.zeros
        return arrays

    def static(self) -> dict[str, Any]:
        """What is not an array."""
        marked = {"zeros": self.zeros} if isinstance(self.zeros, str) else {}
        return {"shape": self.shape, **marked}

    def _repr_nnz(self) -> int | None:
        return self._nnz

    def _problems(self) -> list[Problem]:
        problems = _size_problems(self) or _structure(self)
        if not checks.only_range(problems):
            return problems
        in_range = not problems
        problems += checks.ascending(self.lib, self.indptr, self.indices, "block column")
        if not in_range:
            return problems
        problems += _padding(self)
        if self.zeros is not None and not isinstance(self.zeros, str):
            problems += checks.zeros_mark(self.lib, self.zeros, self.data, _inside(self))
        return problems


def _size_problems(a: BSR) -> list[Problem]:
    r, c = a.blocksize
    if min(r, c) > 0:
        return []
    text = f"blocks must have at least one row and column, got {(r, c)}"
    return [Problem("blocksize", "data", (r, c), text)]


def _asked_problems(a: BSR, blocksize: Any) -> list[Problem]:
    r, c = a.blocksize
    if blocksize is None or as_blocksize(blocksize) == (r, c):
        return []
    text = f"blocksize={blocksize} was asked for, the data's blocks are {(r, c)}"
    return [Problem("blocksize", "data", (r, c), text)]


def _block_rows(a: BSR) -> Array:
    return expand(a.lib, a.indptr, a.nnzb)


def _inside(a: BSR) -> Array | None:
    return slots.slots_inside(a.lib, _block_rows(a), a.indices, a.blocksize, a.shape)


def _is_sorted(a: BSR) -> bool:
    return checks.not_ascending(a.lib, a.indptr, a.indices) is None


def _structure(a: BSR) -> list[Problem]:
    lib = a.lib
    problems = checks.same_placement(lib, a.buffers())
    if problems:
        return problems
    problems = checks.lengths({"indices": ((a.nnzb,), tuple(a.indices.shape))})
    (m, n), (r, c) = a.shape, a.blocksize
    return problems + checks.compressed_structure(
        lib, a.indptr, a.indices, major=-(-m // r), minor=-(-n // c), what="block column"
    )


def _padding(a: BSR) -> list[Problem]:
    return slots.padding_problems(a.lib, a.data, _block_rows(a), a.indices, a.shape)


def _canonical(
    a: BSR, stored: Array | str | None, inside: Array | None, check: bool
) -> dict[str, Any]:
    lib = a.lib
    fields: dict[str, Any] = {**a.buffers(), "shape": a.shape, "zeros": stored}
    mask = None if isinstance(stored, str) or stored is None else stored
    if not check or _is_sorted(a):
        fields["zeros"] = stored if mask is None else slots.marks(lib, a.data, mask)
        return fields
    if isinstance(stored, str):
        mask = slots.stored_slots(lib, a.data, stored, inside)
    blocks = canonical_blocks(lib, _block_rows(a), a.indices, a.data, mask)
    rows = int(a.indptr.shape[0]) - 1
    fields["data"], fields["indices"] = blocks.data, blocks.col
    fields["indptr"] = pointers(lib, blocks.row, rows, lib.dtype_name(a.indptr))
    if not isinstance(stored, str):
        kept = blocks.stored
        fields["zeros"] = None if kept is None else slots.marks(lib, blocks.data, kept)
    return fields
