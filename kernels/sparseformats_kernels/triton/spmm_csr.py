"""CSR, CSC and COO times dense: elements by rows, the same bits on every run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Lock
from typing import Any, final

import numpy as np

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats._dtypes import INT32_MAX, accumulator
from sparseformats.dispatch.query import Query
from sparseformats.formats import SparseMatrix
from sparseformats_kernels.cuda.devices import Device, device_of
from sparseformats_kernels.cuda.elements import as_rows
from sparseformats_kernels.triton import configs, costs
from sparseformats_kernels.triton.calls import Bindable
from sparseformats_kernels.triton.items import ItemLists
from sparseformats_kernels.triton.row_lists import Entries, Host, entries_of, longest
from sparseformats_kernels.triton.rows import add_parts, multiply_rows
from sparseformats_kernels.triton.sending import KEPT_LISTS, refuse_in_capture
from sparseformats_kernels.triton.sizes import HOST, processors_of
from sparseformats_kernels.triton.strided import Call
from sparseformats_kernels.triton.strided_variants import Kernel

__all__ = ["ADDING", "CUT", "WHOLE", "TritonCSR", "of_parts"]

_BYTES = 16  # that every array is aligned to
_MEMORY = "the parts of long rows need memory, which CuPy cannot give to a graph"
_ADDED = 8  # parts of a row that are read at a time
_BEYOND = 4096  # elements that are numbered beyond the last one at most


class State:
    """The elements of a matrix by rows, and the lists of entries made of them so far."""

    __slots__ = (
        *("arrays", "device", "index", "lib", "listed", "lock", "nnz", "one", "pointers"),
        *("query", "shape"),
    )

    def __init__(self, A: SparseMatrix, query: Query) -> None:
        lib: ArrayLibrary = A.lib
        self.lib = lib
        on_host = A.device == "cpu"  # only under Triton's interpreter
        self.device: Device | None = None if on_host else device_of(A.data, lib)
        self.query, self.index = query, index_of(query)
        rows = as_rows(A, query.transposed, A.dtype_name, self.index)
        self.shape, self.nnz = rows.shape, rows.nnz
        self.pointers: Host = lib.to_numpy(rows.indptr).astype(np.int64)
        self.arrays = {"values": aligned(lib, rows.data), "columns": aligned(lib, rows.indices)}
        self.one = lib.full((1,), 1.0, "float32", A.device)
        self.listed: dict[tuple[int, int], Listed] = {}
        self.lock = Lock()
        if self.device is not None:
            self.device.settle()  # other streams may use it at once

    def config(self, query: Query) -> configs.Config:
        """Launch parameters for a call."""
        return configs.choose("triton-csr", query, self.processors)

    @property
    def processors(self) -> int:
        """Programs that run at the same time, at least."""
        return HOST if self.device is None else processors_of(self.device)

    def entries(self, config: configs.Config) -> Listed:
        """The rows as programs of these launch parameters take them."""
        key = config.BM, config.BK
        with self.lock:
            found = self.listed.get(key)
            if found is None:
                found = self.listed[key] = Listed(self, config.BM, config.BK)
        return found


class Listed:
    """A matrix as `multiply_rows` reads it, for tiles of BM rows and BK elements at a time."""

    def __init__(self, state: State, bm: int, bk: int) -> None:
        self.state, self.lib, self.device = state, state.lib, state.device
        self.shape, self.one = state.shape, state.one
        limit = longest(self.shape[0], state.nnz, state.processors, bk)
        begin, end = state.pointers[:-1], state.pointers[1:]
        made: Entries = entries_of(begin, end, limit, bm, bk)
        self.place = "cpu" if self.device is None else self.device.place
        self.parts, self.steps, self.bm = made.parts, made.steps, bm
        self.known = state.arrays | {
            "rows": self._moved(made.row, "int32"),
            "begins": self._moved(made.begin, state.index),
            "ends": self._moved(made.end, state.index),
            "numbers": self._moved(made.number, "int32"),
        }
        self.adding = Adding(state, made.split) if made.parts else None
        self.lists: dict[int, Array] = {}
        self.lock = Lock()

    def _moved(self, x: Host, index: str) -> Array:
        x = x if x.size else np.zeros(1, np.int64)
        return self.lib.from_numpy(x.astype(index), self.place)

    def config(self, query: Query) -> configs.Config:
        """Launch parameters for a call."""
        return self.state.config(query)

    def arrays(self) -> Mapping[str, Array]:
        """What the kernel reads."""
        return self.known

    def items(self, columns: int, high: int) -> Array:
        """(first entry, tile column, steps, 0) of each program: long entries first."""
        with self.lock:
            found = self.lists.get(columns)
            if found is None:
                programs = self.steps.size
                first = np.tile(np.arange(programs) * self.bm, columns)
                column = np.repeat(np.arange(columns), programs)
                parts = [first, column, np.tile(self.steps, columns), np.zeros_like(first)]
                made = np.stack(parts, axis=1).astype(np.int32)
                found = self.lib.from_numpy(made, self.place)
                if self.device is not None:
                    self.device.settle()  # other streams may use it at once
                if len(self.lists) >= KEPT_LISTS:
                    self.lists.pop(next(iter(self.lists)))  # whoever uses it keeps it
                self.lists[columns] = found
        return found


class Adding:
    """The rows that were cut, as `add_parts` reads them."""

    def __init__(self, state: State, split: tuple[Host, Host, Host]) -> None:
        self.lib, self.device, self.one = state.lib, state.device, state.one
        self.shape = state.shape
        self.lists = ItemLists(self.lib, self.device, split, self.shape[0])

    def config(self, query: Query) -> configs.Config:
        """Launch parameters for a call."""
        return configs.Config(1, configs.width_of(query.n), _ADDED, stages=1, warps=1)

    def items(self, columns: int, high: int) -> Array:
        """The tiles of a result that is so many tiles wide, each of one row."""
        return self.lists(columns)

    def arrays(self) -> Mapping[str, Array]:
        """Nothing beside the parts, which are the operand."""
        return {}


@final
class _Both:
    """A product some of whose rows were cut: parts aside, then their sums."""

    def __init__(self, state: Listed, adding: Adding, query: Query) -> None:
        self.state, self.lib = state, state.lib
        self.query = of_parts(query)
        self.first, self.second = Call(CUT, state, query), Call(ADDING, adding, self.query)
        device = state.device
        self.takes = device is not None and not device.can_allocate_in_capture()

    def __call__(
        self,
        x: Array,
        out: Array | None,
        alpha: Any,
        beta: Any,
        bias: Array | None = None,
        **beside: Array | None,
    ) -> Array:
        """``alpha * (A @ x) + beta * out``, and what the query's epilogue says."""
        if self.takes and self.state.device is not None:
            refuse_in_capture(self.state.device, _MEMORY)
        shape, sums = (self.state.parts, int(x.shape[-1])), self.query.a_dtype or ""
        partial = self.lib.empty(shape, sums, self.state.place)
        out = self.first(x, out, alpha, beta, bias, partial=partial, **beside)
        return self.second(partial, out, alpha, beta, bias, **beside)


@final
class _Turned:
    """A product whose column-major operand is copied into rows."""

    def __init__(self, lib: ArrayLibrary, run: Callable[..., Array]) -> None:
        self.lib, self.run = lib, run

    def __call__(self, x: Array, *args: Any, **beside: Any) -> Array:
        """The product of the copy."""
        return self.run(self.lib.contiguous(x), *args, **beside)


def aligned(lib: ArrayLibrary, x: Array) -> Array:
    """The array, copied where it does not begin at a multiple of 16 bytes; never without any."""
    if not int(x.shape[0]):
        return lib.zeros(1, lib.dtype_name(x), lib.device(x))
    return x if lib.address(x) % _BYTES == 0 else lib.copy(x)


def index_of(query: Query) -> str:
    """Index type that a matrix is read with: narrow wherever it can be.

    Elements are numbered up to a step beyond the last one.
    """
    few = query.nnz is None or query.nnz <= INT32_MAX - _BEYOND
    return "int32" if query.fits_int32 and few else "int64"


def of_parts(query: Query) -> Query:
    """The facts of adding up parts, which lie row by row in the type of sums."""
    sums = _sums(query)
    facts: dict[str, Any] = {"a_dtype": sums, "x_dtype": sums, "x_layout": "C", "x_aligned": True}
    return replace(query, out_dtype=query.out_dtype or query.a_dtype, **facts)


def _sums(query: Query) -> str:
    return "int32" if query.a_dtype == "int8" else accumulator(query.a_dtype or "float32")


def _types(query: Query) -> dict[str, str]:
    index = {"int32": "*i32", "int64": "*i64"}[index_of(query)]
    sums = {"int32": "*i32", "float64": "*fp64"}.get(_sums(query), "*fp32")
    return dict.fromkeys(("columns", "begins", "ends"), index) | {"partial": sums}


_ARRAYS = (("values", False), *((n, True) for n in ("columns", "rows", "begins", "ends")))
_ARRAYS += (("numbers", True),)
WHOLE = Kernel(multiply_rows, _ARRAYS, lambda *_: {"CUT": False, "partial": None}, _types)
"""Where no row is cut."""
CUT = Kernel(multiply_rows, _ARRAYS, lambda *_: {"CUT": True}, _types)
ADDING = Kernel(add_parts, (), lambda *_: {})


@final
class TritonCSR(Bindable):
    """The kernel for elements by rows: half types, float32, float64 and int8."""

    @staticmethod
    def layout(query: Query) -> int:
        """One state serves all sizes."""
        return 0

    @staticmethod
    def pack(A: SparseMatrix, query: Query) -> State:
        """Bring the elements into rows, where they are not."""
        return State(A, query)

    @staticmethod
    def bind(state: State, query: Query) -> Callable[..., Array]:
        """Compile for calls of these facts."""
        able = state.device is None or state.device.can_allocate_in_capture()
        if able and costs.turns(query):
            by_rows = replace(query, x_layout="C", x_aligned=None)
            return _Turned(state.lib, TritonCSR.bind(state, by_rows))
        listed = state.entries(state.config(query))
        if listed.adding is None:
            return Call(WHOLE, listed, query)
        return _Both(listed, listed.adding, query)
