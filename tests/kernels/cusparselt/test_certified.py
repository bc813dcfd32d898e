"""The kernels behind the library's own front door, over the stand-in: batches, sides, layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import sparseformats as sf
from sparseformats import dispatch
from sparseformats.dispatch.record import KernelRecord, checks
from sparseformats.testing import certify_kernel
from sparseformats_kernels import cusparselt
from tests.kernels.cusparselt.fake import Fake
from tests.kernels.cusparselt.support import matrix, operand, same

RECORDS = {record.name: record for record in cusparselt.RECORDS}
FAULTS = {"check-failed", "cost-failed", "failed-to-load"}


def here(name: str) -> KernelRecord:
    """A record for the CPU's memory, in which the stand-in works."""
    record = RECORDS[name]
    elsewhere = {"device", "capability"}
    kept = (x for x in record.checks if getattr(x, "code", None) not in elsewhere)
    kept = (x for x in kept if getattr(x, "fact", None) != "library")
    mine = (*kept, checks.library_is("torch"))
    return replace(record, name=f"{name}-here", checks=mine, requires=())


@pytest.fixture(autouse=True)
def _stand_in(library: Fake) -> None: ...


@pytest.mark.parametrize("values", ["any", "moderate"])
@pytest.mark.parametrize("name", ["cusparselt", "cusparselt-int8", "cusparselt-fp8"])
def test_products(name: str, values: str) -> None:
    dtypes = [str(x) for c in RECORDS[name].checks for x in _dtypes(c)]
    options: dict[str, Any] = {"dtypes": dtypes, "formats": ["2:4", "1:2", "1:4"]}
    certificate = certify_kernel(here(name), library="torch", values=values, examples=60, **options)
    assert not FAULTS & set(certificate.refusals)
    assert sum(certificate.runs.values()) >= 10


def _dtypes(check: Any) -> tuple[Any, ...]:
    return check.allowed if getattr(check, "fact", None) == "a_dtype" else ()


@pytest.mark.parametrize("epilogue", ["", "bias", "relu", "bias+relu"])
@pytest.mark.parametrize("tokens", [(24,), (5,), (3, 8), ()])
def test_layers(tokens: tuple[int, ...], epilogue: str, library: Fake) -> None:
    """What the record fuses runs in the kernel; the identity of layers is exact."""
    names = epilogue.split("+")
    W = matrix((48, 64))
    X = operand(64, max(1, torch.Size(tokens).numel()), seed=2).T.reshape(*tokens, 64)
    bias = operand(48, 1, seed=3)[:, 0] if "bias" in names else None
    activation = "relu" if "relu" in names else None
    with dispatch.temporary(here("cusparselt")), sf.tracing() as trace:
        y = sf.linear(X, W, bias, activation=activation, kernel="cusparselt-here")
    assert [run.kernel for run in trace] == ["cusparselt-here"]
    exact = X.double() @ W.to_dense().double().T
    exact = exact if bias is None else exact + bias.double()
    assert same(y, exact.relu() if activation else exact)
    # The layer's operand and result are used where they lie: tokens in rows.
    if tokens == (24,):
        assert library.named("Matmul")[-1][4] == X.data_ptr()


@pytest.mark.parametrize("scales", [(), ("a",), ("a", "b")])
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8"])
def test_scaled_layers_are_rounded_once(dtype: str, scales: tuple[str, ...]) -> None:
    """Sums come unrounded; scales, bias and the rounding follow in float32."""
    name = {"float8_e4m3fn": "cusparselt-fp8", "int8": "cusparselt-int8"}[dtype]
    W, X = matrix((48, 64), dtype), operand(64, 24, dtype, "F", seed=2).T
    options: dict[str, Any] = {"out_dtype": "bfloat16", "kernel": f"{name}-here"}
    exact = X.double() @ W.to_dense().double().T
    if "a" in scales:
        options["scale_a"] = torch.linspace(0.5, 2, 24)
        exact *= options["scale_a"].double()[:, None]
    if "b" in scales:
        options["scale_b"] = 0.125
        exact *= 0.125
    bias = torch.linspace(-1, 1, 48)
    with dispatch.temporary(here(name)), sf.tracing() as trace:
        y = sf.linear(X, W, bias, **options)
    assert [run.kernel for run in trace] == [f"{name}-here"]
    assert y.dtype == torch.bfloat16
    exact += bias.double()
    assert ((y.double() - exact).abs() <= 2**-8 * exact.abs() + 1e-5).all()


def test_an_operand_from_the_left_and_batches() -> None:
    A = matrix((48, 64))
    D = A.to_dense().double()
    X = operand(64, 40, seed=4)
    batch = torch.stack([operand(64, 24, seed=i) for i in range(3)])
    with dispatch.temporary(here("cusparselt")):
        options: Any = {"kernel": "cusparselt-here"}
        assert same(sf.matmul(X.T, A.T, **options), X.double().T @ D.T)
        assert same(sf.matmul(A, batch, **options), D @ batch.double())
        assert same(sf.matmul(A, batch[..., :3], **options), D @ batch[..., :3].double())
        assert same(sf.matmul(batch.mT, A.T, **options), batch.double().mT @ D.T)
        with pytest.raises(sf.NoKernelError, match=r"needs n:m, has 2:4\.T"):
            sf.matmul(operand(8, 48), A, **options)


def test_plans_take_new_values() -> None:
    A, B, X = matrix((48, 64)), matrix((48, 64), seed=5), operand(64, 24)
    with dispatch.temporary(here("cusparselt")):
        plan = sf.plan(A, X, kernel="cusparselt-here")
        assert same(plan(X), A.to_dense().double() @ X.double())
        with pytest.raises(ValueError, match=r"nothing is stored|not stored"):
            plan.update(torch.ones_like(A.data))
        doubled = A.data * 2
        plan.update(doubled)
        assert same(plan(X), 2 * A.to_dense().double() @ X.double())
        assert same(sf.matmul(B, X, kernel="cusparselt-here"), B.to_dense().double() @ X.double())
