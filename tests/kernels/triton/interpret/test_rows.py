"""Elements by rows, interpreted: every format, type and layout, rows that are cut, and faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import sparseformats as sf
from sparseformats.dispatch import KernelRecord
from sparseformats.ops.facts import matmul_query
from sparseformats.ops.operands import read
from sparseformats.testing import certify_kernel
from sparseformats_kernels.triton import RECORDS, configs, costs, row_lists, spmm_csr
from tests.kernels.triton.elements import CHECKS, DTYPES, FORMATS, elements, exact_integers, uneven
from tests.kernels.triton.harness import check, registered
from tests.kernels.triton.interpreter import checked
from tests.kernels.triton.kinds import ROWS
from tests.kernels.triton.layers import assert_layer
from tests.kernels.triton.matrices import dense
from tests.kernels.triton.ordeal import FAULTS, Subject

(RECORD,) = (record for record in RECORDS if record.name == ROWS)


@pytest.mark.parametrize("values", ["any", "moderate"])
def test_against_the_oracle(values: str) -> None:
    served: set[tuple[str, str]] = set()
    for format in ("coo", "csr", "csc"):  # transposes of coo are drawn among coo
        with registered(RECORD) as (name, _):
            options = {"library": "torch", "dtypes": DTYPES, "values": values}
            certificate = certify_kernel(name, formats=format, examples=24, **options)
        assert not set(certificate.refusals) & FAULTS
        served |= certificate.served
    assert {dtype for _, dtype in served} == set(DTYPES)


@pytest.mark.parametrize("ordeal", CHECKS, ids=lambda ordeal: ordeal.__name__)
def test_ordeal(ordeal: Callable[[Subject], None]) -> None:
    with registered(RECORD) as (name, checker):
        subject = Subject(name, "cpu")
        ordeal(subject)
    assert checker.launches
    assert not subject.refused


CONFIGS = [
    configs.Config(4, 8, 2, stages=1),
    configs.Config(4, 16, 8, stages=1, warps=1),
    configs.Config(16, 64, 1, stages=1),
    configs.Config(2, 256, 32, stages=1, warps=2),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.BM}x{c.BN}x{c.BK}")
def test_exact_for_any_launch_parameters(config: configs.Config) -> None:
    with configs.with_config(ROWS, config), registered(RECORD) as (name, checker):
        exact_integers(Subject(name, "cpu"), rows=17, k=300, dtypes=("float32", "int8"))
        assert {launch.name for launch in checker.launches} == {"multiply_rows", "add_parts"}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_both_index_widths(format: str, index: str) -> None:
    A = elements(format, uneven(30, 400), 400, "float16", index=index)
    check(RECORD, A, dense((400, 20), "float16"))


def test_indices_of_64_bits_are_read_as_they_are() -> None:
    """Where shape or elements do not fit int32; here they would."""
    A = elements("csr", uneven(30, 400), 400, index="int64", values="integers")
    X = dense((400, 20), values="integers")
    query = matmul_query(read(A, X), None, alpha_one=True, beta_zero=True)
    with checked() as checker:
        state = spmm_csr.TritonCSR.pack(A, replace(query, fits_int32=False))
        assert state.arrays["columns"].dtype == torch.int64
        assert state.arrays["columns"].data_ptr() == A.indices.data_ptr()
        Y = spmm_csr.TritonCSR.run(state, X, None, 1, 0)
    assert torch.equal(Y, A.to_dense() @ X)
    assert [launch.name for launch in checker.launches] == ["multiply_rows", "add_parts"]


def test_nothing_at_all() -> None:
    for lengths, k, n in (([], 40, 5), ([0, 0, 0], 40, 5), ([0, 0], 0, 5), ([3, 900], 900, 0)):
        A = elements("csr", lengths, k)
        for out, beta in ((None, 0), ("rows", 0), ("F", 2)):
            check(RECORD, A, dense((k, n)), out=out, beta=beta)


def test_column_major_operands_that_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "turns", lambda query: query.x_layout == "F")
    A = elements("csr", uneven(30, 500), 500, "float16")
    for X in (dense((20, 500), "float16").T, dense((3, 20, 500), "float16").mT):
        check(RECORD, A, X)
        check(RECORD, A, X[..., :500, :], out="F", alpha=2, beta=-1)
    check(RECORD, A, dense((20, 30), "float16"), left=True)


def test_vectors_and_batches() -> None:
    A = elements("csr", uneven(30, 500), 500, "float16")
    for shape in ((500,), (2, 500, 5), (0, 500, 3)):
        check(RECORD, A, dense(shape, "float16"))


def test_a_row_with_everything_is_cut_and_others_are_not() -> None:
    with registered(RECORD) as (name, checker):
        sf.matmul(elements("csr", [5] * 40, 900), dense((900, 8)), kernel=name)
        assert [launch.name for launch in checker.launches] == ["multiply_rows"]
        sf.matmul(elements("csr", [5] * 40 + [900], 900), dense((900, 8)), kernel=name)
        assert [launch.name for launch in checker.launches[1:]] == ["multiply_rows", "add_parts"]


def test_a_stored_zero_meets_infinity() -> None:
    """Stored elements meet the operand exactly: 0 times infinity is NaN, what is missing is not."""
    pointers = torch.tensor([0, 1, 2, 2])
    A = sf.CSR(torch.tensor([0.0, torch.nan]), torch.tensor([1, 0]), pointers, (3, 3))
    X = torch.tensor([[1.0], [torch.inf], [torch.nan]]).repeat(1, 4)
    with registered(RECORD) as (name, _):
        Y = sf.matmul(A, X, kernel=name)
    assert torch.isnan(Y[:2]).all()
    assert torch.equal(Y[2], torch.zeros(4))


def test_half_types_left_in_float32() -> None:
    with registered(RECORD) as (name, _):
        certificate = certify_kernel(
            name, formats="csr", examples=16, library="torch", dtypes=["float16", "bfloat16"]
        )
    assert certificate.runs


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_layers(dtype: str, activation: str | None) -> None:
    W = elements("csr", uneven(50, 600), 600, dtype)
    X, bias = dense((9, 600), dtype), dense((50,), dtype, seed=5)
    residual = dense((9, 50), dtype, seed=6)
    with registered(RECORD) as (name, _):
        for given in (None, residual):
            Y = sf.linear(X, W, bias, activation=activation, residual=given, kernel=name)
            assert_layer(Y, X, W, bias, activation, residual=given)


def test_float64_keeps_its_bits_through_what_follows() -> None:
    W = elements("csr", uneven(20, 300), 300, "float64")
    X, bias = dense((7, 300), "float64"), dense((20,), "float64", seed=5)
    with registered(RECORD) as (name, _):
        Y = sf.linear(X, W, bias, activation="relu", kernel=name)
    expected = (X @ W.to_dense().T + bias).relu()
    assert torch.allclose(Y, expected, rtol=1e-13, atol=1e-13)


def test_what_cannot_be_served_is_refused() -> None:
    for dtype in ("complex64", "int32"):
        A, X = elements("csr", [3, 4], 20).astype(dtype), dense((20, 4)).to(getattr(torch, dtype))
        with registered(RECORD) as (name, checker), pytest.raises(sf.NoKernelError, match="dtype"):
            sf.matmul(A, X, kernel=name)
        assert not checker.launches


def _loses_the_last(made: Any) -> Any:
    return made._replace(end=np.maximum(made.begin, made.end - 1))


def _stops_early(made: Any) -> Any:
    return made._replace(steps=np.maximum(0, made.steps - 1))


def _forgets_a_part(made: Any) -> Any:
    row, first, behind = made.split
    return made._replace(split=(row, first, behind - 1))


def _writes_parts_as_rows(made: Any) -> Any:
    return made._replace(number=np.full_like(made.number, -1))


def _runs_into_the_next_row(made: Any) -> Any:
    return made._replace(end=np.where(made.number < 0, made.end + 1, made.end))


def _repeats_a_row(made: Any) -> Any:
    return made._replace(row=np.where(made.row == 2, 3, made.row))


def _shares_a_number(made: Any) -> Any:
    return made._replace(number=np.minimum(made.number, 1))


FAULTY = [
    *(_loses_the_last, _stops_early, _forgets_a_part, _writes_parts_as_rows),
    *(_runs_into_the_next_row, _repeats_a_row, _shares_a_number),
]


@pytest.mark.parametrize("plant", FAULTY, ids=lambda plant: plant.__name__.strip("_"))
def test_a_planted_fault_is_rejected(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*args: Any) -> Any:
        return plant(row_lists.entries_of(*args))

    monkeypatch.setattr(spmm_csr, "entries_of", faulty)
    with registered(RECORD) as (name, _), pytest.raises(AssertionError):
        exact_integers(Subject(name, "cpu"))


def test_plans_name_it_where_the_same_bits_are_asked_for() -> None:
    """`explain` shows it, and where its parameters come from."""
    A, X = elements("csr", uneven(30, 400), 400), dense((400, 20))
    with registered(RECORD) as (name, _):
        told = sf.explain(A, X, kernel=name)
        assert told.chosen == name
        assert "launch parameters" in str(told)
    record: KernelRecord = RECORD
    assert record.deterministic
