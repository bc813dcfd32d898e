"""Light plans of layers: all that calls of equal facts have in common, found by one lookup.

A layer's product runs in one of three ways: alone, with bias and activation fused, or followed by
them. In each the result's memory is made first, row-major over the tokens, and the kernel writes
to its transpose; `out` of the caller is that memory wherever it can be seen as a matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from time import perf_counter
from typing import Any, NamedTuple, final

from sparseformats import _arrays, dispatch
from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import accumulator, itemsize
from sparseformats.dispatch import REGISTRY, Query, Selection, forcing
from sparseformats.dispatch.plan_cache import Packed
from sparseformats.formats import SparseMatrix, Transposed
from sparseformats.ops.activations import activate
from sparseformats.ops.cache import CACHE, source
from sparseformats.ops.facts import ALIGNMENT, as_precision, matmul_query
from sparseformats.ops.layer_call import LayerCall, product_dtype, widened
from sparseformats.ops.light import bound, whereabouts
from sparseformats.ops.operands import Operands, guard, read
from sparseformats.ops.preparing import packed_for

__all__ = ["LayerLight", "Way", "find", "prepare", "run", "way_of", "with_fresh"]

_Key = tuple[Any, ...]


class Way(NamedTuple):
    """How a layer's product is made: the operands as its kernel sees them, and their facts.

    `fused` says that the kernel adds bias and activation; `call` is the layer's, widened where
    they follow.
    """

    call: LayerCall
    product: Operands
    query: Query
    fused: bool


@final
class LayerLight:
    """A layer prepared for operands of one set of facts; refers to no matrix and no operand."""

    __slots__ = (
        *("activation", "bias_ready", "device", "direct", "dtype", "fused", "guard_bias"),
        *("guard_x", "kernel", "lib", "make", "native", "packed", "product", "query", "rows"),
        *("run", "shape", "stamp", "target", "wide"),
    )

    def __init__(
        self, way: Way, X: Array, bias: Array | None, out: Array | None, selection: Selection
    ) -> None:
        call, o = way.call, way.call.o
        lib, device = o.lib, o.matrix.device
        self.kernel, self.query, self.lib, self.device = selection.name, way.query, lib, device
        self.fused, self.activation = way.fused, call.activation
        self.dtype, self.product, self.shape = o.dtype, way.product.dtype, o.shape
        self.native = lib.is_native(X)
        # What the kernel's operand is made of X by: rows of tokens, and a wider dtype.
        vector = len(way.product.shape) == 1
        self.rows = tuple(way.product.x.shape)[::-1] if len(o.shape) != 2 and not vector else None
        wide = lib.dtype_name(call.flat)
        self.wide = None if wide == lib.dtype_name(X) else wide
        self.bias_ready = bias is None or _is_ready(lib, bias, o.dtype)
        # What the result lies in.
        self.direct = out is not None and _is_direct(way, out)
        self.target = self.shape if vector else way.product.shape[::-1]
        self.make = lib.maker(self.target, self.product, device)
        buffers = o.matrix.buffers().values()
        self.guard_x = None if out is None else guard(lib, X, out, buffers)
        self.guard_bias = None
        if out is not None and bias is not None:
            self.guard_bias = guard(lib, bias, out, ())
        self.packed: Packed
        self.run: Callable[..., Any]
        self.stamp = 0

    def bind(self, way: Way, packed: Packed, target: Any) -> LayerLight:
        """Bind the kernel to a state; returns itself."""
        self.packed = packed
        run = _bound(way, packed.state, target)
        self.run = self.lib.here(self.device, run)
        return self


def _bound(way: Way, state: Any, target: Any) -> Callable[..., Any]:
    """``(x, out, bias) -> y`` of the kernel, alone or with what it fuses."""
    if not way.fused:
        run = bound(target, way.product, True, way.query, state)
        return lambda x, out, bias: run(x, out, 1, 0)
    if hasattr(target, "bind_epilogue"):
        fused = target.bind_epilogue(state, way.query)
        return lambda x, out, bias: fused(x, out, 1, 0, bias)
    whole = partial(target.run, state, activation=way.call.activation)
    return lambda x, out, bias: whole(x, out, 1, 0, bias=bias)


def _is_ready(lib: ArrayLibrary, bias: Array, dtype: str) -> bool:
    """Whether a kernel can read a bias as it is, gradients being off."""
    if lib.dtype_name(bias) != dtype or not lib.is_contiguous(bias):
        return False
    return lib.is_native(bias) or (
        lib.addressed and lib.address(lib.native(bias)) == lib.address(bias)
    )


def _is_direct(way: Way, out: Array) -> bool:
    """Whether the kernel can write to `out`: nothing follows, and it can be seen as a matrix."""
    if not way.fused and way.call.epilogue is not None:
        return False
    return len(way.call.o.shape) < 3 or way.call.o.lib.is_contiguous(out)


def find(
    X: Any, W: Any, bias: Any, activation: Any, out: Any, options: tuple[Any, ...]
) -> tuple[_Key | None, LayerLight | None]:
    """The key of a call, None where its facts are not known, and the plan found under it."""
    lib = _arrays.known(X)
    if lib is None or not isinstance(W, SparseMatrix):
        return None, None
    facts: list[Any] = [lib.facts(X)]
    for given in (bias, out):
        if given is not None and _arrays.known(given) is not lib:
            return None, None
        facts.append(() if given is None else lib.facts(given))
    if None in facts:
        return None, None
    transposed = isinstance(W, Transposed)
    found = CACHE.find(source(W))
    state, generation = forcing.state(), REGISTRY.generation
    key: _Key = ("linear", transposed, activation, *facts, options, state, generation)
    if found is None:
        return key, None
    if found.apart:
        light: Any = found.plans.get((*key, *whereabouts(lib, found.place)))
    else:
        light = found.plans.get(key)
    if light is not None:
        CACHE.touch(light)
    return key, light


def run(light: LayerLight, X: Array, bias: Array | None, out: Array | None) -> Array:
    """Compute a layer by its light plan, telling who listens.

    Raises
    ------
    ValueError
        `out` shares memory with a buffer of the weight.
    """
    lib = light.lib
    x = X if light.native else lib.native(X)
    if not light.bias_ready:
        bias = lib.native(bias)
        if light.fused:
            bias = lib.contiguous(lib.astype(bias, light.dtype))
    if light.guard_x is not None:
        x = light.guard_x(x, out)
        if light.guard_bias is not None:
            bias = light.guard_bias(bias, out)
    if light.rows is not None:
        x = lib.reshape(x, light.rows)
    if light.wide is not None:
        x = lib.astype(x, light.wide)
    y = _target(light, out)
    _product(light, x, y, bias)
    if not light.fused and (bias is not None or light.activation is not None):
        y = _followed(light, y, bias)
    if light.direct:
        return out
    if light.target != light.shape:
        y = lib.reshape(y, light.shape)
    if out is None:
        return y
    out[...] = y
    return out


def _target(light: LayerLight, out: Array | None) -> Array:
    """Where the product goes: rows of tokens, or a vector."""
    if not light.direct:
        return light.make()
    return out if light.target == light.shape else light.lib.reshape(out, light.target)


def _product(light: LayerLight, x: Array, y: Array, bias: Array | None) -> None:
    if len(light.target) > 1:
        x, y = x.mT, y.mT
    if not dispatch.is_tracing():
        light.run(x, y, bias)
        return
    start = perf_counter()
    light.run(x, y, bias)
    dispatch.record_run("matmul", light.kernel, light.query, perf_counter() - start)


def _followed(light: LayerLight, y: Array, bias: Array | None) -> Array:
    """Bias and activation behind a product, then one rounding."""
    lib, dtype = light.lib, accumulator(light.dtype)
    with lib.on(light.device):
        y = lib.astype(y, dtype)
        if bias is not None:
            y += lib.astype(bias, dtype)
        return lib.astype(activate(lib, y, light.activation), light.dtype)


def prepare(
    call: LayerCall, X: Array, bias: Array | None, out: Array | None, key: _Key | None
) -> LayerLight:
    """Choose the way, pack the weight, and remember the plan under `key`.

    `X` and `bias` are the caller's, `call` is what was read from them.
    """
    way = way_of(call, out)
    selection = dispatch.select(way.query, call.options["kernel"])
    light = LayerLight(way, X, bias, out, selection)
    entry, packed = packed_for(way.product, source(call.W), way.query, selection)
    light.bind(way, packed, selection.target)
    if key is not None:
        if entry.apart:
            key = (*key, *whereabouts(light.lib, entry.place))
        CACHE.remember(entry, key, light)
    return light


def way_of(call: LayerCall, out: Array | None) -> Way:
    """How to compute a layer, and the facts by which its kernel is chosen."""
    if call.epilogue is not None and product_dtype(call) == call.o.dtype:
        kernel = call.options["kernel"]
        if _fusers(call, kernel):
            way = _way(call, call.epilogue, out)
            chosen = dispatch.explain(way.query, kernel)
            if chosen.chosen is not None or chosen.forced is not None:
                return way
    return _way(widened(call), None, out)


def _way(call: LayerCall, epilogue: str | None, out: Array | None) -> Way:
    lib, flat = call.o.lib, call.flat
    if epilogue is not None and len(flat.shape) == 1:
        flat = flat[None, :]  # kernels that fuse see matrices
    vector = len(flat.shape) == 1
    o = read(call.W, flat if vector else flat.mT)
    query = matmul_query(
        o,
        None,
        alpha_one=True,
        beta_zero=True,
        precision=as_precision(call.options["precision"], lib, o.x, o.dtype),
        epilogue=epilogue,
        assume_finite=bool(call.options["assume_finite"]),
    )
    way = Way(call, o, query, epilogue is not None)
    if out is not None and _is_direct(way, out):
        target = out if vector else lib.reshape(out, o.shape[::-1]).mT
        return way._replace(query=_with_out(o, target, query))
    return way._replace(query=with_fresh(o, query))


def _with_out(o: Operands, target: Array, query: Query) -> Query:
    facts = matmul_query(o, target, alpha_one=True, beta_zero=True)
    return replace(query, out_layout=facts.out_layout, out_aligned=facts.out_aligned)


def with_fresh(o: Operands, query: Query) -> Query:
    """The facts of a new result, row-major over the tokens."""
    m, n = o.m, o.columns
    thin = m == 1 or n == 1
    aligned = thin or m * itemsize(o.dtype) % ALIGNMENT == 0
    return replace(
        query,
        out_layout="C" if thin else "F",
        out_aligned=aligned if o.lib.addressed else None,
    )


@lru_cache(maxsize=64)
def _fusing(epilogue: str | None, generation: int) -> frozenset[str]:
    return frozenset(r.name for r in dispatch.records("matmul") if r.fuses(epilogue))


def _fusers(call: LayerCall, kernel: str | None) -> bool:
    """Whether any kernel, or the one asked for, names the epilogue; most calls end here."""
    names = _fusing(call.epilogue, dispatch.generation())
    if not names:
        return False
    forced = dispatch.forced_by("matmul", kernel)
    return forced is None or forced.name in names
