"""What the tuner does: find the best launch parameters, and the times of every kernel.

Launch parameters are asked of the backend (`Tunable`), tried one after the other on a checked
product, and the best are kept by bucket. Selection tables have the times of all eligible kernels,
the dense one included, in the format that `sparseformats.dispatch.measurements` reads.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import torch

import sparseformats as sf
from benchmarks.gpu import peers
from benchmarks.gpu.ahead import compile_ahead
from benchmarks.gpu.cases import Case
from benchmarks.gpu.check import Reference
from benchmarks.gpu.clock import Clock, Times, interleave, spread_of
from benchmarks.gpu.matrices import Problem, build
from benchmarks.gpu.results import Row, short
from sparseformats.dispatch import Query

__all__ = ["Search", "Table", "Tunable", "problems", "selection_row", "triton_backend"]

Config = Any

ROUNDS = 5
COPIES = 10  # calls in a graph
NEAR = 1.25  # candidates within this of the best single run are timed properly


class Tunable(Protocol):
    """What a backend offers to the tuner."""

    RULES: Mapping[str, Any]
    """By name of each kernel that has launch parameters."""

    def candidates(self, kernel: str, query: Query, processors: int) -> list[Config]:
        """Launch parameters worth trying, the rule's first."""
        ...

    def with_config(self, kernel: str, config: Config) -> AbstractContextManager[Any]:
        """Use these for plans that are made within a ``with`` block."""
        ...

    def facts_of(self, query: Query) -> dict[str, Any]:
        """What tells kinds of calls apart in a table."""
        ...

    def sizes_of(self, query: Query) -> dict[str, int]:
        """Sizes by which the nearest row of a table is found."""
        ...

    def as_row(self, config: Config) -> dict[str, Any]:
        """Launch parameters as a table keeps them."""
        ...


def triton_backend() -> Tunable:
    """Our Triton kernels."""
    from sparseformats_kernels.triton import configs

    return cast("Tunable", configs)


# Launch parameters.


class Tried(NamedTuple):
    """One candidate: its time, or why it has none."""

    config: Config
    microseconds: float
    failure: str = ""


class Search:
    """The search for launch parameters on one device.

    The first product of a kind and width tries every candidate; later ones, of other densities,
    try the rule's and those that came near the best before.
    """

    def __init__(self, backend: Tunable, clock: Clock) -> None:
        self.backend, self.clock = backend, clock
        self._near: dict[str, list[Config]] = {}

    def row(self, problem: Problem, reference: Reference, kernel: str) -> Row | None:
        """The best launch parameters of a kernel; None where it does not serve the product."""
        found = sf.explain(problem.matrix, problem.X, out=problem.Y, kernel=kernel)
        if found.chosen is None:
            return None
        facts, sizes = self.backend.facts_of(found.query), self.backend.sizes_of(found.query)
        kind = json.dumps([kernel, facts, sizes["n"]])
        configs = self._configs(kind, kernel, found.query)
        compile_ahead([partial(self._plan, problem, kernel, config) for config in configs])
        tried = [self._try(problem, reference, kernel, config) for config in configs]
        ready = [each for each in tried if not each.failure]
        failures = sorted({each.failure for each in tried if each.failure})
        if not ready:
            raise RuntimeError(f"{kernel}: no launch parameters work: {'; '.join(failures)}")
        limit = min(each.microseconds for each in ready) * NEAR
        near = [each.config for each in ready if each.microseconds <= limit]
        known = self._near.setdefault(kind, [])
        known += [config for config in near if config not in known]
        best, times = self._best(problem, kernel, near)
        return {
            "kernel": kernel,
            "facts": facts,
            "sizes": sizes,
            "config": self.backend.as_row(best),
            "time_us": short(statistics.median(times)),
            "spread": short(spread_of(times)),
            "rule_us": short(tried[0].microseconds) if not tried[0].failure else None,
            "candidates": len(configs),
            **({"failures": failures} if failures else {}),
        }

    def _configs(self, kind: str, kernel: str, query: Query) -> list[Config]:
        every = self.backend.candidates(kernel, query, _processors(self.clock))
        known = self._near.get(kind)
        return every if known is None else list(dict.fromkeys([every[0], *known]))

    def _plan(self, problem: Problem, kernel: str, config: Config) -> Callable[[], Any]:
        sf.clear_cache()
        A, X, Y = problem.matrix, problem.X, problem.Y
        with self.backend.with_config(kernel, config):
            plan = sf.plan(A, X, out=Y, kernel=kernel, assume_finite=True)
        return partial(plan, X, out=Y)

    def _try(self, problem: Problem, reference: Reference, kernel: str, config: Config) -> Tried:
        try:
            call = self._plan(problem, kernel, config)
            reference.check(kernel, call)
            self.clock.sync()
        except Exception as error:  # noqa: BLE001 - it is left out, with its reason
            return Tried(config, float("inf"), f"{type(error).__name__}: {error}"[:200])
        return Tried(config, min(self.clock.time(call, 2) for _ in range(3)))

    def _best(
        self, problem: Problem, kernel: str, configs: list[Config]
    ) -> tuple[Config, list[float]]:
        calls = {
            str(number): _timeable(problem.case, self._plan(problem, kernel, config), self.clock)
            for number, config in enumerate(configs)
        }
        times = _interleaved(problem.case, calls, self.clock)
        best = min(times, key=lambda name: statistics.median(times[name]))
        return configs[int(best)], times[best]


def _processors(clock: Clock) -> int:
    if not clock.on_gpu:
        return os.cpu_count() or 1
    return int(torch.cuda.get_device_properties(clock.device).multi_processor_count)


def _timeable(case: Case, call: Callable[[], Any], clock: Clock) -> Callable[[], Any]:
    """The call, or the replay of a graph of calls where the product is small."""
    return clock.graph(call, COPIES) if case.graph else call


def _interleaved(case: Case, calls: dict[str, Callable[[], Any]], clock: Clock) -> Times:
    copies = dict.fromkeys(calls, COPIES if case.graph else 1)
    return interleave(clock, calls, copies, rounds=ROUNDS)


# Selection.


def selection_row(problem: Problem, reference: Reference, clock: Clock) -> Row | None:
    """Times of every eligible kernel, in the form of a measured table; None where none is right."""
    sf.clear_cache()
    calls: dict[str, Callable[[], Any]] = {}
    failures: dict[str, str] = {}
    for name in peers.other_kernels(problem, None)[1]:
        try:
            (side,) = peers.kernel_sides(problem, name)
            reference.check(name, side.call)
            calls[name] = _timeable(problem.case, side.call, clock)
        except Exception as error:  # noqa: BLE001 - a kernel that fails is left out, with its reason
            failures[name] = f"{type(error).__name__}: {error}"[:200]
    if not calls:
        return None
    times = _interleaved(problem.case, calls, clock)
    row = {
        "facts": _facts(problem),
        "times_us": {name: short(statistics.median(rounds)) for name, rounds in times.items()},
        "spread": short(max(spread_of(rounds) for rounds in times.values())),
    }
    return row | ({"failures": failures} if failures else {})


_FACTS = (
    *("op", "format", "transposed", "m", "k", "n", "blocksize", "density", "a_dtype", "precision"),
    *("device", "capability", "x_layout"),
)


def _facts(problem: Problem) -> dict[str, Any]:
    query = sf.explain(problem.matrix, problem.X, out=problem.Y).query
    facts = {name: getattr(query, name) for name in _FACTS}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in facts.items()}


# Files.


class Table:
    """A file of tuned rows of one device at one commit; written after each row.

    What is there of another device or commit is begun anew, for one provenance is said of all.
    """

    def __init__(self, path: Path, shared: Row) -> None:
        self.path = path
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        known = found.get("provenance", {})
        same = all(known.get(name) == shared[name] for name in ("device", "commit"))
        self.rows: list[Row] = found["rows"] if same else []
        self.refused: list[list[str]] = found.get("refused", []) if same else []
        self.provenance = {**shared, "repetitions": ROUNDS, "spread": 0.0}

    def has(self, case: str, kernel: str | None = None) -> bool:
        """Whether a case is done."""
        done = any((row["case"], row.get("kernel")) == (case, kernel) for row in self.rows)
        return done or [case, kernel] in self.refused

    def add(self, case: str, row: Row) -> None:
        """Keep a row."""
        self.rows.append({**row, "case": case})
        self._write()

    def refuse(self, case: str, kernel: str) -> None:
        """Note that a kernel does not serve a case."""
        self.refused.append([case, kernel])
        self._write()

    def _write(self) -> None:
        spread = max((row.get("spread", 0.0) for row in self.rows), default=0.0)
        document = {
            "version": 1,
            "provenance": self.provenance | {"spread": spread},
            "rows": self.rows,
            **({"refused": self.refused} if self.refused else {}),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".new")
        temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, self.path)


def problems(cases: Sequence[Case], clock: Clock) -> Iterator[tuple[Problem, Reference]]:
    """Each case drawn, with what its results are compared with."""
    for case in cases:
        problem = build(case, clock.device)
        yield problem, Reference(problem)
        sf.clear_cache()
