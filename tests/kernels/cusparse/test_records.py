"""Limits of the libraries as refusals, and the order of the kernels on a CUDA device."""

from __future__ import annotations

from typing import Any

import pytest

from sparseformats import dispatch
from sparseformats.dispatch import KernelRecord, Query, registry
from sparseformats_kernels import cuda, cusparse

RECORDS = {record.name: record for record in (*cuda.RECORDS, *cusparse.RECORDS)}
FACTS: dict[str, Any] = {
    "m": 4096,
    "k": 4096,
    "n": 256,
    "nbytes": 40 << 20,
    "index_dtype": "int32",
    "a_dtype": "float32",
    "x_dtype": "float32",
    "out_dtype": "float32",
    "library": "torch",
    "device": "cuda",
    "capability": (9, 0),
    "x_layout": "C",
    "out_layout": "C",
}
CSR = {"format": "csr", "nnz": 1_600_000}
BSR = {"format": "bsr", "blocksize": (32, 32)}
BELL = {"format": "blocked_ell", "blocksize": (32, 32)}
SMALL = BSR | {"m": 32, "k": 32}
PROMISED = BELL | {"dtype": "float16", "assume_finite": True}


def query(facts: dict[str, Any], **changes: Any) -> Query:
    given = FACTS | facts | changes
    if "dtype" in given:
        dtype = given.pop("dtype")
        given |= {"a_dtype": dtype, "x_dtype": dtype, "out_dtype": dtype}
        given |= {name: changes[name] for name in ("a_dtype", "x_dtype") if name in changes}
    return Query("matmul", given.pop("format"), **given)


def codes(name: str, facts: dict[str, Any], **changes: Any) -> list[str]:
    """Codes of the reasons but those about what is installed here."""
    found = RECORDS[name].reasons(query(facts, **changes))
    return [reason.code for reason in found if "cuSPARSE >=" not in reason.message]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_what_is_served(library: str, dtype: str) -> None:
    facts = {"library": library, "dtype": dtype}
    assert codes("cusparse-csr", CSR, **facts) == []
    assert codes("cusparse-csr", BSR, transposed=True, **facts) == []
    assert codes("cusparse-bsr", BSR, **facts) == []
    assert codes("cublas-dense", BSR, assume_finite=True, **facts) == []
    assert codes("cublas-nm", {"format": "n:m", "pattern": (2, 4)}, **facts) == []
    finite = facts | {"assume_finite": True}
    served = dtype in ("float16", "bfloat16", "float64")
    assert codes("cusparse-bell", BELL, **finite) == ([] if served else ["dtype"])
    assert codes("cusparse-bell", BELL, **facts) == [
        "needs-finite-operand",
        *([] if served else ["dtype"]),
    ]
    found = codes("cusparse-bell-tf32", BELL, precision="tf32", **finite)
    assert found == ([] if dtype == "float32" else ["dtype"])
    assert "precision" in codes("cusparse-bell-tf32", BELL, **finite)


@pytest.mark.parametrize(
    ("name", "facts", "changes", "code"),
    [
        ("cusparse-csr", CSR, {"device": "cpu"}, "device"),
        ("cusparse-csr", CSR, {"library": "numpy"}, "library"),
        ("cublas-dense", CSR, {"device": "cpu", "assume_finite": True}, "device"),
        ("cusparse-csr", CSR, {"fits_int32": False}, "index-width"),
        ("cusparse-csr", CSR, {"epilogue": "bias"}, "epilogue"),
        ("cusparse-csr", CSR, {"grad": True}, "gradient"),
        ("cusparse-csr", CSR, {"dtype": "int32"}, "dtype"),
        ("cusparse-csr", CSR, {"dtype": "bool"}, "dtype"),
        ("cusparse-csr", CSR, {"dtype": "float8_e4m3fn"}, "dtype"),
        ("cusparse-bell", PROMISED, {"m": 4095}, "divisibility"),
        ("cusparse-bell", PROMISED, {"k": 4100}, "divisibility"),
        ("cusparse-bell", PROMISED, {"transposed": True}, "format"),
        ("cusparse-bell", PROMISED, {"capability": (7, 5)}, "capability"),
        ("cusparse-bell", PROMISED, {"deterministic": True}, "nondeterministic"),
        ("cusparse-bell", PROMISED, {"blocksize": (1, 1)}, "size"),
        ("cusparse-bell", BELL, {"dtype": "float16"}, "needs-finite-operand"),
        ("cusparse-bell", PROMISED, {"dtype": "float32", "precision": "tf32"}, "dtype"),
        ("cusparse-bell-tf32", PROMISED, {"dtype": "float32"}, "precision"),
        ("cusparse-bsr", SMALL, {"n": cusparse.MOST_COLUMNS + 1}, "size"),
        ("cusparse-bsr", SMALL, {"n": 1 << 10, "batch": 1 << 11}, "size"),
        ("cusparse-bsr", BSR, {"n": 1 << 19}, "size"),
        ("cusparse-bsr", BSR, {"k": 64, "n": 1 << 19}, "size"),
        ("cusparse-bsr", BSR, {"blocksize": (32, 16)}, "blocksize"),
        ("cusparse-bsr", BSR, {"m": 4095}, "divisibility"),
        ("cusparse-bsr", BSR, {"transposed": True}, "format"),
        ("cublas-dense", CSR, {}, "needs-finite-operand"),
        ("cublas-dense", CSR, {"dtype": "int32"}, "dtype"),
        ("cublas-dense", CSR, {"dtype": "float8_e5m2", "assume_finite": True}, "dtype"),
        ("cublas-dense", CSR, {"assume_finite": True, "nbytes": 1 << 20, "m": 1 << 20}, "size"),
        ("cublas-nm", {"format": "n:m", "nbytes": 1, "m": 1 << 20}, {}, "size"),
    ],
)
def test_limits_are_refusals(name: str, facts: Any, changes: Any, code: str) -> None:
    assert codes(name, facts, **changes) == [code]


def test_reasons_say_both_sides() -> None:
    def messages(name: str, facts: Any, **changes: Any) -> list[str]:
        found = RECORDS[name].reasons(query(facts, **changes))
        return [reason.message for reason in found if "cuSPARSE >=" not in reason.message]

    (columns,) = messages("cusparse-bsr", SMALL, n=2_000_000)
    assert columns == "needs at most 1,048,560 columns, all batches together, has 2,000,000"
    (size,) = messages("cusparse-bsr", BSR, n=1_000_000)
    assert size == (
        "needs at most 2,147,483,647 elements of the operand and of the result, all batches "
        "together, has 4,096,000,000"
    )
    (whole,) = messages("cusparse-bsr", BSR, m=4095)
    assert whole == ("needs a shape that the blocks divide, has 4095 x 4096 in blocks of (32, 32)")
    (dtype,) = messages("cusparse-csr", CSR, dtype="int16")
    assert dtype.endswith("has int16 times int16 giving int16")


def test_more_columns_than_a_grid_has_are_no_limit_of_the_others() -> None:
    for n in (cusparse.MOST_COLUMNS + 1, 1 << 22):
        assert codes("cusparse-csr", CSR, n=n) == []
        assert codes("cusparse-bell", PROMISED, n=n) == []


def test_the_same_bits_need_a_promise_but_for_one_column() -> None:
    assert codes("cusparse-csr", CSR, deterministic=True) == ["nondeterministic"]
    assert codes("cusparse-csr", CSR, deterministic=True, assume_finite=True) == [
        "nondeterministic"
    ]
    assert codes("cusparse-csr", CSR, deterministic=True, n=1) == []
    assert codes("cusparse-csr", CSR, deterministic=True, n=1, batch=3) == ["nondeterministic"]
    assert codes("cusparse-csr", CSR) == []


def test_an_operand_of_integers_is_promised_by_its_dtype() -> None:
    facts = {"dtype": "float16", "x_dtype": "int8"}
    assert codes("cusparse-bell", BELL, **facts) == []


def test_a_product_of_sparse_matrices_says_what_to_do() -> None:
    facts = dict(FACTS, out_dtype="int32", a_dtype="int32", x_dtype="int32", nnz=5)
    (reason,) = RECORDS["cusparse-spgemm"].reasons(Query("spgemm", "csr", **facts))[-1:]
    assert (reason.code, reason.hint is not None) == ("dtype", True)
    facts = dict(FACTS, device="cpu", library="numpy", nnz=5)
    reasons = RECORDS["cusparse-spgemm"].reasons(Query("spgemm", "csr", **facts))
    assert {"library", "device"} <= {reason.code for reason in reasons}
    assert all(reason.hint for reason in reasons)


def test_bytes_are_served_as_bytes_only() -> None:
    bytes_ = {"a_dtype": "int8", "x_dtype": "int8", "out_dtype": "int32"}
    assert codes("cusparse-csr", CSR, **bytes_) == []
    assert codes("cusparse-csr", CSR, **(bytes_ | {"x_dtype": "int16"})) == ["dtype"]


def test_a_large_copy_is_made_for_those_who_ask_by_name() -> None:
    asked = query(CSR, assume_finite=True, nbytes=1 << 20, m=1 << 20)
    assert RECORDS["cublas-dense"].reasons(asked, forced=True) == []


def test_deterministic_calls_need_cublas_to_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = CSR | {"assume_finite": True, "deterministic": True}
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    assert codes("cublas-dense", facts) == ["nondeterministic"]
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    assert codes("cublas-dense", facts) == []


def fastest(facts: dict[str, Any], **changes: Any) -> str:
    """The kernel of these backends that would be chosen if all were installed."""
    asked = query(facts, assume_finite=True, **changes)
    able = [record for record in RECORDS.values() if record.op == "matmul"]
    able = [r for r in able if not codes(r.name, facts, assume_finite=True, **changes)]
    return min(able, key=lambda record: record.estimate(asked)).name


def test_dense_is_ahead_above_break_even_and_rows_below() -> None:
    for n in (1, 16, 256, 4096):
        size = {"m": 16_384, "k": 16_384, "nnz": 80_000, "nbytes": 400_000_000}
        assert fastest(CSR, n=n, **size) == "cusparse-csr"
    assert fastest(CSR, nnz=8_000_000) == "cublas-dense"


def test_tensor_cores_are_ahead_of_rows_for_blocks_of_halves() -> None:
    few = {"nbytes": 2 << 20, "dtype": "float16", "m": 8192, "k": 8192, "n": 4096}
    assert fastest(BELL, **few) == "cusparse-bell"
    assert fastest(BELL, **(few | {"blocksize": (64, 64)})) == "cusparse-bell"


def test_blocks_that_no_block_kernel_takes_go_through_rows() -> None:
    few = {"nbytes": 2 << 20, "m": 8192, "k": 8192, "n": 64}
    for dtype in ("complex64", "complex128"):
        assert fastest(BELL, **few, dtype=dtype) == "cusparse-csr"
        assert fastest(BSR, **few, dtype=dtype) == "cusparse-bsr"
        assert fastest(BSR, **few, dtype=dtype, transposed=True) == "cusparse-csr"
        assert fastest(BSR | {"blocksize": (32, 16)}, **few, dtype=dtype) == "cusparse-csr"


@pytest.mark.parametrize("record", RECORDS.values(), ids=lambda record: record.name)
def test_costs_are_positive_and_grow_with_the_work(record: KernelRecord) -> None:
    for facts in (CSR, BSR, BELL, {"format": "n:m", "pattern": (2, 4)}):
        costs = [record.estimate(query(facts, n=n, m=m)) for n, m in ((1, 4096), (512, 1 << 16))]
        assert all(isinstance(cost, float) and cost > 0 for cost in costs)
        if record.op == "matmul":
            assert costs[0] < costs[1]


def test_records_are_registered_with_the_library() -> None:
    registered = {record.name for record in dispatch.records()}
    missing = set(RECORDS) - registered
    with registry.REGISTRY.temporary(*(RECORDS[name] for name in sorted(missing))):
        assert set(RECORDS) <= {record.name for record in dispatch.records()}
