"""Sum: several matrices of one shape that store no position twice.

Layout
------
`parts`, unchanged. Element (i, j) of the sum is element (i, j) of the one part that stores it.

Invariants
----------
1. ``part``: at least one part, each a valid matrix of another format than this; what is wrong
   with a part is reported under its own rule, at ``parts[i].…``.
2. ``library``, ``device``: all parts live in one library, on one device.
3. ``shape``, ``dtype``: all parts have one shape and one value dtype.
4. ``disjoint``: no position is stored in two parts, not even as a zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self, TypeVar, final

from sparseformats._arrays import Array, ArrayLibrary, placed
from sparseformats._dtypes import itemsize, kind
from sparseformats.errors import DeviceMismatchError, InvalidTensorError, Problem
from sparseformats.formats.base import SparseMatrix, assign
from sparseformats.formats.canonical import row_major
from sparseformats.formats.checks import PLACES

__all__ = ["Sum", "part_name", "within"]

V = TypeVar("V")


@final
@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, init=False, repr=False)
class Sum(SparseMatrix):
    """Sum of matrices that have no stored position in common, so that nothing is ever added.

    Parameters
    ----------
    parts : iterable of SparseMatrix
        At least one, of equal shape, dtype, library and device. The parts of a `Sum` among them
        become parts themselves. They are shared, not copied.
    check : bool
        ``False`` promises that no position is stored twice.

    Raises
    ------
    TypeError, DeviceMismatchError
        Something else than matrices; parts of two libraries; on two devices.
    InvalidTensorError
        No parts, other shapes or dtypes, or a position that two parts store; carries every
        problem.

    See Also
    --------
    sparseformats.split : makes one of any matrix.

    Examples
    --------
    >>> import sparseformats as sf
    >>> S = sf.Sum([sf.NM([[[1.0, 2.0]]], [[[0, 3]]], (1, 4)), sf.CSR([7.0], [1], [0, 1], (1, 4))])
    >>> S
    <Sum 2:4 + csr 1x4, float64, numpy on cpu>
    >>> S.to_dense()
    array([[1., 7., 0., 2.]])
    """

    family: ClassVar[str] = "sum"

    parts: tuple[SparseMatrix, ...]

    @placed
    def __init__(self, parts: Iterable[SparseMatrix], *, check: bool = True) -> None:
        found = _flat(parts)
        _require_place(found)
        draft = Sum.trusted(parts=found)
        problems = _agreement(draft)
        if not problems and check:
            problems = _disjoint(draft)
        if problems:
            raise InvalidTensorError("Sum", problems)
        assign(self, {"parts": found})

    @classmethod
    def from_parts(cls, buffers: Mapping[str, Array], static: Mapping[str, Any]) -> Self:
        """Rebuild from `buffers` and `static` (internal)."""
        from sparseformats import formats

        made = []
        for i, described in enumerate(static["parts"]):
            own = within(i, buffers)
            rest = {k: v for k, v in described.items() if k != "class"}
            made.append(getattr(formats, described["class"]).from_parts(own, rest))
        return cls.trusted(parts=tuple(made))

    @property
    def data(self) -> NoReturn:
        """There is no one array of values.

        Raises
        ------
        AttributeError
            The text says where the values are.
        """
        raise AttributeError(
            "a Sum has no data of its own: use S.parts, each of which has, or S.to('coo').data"
        )

    @property
    def lib(self) -> ArrayLibrary:
        """The array library of the buffers (internal)."""
        return self.parts[0].lib

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of every part."""
        return self.parts[0].shape

    @property
    def dtype(self) -> Any:
        """The values' dtype, as the array library spells it."""
        return self.parts[0].dtype

    @property
    def dtype_name(self) -> str:
        """The values' dtype by name, the same in every library."""
        return self.parts[0].dtype_name

    @property
    def index_dtype(self) -> Any:
        """The widest index dtype of any part."""
        lib = self.lib
        found = [part.index_dtype for part in self.parts]
        return max(found, key=lambda dtype: itemsize(lib.dtype_name(dtype)))

    @property
    def device(self) -> str:
        """Where the buffers live."""
        return self.parts[0].device

    @property
    def nnz(self) -> int:
        """Stored elements of all parts."""
        return sum(part.nnz for part in self.parts)

    @property
    def T(self) -> Sum:  # noqa: N802
        """Sum of the parts' transposes."""
        return Sum.trusted(parts=tuple(part.T for part in self.parts))

    def buffers(self) -> dict[str, Array]:
        """The parts' arrays by name: ``part0_data`` is that of the first."""
        return {
            f"{_prefix(i)}{name}": x
            for i, part in enumerate(self.parts)
            for name, x in part.buffers().items()
        }

    def static(self) -> dict[str, Any]:
        """The parts' types and what of them is not an array."""
        parts = [{"class": type(part).__name__, **part.static()} for part in self.parts]
        return {"parts": parts}

    def value_buffers(self) -> tuple[Array, ...]:
        """The parts' arrays of values (internal)."""
        return tuple(x for part in self.parts for x in part.value_buffers())

    def conj(self) -> Sum:
        """Complex conjugate, part by part; `self` for real dtypes."""
        if kind(self.dtype_name) != "c":
            return self
        return Sum.trusted(parts=tuple(part.conj() for part in self.parts))

    def __repr__(self) -> str:
        nnz = self._repr_nnz()
        facts = [f"{self.shape[0]}x{self.shape[1]}", self.dtype_name]
        facts += [] if nnz is None else [f"nnz={nnz}"]
        names = " + ".join(map(part_name, self.parts))
        return f"<Sum {names} {', '.join(facts)}, {self.library} on {self.device}>"

    def _repr_nnz(self) -> int | None:
        counts = [part._repr_nnz() for part in self.parts]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def _problems(self) -> list[Problem]:
        return _agreement(self) or _within(self) or _disjoint(self)


def part_name(part: SparseMatrix) -> str:
    """Format of a part, with its block size where it has blocks."""
    size = part.blocksize
    return part.format if size == (1, 1) else f"{part.format} {size[0]}x{size[1]}"


def _prefix(i: int) -> str:
    return f"part{i}_"


def within(i: int, buffers: Mapping[str, V]) -> dict[str, V]:
    """Those of a sum's buffers that belong to part i, by the names that they have there."""
    head = _prefix(i)
    return {key.removeprefix(head): x for key, x in buffers.items() if key.startswith(head)}


def _flat(parts: Any) -> tuple[SparseMatrix, ...]:
    if isinstance(parts, SparseMatrix) or not isinstance(parts, Iterable):
        one = "one " * isinstance(parts, SparseMatrix)
        raise TypeError(f"Sum takes a list of matrices, got {one}{type(parts).__name__}")
    found: list[SparseMatrix] = []
    for part in parts:
        if not isinstance(part, SparseMatrix):
            raise TypeError(
                f"Sum takes matrices of this library, got {type(part).__name__}; "
                "use sparseformats.asformat first"
            )
        found += part.parts if isinstance(part, Sum) else [part]
    return tuple(found)


def _require_place(parts: tuple[SparseMatrix, ...]) -> None:
    for part in parts[1:]:
        first = parts[0]
        if part.library != first.library:
            raise TypeError(
                f"Sum: one part holds {first.library} arrays, another {part.library}; data never "
                f"moves between libraries unasked; use .to_library({first.library!r})"
            )
        if part.device != first.device:
            raise DeviceMismatchError(
                f"Sum: one part is on {first.device!r}, another on {part.device!r}; data never "
                f"moves between devices unasked; use .to_device({first.device!r})"
            )


def _agreement(A: Sum) -> list[Problem]:
    """Rules 1 to 3, as far as they can be read without looking at arrays."""
    if not A.parts:
        return [Problem("part", "parts", 0, "must be at least one matrix, got none")]
    found = []
    given: tuple[object, ...] = A.parts  # what a promise did not keep
    for i, part in enumerate(given):
        if not isinstance(part, SparseMatrix) or isinstance(part, Sum):
            name = type(part).__name__
            text = f"must be a matrix of another format than this, got {name}"
            found.append(Problem("part", f"parts[{i}]", name, text))
    if found:
        return found
    for rule in ("library", "device", "shape", "dtype"):
        read = "dtype_name" if rule == "dtype" else rule
        first = getattr(A.parts[0], read)
        for i, part in enumerate(A.parts):
            other = getattr(part, read)
            if other != first:
                text = f"must be that of parts[0], {first}, got {other}"
                found.append(Problem(rule, f"parts[{i}]", other, text))
    return found


def _within(A: Sum) -> list[Problem]:
    """What is wrong with the parts themselves."""
    return [
        problem._replace(place=f"parts[{i}].{problem.place}")
        for i, part in enumerate(A.parts)
        for problem in part.problems()
    ]


def _disjoint(A: Sum) -> list[Problem]:
    """Positions that two parts store, given valid parts of one shape."""
    if len(A.parts) < 2:
        return []
    lib = A.lib
    found = [part.to("coo") for part in A.parts]
    row = lib.concat([lib.astype(x.row, "int64") for x in found])  # type: ignore[attr-defined]
    col = lib.concat([lib.astype(x.col, "int64") for x in found])  # type: ignore[attr-defined]
    owner = lib.concat([lib.full(x.nnz, i, "int64", A.device) for i, x in enumerate(found)])
    order = row_major(lib, row, col, A.shape)
    row, col, owner = (lib.take(x, order) for x in (row, col, owner))
    twice = lib.flatnonzero((row[1:] == row[:-1]) & (col[1:] == col[:-1]))
    count = int(twice.shape[0])
    some = twice[:PLACES]
    columns = [(row, some), (col, some), (owner, some), (owner, some + 1)]
    rows = zip(*(lib.to_numpy(lib.take(x, at)).tolist() for x, at in columns), strict=True)
    problems = [
        Problem("disjoint", f"({i}, {j})", (p, q), f"is stored in parts[{p}] and in parts[{q}]")
        for i, j, p, q in rows
    ]
    if count > PLACES:
        rest = count - PLACES
        text = f"and {rest} more places like these"
        problems.append(Problem("disjoint", "more places", rest, text))
    return problems
