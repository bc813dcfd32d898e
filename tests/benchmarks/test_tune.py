"""The tuner from end to end without a GPU, with a backend that is made up."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import sparseformats as sf
from benchmarks import tune
from benchmarks.gpu import ahead, torch_bsr, tuning
from benchmarks.gpu.cases import Case
from benchmarks.gpu.grid import grid
from benchmarks.gpu.matrices import build
from sparseformats.dispatch import Query
from sparseformats.dispatch.measurements import read_table

PLAIN = ["--device", "cpu", "--scale", "tiny", "--commit", "aaa"]
CASE = "^bsr-64x64-(0.1|0.5)-bfloat16-8192-8192-C"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu.clock.ROUND", 50.0)


class Backend:
    """Kernels of the CPU with a launch parameter that does nothing but fail where it is 3."""

    RULES: ClassVar = {"torch-csr": None, "scipy-bsr": None, "numpy-blocks": None}

    def __init__(self) -> None:
        self.used: list[tuple[str, int]] = []

    def candidates(self, kernel: str, query: Query, processors: int) -> list[int]:
        return [1, 2, 3]

    @contextmanager
    def with_config(self, kernel: str, config: int) -> Iterator[None]:
        self.used.append((kernel, config))
        if config == 3:
            raise RuntimeError("out of shared memory")
        yield

    def facts_of(self, query: Query) -> dict[str, Any]:
        return {"blocksize": list(query.blocksize or ()), "dtype": query.a_dtype}

    def sizes_of(self, query: Query) -> dict[str, int]:
        return {"m": query.m, "k": query.k, "n": query.n}

    def as_row(self, config: int) -> dict[str, int]:
        return {"BM": config}


def test_launch_parameters_are_searched_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backend, file = Backend(), tmp_path / "tables" / "launch.json"
    arguments = ["launch", *PLAIN, "--launch", str(file), "--only", CASE]
    assert tune.main(arguments, backend) == 0
    document = json.loads(file.read_text())
    assert document["provenance"]["commit"] == "aaa"
    rows = document["rows"]
    assert {(row["kernel"], row["case"]) for row in rows} == {
        (kernel, f"bsr-64x64-{d}-bfloat16-8192-8192-C")
        for kernel in ("torch-csr", "scipy-bsr")
        for d in ("0.1", "0.5")
    }
    for row in rows:
        assert row["config"]["BM"] in (1, 2)
        assert row["time_us"] > 0
        assert row["facts"] == {"blocksize": [16, 16], "dtype": "bfloat16"}
    assert rows[0]["failures"] == ["RuntimeError: out of shared memory"]
    assert rows[0]["candidates"] == 3
    # A kernel that does not serve the product is no row, and is not asked again.
    assert document["refused"] == [[row["case"], "numpy-blocks"] for row in rows[::2]]
    assert "0 cases left" in capsys.readouterr().out
    backend.used.clear()
    assert tune.main(arguments, backend) == 0
    assert backend.used == []
    assert json.loads(file.read_text()) == document


def test_later_products_of_a_kind_try_less() -> None:
    case = Case("c", 64, 64, 8, (16, 16), 0.5)
    problem = build(case, "cpu")
    backend = Backend()
    search = tuning.Search(backend, tuning.Clock("cpu"))
    reference = tuning.Reference(problem)
    assert search.row(problem, reference, "torch-csr")
    backend.used.clear()
    assert search.row(problem, reference, "torch-csr")
    assert 3 not in {config for _, config in backend.used}


def test_no_parameters_that_work_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = build(Case("c", 64, 64, 8, (16, 16), 0.5), "cpu")
    backend = Backend()
    monkeypatch.setattr(backend, "candidates", lambda *_: [3])
    search = tuning.Search(backend, tuning.Clock("cpu"))
    with pytest.raises(RuntimeError, match=r"no launch parameters work: .*out of shared memory"):
        search.row(problem, tuning.Reference(problem), "torch-csr")


def test_a_new_commit_begins_anew(tmp_path: Path) -> None:
    file = tmp_path / "launch.json"
    arguments = ["launch", *PLAIN, "--launch", str(file), "--only", CASE]
    tune.main(arguments, Backend())
    tune.main([*arguments, "--commit", "bbb"], Backend())
    document = json.loads(file.read_text())
    assert document["provenance"]["commit"] == "bbb"
    assert len(document["rows"]) == 4


def test_the_tuner_ends_in_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.json"
    tune.main(["select", *PLAIN, "--select", str(file), "--only", CASE, "--seconds", "-1"])
    assert "select: 2 cases left" in capsys.readouterr().out
    assert not file.exists()


def test_measured_times_are_a_table_that_dispatch_reads(tmp_path: Path) -> None:
    file = tmp_path / "select.json"
    only = f"{CASE}|^csr-1x1-0.1-float32-8192-16"
    assert tune.main(["select", *PLAIN, "--select", str(file), "--only", only]) == 0
    table = read_table(file)
    assert len(table) == 3
    rows = json.loads(file.read_text())["rows"]
    assert all("dense" in row["times_us"] for row in rows)
    problem = build(next(c for c in grid() if c.name == rows[0]["case"]).tiny(), "cpu")
    query = sf.explain(problem.matrix, problem.X).query
    assert table.lookup(query) == rows[0]["times_us"]


def test_a_wrong_kernel_has_no_time_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = build(Case("c", 64, 64, 8, (16, 16), 0.5), "cpu")
    reference = tuning.Reference(problem)
    check = tuning.Reference.check

    def strict(self: Any, name: str, call: Any, view: Any = None) -> None:
        if name == "torch-csr":
            raise AssertionError("wrong")
        check(self, name, call, view)

    monkeypatch.setattr(tuning.Reference, "check", strict)
    row = tuning.selection_row(problem, reference, tuning.Clock("cpu"))
    assert row is not None
    assert "torch-csr" not in row["times_us"]
    assert row["failures"] == {"torch-csr": "AssertionError: wrong"}


def test_cases_of_the_grid_have_names_of_their_own() -> None:
    names = [case.name for case in grid()]
    assert len(set(names)) == len(names)
    assert {case.block for case in grid()} >= {(16, 16), (128, 128), (16, 64), (1, 1)}


def test_what_will_be_compiled_is_compiled_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = pytest.importorskip("sparseformats_kernels.triton.launch")
    compiled: list[Any] = []
    monkeypatch.setattr(launch, "compile_for", lambda *what: compiled.append(what))
    after: list[str] = []

    def prepare(name: str) -> None:
        launch.compile_for(name, 90)
        after.append(name)

    ahead.compile_ahead([lambda: prepare("a"), lambda: prepare("b"), lambda: prepare("a")])
    assert sorted(compiled) == [("a", 90), ("b", 90)]
    assert after == []  # nothing was prepared in earnest
    prepare("c")
    assert after == ["c"]


# torch's own tuner, whose answers are kept.


def test_known_parameters_are_not_tuned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = build(Case("c", 64, 64, 16, (16, 16), 0.5, dtype="float32"), "cpu")
    meta = {"SPLIT_N": 1, "GROUP_SIZE_ROW": 2, "num_stages": 1, "num_warps": 4}
    found: list[Any] = []

    def tuner(given: Any, A: Any, X: Any, **_: Any) -> dict[str, int]:
        found.append(tuple(A.shape))
        return meta

    monkeypatch.setattr("torch.sparse._triton_ops_meta.tune_bsr_dense_addmm", tuner)
    monkeypatch.setattr(torch_bsr, "_files", [tmp_path / "shipped.json"])
    torch_bsr.keep_in(tmp_path / "new.json")
    assert torch_bsr.tuned_call(problem).keywords["meta"] == meta
    assert torch_bsr.tuned_call(problem).keywords["meta"] == meta
    assert found == [(64, 64)]
    (entry,) = json.loads((tmp_path / "new.json").read_text()).values()
    assert entry["meta"] == meta
    assert not (tmp_path / "shipped.json").exists()


def test_the_tuner_is_stopped_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    import triton.testing

    monkeypatch.setattr(triton.testing, "do_bench", lambda call, **_: 1.5)
    with torch_bsr._limited(float("inf")) as tried:
        assert triton.testing.do_bench(print, warmup=500, rep=100) == 1.5
    assert tried == [1.5]
    with torch_bsr._limited(0.0), pytest.raises(TimeoutError, match="time is over"):
        triton.testing.do_bench(print)


def test_torch_takes_the_matrix_as_it_is() -> None:
    problem = build(Case("c", 64, 96, 16, (16, 16), 0.5, dtype="float32"), "cpu")
    assert torch.equal(torch_bsr.tensor(problem).to_dense(), problem.matrix.to_dense())
