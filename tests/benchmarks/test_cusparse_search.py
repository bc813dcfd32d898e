"""Each algorithm is forced through our own kernel; one that is not offered is told by its call."""

from typing import Any

import pytest

import sparseformats as sf
from benchmarks.gpu import cusparse_search
from benchmarks.gpu.cases import Case
from benchmarks.gpu.matrices import build
from sparseformats import dispatch

spmm = pytest.importorskip("sparseformats_kernels.cusparse.spmm")


def test_the_numbers_are_those_that_our_kernel_uses() -> None:
    from sparseformats_kernels.cusparse import api

    for number in (1, 2, 3):
        name = f"CSR_ALG{number}"
        assert cusparse_search.ALGORITHMS[name] == getattr(api, f"SPMM_{name}")


def test_every_algorithm_is_bound_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = build(Case("c", 32, 32, 16, (1, 1), 0.2, "csr", dtype="float32"), "cpu")
    monkeypatch.setattr(cusparse_search, "KERNEL", "torch-csr")
    target: Any = dispatch.select(sf.explain(problem.matrix, problem.X).query, "torch-csr").target
    states: list[int] = []

    def bind(state: Any, query: Any, choose: Any, vectors: bool) -> Any:
        number = choose(state, query.n, False)
        states.append(id(state))
        assert not vectors
        if number == 4:
            raise RuntimeError("CUSPARSE_STATUS_NOT_SUPPORTED")
        return lambda *arguments: target.run(state, *arguments)

    monkeypatch.setattr(spmm, "bind", bind)
    calls = cusparse_search.every_algorithm(problem)
    assert list(calls) == ["default", "CSR_ALG1", "CSR_ALG2", "CSR_ALG3"]
    assert len(states) == 4
    assert calls["CSR_ALG3"]() is problem.Y
    with pytest.raises(RuntimeError, match="NOT_SUPPORTED"):
        calls["CSR_ALG1"]()
