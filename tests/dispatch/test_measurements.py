"""Measured times in files: read with provenance, matched by facts, refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dispatch_fakes import costs, record

from sparseformats.dispatch import Query, explain, register, tuning
from sparseformats.dispatch.measurements import (
    PROVENANCE,
    REACH,
    SIZES,
    MeasuredTable,
    installed_tables,
    read_table,
)
from sparseformats.dispatch.tuning import Measured
from sparseformats.errors import KernelLoadWarning

GIVEN = {**dict.fromkeys(PROVENANCE, "x"), "device": "Testbed"}
BSR = {"op": "matmul", "format": "bsr", "blocksize": [16, 16]}
ROWS = [
    {"facts": {"op": "matmul"}, "times_us": {"a": 9.0}},
    {"facts": {**BSR, "n": 64}, "times_us": {"a": 3, "b": 2.5}},
    {"facts": BSR, "times_us": {"a": 4.0}},
]


def write(path: Path, **changes: Any) -> Path:
    document = {"version": 1, "provenance": GIVEN, "rows": ROWS, **changes}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def query(n: int, **facts: Any) -> Query:
    return Query("matmul", "bsr", blocksize=(16, 16), n=n, **facts)


def test_the_row_with_most_facts_counts_and_sizes_agree_by_powers_of_two(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "t.json"))
    assert len(table) == 3
    assert table.lookup(query(64)) == table.lookup(query(33)) == {"a": 3.0, "b": 2.5}
    assert table.lookup(query(65)) == table.lookup(query(32)) == {"a": 4.0}
    assert table.lookup(Query("matmul", "csr")) == {"a": 9.0}
    assert table.lookup(Query("sddmm", "csr")) is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"version": 2}, "expected a table of version 1, got version 2"),
        ({"provenance": {"device": "x"}}, "lacks versions, commit, date, repetitions, spread"),
        ({"provenance": None}, "lacks device"),
        ({"rows": {}}, "rows must be a list, got dict"),
        ({"rows": [{"facts": {}, "times_us": {}}]}, r"rows\[0\]: expected an object of facts"),
        ({"rows": [7]}, r"rows\[0\]: expected an object of facts"),
        (
            {"rows": [{"facts": {"op": "matmul", "colour": 1}, "times_us": {}}]},
            "unknown facts colour",
        ),
        *(
            (
                {"rows": [{"facts": {"op": "matmul", **facts}, "times_us": {}}]},
                "expected device 'cuda' with its capability",
            )
            for facts in ({"device": "cuda"}, {"capability": [9, 0]})
        ),
        *(
            (
                {"rows": [{"facts": {"op": "matmul", "n": size}, "times_us": {}}]},
                "n must be a whole number",
            )
            for size in (-1, 1.5, True, "64")
        ),
        *(
            (
                {"rows": [{"facts": {"op": "matmul"}, "times_us": {"a": time}}]},
                "a needs positive microseconds",
            )
            for time in (0, -1, True, "1", None, float("nan"), float("inf"))
        ),
    ],
)
def test_what_is_no_table(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    path = write(tmp_path / "t.json", **changes)
    with pytest.raises(ValueError, match=text) as error:
        read_table(path)
    assert str(path) in str(error.value)
    assert "{" not in str(error.value)


def test_no_json(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("[1,", encoding="utf-8")
    with pytest.raises(ValueError, match="not JSON"):
        read_table(path)
    path.write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(ValueError, match="not JSON"):
        read_table(path)
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(ValueError, match="got version None"):
        read_table(path)


def test_the_users_files_are_read_once_and_bad_ones_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARSEFORMATS_CACHE", str(tmp_path))
    assert installed_tables() is None or len(installed_tables()) >= 0
    write(tmp_path / "tables" / "mine.json")
    write(tmp_path / "tables" / "old.json", version=0)
    with pytest.warns(KernelLoadWarning, match=r"old\.json.*got version 0"):
        table = installed_tables()
    assert table is not None
    assert table.lookup(query(64)) == {"a": 3.0, "b": 2.5}
    (tmp_path / "tables" / "old.json").unlink()
    with tuning.temporary(tuning.FILES):
        assert tuning.measured(query(64)) == {"a": 3.0, "b": 2.5}
        (tmp_path / "tables" / "mine.json").unlink()
        assert tuning.measured(query(64)) == {"a": 3.0, "b": 2.5}
    with tuning.temporary(None):
        assert tuning.measured(query(64)) == {}


def test_a_folder_that_may_not_be_looked_into_holds_no_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARSEFORMATS_CACHE", str(tmp_path))
    expected, is_dir = installed_tables(), Path.is_dir

    def locked(path: Path) -> bool:
        if path == tmp_path / "tables":
            raise PermissionError(path)
        return is_dir(path)

    monkeypatch.setattr(Path, "is_dir", locked)
    found = installed_tables()
    assert (found is None) == (expected is None)


def measured(*rows: dict[str, Any]) -> MeasuredTable:
    """Rows that know one kernel, named by their place."""
    return MeasuredTable(
        [({"op": "matmul", **facts}, {str(i): 1.0 + i}) for i, facts in enumerate(rows)]
    )


def chosen(table: MeasuredTable, found: Query) -> str | None:
    times = table.lookup(found)
    return None if times is None else next(iter(times))


def test_the_nearest_row_counts_where_no_bucket_has_the_sizes() -> None:
    table = measured({"n": 16}, {"n": 128}, {"n": 4096})
    assert [chosen(table, query(n)) for n in (8, 33, 46, 255, 512, 2000, 16384)] == list("0011122")
    assert [chosen(table, query(n)) for n in (3, 16385, 0)] == [None] * 3
    assert REACH == 4


@pytest.mark.parametrize("name", SIZES)
def test_every_size_may_be_near_and_none_too_far(name: str) -> None:
    size, near, far = (5, 7, 8) if name == "density" else (100, 400, 401)
    table = measured({name: size})
    facts = {"n": 1, name: near}
    assert chosen(table, query(**facts)) == "0"
    source = table.find(query(**facts)).source
    assert source == f"measured table (nearest bucket: {name} {size} for {near})"
    assert table.find(query(**{"n": 1, name: far})) is None


def test_all_sizes_together_decide_which_row_is_nearest() -> None:
    table = measured({"m": 1024, "n": 64}, {"m": 4096, "n": 512}, {"m": 4096, "n": 64})
    assert chosen(table, query(100, m=3000)) == "2"
    assert chosen(table, query(400, m=2000)) == "1"
    assert chosen(table, query(40, m=600)) == "0"
    # Within one bucket the nearest of the rows with most facts.
    assert chosen(measured({"n": 33}, {"n": 64}, {"n": 63, "k": 0}), query(60)) == "2"
    assert chosen(measured({"n": 33}, {"n": 64}, {"n": 63, "m": 9}), query(60)) == "1"


def test_other_facts_must_be_equal() -> None:
    table = measured({"n": 64, "a_dtype": "float16"}, {"n": 512, "a_dtype": "float32"})
    assert chosen(table, query(100, a_dtype="float32")) is None
    assert chosen(table, query(128, a_dtype="float32")) == "1"
    assert chosen(table, query(64, a_dtype="float64")) is None
    assert chosen(measured({"nnz": 64}), query(64)) is None  # it was not counted


def test_a_table_of_one_device_says_nothing_about_another(tmp_path: Path) -> None:
    gpu = {"op": "matmul", "device": "cuda", "capability": [9, 0], "n": 64}
    rows = [{"facts": gpu, "times_us": {"a": 1.0}}, {"facts": {"op": "matmul"}, "times_us": {}}]
    table = read_table(write(tmp_path / "h200.json", rows=rows))
    assert table.lookup(query(64)) == {}  # a row that names no device is about the CPU
    assert table.lookup(query(64, device="cuda", capability=(9, 0))) == {"a": 1.0}
    assert table.lookup(query(64, device="cuda", capability=(8, 0))) is None
    assert table.lookup(query(64, device="cuda", capability=(10, 0))) is None


def test_the_source_names_file_device_and_bucket(tmp_path: Path) -> None:
    rows = [{"facts": {**BSR, "n": 512, "m": 64}, "times_us": {"a": 1.0}}]
    table = read_table(write(tmp_path / "mine.json", rows=rows))
    found = table.find(query(400, m=64))
    assert found == Measured({"a": 1.0}, "measured table (mine.json, Testbed)", False)
    found = table.find(query(700, m=64))
    place = "measured table (mine.json, Testbed, nearest bucket: n 512 for 700)"
    assert found == Measured({"a": 1.0}, place, True)
    assert (table.rows[0].file, table.rows[0].device) == ("mine.json", "Testbed")


def test_explanations_tell_the_source_and_mark_rough_times() -> None:
    register(record("slow", formats=("bsr",), cost=costs(1)))
    register(record("fast", formats=("bsr",), cost=costs(9)))
    table = MeasuredTable([({"op": "matmul", "n": 512}, {"slow": 50.0, "fast": 5.0})])
    with tuning.temporary(table):
        exact, near, far = explain(query(300)), explain(query(700)), explain(query(7000))
    assert (exact.chosen, exact.source) == ("fast", "measured table")
    assert (near.chosen, near.source) == (
        "fast",
        "measured table (nearest bucket: n 512 for 700)",
    )
    assert (far.chosen, far.source) == ("slow", "cost model")
    assert [(e.row("fast").time, e.row("fast").measured) for e in (exact, near, far)] == [
        ("5.0", True),
        ("~5.0", True),
        ("~9.0", False),
    ]
    assert near.row("fast").to_dict()["rough"] is True
    assert near.row("slow").time == "~50.0"


def test_a_table_of_somebody_else_needs_no_more_than_lookup() -> None:
    register(record("a", formats=("bsr",)))

    class Plain:
        def lookup(self, query: Query) -> dict[str, float] | None:
            return {"a": 3.0} if query.n == 1 else None

    with tuning.temporary(Plain()):
        assert tuning.find(query(1)) == Measured({"a": 3.0}, "measured table", False)
        assert tuning.find(query(2)).times == tuning.measured(query(2)) == {}
        assert explain(query(1)).source == "measured table"
        assert explain(query(2)).source == "cost model"
