"""What CSR and CSC share: they differ only in which axis the pointers run over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparseformats.errors import InvalidTensorError, Problem
from sparseformats.formats import checks
from sparseformats.formats.canonical import canonical_compressed
from sparseformats.formats.inputs import as_shape, index_name, narrowed, prepare

if TYPE_CHECKING:
    from sparseformats.formats.csc import CSC
    from sparseformats.formats.csr import CSR

__all__ = ["compressed_fields", "compressed_problems"]


def compressed_fields(
    cls: type[CSR] | type[CSC],
    data: Any,
    indices: Any,
    indptr: Any,
    shape: Any,
    *,
    copy: bool,
    check: bool,
    index_dtype: Any,
) -> dict[str, Any]:
    """Fields of a new CSR or CSC from constructor arguments."""
    what = cls.__name__
    size = as_shape(shape)
    width = index_name(index_dtype)
    lib, values, index = prepare(
        what,
        data,
        {"indices": indices, "indptr": indptr},
        ndim=1,
        index_ndim={"indices": 1, "indptr": 1},
        copy=copy,
    )
    indices, indptr = index["indices"], index["indptr"]
    if check:
        draft = cls.trusted(data=values, indices=indices, indptr=indptr, shape=size)
        problems = _structure(draft)
        if problems:
            raise InvalidTensorError(what, problems)
        values, indices, indptr = canonical_compressed(lib, values, indices, indptr)
    if width is not None:
        indices = narrowed(lib, indices, width, "indices")
        indptr = narrowed(lib, indptr, width, "indptr")
    return {"data": values, "indices": indices, "indptr": indptr, "shape": size}


def compressed_problems(a: CSR | CSC) -> list[Problem]:
    """Every broken rule of a CSR or CSC."""
    problems = _structure(a)
    if checks.only_range(problems):
        problems += checks.ascending(a.lib, a.indptr, a.indices, _minor_name(a))
    return problems


def _minor_name(a: CSR | CSC) -> str:
    return "column" if a.family == "csr" else "row"


def _structure(a: CSR | CSC) -> list[Problem]:
    lib = a.lib
    problems = checks.same_placement(lib, a.buffers())
    if problems:
        return problems
    problems = checks.lengths({"indices": (tuple(a.data.shape), tuple(a.indices.shape))})
    major, minor = a.shape if a.family == "csr" else a.shape[::-1]
    return problems + checks.compressed_structure(
        lib, a.indptr, a.indices, major=major, minor=minor, what=_minor_name(a)
    )
