"""What a conversion plan converts: reading a source, and holding it to what was planned."""

from __future__ import annotations

from typing import Any, NamedTuple

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.convert.entry import dense_of, mask_of
from sparseformats.errors import DeviceMismatchError
from sparseformats.formats import CSR, SparseMatrix
from sparseformats.ops.operands import refuse_stand_in

__all__ = ["WHAT", "Kind", "kind_of", "sources_of"]

WHAT = "plan_conversion"


class Kind(NamedTuple):
    """Sources that a plan takes.

    Attributes
    ----------
    lib : ArrayLibrary
    format : ``"dense"`` or ``"csr"``
    shape : (m, n)
    dtype, device : str
    index_dtype : str or None
        Index dtype of CSR.
    masked : bool
    """

    lib: ArrayLibrary
    format: str
    shape: tuple[int, int]
    dtype: str
    device: str
    index_dtype: str | None
    masked: bool

    def describe(self) -> str:
        """Name it in an error."""
        index = f" with {self.index_dtype} indices" if self.index_dtype else ""
        mask = " and a mask" if self.masked else ""
        m, n = self.shape
        name = self.lib.name
        return f"{self.format} {m} x {n}, {self.dtype}{index}{mask}, {name} on {self.device}"


def kind_of(source: Any, mask: Any) -> tuple[Kind, dict[str, Array]]:
    """What an example stands for, and its arrays.

    Raises
    ------
    TypeError, ValueError, DeviceMismatchError, NotImplementedError
        As of `from_dense`; or a matrix of another format than CSR.
    """
    if isinstance(source, SparseMatrix):
        return _of_csr(source, mask)
    lib, D = dense_of(source, WHAT)
    refuse_stand_in(lib, source if lib.owns(source) else D, WHAT)  # D has lost a tangent
    m, n = (int(s) for s in D.shape)
    kind = Kind(lib, "dense", (m, n), lib.dtype_name(D), lib.device(D), None, mask is not None)
    arrays = {"dense": D}
    if mask is not None:
        arrays["mask"] = mask_of(lib, mask, D, WHAT)
    return kind, arrays


def _of_csr(A: SparseMatrix, mask: Any) -> tuple[Kind, dict[str, Array]]:
    if not isinstance(A, CSR):
        raise TypeError(
            f"{WHAT} converts dense arrays and CSR matrices, got {A.format}; use A.to('csr') first"
        )
    if mask is not None:
        raise TypeError(f"{WHAT}: mask= selects elements of a dense array, got a sparse csr matrix")
    index = A.lib.dtype_name(A.indices)
    arrays = {"data": A.lib.contiguous(A.lib.native(A.data))}
    arrays |= {"indices": A.indices, "indptr": A.indptr}
    return Kind(A.lib, "csr", A.shape, A.dtype_name, A.device, index, False), arrays


def sources_of(source: Any, mask: Any, planned: Kind) -> dict[str, Array]:
    """The arrays of a source, if it is of the planned kind.

    Raises
    ------
    TypeError, ValueError, DeviceMismatchError, NotImplementedError
        It is not; or as of `kind_of`.
    """
    kind, arrays = kind_of(source, mask)
    if kind == planned:
        return arrays
    both = f"{WHAT}: this plan is for {planned.describe()}; got {kind.describe()}"
    if kind.lib is not planned.lib:
        raise TypeError(both)
    if kind.device != planned.device:
        raise DeviceMismatchError(both)
    raise ValueError(both)
