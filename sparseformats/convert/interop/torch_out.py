"""To torch's sparse tensors."""

from __future__ import annotations

from typing import Any

from sparseformats._dtypes import INT64_MAX, VALUE_DTYPES
from sparseformats.convert.interop.common import instead_of, ragged
from sparseformats.convert.interop.move import to_library
from sparseformats.convert.interop.semi_structured import KINDS, to_semi_structured, unfit
from sparseformats.formats import SparseMatrix, Transposed

__all__ = ["to_torch"]

_PACKED = ("2:4", "2:4.T")
_FITS_PACKED = {
    **dict.fromkeys(("1:2", "1:4"), 'A.to("2:4") or '),
    **dict.fromkeys(("1:2.T", "1:4.T"), 'A.to("2:4.T") or '),
}


def to_torch(A: SparseMatrix, *, packed: str = "cutlass") -> Any:
    """Sparse torch tensor of `A`, on its device: layouts COO, CSR, CSC, BSR; BSC of ``bsr.T``.

    Of 2:4 it is a ``SparseSemiStructuredTensorCUTLASS``, of ``2:4.T`` the transpose of one, as its
    ``.t()`` gives it. torch multiplies with them on CUDA devices of compute capability 8.x only,
    and warns once that they are a prototype. ``packed="cusparselt"`` makes the other class, a
    ``SparseSemiStructuredTensorCUSPARSELT``, where the layout of its bytes was learnt.

    The tensors are copies: torch's objects change in place. Index widths are kept, except that
    torch's COO has int64 only. torch's own invariant check runs on the result.

    Parameters
    ----------
    A : COO, CSR, CSC, BSR, 2:4, or the transpose of a BSR or 2:4
        Of any library; blocks must divide the shape, which for 2:4 is a multiple of torch's tiles.
    packed : ``"cutlass"`` or ``"cusparselt"``
        Of 2:4: which of torch's classes. A cuSPARSELt tensor is made on the device where it is
        used, and serves there only.

    Raises
    ------
    TypeError
        torch has no such layout or dtype, or the blocks do not divide the shape, or cuSPARSELt's
        layout was not learnt for its version, the device, the dtype or the shape; the text names
        alternatives.
    PatternError
        A float32 2:4 matrix that is not 1:2, which is the hardware's pattern for that type.
    LossyConversionError
        A stored -0.0 of a 2:4 matrix for which its group has no room.
    ValueError
        torch cannot express a shape with 2**63 or more elements; an unknown `packed`, or one for
        another format than 2:4.

    Notes
    -----
    *Loses*: of blocks and 2:4, the marks of stored zeros; every value and block is kept.

    Examples
    --------
    >>> import sparseformats as sf
    >>> sf.CSR([2.0, 3.0], [1, 0], [0, 1, 2], (2, 2)).to_torch().to_dense()
    tensor([[0., 2.],
            [3., 0.]], dtype=torch.float64)
    """
    _refuse(A, packed)
    if A.format in _PACKED:
        return to_semi_structured(A, packed)
    import torch

    held = to_library(A, "torch")
    copies = A.library == "numpy"  # read-only arrays were copied on the way already
    own = {
        name: x if copies else held.lib.copy(x)
        for name, x in held.buffers().items()
        if name != "zeros"
    }
    checked = {"size": A.shape, "check_invariants": True}
    if A.family == "coo":
        places = torch.stack([own["row"], own["col"]]).to(torch.int64)
        return torch.sparse_coo_tensor(places, own["data"], is_coalesced=True, **checked)
    if isinstance(A, Transposed):
        blocks = own["data"].transpose(1, 2).contiguous()
        return torch.sparse_bsc_tensor(own["indptr"], own["indices"], blocks, **checked)
    make = {
        "csr": torch.sparse_csr_tensor,
        "csc": torch.sparse_csc_tensor,
        "bsr": torch.sparse_bsr_tensor,
    }[A.family]
    return make(own["indptr"], own["indices"], own["data"], **checked)


def _refuse(A: SparseMatrix, packed: str) -> None:
    if packed not in KINDS or (packed != KINDS[0] and A.format not in _PACKED):
        raise ValueError(
            f"to_torch: packed says which class holds 2:4, one of {', '.join(map(repr, KINDS))}; "
            f"got {packed!r} for a matrix in {A.format}"
        )
    if A.format in _PACKED:
        reason = unfit(A, packed)
        if reason:
            raise TypeError(f"{reason}; use {instead_of(A)} first, for the format {A.format}")
        return
    if A.format not in ("coo", "csr", "csc", "bsr", "bsr.T"):
        packed = _FITS_PACKED.get(A.format, "")
        raise TypeError(f"torch has no {A.format} layout; use {packed}{instead_of(A)} first")
    if A.dtype_name not in VALUE_DTYPES["torch"]:
        raise TypeError(
            f"torch tensors of {A.dtype_name} are not supported, only "
            f"{', '.join(VALUE_DTYPES['torch'])}; cast A.data and build the matrix anew"
        )
    uneven = ragged(A)
    if uneven:
        raise TypeError(
            f'torch\'s blocks must divide the shape, {uneven}; use A.to("csr"), or a blocksize '
            "that divides it"
        )
    m, n = A.shape
    if m * n > INT64_MAX:
        raise ValueError(f"torch cannot express shape {(m, n)}: {m * n} elements exceed 2**63 - 1")
