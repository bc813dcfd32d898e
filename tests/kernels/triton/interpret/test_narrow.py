"""Values of 8 bits, interpreted: products, scales and what follows, against the oracle."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import sparseformats as sf
from sparseformats.dispatch import KernelRecord
from sparseformats.testing import certify_kernel, laid_out
from sparseformats_kernels.triton import RECORDS, configs
from tests.kernels.triton.harness import check, registered
from tests.kernels.triton.kinds import NARROW
from tests.kernels.triton.layers import assert_layer
from tests.kernels.triton.matrices import FORMATS, dense, narrow_dense, narrow_matrix
from tests.kernels.triton.ordeal import FAULTS

KERNELS = [record for record in RECORDS if record.op == "matmul" and record.name in NARROW]
BLOCKS = [(16, 16), (32, 32), (64, 64), (128, 128), (3, 5), (16, 64), (64, 16), (1, 1), (48, 24)]

kernels = pytest.mark.parametrize("record", KERNELS, ids=lambda record: record.name)


def narrow(record: KernelRecord, *args: Any, **options: Any) -> Any:
    return narrow_matrix(NARROW[record.name], *args, **options)


def operand(record: KernelRecord, *shape: int, seed: int = 1) -> Any:
    return narrow_dense(NARROW[record.name], shape, seed=seed)


@kernels
@pytest.mark.parametrize("values", ["any", "moderate"])
def test_against_the_oracle(record: KernelRecord, values: str) -> None:
    served: set[str] = set()
    for format in record.formats:
        with registered(record) as (name, _):
            options = {"library": "torch", "dtypes": [NARROW[record.name]], "values": values}
            certificate = certify_kernel(name, formats=format, examples=16, **options)
        assert not set(certificate.refusals) & FAULTS
        served |= {dtype for _, dtype in certificate.served}
    assert served == {NARROW[record.name]}


@kernels
@pytest.mark.parametrize("number", range(len(BLOCKS)), ids=lambda i: "{}x{}".format(*BLOCKS[i]))
def test_every_block_size(record: KernelRecord, number: int) -> None:
    (r, c), format = BLOCKS[number], FORMATS[number % 4]
    size = (r, c) if format.startswith("bsr") else (r, r)
    A = narrow(record, format, (2 * size[0] + 1, 3 * size[1] + 1), size, seed=number)
    for n in (1, 33, 130):
        check(record, A, operand(record, A.shape[1], n), out=(None, "guarded", "F")[number % 3])


@kernels
@pytest.mark.parametrize("layout", ["C", "F", "rows", "columns", "offset", "guarded", "broadcast"])
def test_every_layout(record: KernelRecord, layout: str) -> None:
    A = narrow(record, "bsr", (100, 150), (64, 64))
    X = laid_out(A.lib.to_numpy(operand(record, 150, 37)), layout, A.lib)
    out = "C" if layout == "broadcast" else layout
    check(record, A, X, out=out)
    check(record, A, X, out=out, alpha=-2, beta=3)


SCALES: list[dict[str, Any]] = [
    {},
    {"scale_a": 0.5},
    {"scale_a": torch.rand(33) + 0.5, "scale_b": 0.25},
    {"scale_a": torch.tensor(0.125), "scale_b": torch.rand(130, 1)},
    {"scale_a": torch.rand(33, 1), "scale_b": torch.rand(1, 130) - 0.5},
]


@kernels
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("number", range(len(SCALES)))
def test_scales(record: KernelRecord, number: int, dtype: str) -> None:
    activations = (None, "relu", "gelu", "silu")
    W = narrow(record, FORMATS[number % 4], (130, 200), (32, 32), seed=number)
    X, scales = operand(record, 33, 200), {**SCALES[number]}
    bias = dense((130,), ("float32", dtype)[number % 2], seed=5) if number % 3 else None
    residual = dense((33, 130), dtype, seed=6) if number % 2 else None
    for activation, out in itertools.product(activations[number % 4 :][:2], (None, dtype)):
        with registered(record) as (name, checker), sf.tracing() as trace:
            given = (
                None if out is None else torch.full((33, 130), torch.nan, dtype=residual_type(out))
            )
            options = {"activation": activation, "residual": residual, "out_dtype": dtype}
            Y = sf.linear(X, W, bias, out=given, kernel=name, **scales, **options)
        assert trace.kernels == [name]
        assert trace[0].query is not None
        assert (trace[0].query.epilogue or "").startswith("scale")
        assert checker.launches
        assert given is None or Y is given
        about = {"residual": residual, "dtype": dtype, **scales}
        assert_layer(Y, X, W, bias, activation, **about)


def residual_type(name: str) -> Any:
    return getattr(torch, name)


@kernels
def test_vectors_tokens_and_nothing(record: KernelRecord) -> None:
    W = narrow(record, "bsr", (48, 64), (16, 16))
    for lead in ((), (3,), (2, 5), (0,), (2, 0, 3)):
        X = operand(record, *lead, 64)
        scales = {"scale_a": torch.rand(lead) + 0.5, "scale_b": torch.rand(48)}
        residual = dense((*lead, 48), "bfloat16")
        with registered(record) as (name, _):
            options = {"kernel": name, "out_dtype": torch.bfloat16, "residual": residual}
            Y = sf.linear(X, W, **scales, **options)
        assert_layer(Y, X, W, None, None, residual=residual, dtype="bfloat16", **scales)


def test_sums_of_int8_are_exact_and_wrap() -> None:
    (record,) = (r for r in KERNELS if r.name.endswith("int8"))
    W = sf.from_dense(torch.full((16, 4096), -128, dtype=torch.int8), "bsr", blocksize=(16, 16))
    X = torch.full((4096, 17), -128, dtype=torch.int8)
    with registered(record) as (name, _):
        assert (sf.matmul(W, X, kernel=name) == 2**26).all()
        out = torch.full((16, 17), 7, dtype=torch.int32)
        sf.matmul(W, X, alpha=-63, beta=5, out=out, kernel=name)
    wrapped = (-63 * 2**26 + 35 + 2**31) % 2**32 - 2**31
    assert (out == wrapped).all()


def test_whole_results_of_int8_have_no_epilogue() -> None:
    (record,) = (r for r in KERNELS if r.name.endswith("int8"))
    W, X = narrow(record, "bsr", (32, 32), (16, 16)), operand(record, 5, 32)
    bias = torch.arange(32, dtype=torch.int32)
    expected = torch.relu(X.int() @ W.to_dense().int().T + bias)
    with registered(record) as (name, _), sf.tracing() as trace:
        assert torch.equal(sf.linear(X, W, bias, activation="relu", kernel=name), expected)
    assert trace.kernels == [name]


def test_fp8_that_is_too_large_is_nan() -> None:
    (record,) = (r for r in KERNELS if r.name.endswith("fp8"))
    data = torch.tensor([[448.0], [16.0], [-448.0], [float("nan")]]).to(torch.float8_e4m3fn)
    W = sf.from_dense(data, "bsr", blocksize=(4, 1))
    X = torch.tensor([[1.0], [1.0625], [2.0]]).to(torch.float8_e4m3fn)
    with registered(record) as (name, _):
        Y = sf.linear(X, W, scale_b=1.0, kernel=name).float()
    assert torch.equal(Y[0, :3], torch.tensor([448.0, 16.0, -448.0]))
    assert Y[2, [0, 2, 3]].isnan().all()
    assert Y[2, 1] == 32


def test_fp8_rounds_to_its_largest_number_up_to_the_middle_of_what_would_follow() -> None:
    (record,) = (r for r in KERNELS if r.name.endswith("fp8"))
    rows = [[448.0, 8.0], [448.0, 16.0], [448.0, 24.0], [-448.0, -16.0], [-448.0, -24.0]]
    W = sf.from_dense(torch.tensor(rows).to(torch.float8_e4m3fn), "bsr", blocksize=(1, 2))
    X = torch.ones(3, 2).to(torch.float8_e4m3fn)
    with registered(record) as (name, _):
        Y = sf.linear(X, W, scale_b=1.0, kernel=name).float()
    assert torch.equal(Y[:, [0, 1, 3]], torch.tensor([448.0, 448.0, -448.0]).expand(3, 3))
    assert Y[:, [2, 4]].isnan().all()


@kernels
def test_tokens_of_a_batch_in_one_launch_have_scales_of_their_own(record: KernelRecord) -> None:
    n = max(33, configs.BATCHED["triton-tiles"])
    W, X = narrow(record, "bsr", (48, 64), (16, 16)), operand(record, 3, n + 2, 64)[:, 1 : n + 1]
    scales = {"scale_a": torch.rand(3, n) + 0.5, "scale_b": torch.rand(48) + 0.5}
    with registered(record) as (name, checker):
        Y = sf.linear(X, W, kernel=name, out_dtype="float32", **scales)
    assert [launch.name for launch in checker.launches] == ["multiply"]
    assert_layer(Y, X, W, None, None, dtype="float32", **scales)


@kernels
@pytest.mark.parametrize("swap", [False, True])
def test_any_launch_parameters(record: KernelRecord, swap: bool) -> None:
    A, X = narrow(record, "bsr", (70, 130), (16, 16)), operand(record, 130, 40)
    for bm, bk in itertools.product((16, 64), (32, 128)):
        config = configs.Config(BM=bm, BN=32, BK=bk, stages=2, warps=4, swap=swap)
        with configs.with_config("triton-tiles", config):
            check(record, A, X)
