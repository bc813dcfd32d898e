"""A layer with a sparse weight: ``activation(X @ W.T + bias) + residual``.

The product is that of `matmul`; a kernel whose record names the epilogue computes all of it, else
bias and activation follow here.
"""

from __future__ import annotations

from typing import Any

from sparseformats import dispatch
from sparseformats._arrays import Array
from sparseformats.dispatch import Explanation
from sparseformats.formats import Sum
from sparseformats.ops.beside import NOTHING, Beside
from sparseformats.ops.compiling import DYNAMO, entry, modules, opaque, watched
from sparseformats.ops.layer_call import LayerCall, read_layer
from sparseformats.ops.layer_plans import find, prepare, run
from sparseformats.ops.layer_ways import way_of
from sparseformats.ops.operands import check_out, separate
from sparseformats.ops.sum_explaining import SumExplanation
from sparseformats.ops.sum_layer import explain_layer_of_sum, layer_of_sum
from sparseformats.ops.sums import working

__all__ = ["explain_linear", "linear"]


@entry
def linear(
    X: Any,
    W: Any,
    bias: Any = None,
    *,
    activation: str | None = None,
    residual: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    out_dtype: Any = None,
    out: Any = None,
    kernel: str | None = None,
    precision: str | None = None,
    assume_finite: bool = False,
) -> Any:
    """Apply a layer with a sparse weight: ``activation(X @ W.T + bias) + residual``.

    Parameters
    ----------
    X : array
        (k,) or (..., k), of any strides, of the weight's library and device.
    W : SparseMatrix
        (m, k), as torch keeps a layer's weight. SciPy's, torch's and CuPy's sparse matrices are
        converted first.
    bias : array, optional
        (m,).
    activation : str, optional
        ``"relu"``, ``"gelu"`` (the exact one, by the error function, as torch's default) or
        ``"silu"``.
    residual : array, optional
        Of the result's shape, any strides; added last.
    scale_a, scale_b : number or float32 array, optional
        What the values of X and of W, both int8 or both float8, are to be multiplied by: one scale,
        or one for each token (``X.shape[:-1]``, or with an axis of 1 behind) and one for each row
        of W ((m,), (m, 1) or (1, m)). As in torch._scaled_mm of X and ``W.T``. Applied in float32,
        before bias, activation and rounding.
    out_dtype : dtype or str, optional
        Of the result, where X and W are int8 or float8: float16, bfloat16 or float32 instead of
        int32 or that float8. Needed to scale int8.
    out : array, optional
        Takes the result: exactly its shape and dtype, any strides; may overlap `X`, `bias`,
        `residual` and scales.
    kernel, precision, assume_finite
        As in `matmul`.

    Returns
    -------
    array
        (m,) or (..., m): `out` if given, else a new array.

    Raises
    ------
    ValueError
        Shapes do not match, an unknown activation, scaled int8 without `out_dtype` or of more than
        131,071 columns, or a bias or residual that `out_dtype` would round.
    TypeError
        No sparse weight, operands of two libraries, an activation without meaning for the
        dtype (relu is for real numbers, the others for floating ones), scales that are not
        float32, or scales and `out_dtype` for operands that they are not for.
    DeviceMismatchError, NoKernelError, NotImplementedError
        As in `matmul`.

    Notes
    -----
    The dtype is that of ``X @ W.T + bias + residual``, unless `out_dtype` says it. What follows the
    product is computed in the dtype that sums are kept in. On a CPU float16 and bfloat16 are
    rounded once, at the end; elsewhere, where no kernel fuses, and in fp8, the product is rounded
    as well. With scales or `out_dtype` it is rounded once everywhere. A `Sum` is never fused: its
    parts' products are added, the rest follows, and all is rounded once.

    Examples
    --------
    >>> import numpy as np
    >>> import sparseformats as sf
    >>> W = sf.CSR([2.0, 1.0, 5.0], [0, 0, 1], [0, 1, 3], (2, 2))
    >>> sf.linear(np.array([[1.0, 7.0], [1.0, -7.0]]), W, np.array([1.0, -1.0]), activation="relu")
    array([[ 3., 35.],
           [ 3.,  0.]])
    """
    options = (precision, bool(assume_finite), kernel)
    if DYNAMO in modules and watched():
        names: dict[str, Any] = {
            "kernel": kernel,
            "precision": precision,
            "assume_finite": assume_finite,
            "residual": residual,
            "scale_a": scale_a,
            "scale_b": scale_b,
            "out_dtype": out_dtype,
        }
        return opaque(linear)(X, W, bias, activation=activation, out=out, **names)
    beside = NOTHING
    if not (residual is None and scale_a is None and scale_b is None and out_dtype is None):
        beside = Beside(residual, scale_a, scale_b, out_dtype)
    key = None
    if activation is None or type(activation) is str:
        key, light = find(X, W, bias, activation, out, options, beside)
        if light is not None:
            return run(light, X, bias, out, beside)
    return _anew(X, W, bias, activation, out, options, beside, key)


def _anew(
    X: Any,
    W: Any,
    bias: Any,
    activation: Any,
    out: Any,
    options: tuple[Any, ...],
    beside: Beside,
    key: Any,
) -> Array:
    """Understand the call, prepare, remember, run."""
    precision, assume_finite, kernel = options
    names = {"precision": precision, "assume_finite": assume_finite, "kernel": kernel}
    call = read_layer(X, W, bias, activation, names, beside, out)
    if out is not None:  # before anything is prepared
        check_out(call.o, out)
        separate(call.o.lib, call.o.x, out, call.W.buffers().values())
    with call.o.lib.on(call.W.device):
        if isinstance(call.W, Sum):
            return _by_parts(call, X, bias, out, options)
        light = prepare(call, X, bias, out, key if call.W is W else None)
        return run(light, X, bias, out, beside)


def _by_parts(call: LayerCall, X: Any, bias: Any, out: Any, options: tuple[Any, ...]) -> Array:
    """A layer of a `Sum`, or of its only part that stores anything, which may be fused."""
    assert isinstance(call.W, Sum)
    met = working(call.W)
    if len(met) > 1:
        return layer_of_sum(call, out)
    return _anew(X, met[0], bias, call.activation, out, options, call.beside, None)


def explain_linear(
    X: Any,
    W: Any,
    bias: Any = None,
    *,
    activation: str | None = None,
    residual: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    out_dtype: Any = None,
    kernel: str | None = None,
    precision: str | None = None,
    assume_finite: bool = False,
) -> Explanation | SumExplanation:
    """Tell which kernel `linear` would run for these arguments, and why not any other one.

    Parameters
    ----------
    X, W, bias, activation, residual, scale_a, scale_b, out_dtype
        As in `linear`.
    kernel, precision, assume_finite
        As in `matmul`.
    """
    options: dict[str, Any] = {"kernel": kernel, "precision": precision}
    options["assume_finite"] = assume_finite
    beside: dict[str, Any] = {"residual": residual, "scale_a": scale_a, "scale_b": scale_b}
    beside["out_dtype"] = out_dtype
    given = Beside(**beside) if any(x is not None for x in beside.values()) else NOTHING
    call = read_layer(X, W, bias, activation, options, given)
    if isinstance(call.W, Sum):
        met = working(call.W)
        if len(met) > 1:
            return explain_layer_of_sum(call)
        return explain_linear(X, met[0], bias, activation=activation, **beside, **options)
    return dispatch.explain(way_of(call, None).query, kernel)
