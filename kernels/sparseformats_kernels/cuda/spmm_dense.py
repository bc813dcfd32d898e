"""Any format times dense by one cuBLAS GEMM over a dense copy, through torch or CuPy.

The copy is made once, on the device, when the matrix is packed. Zeros that are not stored meet the
operand here, so the records offer this kernel only where every element of the operand is known
to be finite, or where zeros may meet it (n:m).

Whether float32 may be multiplied in TF32 is the library's own switch, which belongs to the whole
process. It is turned off for calls that ask for IEEE arithmetic, never on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any, NamedTuple, final

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import accumulator
from sparseformats.dispatch.query import Query
from sparseformats.formats import SparseMatrix
from sparseformats_kernels.cuda.common import deliver, without_terms
from sparseformats_kernels.cuda.devices import device_of
from sparseformats_kernels.cuda.elements import as_dense

__all__ = ["Dense", "State", "exact"]

_switching = Lock()


class State(NamedTuple):
    """A packed matrix."""

    lib: ArrayLibrary
    dense: Array  # (m, k)
    dtype: str
    device: str


@final
class Dense:
    """cuBLAS."""

    @staticmethod
    def pack(A: SparseMatrix, query: Query) -> State:
        """Write the elements into a dense array, +0 elsewhere."""
        lib, dtype = A.lib, query.out_dtype or A.dtype_name
        device = device_of(A.data, lib)
        with device.here():
            dense = as_dense(A, query.transposed, dtype)
            _make_handle(dense)
            device.settle()  # other streams may use it at once
        return State(lib, dense, dtype, A.device)

    @staticmethod
    def bind(state: State, query: Query) -> Callable[..., Array]:
        """A run in the precision of the query, whatever torch's own switch says by then."""
        return partial(Dense.run, state, ieee=query.precision is None)

    @staticmethod
    def run(
        state: State, x: Array, out: Array | None, alpha: Any, beta: Any, *, ieee: bool = True
    ) -> Array:
        """Multiply, straight into `out`."""
        lib, dense, dtype, device = state
        shape = int(dense.shape[0]), int(x.shape[1])
        if 0 in (*shape, int(dense.shape[1])):
            return without_terms(lib, shape, out, beta, (dtype, device))
        x = lib.astype(x, dtype)
        if lib.name == "torch":
            return _by_torch(dense, x, out, alpha, beta, ieee)
        with device_of(dense, lib).here():
            return _by_cupy(state, x, out, alpha, beta)


def _make_handle(dense: Array) -> None:
    """Let torch make its handle of cuBLAS now: a graph that is recorded later cannot."""
    if getattr(dense, "is_cuda", False):
        import torch

        torch.cuda.current_blas_handle()


def _by_torch(
    dense: Array, x: Array, out: Array | None, alpha: Any, beta: Any, ieee: bool
) -> Array:
    import torch

    # Told where to write, torch leaves the dtype alone under autocast.
    y = dense.new_empty((dense.shape[0], x.shape[1])) if out is None else out
    with exact(torch, dense.dtype, ieee):
        if alpha == 1 and beta == 0:
            return torch.mm(dense, x, out=y)
        return torch.addmm(y, dense, x, alpha=alpha, beta=beta, out=y)


@contextmanager
def exact(torch: Any, dtype: Any, ieee: bool) -> Iterator[None]:
    """Keep cuBLAS from what torch's switches allow it and the call does not.

    By default torch lets it add up parts of a sum in a half type; under its TF32 switch float32 is
    rounded, which a call that asks for IEEE arithmetic does not want. The switches are the
    process's. While they are off other threads may get more exact products; the lock sees to it
    that they are put back as they were found.
    """
    wanted = _switches(torch, dtype, ieee)
    if not wanted:
        yield
        return
    matmul = torch.backends.cuda.matmul
    with _switching:
        before = {}
        try:
            for name, value in wanted.items():
                found = getattr(matmul, name)
                if found != value:
                    before[name] = found
                    setattr(matmul, name, value)
            yield
        finally:
            for name, value in before.items():
                setattr(matmul, name, value)


def _switches(torch: Any, dtype: Any, ieee: bool) -> dict[str, Any]:
    """The switches of torch that matter for products of a dtype, as the call needs them."""
    if dtype in (torch.float16, torch.bfloat16):
        half = "fp16" if dtype is torch.float16 else "bf16"
        wanted: dict[str, Any] = {f"allow_{half}_reduced_precision_reduction": False}
        if half == "fp16" and hasattr(torch.backends.cuda.matmul, "allow_fp16_accumulation"):
            wanted["allow_fp16_accumulation"] = False
        return wanted
    if dtype is not torch.float32 or not ieee:
        return {}
    try:
        return {"allow_tf32": False} if torch.backends.cuda.matmul.allow_tf32 else {}
    except RuntimeError:  # whoever used the new switch cannot read the old one
        return {"fp32_precision": "ieee"}


def _by_cupy(state: State, x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
    lib, dense, dtype, _ = state
    xp = lib.xp
    if alpha == 1 and beta == 0:
        if out is None:
            return xp.matmul(dense, x)
        if out.flags.c_contiguous:
            return xp.matmul(dense, x, out=out)
        if out.mT.flags.c_contiguous:
            xp.matmul(x.mT, dense.mT, out=out.mT)
            return out
        out[...] = xp.matmul(dense, x)
        return out
    wide = accumulator(dtype)
    y = xp.matmul(lib.astype(dense, wide), lib.astype(x, wide))  # to round once
    made = deliver(lib, y, out, alpha, beta)
    return made if out is not None else lib.astype(made, dtype)
