"""What every format has in common: attributes, copies, pickling, and the way up to operations.

A format is a final frozen dataclass whose arrays never change. Methods that need conversion,
dispatch or interop import them when called: the one upward edge in the layering.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Self

from sparseformats import _arrays
from sparseformats._arrays import Array, ArrayLibrary, placed
from sparseformats.errors import InvalidTensorError, Problem

__all__ = ["ALL", "SparseMatrix", "assign"]

ALL: Final = "all"
"""The mark of a slot format in which every slot inside the logical shape is stored."""


def assign(self: SparseMatrix, fields: Mapping[str, Any]) -> None:
    """Set every field of a frozen instance once; NumPy buffers become read-only views."""
    lib = None
    names: tuple[str, ...] = type(self).__slots__
    for name in names:
        if name == "__weakref__":
            continue
        value = fields.get(name)
        if lib is None and _arrays.is_array(value):
            lib = _arrays.of(value)
        if lib is not None and lib.owns(value):
            value = lib.readonly(value)
        object.__setattr__(self, name, value)


_operator: Callable[[Any, Any], Any] | None = None


def _learn_operator() -> Callable[[Any, Any], Any]:
    """``@``, imported once: an import statement in each product would take half a microsecond."""
    global _operator  # noqa: PLW0603 - the same function for the whole process
    from sparseformats.ops import matmul_operator

    _operator = matmul_operator
    return matmul_operator


def _restore(
    cls: type[SparseMatrix],
    buffers: dict[str, Array],
    static: dict[str, Any],
    moved: Mapping[str, str],
) -> Any:
    for name, dtype_name in moved.items():
        buffers[name] = _arrays.of(buffers[name]).from_bits(buffers[name], dtype_name)
    return cls.from_parts(buffers, static)


class SparseMatrix:
    """A two-dimensional sparse matrix; the base of all formats, never instantiated itself."""

    __slots__ = ()

    family: ClassVar[str]
    # NumPy and CuPy then leave `x @ A` to __rmatmul__ instead of making an object array.
    __array_ufunc__: ClassVar[None] = None
    __hash__ = object.__hash__

    if TYPE_CHECKING:

        @property
        def data(self) -> Array: ...  # noqa: D102
        @property
        def shape(self) -> tuple[int, int]: ...  # noqa: D102
        @property
        def nnz(self) -> int: ...  # noqa: D102
        @property
        def T(self) -> SparseMatrix: ...  # noqa: D102, N802
        def buffers(self) -> dict[str, Array]: ...  # noqa: D102
        def static(self) -> dict[str, Any]: ...  # noqa: D102
        def stored_mask(self) -> Array: ...  # noqa: D102
        def _problems(self) -> list[Problem]: ...
        def _repr_nnz(self) -> int | None: ...

    def __init__(self) -> None:
        raise TypeError(
            "SparseMatrix is what all formats have in common; make a COO, CSR, CSC, BSR, "
            "BlockedELL or NM, or a Sum of them"
        )

    # Making.

    @classmethod
    def trusted(cls, **fields: Any) -> Self:
        """Wrap arrays that are known to be canonical: no checks, no copies (internal)."""
        made = object.__new__(cls)
        assign(made, fields)
        return made

    @classmethod
    def from_parts(cls, buffers: Mapping[str, Array], static: Mapping[str, Any]) -> Self:
        """Rebuild from `buffers` and `static` (internal: copies, files, moves)."""
        return cls.trusted(**buffers, **{**static, "shape": tuple(static["shape"])})

    def __copy__(self) -> Self:
        return self  # immutable

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copies = {name: self.lib.copy(x) for name, x in self.buffers().items()}
        return self.from_parts(copies, self.static())

    def __reduce__(self) -> tuple[Any, ...]:
        lib = self.lib
        buffers = {name: lib.compact(x) for name, x in self.buffers().items()}
        names = {name: lib.dtype_name(x) for name, x in buffers.items()}
        # torch pickles fp8 storages but cannot load them, so their bits travel.
        moved = {name: dtype for name, dtype in names.items() if dtype.startswith("float8")}
        buffers |= {name: lib.bits(buffers[name]) for name in moved}
        return _restore, (type(self), buffers, self.static(), moved)

    # Facts.

    @property
    def lib(self) -> ArrayLibrary:
        """The array library of the buffers (internal)."""
        return _arrays.of(self.data)

    def value_buffers(self) -> tuple[Array, ...]:
        """The arrays that hold the values of stored elements (internal)."""
        return (self.data,)

    @property
    def format(self) -> str:
        """Name of the format, as `to` takes it."""
        return self.family

    @property
    def dtype(self) -> Any:
        """The values' dtype, as the array library spells it."""
        return self.data.dtype

    @property
    def dtype_name(self) -> str:
        """The values' dtype by name, the same in every library."""
        return self.lib.dtype_name(self.data)

    @property
    def index_dtype(self) -> Any:
        """The index arrays' dtype, as the array library spells it."""
        raise NotImplementedError

    @property
    def blocksize(self) -> tuple[int, int]:
        """Rows and columns of a block, ``(1, 1)`` for formats without blocks."""
        return (1, 1)

    @property
    def ndim(self) -> int:
        """Number of dimensions, always 2."""
        return 2

    @property
    def density(self) -> float:
        """Stored elements over all elements; 0.0 for an empty shape."""
        size = self.shape[0] * self.shape[1]
        return self.nnz / size if size else 0.0

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        from sparseformats._dtypes import itemsize

        lib = self.lib
        arrays = self.buffers().values()
        return sum(math.prod(x.shape) * itemsize(lib.dtype_name(x)) for x in arrays)

    @property
    def device(self) -> str:
        """Where the buffers live, for example ``"cpu"`` or ``"cuda:0"``."""
        return self.lib.device(self.data)

    @property
    def library(self) -> str:
        """Library of the buffers: ``"numpy"``, ``"torch"`` or ``"cupy"``."""
        return self.lib.name

    def __repr__(self) -> str:
        nnz = self._repr_nnz()
        parts = [f"{self.shape[0]}x{self.shape[1]}", self.dtype_name]
        if self.blocksize != (1, 1):
            parts.append(f"blocksize={self.blocksize}")
        if nnz is not None:
            parts.append(f"nnz={nnz}")
        name = type(self).__name__
        if self.family in ("n:m", "transposed"):
            name += f" {self.format}"
        return f"<{name} {', '.join(parts)}, {self.library} on {self.device}>"

    # Checking.

    @placed
    def problems(self) -> list[Problem]:
        """Every broken rule of the format; an empty list means valid and canonical.

        Pure: changes nothing. Reads the buffers, so it synchronises a device.
        """
        return self._problems()

    def validate(self) -> None:
        """Raise `InvalidTensorError` with all problems, if there are any."""
        found = self.problems()
        if found:
            raise InvalidTensorError(repr(self), found)

    # Upwards: conversion and interop.

    def to(
        self,
        format: str,
        *,
        blocksize: tuple[int, int] | int | None = None,
        index_dtype: Any = None,
    ) -> SparseMatrix:
        """Convert to another format without losing anything.

        Parameters
        ----------
        format : str
            ``"coo"``, ``"csr"``, ``"csc"``, ``"bsr"``, ``"blocked_ell"`` or ``"n:m"`` such as
            ``"2:4"``.
        blocksize : (R, C) or int, optional
            For the block formats; inherited from a block format where that is legal.
        index_dtype : optional
            ``"int32"`` or ``"int64"``; narrows only on request.

        Returns
        -------
        SparseMatrix
            `self` where it already is what was asked for.

        Raises
        ------
        ValueError
            Unknown format, or a missing or bad block size.
        PatternError
            A group of an n:m target has too many non-zeros.
        OverflowError
            ``index_dtype="int32"`` cannot express an index.
        MemoryError
            The output is inherently larger than free memory; the text has its size.

        Notes
        -----
        *Loses*: nothing. See ``docs/reference/contract``.
        """
        from sparseformats.convert import convert

        return convert(self, format, blocksize=blocksize, index_dtype=index_dtype)

    def to_dense(self) -> Array:
        """Dense array of the same library and device, ``(m, n)``.

        *Loses*: which zeros are stored. Every value keeps its bits.
        """
        from sparseformats.convert import to_dense

        return to_dense(self)

    def to_scipy(self) -> Any:
        """SciPy sparse array of this format.

        *Loses*: the marks of stored zeros of block formats.

        Raises
        ------
        TypeError
            SciPy has no such format or dtype, or the buffers are not NumPy arrays.
        """
        from sparseformats.convert import to_scipy

        return to_scipy(self)

    def to_torch(self, *, packed: str = "cutlass") -> Any:
        """Sparse torch tensor of this format (COO, CSR, CSC, BSR, BSC layouts, packed 2:4).

        *Loses*: the marks of stored zeros of block formats and 2:4.

        Parameters
        ----------
        packed : ``"cutlass"`` or ``"cusparselt"``
            Of 2:4: which of torch's classes of semi-structured tensors. A cuSPARSELt tensor is
            made where the layout of its bytes was learnt.

        Raises
        ------
        TypeError
            torch has no such layout or dtype; the text names alternatives.
        ValueError
            An unknown `packed`, or one for another format than 2:4.
        PatternError, LossyConversionError
            torch's packed 2:4 has no place for a value: float32 is 1:2 there.
        """
        from sparseformats.convert import to_torch

        return to_torch(self, packed=packed)

    def to_cupy(self) -> Any:
        """`cupyx.scipy.sparse` matrix of this format (COO, CSR, CSC).

        Raises
        ------
        TypeError
            CuPy has no such format or dtype; the text names alternatives.
        """
        from sparseformats.convert import to_cupy

        return to_cupy(self)

    def to_library(self, library: str) -> Self:
        """Hold the same buffers as arrays of another library, on the same device."""
        from sparseformats.convert import to_library

        moved: Self = to_library(self, library)
        return moved

    def to_device(self, device: str, library: str | None = None) -> Self:
        """Copy the buffers to another device, as arrays of `library` if given."""
        from sparseformats.convert import to_device

        moved: Self = to_device(self, device, library)
        return moved

    # Upwards: algebra.

    def with_data(self, values: Array, *, copy: bool = True) -> SparseMatrix:
        """Put other values on the same pattern.

        Parameters
        ----------
        values : array shaped as `data`
            Of the same library and device, of any dtype. A stored value may be zero: it stays
            stored. What is not stored (fill, padding, empty slots) takes zeros only. Stored
            zeros that an n:m matrix keeps without a slot stay as they are.
        copy : bool
            ``False`` may share the array and promises that nobody writes to it.

        Raises
        ------
        InvalidTensorError
            A non-zero value where nothing is stored; carries every place.
        ValueError, TypeError, DeviceMismatchError
            Another shape; another library or an unsupported dtype; another device.
        NotImplementedError
            The values require grad while grad mode is on.
        TypeError
            This is a `Sum`: its parts take values, each its own.
        """
        from sparseformats.algebra import with_data

        return with_data(self, values, copy=copy)

    def astype(self, dtype: Any) -> SparseMatrix:
        """Cast every stored value; the pattern is kept, so what becomes zero stays stored.

        Floating values round; those beyond a floating target become infinite, and what is not
        zero becomes true in bool.

        Parameters
        ----------
        dtype : str, dtype or Python type

        Raises
        ------
        OverflowError
            A value that an integer dtype cannot express: too large, infinite or NaN.
        TypeError
            A dtype that the array library lacks; complex values to one part.
        """
        from sparseformats.algebra import astype

        return astype(self, dtype)

    def eliminate_zeros(self) -> SparseMatrix:
        """Drop stored zeros of either sign, and blocks without a non-zero.

        *Loses*: which zeros were stored, and their signs.
        """
        from sparseformats.algebra import eliminate_zeros

        return eliminate_zeros(self)

    def diagonal(self, k: int = 0) -> Array:
        """Elements (i, i + k) as a dense vector; bits are kept, what is not stored is +0.0."""
        from sparseformats.algebra import diagonal

        return diagonal(self, k)

    def sum(self, axis: int | None = None) -> Any:
        """Sum the stored elements.

        Parameters
        ----------
        axis : {None, 0, 1}
            None: of all; 0: of each column; 1: of each row.

        Returns
        -------
        scalar, (n,) or (m,) array
            Dtypes as of a product with ones: half types are summed in float32 and rounded once,
            int8 and int16 give int32, uint8 and uint16 uint32 (torch: int64), wider integers
            wrap. Bool is counted, in int64.

        Raises
        ------
        ValueError, TypeError
            Another axis.
        """
        from sparseformats.algebra import total

        return total(self, axis)

    def multiply(self, other: Any) -> SparseMatrix:
        """Multiply element by element.

        Parameters
        ----------
        other : SparseMatrix or array
            Of the same shape; an array may have 1 row or 1 column or be a vector (n,), which
            scales columns or rows.

        Returns
        -------
        SparseMatrix
            Of the promoted dtype. With an array: A's format and pattern. With a matrix: stored
            where both store, in A's format if they share it and its block size, else CSR.

        Raises
        ------
        ValueError, TypeError, DeviceMismatchError
            Shapes, libraries or devices that do not match; a number.
        """
        from sparseformats.algebra import multiply

        return multiply(self, other)

    def __add__(self, other: Any) -> Any:
        from sparseformats.algebra import add

        return add(self, other)

    def __radd__(self, other: Any) -> Any:
        from sparseformats.algebra import add

        return add(self, other)  # a matrix is never on the right here: 0 or a refusal

    def __sub__(self, other: Any) -> Any:
        from sparseformats.algebra import subtract

        return subtract(self, other)

    def __rsub__(self, other: Any) -> Any:
        from sparseformats.algebra import negative, subtract

        left = subtract(self, other)  # 0 or a refusal
        return left if left is NotImplemented else negative(self)

    def __mul__(self, other: Any) -> Any:
        from sparseformats.algebra import scaled

        return scaled(self, other)

    def __rmul__(self, other: Any) -> Any:
        from sparseformats.algebra import scaled

        return scaled(self, other)

    def __truediv__(self, other: Any) -> Any:
        from sparseformats.algebra import divided

        return divided(self, other)

    def __neg__(self) -> SparseMatrix:
        from sparseformats.algebra import negative

        return negative(self)

    def __abs__(self) -> SparseMatrix:
        from sparseformats.algebra import absolute

        return absolute(self)

    def __getitem__(self, key: Any) -> Any:
        """Rows and columns by slices, index arrays, lists or masks; an element by two integers.

        Parameters
        ----------
        key : index, or two of them for rows and columns
            Slices with any step; 1-D integer arrays of the matrix's library and device, or
            lists, in any order, repeats allowed, negative from the end; bool masks. At most one
            of the two is an array. One integer alone is refused: matrices have two axes.

        Returns
        -------
        SparseMatrix, or the library's scalar for two integers
            COO, CSR and CSC stay what they are, a Sum part by part. Block and n:m formats stay
            where the cut begins at a block or group (rows of n:m: always), else the result is CSR.

        Raises
        ------
        IndexError
            Out of range; an index of another kind.
        TypeError, DeviceMismatchError
            One integer alone; an array of another library; on another device.
        """
        from sparseformats.algebra import getitem

        return getitem(self, key)

    def conj(self) -> SparseMatrix:
        """Complex conjugate, stored element by stored element; `self` for real dtypes."""
        from sparseformats._dtypes import kind

        if kind(self.dtype_name) != "c":
            return self
        buffers = {**self.buffers(), "data": self._conj_data()}
        if "side_data" in buffers:
            lib = self.lib
            buffers["side_data"] = lib.native(lib.xp.conj(buffers["side_data"]))
        return self.from_parts(buffers, self.static())

    def _conj_data(self) -> Array:
        return self.lib.native(self.lib.xp.conj(self.data))

    # Upwards: products.

    def __matmul__(self, other: Any) -> Any:
        return (_operator or _learn_operator())(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return (_operator or _learn_operator())(other, self)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        from sparseformats.ops import torch_function

        return torch_function(func, args, kwargs or {})

    # Protocols that would guess wrong are refused by name.

    def _refuse(self, what: str, instead: str) -> NoReturn:
        raise TypeError(f"{what} of a {type(self).__name__} is ambiguous or costly; use {instead}")

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} does not become a NumPy array by itself: use .to_dense(); "
            "with a SciPy matrix S on the left use sf.from_scipy(S) @ A or sf.matmul(S, A)"
        )

    def __len__(self) -> int:
        self._refuse("len()", ".shape or .nnz")

    def __bool__(self) -> bool:
        self._refuse("the truth value", ".nnz or sparseformats.same(A, B)")

    def __iter__(self) -> Any:
        self._refuse("iteration", ".to('coo') and its row, col and data")

    def __contains__(self, value: object) -> bool:
        self._refuse("`in`", ".to('coo').data")

    def __eq__(self, other: object) -> bool:
        self._refuse("==", "sparseformats.same(A, B)")

    def __ne__(self, other: object) -> bool:
        self._refuse("!=", "sparseformats.same(A, B)")
