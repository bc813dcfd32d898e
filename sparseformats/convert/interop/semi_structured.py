"""torch's semi-structured tensors, in and out.

Two classes of torch hold 2:4 matrices. The CUTLASS one has its values and its metadata apart, in a
layout that `cutlass24` knows. The cuSPARSELt one has both in one blob, whose layout NVIDIA does
not document and changes at will: a blob is read only where its layout was learnt, for that very
version of the library and that dtype, and `LEARNT` says where. Nothing is decoded by multiplying
with an identity matrix, as ``T.to_dense()`` of cuSPARSELt does: 0 x inf would poison a row.

Either holds a matrix (``packed``), its transpose (``packed_t``), or both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from sparseformats import _arrays
from sparseformats._arrays import Array
from sparseformats.convert.interop.cutlass24 import PACKINGS, pack, unpack
from sparseformats.convert.interop.move import to_library
from sparseformats.formats import NM, SparseMatrix, Transposed

__all__ = ["LEARNT", "Decoder", "from_semi_structured", "to_semi_structured", "unfit"]

Decoder = Callable[[Array, tuple[int, int]], tuple[Array, Array]]
"""From a blob and the shape (m, k) to values and positions of slots, (m, k/4, 2) each."""

LEARNT: Final[dict[tuple[int, str], Decoder]] = {}
"""Layouts of blobs by version of cuSPARSELt, as ``torch.backends.cusparselt.version()`` has it,
and dtype. Empty as long as none was learnt on a device and verified there."""

_INSTEAD = (
    'keep the weight it was made from and use sparseformats.from_dense(W, "2:4"), or W = '
    "T.to_dense() where torch computes that: a product with the identity, exact for finite values"
)


def from_semi_structured(T: Any, stored: Any, copy: bool) -> SparseMatrix:
    """2:4 matrix of a semi-structured tensor, `Transposed` where it holds its transpose only.

    Raises
    ------
    TypeError
        A layout that is not known; the text says why and names an alternative.
    InvalidTensorError
        Metadata that no hardware defines.
    """
    read = _reader(T)
    m, n = (int(s) for s in T.shape)
    packed, packed_t = (getattr(T, name, None) for name in ("packed", "packed_t"))
    if packed is not None:
        data, indices = read(T, packed, getattr(T, "meta", None), (m, n))
        return NM(data, indices, (m, n), stored=stored, copy=copy)
    if packed_t is None:
        raise TypeError(f"from_torch: this {type(T).__name__} holds no values; {_INSTEAD}")
    data, indices = read(T, packed_t, getattr(T, "meta_t", None), (n, m))
    return Transposed(NM(data, indices, (n, m), stored=stored, copy=copy))


def _reader(T: Any) -> Callable[[Any, Any, Any, tuple[int, int]], tuple[Array, Array]]:
    import torch

    if isinstance(T, torch.sparse.SparseSemiStructuredTensorCUTLASS):
        return _read_cutlass
    if isinstance(T, torch.sparse.SparseSemiStructuredTensorCUSPARSELT):
        return _read_cusparselt
    raise TypeError(f"from_torch: {type(T).__name__} is of a kind that is not known; {_INSTEAD}")


def _read_cutlass(T: Any, packed: Any, meta: Any, shape: tuple[int, int]) -> tuple[Array, Array]:
    lib = _arrays.of(packed)
    (m, k), dtype = shape, lib.dtype_name(packed)
    packing = PACKINGS.get(dtype)
    if packing is None:
        _refuse(T, f"packs {dtype} values; the layout is known for {', '.join(PACKINGS)}")
    if meta is None:
        _refuse(T, "has no metadata beside its values")
    found = (tuple(packed.shape), tuple(meta.shape), lib.dtype_name(meta))
    expected = ((m, k // 2), (m, k // packing.width), packing.meta)
    if m % packing.rows or k % (2 * packing.width) or found != expected:
        # torch's own pruning makes metadata with three axes, and pads values.
        _refuse(
            T,
            f"of shape {shape} packs {dtype} values as {found[0]} with {found[2]} metadata "
            f"{found[1]}; the layout is known for {expected[0]} with {expected[2]} {expected[1]}, "
            f"rows % {packing.rows} == 0 and columns % {2 * packing.width} == 0",
        )
    return unpack(type(T).__name__, lib, packed.detach(), meta.detach())


def _read_cusparselt(T: Any, packed: Any, meta: Any, shape: tuple[int, int]) -> tuple[Array, Array]:
    import torch

    version, dtype = torch.backends.cusparselt.version(), _arrays.of(packed).dtype_name(packed)
    decode = LEARNT.get((version, dtype))
    if decode is None or meta is not None:
        known = ", ".join(f"{v} ({d})" for v, d in sorted(LEARNT)) or "none so far"
        _refuse(
            T,
            f"holds {dtype} values in a blob of cuSPARSELt {version or '(not present here)'}, "
            f"whose layout is undocumented and differs by version; layouts learnt: {known}",
        )
    return decode(packed.detach(), shape)


def _refuse(T: Any, why: str) -> NoReturn:
    raise TypeError(f"from_torch: {type(T).__name__} {why}; {_INSTEAD}")


def unfit(A: SparseMatrix) -> str:
    """Why torch's semi-structured tensors cannot hold a 2:4 matrix; empty where they can."""
    packing = PACKINGS.get(A.dtype_name)
    if packing is None:
        return f"torch's semi-structured tensors hold {', '.join(PACKINGS)}, not {A.dtype_name}"
    m, k = A.shape[::-1] if isinstance(A, Transposed) else A.shape
    if m and k and m % packing.rows == 0 and k % packing.columns == 0:
        return ""
    return (
        f"torch's semi-structured tensors of {A.dtype_name} need rows to be a multiple of "
        f"{packing.rows} and columns one of {packing.columns}, neither of them 0, along the "
        f"groups; got {(m, k)}"
    )


def to_semi_structured(A: SparseMatrix) -> Any:
    """``SparseSemiStructuredTensorCUTLASS`` of a 2:4 matrix that is not `unfit`, or of a transpose.

    Raises
    ------
    PatternError, LossyConversionError
        Of `pack`.
    """
    import torch

    held = to_library(A, "torch")
    base = held.base if isinstance(held, Transposed) else held
    assert isinstance(base, NM)
    packed, meta = pack(base)
    packed = base.lib.copy(packed)
    turned = isinstance(A, Transposed)
    own = {"packed_t": packed, "meta_t": meta} if turned else {"packed": packed, "meta": meta}
    fields = dict.fromkeys(("packed", "meta", "packed_t", "meta_t", "compressed_swizzled_bitmask"))
    return torch.sparse.SparseSemiStructuredTensorCUTLASS(torch.Size(A.shape), **{**fields, **own})
