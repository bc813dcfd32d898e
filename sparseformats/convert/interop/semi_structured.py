"""torch's semi-structured tensors, in and out.

Two classes of torch hold 2:4 matrices. The CUTLASS one has its values and its metadata apart, in a
layout that `cutlass24` knows. The cuSPARSELt one has both in one blob, whose layout NVIDIA does
not document and changes at will: a blob is read and made only where its layout was learnt, for that
very version of the library, compute capability and dtype, as `sparseformats.formats.blob24` has it.
A blob does not say who made it. It is taken to come from the library that is present and from the
device on which it lies, as torch takes it when it multiplies. Nothing is decoded by multiplying
with an identity matrix, as ``T.to_dense()`` of cuSPARSELt does: 0 x inf would poison a row.

Either holds a matrix (``packed``), its transpose (``packed_t``), or both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from sparseformats import _arrays
from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.convert.interop.cutlass24 import PACKINGS, pack, refuse_side_minus, unpack
from sparseformats.convert.interop.move import to_library
from sparseformats.errors import DeviceMismatchError
from sparseformats.formats import NM, SparseMatrix, Transposed
from sparseformats.formats.blob24 import LEARNT, BlobLayout, decode, elements, encode, learnt

__all__ = ["KINDS", "from_semi_structured", "to_semi_structured", "unfit"]

KINDS: Final = ("cutlass", "cusparselt")
"""torch's classes of semi-structured tensors, as `to_torch` calls them."""

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
    DeviceMismatchError
        Values and metadata on two devices.
    NotImplementedError
        The packed values require grad while grad mode is on.
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
    if lib.device(meta) != lib.device(packed):
        raise DeviceMismatchError(
            f"from_torch: {type(T).__name__} has values on {lib.device(packed)!r} and metadata on "
            f"{lib.device(meta)!r}"
        )
    return unpack(type(T).__name__, lib, _values(T, packed), meta.detach())


def _read_cusparselt(T: Any, packed: Any, meta: Any, shape: tuple[int, int]) -> tuple[Array, Array]:
    lib = _arrays.of(packed)
    dtype = lib.dtype_name(packed)
    layout = _layout(lib, packed, dtype)
    if isinstance(layout, str):
        _refuse(T, f"holds {dtype} values in {layout}")
    if meta is not None or T.compressed_swizzled_bitmask is not None:
        _refuse(T, "was pruned by torch itself, which lays out metadata in another way")
    reason = layout.unfit(shape)
    if reason:
        _refuse(T, f"holds a blob of a shape that was not learnt: {reason}")
    found, expected = int(packed.numel()), elements(dtype, shape)
    if not expected <= found < expected + shape[0]:  # torch fills up the last column of `packed`
        _refuse(T, f"of shape {shape} holds {found} elements of {dtype}, not {expected}")
    return decode(type(T).__name__, lib, layout, lib.contiguous(_values(T, packed)), shape)


def _values(T: Any, packed: Any) -> Any:
    if _arrays.of(packed).requires_grad(packed):
        raise NotImplementedError(
            f"from_torch: gradients through a sparse matrix's values are not supported yet, and "
            f"what {type(T).__name__} packs requires grad; pack detached values, or call it under "
            "torch.no_grad()"
        )
    return packed.detach()


def _layout(lib: ArrayLibrary, x: Array, dtype: str) -> BlobLayout | str:
    """The layout of blobs on the device of `x`, or words for a blob of which none is known."""
    import torch

    version, capability = torch.backends.cusparselt.version(), lib.capability(lib.device(x))
    found = None if capability is None else LEARNT.get((version, capability, dtype))
    if found is not None:
        return found
    where = lib.device(x) if capability is None else "compute capability {}.{}".format(*capability)
    return (
        f"a blob of cuSPARSELt {version or '(not present here)'} on {where}, whose layout is "
        "undocumented and may differ by version, compute capability and dtype; layouts learnt: "
        f"{learnt()}"
    )


def _refuse(T: Any, why: str) -> NoReturn:
    raise TypeError(f"from_torch: {type(T).__name__} {why}; {_INSTEAD}")


def unfit(A: SparseMatrix, kind: str) -> str:
    """Why torch's semi-structured tensors of a kind cannot hold a 2:4 matrix; empty if they can."""
    size = A.shape[::-1] if isinstance(A, Transposed) else A.shape
    if kind == "cusparselt":
        return _unfit_for_a_blob(A, size)
    packing = PACKINGS.get(A.dtype_name)
    if packing is None:
        return f"torch's semi-structured tensors hold {', '.join(PACKINGS)}, not {A.dtype_name}"
    m, k = size
    if m and k and m % packing.rows == 0 and k % packing.columns == 0:
        return ""
    return (
        f"torch's semi-structured tensors of {A.dtype_name} need rows to be a multiple of "
        f"{packing.rows} and columns one of {packing.columns}, neither of them 0, along the "
        f"groups; got {(m, k)}"
    )


def _unfit_for_a_blob(A: SparseMatrix, size: tuple[int, int]) -> str:
    held = to_library(A, "torch")
    base = held.base if isinstance(held, Transposed) else held
    assert isinstance(base, NM)
    layout = _layout(base.lib, base.data, A.dtype_name)
    if isinstance(layout, str):
        return f"{A.dtype_name} values would go into {layout}"
    reason = layout.unfit(size)
    return reason and f"cuSPARSELt's blob of a shape that was not learnt: {reason}"


def to_semi_structured(A: SparseMatrix, kind: str) -> Any:
    """Semi-structured tensor of a 2:4 matrix that is not `unfit`, or of a transpose.

    Raises
    ------
    PatternError, LossyConversionError
        Of `pack`; of a blob, a stored -0.0 in the side record.
    """
    import torch

    held = to_library(A, "torch")
    base = held.base if isinstance(held, Transposed) else held
    assert isinstance(base, NM)
    if kind == "cusparselt":
        make, parts = torch.sparse.SparseSemiStructuredTensorCUSPARSELT, (_blob(base), None)
    else:
        make = torch.sparse.SparseSemiStructuredTensorCUTLASS
        packed, meta = pack(base)
        parts = (base.lib.copy(packed), meta)
    names = ("packed_t", "meta_t") if isinstance(A, Transposed) else ("packed", "meta")
    fields = dict.fromkeys(("packed", "meta", "packed_t", "meta_t", "compressed_swizzled_bitmask"))
    return make(torch.Size(A.shape), **{**fields, **dict(zip(names, parts, strict=True))})


def _blob(A: NM) -> Array:
    """``packed`` of a cuSPARSELt tensor: a row of the matrix a row, filled up with zeros."""
    lib, m = A.lib, A.shape[0]
    refuse_side_minus(A)
    layout = _layout(lib, A.data, A.dtype_name)
    assert isinstance(layout, BlobLayout)
    blob = encode(layout, A)
    missing = -int(blob.shape[0]) % (m * A.data.itemsize)
    if missing:
        blob = lib.concat([blob, lib.zeros((missing,), "uint8", A.device)])
    return lib.reshape(lib.from_bits(blob, A.dtype_name), (m, -1))
