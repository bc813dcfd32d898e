"""Products of 2:4 matrices through ordinary calls; the plain twin multiplies the Gluon's tiles."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sparseformats as sf
from sparseformats import dispatch
from sparseformats.testing import certify_kernel, laid_out
from tests.kernels.triton.groups import groups
from tests.kernels.triton.harness import check, registered
from tests.kernels.triton.kinds import GROUPS
from tests.kernels.triton.layers import assert_layer
from tests.kernels.triton.matrices import dense
from tests.kernels.triton.ordeal import FAULTS

(RECORD,) = (r for r in dispatch.records("matmul") if r.name == GROUPS)
HALVES = ["float16", "bfloat16"]


@pytest.mark.parametrize("values", ["any", "moderate"])
def test_against_the_oracle(values: str) -> None:
    with registered(RECORD) as (name, _):
        options: dict[str, Any] = {"library": "torch", "dtypes": HALVES, "values": values}
        certificate = certify_kernel(name, formats="2:4", examples=60, **options)
    assert not set(certificate.refusals) & FAULTS
    assert {dtype for _, dtype in certificate.served} == set(HALVES)


@pytest.mark.parametrize("layout", ["C", "F", "rows", "columns", "offset", "guarded", "broadcast"])
def test_every_layout_of_operand_and_out(layout: str) -> None:
    A = groups((37, 150), "float16")
    X = laid_out(dense((150, 19), "float16", library="numpy"), layout, A.lib)
    out = "C" if layout == "broadcast" else layout
    check(RECORD, A, X, out=out)
    check(RECORD, A, X, out=out, alpha=-2, beta=3)


def test_vectors_batches_and_nothing() -> None:
    for dtype in HALVES:
        A = groups((33, 70), dtype)
        for shape in ((70,), (70, 0), (2, 70, 5), (0, 70, 3), (70, 67)):
            check(RECORD, A, dense(shape, dtype))
        for m, k in ((0, 40), (40, 0), (0, 0)):
            check(RECORD, groups((m, k), dtype), dense((k, 5), dtype))


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_layers(activation: str | None) -> None:
    for dtype in HALVES:
        W, X = groups((50, 72), dtype), dense((9, 72), dtype)
        bias = dense((50,), dtype, seed=5)
        with registered(RECORD) as (name, checker), sf.use_kernel(name):
            Y = sf.linear(X, W, bias, activation=activation)
        assert checker.launches
        assert_layer(Y, X, W, bias, activation)


def test_what_cannot_be_served_is_refused() -> None:
    three = sf.from_dense(torch.eye(8).half(), "1:2")
    for A, text in ((three, "pattern"), (groups((4, 8)).astype("float32"), "dtype")):
        with registered(RECORD) as (name, _), pytest.raises(sf.NoKernelError, match=text):
            sf.matmul(A, dense((8, 2), A.dtype_name), kernel=name)
    with registered(RECORD) as (name, _), pytest.raises(sf.NoKernelError, match=r"n:m|format"):
        sf.matmul(groups((4, 8)).T, dense((4, 2), "float16"), kernel=name)
