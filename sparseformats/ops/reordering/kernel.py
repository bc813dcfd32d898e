"""A kernel for blocks that serves a matrix whose rows were grouped.

The matrix is put together anew with alike rows side by side; the kernel multiplies that, and the
rows of its result go back to where the caller has them. No matrix outside ever carries an order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, final

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.convert import convert
from sparseformats.dispatch import Query
from sparseformats.dispatch.record import ANY, KernelRecord, Reason
from sparseformats.formats import BSR, CSR, SparseMatrix
from sparseformats.formats.canonical import expand
from sparseformats.ops.contract import MatmulKernel
from sparseformats.ops.execution import Run
from sparseformats.ops.reordering.blocks import Blocks, elements
from sparseformats.ops.reordering.similarity import Host

__all__ = ["Grouped", "record_of"]


@final
class State:
    """What the kernel for blocks prepared, and where its rows belong.

    Attributes
    ----------
    inner : object
        The kernel's state.
    stored : int
        Blocks: those of the plan, unless values were written to behind its back.
    places : (m,) int64 array or None
        Row of the kernel's result for each row of the caller's.
    lib : ArrayLibrary
        Of all arrays.
    """

    __slots__ = ("inner", "lib", "places", "stored")

    def __init__(self, inner: Any, stored: int, places: Array | None, lib: ArrayLibrary) -> None:
        self.inner, self.stored, self.places, self.lib = inner, stored, places, lib


@final
class Grouped:
    """A kernel for blocks behind the contract of one for the matrix as it is given.

    Attributes
    ----------
    kernel : MatmulKernel
        The kernel for blocks.
    blocks : Blocks
        What it multiplies.
    per_thread : bool
        As of the kernel.
    """

    __slots__ = ("_addressed", "blocks", "kernel", "per_thread")

    def __init__(self, kernel: Any, blocks: Blocks, *, addressed: bool) -> None:
        self.kernel: MatmulKernel = kernel
        self.blocks = blocks
        self.per_thread = bool(getattr(kernel, "per_thread", False))
        self._addressed = addressed

    def query(self, query: Query, stored: int | None = None) -> Query:
        """The kernel's facts of a call, for the planned number of blocks or for another one."""
        blocks = self.blocks if stored is None else self.blocks._replace(stored=stored)
        return blocks.query(query, addressed=self._addressed)

    @property
    def how(self) -> str:
        """What was done to the matrix, in words."""
        r, c = self.blocks.size
        rows = "rows" if self.blocks.order.places is None else "grouped rows"
        return f"{rows} in blocks of {r} x {c}"

    def layout(self, query: Query) -> Any:
        """What shapes the kernel's state."""
        asked = getattr(self.kernel, "layout", None)
        return None if asked is None else asked(self.query(query))

    def pack(self, A: SparseMatrix, query: Query) -> State:
        """Group the rows of the matrix, and let the kernel prepare the blocks that they make."""
        lib, nbytes = A.lib, self.query(query).nbytes or 0
        lib.ensure_fits(nbytes, A.device, "grouping rows into blocks")
        made = _put(A, self.blocks, transposed=query.transposed)
        places = self.blocks.order.places
        there = None if places is None else lib.from_numpy(places, A.device)
        stored = int(made.indices.shape[0])
        return State(self.kernel.pack(made, self.query(query, stored)), stored, there, lib)

    def run(self, state: State, x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
        """Multiply a single time."""
        run = self._back(state, lambda *call: self.kernel.run(state.inner, *call))
        return run(x, out, alpha, beta)

    def bind(self, state: State, query: Query) -> Run:
        """`run` for calls of these facts."""
        bind = getattr(self.kernel, "bind", None)
        if bind is None:
            return lambda x, out, alpha, beta: self.run(state, x, out, alpha, beta)
        return self._back(state, bind(state.inner, self.query(query, state.stored)))

    def _back(self, state: State, run: Run) -> Run:
        """The kernel's run, with the rows of its result brought to their places."""
        lib, places, rows = state.lib, state.places, self.blocks.order.rows
        if places is None:
            return run

        def call(x: Array, out: Array | None, alpha: Any, beta: Any) -> Array:
            if out is None:
                return lib.take(run(x, None, alpha, 0), places)
            if beta == 0:
                return lib.take_into(run(x, None, alpha, 0), places, out)
            # What is scaled goes to the kernel's places first, so that each sum is rounded once.
            old = lib.zeros((rows, int(out.shape[1])), lib.dtype_name(out), lib.device(out))
            lib.put_rows(old, places, out)
            return lib.take_into(run(x, old, alpha, beta), places, out)

        return call


def _put(A: SparseMatrix, blocks: Blocks, *, transposed: bool) -> BSR:
    """The matrix in these blocks, in their order, without its record of stored zeros."""
    lib, places, rows = A.lib, blocks.order.places, blocks.order.rows
    if blocks.whole:
        assert isinstance(A, BSR)
        made = BSR.trusted(
            data=lib.native(A.data), indices=A.indices, indptr=A.indptr, shape=A.shape
        )
        if places is not None:
            high = blocks.size[0]
            made = BSR.trusted(
                **_moved(made, places[::high] // high, rows // high), shape=(rows, A.shape[1])
            )
    else:
        E = elements(A, transposed=transposed)
        if places is not None:
            E = CSR.trusted(**_moved(E, places, rows), shape=(rows, E.shape[1]))
        converted = convert(E, "bsr", blocksize=blocks.size)
        assert isinstance(converted, BSR)
        made = converted
    width = "int32" if blocks.fits(made.shape[1]) else "int64"
    index = {x: lib.astype(getattr(made, x), width) for x in ("indices", "indptr")}
    return BSR.trusted(data=made.data, shape=made.shape, **index)


def _moved(A: BSR | CSR, places: Host, rows: int) -> dict[str, Array]:
    """Buffers with each row, or block row, at its place among `rows`; the others are empty."""
    lib, device, ptr = A.lib, A.device, A.lib.to_numpy(A.indptr)
    stored = int(A.indices.shape[0])
    counts, start = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    counts[places], start[places] = np.diff(ptr), ptr[:-1]
    ends = np.concatenate([[0], np.cumsum(counts)])
    indptr, shift = (lib.from_numpy(x, device) for x in (ends, start - ends[:-1]))
    origin = lib.arange(stored, device=device) + lib.take(shift, expand(lib, indptr, stored))
    return {
        "data": lib.take(A.data, origin),
        "indices": lib.take(A.indices, origin),
        "indptr": lib.astype(indptr, lib.dtype_name(A.indptr)),
    }


def record_of(record: KernelRecord, target: Grouped) -> KernelRecord:
    """The record of the kernel, to be asked about the matrix as it is given."""
    checks = tuple(_asked(check, target) for check in record.checks)
    return replace(record, formats=ANY, checks=checks, soft_checks=())


def _asked(
    check: Callable[[Query], Reason | None], target: Grouped
) -> Callable[[Query], Reason | None]:
    return lambda query: check(target.query(query))
