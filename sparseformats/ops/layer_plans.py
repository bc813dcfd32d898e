"""Light plans of layers: all that calls of equal facts have in common, found by one lookup.

A layer's product runs in one of three ways: alone, with what follows fused, or followed by it (see
`layer_ways`). In each the result's memory is made first, row-major over the tokens, and the kernel
writes to its transpose; `out` of the caller is that memory wherever it can be seen as a matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, final

from sparseformats import _arrays, dispatch
from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import accumulator
from sparseformats.dispatch import REGISTRY, Selection, forcing
from sparseformats.dispatch.plan_cache import Packed
from sparseformats.formats import SparseMatrix, Transposed
from sparseformats.ops.beside import NOTHING, Beside, added, finished
from sparseformats.ops.cache import CACHE, source
from sparseformats.ops.layer_call import LayerCall
from sparseformats.ops.layer_ways import Way, is_direct, turned, way_of
from sparseformats.ops.light import bound, whereabouts
from sparseformats.ops.operands import guard
from sparseformats.ops.preparing import packed_for

__all__ = ["LayerLight", "find", "prepare", "run"]

_Key = tuple[Any, ...]


@final
class LayerLight:
    """A layer prepared for operands of one set of facts; refers to no matrix and no operand."""

    __slots__ = (
        *("activation", "bias_dtype", "bias_ready", "device", "direct", "dtype", "fused"),
        *("follows", "guard_bias", "guard_x", "guards", "kernel", "lib", "make", "native"),
        *("packed", "product", "query", "residual", "rows", "run", "scaled", "shape", "stamp"),
        *("target", "wide"),
    )

    def __init__(
        self, way: Way, X: Array, bias: Array | None, out: Array | None, selection: Selection
    ) -> None:
        call, o = way.call, way.call.o
        lib, device = o.lib, o.matrix.device
        self.kernel, self.query, self.lib, self.device = selection.name, way.query, lib, device
        self.fused, self.follows, self.activation = way.fused, way.follows, call.activation
        self.scaled = call.scaled
        self.residual = way.fused and "residual" in (way.query.epilogue or "").split("+")
        self.dtype, self.product, self.shape = o.dtype, way.product.dtype, o.shape
        self.native = lib.is_native(X)
        # What the kernel's operand is made of X by: rows of tokens, and a wider dtype.
        vector = len(way.product.shape) == 1
        apart = len(o.shape) != 2 and not vector and len(way.product.shape) == 2
        self.rows = tuple(way.product.x.shape)[::-1] if apart else None
        wide = lib.dtype_name(call.flat)
        self.wide = None if wide == lib.dtype_name(X) else wide
        self.bias_dtype = accumulator(o.dtype) if call.scaled else o.dtype
        self.bias_ready = bias is None or _is_ready(lib, bias, self.bias_dtype)
        # What the result lies in.
        self.direct = out is not None and is_direct(way, out)
        self.target = self.shape if vector else turned(way.product.shape)
        self.make = lib.maker(self.target, self.product, device)
        buffers = o.matrix.buffers().values()
        self.guard_x = None if out is None else guard(lib, X, out, buffers)
        self.guard_bias = None
        if out is not None and bias is not None:
            self.guard_bias = guard(lib, bias, out, ())
        # Of what a kernel reads while it writes to `out`; else that is written last.
        self.guards: tuple[tuple[str, Callable[[Array, Array], Array]], ...] = ()
        if out is not None and way.fused and self.direct:
            read = call.beside.named_arrays(residual=self.residual)
            self.guards = tuple((n, guard(lib, lib.native(x), out, ())) for n, x in read.items())
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
    """``(x, out, alpha, bias, beside) -> y`` of the kernel, alone or with what it fuses."""
    if not way.fused:
        run = bound(target, way.product, True, way.query, state)
        return lambda x, out, alpha, bias, beside: run(x, out, 1, 0)
    bind = "bind_epilogue" if len(way.product.shape) < 3 else "bind_batch"
    if hasattr(target, bind):
        fused = getattr(target, bind)(state, way.query)
        return lambda x, out, alpha, bias, beside: fused(x, out, alpha, 0, bias, **beside)
    whole = partial(target.run, state, activation=way.call.activation)
    return lambda x, out, alpha, bias, beside: whole(x, out, alpha, 0, bias=bias, **beside)


def _is_ready(lib: ArrayLibrary, bias: Array, dtype: str) -> bool:
    """Whether a kernel can read a bias as it is, gradients being off."""
    if lib.dtype_name(bias) != dtype or not lib.is_contiguous(bias):
        return False
    return lib.is_native(bias) or (
        lib.addressed and lib.address(lib.native(bias)) == lib.address(bias)
    )


def find(
    X: Any,
    W: Any,
    bias: Any,
    activation: Any,
    out: Any,
    options: tuple[Any, ...],
    beside: Beside = NOTHING,
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
    if beside is not NOTHING:
        facts.append(beside.facts(lib))
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


def run(
    light: LayerLight, X: Array, bias: Array | None, out: Array | None, beside: Beside = NOTHING
) -> Array:
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
            bias = lib.contiguous(lib.astype(bias, light.bias_dtype))
    if light.guard_x is not None:
        x = light.guard_x(x, out)
        if light.guard_bias is not None:
            bias = light.guard_bias(bias, out)
    if light.guards:
        apart = {name: separate(getattr(beside, name), out) for name, separate in light.guards}
        beside = beside._replace(**apart)
    if light.rows is not None:
        x = lib.reshape(x, light.rows)
    if light.wide is not None:
        x = lib.astype(x, light.wide)
    y = _target(light, out)
    _product(light, x, y, bias, beside)
    if light.follows:
        y = _followed(light, y, bias, beside)
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


_NONE: dict[str, Array] = {}


def _product(light: LayerLight, x: Array, y: Array, bias: Array | None, beside: Beside) -> None:
    """Run the kernel on operands as it sees them."""
    alpha, arrays = 1.0 if light.scaled else 1, _NONE
    if light.fused and beside is not NOTHING:
        alpha, arrays = beside.factor if light.scaled else 1, _arrays_of(light, beside)
    if len(light.target) > 1:
        x, y = x.mT, y.mT
    if not dispatch.is_tracing():
        light.run(x, y, alpha, bias, arrays)
        return
    start = perf_counter()
    light.run(x, y, alpha, bias, arrays)
    dispatch.record_run("matmul", light.kernel, light.query, perf_counter() - start)


def _arrays_of(light: LayerLight, beside: Beside) -> dict[str, Array]:
    """Scales and residual as a kernel that fuses them takes them."""
    if not light.residual:
        return beside._replace(residual=None).arrays(light.lib, light.target)
    arrays = beside.arrays(light.lib, light.target)
    arrays["residual"] = light.lib.astype(arrays["residual"], light.dtype)
    return arrays


def _followed(light: LayerLight, y: Array, bias: Array | None, beside: Beside) -> Array:
    """What the kernel did not do behind its product, then one rounding."""
    with light.lib.on(light.device):
        if light.fused:  # all but the residual
            return added(light.lib, y, light.dtype, beside)
        options: dict[str, Any] = {"bias": bias, "activation": light.activation}
        return finished(light.lib, y, light.dtype, given=beside, scaled=light.scaled, **options)


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
