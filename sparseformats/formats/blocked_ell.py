"""Blocked-ELL: the same number of square block slots in every block row.

Layout
------
``data (block_rows, width, b, b)``, ``col_indices (block_rows, width)`` with block_rows =
ceil(m / b). Slot s of block row i holds the block at block column ``col_indices[i, s]``; -1
marks an empty slot. `zeros` marks stored zeros, see `sparseformats.formats.slots`.

cuSPARSE's layout of the values is ``(block_rows b, width b)``, row-major: `to_flat`, `from_flat`.

Invariants
----------
1. ``length``, ``blocksize``: shapes as above, b at least 1, blocks square.
2. ``library``, ``device``: all arrays live in one library, on one device.
3. ``index-range``: ``-1 <= col_indices < ceil(n / b)``.
4. ``sorted``: in each row block columns ascend strictly, and empty slots come last.
5. ``padding``: empty slots and slots outside the logical shape hold zeros and are not stored.
6. ``zeros-*``: marks are int64, ascending, in range, inside the shape, at zero values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, final

from sparseformats import _arrays
from sparseformats._arrays import Array, placed
from sparseformats.errors import InvalidTensorError, Problem
from sparseformats.formats import checks, slots
from sparseformats.formats.base import SparseMatrix, assign
from sparseformats.formats.canonical import canonical_blocks
from sparseformats.formats.ell_slots import place_blocks, slots_in_rows
from sparseformats.formats.inputs import as_blocksize, as_shape, index_name, narrowed, prepare
from sparseformats.formats.transposed import Transposed

__all__ = ["BlockedELL"]


@final
@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, init=False, repr=False)
class BlockedELL(SparseMatrix):
    """Sparse matrix with equally many b x b block slots in each block row.

    Parameters
    ----------
    data : (block_rows, width, b, b) array
    col_indices : (block_rows, width) integer array
        Block columns in any order, -1 for an empty slot anywhere in a row; what lies in empty
        slots is zeroed, equal positions are summed.
    shape : (m, n)
        Need not be a multiple of the block; slots beyond it must hold zeros.
    stored : ``"nonzero"``, ``"all"`` or bool array shaped as `data`
        Which slots are stored elements, see `BSR`.
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
    >>> A = sf.BlockedELL([[[[2.0]], [[50.0]]], [[[3.0]], [[4.0]]]], [[1, -1], [0, 3]], (2, 4))
    >>> A.nnz
    3
    """

    family: ClassVar[str] = "blocked_ell"

    data: Array
    col_indices: Array
    shape: tuple[int, int]
    zeros: Array | str | None = None
    _nnz: int | None = field(default=None, init=False)

    @placed
    def __init__(
        self,
        data: Any,
        col_indices: Any,
        shape: Any,
        *,
        stored: Any = "nonzero",
        copy: bool = True,
        check: bool = True,
        index_dtype: Any = None,
    ) -> None:
        size = as_shape(shape)
        width = index_name(index_dtype)
        lib, values, index = prepare(
            "BlockedELL",
            data,
            {"col_indices": col_indices},
            ndim=4,
            index_ndim={"col_indices": 2},
            copy=copy,
        )
        draft = BlockedELL.trusted(data=values, shape=size, **index)
        problems = _block_problems(draft)
        if check and not problems:
            problems = _structure(draft)
        if check and not problems:
            draft = _without_leftovers(draft)
            problems = _padding(draft)
        if problems:
            raise InvalidTensorError("BlockedELL", problems)
        inside = None if isinstance(stored, str) else _inside(draft)
        zeros = slots.requested(lib, "BlockedELL", stored, draft.data, inside)
        fields = _canonical(draft, zeros, check)
        if width is not None:
            fields["col_indices"] = narrowed(lib, fields["col_indices"], width, "col_indices")
        assign(self, fields)

    @classmethod
    def from_flat(
        cls, values: Any, col_indices: Any, shape: Any, blocksize: int, **options: Any
    ) -> Self:
        """Build from cuSPARSE's layout.

        Parameters
        ----------
        values : (block_rows * b, width * b) array
        col_indices : (block_rows, width) integer array
        shape : (m, n)
        blocksize : int
            b.
        **options
            As of the constructor.

        Raises
        ------
        ValueError, TypeError
            `values` is not 2-D or not divided by b; b is no positive integer.
        """
        values = values if _arrays.is_array(values) else _arrays.library("numpy").asarray(values)
        (b, c), found = as_blocksize(blocksize), tuple(values.shape)
        if b != c:
            raise ValueError(f"Blocked-ELL has square blocks, got blocksize={blocksize}")
        if len(found) != 2 or found[0] % b or found[1] % b:
            raise ValueError(
                f"flat values must be 2-D with both sizes divided by blocksize={b}, got {found}"
            )
        xp = _arrays.of(values).xp
        split = xp.reshape(values, (found[0] // b, b, found[1] // b, b))
        return cls(xp.permute_dims(split, (0, 2, 1, 3)), col_indices, shape, **options)

    def to_flat(self) -> Array:
        """Values in cuSPARSE's layout, ``(block_rows * b, width * b)``: a new array."""
        rows, width, b, _ = (int(s) for s in self.data.shape)
        xp = self.lib.xp
        flat = xp.reshape(xp.permute_dims(self.data, (0, 2, 1, 3)), (rows * b, width * b))
        return self.lib.copy(flat)

    @property
    @placed
    def nnz(self) -> int:
        """Stored elements; counted on first use, which reads all values."""
        if self._nnz is None:
            row, col, data = _blocks(self)
            inside = 0
            if isinstance(self.zeros, str):
                inside = slots.count_inside(self.lib, row, col, self.blocksize, self.shape)
            count = slots.count_stored(self.lib, data, self.zeros, inside)
            object.__setattr__(self, "_nnz", count)
        return int(self._nnz or 0)

    @property
    def width(self) -> int:
        """Block slots of each block row."""
        return int(self.col_indices.shape[1])

    @property
    def index_dtype(self) -> Any:
        """dtype of `col_indices`."""
        return self.col_indices.dtype

    @property
    def blocksize(self) -> tuple[int, int]:
        """Rows and columns of a block, (b, b)."""
        return int(self.data.shape[2]), int(self.data.shape[3])

    @property
    def T(self) -> Transposed:  # noqa: N802
        """Transpose as a view: no data moves."""
        return Transposed(self)

    @placed
    def stored_mask(self) -> Array:
        """Mask of stored slots, (block_rows, width, b, b) bool."""
        inside = _inside(self) if isinstance(self.zeros, str) else None
        return slots.stored_slots(self.lib, self.data, self.zeros, inside)

    def buffers(self) -> dict[str, Array]:
        """The arrays by name."""
        arrays = {"data": self.data, "col_indices": self.col_indices}
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
        problems = _block_problems(self) or _structure(self)
        if not checks.only_range(problems):
            return problems
        in_range = not problems
        problems += _order_problems(self)
        if not in_range:
            return problems
        problems += _padding(self)
        if self.zeros is not None and not isinstance(self.zeros, str):
            problems += checks.zeros_mark(self.lib, self.zeros, self.data, _inside(self))
        return problems


def _blocks(a: BlockedELL) -> tuple[Array, Array, Array]:
    """Block row and column of each slot, and the values as (slots, b, b)."""
    rows, width = (int(s) for s in a.col_indices.shape)
    lib, (b, c) = a.lib, a.blocksize
    index = lib.arange(rows, lib.dtype_name(a.col_indices), a.device)
    row = lib.repeat(index, width, rows * width)
    xp = lib.xp
    data = xp.reshape(a.data, (rows * width, b, c))
    return row, xp.reshape(a.col_indices, (-1,)), data


def _inside(a: BlockedELL) -> Array | None:
    row, col, _ = _blocks(a)
    mask = slots.slots_inside(a.lib, row, col, a.blocksize, a.shape)
    return None if mask is None else a.lib.xp.reshape(mask, tuple(a.data.shape))


def _block_problems(a: BlockedELL) -> list[Problem]:
    b, c = a.blocksize
    if b == c and b > 0:
        return []
    text = f"blocks must be square with at least one row, got {(b, c)}"
    return [Problem("blocksize", "data", (b, c), text)]


def _structure(a: BlockedELL) -> list[Problem]:
    lib, (m, n), (b, _) = a.lib, a.shape, a.blocksize
    problems = checks.same_placement(lib, a.buffers())
    if problems:
        return problems
    rows = -(-m // b)
    slots_found = tuple(int(s) for s in a.col_indices.shape)
    width = slots_found[1]
    problems = checks.lengths(
        {
            "col_indices": ((rows, width), slots_found),
            "data": ((rows, width, b, b), tuple(int(s) for s in a.data.shape)),
        }
    )
    return problems + checks.index_range(
        lib, "col_indices", a.col_indices, -(-n // b), "block column", lowest=-1
    )


def _padding(a: BlockedELL) -> list[Problem]:
    row, col, data = _blocks(a)
    lead = (int(a.data.shape[0]), int(a.data.shape[1]))
    return slots.padding_problems(a.lib, data, row, col, a.shape, lead)


def _without_leftovers(a: BlockedELL) -> BlockedELL:
    """Empty slots zeroed; a new array only where one holds anything."""
    lib = a.lib
    empty = lib.flatnonzero(a.col_indices < 0)
    if not int(empty.shape[0]):
        return a
    rows, width = (int(s) for s in a.col_indices.shape)
    data = lib.xp.reshape(a.data, (rows * width, *a.blocksize))
    step = max(1, slots.CHUNK // (a.blocksize[0] * a.blocksize[1]))
    parts = (empty[i : i + step] for i in range(0, int(empty.shape[0]), step))
    if not any(lib.any(lib.nonzero_mask(lib.take(data, part))) for part in parts):
        return a
    filled = lib.flatnonzero(a.col_indices >= 0)
    size = a.blocksize[0] * a.blocksize[1]
    within = lib.arange(size, device=a.device)
    target = lib.xp.reshape(filled[:, None] * size + within[None, :], (-1,))
    values = lib.xp.reshape(lib.take(data, filled), (-1,))
    cleared = lib.scatter(tuple(a.data.shape), target, values)
    return BlockedELL.trusted(data=cleared, col_indices=a.col_indices, shape=a.shape)


def _out_of_order(a: BlockedELL) -> Array:
    """Mask over slots 1, 2, … of each row: neither above the slot before nor empty."""
    before, after = a.col_indices[:, :-1], a.col_indices[:, 1:]
    return (after >= 0) & ((before < 0) | (before >= after))


def _order_problems(a: BlockedELL) -> list[Problem]:
    later = max(1, a.width - 1)
    return checks.violations(
        a.lib,
        _out_of_order(a),
        a.col_indices[:, 1:],
        "sorted",
        lambda p: f"col_indices[{p // later}, {p % later + 1}]",
        lambda v: f"block columns must ascend with empty slots last, got {v}",
    )


def _is_sorted(a: BlockedELL) -> bool:
    return not a.lib.any(_out_of_order(a))


def _canonical(a: BlockedELL, stored: Array | str | None, check: bool) -> dict[str, Any]:
    lib = a.lib
    fields: dict[str, Any] = {**a.buffers(), "shape": a.shape, "zeros": stored}
    mask = None if isinstance(stored, str) or stored is None else stored
    if not check or _is_sorted(a):
        fields["zeros"] = stored if mask is None else slots.marks(lib, a.data, mask)
        return fields
    row, col, data = _blocks(a)
    if isinstance(stored, str):
        mask = slots.stored_slots(lib, a.data, stored, _inside(a))
    used = lib.flatnonzero(col >= 0)
    if mask is not None:
        mask = lib.take(lib.xp.reshape(mask, tuple(data.shape)), used)
    blocks = canonical_blocks(
        lib, lib.take(row, used), lib.take(col, used), lib.take(data, used), mask
    )
    rows, width = (int(s) for s in a.col_indices.shape)
    slot = slots_in_rows(lib, blocks.row, rows, width)
    fields["col_indices"], fields["data"] = place_blocks(
        lib, blocks.col, blocks.data, slot, rows, width
    )
    if not isinstance(stored, str) and blocks.stored is not None:
        kept = place_blocks(lib, blocks.col, blocks.stored, slot, rows, width)[1]
        fields["zeros"] = slots.marks(lib, fields["data"], kept)
    return fields
