"""Product kernels that are bound to facts of a call; the facts of one that comes without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import itemsize
from sparseformats.dispatch.query import Query

__all__ = ["Bindable", "activation_of", "capability_of", "has_bias"]


def _called_with(
    query: Query,
    lib: ArrayLibrary,
    x: Array,
    out: Array | None,
    scalars: tuple[Any, Any],
    bias: Array | None,
    activation: str | None,
) -> Query:
    """The query of the matrix with what block kernels read of this call."""
    names = ["bias"] * (bias is not None) + [activation] * (activation is not None)
    return replace(
        query,
        n=int(x.shape[1]),
        x_layout=_layout(lib, x),
        out_layout=None if out is None else _layout(lib, out),
        alpha_one=bool(scalars[0] == 1),
        beta_zero=bool(scalars[1] == 0),
        epilogue="+".join(filter(None, names)) or None,
    )


class Bindable:
    """A product kernel that is prepared for calls of the same facts; one call is the first of many.

    What derives from it gives `bind`. Its states have the attributes ``query`` and ``lib``.
    """

    @staticmethod
    def bind(state: Any, query: Query) -> Callable[..., Array]:
        """What serves calls of these facts: ``(x, out, alpha, beta, bias) -> y``."""
        raise NotImplementedError

    @classmethod
    def bind_epilogue(cls, state: Any, query: Query) -> Callable[..., Array]:
        """The same, with what follows the product fused."""
        return cls.bind(state, query)

    @classmethod
    def run(
        cls,
        state: Any,
        x: Array,
        out: Array | None,
        alpha: Any,
        beta: Any,
        *,
        bias: Array | None = None,
        activation: str | None = None,
    ) -> Array:
        """Multiply a single time, as `bind` would again and again."""
        query = _called_with(state.query, state.lib, x, out, (alpha, beta), bias, activation)
        return cls.bind(state, query)(x, out, alpha, beta, bias)


def _layout(lib: ArrayLibrary, x: Array) -> str:
    """Which axis is contiguous: ``"C"`` by rows, ``"F"`` by columns, or neither."""
    size = itemsize(lib.dtype_name(x))
    row, column = lib.strides(x)
    if column == size or int(x.shape[1]) == 1:
        return "C"
    return "F" if row == size or int(x.shape[0]) == 1 else "strided"


def has_bias(query: Query) -> bool:
    """Whether the epilogue adds a bias."""
    return "bias" in (query.epilogue or "").split("+")


def activation_of(query: Query) -> str | None:
    """The activation that the epilogue ends with."""
    names = [name for name in (query.epilogue or "").split("+") if name not in ("", "bias")]
    return names[0] if names else None


def capability_of(query: Query) -> int:
    """Compute capability as Triton writes it: 90."""
    major, minor = query.capability or (9, 0)
    return major * 10 + minor
