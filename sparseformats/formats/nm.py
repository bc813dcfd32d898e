"""n:m: at most n non-zeros in each group of m neighbours of a row.

Layout
------
``data (rows, groups, n)``, ``indices (rows, groups, n)`` uint8 with groups = ceil(k / m). Slot
s of group g in row i is the matrix's element (i, g m + indices[i, g, s]). `zeros` marks stored
zeros that lie in slots, see `sparseformats.formats.slots`; `side` is a COO of the same shape
with the stored zeros that have no slot, or None.

Invariants
----------
1. ``length``, ``pattern``: shapes as above, ``1 <= n <= m <= 256``.
2. ``library``, ``device``: all arrays live in one library, on one device.
3. ``position-range``: positions lie below m.
4. ``sorted``: positions ascend strictly within each group.
5. ``padding``: slots beyond the last column hold zeros and are not stored.
6. ``free-position``: slots that are not stored hold +0 at the smallest free positions.
7. ``zeros-*``: marks are int64, ascending, in range, inside the shape, at zero values.
8. ``side-*``: a valid COO of the same shape, dtype and place, of zeros only, at positions that
   no stored slot holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

from sparseformats._arrays import Array, placed
from sparseformats.errors import InvalidTensorError, Problem
from sparseformats.formats import group_checks, groups, slots
from sparseformats.formats.base import ALL, SparseMatrix, assign
from sparseformats.formats.canonical import canonical_coordinates
from sparseformats.formats.coo import COO
from sparseformats.formats.inputs import as_shape, prepare
from sparseformats.formats.transposed import Transposed

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NM"]


@final
@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, init=False, repr=False)
class NM(SparseMatrix):
    """Sparse matrix with at most n non-zeros in each group of m along a row.

    Parameters
    ----------
    data : (rows, groups, n) array
    indices : (rows, groups, n) integer array
        Position of each slot in its group, in any order; stored elements at equal positions are
        summed, slots that are not stored may hold any position.
    shape : (rows, k)
        k need not be a multiple of m.
    n, m : int
    stored : ``"nonzero"``, ``"all"`` or bool array shaped as `data`
        Which slots are stored elements, see `BSR`.
    side : COO, optional
        Stored zeros that have no slot.
    copy : bool
        ``False`` shares the arrays and promises that nobody writes to them.
    check : bool
        ``False`` promises canonical form.

    Raises
    ------
    InvalidTensorError
        The arrays form no matrix; carries every problem.
    TypeError, DeviceMismatchError, OverflowError
        Wrong dtypes or mixed libraries; mixed devices; an integer sum does not fit.

    Examples
    --------
    >>> import sparseformats as sf
    >>> sf.NM([[[1.0, 2.0]]], [[[0, 3]]], (1, 4)).to_dense()
    array([[1., 0., 0., 2.]])
    """

    family: ClassVar[str] = "n:m"

    data: Array
    indices: Array
    shape: tuple[int, int]
    n: int = 2
    m: int = 4
    zeros: Array | str | None = None
    side: COO | None = None
    _nnz: int | None = field(default=None, init=False)

    @placed
    def __init__(
        self,
        data: Any,
        indices: Any,
        shape: Any,
        n: int = 2,
        m: int = 4,
        *,
        stored: Any = "nonzero",
        side: COO | None = None,
        copy: bool = True,
        check: bool = True,
    ) -> None:
        size = as_shape(shape)
        groups.check_pattern_numbers(n, m)
        lib, values, index = prepare(
            "NM",
            data,
            {"indices": indices},
            ndim=3,
            index_ndim={"indices": 3},
            copy=copy,
            uint8=("indices",),
        )
        draft = NM.trusted(data=values, shape=size, n=int(n), m=int(m), side=side, **index)
        if check:
            problems = group_checks.structure(draft) + group_checks.side_problems(draft)
            if problems:
                raise InvalidTensorError("NM", problems)
        beside = None if isinstance(stored, str) else groups.inside(draft)
        zeros = slots.requested(lib, "NM", stored, values, beside)
        assign(self, _canonical(draft, zeros, check))

    @classmethod
    def from_parts(cls, buffers: Mapping[str, Array], static: Mapping[str, Any]) -> Self:
        """Rebuild from `buffers` and `static` (internal)."""
        shape = tuple(static["shape"])
        own = {k: v for k, v in buffers.items() if not k.startswith("side_")}
        side = None
        if "side_data" in buffers:
            side = COO.trusted(
                data=buffers["side_data"],
                row=buffers["side_row"],
                col=buffers["side_col"],
                shape=shape,
            )
        return cls.trusted(**own, **{**static, "shape": shape}, side=side)

    @property
    def format(self) -> str:
        """``"n:m"`` with the numbers, for example ``"2:4"``."""
        return f"{self.n}:{self.m}"

    @property
    @placed
    def nnz(self) -> int:
        """Stored elements; counted on first use, which reads all values."""
        if self._nnz is None:
            inside = 0
            if isinstance(self.zeros, str):
                inside = _count_inside(self)
            count = slots.count_stored(self.lib, self.data, self.zeros, inside)
            aside = 0 if self.side is None else self.side.nnz
            object.__setattr__(self, "_nnz", count + aside)
        return int(self._nnz or 0)

    @property
    def index_dtype(self) -> Any:
        """dtype of `indices`: uint8, positions within a group."""
        return self.indices.dtype

    @property
    def T(self) -> Transposed:  # noqa: N802
        """Transpose as a view: no data moves."""
        return Transposed(self)

    @placed
    def stored_mask(self) -> Array:
        """Mask of stored slots, (rows, groups, n) bool."""
        inside = groups.inside(self) if isinstance(self.zeros, str) else None
        return slots.stored_slots(self.lib, self.data, self.zeros, inside)

    def buffers(self) -> dict[str, Array]:
        """The arrays by name."""
        arrays = {"data": self.data, "indices": self.indices}
        if self.zeros is not None and not isinstance(self.zeros, str):
            arrays["zeros"] = self.zeros
        if self.side is not None:
            arrays |= {f"side_{k}": v for k, v in self.side.buffers().items()}
        return arrays

    def static(self) -> dict[str, Any]:
        """What is not an array."""
        marked = {"zeros": self.zeros} if isinstance(self.zeros, str) else {}
        return {"shape": self.shape, "n": self.n, "m": self.m, **marked}

    def _conj_data(self) -> Array:
        lib = self.lib
        where = lib.flatnonzero(self.stored_mask())
        values = lib.take(lib.xp.reshape(self.data, (-1,)), where)
        # Free slots hold +0, whose conjugate has a negative zero.
        return lib.scatter(tuple(self.data.shape), where, lib.native(lib.xp.conj(values)))

    def _repr_nnz(self) -> int | None:
        return self._nnz

    def _problems(self) -> list[Problem]:
        return group_checks.problems(self)


def _count_inside(a: NM) -> int:
    beyond = groups.outside(a)
    return int(math.prod(a.data.shape) - (0 if beyond is None else a.lib.count_nonzero(beyond)))


def _canonical(a: NM, stored: Array | str | None, check: bool) -> dict[str, Any]:
    """Fields of `a` in canonical form, given what its constructor was told of stored slots."""
    lib = a.lib
    named = stored is None or isinstance(stored, str)
    zeros = stored if named else slots.marks(lib, a.data, stored)
    static = {"shape": a.shape, "n": a.n, "m": a.m}
    fields = {"data": a.data, "indices": a.indices, "zeros": zeros, "side": a.side, **static}
    draft = NM.trusted(**fields)
    if not check or group_checks.is_canonical(draft):
        return fields
    data, row, col = canonical_coordinates(lib, *groups.decode(draft))
    made = groups.encode(lib, data, row, col, a.shape, a.n, a.m)
    side = None
    if made.side is not None:
        names = ("data", "row", "col")
        side = COO.trusted(**dict(zip(names, made.side, strict=True)), shape=a.shape)
    fields |= {"data": made.data, "indices": made.indices, "zeros": made.zeros, "side": side}
    if isinstance(stored, str):
        # "all" may say too much now: equal positions merged, or a slot beyond the shape came in.
        relaid = NM.trusted(**{**fields, "zeros": ALL})
        if relaid.nnz == int(data.shape[0]):
            fields["zeros"] = ALL
    return fields
