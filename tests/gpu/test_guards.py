"""Guard zones of poison around every buffer: none is written, and nothing in one counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparseformats as sf
from sparseformats import testing
from sparseformats.testing import certify
from tests.gpu.kernels import Case, dtypes_of, example, formats_of, record_of
from tests.gpu.memory import Arena, guarded, guarded_matrix, poisoned, watched
from tests.kernels.triton.matrices import FORMATS, dense, matrix
from tests.kernels.triton.ordeal import Subject

BLOCKS = [(64, 64), (16, 16), (24, 24), (3, 5)]


def held(subject: Subject, A: Any, X: Any, device: str, **call: Any) -> None:
    """A product whose every buffer lies between guard zones."""
    with watched() as arenas:
        M = guarded_matrix(A, arenas)
        x = guarded(X, A.library, device, arenas, "X")
        shape = (A.shape[0], X.shape[1])
        filled = np.full(shape, np.nan if not call.get("beta") else 2.0)
        start = A.lib.astype(A.lib.from_numpy(filled, device), A.dtype_name)
        out = guarded(start, A.library, device, arenas, "out")
        Y = subject.matmul(M, x, out=out, assume_finite=True, **call)
        if Y is not None:
            bound = certify._bound(record_of("matmul", subject.kernel), flush=False)
            testing.assert_close(Y, A, X, out=start, **call, **bound)


def test_products(kernel_case: Case, device: str) -> None:
    if kernel_case.op != "matmul":
        return
    subject, library = Subject(kernel_case.kernel, device), kernel_case.library
    served = dtypes_of(kernel_case)
    dtypes = [d for d in ("float16", "float32", "bfloat16", "float64") if d in served]
    for number, block in enumerate(BLOCKS if dtypes else ()):  # types of one byte have no NaN
        poisoned(device)
        formats = formats_of(kernel_case)
        for turn, format in enumerate(formats[number % 2 :: 2] or formats):
            dtype = dtypes[(number + turn) % len(dtypes)]
            A = example(kernel_case, format, (130, 150), block, dtype, device=device)
            X = dense((A.shape[1], 37), dtype, library=library, device=device)
            held(subject, A, X, device)
            held(subject, A, X, device, alpha=2, beta=-1)
    assert subject.served or subject.refused or not dtypes


def test_an_arena_notices_what_is_written_beside_it() -> None:
    arena = Arena(np.ones((3, 4), np.float32), "torch", "cpu", name="X")
    arena.check()
    arena.view[0, 0] = 5
    arena.check()
    arena._memory[10] = 1.0
    with pytest.raises(AssertionError, match="guard zone before X was written"):
        arena.check()


def test_a_guarded_matrix_is_the_matrix(device: str) -> None:
    for format in FORMATS:
        A = matrix(format, (70, 50), (16, 16), device=device)
        with watched() as arenas:
            assert sf.same(guarded_matrix(A, arenas), A, level="buffers")
        assert len(arenas) == len(A.buffers())
