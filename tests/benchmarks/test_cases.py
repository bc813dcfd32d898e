"""The table of cases is fixed: names, shapes and goals."""

import pytest

from benchmarks.gpu.cases import BASELINES
from benchmarks.gpu.goals import goal_cases
from benchmarks.gpu.suite import find, suite

SEMI = (
    *("4096x4096x4096", "11008x4096x4096", "4096x11008x4096", "14336x4096x2048"),
    "8192x8192x8192",
)
GOALS = {
    **{f"B-128-{d}": g for d, g in (("0.5", 1.85), ("0.2", 4.4), ("0.1", 7.8), ("0.05", 12))},
    **{f"B-64-{d}": g for d, g in (("0.5", 1.4), ("0.2", 3.3), ("0.1", 6.2), ("0.05", 11))},
    "D-16": 6.0,
    "B-32-0.1": 3.8,
    "B-32-0.05": 7.0,
    "B-16-0.1": 2.1,
    "B-16-0.05": 4.0,
    **{f"T-{b}-0.1": 2.8 for b in (64, 128)},
    **{f"T-{b}-0.2": 2.0 for b in (64, 128)},
    **{f"T-{b}-{d}-tuned": 1.6 for b in (64, 128) for d in ("0.1", "0.2")},
    **{f"T-16-{d}": 5.0 for d in ("0.05", "0.1")},
    **{f"T-32-{d}": 3.0 for d in ("0.05", "0.1")},
    **{f"E-{b}-{d}": 1.8 for b in (16, 32) for d in ("0.05", "0.2")},
    **{f"E-{b}-{d}": 2.3 for b in (64, 128) for d in ("0.05", "0.2")},
    **{f"L-skew-{s}": 1.10 for s in (10, 50)},
    **{
        f"R-csr-{p}-{d}-{t}-{n}": 0.97
        for p in ("uniform", "power-law")
        for d in ("0.001", "0.01")
        for t in ("float32", "float16")
        for n in (16, 128, 1024)
    },
    **{
        f"R-csr-cupy-{p}-{d}-float32-{n}": 2.0
        for p in ("uniform", "power-law")
        for d in ("0.001", "0.01")
        for n in (16, 128, 1024)
    },
    **{f"S-large-{shape}": 0.98 for shape in SEMI},
    **{f"S-int8-{shape}": 2.4 for shape in SEMI},
    **{f"S-fp8-{shape}": 1.5 for shape in SEMI},
    "S-torch": 6.0,
    **{f"S-decode-{s}-{n}": 1.5 for s in ("4096x4096", "14336x4096") for n in (1, 16, 32)},
    **{f"K-{d}-1-{n}": 1.5 for d in ("0.05", "0.1") for n in (128, 512, 4096)},
    **{f"K-{d}-0.3-{n}": 1.5 for d in ("0.05", "0.1") for n in (512, 4096)},
}


def test_goals_are_those_that_were_set() -> None:
    found = {g.id: g.value for case in goal_cases() for g in case.goals if g.value is not None}
    assert found == GOALS


def test_names_and_ids_are_unique() -> None:
    names = [case.name for case in suite()]
    ids = [goal.id for case in suite() for goal in case.goals]
    assert len(set(names)) == len(names)
    assert len(set(ids)) == len(ids)


def test_every_case_has_rows_against_a_known_baseline() -> None:
    for case in suite():
        assert case.goals, case.name
        for goal in case.goals:
            assert goal.baseline in BASELINES
            peer = goal.baseline.startswith("kernel") or goal.baseline in case.peers
            assert peer, f"{goal.id}: nobody measures {goal.baseline}"
            assert goal.clock == "events" or case.graph, goal.id


@pytest.mark.parametrize("prefix", ["B-", "T-", "E-"])
def test_the_square_goals_are_8192_cubed_in_bfloat16(prefix: str) -> None:
    for case in goal_cases():
        if any(goal.id.startswith(prefix) for goal in case.goals):
            assert (case.m, case.k, case.n, case.dtype) == (8192, 8192, 8192, "bfloat16")


def test_the_skewed_goals_have_their_shape() -> None:
    for skew in (10, 50):
        case = find(f"skew-{skew}")
        assert (case.m, case.k, case.n, case.block) == (32768, 32768, 4096, (64, 64))
        assert (case.density, case.pattern, case.skew) == (0.02, "power-law", skew)


def test_the_layers_are_those_of_llama() -> None:
    cases = [case for case in suite() if case.goals[0].id.startswith("X-llm-")]
    assert len(cases) == 24
    assert {(c.m, c.k) for c in cases} == {(14336, 4096), (4096, 14336)}
    assert {c.n for c in cases} == {512, 4096, 16384}
    assert {(c.block, c.density) for c in cases} == {
        ((b, b), d) for b in (64, 128) for d in (0.1, 0.2)
    }
    assert all(case.linear for case in cases)


def test_blocks_of_8_bits_have_their_shape() -> None:
    cases = [case for case in goal_cases() if case.goals[0].id.startswith("Q-")]
    assert {(c.dtype, c.block, c.goals[0].baseline) for c in cases} == {
        (dtype, (b, b), baseline)
        for dtype, baseline in (("int8", "int-mm"), ("float8_e4m3fn", "scaled-mm"))
        for b in (64, 128)
    }
    for case in cases:
        assert (case.m, case.k, case.n, case.density) == (8192, 8192, 8192, 0.1)
        assert case.linear
        assert case.tiny().dtype == case.dtype


def test_products_of_two_of_four_have_their_shapes() -> None:
    every = [case for case in goal_cases() if case.format == "2:4"]
    cases = [case for case in every if case.n > 32]
    assert len(cases) == 15
    assert all(case.cold and case.linear for case in every if case.n <= 32)
    assert {f"{c.m}x{c.k}x{c.n}" for c in cases} == set(SEMI)
    assert {c.dtype for c in cases} == {"bfloat16", "int8", "float8_e4m3fn"}
    assert all(c.linear and c.k % 4 == 0 for c in cases)
    columns = sorted({c.n for c in suite() if c.name.startswith("wide-semi-4096x4096-")})
    assert columns == [1, 8, *(1 << i for i in range(4, 15))]


def test_clusters_are_shuffled_and_grouped_by_our_side_alone() -> None:
    cases = [case for case in suite() if case.goals[0].id.startswith("K-")]
    assert len(cases) == 14
    assert all(case.pattern == "clusters" and case.reorder for case in cases)
    assert {case.block for case in cases} == {(1, 1), (16, 16), (32, 32)}
    assert {(case.m, case.k, case.dtype) for case in cases} == {(8192, 8192, "bfloat16")}
    assert all(case.reorder is False for case in suite() if case not in cases)
    assert "clusters (64 of alike rows, shuffled, 64 columns at a time, 30% full)" in (
        find("reorder-0.05-0.3-512").workload
    )


def test_goal_cases_come_first_and_the_wider_suite_covers_its_kinds() -> None:
    wide = suite()[len(goal_cases()) :]
    assert all(case.goals[0].id.startswith("W-") for case in wide)
    blocks = {case.block for case in wide}
    assert blocks >= {(b, b) for b in (16, 32, 64, 128, 256)} | {(16, 64), (64, 16)}
    patterns = {case.pattern for case in wide}
    assert patterns >= {"uniform", "banded", "power-law", "dense-row", "empty-rows"}


def test_a_case_that_does_not_exist_is_named() -> None:
    with pytest.raises(KeyError, match="no case 'nothing'"):
        find("nothing")


def test_texts_of_goals() -> None:
    by_id = {goal.id: goal for case in suite() for goal in case.goals}
    assert by_id["B-128-0.2"].text == "4.4x"
    assert by_id["L-skew-10"].text == "<= 1.10x"
    assert by_id["L-skew-10"].ratio_is == "ours / baseline"
    assert by_id["T-64-0.1-tuned"].text == "1.6x, where the dense ceiling leaves room"
    assert by_id["X-llm-64-0.1-up-512"].text is None
