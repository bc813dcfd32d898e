"""A packed matrix and what was prepared for it, by thread, stream and graph.

The compressed bytes are shared by all. A plan belongs to the thread whose handle it was made with;
a workspace belongs to one thread and stream, or to one graph, since a graph may be replayed while
other streams work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock, get_ident
from typing import Any, Final, final

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.dispatch.query import size_bucket
from sparseformats_kernels.cuda.devices import Device
from sparseformats_kernels.cusparselt import api as c, timing
from sparseformats_kernels.cusparselt.api import Api
from sparseformats_kernels.cusparselt.choices import CHOICES, searches
from sparseformats_kernels.cusparselt.handles import handle
from sparseformats_kernels.cusparselt.launching import Launch
from sparseformats_kernels.cusparselt.packing import Blob
from sparseformats_kernels.cusparselt.plans import DEFAULT, OWN_BIAS, Algorithm, Plan, Problem
from sparseformats_kernels.cusparselt.searching import search, trusted

__all__ = ["State", "problem_facts"]

_PLANS = 64  # kept of one matrix, those of all threads together; the oldest go first
_LAUNCHES = 256
_ROOMS = 64
_BIASES = 4  # addresses of one problem that get a plan each; others are copied
_WORTH: Final = 1 << 21  # places of a matrix below which calls cost more than any algorithm saves


@final
class State:
    """A packed matrix.

    Parameters
    ----------
    device : Device
    api : Api
    blob : Blob
    shape : (m, k)
        Of the matrix, without the places that were added.
    out_dtype : str
        Of results.
    device_name : str
        As tables of algorithms have it.
    """

    __slots__ = (
        *("api", "biases", "blob", "clock", "device", "device_name", "forced", "home", "k"),
        *("launches", "lib", "lock", "m", "others", "out_dtype", "plans", "rooms", "spares"),
        "worth",
    )

    def __init__(
        self,
        device: Device,
        api: Api,
        blob: Blob,
        shape: tuple[int, int],
        out_dtype: str,
        device_name: str,
    ) -> None:
        self.device, self.api, self.blob = device, api, blob
        self.lib: ArrayLibrary = device.lib
        (self.m, self.k), self.out_dtype = shape, out_dtype
        self.device_name = device_name
        self.plans: dict[tuple[Any, ...], Plan] = {}
        self.launches: dict[tuple[Any, ...], Launch] = {}
        self.biases: dict[tuple[Any, ...], set[int]] = {}
        self.spares: dict[Problem, Array] = {}
        self.rooms: dict[tuple[int, int], Array] = {}
        self.lock = Lock()
        self.clock = timing.elapsed_on(device)
        self.worth = _WORTH
        self.forced: Algorithm | None = None
        self.home = device.stream()
        self.others: dict[tuple[str, str], State] = {}

    def giving(self, gives: str, bias: str | None = None) -> State:
        """The same matrix for results of `gives`, which the library itself writes.

        Parameters
        ----------
        gives : str
        bias : str, optional
            Dtype of biases as the library reads them; default is that of results.
        """
        key = gives, bias or gives
        with self.lock:
            found = self.others.get(key)
            if found is None:
                blob, shape = self.blob.giving(*key), (self.m, self.k)
                found = State(self.device, self.api, blob, shape, gives, self.device_name)
                self.others[key] = found
        found.forced, found.worth = self.forced, self.worth
        return found

    def launch(self, problem: Problem, stream: int, capture: int, same_bits: bool) -> Launch:
        """What multiplies operands of this kind on `stream`, which is the calling thread's."""
        if problem.bias > 0 and not self._plans_bias(problem):
            problem = problem._replace(bias=OWN_BIAS)
        key = (get_ident(), stream, capture, same_bits, problem)
        found = self.launches.get(key)
        if found is None:
            found = self._launch(problem, stream, capture, same_bits)
            with self.lock:
                _make_room(self.launches, _LAUNCHES)
                self.launches[key] = found
        return found

    def prepare(self, problem: Problem, same_bits: bool) -> None:
        """Search if nobody has, and make what calls on this thread and stream will need."""
        stream = self.device.stream()
        if self.device.capture(stream):
            return
        with self.device.here():
            self._choose(problem, same_bits)
            launch = self.launch(problem, stream, 0, same_bits)
            if launch.plan.workspace and not self.device.can_allocate_in_capture():
                self._keep_spare(problem, launch.plan)

    def _keep_spare(self, problem: Problem, plan: Plan) -> None:
        """Set a workspace aside for a graph, which could not get one."""
        if problem not in self.spares:
            with self.lock:
                _make_room(self.spares, _ROOMS)
                self.spares[problem] = self._room(plan)

    def make_plan(self, problem: Problem, algorithm: Algorithm, bias: int = 0) -> Plan:
        """A plan of the calling thread."""
        context = handle(self.api, self.device.index)
        return Plan(self.api, context, self.blob, problem, bias, algorithm)

    def refuse_memory_in(self, capture: int) -> None:
        """Refuse to take memory while a graph is recorded that would not own it.

        Raises
        ------
        RuntimeError
        """
        if capture and not self.device.can_allocate_in_capture():
            raise RuntimeError(
                "matmul: prepare before capture: this call needs memory that CuPy cannot give to "
                "a graph; call sparseformats.plan(A, X, out=Y) with these operands before it, "
                "aligned, row-major or column-major, and of sizes that need no padding"
            )

    def algorithm_for(self, problem: Problem, same_bits: bool) -> Algorithm:
        """The one forced, else the one found by a search, else the library's own choice."""
        if self.forced is not None:
            return self.forced
        found = CHOICES.find(problem_facts(self, problem, same_bits))
        return DEFAULT if found is None else found

    def _plans_bias(self, problem: Problem) -> bool:
        """Whether a bias at this address gets a plan of its own."""
        plain = problem._replace(bias=0)
        known = self.biases.get(plain)
        if known is None:
            with self.lock:
                _make_room(self.biases, _LAUNCHES)
                known = self.biases.setdefault(plain, set())
        if problem.bias not in known and len(known) < _BIASES:
            known.add(problem.bias)
        return problem.bias in known

    def _launch(self, problem: Problem, stream: int, capture: int, same_bits: bool) -> Launch:
        bias = None
        if problem.bias == OWN_BIAS:
            self.refuse_memory_in(capture)
            bias = self.lib.zeros((self.blob.m,), self.blob.bias, self.device.place)
        plan = self._plan(problem, bias, same_bits)
        workspace = self._workspace(plan, problem, stream, capture)
        if stream != self.home:
            self.device.share((self.blob.array,))
        if problem.vector:
            self.refuse_memory_in(capture)
        return Launch(self, plan, stream, workspace, bias, vector=problem.vector)

    def _plan(self, problem: Problem, bias: Array | None, same_bits: bool) -> Plan:
        """The calling thread's plan; one with a bias of its own is not shared."""
        key = (get_ident(), problem, same_bits)
        found = None if bias is not None else self.plans.get(key)
        if found is None:
            where = problem.bias if bias is None else self.lib.address(bias)
            found = self._planned(problem, where, self.algorithm_for(problem, same_bits))
            if bias is None:
                with self.lock:
                    _make_room(self.plans, _PLANS)
                    self.plans[key] = found
        return found

    def _planned(self, problem: Problem, bias: int, algorithm: Algorithm) -> Plan:
        try:
            return self.make_plan(problem, algorithm, bias)
        except RuntimeError:
            # An algorithm that was found for other columns of the bucket, or without a bias.
            if algorithm == DEFAULT or self.forced is not None:
                raise
            return self.make_plan(problem, DEFAULT, bias)

    def _workspace(self, plan: Plan, problem: Problem, stream: int, capture: int) -> Array | None:
        """Memory for a plan: one for all calls of a thread on a stream, each graph has its own."""
        if not plan.workspace:
            return None
        if not capture:
            key = (get_ident(), stream)
            found = self.rooms.get(key)
            if found is None or int(found.shape[0]) < plan.workspace:
                with self.lock:
                    _make_room(self.rooms, _ROOMS)
                    found = self.rooms[key] = self._room(plan)
            return found
        if not self.device.can_allocate_in_capture():
            spare = self.spares.pop(problem._replace(bias=0), None)
            if spare is not None and int(spare.shape[0]) >= plan.workspace:
                return spare
        self.refuse_memory_in(capture)
        return self._room(plan)

    def _room(self, plan: Plan) -> Array:
        return self.device.empty((size_bucket(plan.workspace),), "uint8")

    # Searching.

    def _choose(self, problem: Problem, same_bits: bool) -> None:
        facts = problem_facts(self, problem, same_bits)
        below = trusted(self.blob.dtype, self.blob.gives)
        worthwhile = below and self.blob.m * self.blob.k >= self.worth and searches()
        if self.forced is not None or not worthwhile or CHOICES.find(facts) is not None:
            return
        try:
            # Scales of rows cost no algorithm more than another.
            problem = problem._replace(vector=False)
            most = min(self.make_plan(problem, DEFAULT).most, below)
            found = search(most, partial(self.measure, problem), same_bits=same_bits)
        except (MemoryError, RuntimeError):
            return  # no memory for trials, say; the call itself may do without, or tells more
        if found is not None:
            CHOICES.keep(facts, found)

    def measure(
        self, problem: Problem, algorithms: Sequence[Algorithm], thorough: bool
    ) -> Mapping[Algorithm, float]:
        """Microseconds of those algorithms that the library takes, on the current stream."""
        calls: dict[Algorithm, Callable[[], None]] = {}
        x, y = self._trial(problem)
        for algorithm in algorithms:
            try:
                plan = self.make_plan(problem, algorithm)
                workspace = self._room(plan) if plan.workspace else None
                launch = Launch(self, plan, self.device.stream(), workspace, None)
                call = partial(launch, self.lib.address(x), self.lib.address(y), 1, 0)
                call()
            except RuntimeError:
                continue  # it does not serve this product
            calls[algorithm] = call
        return timing.timed(self.clock, calls, thorough)

    def _trial(self, problem: Problem) -> tuple[Array, Array]:
        """Memory of an operand with mixed bits, which cost what real ones do, and of a result."""
        turned = problem.x_order == c.ORDER_COL
        size = (problem.n if turned else self.blob.k) * problem.x_step
        lib, place = self.lib, self.device.place
        x = lib.astype(lib.arange(size, "int32", place) % 251 - 125, self.blob.dtype)
        rows = problem.n if problem.y_order == c.ORDER_COL else self.blob.m
        return x, self.device.empty((rows * problem.y_step,), self.blob.gives)


def problem_facts(state: State, problem: Problem, same_bits: bool) -> dict[str, Any]:
    """What a table of algorithms tells products apart by."""
    blob, orders = state.blob, {c.ORDER_ROW: "row", c.ORDER_COL: "column"}
    return {
        "device": state.device_name,
        "version": ".".join(map(str, state.api.version)),
        "dtype": blob.dtype,
        "gives": blob.gives,
        "m": blob.m,
        "k": blob.k,
        "n": size_bucket(problem.n * problem.batch),
        "x_order": orders[problem.x_order],
        "y_order": orders[problem.y_order],
        "same_bits": same_bits,
    }


def _make_room(kept: dict[Any, Any], most: int) -> None:
    while len(kept) >= most:
        kept.pop(next(iter(kept)))
