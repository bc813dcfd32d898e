"""torch's sparse CSR product on the CPU (MKL), for any format of torch tensors."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple, final

import numpy as np
import torch

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.dispatch.query import Query
from sparseformats.formats import SparseMatrix
from sparseformats_kernels.cpu.common import compute_dtype, deliver
from sparseformats_kernels.cpu.elements import as_compressed

__all__ = ["State", "TorchCSR"]


def _tensor(data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> Any:
    return torch.sparse_csr_tensor(
        indptr, indices, data, size=shape, device="cpu", check_invariants=False
    )


with warnings.catch_warnings():
    # torch says once a process that its CSR is in beta; that is not for our users to act upon.
    warnings.simplefilter("ignore")
    _none, _start = torch.from_numpy(np.zeros(0, np.int32)), torch.from_numpy(np.zeros(1, np.int32))
    _tensor(_none, _none, _start, (0, 0))


class State(NamedTuple):
    """A packed matrix."""

    lib: ArrayLibrary
    matrix: Any  # a torch CSR tensor
    computes: Any  # torch dtype
    gives: str


@final
class TorchCSR:
    """Any format as CSR of the elements that meet the operand."""

    @staticmethod
    def pack(A: SparseMatrix, query: Query) -> State:
        """Bring the elements into CSR with int32 indices, which is what MKL reads."""
        dtype = compute_dtype(query.out_dtype)
        S = as_compressed(A, query.transposed, dtype).tocsr()
        indices, indptr = (
            _writeable(x.astype(np.int32, copy=False)) for x in (S.indices, S.indptr)
        )
        data, indices, indptr = (torch.from_numpy(x) for x in (_writeable(S.data), indices, indptr))
        matrix = _tensor(data, indices, indptr, (query.m, query.k))
        return State(A.lib, matrix, A.lib.dtype(dtype), query.out_dtype or dtype)

    @staticmethod
    def run(state: State, x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
        """Multiply, straight into `out` where nothing is left to do afterwards."""
        x = x.to(state.computes)
        plain = out is not None and out.dtype == state.computes and alpha == 1 and beta == 0
        y = out if plain else x.new_empty((state.matrix.shape[0], x.shape[1]))
        torch.mm(state.matrix, x, out=y)  # given where to write, autocast leaves the dtype alone
        return y if plain else deliver(state.lib, y, out, alpha, beta, state.gives)


def _writeable(x: Any) -> Any:
    """torch warns about memory that it could not write to; nobody writes to this."""
    return x if x.flags.writeable else x.copy()
