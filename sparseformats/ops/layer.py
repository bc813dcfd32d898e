"""A layer with a sparse weight: ``activation(X @ W.T + bias)``.

The product is that of `matmul`; a kernel whose record names the epilogue computes all of it, else
bias and activation follow here.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from time import perf_counter
from typing import Any, NamedTuple, cast

from sparseformats import _arrays, dispatch
from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import accumulator
from sparseformats.dispatch import Explanation, Query
from sparseformats.errors import DeviceMismatchError
from sparseformats.formats import SparseMatrix
from sparseformats.ops.activations import activate, check_activation
from sparseformats.ops.cache import source
from sparseformats.ops.compiling import DYNAMO, entry, modules, opaque, watched
from sparseformats.ops.contract import FusingKernel
from sparseformats.ops.facts import as_precision, matmul_query
from sparseformats.ops.operands import Operands, as_sparse, check_out, read, separate
from sparseformats.ops.product import matmul, packed_for
from sparseformats.ops.scalars import result_dtype

__all__ = ["explain_linear", "linear"]


class _Call(NamedTuple):
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


@entry
def linear(
    X: Any,
    W: Any,
    bias: Any = None,
    *,
    activation: str | None = None,
    out: Any = None,
    kernel: str | None = None,
    precision: str | None = None,
    assume_finite: bool = False,
) -> Any:
    """Apply a layer with a sparse weight: ``activation(X @ W.T + bias)``.

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
    out : array, optional
        Takes the result: exactly its shape and dtype, any strides; may overlap `X`.
    kernel, precision, assume_finite
        As in `matmul`.

    Returns
    -------
    array
        (m,) or (..., m): `out` if given, else a new array.

    Raises
    ------
    ValueError
        Shapes do not match, or an unknown activation.
    TypeError
        No sparse weight, operands of two libraries, or an activation without meaning for the
        dtype: relu is for real numbers, the others for floating ones.
    DeviceMismatchError, NoKernelError, NotImplementedError
        As in `matmul`.

    Notes
    -----
    The dtype is that of ``X @ W.T + bias``. Bias and activation are computed in the dtype that
    sums are kept in. On a CPU float16 and bfloat16 are rounded once, at the end; elsewhere, where
    no kernel fuses, and in fp8, the product is rounded as well.

    Examples
    --------
    >>> import numpy as np
    >>> import sparseformats as sf
    >>> W = sf.CSR([2.0, 1.0, 5.0], [0, 0, 1], [0, 1, 3], (2, 2))
    >>> sf.linear(np.array([[1.0, 7.0], [1.0, -7.0]]), W, np.array([1.0, -1.0]), activation="relu")
    array([[ 3., 35.],
           [ 3.,  0.]])
    """
    options: dict[str, Any] = {
        "kernel": kernel,
        "precision": precision,
        "assume_finite": assume_finite,
    }
    if DYNAMO in modules and watched():
        return opaque(linear)(X, W, bias, activation=activation, out=out, **options)
    call = _read(X, W, bias, activation, options)
    if out is not None:
        check_out(call.o, out)
        separate(call.o.lib, call.o.x, out, call.W.buffers().values())
    if call.epilogue is None:
        return _plain(call, out)
    fused = _selected_fused(call)
    y = _followed(call) if fused is None else _run_fused(call, fused)
    y = call.o.lib.xp.reshape(y, call.o.shape)
    if out is None:
        return y
    out[...] = y
    return out


def explain_linear(
    X: Any,
    W: Any,
    bias: Any = None,
    *,
    activation: str | None = None,
    kernel: str | None = None,
    precision: str | None = None,
    assume_finite: bool = False,
) -> Explanation:
    """Tell which kernel `linear` would run for these arguments, and why not any other one.

    Parameters
    ----------
    X, W, bias, activation, kernel, precision, assume_finite
        As in `linear`.
    """
    options = {"kernel": kernel, "precision": precision, "assume_finite": assume_finite}
    call = _read(X, W, bias, activation, options)
    if call.epilogue is not None and _fusers(call, kernel):
        found = dispatch.explain(_query(call, call.epilogue), kernel)
        if found.chosen is not None or found.forced is not None:
            return found
    return dispatch.explain(_query(_widened(call), None), kernel)


def _read(X: Any, W: Any, bias: Any, activation: str | None, options: dict[str, Any]) -> _Call:
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
    flat = X if len(shape) < 3 else _arrays.of(X).xp.reshape(X, (rows, k))
    o = read(weight, flat.mT if len(shape) > 1 else flat)  # not `weight.T`: that takes time to make
    lib, dtype = o.lib, o.dtype
    if bias is not None:
        bias = _bias(o, bias, m)
        dtype = _promoted(lib, dtype, lib.dtype_name(bias))
    check_activation(activation, dtype)
    flat = o.x.mT if len(shape) > 1 else o.x
    o = replace(o, dtype=dtype, shape=(*shape[:-1], m))
    return _Call(o, weight, flat, bias, activation, options)


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


def _plain(call: _Call, out: Array | None) -> Array:
    """Only the product, straight into `out` where its axes can be seen as a matrix."""
    o, lib = call.o, call.o.lib
    if out is None:
        return lib.xp.reshape(_product(call, None), o.shape)
    if len(o.shape) < 3:
        _product(call, out)
    elif lib.is_contiguous(out):
        _product(call, lib.xp.reshape(out, (int(call.flat.shape[0]), o.m)))
    else:
        out[...] = lib.xp.reshape(_product(call, None), o.shape)
    return out


def _product(call: _Call, out: Array | None) -> Array:
    """``flat @ W.T``; `W` itself goes to `matmul`, which knows it from earlier calls."""
    if len(call.flat.shape) == 1:
        return matmul(call.W, call.flat, out=out, **call.options)
    lib, rows = call.o.lib, int(call.flat.shape[0])
    if out is None:
        dtype = result_dtype(lib, call.W.dtype_name, lib.dtype_name(call.flat))
        out = lib.empty((rows, call.o.m), dtype, call.W.device)
    matmul(call.W, call.flat.mT, out=out.mT, **call.options)
    return out


def _followed(call: _Call) -> Array:
    """The product, then bias and activation, then one rounding."""
    lib, dtype = call.o.lib, accumulator(call.o.dtype)
    y = lib.astype(_product(_widened(call), None), dtype)
    if call.bias is not None:
        y += lib.astype(call.bias, dtype)
    return lib.astype(activate(lib, y, call.activation), call.o.dtype)


def _widened(call: _Call) -> _Call:
    """On a CPU the operand in the dtype of sums, so that half types are not rounded halfway."""
    lib = call.o.lib
    dtype = result_dtype(lib, call.W.dtype_name, lib.dtype_name(call.flat))
    wide = accumulator(dtype)
    if call.epilogue is None or wide == dtype or call.W.device != "cpu":
        return call
    try:
        result_dtype(lib, call.W.dtype_name, wide)
    except TypeError:  # fp8 meets no other dtype
        return call
    return call._replace(flat=lib.astype(call.flat, wide))


def _query(call: _Call, epilogue: str | None) -> Query:
    """Facts of the product as `matmul` sees it, with what follows."""
    x = call.flat.mT if len(call.flat.shape) == 2 else call.flat
    return matmul_query(
        read(call.W, x),
        None,
        alpha_one=True,
        beta_zero=True,
        precision=as_precision(call.options["precision"]),
        epilogue=epilogue,
        assume_finite=bool(call.options["assume_finite"]),
    )


@lru_cache(maxsize=64)
def _fusing(epilogue: str | None, generation: int) -> frozenset[str]:
    return frozenset(r.name for r in dispatch.records("matmul") if r.fuses(epilogue))


def _fusers(call: _Call, kernel: str | None) -> bool:
    """Whether any kernel, or the one asked for, names the epilogue; most calls end here."""
    names = _fusing(call.epilogue, dispatch.generation())
    if not names:
        return False
    forced = dispatch.forced_by("matmul", kernel)
    return forced is None or forced.name in names


def _selected_fused(call: _Call) -> tuple[dispatch.Selection, Query] | None:
    """The kernel that computes all of it, if there is one; else the product comes first."""
    lib, dtype = call.o.lib, call.o.dtype
    if result_dtype(lib, call.W.dtype_name, lib.dtype_name(call.flat)) != dtype:
        return None  # the bias widens the result
    if not _fusers(call, call.options["kernel"]):
        return None
    query = _query(call, call.epilogue)
    found = dispatch.find(query, call.options["kernel"])
    return None if found is None else (found, query)


def _run_fused(call: _Call, fused: tuple[dispatch.Selection, Query]) -> Array:
    selection, query = fused
    lib, kernel = call.o.lib, cast("FusingKernel", selection.target)
    flat = call.flat if len(call.flat.shape) == 2 else call.flat[None, :]
    y = lib.empty((int(flat.shape[0]), call.o.m), call.o.dtype, call.W.device)
    bias = None if call.bias is None else lib.contiguous(lib.astype(call.bias, call.o.dtype))
    packed = packed_for(read(call.W, flat.mT), source(call.W), query, selection)[1]
    start = perf_counter()
    kernel.run(packed.state, flat.mT, y.mT, 1, 0, bias=bias, activation=call.activation)
    if dispatch.is_tracing():
        dispatch.record_run("matmul", selection.name, query, perf_counter() - start)
    return y
