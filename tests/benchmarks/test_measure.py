"""What is timed, how often, and what is left out."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.gpu import measure as module, peers
from benchmarks.gpu.cases import Case, Goal
from benchmarks.gpu.clock import Clock, Times, interleave
from benchmarks.gpu.matrices import build
from benchmarks.gpu.measure import measure
from benchmarks.gpu.rows import rows_of
from benchmarks.gpu.suite import find

CASE = Case("case", 64, 64, 16, (16, 16), 0.5, dtype="float32", goals=(Goal("B"),))


class Fake(Clock):
    """Every call takes the time that it returns."""

    def time(self, call: Callable[[], Any], count: int) -> float:
        return float(call())


def test_rounds_go_over_all_sides_in_turn() -> None:
    order: list[str] = []

    def side(name: str) -> Callable[[], float]:
        def call() -> float:
            order.append(name)
            return 10.0

        return call

    times = interleave(Fake("cpu"), {"a": side("a"), "b": side("b")}, {"b": 5}, rounds=4)
    assert times == {"a": [10.0] * 4, "b": [2.0] * 4}
    assert order[6:] == ["b", "a", "a", "b", "b", "a", "a", "b"]


def test_a_hopeless_side_is_called_once_unless_a_goal_asks_for_it() -> None:
    calls: dict[str, Callable[[], object]] = {
        "ours": lambda: 100.0,
        "kernel/slow": lambda: 1e6,
        "kernel/near": lambda: 900.0,
        "cublas/x": lambda: 1e6,
    }
    assert module._slow(CASE, Fake("cpu"), calls) == {"kernel/slow": [1e6]}


def test_an_unsteady_comparison_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[str]] = []
    steady = {"ours": [10.0] * 7, "cublas/x": [20.0] * 7}
    unsteady = {
        "ours": [5.0, 10.0, 20.0, 10.0, 5.0, 20.0, 10.0],
        "cublas/x": [20.0] * 7,
        "kernel/other": [9.0] * 7,
    }

    def answers(clock: Clock, sides: Mapping[str, Any], *_: Any) -> Times:
        asked.append(set(sides))
        return unsteady if len(asked) == 1 else steady

    monkeypatch.setattr(module, "interleave", answers)
    sides = dict.fromkeys(unsteady, lambda: None)
    times = module._steady(CASE, Fake("cpu"), "events", sides, {})
    assert times == {**steady, "kernel/other": [9.0] * 7}
    assert asked == [set(unsteady), {"ours", "cublas/x"}]


def test_the_chosen_kernel_is_known_by_its_name_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu.clock.ROUND", 50.0)
    found = measure(CASE, Clock("cpu"))
    events = found.times["events"]
    assert events[f"kernel/{found.kernel}"] == events["ours"]
    assert found.finite in {name.removeprefix("kernel/") for name in events}
    assert found.blocks == 8


def test_a_peer_that_cannot_take_part_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu.clock.ROUND", 50.0)
    found = measure(Case("c", 64, 64, 16, (16, 16), 0.5, peers=("stk", "blksprs")), Clock("cpu"))
    assert set(found.failures) == {"stk", "blksprs"}
    assert all("ModuleNotFoundError" in why for why in found.failures.values())


def test_no_kernel_is_a_failure_and_no_time() -> None:
    found = measure(CASE, Clock("cpu"), "numpy-blocks")
    assert found.times == {}
    assert "NoKernelError" in found.failures["ours"]


def test_cold_calls_have_matrices_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu.clock.ROUND", 1.0)
    seen: list[set[int]] = []
    record = Clock.graph

    def noted(self: Clock, call: Any, copies: int) -> Any:
        results = call()
        seen.append({y.data_ptr() for y in results} if isinstance(results, list) else set())
        return record(self, call, copies)

    monkeypatch.setattr(Clock, "graph", noted)
    found = measure(find("decode-64-16").tiny(), Clock("cpu"))
    assert {"ours", "cublas/row-major"} <= set(found.times["cold"])
    assert not [name for name in found.failures if "cold" in name]
    assert max(map(len, seen)) == 2


def test_what_fails_in_the_cold_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu.clock.ROUND", 1.0)
    case = find("decode-64-16").tiny()
    again = peers.PEERS["cublas"]
    calls: list[int] = []

    def once(problem: Any) -> Any:
        calls.append(1)
        if len(calls) > 2:
            raise RuntimeError("no memory for another one")
        return again(problem)

    monkeypatch.setitem(peers.PEERS, "cublas", once)
    found = measure(case, Clock("cpu"))
    assert "no memory" in found.failures["cublas (cold)"]
    (row,) = rows_of(case, found)
    assert "no memory" in row["error"]


def test_a_plan_that_groups_rows_is_told_from_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu.clock.ROUND", 50.0)
    found = measure(replace(find("reorder-0.1-1-512").tiny(), peers=()), Clock("cpu"))
    events = found.times["events"]
    assert found.kernel is not None
    assert events[f"kernel/{found.kernel}"] is not events["ours"]
    side = peers.ours(build(find("reorder-0.1-1-512").tiny(), "cpu"))
    assert side.call.func.explanation.remark  # type: ignore[attr-defined]
    named = peers.ours(build(find("reorder-0.1-1-512").tiny(), "cpu"), found.kernel)
    assert not named.call.func.explanation.remark  # type: ignore[attr-defined]
