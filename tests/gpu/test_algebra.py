"""Algebra on device arrays: the same matrices as on the host, and nothing leaves the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from sparseformats import dispatch

LIBRARIES = ("torch", "cupy")


def host_matrix(format: str = "csr", seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    dense = rng.integers(-3, 4, (24, 36)).astype(np.float32) * (rng.random((24, 36)) < 0.2)
    dense.reshape(24, 9, 4)[:, :, 2:] = 0  # so that 2:4 can hold it
    options = {"bsr": {"blocksize": (4, 6)}, "blocked_ell": {"blocksize": 4}}.get(format, {})
    return sf.from_dense(dense, format, **options)


CASES: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "scale": lambda a, b: a * 2,
    "negate": lambda a, b: -a,
    "absolute": lambda a, b: abs(a),
    "multiply": lambda a, b: a.multiply(b),
    "rows": lambda a, b: a[4:12],
    "columns": lambda a, b: a[:, 6:30],
    "astype": lambda a, b: a.astype(a.data.dtype),
    "eliminate": lambda a, b: (a - a).eliminate_zeros(),
    "hstack": lambda a, b: sf.hstack([a, b]),
    "vstack": lambda a, b: sf.vstack([a, b]),
    "block_diag": lambda a, b: sf.block_diag([a, b]),
    "with_data": lambda a, b: a.with_data(a.data),
    "transpose": lambda a, b: a.T,
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", ["coo", "csr", "csc", "bsr", "blocked_ell", "2:4"])
@pytest.mark.parametrize("case", CASES)
def test_matrices(case: str, format: str, library: str, device: str) -> None:
    a, b = host_matrix(format, 0), host_matrix(format, 1)
    there = [x.to_device(device, library=library) for x in (a, b)]
    try:
        expected = CASES[case](a, b)
    except sf.PatternError:
        with pytest.raises(sf.PatternError):
            CASES[case](*there)
        return
    made = CASES[case](*there)
    assert (made.library, made.device) == (library, device)
    assert made.problems() == []
    assert made.format == expected.format
    assert sf.same(made.to_device("cpu", library="numpy"), expected)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", ["csr", "bsr", "2:4"])
def test_reductions(format: str, library: str, device: str) -> None:
    a = host_matrix(format)
    there = a.to_device(device, library=library)
    for axis in (0, 1):
        found = there.lib.to_numpy(there.sum(axis=axis))
        assert np.array_equal(found, a.sum(axis=axis))
    assert float(there.sum()) == float(a.sum())
    assert np.array_equal(there.lib.to_numpy(there.diagonal(2)), a.diagonal(2))


@pytest.mark.parametrize("library", LIBRARIES)
def test_pruning(library: str, device: str) -> None:
    weight = np.random.default_rng(3).standard_normal((16, 32)).astype(np.float32)
    dense = sf.from_dense(weight).to_device(device, library=library).to_dense()
    groups = sf.prune(dense, "2:4")
    assert sf.same(groups.to_device("cpu", library="numpy"), sf.prune(weight, "2:4"))
    blocks = sf.prune(dense, "bsr", blocksize=(4, 4), density=0.25)
    expected = sf.prune(weight, "bsr", blocksize=(4, 4), density=0.25)
    assert sf.same(blocks.to_device("cpu", library="numpy"), expected)
    report = sf.check_pattern(dense, "2:4")
    assert str(report) == str(sf.check_pattern(weight, "2:4"))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("format", ["coo", "csr", "csc", "bsr", "blocked_ell", "bsr.T", "2:4"])
def test_products(format: str, library: str, device: str) -> None:
    """Every format is multiplied on the device, from both sides, by a kernel that says why."""
    family = format.removesuffix(".T")
    host = host_matrix(family)
    there = host.to_device(device, library=library)
    host, there = (host.T, there.T) if format.endswith(".T") else (host, there)
    x = np.random.default_rng(5).integers(-3, 4, (host.shape[1], 5)).astype(np.float32)
    operand = there.lib.from_numpy(x, device)
    explanation = sf.explain(there, operand)
    assert explanation.chosen is not None, explanation
    with sf.tracing() as trace:
        y = there @ operand
        left = operand.T @ there.T
    assert set(trace.kernels) <= {record.name for record in dispatch.records("matmul")}
    assert explanation.chosen == trace.kernels[0]
    for found in (y, left.T):
        assert (there.lib.name, there.lib.device(found)) == (library, device)
        assert np.array_equal(there.lib.to_numpy(found), host.to_dense() @ x)


@pytest.mark.parametrize("library", LIBRARIES)
def test_products_say_what_is_missing(library: str, device: str) -> None:
    """Kernels of another place say which they need, and no product goes through the host."""
    a = host_matrix().to_device(device, library=library)
    x = a.lib.from_numpy(np.ones((36, 2), np.float32), device)
    rows = {row.kernel: row for row in sf.explain(a, x).rows}
    for name in ("scipy-csr", "reference"):
        reasons = [str(reason) for reason in rows[name].reasons]
        assert any("needs device cpu, has cuda" in reason for reason in reasons), reasons
    with pytest.raises(sf.NoKernelError, match="needs device cpu, has cuda"):
        sf.matmul(a, x, kernel="reference")
    whole, ints = a.astype("int64"), a.lib.astype(x, "int64")
    explanation = sf.explain(whole, ints)
    if explanation.chosen is None:  # each kernel of the device has its own reason
        assert all(row.reasons for row in explanation.rows)
        with pytest.raises(sf.NoKernelError, match="needs"):
            whole @ ints
    else:
        found = a.lib.to_numpy(whole @ ints)
        assert np.array_equal(found, host_matrix().to_dense() @ np.ones((36, 2)))
