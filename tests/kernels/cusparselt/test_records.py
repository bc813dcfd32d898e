"""Limits of the library as refusals, and the order of the kernels for 2:4 matrices."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sparseformats as sf
from sparseformats.dispatch import Query
from sparseformats_kernels import cuda, cusparse, cusparselt
from sparseformats_kernels.cusparselt import costs, finding
from tests.kernels.cusparselt.fake import Fake

RECORDS = {r.name: r for r in (*cuda.RECORDS, *cusparse.RECORDS, *cusparselt.RECORDS)}
FACTS: dict[str, Any] = {
    "format": "n:m",
    "pattern": (2, 4),
    "m": 4096,
    "k": 4096,
    "n": 4096,
    "nbytes": 24 << 20,
    "a_dtype": "bfloat16",
    "x_dtype": "bfloat16",
    "out_dtype": "bfloat16",
    "library": "torch",
    "device": "cuda",
    "capability": (9, 0),
    "x_layout": "C",
    "out_layout": "C",
}
INT8 = {"a_dtype": "int8", "x_dtype": "int8", "out_dtype": "int32"}
FP8 = dict.fromkeys(("a_dtype", "x_dtype", "out_dtype"), "float8_e4m3fn")
FLOAT32 = dict.fromkeys(("a_dtype", "x_dtype", "out_dtype"), "float32") | {"pattern": (1, 2)}
NAMES = {"cusparselt": {}, "cusparselt-int8": INT8, "cusparselt-fp8": FP8}


def query(**changes: Any) -> Query:
    given = FACTS | changes
    return Query("matmul", given.pop("format"), **given)


def codes(name: str, **changes: Any) -> list[str]:
    """Codes of the reasons but those about what is installed here."""
    found = RECORDS[name].reasons(query(**changes))
    return [reason.code for reason in found if "package" not in reason.code]


@pytest.mark.parametrize("library", ["torch", "cupy"])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_served(name: str, library: str) -> None:
    facts = NAMES[name] | {"library": library}
    if name == "cusparselt-fp8" and library == "cupy":
        assert codes(name, **facts) == ["library"]  # which has no such type
        return
    assert codes(name, **facts) == []
    assert codes(name, **facts, alpha_one=False, beta_zero=False, deterministic=True) == []
    for other in NAMES:
        assert (other == name) == (codes(other, **facts) == [])
    for size in ({"m": 33}, {"k": 51}, {"n": 1}, {"n": 13}, {"x_aligned": False}):
        assert codes(name, **facts | size) == []


@pytest.mark.parametrize(
    ("name", "changes", "code"),
    [
        ("cusparselt", {"device": "cpu"}, "device"),
        ("cusparselt", {"library": "numpy"}, "library"),
        ("cusparselt", {"capability": (7, 5)}, "capability"),
        ("cusparselt-fp8", FP8 | {"capability": (8, 0)}, "capability"),
        ("cusparselt", {"transposed": True}, "format"),
        ("cusparselt", {"format": "csr", "pattern": None}, "format"),
        ("cusparselt", {"pattern": (3, 4)}, "pattern"),
        ("cusparselt", {"pattern": (2, 6)}, "pattern"),
        ("cusparselt", {"x_dtype": "float16"}, "dtype"),
        ("cusparselt", FLOAT32, "dtype"),
        ("cusparselt-torch", FLOAT32, "dtype"),
        ("cusparselt", {"epilogue": "bias+gelu"}, "epilogue"),
        ("cusparselt", {"epilogue": "silu"}, "epilogue"),
        ("cusparselt-int8", INT8 | {"epilogue": "bias"}, "epilogue"),
        ("cusparselt", {"grad": True}, "gradient"),
        ("cusparselt", {"m": 1 << 20, "n": 1 << 12}, "size"),
        ("cusparselt", {"n": 1 << 16 | 1}, "size"),
        ("cusparselt", {"n": 1 << 8, "batch": 1 << 9}, "size"),
        ("cusparselt-torch", {"alpha_one": False}, "scaling"),
        ("cusparselt-torch", {"beta_zero": False}, "scaling"),
        ("cusparselt-torch", {"library": "cupy"}, "library"),
    ],
)
def test_what_is_refused(name: str, changes: dict[str, Any], code: str) -> None:
    assert code in codes(name, **changes)


@pytest.mark.parametrize("pattern", [(1, 2), (1, 3), (1, 4), (2, 4), (2, 8), (1, 16), (2, 16)])
def test_patterns_that_are_two_of_four(pattern: tuple[int, int]) -> None:
    """By trying: the fullest matrix of the pattern, wherever its non-zeros lie."""
    n, m = pattern
    worst = torch.zeros(2, 4 * m)
    for g in range(4):
        worst[0, g * m + m - n : (g + 1) * m] = 1  # at the end of each group
        worst[1, g * m : g * m + n] = 1
    assert worst.reshape(2, -1, 4).sum(dim=2).max() <= 2
    assert codes("cusparselt", pattern=pattern) == []


def test_refusals_tell_what_to_do() -> None:
    found = RECORDS["cusparselt"].reasons(query(pattern=(3, 4)))
    (reason,) = [r for r in found if "package" not in r.code]
    assert reason.hint


def test_a_note_tells_of_padding() -> None:
    record = RECORDS["cusparselt"]
    assert "pads" not in record.noted(query())
    assert "pads M to a multiple of 16, N to a multiple of 8" in record.noted(query(m=33, n=7))
    assert "K to a multiple of 32" in RECORDS["cusparselt-int8"].noted(query(**INT8 | {"k": 33}))


def test_the_way_out_tells_why(monkeypatch: pytest.MonkeyPatch) -> None:
    record = RECORDS["cusparselt-torch"]
    monkeypatch.setattr(finding, "_state", {"api": Fake().api()})
    assert "see cusparselt" in record.noted(query())
    reason = finding._unknown("/x.so", (0, 9, 1))
    monkeypatch.setattr(finding, "_state", {"api": reason})
    assert "has 0.9.1 from /x.so [package-unknown]" in record.noted(query())
    assert [r.code for r in RECORDS["cusparselt"].reasons(query())] == ["package-unknown"]


def test_a_torch_without_the_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cusparselt, "is_available", lambda: False)
    found = [r.message for r in RECORDS["cusparselt-torch"].reasons(query())]
    assert any("needs a torch that brings cuSPARSELt" in message for message in found)
    monkeypatch.setattr(torch.backends.cusparselt, "is_available", lambda: True)
    assert RECORDS["cusparselt-torch"].reasons(query()) == []


def test_large_products_prefer_sparse_tensor_cores() -> None:
    dense, sparse = RECORDS["cublas-nm"], RECORDS["cusparselt"]
    assert sparse.estimate(query()) < dense.estimate(query())
    few = query(m=14336, n=16)
    assert dense.estimate(few) < sparse.estimate(few)
    assert sparse.estimate(query()) < RECORDS["cusparselt-torch"].estimate(query())


def test_copies_cost() -> None:
    plain = costs.product(query())
    for change in (
        {"n": 4095},
        {"m": 4095},
        {"k": 4095},
        {"x_layout": "strided"},
        {"out_aligned": False},
    ):
        assert costs.product(query(**change)) > plain * 0.999 + 3
    rows = costs.product(query(**INT8))
    assert costs.product(query(**INT8 | {"x_layout": "F"})) < rows
    scaled = INT8 | {"x_layout": "F", "alpha_one": False}
    assert costs.product(query(**scaled)) > costs.product(query(**INT8 | {"x_layout": "F"}))


def test_kernels_are_listed() -> None:
    names = {info.name for info in sf.kernels("matmul")}
    assert {*NAMES, "cusparselt-torch"} <= names
