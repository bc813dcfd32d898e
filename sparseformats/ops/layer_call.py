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
from sparseformats.ops.beside import NOTHING, Beside, read_beside, rounding
from sparseformats.ops.operands import Operands, as_sparse, read, refuse_stand_in
from sparseformats.ops.scalars import result_dtype

__all__ = ["LayerCall", "flattened", "product_dtype", "read_layer", "widened"]


class LayerCall(NamedTuple):
    """A layer's call, understood: `o` is ``W @ X.T`` with the whole result's shape and dtype.

    `flat` is X as (k,) or (rows, k), or (b, rows, k) where seeing it so would take a copy;
    `options` are keywords of `matmul`; `beside` are scales, residual and dtype as they were given,
    and `scaled` says that the sums are scaled or that their dtype was asked for.
    """

    o: Operands
    W: SparseMatrix
    flat: Array
    bias: Array | None
    activation: str | None
    options: dict[str, Any]
    beside: Beside = NOTHING
    scaled: bool = False

    @property
    def epilogue(self) -> str | None:
        """As `Query.epilogue` has it."""
        residual = "residual" if self.beside.residual is not None else None
        return _joined(self.inner, residual)

    @property
    def inner(self) -> str | None:
        """The epilogue but a residual."""
        scale, bias = "scale" if self.scaled else None, None if self.bias is None else "bias"
        return _joined(scale, bias, self.activation)


def _joined(*names: str | None) -> str | None:
    return "+".join(name for name in names if name) or None


def read_layer(
    X: Any,
    W: Any,
    bias: Any,
    activation: str | None,
    options: dict[str, Any],
    beside: Beside = NOTHING,
    out: Any = None,
) -> LayerCall:
    """Understand ``activation(X @ W.T + bias) + residual``.

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
    flat = X if len(shape) < 3 or _stays(X, out) else _arrays.of(X).reshape(X, _rows(shape))
    o = read(weight, flat.mT if len(shape) > 1 else flat)  # not `weight.T`: that takes time to make
    dtype, scaled = read_beside(o, shape[:-1], beside)
    if bias is not None:
        bias = _bias(o, bias, m)
    for name, summand in (("bias", bias), ("residual", beside.residual)):
        if summand is None:
            continue
        its = o.lib.dtype_name(summand)
        if scaled or beside.out_dtype is not None:
            dtype = rounding(o.lib, dtype, name, its, scaled)
        else:
            dtype = _promoted(o.lib, dtype, its, name)
    check_activation(activation, dtype)
    flat = o.x.mT if len(shape) > 1 else o.x
    o = replace(o, dtype=dtype, shape=(*shape[:-1], m))
    return LayerCall(o, weight, flat, bias, activation, options, beside, scaled)


def _rows(shape: tuple[int, ...]) -> tuple[int, int]:
    """All tokens as rows of one matrix."""
    return math.prod(shape[:-1]), shape[-1]


def _stays(X: Array, out: Any) -> bool:
    """Whether a batch of tokens, or its `out`, is no matrix without being copied."""
    lib = _arrays.of(X)
    if len(X.shape) != 3 or 0 in X.shape:
        return False
    given = out is not None and _arrays.known(out) is lib
    return lib.is_spread(X) or (given and not lib.is_contiguous(out))


def flattened(call: LayerCall) -> LayerCall:
    """The same with all tokens as rows of one matrix, copied if need be."""
    shape = tuple(int(size) for size in call.flat.shape)
    return call._replace(flat=call.o.lib.reshape(call.flat, _rows(shape)))


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
    refuse_stand_in(lib, bias, "linear: bias")
    return lib.native(bias)


def _promoted(lib: ArrayLibrary, a: str, b: str, what: str) -> str:
    try:
        return lib.result_dtype(a, b)
    except (TypeError, RuntimeError) as error:
        raise TypeError(
            f"{lib.name} has no common dtype for a product of {a} and a {what} of {b}; convert one"
        ) from error


def product_dtype(call: LayerCall) -> str:
    """Dtype of the product alone, before a bias may widen it."""
    return result_dtype(call.o.lib, call.W.dtype_name, call.o.lib.dtype_name(call.flat))


def widened(call: LayerCall) -> LayerCall:
    """On a CPU the operand in the dtype of sums, so that half types are not rounded halfway."""
    lib = call.o.lib
    dtype = product_dtype(call)
    wide = accumulator(dtype)
    if call.epilogue is None or wide == dtype or call.W.device != "cpu" or call.scaled:
        return call
    try:
        result_dtype(lib, call.W.dtype_name, wide)
    except TypeError:  # fp8 meets no other dtype
        return call
    return call._replace(flat=lib.astype(call.flat, wide))
