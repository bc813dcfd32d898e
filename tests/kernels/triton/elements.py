"""Matrices of elements for the kernel that takes them by rows, and what it must stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import sparseformats as sf
from sparseformats import testing
from sparseformats._arrays import library
from tests.kernels.triton.matrices import dense, host
from tests.kernels.triton.ordeal import Subject, deterministic, vast

__all__ = ["CHECKS", "DTYPES", "FORMATS", "elements", "exact_integers", "uneven"]

FORMATS = ("coo", "coo.T", "csr", "csc")
DTYPES = ("float16", "bfloat16", "float32", "float64", "int8")


def elements(
    format: str,
    lengths: list[int],
    k: int,
    dtype: str = "float32",
    *,
    values: str = "normal",
    index: str = "int32",
    device: str = "cpu",
    seed: int = 0,
) -> Any:
    """A matrix of torch's with so many elements in each row, at random columns."""
    rng = np.random.default_rng(seed)
    columns = [np.sort(rng.choice(k, size=n, replace=False)) for n in lengths]
    pointers = np.concatenate([[0], np.cumsum(lengths)])
    columns_of = np.concatenate([*columns, np.zeros(0, np.int64)])
    data = host(rng, dtype, columns_of.size, values)
    lib = library("torch")
    parts = [lib.from_numpy(x, device) for x in (data, *(columns_of, pointers))]
    A = sf.CSR(parts[0], *(lib.astype(x, index) for x in parts[1:]), (len(lengths), k))
    family, _, transposed = format.partition(".")
    if transposed:
        return A.T.to(family).T
    return A if format == "csr" else A.to(format)


def uneven(rows: int, k: int) -> list[int]:
    """Lengths of rows: a row with everything, some without anything, most short, some long."""
    lengths = [(7 * i) % 23 for i in range(rows)]
    lengths[1], lengths[rows // 2], lengths[-1] = k, 0, k // 2
    return lengths


def exact_integers(
    subject: Subject, *, rows: int = 37, k: int = 700, dtypes: tuple[str, ...] = DTYPES
) -> None:
    """Small integers, whose sums are exact and rounded once: equal in every type and format."""
    for number, dtype in enumerate(dtypes):
        for turn, format in enumerate(FORMATS):
            n = (1, 3, 16, 33, 130)[(number + turn) % 5]
            options = {"values": "integers", "device": subject.device, "seed": number}
            A = elements(format, uneven(rows, k), k, dtype, **options)
            X = dense((k, n), dtype, values="integers", device=subject.device)
            Y = subject.matmul(A, X)
            expected = A.to_dense().double() @ X.double()
            assert Y is None or torch.equal(Y, expected.to(Y.dtype)), (dtype, format, n)


def layouts(subject: Subject) -> None:
    """Operands and results of any strides, with scalars."""
    for number, layout in enumerate(("C", "F", "rows", "columns", "offset", "guarded")):
        dtype = DTYPES[number % 4]
        A = elements("csr", uneven(19, 300), 300, dtype, device=subject.device)
        given = dense((300, 21 + 11 * (number % 2)), dtype, library="numpy")
        X = testing.laid_out(given, layout, A.lib, subject.device)
        subject.hold(A, X, out=layout)
        subject.hold(A, X, out=layout, alpha=-2, beta=3)
        left = testing.laid_out(given.T[:, :19], layout, A.lib, subject.device)
        subject.hold(A, left, left=True, out=layout)


def only_what_is_stored(subject: Subject) -> None:
    """NaN in rows that no element names, and in `out` under beta 0, counts nowhere."""
    lengths = [0, 3, 400, 0, 5, 1]
    for dtype in ("float32", "float16", "float64"):
        options = {"values": "integers", "device": subject.device}
        A = elements("csr", lengths, 500, dtype, **options)
        met = torch.zeros(500, dtype=torch.bool, device=subject.device)
        met[A.indices.long()] = True
        X = torch.full((500, 18), torch.nan, dtype=A.data.dtype, device=subject.device)
        X[met] = 2
        out = torch.full((6, 18), torch.nan, dtype=A.data.dtype, device=subject.device)
        Y = subject.matmul(A, X, out=out)
        expected = 2 * A.to_dense().double().sum(dim=1, keepdim=True).expand(6, 18)
        assert Y is None or torch.equal(Y.double(), expected), dtype


def sums_in_float32(subject: Subject) -> None:
    """A float16 accumulator stops at 2048, also where parts are added."""
    ones = torch.ones(5000, 16, dtype=torch.float16, device=subject.device)
    for rows in (1, 40):
        D = torch.zeros(rows, 5000, dtype=torch.float16, device=subject.device)
        D[0] = 1
        Y = subject.matmul(sf.from_dense(D, "csr"), ones)
        expected = D.double().sum(dim=1, keepdim=True).half().expand(rows, 16)
        assert Y is None or torch.equal(Y, expected)


def far_apart(subject: Subject) -> None:
    """Offsets beyond 2**31 elements: rows of the operand and of the result far apart."""
    rows, step, n = 80, 2**25 + 2**21, 3
    options = {"values": "integers", "device": subject.device}
    A = elements("csr", uneven(rows, rows), rows, "bfloat16", **options)
    X = dense((rows, n), "bfloat16", **options)
    expected = (A.to_dense().double() @ X.double()).to(torch.bfloat16)
    far = vast(rows, step, n, subject.device)
    for operand, target in ((X, far), (X.T.contiguous().T, far), (far, torch.empty_like(X))):
        far.copy_(X)
        if target is far:
            target.fill_(torch.nan)
        Y = subject.matmul(A, operand, out=target)
        assert Y is None or torch.equal(target, expected)


def same_bits(subject: Subject) -> None:
    """Runs with other work between them give the same bits: rows of very many elements."""
    device = subject.device
    for dtype, n in (("float32", 40), ("float32", 1), ("bfloat16", 17), ("float64", 5)):
        A = elements("csr", [3, 4000, 0, 600, 40, 4000, 1], 4000, dtype, device=device)
        X = dense((4000, n), dtype, device=device)
        first = None
        for run in range(20 if device != "cpu" else 2):
            noise = torch.randn(2**22 if run % 2 else 2**10, device=device).sort()
            with deterministic():
                again = subject.matmul(A, X)
            first = again if first is None else first
            assert first is None or torch.equal(again, first), f"run {run + 1} differs"
            del noise


CHECKS: tuple[Callable[[Subject], None], ...] = (
    exact_integers,
    layouts,
    only_what_is_stored,
    sums_in_float32,
    far_apart,
    same_bits,
)
