"""Facts of a call that comes without a query, as `run` gets it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import itemsize
from sparseformats.dispatch.query import Query

__all__ = ["activation_of", "called_with", "capability_of", "has", "has_bias"]

_OTHERS = ("", "scale", "bias", "residual")


def called_with(
    query: Query,
    lib: ArrayLibrary,
    x: Array,
    out: Array | None,
    scalars: tuple[Any, Any],
    bias: Array | None,
    activation: str | None,
    residual: Array | None = None,
) -> Query:
    """The query of the matrix with what block kernels read of this call."""
    names = ["bias"] * (bias is not None) + [activation] * (activation is not None)
    names += ["residual"] * (residual is not None)
    return replace(
        query,
        n=int(x.shape[1]),
        x_layout=_layout(lib, x),
        out_layout=None if out is None else _layout(lib, out),
        alpha_one=bool(scalars[0] == 1),
        beta_zero=bool(scalars[1] == 0),
        epilogue="+".join(filter(None, names)) or None,
    )


def _layout(lib: ArrayLibrary, x: Array) -> str:
    """Which axis is contiguous: ``"C"`` by rows, ``"F"`` by columns, or neither."""
    size = itemsize(lib.dtype_name(x))
    row, column = lib.strides(x)
    if column == size or int(x.shape[1]) == 1:
        return "C"
    return "F" if row == size or int(x.shape[0]) == 1 else "strided"


def has(query: Query, name: str) -> bool:
    """Whether the epilogue names this."""
    return name in (query.epilogue or "").split("+")


def has_bias(query: Query) -> bool:
    """Whether the epilogue adds a bias."""
    return has(query, "bias")


def activation_of(query: Query) -> str | None:
    """The activation that the epilogue ends with."""
    names = [name for name in (query.epilogue or "").split("+") if name not in _OTHERS]
    return names[0] if names else None


def capability_of(query: Query) -> int:
    """Compute capability as Triton writes it: 90."""
    major, minor = query.capability or (9, 0)
    return major * 10 + minor
