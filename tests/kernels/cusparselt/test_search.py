"""The search for an algorithm, and where its outcome is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sparseformats.errors import KernelLoadWarning
from sparseformats_kernels.cusparselt import choices, searching, state as state_module, timing
from sparseformats_kernels.cusparselt.choices import CHOICES, SEARCH, Choices, user_file
from sparseformats_kernels.cusparselt.plans import DEFAULT, Algorithm
from sparseformats_kernels.cusparselt.searching import TRUSTED, Found, everything, search
from sparseformats_kernels.cusparselt.spmm import CuSparseLtProduct
from tests.kernels.cusparselt.fake import Fake
from tests.kernels.cusparselt.support import expected, matrix, operand, packed, same

FACTS: dict[str, Any] = {
    "device": "a stand-in",
    "version": "0.8.0",
    "dtype": "float16",
    "gives": "float16",
    "m": 48,
    "k": 64,
    "n": 32,
    "x_order": "row",
    "y_order": "row",
    "same_bits": False,
}
FOUND = Found(Algorithm(4), 8.0, 10.0)


def measured(times: dict[Algorithm, float], seen: list[Any]) -> Any:
    def measure(algorithms: Sequence[Algorithm], thorough: bool) -> Mapping[Algorithm, float]:
        seen.append((list(algorithms), thorough))
        return {a: times.get(a, 100.0) for a in algorithms if a.id != 3}

    return measure


@pytest.mark.parametrize(
    "best", [DEFAULT, Algorithm(0), Algorithm(4), Algorithm(1, 4, 2), Algorithm(1, -1)]
)
def test_the_best_of_all_is_found(best: Algorithm) -> None:
    times = {Algorithm(1): 90.0, Algorithm(2): 95.0} | {best: 50.0}
    seen: list[Any] = []
    found = search(5, measured(times, seen), same_bits=False)
    assert found == Found(best, 50.0, times.get(DEFAULT, 100.0))
    assert seen[0] == ([DEFAULT, *map(Algorithm, range(5))], False)
    assert seen[-1][1]
    assert {best, DEFAULT} <= set(seen[-1][0])  # side by side at the end


def test_sums_are_not_cut_where_the_same_bits_are_wanted() -> None:
    seen: list[Any] = []
    search(5, measured({Algorithm(1, 4, 2): 1.0}, seen), same_bits=True)
    assert {a.split_k for algorithms, _ in seen for a in algorithms} == {1}


def test_nothing_is_found_where_nothing_runs() -> None:
    assert search(2, lambda algorithms, thorough: {}, same_bits=False) is None


def test_an_exhaustive_search_has_all_that_ours_may_take() -> None:
    every = set(everything(5))
    seen: list[Any] = []
    search(5, measured({}, seen), same_bits=False)
    assert {a for algorithms, _ in seen for a in algorithms} <= every
    assert len(every) == 1 + 5 * (1 + len(searching._SPLITS) * 2 + 1)


def test_times_are_medians_of_turns() -> None:
    order: list[str] = []
    lasts = {"a": 0, "b": 0}

    def elapsed(call: Any, count: int) -> float:
        name = call()
        order.append(name)
        lasts[name] += 1
        return count * (1000.0 if lasts[name] == 3 else {"a": 20.0, "b": 40.0}[name])

    found = timing.timed(elapsed, {"a": lambda: "a", "b": lambda: "b"}, True)
    assert found == {"a": 20.0, "b": 40.0}
    assert order[2:] == ["a", "b"] * 5


# ---- in the kernel


@pytest.fixture
def searching_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "_WORTH", 0)


@pytest.mark.usefixtures("searching_always")
def test_a_product_takes_what_the_search_found(library: Fake) -> None:
    A, X = matrix((48, 64)), operand(64, 24)
    library.times = {Algorithm(4): 60.0, Algorithm(1): 70.0}
    state, query = packed(A, X)
    run = CuSparseLtProduct.bind(state, query)
    library.ran.clear()
    assert same(run(X, None, 1, 0), expected(A, X))
    assert library.ran == [Algorithm(4)]
    (row,) = json.loads(user_file().read_text())["rows"]
    assert row == {
        "facts": FACTS,
        "config": {"id": 4, "split_k": 1, "mode": 0},
        "us": 60.0,
        "default_us": 100.0,
    }
    before = len(library.calls)
    CuSparseLtProduct.bind(state, query)
    run(operand(64, 32), None, 1, 0)  # of the same bucket
    assert library.ran[-1] == Algorithm(4)
    assert "cusparseLtMatmulAlgGetAttribute" not in {call[0] for call in library.calls[before:]}


@pytest.mark.usefixtures("searching_always")
def test_the_librarys_own_choice_may_win(library: Fake) -> None:
    library.times = {DEFAULT: 10.0}
    A, X = matrix((48, 64)), operand(64, 24)
    state, query = packed(A, X)
    CuSparseLtProduct.bind(state, query)(X, None, 1, 0)
    assert library.ran[-1] == DEFAULT
    assert CHOICES.find(FACTS) == DEFAULT


@pytest.mark.usefixtures("searching_always")
def test_a_choice_that_a_bias_rules_out_gives_way(library: Fake) -> None:
    library.times = {Algorithm(2): 10.0}  # which the stand-in refuses with a bias
    A, X, bias = matrix((48, 64)), operand(64, 24), operand(48, 1, seed=3)[:, 0].contiguous()
    state, query = packed(A, X, epilogue="bias")
    run = CuSparseLtProduct.bind_epilogue(state, query)
    assert same(run(X, None, 1, 0, bias), expected(A, X) + bias.double()[:, None])
    assert library.ran[-1] == DEFAULT
    run(X, None, 1, 0)
    assert library.ran[-1] == Algorithm(2)


@pytest.mark.usefixtures("searching_always")
def test_split_sums_get_their_workspace(library: Fake) -> None:
    best = Algorithm(0, 2, 1)
    library.times = {Algorithm(0): 50.0, best: 10.0}
    A, X = matrix((48, 64)), operand(64, 24)
    state, query = packed(A, X)
    run = CuSparseLtProduct.bind(state, query)
    assert same(run(X, None, 1, 0), expected(A, X))
    assert library.ran[-1] == best
    (launch,) = state.launches.values()
    assert launch._kept[0].nbytes >= 2 * library.workspace


def test_small_products_and_those_told_not_to_are_not_searched(
    library: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    A, X = matrix((48, 64)), operand(64, 24)
    for worth, variable in ((1 << 21, "1"), (0, "0")):
        monkeypatch.setattr(state_module, "_WORTH", worth)
        monkeypatch.setenv(SEARCH, variable)
        state, query = packed(A, X)
        CuSparseLtProduct.bind(state, query)(X, None, 1, 0)
    assert set(library.ran) == {DEFAULT}
    assert len(library.ran) == 2
    assert not user_file().exists()


@pytest.mark.usefixtures("searching_always")
@pytest.mark.parametrize("error", [MemoryError("none left"), RuntimeError("out of memory")])
def test_a_search_that_fails_leaves_the_librarys_choice(
    error: Exception, library: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: Any) -> Any:
        raise error

    monkeypatch.setattr(state_module.State, "_trial", fails)
    A, X = matrix((48, 64)), operand(64, 24)
    state, query = packed(A, X)
    assert same(CuSparseLtProduct.bind(state, query)(X, None, 1, 0), expected(A, X))
    assert library.ran == [DEFAULT]
    assert not user_file().exists()


@pytest.mark.usefixtures("searching_always")
def test_an_algorithm_can_be_forced(library: Fake) -> None:
    A, X = matrix((48, 64)), operand(64, 24)
    state, query = packed(A, X)
    state.forced = Algorithm(1, 2, 2)
    assert same(CuSparseLtProduct.bind(state, query)(X, None, 1, 0), expected(A, X))
    assert library.ran == [Algorithm(1, 2, 2)]
    state, query = packed(A, X)
    state.forced = Algorithm(3)
    with pytest.raises(RuntimeError, match=r"cusparseLtMatmulPlanInit .*_NOT_SUPPORTED"):
        CuSparseLtProduct.bind(state, query)(X, None, 1, 0)


# ---- where it is kept


def table_of(facts: dict[str, Any], **config: Any) -> str:
    row = {"facts": facts, "config": {"id": 4, "split_k": 1, "mode": 0} | config}
    return json.dumps({"version": 1, "rows": [row]})


def put(text: str) -> None:
    user_file().parent.mkdir(parents=True, exist_ok=True)
    user_file().write_text(text)


def test_the_users_file_is_read_once_and_added_to() -> None:
    first = Choices()
    assert first.find(FACTS) is None
    assert first.source(FACTS) == "the library's own choice until a search"
    first.keep(FACTS, FOUND)
    assert first.source(FACTS) == "searched in this process"
    other = FACTS | {"n": 64}
    first.keep(other, Found(DEFAULT, 5.0, float("inf")))
    second = Choices()
    assert second.find(FACTS) == Algorithm(4)
    assert second.find(other) == DEFAULT
    assert second.source(FACTS) == str(user_file())
    for name in choices.FACTS:
        assert second.find(FACTS | {name: "another"}) is None
    second.keep(FACTS, Found(Algorithm(1), 7.0, 10.0))
    assert Choices().find(FACTS) == Algorithm(1)
    assert len(json.loads(user_file().read_text())["rows"]) == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no table", "not JSON"),
        ('{"version": 9, "rows": []}', "expected a table of version 1, got version 9"),
        ("[]", "got version None"),
        ('{"version": 1, "rows": 3}', "expected rows, each of facts"),
        ('{"version": 1, "rows": [{"facts": {}, "config": {}}]}', "expected rows"),
        ('{"version": 1, "rows": [4]}', "expected rows"),
        ('{"version": 1, "rows": [{"facts": 1, "config": 2}]}', "expected rows"),
        (table_of(FACTS | {"m": [64]}), "expected rows"),
        (table_of(FACTS | {"dtype": {}}), "expected rows"),
        (table_of(FACTS, id=4.0), "expected rows"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_file_that_cannot_be_read_is_left_alone(text: str, why: str) -> None:
    user_file().parent.mkdir(parents=True)
    user_file().write_text(text)
    found = Choices()
    with pytest.warns(KernelLoadWarning, match=why):
        assert found.find(FACTS) is None
    found.keep(FACTS, FOUND)
    assert found.find(FACTS) == Algorithm(4)  # in memory
    assert user_file().read_text() == text


@pytest.mark.parametrize(
    "config",
    [
        {"id": TRUSTED},  # a product by it might end the process
        {"id": 10**30},
        {"id": -5},
        {"id": -1, "split_k": 2},
        {"split_k": -7},
        {"split_k": 2, "mode": 99},
    ],
    ids=str,
)
def test_a_row_that_no_search_would_write_is_not_used(config: dict[str, int]) -> None:
    put(table_of(FACTS, **config))
    assert Choices().find(FACTS) is None


@pytest.mark.parametrize("algorithm", [DEFAULT, *everything(2), *everything(99)[-7:]])
def test_whatever_a_search_tries_is_used(algorithm: Algorithm) -> None:
    Choices().keep(FACTS, Found(algorithm, 1.0, 2.0))
    assert Choices().find(FACTS) == algorithm


def test_processes_keep_each_others_rows() -> None:
    first, second = Choices(), Choices()
    assert first.find(FACTS) is second.find(FACTS) is None
    first.keep(FACTS, FOUND)
    second.keep(FACTS | {"n": 64}, Found(DEFAULT, 5.0, 5.0))
    third = Choices()
    assert third.find(FACTS) == Algorithm(4)
    assert third.find(FACTS | {"n": 64}) == DEFAULT


def test_a_write_that_fails_leaves_the_file_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    found, write = Choices(), Path.write_text
    found.keep(FACTS, FOUND)
    before, folder = user_file().read_text(), user_file().parent
    assert list(folder.iterdir()) == [user_file()]  # nothing lies beside it

    def until_full(path: Path, text: str, **options: Any) -> int:
        write(path, text[:9], **options)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", until_full)
    found.keep(FACTS | {"n": 64}, FOUND)
    assert user_file().read_text() == before
    assert list(folder.iterdir()) == [user_file()]


def test_a_file_that_was_damaged_meanwhile_is_left_alone() -> None:
    found = Choices()
    assert found.find(FACTS) is None
    put("{")
    found.keep(FACTS, FOUND)
    assert user_file().read_text() == "{"
    assert found.find(FACTS) == Algorithm(4)


def test_a_folder_that_cannot_be_written_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "a file"
    blocked.touch()
    monkeypatch.setenv("SPARSEFORMATS_CACHE", str(blocked))
    found = Choices()
    found.keep(FACTS, FOUND)
    assert found.find(FACTS) == Algorithm(4)


def test_tables_that_come_with_the_library_are_read_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tables").mkdir()
    row = {"facts": FACTS, "config": {"id": 2, "split_k": 1, "mode": 0}}
    shipped = tmp_path / "tables" / "h200.json"
    shipped.write_text(json.dumps({"version": 1, "rows": [row]}))
    monkeypatch.setattr(choices, "__file__", str(tmp_path / "choices.py"))
    found = Choices()
    assert found.find(FACTS) == Algorithm(2)
    assert found.source(FACTS) == "h200.json"
    found.keep(FACTS, FOUND)
    assert Choices().find(FACTS) == Algorithm(4)  # the user's own counts


def test_ids_that_end_a_process_are_never_tried() -> None:
    tried: list[Algorithm] = []

    def measure(algorithms: Sequence[Algorithm], thorough: bool) -> dict[Algorithm, float]:
        tried.extend(algorithms)
        return {algorithm: 100.0 - algorithm.id for algorithm in algorithms}

    found = search(TRUSTED + 20, measure, same_bits=False)
    assert found is not None
    assert found.algorithm.id == TRUSTED - 1
    assert max(algorithm.id for algorithm in (*tried, *everything(TRUSTED + 20))) == TRUSTED - 1
