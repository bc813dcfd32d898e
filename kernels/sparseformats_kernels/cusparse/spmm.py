"""What the product kernels of cuSPARSE have in common: reading operands where they lie.

How a call is served is worked out once for each kind of operands, and kept for the calls after it.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any, NamedTuple, final

from sparseformats._arrays import Array
from sparseformats.dispatch.query import Query
from sparseformats_kernels.cuda.common import deliver, without_terms
from sparseformats_kernels.cusparse.api import ORDER_COL, ORDER_ROW
from sparseformats_kernels.cusparse.costs import FINITE
from sparseformats_kernels.cusparse.products import LEARNING, Launch, Shape, extent, view
from sparseformats_kernels.cusparse.state import State
from sparseformats_kernels.cusparse.times import Case, Way

__all__ = ["Bound", "Choose", "Rules", "bind"]

Choose = Callable[[State, Case], Way | int]
"""How to serve a case; a bare number is an algorithm for operands as they lie."""

_ALIGNED = 16  # bytes
_KEPT = 64  # kinds of operands that a bound kernel remembers


class Rules(NamedTuple):
    """What a call promises and asks for.

    Attributes
    ----------
    choose : Choose
    vectors : bool
        One column is multiplied as a vector.
    deterministic, finite : bool
        As of `Case`.
    """

    choose: Choose
    vectors: bool
    deterministic: bool = False
    finite: bool = False


def bind(state: State, query: Query, choose: Choose, vectors: bool) -> Bound:
    """A run for calls of these facts; prepares what a graph of them will need."""
    rules = Rules(choose, vectors, query.deterministic, FINITE.holds(query))
    if state.nnz:
        state.reserve(_expected(state, query, rules))
    return Bound(state, rules)


@final
class Bound:
    """A kernel bound to a packed matrix: ``(x, out, alpha, beta) -> y``.

    `x` is (k, n), or (k,) with a result of (m,).
    """

    __slots__ = ("_quiet", "_ready", "_rules", "_state", "_steps")

    def __init__(self, state: State, rules: Rules) -> None:
        self._state, self._rules = state, rules
        self._quiet, self._steps = state.device.quiet, state.device.stepping()
        self._ready: dict[tuple[Any, ...], _Ready] = {}

    def __call__(self, x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
        """``alpha * (A @ x) + beta * out`` on the current stream of the matrix's device."""
        stream = self._quiet()
        if stream is None:
            return self._elsewhere(x, out, alpha, beta)
        steps = self._steps
        given = None if out is None else steps(out)
        key = (get_ident(), stream, x.shape, steps(x), given, beta == 0)
        found = self._ready.get(key)
        if found is None:
            found = _prepare(self._state, self._rules, x, out, beta, stream, 0)
            if found is None:
                return _nothing(self._state, x, out, beta)
            if len(self._ready) >= _KEPT:
                self._ready.clear()
            self._ready[key] = found
        return found(x, out, alpha, beta)

    def _elsewhere(self, x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
        """Another device is the current one, or a graph is being recorded."""
        device = self._state.device
        if not device.is_current():
            with device.here():
                return self(x, out, alpha, beta)
        stream = device.stream()
        capture = device.capture(stream)
        found = _prepare(self._state, self._rules, x, out, beta, stream, capture)
        if found is None:
            return _nothing(self._state, x, out, beta)
        return found(x, out, alpha, beta)


def _nothing(state: State, x: Array, out: Array | None, beta: Any) -> Array:
    like = state.gives, state.device.place
    return without_terms(state.lib, (state.m, *x.shape[1:]), out, beta, like)


@final
class _Ready:
    """How calls with operands of one kind are served.

    Parameters
    ----------
    state : State
    launch : Launch
    renew : callable or None
        What makes the operand readable.
    new : callable
        Makes an array for the result.
    aside : callable or None
        Makes an array for what cannot be written straight into the result's.
    """

    __slots__ = ("_address", "_aside", "_copy", "_launch", "_lib", "_new", "_renew")

    def __init__(
        self,
        state: State,
        launch: Launch,
        renew: Callable[[Array], Array] | None,
        new: Callable[[], Array],
        aside: Callable[[], Array] | None,
    ) -> None:
        self._lib, self._address, self._launch = state.lib, state.lib.pointer(), launch
        self._renew, self._new, self._aside = renew, new, aside
        self._copy = state.device.copying()

    def __call__(self, x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
        if self._renew is not None:
            x = self._renew(x)
        if out is None:
            out = self._new()
        address = self._address
        if self._aside is None:
            self._launch(address(x), address(out), alpha, beta)
            return out
        y = self._aside()
        self._launch(address(x), address(y), alpha, 0)
        if beta != 0:
            return deliver(self._lib, y, out, 1, beta)
        self._copy(out, y)
        return out


def _prepare(
    state: State, rules: Rules, x: Array, out: Array | None, beta: Any, stream: int, capture: int
) -> _Ready | None:
    """How to serve calls like this one; None where no element meets the operand."""
    lib, device = state.lib, state.device
    n = int(x.shape[1]) if len(x.shape) == 2 else 1
    if not (state.m and n and state.k and state.nnz):
        return None
    size = (state.m, *(int(s) for s in x.shape[1:]))
    vector = rules.vectors and n == 1
    cast = x.dtype != state.raw_dtype
    source = None if cast else _lies(state, x, state.k, n, vector)
    result = _contiguous(vector, n) if out is None else _lies(state, out, state.m, n, vector)
    if beta != 0 and state.is_half:
        result = None  # it is made aside, row by row
    case = _case(rules, 0 if vector else n, source, result)
    shape, direct = _plan(state, rules, case, beta == 0, (stream, capture))
    by_row = _by_row(shape)
    renew = aside = None
    if source is None or (source[0] == ORDER_ROW) != by_row[0]:
        state.refuse_memory_in(capture)
        renew, source = _renewal(state, cast), _contiguous(vector, n)
    if result is None or not direct or (result[0] == ORDER_ROW) != by_row[1]:
        state.refuse_memory_in(capture)
        aside, result = lib.maker(size, shape.gives, device.place), _contiguous(vector, n)
    # The addresses of each call come with it; these are any that the device can read, on a multiple
    # of what the widest type needs (memory is handed out in larger pieces than that).
    some = [lib.address(a) // _ALIGNED * _ALIGNED for a in (x, x if out is None else out)]
    places = (some[0], source[1]), (some[1], result[1])
    launch = state.launch(shape, *places, stream, capture)
    return _Ready(state, launch, renew, lib.maker(size, state.gives, device.place), aside)


def _case(
    rules: Rules, n: int, source: tuple[int, int] | None, result: tuple[int, int] | None
) -> Case:
    return Case(
        n,
        source is None or source[0] == ORDER_ROW,
        result is None or result[0] == ORDER_ROW,
        rules.deterministic,
        rules.finite,
    )


class _Plan(NamedTuple):
    """A product, and whether its result can be written straight into an array that lies well."""

    shape: Shape
    direct: bool


def _plan(
    state: State, rules: Rules, case: Case, beta_zero: bool, where: tuple[int, int] | None
) -> _Plan:
    """The product that serves a case; `where` are a stream and a graph, None ahead of any."""
    if (where is None or where[1]) and not state.device.can_allocate_in_capture():
        case = case._replace(allocates=False)
    found = _chosen(state, rules, case, beta_zero)
    if where is None or not where[1] or found.shape.algorithm not in LEARNING:
        return found
    if state.is_ready(found.shape, *where):
        return found
    # What it would have learnt ahead it would learn anew at each replay.
    return _chosen(state, rules, case._replace(learns=False), beta_zero)


def _chosen(state: State, rules: Rules, case: Case, beta_zero: bool) -> _Plan:
    way = rules.choose(state, case)
    if isinstance(way, int):
        way = Way(way, case.x_by_row, case.y_by_row)
    # A half type would be rounded when it is scaled and again when it is added to.
    wide = way.aside or (state.is_half and not beta_zero)
    order = ORDER_ROW if way.y_by_row else ORDER_COL
    gives = state.computes if wide else state.gives
    turned = way.x_by_row != way.y_by_row
    return _Plan(Shape(case.n, turned, order, gives, way.algorithm), not wide)


def _by_row(shape: Shape) -> tuple[bool, bool]:
    """Whether the operand and the result of a product are row-major."""
    return (shape.order == ORDER_ROW) != shape.transposed, shape.order == ORDER_ROW


def _contiguous(vector: bool, n: int) -> tuple[int, int]:
    return ORDER_ROW, 1 if vector else n


def _renewal(state: State, cast: bool) -> Callable[[Array], Array]:
    lib, dtype = state.lib, state.dtype
    if cast:
        return lambda x: lib.contiguous(lib.astype(x, dtype))
    return lib.contiguous


def _lies(state: State, x: Array, rows: int, n: int, vector: bool) -> tuple[int, int] | None:
    """Order and leading dimension of a matrix that the library can use where it lies."""
    steps = state.device.steps(x)
    if vector:
        return (ORDER_ROW, 1) if steps[0] == 1 or rows == 1 else None
    found = view(steps if len(steps) == 2 else (steps[0], 1), rows, n)
    if found is None or state.reach is None:
        return found
    return found if extent(found, rows, n) <= state.reach else None


def _expected(state: State, query: Query, rules: Rules) -> set[Shape]:
    """The products that calls with these facts will ask for."""
    columns = query.x_layout == "F" and query.x_dtype in (None, state.dtype)
    source = (ORDER_COL if columns else ORDER_ROW, 0)
    orders = {ORDER_COL if query.out_layout == "F" else ORDER_ROW}
    if query.out_layout is None and query.x_layout == "F":
        orders.add(ORDER_COL)  # an operand from the left has its result transposed too
    found = set()
    for n in {query.n, query.n * query.batch} - {0}:
        vector = rules.vectors and n == 1
        for order in orders if n > 1 else {ORDER_ROW}:
            rounds = not query.beta_zero and state.is_half
            strided = query.out_layout == "strided" and not vector
            result = None if rounds or strided else (order, 0)
            lies = source if n > 1 else (ORDER_ROW, 0)
            case = _case(rules, 0 if vector else n, lies, result)
            found.add(_plan(state, rules, case, query.beta_zero, None).shape)
    return found
