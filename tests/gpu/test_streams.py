"""Streams and threads: work runs where the caller's stream is, in its order, and only there."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import sparseformats as sf
from tests.gpu.kernels import Case, block_for, dtypes_of, example, formats_of, kind, record_of
from tests.gpu.streams import side_stream
from tests.kernels.triton.matrices import dense, matrix
from tests.kernels.triton.ordeal import Subject

CYCLES = 200_000_000  # about a tenth of a second of waiting on the device


def operands(case: Case, device: str) -> tuple[Any, Any] | None:
    """A matrix that the kernel serves and an operand, of small integers: sums are exact."""
    if case.op != "matmul":
        return None
    served = dtypes_of(case)
    every = ("float16", "float32", "float64", "int8", "float8_e4m3fn")
    dtype = next(d for d in every if d in served)
    place = {"values": "integers", "device": device}
    block = block_for(case.kernel)
    A = example(case, formats_of(case)[0], (512, 768), block, dtype, density=0.2, **place)
    return A, dense((A.shape[1], 64), dtype, library=case.library, **place)


def test_work_is_ordered_after_what_the_stream_did_before(kernel_case: Case, device: str) -> None:
    """The operand gets its values behind a long wait on a side stream; the result has seen them."""
    found = operands(kernel_case, device)
    if found is None:
        return
    A, X = found
    subject = Subject(kernel_case.kernel, device)
    expected = subject.matmul(A, X, assume_finite=True)  # prepares, and compiles
    assert expected is not None, f"{kernel_case} refuses: {subject.refused}"
    nothing = A.lib.zeros(X.shape, A.lib.dtype_name(X), A.lib.device(X))
    late = A.lib.copy(nothing)
    torch.cuda.synchronize(device)
    for _ in range(2):
        late[...] = nothing
        torch.cuda.synchronize(device)
        with side_stream(kernel_case.library, device) as stream:
            torch.cuda._sleep(CYCLES)
            late[...] = X
            Y = subject.matmul(A, late, assume_finite=True)
            stream.synchronize()
        lib = A.lib
        assert (lib.to_numpy(Y) == lib.to_numpy(expected)).all()


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_threads_with_streams_of_their_own(library: str, device: str) -> None:
    """Eight threads multiply one matrix by operands of their own at the same time."""
    if kind(device) != "cuda":
        pytest.fail("streams need a CUDA device")
    options = {"values": "integers", "library": library, "device": device}
    matrices = [matrix("bsr", (512, 768), (64, 64), "float16", **options)]
    matrices.append(matrices[0].to("csr").astype("float32"))
    xs = [dense((768, 32 + i), "float16", seed=i, **options) for i in range(8)]
    lib = matrices[0].lib
    expected = [[lib.to_numpy(A @ _as(A, x)) for x in xs] for A in matrices]
    gate = threading.Barrier(8)

    def work(number: int) -> None:
        gate.wait(60)
        with side_stream(library, device) as stream:
            for step in range(40):
                which = (number + step) % 8
                A = matrices[step % 2]
                if step % 13 == number:
                    sf.clear_cache(A)
                Y = A @ _as(A, xs[which])
                stream.synchronize()
                assert (lib.to_numpy(Y) == expected[step % 2][which]).all(), (number, step)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, number) for number in range(8)]:
            done.result()


def _as(A: Any, x: Any) -> Any:
    return A.lib.astype(x, A.dtype_name)


def test_bits_do_not_depend_on_other_work(kernel_case: Case, device: str) -> None:
    """Kernels that call themselves deterministic give the same bits while the device is busy."""
    found = operands(kernel_case, device)
    if found is None or not record_of(kernel_case.op, kernel_case.kernel).deterministic:
        return
    A, X = found
    lib = A.lib
    thirds = lib.astype(lib.astype(A.data, "float64") / 3, A.dtype_name)  # fp8 cannot divide
    A, subject = A.with_data(thirds), Subject(kernel_case.kernel, device)
    first = subject.matmul(A, X, assume_finite=True)
    if first is None:
        assert subject.refused
        return
    bits = lib.to_numpy(first).tobytes()
    noise = torch.randn(2**22, device=device)
    for run in range(20):
        if kind(device) == "cuda":
            with torch.cuda.stream(torch.cuda.Stream(device)):
                noise = (noise * 1.0001).sin() if run % 2 else noise.sort()[0]
        again = subject.matmul(A, X, assume_finite=True)
        assert lib.to_numpy(again).tobytes() == bits, f"run {run}"
