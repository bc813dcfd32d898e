"""Reading the arguments of a layer, and refusing what has no meaning."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

from sparseformats import _arrays
from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import accumulator
from sparseformats.errors import DeviceMismatchError
from sparseformats.formats import SparseMatrix
from sparseformats.ops.activations import check_activation
from sparseformats.ops.operands import Operands, as_sparse, read
from sparseformats.ops.scalars import result_dtype

__all__ = ["LayerCall", "product_dtype", "read_layer", "widened"]


class LayerCall(NamedTuple):
    """A layer's call, understood: `o` is ``W @ X.T`` with the whole result's shape and dtype.

    `flat` is X as (k,) or (rows, k); `options` are keywords of `matmul`.
    """

    o: Operands
    W: SparseMatrix
    flat: Array
    bias: Array | None
    activation: str | None
    options: dict[str, Any]

    @property
    def epilogue(self) -> str | None:
        """As `Query.epilogue` has it."""
        names = ["bias"] if self.bias is not None else []
        return "+".join([*names, *([self.activation] if self.activation else [])]) or None


def read_layer(
    X: Any, W: Any, bias: Any, activation: str | None, options: dict[str, Any]
) -> LayerCall:
    """Understand ``activation(X @ W.T + bias)``.

    Raises
    ------
    ValueError, TypeError, DeviceMismatchError, NotImplementedError
        As `sparseformats.linear` says.
    """
    weight = as_sparse(W)
    if not isinstance(weight, SparseMatrix):
        raise TypeError(f"linear needs a sparse weight, got {type(W).__name__}; use matmul")
    if not _arrays.is_array(X):
        raise TypeError(f"linear takes a dense NumPy, torch or CuPy X, got {type(X).__name__}")
    m, k = weight.shape
    shape = tuple(int(s) for s in X.shape)
    if not shape or shape[-1] != k:
        raise ValueError(f"linear: X must have shape (..., {k}) for a weight {m, k}, has {shape}")
    rows = math.prod(shape[:-1])
    flat = X if len(shape) < 3 else _arrays.of(X).reshape(X, (rows, k))
    o = read(weight, flat.mT if len(shape) > 1 else flat)  # not `weight.T`: that takes time to make
    lib, dtype = o.lib, o.dtype
    if bias is not None:
        bias = _bias(o, bias, m)
        dtype = _promoted(lib, dtype, lib.dtype_name(bias))
    check_activation(activation, dtype)
    flat = o.x.mT if len(shape) > 1 else o.x
    o = replace(o, dtype=dtype, shape=(*shape[:-1], m))
    return LayerCall(o, weight, flat, bias, activation, options)


def _bias(o: Operands, bias: Any, m: int) -> Array:
    lib = o.lib
    if not _arrays.is_array(bias) or _arrays.of(bias) is not lib:
        raise TypeError(f"bias must be a {lib.name} array, got {type(bias).__name__}")
    if tuple(bias.shape) != (m,):
        raise ValueError(f"bias must have shape {(m,)}, has {tuple(bias.shape)}")
    if lib.device(bias) != o.matrix.device:
        here, there = o.matrix.device, lib.device(bias)
        raise DeviceMismatchError(f"bias is on {there!r}, the operands are on {here!r}")
    if lib.requires_grad(bias):
        raise NotImplementedError("linear: gradients are not supported yet, and bias requires grad")
    return lib.native(bias)


def _promoted(lib: ArrayLibrary, a: str, b: str) -> str:
    try:
        return lib.result_dtype(a, b)
    except (TypeError, RuntimeError) as error:
        raise TypeError(
            f"{lib.name} has no common dtype for a product of {a} and a bias of {b}; convert one"
        ) from error


def product_dtype(call: LayerCall) -> str:
    """Dtype of the product alone, before a bias may widen it."""
    return result_dtype(call.o.lib, call.W.dtype_name, call.o.lib.dtype_name(call.flat))


def widened(call: LayerCall) -> LayerCall:
    """On a CPU the operand in the dtype of sums, so that half types are not rounded halfway."""
    lib = call.o.lib
    dtype = product_dtype(call)
    wide = accumulator(dtype)
    if call.epilogue is None or wide == dtype or call.W.device != "cpu":
        return call
    try:
        result_dtype(lib, call.W.dtype_name, wide)
    except TypeError:  # fp8 meets no other dtype
        return call
    return call._replace(flat=lib.astype(call.flat, wide))
