"""Which way a layer's product is made: alone, or with some or all of what follows it fused."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from sparseformats import dispatch
from sparseformats._arrays import Array
from sparseformats._dtypes import accumulator, itemsize
from sparseformats.dispatch import Query
from sparseformats.ops.facts import ALIGNMENT, as_precision, matmul_query
from sparseformats.ops.layer_call import LayerCall, flattened, product_dtype, widened
from sparseformats.ops.operands import Operands, read

__all__ = ["Way", "is_direct", "turned", "way_of", "with_fresh"]


class Way(NamedTuple):
    """How a layer's product is made: the operands as its kernel sees them, and their facts.

    The kernel computes what ``query.epilogue`` names; `follows` is what is left for the array
    library. `call` is the layer's, widened where nothing is fused.
    """

    call: LayerCall
    product: Operands
    query: Query

    @property
    def fused(self) -> bool:
        """Whether the kernel computes more than the product."""
        return self.query.epilogue is not None

    @property
    def follows(self) -> bool:
        """Whether something is left to do behind it."""
        return self.query.epilogue != self.call.epilogue


def way_of(call: LayerCall, out: Array | None) -> Way:
    """How to compute a layer, and the facts by which its kernel is chosen.

    A kernel fuses all that follows the product, or all but the residual, or nothing. It takes a
    batch of tokens in one launch where it can; for others they become one matrix.
    """
    if len(call.flat.shape) == 3:
        way = _best(call, out)
        if _takes_batches(way):
            return way
        call = flattened(call)
    return _best(call, out)


def _takes_batches(way: Way) -> bool:
    chosen = dispatch.explain(way.query, way.call.options["kernel"]).chosen
    least = next((r.batches for r in dispatch.records("matmul") if r.name == chosen), None)
    return least is not None and way.product.columns >= least


def _best(call: LayerCall, out: Array | None) -> Way:
    """The quickest way that fuses something, else the product alone."""
    ways: list[tuple[float, Way]] = []
    if call.scaled or product_dtype(call) == call.o.dtype:
        kernel = call.options["kernel"]
        # Scaled sums are rounded once, so all is fused or nothing.
        wanted = (call.epilogue,) if call.scaled else (call.epilogue, call.inner)
        for epilogue in dict.fromkeys(wanted):
            if epilogue is None or not _fusers(epilogue, kernel):
                continue
            way = _way(call, epilogue, out)
            told = dispatch.explain(way.query, kernel)
            if told.chosen is not None:
                ways.append(((told.rows[0].microseconds or 0.0) + _afterwards(way), way))
    return min(ways, key=lambda pair: pair[0])[1] if ways else _way(widened(call), None, out)


def _afterwards(way: Way) -> float:
    """Microseconds that adding a residual takes in a pass of its own."""
    if not way.follows:
        return 0.0
    moved = 3 * math.prod(way.product.shape) * itemsize(way.product.dtype)
    return _PASS + moved / _MEMORY


_PASS = 8.0  # us
_MEMORY = 3.5e6  # bytes/us


def _way(call: LayerCall, epilogue: str | None, out: Array | None) -> Way:
    lib, flat = call.o.lib, call.flat
    if epilogue is not None and len(flat.shape) == 1:
        flat = flat[None, :]  # kernels that fuse see matrices
    vector = len(flat.shape) == 1
    o = read(call.W, flat if vector else flat.mT)
    own = o.dtype
    if call.scaled:
        o = replace(o, dtype=call.o.dtype if epilogue is not None else accumulator(own))
    scaled = epilogue is not None and call.scaled
    bias = lib.dtype_name(call.bias) if scaled and call.bias is not None else None
    query = matmul_query(
        o,
        None,
        alpha_one=epilogue is None or not call.beside.has_number,
        beta_zero=True,
        precision=as_precision(call.options["precision"], lib, o.x, o.dtype),
        epilogue=epilogue,
        scales=call.beside.scales if scaled else None,
        bias_dtype=bias,
        assume_finite=bool(call.options["assume_finite"]),
        wide=epilogue is None and o.dtype != own,
    )
    way = Way(call, o, query)
    if out is not None and is_direct(way, out):
        target = out if vector else lib.reshape(out, turned(o.shape)).mT
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


def _fusers(epilogue: str, kernel: str | None) -> bool:
    """Whether any kernel, or the one asked for, names the epilogue; most calls end here."""
    names = _fusing(epilogue, dispatch.generation())
    if not names:
        return False
    forced = dispatch.forced_by("matmul", kernel)
    return forced is None or forced.name in names


def is_direct(way: Way, out: Array) -> bool:
    """Whether the kernel can write to `out`: nothing follows, and it can be seen as a matrix."""
    if way.follows:
        return False
    whole = len(way.call.o.shape) < 3 or len(way.product.shape) == 3
    return whole or way.call.o.lib.is_contiguous(out)


def turned(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with its last two axes in the other order."""
    return (*shape[:-2], shape[-1], shape[-2])
