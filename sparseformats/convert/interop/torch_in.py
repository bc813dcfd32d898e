"""From torch tensors: strided ones, the layouts COO, CSR, CSC, BSR, BSC, and packed 2:4."""

from __future__ import annotations

from typing import Any

from sparseformats.convert.interop.common import only_blocks_choose
from sparseformats.convert.interop.semi_structured import from_semi_structured
from sparseformats.formats import BSR, COO, CSC, CSR, SparseMatrix, Transposed
from sparseformats.formats.inputs import index_name

__all__ = ["from_torch"]


def from_torch(
    T: Any,
    format: str | None = None,
    *,
    blocksize: Any = None,
    stored: Any = "nonzero",
    copy: bool = True,
    check: bool = True,
    index_dtype: Any = None,
) -> SparseMatrix:
    """Take over a torch tensor, dense or sparse, on its device.

    Parameters
    ----------
    T : torch.Tensor
        Strided, of layout COO (coalesced or not), CSR, CSC, BSR or BSC, or a
        ``SparseSemiStructuredTensorCUTLASS``, or one of cuSPARSELt where the layout of its bytes
        was learnt. A sparse tensor keeps its layout; BSC becomes ``Transposed(BSR)``,
        semi-structured is 2:4, its ``.t()`` a transpose of that.
    format : str, optional
        What to convert to; default CSR for a strided tensor, of which every element that is not
        zero is stored.
    blocksize : (R, C) or int, optional
        With `format`, as of `SparseMatrix.to`.
    stored : ``"nonzero"``, ``"all"`` or bool tensor shaped as the blocks
        Of BSR, BSC and 2:4: which slots of the blocks or groups are stored elements, see `BSR`.
    copy : bool
        ``False`` shares the tensors where nothing has to be sorted or summed, and promises that
        nobody writes to them. A strided tensor is always copied.
    check : bool
        ``False`` promises canonical form; packed 2:4 is always checked and made canonical.
    index_dtype : optional
        ``"int32"`` or ``"int64"``; default keeps the width given (COO has int64 only, 2:4 none).

    Returns
    -------
    SparseMatrix
        Sorted, duplicates summed by this library's rules: integers that do not fit are an error,
        half types add in float32.

    Raises
    ------
    TypeError
        Not a tensor, or a layout or dtype that has no form here: so are semi-structured tensors
        that torch itself pruned, and those of cuSPARSELt, whose packed bytes are undocumented,
        but for the versions, devices and dtypes of which they were learnt.
    ValueError
        Batched or hybrid tensors, or ones without values (device ``"meta"``).
    NotImplementedError
        `T` requires grad while grad mode is on.
    InvalidTensorError
        Broken structure; carries every problem.

    Notes
    -----
    `T` is never changed. *Loses*: nothing; of a slot that holds a zero, `stored` says whether it
    is content, its sign too.

    Examples
    --------
    >>> import torch, sparseformats as sf
    >>> sf.from_torch(torch.tensor([[0.0, 2.0], [3.0, 0.0]]))
    <CSR 2x2, float32, nnz=2, torch on cpu>
    """
    layout = _layout(T)
    options = {"copy": copy, "check": check, "index_dtype": index_dtype}
    if layout not in ("sparse_bsr", "sparse_bsc", _PACKED):
        only_blocks_choose("from_torch", stored)
    if layout == "strided":
        if stored != "nonzero":
            raise ValueError(
                "from_torch: a strided tensor stores what is not zero; use "
                "sparseformats.from_dense(T, format, mask=...) to say what is stored"
            )
        from sparseformats.convert import from_dense

        dense = T.detach()
        return from_dense(dense, format or "csr", blocksize=blocksize, index_dtype=index_dtype)
    if layout == _PACKED:
        index_name(index_dtype)
        made = from_semi_structured(T, stored, copy)
    else:
        made = _SPARSE[layout](T.detach(), stored, options)
    if format is None or (format == made.format and blocksize is None):
        return made
    return made.to(format, blocksize=blocksize)


def _layout(T: Any) -> str:
    """Name of the layout of a two-dimensional tensor that can be taken over."""
    if type(T).__module__.partition(".")[0] in ("numpy", "scipy", "cupy", "cupyx"):
        found = f"{type(T).__module__}.{type(T).__name__}"
        raise TypeError(
            f"from_torch takes a torch tensor, got {found}; use sparseformats.from_dense, "
            "from_scipy or from_cupy"
        )
    import torch

    if not isinstance(T, torch.Tensor):
        raise TypeError(f"from_torch takes a torch tensor, got {type(T).__name__}")
    _refuse_kind(T)
    packed = isinstance(T, torch.sparse.SparseSemiStructuredTensor)  # which calls itself strided
    layout = _PACKED if packed else str(T.layout).removeprefix("torch.")
    if layout not in ("strided", _PACKED, *_SPARSE):
        raise TypeError(
            f"from_torch: layout {T.layout} has no form here, expected torch.strided, "
            f"{', '.join(f'torch.{name}' for name in _SPARSE)}; use T.to_dense() where torch can"
        )
    _refuse_dimensions(T, layout)
    if T.device.type == "meta":
        raise ValueError("from_torch: a tensor on device 'meta' holds no values")
    if T.requires_grad and torch.is_grad_enabled():
        raise NotImplementedError(
            "from_torch: gradients through a sparse matrix's values are not supported yet; pass "
            "T.detach(), or call it under torch.no_grad()"
        )
    return layout


def _refuse_kind(T: Any) -> None:
    if T.is_nested:
        raise TypeError(f"from_torch: a nested tensor ({T.layout}) is not one matrix; unbind it")
    if type(T).__name__ == "MaskedTensor":
        raise TypeError(
            "from_torch: a MaskedTensor is ambiguous; use "
            "sparseformats.from_dense(T.get_data(), format, mask=T.get_mask())"
        )
    if T.is_quantized:
        raise TypeError(
            f"from_torch: quantized values ({T.dtype}) are not supported; use T.dequantize() or "
            "T.int_repr()"
        )


def _refuse_dimensions(T: Any, layout: str) -> None:
    shape = tuple(T.shape)
    if layout in ("strided", _PACKED):
        if T.dim() != 2:
            raise ValueError(
                f"from_torch: matrices have two dimensions, got a tensor of shape {shape}"
            )
        return
    sparse, dense = T.sparse_dim(), T.dense_dim()
    if dense:
        raise ValueError(
            f"from_torch: a hybrid tensor of shape {shape} holds {dense} dense dimension(s) an "
            "element; matrices have two sparse dimensions and none dense"
        )
    if T.dim() > 2 and layout != "sparse_coo":
        raise ValueError(
            f"from_torch: a batched tensor of shape {shape} holds several matrices; "
            "take them one by one, for example T[0]"
        )
    if sparse != 2:
        raise ValueError(
            f"from_torch: matrices have two dimensions, got a sparse tensor of shape {shape}"
        )


def _coo(T: Any, stored: Any, options: dict[str, Any]) -> SparseMatrix:
    # The public accessors refuse uncoalesced tensors, and coalesce() would sum by torch's rules.
    row, col = T._indices()
    return COO(T._values(), row, col, tuple(T.shape), **options)


def _csr(T: Any, stored: Any, options: dict[str, Any]) -> SparseMatrix:
    return CSR(T.values(), T.col_indices(), T.crow_indices(), tuple(T.shape), **options)


def _csc(T: Any, stored: Any, options: dict[str, Any]) -> SparseMatrix:
    return CSC(T.values(), T.row_indices(), T.ccol_indices(), tuple(T.shape), **options)


def _bsr(T: Any, stored: Any, options: dict[str, Any]) -> SparseMatrix:
    return BSR(
        T.values(), T.col_indices(), T.crow_indices(), tuple(T.shape), stored=stored, **options
    )


def _bsc(T: Any, stored: Any, options: dict[str, Any]) -> SparseMatrix:
    """Compressed columns of blocks are compressed rows of the transposed blocks."""
    m, n = T.shape
    if not isinstance(stored, str):
        stored = stored.transpose(1, 2)
    values = T.values().transpose(1, 2)
    base = BSR(values, T.row_indices(), T.ccol_indices(), (n, m), stored=stored, **options)
    return Transposed(base)


_PACKED = "semi_structured"
_SPARSE = {
    "sparse_coo": _coo,
    "sparse_csr": _csr,
    "sparse_csc": _csc,
    "sparse_bsr": _bsr,
    "sparse_bsc": _bsc,
}
