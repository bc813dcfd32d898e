"""What the library prepares for a product: descriptors, the choice of an algorithm, a plan.

A plan refers to its descriptors by address and to a handle, so they are made together, by the
thread that will use them, and kept together. What a plan was made with never changes afterwards:
another bias, step or order is another plan. See "cusparseLtMatmulPlanInit()" and
"cusparseLtDenseDescriptorInit()" in NVIDIA's documentation.
"""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Final, NamedTuple, final

from sparseformats_kernels.cusparselt import api as c

if TYPE_CHECKING:
    from sparseformats_kernels.cusparselt.api import Api, Opaque
    from sparseformats_kernels.cusparselt.handles import Handle
    from sparseformats_kernels.cusparselt.packing import Blob

__all__ = ["ALIGNED", "DEFAULT", "OWN_BIAS", "Algorithm", "Plan", "Problem"]

ALIGNED = 16  # bytes of addresses and of steps
OWN_BIAS = -1


class Problem(NamedTuple):
    """What a plan is made for, beside its matrix.

    Attributes
    ----------
    n : int
        Columns.
    x_order, y_order : int
        ``ORDER_ROW`` or ``ORDER_COL`` of the operand and of the result.
    x_step, y_step : int
        Leading dimensions.
    bias : int
        Address of a number for each row of the result; 0 for none, `OWN_BIAS` for memory that
        belongs to the launch.
    batch : int
        Products of the one matrix.
    x_gap, y_gap : int
        Elements between neighbours of a batch.
    relu : bool
        What is below zero becomes zero, last of all; NaN stays (measured: 0.8.0, an H200).
    vector : bool
        Sums are multiplied by a float32 number for each row of the result, not by one for all.
    """

    n: int
    x_order: int
    x_step: int
    y_order: int
    y_step: int
    bias: int = 0
    batch: int = 1
    x_gap: int = 0
    y_gap: int = 0
    relu: bool = False
    vector: bool = False


class Algorithm(NamedTuple):
    """Which of the library's kernels multiplies, and how the sum over k is cut.

    Attributes
    ----------
    id : int
        Of the configuration; below 0 the library's own choice.
    split_k : int
        Parts of each sum; 1 for whole sums.
    mode : int
        How parts are added; 0 leaves that to the library.
    """

    id: int
    split_k: int = 1
    mode: int = 0


DEFAULT: Final = Algorithm(-1)


@final
class Plan:
    """Descriptors and a plan for one problem, of one thread.

    Parameters
    ----------
    api : Api
    handle : Handle
        The calling thread's.
    blob : Blob
        The matrix.
    problem : Problem
    bias : int
        Address of the bias, 0 for none.
    algorithm : Algorithm

    Raises
    ------
    RuntimeError
        The library refuses.

    Attributes
    ----------
    address : int
    workspace : int
        Bytes.
    """

    __slots__ = (
        *("_api", "_destroys", "_keep", "_selection", "address", "algorithm", "handle"),
        "workspace",
    )

    def __init__(
        self,
        api: Api,
        handle: Handle,
        blob: Blob,
        problem: Problem,
        bias: int,
        algorithm: Algorithm,
    ) -> None:
        self._api, self.algorithm = api, algorithm
        self.handle = handle
        self._keep: list[Opaque] = []
        self._destroys: list[tuple[str, int]] = []
        product = self._describe(handle.address, blob, problem, bias)
        selection = self._selection = self._select(handle.address, product, algorithm)
        plan = api.opaque()
        api.call(
            "cusparseLtMatmulPlanInit",
            *(handle.address, plan.address, product.address, selection.address),
        )
        self._own(plan, "cusparseLtMatmulPlanDestroy")
        self.address = plan.address
        size = ctypes.c_size_t()
        where = ctypes.addressof(size)
        api.call("cusparseLtMatmulGetWorkspace", handle.address, plan.address, where)
        self.workspace = size.value

    def __del__(self) -> None:
        # At the end of the process the driver may be gone, and takes everything with it.
        if not sys.is_finalizing():
            for name, address in reversed(getattr(self, "_destroys", [])):
                self._api.function(name)(address)

    def _own(self, struct: Opaque, destroy: str | None) -> None:
        self._keep.append(struct)
        if destroy is not None:
            self._destroys.append((destroy, struct.address))

    def _describe(self, handle: int, blob: Blob, problem: Problem, bias: int) -> Opaque:
        """The product: what lies where, and what follows it."""
        turned = problem.x_order == c.ORDER_COL
        # A column-major operand is told as its transpose, row by row.
        size = (problem.n, blob.k) if turned else (blob.k, problem.n)
        A = blob.describe(self._api, handle)
        self._own(A, "cusparseLtMatDescriptorDestroy")
        self._repeat(handle, A, problem.batch, 0)  # the one matrix meets all
        value, gives = c.VALUES[blob.dtype], c.VALUES[blob.gives]
        x = self._dense(handle, (*size, problem.x_step, ALIGNED, value, c.ORDER_ROW))
        self._repeat(handle, x, problem.batch, problem.x_gap)
        result = (blob.m, problem.n, problem.y_step, ALIGNED, gives, problem.y_order)
        y = self._dense(handle, result)
        self._repeat(handle, y, problem.batch, problem.y_gap)
        added = y
        if blob.adds != blob.gives:
            value = c.VALUES[blob.adds]
            added = self._dense(handle, (*result[:4], value, problem.y_order))
            self._repeat(handle, added, problem.batch, problem.y_gap)
        product = self._api.opaque()
        flip = c.TRANSPOSE if turned else c.NON_TRANSPOSE
        matrices = A.address, x.address, added.address, y.address
        self._api.call(
            "cusparseLtMatmulDescriptorInit",
            *(handle, product.address, c.NON_TRANSPOSE, flip, *matrices, blob.computes),
        )
        self._own(product, None)
        self._follow(handle, product, problem, bias)
        return product

    def _follow(self, handle: int, product: Opaque, problem: Problem, bias: int) -> None:
        """Say what follows the sums."""
        name, on = "cusparseLtMatmulDescSetAttribute", ctypes.c_int(1)
        if bias:
            number = ctypes.c_void_p(bias)
            self._api.set(name, handle, product.address, c.BIAS_POINTER, number)
        if problem.relu:
            self._api.set(name, handle, product.address, c.ACTIVATION_RELU, on)
        if problem.vector:
            self._api.set(name, handle, product.address, c.ALPHA_VECTOR, on)

    def _dense(self, handle: int, facts: tuple[int, ...]) -> Opaque:
        struct = self._api.opaque()
        self._api.call("cusparseLtDenseDescriptorInit", handle, struct.address, *facts)
        self._own(struct, "cusparseLtMatDescriptorDestroy")
        return struct

    def _repeat(self, handle: int, struct: Opaque, batch: int, gap: int) -> None:
        """Say that a matrix is the first of a batch."""
        if batch != 1:
            name = "cusparseLtMatDescSetAttribute"
            self._api.set(name, handle, struct.address, c.NUM_BATCHES, ctypes.c_int(batch))
            self._api.set(name, handle, struct.address, c.BATCH_STRIDE, ctypes.c_int64(gap))

    def _select(self, handle: int, product: Opaque, algorithm: Algorithm) -> Opaque:
        selection = _selection(self._api, handle, product)
        frees = self._api.layout.frees_selections
        self._own(selection, "cusparseLtMatmulAlgSelectionDestroy" if frees else None)
        wanted = []
        if algorithm.id >= 0:
            wanted.append((c.CONFIG_ID, algorithm.id))
        if algorithm.split_k != 1:
            wanted.append((c.SPLIT_K, algorithm.split_k))
            if algorithm.mode:
                wanted.append((c.SPLIT_K_MODE, algorithm.mode))
        for attribute, value in wanted:
            name, number = "cusparseLtMatmulAlgSetAttribute", ctypes.c_int(value)
            self._api.set(name, handle, selection.address, attribute, number)
        return selection

    @property
    def most(self) -> int:
        """How many algorithms the library has for this product: ids are below that."""
        number, name = ctypes.c_int(), "cusparseLtMatmulAlgGetAttribute"
        where = ctypes.addressof(number), ctypes.sizeof(number)
        selection = self._selection.address
        self._api.call(name, self.handle.address, selection, c.CONFIG_MAX_ID, *where)
        return max(0, number.value)


def _selection(api: Api, handle: int, product: Opaque) -> Opaque:
    struct = api.opaque()
    api.call(
        "cusparseLtMatmulAlgSelectionInit", handle, struct.address, product.address, c.ALG_DEFAULT
    )
    return struct
