"""Rows from times that are made up: ratios, goals, room, averages, regret."""

from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.gpu.cases import Case, Goal
from benchmarks.gpu.clock import compared, spread_of
from benchmarks.gpu.measure import Measured, best_under
from benchmarks.gpu.results import FIELDS
from benchmarks.gpu.roofline import Work
from benchmarks.gpu.rows import averages, failed, rows_of
from benchmarks.gpu.suite import suite
from benchmarks.gpu.table import lines

SHARED = {"versions": {}, "commit": "aaa", "date": "2026-01-01", "device": "NVIDIA H200"}
WORK = Work(2.0 * 8192**3 * 0.1, 3e8, 9e9)


def case(*goals: Goal, graph: bool = False) -> Case:
    return Case("case", 8192, 8192, 8192, (64, 64), 0.1, goals=goals, graph=graph)


def measured(
    events: dict[str, float], graph: dict[str, float] | None = None, **failures: str
) -> Measured:
    def rounds(times: dict[str, float]) -> dict[str, list[float]]:
        return {name: [0.99 * t, t, t, t, 1.01 * t] for name, t in times.items()}

    times = {"events": rounds(events), **({"graph": rounds(graph)} if graph else {})}
    return Measured("triton-blocks", "triton-blocks", times, failures, WORK, 12.0, 410)


def one(goal: Goal, found: Measured) -> dict[str, Any]:
    (row,) = rows_of(case(goal), found)
    return row


def test_the_faster_layout_is_the_baseline() -> None:
    found = measured({"ours": 200.0, "cublas/row-major": 1500.0, "cublas/column-major": 1400.0})
    row = one(Goal("B-64-0.1", "cublas", 6.2), found)
    assert row["baseline"].endswith("(cublas/column-major)")
    assert (row["ours_us"], row["baseline_us"], row["ratio"]) == (200.0, 1400.0, 7.0)
    assert row["met"] is True
    assert row["kernel"] == "triton-blocks"
    assert row["share_of_roofline"] == pytest.approx(WORK.operations / 790e12 * 1e6 / 200, rel=1e-4)


def test_a_missed_goal_is_a_row_like_any_other() -> None:
    row = one(Goal("B-64-0.1", "cublas", 6.2), measured({"ours": 300.0, "cublas": 1400.0}))
    assert (row["ratio"], row["met"]) == (4.667, False)


def test_a_limit_is_on_ours_over_the_baseline() -> None:
    goal = Goal("L-skew-10", "own-even", 1.10, slower=True)
    assert one(goal, measured({"ours": 109.0, "own-even": 100.0}))["met"] is True
    row = one(goal, measured({"ours": 115.0, "own-even": 100.0}))
    assert (row["ratio"], row["met"], row["ratio_is"]) == (1.15, False, "ours / baseline")


def test_where_the_dense_rate_leaves_no_room_the_goal_does_not_hold() -> None:
    goal = Goal("T-64-0.1-tuned", "torch-bsr-tuned", 1.6, room=True)
    # A tenth of dense is 140 us: torch at 200 us leaves 1.43x.
    near = measured({"ours": 180.0, "torch-bsr-tuned": 200.0, "cublas/row-major": 1400.0})
    assert (one(goal, near)["met"], one(goal, near)["room"]) == (None, 1.429)
    far = measured({"ours": 180.0, "torch-bsr-tuned": 250.0, "cublas/row-major": 1400.0})
    assert one(goal, far)["met"] is False
    fast = measured({"ours": 120.0, "torch-bsr-tuned": 200.0, "cublas/row-major": 1400.0})
    assert one(goal, fast)["met"] is True


def test_a_goal_by_graph_reads_the_times_by_graph() -> None:
    goal = Goal("R-csr", "cusparse", 0.97, clock="graph")
    found = measured({"ours": 50.0}, {"ours": 10.0, "cusparse/A": 12.0, "cusparse/B": 9.9})
    row = one(goal, found)
    assert (row["ours_us"], row["baseline_us"], row["met"]) == (10.0, 9.9, True)
    assert set(row["peers_us"]) == {"events", "graph"}


def test_a_wrong_kernel_has_no_time() -> None:
    found = measured({}, ours="WrongResult: element (3, 4) is off")
    row = one(Goal("B-64-0.1", "cublas", 6.2), found)
    assert row["ours_us"] is None
    assert row["met"] is False
    assert "WrongResult: element (3, 4)" in row["error"]


def test_a_baseline_without_a_time_is_an_error_that_says_why() -> None:
    found = measured({"ours": 1.0}, **{"torch-bsr/matmul": "RuntimeError: no"})
    assert "torch-bsr/matmul: RuntimeError: no" in one(Goal("T", "torch-bsr", 2), found)["error"]
    assert (
        "kernel/cusparse-bell is not eligible"
        in one(Goal("E", "kernel/cusparse-bell", 2), found)["error"]
    )


def test_rows_have_every_field() -> None:
    goal = Goal("B-64-0.1", "cublas", 6.2)
    good = one(goal, measured({"ours": 1.0, "cublas": 2.0})) | SHARED
    bad = failed(case(goal), goal, "why") | SHARED
    assert set(FIELDS) <= set(good)
    assert set(FIELDS) <= set(bad)


def test_names_are_matched_whole() -> None:
    times = {"torch-bsr-tuned": [1.0], "torch-bsr/matmul": [2.0]}
    assert best_under(times, "torch-bsr") == "torch-bsr/matmul"
    assert best_under(times, "torch") is None


def test_ratio_and_spread_are_of_the_rounds() -> None:
    # Both sides slow down together: the ratio stays.
    times = {"a": [1.0, 2.0, 4.0, 8.0], "b": [3.0, 6.0, 12.0, 24.0]}
    found = compared(times, "a", "b")
    assert (found.speedup, found.spread) == (3.0, 0.0)
    assert spread_of([1.0, 2.0, 3.0]) == 0.5


# Averages.


def _all(ids: Sequence[str], ratio: float) -> list[dict[str, Any]]:
    numbers = {"ours_us": 1.0, "baseline_us": ratio, "ratio": ratio, "spread": 0.01}
    more = {"share_of_roofline": 0.5, "l2_model_us": 1.0, "kernel": "k", "baseline": "b (x)"}
    return [{"id": id, **numbers, **more, **SHARED} for id in ids]


PARTS = [g.id for c in suite() for g in c.goals if g.id.startswith("X-llm-")]
DENSE = [id for id in PARTS if not id.startswith("X-llm-torch-")]


def average(rows: list[dict[str, Any]], id: str) -> dict[str, Any] | None:
    return next((row for row in averages(rows, suite(), SHARED) if row["id"] == id), None)


def test_a_geometric_mean_over_all_layers() -> None:
    row = average(_all(DENSE[:12], 2.0) + _all(DENSE[12:], 8.0), "X-llm")
    assert row is not None
    assert (row["ratio"], row["met"]) == (4.0, True)
    assert set(FIELDS) <= set(row)


def test_an_incomplete_mean_is_not_judged() -> None:
    row = average(_all(DENSE[:-1], 9.0), "X-llm")
    assert row is not None
    assert row["met"] is None
    assert "23 of 24" in row["workload"]


def test_rows_of_other_commits_and_of_forced_kernels_are_not_averaged() -> None:
    old = [row | {"commit": "bbb"} for row in _all(DENSE, 9.0)]
    assert average(old, "X-llm") is None
    forced = [row | {"id": f"{row['id']}@x"} for row in _all(DENSE, 9.0)]
    assert average(forced, "X-llm") is None


def test_regret_is_the_choice_over_the_best() -> None:
    found = measured({"ours": 11.0, "cublas": 9.0, "kernel/b": 10.0, "kernel/triton-blocks": 11.0})
    (row,) = rows_of(case(Goal("B", "cublas", 1)), found)
    assert row["regret"]["best"] == "b"
    assert row["regret"]["regret"] == 0.1
    total = average([row | SHARED], "O-regret")
    assert total is not None
    assert (total["ratio"], total["worst"], total["met"]) == (1.1, 0.1, None)
    assert set(FIELDS) <= set(total)


def test_the_table_shows_rows_and_failures_with_goals_last() -> None:
    goal = Goal("B-64-0.1", "cublas", 6.2)
    good = one(goal, measured({"ours": 200.0, "cublas": 1400.0})) | SHARED
    wide = failed(case(Goal("W-x")), Goal("W-x"), "ours: no kernel") | SHARED
    head, first, second = lines([good, wide])
    assert head.split()[:2] == ["id", "ours"]
    assert first.startswith("W-x")
    assert "FAILED ours: no kernel" in first
    assert second.split() == [
        "B-64-0.1",
        "200.0",
        "1400.0",
        "7.000",
        "6.2x",
        "yes",
        "0.000",
        "0.70",
    ]
