"""n:m times dense on sparse tensor cores.

Packing, and what dispatch asks of a kernel; `bound` has the calls, `layers` those with scales.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, final

from sparseformats._arrays import Array
from sparseformats.dispatch.query import Query
from sparseformats.formats import SparseMatrix
from sparseformats_kernels.cuda.devices import Device, device_of
from sparseformats_kernels.cusparselt.api import Api
from sparseformats_kernels.cusparselt.bound import Bound, is_direct
from sparseformats_kernels.cusparselt.finding import the_api
from sparseformats_kernels.cusparselt.handles import Handle, handle
from sparseformats_kernels.cusparselt.layers import Layer
from sparseformats_kernels.cusparselt.packing import Blob, direct, tile, unpacked
from sparseformats_kernels.cusparselt.results import tried
from sparseformats_kernels.cusparselt.serving import serve, usual
from sparseformats_kernels.cusparselt.slices import Slices, edges_of
from sparseformats_kernels.cusparselt.state import State

__all__ = ["CuSparseLtProduct"]

_GIVES = {"int8": "int32", "float8_e4m3fn": "float32"}  # what the library writes, if not the dtype


@final
class CuSparseLtProduct:
    """cuSPARSELt's product; bias and relu fused."""

    @staticmethod
    def pack(A: SparseMatrix, query: Query) -> State | Slices:
        """Compress the matrix; waits until that is done, since other streams may use it at once."""
        dtype = A.dtype_name
        device, api, gives = device_of(A.data, A.lib), the_api(), _GIVES.get(dtype, dtype)
        with device.here():
            context = handle(api, device.index)
            edges = edges_of(A, tile(dtype).sparse) if dtype == "int8" else (0, A.shape[1])
            parts, m = [], A.shape[0]
            for blob, (begin, end) in zip(
                _blobs(api, context, device, (A, gives, query.capability), edges),
                pairwise(edges),
                strict=True,
            ):
                out, shape = query.out_dtype or gives, (m, end - begin)
                parts.append(State(device, api, blob, shape, out, _name_of(device)))
            device.settle()  # only then may `dense` go, and other streams come
        return parts[0] if len(parts) == 1 else Slices(parts, edges)

    @staticmethod
    def run(
        state: State | Slices,
        x: Array,
        out: Array | None,
        alpha: Any,
        beta: Any,
        *,
        bias: Array | None = None,
        activation: str | None = None,
        **scales: Array,
    ) -> Array:
        """Multiply a single time, as `bind` would again and again; scales are applied to sums."""
        if isinstance(state, Slices):
            runs = [Bound(part, None, part.lib.deterministic()) for part in state.parts]
            return state.run(runs)(x, out, alpha, beta)
        if scales:
            return Layer(state, None, activation, state.lib.deterministic())(
                x, out, alpha, beta, bias, **scales
            )
        return Bound(state, activation, state.lib.deterministic())(x, out, alpha, beta, bias)

    @staticmethod
    def bind(state: State | Slices, query: Query) -> Callable[..., Array]:
        """A run for calls of these facts; searches for an algorithm if nobody has."""
        if isinstance(state, Slices):
            runs = [
                CuSparseLtProduct.bind(
                    part,
                    replace(
                        query,
                        k=part.k,
                        alpha_one=True,
                        beta_zero=True,
                        out_layout="C",
                        out_aligned=True,
                    ),
                )
                for part in state.parts
            ]
            return state.run(runs)
        follows = (query.epilogue or "").split("+")
        relu = "relu" in follows
        if "scale" in follows:
            return Layer.made(state, query)
        state = _itself(state, query)
        if query.m and state.forced is None:
            for n in {query.n, query.n * query.batch} - {0}:
                direct = is_direct(state, query.alpha_one, query.beta_zero)
                served = serve(state.blob, (state.m, state.k), usual(query, n), direct)
                state.prepare(served.problem._replace(relu=relu), query.deterministic)
        return Bound(state, "relu" if relu else None, query.deterministic)

    bind_epilogue = bind

    @staticmethod
    def bind_batch(state: State | Slices, query: Query) -> Any:
        """The same for batches; None where one wide product of all pieces is quicker."""
        from sparseformats_kernels.cusparselt.batches import FEW, Batched

        if isinstance(state, Slices) or query.n < FEW:
            return None
        return Batched(state, query.deterministic)


def _itself(state: State, query: Query) -> State:
    """The state with fp8 results by the library, where it rounds as the array library does."""
    plain = query.alpha_one and query.beta_zero and query.m and query.n
    if not plain or state.blob.gives == state.out_dtype or not state.out_dtype.startswith("float8"):
        return state
    return state if tried(state, query) is None else state.giving(state.out_dtype)


def _blobs(
    api: Api,
    context: Handle,
    device: Device,
    matrix: tuple[SparseMatrix, str, tuple[int, int] | None],
    edges: tuple[int, ...],
) -> Iterator[Blob]:
    """Slices of a matrix, compressed: (A, results' dtype, compute capability) between edges."""
    A, gives, capability = matrix
    whole = len(edges) == 2
    blob = direct(api, context, device, A, gives, capability) if whole else None
    if blob is not None:
        yield blob
        return
    dense = unpacked(A, A.dtype_name)
    for begin, end in pairwise(edges):
        last = end == A.shape[1]  # which has the columns that were added as well
        piece = dense if whole else A.lib.contiguous(dense[:, begin : None if last else end])
        yield Blob(api, context, device, piece, A.dtype_name, gives)


def _name_of(device: Device) -> str:
    """The device's name, as tables have it."""
    if device.lib.name == "torch":
        import torch

        return str(torch.cuda.get_device_name(device.index))
    import cupy

    return str(cupy.cuda.runtime.getDeviceProperties(device.index)["name"].decode())
