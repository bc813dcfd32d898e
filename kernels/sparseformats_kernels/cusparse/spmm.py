"""What the product kernels of cuSPARSE have in common: reading operands where they lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparseformats._arrays import Array
from sparseformats._dtypes import accumulator
from sparseformats.dispatch.query import Query
from sparseformats_kernels.cuda.common import deliver, without_terms
from sparseformats_kernels.cusparse.api import ORDER_COL, ORDER_ROW
from sparseformats_kernels.cusparse.products import Shape, view
from sparseformats_kernels.cusparse.state import State

__all__ = ["Choose", "Run", "bind", "multiply"]

Choose = Callable[[State, int, bool], int]
"""``(state, n, deterministic) -> algorithm``; n = 0 is a vector."""

Run = Callable[[Array, "Array | None", Any, Any], Array]

_ORDERS = {"C": ORDER_ROW, "F": ORDER_COL}


def bind(state: State, query: Query, choose: Choose, vectors: bool) -> Run:
    """A run for calls of these facts; prepares what a graph of them will need."""
    if state.nnz:
        state.reserve(_expected(state, query, choose, vectors))
    deterministic = query.deterministic

    def run(x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
        return multiply(state, x, out, alpha, beta, choose, vectors, deterministic)

    return run


def _expected(state: State, query: Query, choose: Choose, vectors: bool) -> set[Shape]:
    """The shapes that calls with these facts will ask for."""
    gives = state.gives
    if not query.beta_zero and state.is_half:
        gives = state.computes
    x_order = _ORDERS.get(query.x_layout or "C", ORDER_ROW)
    orders = {_ORDERS.get(query.out_layout or "C", ORDER_ROW)}
    if query.out_layout is None:  # an operand from the left has its result transposed too
        orders.add(x_order)
    found = set()
    for n in {query.n, query.n * query.batch} - {0}:
        if n == 1 and vectors:
            found.add(_vector(gives, choose(state, 0, query.deterministic)))
            continue
        algorithm = choose(state, n, query.deterministic)
        orders_of_n = orders if n > 1 else {ORDER_ROW}
        for order in orders_of_n:
            found.add(Shape(n, n > 1 and order != x_order, order, gives, algorithm))
    return found


def _vector(gives: str, algorithm: int) -> Shape:
    return Shape(0, False, ORDER_ROW, gives, algorithm)


def multiply(
    state: State,
    x: Array,
    out: Array | None,
    alpha: Any,
    beta: Any,
    choose: Choose,
    vectors: bool,
    deterministic: bool,
) -> Array:
    """``alpha * (A @ x) + beta * out`` on the current stream of the matrix's device."""
    device = state.device
    if not device.is_current():
        with device.here():
            return multiply(state, x, out, alpha, beta, choose, vectors, deterministic)
    lib, n = state.lib, int(x.shape[1])
    if not (state.m and n and state.k and state.nnz):
        like = state.gives, device.place
        return without_terms(lib, (state.m, n), out, beta, like)
    if out is None:
        out = device.empty((state.m, n), state.gives)
    stream = device.stream()
    capture = device.capture(stream)
    vector = vectors and n == 1
    x, source = _operand(state, x, vector, capture)
    y, target = _result(state, out, n, beta, vector, capture)
    direct = y is out
    gives = state.gives if direct else accumulator(state.gives)
    algorithm = choose(state, 0 if vector else n, deterministic)
    order = target[0]
    shape = Shape(0 if vector else n, source[0] != order, order, gives, algorithm)
    places = (lib.address(x), source[1]), (lib.address(y), target[1])
    state.launch(shape, *places, (alpha, beta if direct else 0), stream, capture)
    return out if direct else deliver(lib, y, out, 1, beta)


_VECTOR = (ORDER_ROW, 1)


def _operand(state: State, x: Array, vector: bool, capture: int) -> tuple[Array, tuple[int, int]]:
    """The operand as the library can read it, with order and leading dimension."""
    lib, rows, n = state.lib, state.k, int(x.shape[1])
    if x.dtype != state.raw_dtype:
        state.refuse_memory_in(capture)
        x = lib.astype(x, state.dtype)
    found = _lies(state, x, rows, n, vector)
    if found is None:
        state.refuse_memory_in(capture)
        x, found = lib.contiguous(x), _VECTOR if vector else (ORDER_ROW, n)
    return x, found


def _result(
    state: State, out: Array, n: int, beta: Any, vector: bool, capture: int
) -> tuple[Array, tuple[int, int]]:
    """`out`, or memory for a result that is not written straight into it."""
    found = _lies(state, out, state.m, n, vector)
    # A half type would be rounded when it is scaled and again when it is added to.
    if found is not None and (beta == 0 or not state.is_half):
        return out, found
    state.refuse_memory_in(capture)
    y = state.device.empty((state.m, n), accumulator(state.gives))
    return y, _VECTOR if vector else (ORDER_ROW, n)


def _lies(state: State, x: Array, rows: int, n: int, vector: bool) -> tuple[int, int] | None:
    """Order and leading dimension of a matrix that the library can use where it lies."""
    steps = state.device.steps(x)
    if vector:
        return _VECTOR if steps[0] == 1 or rows == 1 else None
    return view(steps, rows, n)
