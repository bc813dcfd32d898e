"""A layer whose weight is a `Sum`: the parts' products, then bias and activation, one rounding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sparseformats._arrays import Array
from sparseformats._dtypes import accumulator
from sparseformats.formats import Sum
from sparseformats.ops.beside import finished
from sparseformats.ops.layer_call import LayerCall, flattened, product_dtype
from sparseformats.ops.layer_ways import with_fresh
from sparseformats.ops.operands import read
from sparseformats.ops.preparing import Options
from sparseformats.ops.product import lights
from sparseformats.ops.sum_explaining import SumExplanation, explain_parts
from sparseformats.ops.sums import multiply, unrounded, working

__all__ = ["explain_layer_of_sum", "layer_of_sum"]


def layer_of_sum(call: LayerCall, out: Array | None) -> Array:
    """All of the layer; `out` is written last, so it may overlap anything dense."""
    o, lib, call = call.o, call.o.lib, flattened(call)
    y = finished(
        lib,
        _product(call),
        o.dtype,
        given=call.beside,
        scaled=call.scaled,
        bias=call.bias,
        activation=call.activation,
    )
    y = lib.reshape(y, o.shape)
    if out is None:
        return lib.contiguous(y)
    out[...] = y
    return out


def _product(call: LayerCall) -> Array:
    """``X @ W.T`` before it is rounded, (m,) or (rows, m); a new array."""
    vector = len(call.flat.shape) == 1
    x = call.flat if vector else call.flat.mT
    assert isinstance(call.W, Sum)
    p, parts, light_of = read(call.W, x), working(call.W), lights(_options(call))
    if accumulator(p.dtype) != p.dtype:
        y = unrounded(p.lib, p.dtype, parts, x, 1, light_of)
        return y if vector else y.mT
    if vector:
        return multiply(p.lib, p.dtype, parts, x, None, 1, 0, light_of)
    tokens = p.lib.empty(p.shape[::-1], p.dtype, p.matrix.device)
    multiply(p.lib, p.dtype, parts, x, tokens.mT, 1, 0, light_of)
    return tokens


def _options(call: LayerCall) -> Options:
    return Options(**call.options)


def explain_layer_of_sum(call: LayerCall) -> SumExplanation:
    """Judge the product of each part as `layer_of_sum` would."""
    vector = len(call.flat.shape) == 1
    p = read(call.W, call.flat if vector else call.flat.mT)
    whole = accumulator(p.dtype) == p.dtype and not vector  # `_product` makes the array
    found = explain_parts(p, None, 1, 0, _options(call), laid=with_fresh if whole else None)
    if call.epilogue is None:
        return found
    dtype: Any = accumulator(call.o.dtype)
    rounded = "" if dtype == call.o.dtype else f", and rounded once to {call.o.dtype}"
    added = found.added
    if accumulator(product_dtype(call)) != product_dtype(call):
        added = added.replace(f" and rounded once to {p.dtype}", "")
    return replace(found, added=f"{added}; then {call.epilogue} in {dtype}{rounded}")
