"""A stand-in for libcusparse over the CPU's memory, with the C signatures of ``cusparse.h`` (12.6).

It reads descriptors and addresses as the header and the documentation of the generic API describe
them, checks what the real library checks, and multiplies by NumPy. So a wrong order of arguments,
leading dimension, transposition or scalar gives a wrong result here too. What it cannot show is
what the real library computes; `tests/gpu/test_cusparse.py` does.
"""

from __future__ import annotations

import ctypes
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from typing import Any

import ml_dtypes
import numpy as np

from sparseformats_kernels.cuda.devices import Device
from sparseformats_kernels.cusparse.api import SIGNATURES, Api

# library_types.h: cudaDataType_t
TYPES: dict[int, Any] = {
    0: np.float32,
    1: np.float64,
    2: np.float16,
    3: np.int8,
    4: np.complex64,
    5: np.complex128,
    10: np.int32,
    14: ml_dtypes.bfloat16,
}
# cusparse.h: cusparseStatus_t, cusparseOrder_t, cusparseOperation_t
SUCCESS, INVALID_VALUE, INSUFFICIENT_RESOURCES = 0, 3, 11
COL, ROW = 1, 2
N, T = 0, 1
SPMM_ALGORITHMS = {"csr": (4, 6, 12), "ell": (13,), "bsr": (14,)}


def at(address: int, size: int, kind: Any) -> Any:
    """The numbers that lie at an address."""
    dtype = np.dtype(kind)
    memory = (ctypes.c_char * (size * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype)


def write(pointer: Any, value: int) -> None:
    """Write through a pointer that was passed by reference."""
    pointer._obj.value = value


def number(x: Any) -> Any:
    """What C would read of an argument that was converted ahead."""
    return (x.value or 0) if isinstance(x, ctypes._SimpleCData) else x


class Fake:
    """What an `Api` calls, and what it was called with."""

    def __init__(self, version: tuple[int, int, int] = (12, 6, 3)) -> None:
        self.version = version
        self.calls: list[tuple[Any, ...]] = []
        self.objects: dict[int, dict[str, Any]] = {}
        self.ids = count(1000)
        self.fails: dict[str, int] = {}
        self.workspace = 77
        self.crowded = self.unsorted = False
        # Algorithms that fill up with zeros, which meet the operand's first row; that add to
        # results in memory, in their type.
        self.careless, self.adds = {4, 12}, {4, 6}

    def api(self) -> Api:
        """An `Api` over these functions."""
        made = object.__new__(Api)
        made.path = "fake"
        made._library = self
        made._functions = {name: self._function(name) for name in SIGNATURES}
        made.version = self.version
        return made

    def cusparseGetErrorString(self, status: int) -> bytes:  # noqa: N802 - C's name
        return b"told by the library"

    def _function(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            if len(arguments) != len(SIGNATURES[name]):
                raise AssertionError(f"{name} takes {len(SIGNATURES[name])}, got {arguments}")
            arguments = tuple(number(x) for x in arguments)
            self.calls.append((name, *arguments))
            if name in self.fails:
                return self.fails[name]
            return int(
                getattr(self, "_" + name.removeprefix("cusparse").lower())(*arguments) or SUCCESS
            )

        return call

    def named(self, name: str) -> list[tuple[Any, ...]]:
        """Arguments of all calls of one function."""
        return [call[1:] for call in self.calls if call[0] == name]

    def _add(self, pointer: Any, **facts: Any) -> int:
        number = next(self.ids)
        self.objects[number] = facts
        write(pointer, number)
        return SUCCESS

    # Handles.

    def _create(self, pointer: Any) -> int:
        return self._add(pointer, kind="handle", stream=0)

    def _setpointermode(self, handle: int, mode: int) -> None:
        assert mode == 0, "CUSPARSE_POINTER_MODE_HOST"

    def _setstream(self, handle: int, stream: int) -> None:
        self.objects[handle]["stream"] = stream

    def _destroy(self, number: int) -> None:
        del self.objects[number]

    _destroyspmat = _destroydnmat = _destroydnvec = _spgemm_destroydescr = _destroy

    # Descriptors: arguments as in the header.

    def _createcsr(
        self, out: Any, m: int, k: int, nnz: int, ptr: Any, ind: Any, val: Any, *kinds: int
    ) -> int:
        assert kinds[:3] == (2, 2, 0), "32-bit indices from zero"
        facts = {"m": m, "k": k, "nnz": nnz, "ptr": ptr, "ind": ind, "val": val}
        return self._add(out, kind="csr", type=TYPES[kinds[3]], active=None, **facts)

    def _createbsr(self, out: Any, m: int, k: int, nnz: int, r: int, s: int, *rest: Any) -> int:
        if r != s:
            return INVALID_VALUE
        ptr, ind, val, *kinds = rest
        assert kinds[:3] == [2, 2, 0]
        assert kinds[4] == ROW
        facts = {"m": m * r, "k": k * s, "b": r, "nnz": nnz, "ptr": ptr, "ind": ind, "val": val}
        return self._add(out, kind="bsr", type=TYPES[kinds[3]], active=None, **facts)

    def _createblockedell(
        self, out: Any, m: int, k: int, b: int, width: int, ind: Any, val: Any, *kinds: int
    ) -> int:
        if m % b or k % b or width % b or width > k:
            return INVALID_VALUE
        assert kinds[:2] == (2, 0)
        facts = {"m": m, "k": k, "b": b, "width": width, "ind": ind, "val": val}
        return self._add(out, kind="ell", type=TYPES[kinds[2]], active=None, **facts)

    def _creatednmat(
        self, out: Any, m: int, n: int, step: int, val: int, kind: int, order: int
    ) -> int:
        if step < (n if order == ROW else m):
            return INVALID_VALUE
        facts = {"m": m, "n": n, "step": step, "val": val, "order": order}
        return self._add(out, kind="dense", type=TYPES[kind], **facts)

    def _creatednvec(self, out: Any, size: int, val: int, kind: int) -> int:
        return self._add(out, kind="vector", m=size, val=val, type=TYPES[kind])

    def _dnmatsetvalues(self, number: int, address: int) -> None:
        self.objects[number]["val"] = address

    _dnvecsetvalues = _dnmatsetvalues

    # Products.

    def _spmm_buffersize(self, *arguments: Any) -> int:
        self._judge(arguments[:10])
        write(arguments[10], self.workspace)
        return SUCCESS

    def _spmm_preprocess(self, *arguments: Any) -> int:
        self._judge(arguments[:10])
        self.objects[arguments[4]]["active"] = arguments[10]
        return SUCCESS

    def _judge(self, arguments: tuple[Any, ...]) -> None:
        _, op_a, op_b, _, a, b, _, c, _, algorithm = arguments
        A, B, C = (self.objects[x] for x in (a, b, c))
        assert op_a == N
        assert algorithm in SPMM_ALGORITHMS[A["kind"]]
        assert B["order"] == C["order"]
        rows, columns = (B["n"], B["m"]) if op_b == T else (B["m"], B["n"])
        assert (A["m"], A["k"], columns) == (C["m"], rows, C["n"])
        assert A["type"] == B["type"]

    def _spmm(self, *arguments: Any) -> int:
        self._judge(arguments[:10])
        _, _, op_b, alpha, a, b, beta, c, kind, algorithm, buffer = arguments
        assert buffer, "a workspace"
        A, B, C = (self.objects[x] for x in (a, b, c))
        x = dense(B)
        x = x.T if op_b == T else x
        with np.errstate(all="ignore"):
            found = times(A, x.astype(TYPES[kind]))
            if algorithm in self.careless and len(x):
                found += 0 * x[0].astype(TYPES[kind])
            if algorithm in self.adds and C["type"] in (np.float16, ml_dtypes.bfloat16):
                found = added(A, x, C["type"])
        self._write(dense(C), found, alpha, beta, TYPES[kind])
        return SUCCESS

    def _spmv_buffersize(self, *arguments: Any) -> int:
        write(arguments[9], self.workspace)
        return SUCCESS

    def _spmv_preprocess(self, *arguments: Any) -> int:
        self.objects[arguments[3]]["active"] = arguments[9]
        return SUCCESS

    def _spmv(self, *arguments: Any) -> int:
        _, op_a, alpha, a, x, beta, y, kind, algorithm, buffer = arguments
        assert (op_a, algorithm) == (N, 3)
        assert buffer
        A, X, Y = (self.objects[i] for i in (a, x, y))
        y, x = (at(V["val"], V["m"], V["type"])[:, None] for V in (Y, X))
        with np.errstate(all="ignore"):
            found = times(A, x.astype(TYPES[kind]))
        self._write(y, found, alpha, beta, TYPES[kind])
        return SUCCESS

    def _write(self, y: Any, found: Any, alpha: int, beta: int, kind: Any) -> None:
        factor, summand = (at(pointer, 1, kind)[0] for pointer in (alpha, beta))
        with np.errstate(all="ignore"):
            found = factor * found.astype(kind)
            if summand != 0:
                found = found + summand * y.astype(kind)
            y[...] = found.astype(y.dtype)

    # Sparse products: estimate, compute, copy.

    def _spgemm_createdescr(self, pointer: Any) -> int:
        return self._add(pointer, kind="work", steps=[])

    def _step(self, arguments: tuple[Any, ...], step: str, size: Any, memory: Any) -> int:
        _, op_a, op_b, _, a, b, _, _, _, algorithm, work = arguments
        assert (op_a, op_b) == (N, N)
        assert self.objects[a]["k"] == self.objects[b]["m"]
        if self.crowded and algorithm == 0:
            return INSUFFICIENT_RESOURCES
        if memory is None and size is not None:
            write(size, self.workspace)
        else:
            self.objects[work]["steps"].append(step)
        return SUCCESS

    def _spgemm_workestimation(self, *arguments: Any) -> int:
        return self._step(arguments[:11], "estimate", *arguments[11:])

    def _spgemm_estimatememory(self, *arguments: Any) -> int:
        share, third, memory, second = arguments[11:]
        assert 0 < share <= 1
        if memory is None:
            write(third, self.workspace)
            return SUCCESS
        write(second, self.workspace)
        return self._step(arguments[:11], "share", None, memory)

    def _spgemm_compute(self, *arguments: Any) -> int:
        a, b, result = (self.objects[arguments[i]] for i in (4, 5, 7))
        found = self._step(arguments[:11], "compute", *arguments[11:])
        if found == SUCCESS and arguments[12] is not None:
            result["nnz"] = int(np.count_nonzero(pattern(a) @ pattern(b)))
        return found

    def _spmatgetsize(self, number: int, rows: Any, columns: Any, nnz: Any) -> None:
        facts = self.objects[number]
        for pointer, name in ((rows, "m"), (columns, "k"), (nnz, "nnz")):
            write(pointer, facts[name])

    def _csrsetpointers(self, number: int, ptr: int, ind: int, val: int) -> None:
        self.objects[number] |= {"ptr": ptr, "ind": ind, "val": val}

    def _spgemm_copy(self, *arguments: Any) -> int:
        a, b, C = (self.objects[arguments[i]] for i in (4, 5, 7))
        assert self.objects[arguments[10]]["steps"][-1] == "compute"
        places = pattern(a) @ pattern(b)
        ptr, ind = at(C["ptr"], C["m"] + 1, np.int32), at(C["ind"], C["nnz"], np.int32)
        ptr[...] = np.concatenate([[0], np.cumsum(np.count_nonzero(places, axis=1))])
        rows, columns = np.nonzero(places)
        if self.unsorted:  # within each row
            order = np.lexsort((-columns, rows))
            rows, columns = rows[order], columns[order]
        ind[...] = columns
        at(C["val"], C["nnz"], C["type"])[...] = (expanded(a) @ expanded(b))[rows, columns]
        return SUCCESS


def pattern(A: dict[str, Any]) -> Any:
    """1 where an element is stored."""
    ptr, ind = at(A["ptr"], A["m"] + 1, np.int32), at(A["ind"], A["nnz"], np.int32)
    found = np.zeros((A["m"], A["k"]), np.int64)
    found[np.repeat(np.arange(A["m"]), np.diff(ptr)), ind] = 1
    return found


def dense(D: dict[str, Any]) -> Any:
    """A matrix where it lies."""
    m, n, step = D["m"], D["n"], D["step"]
    major, minor = (m, n) if D["order"] == ROW else (n, m)
    memory = at(D["val"], (major - 1) * step + minor, D["type"])
    size = memory.itemsize
    found = np.lib.stride_tricks.as_strided(memory, (major, minor), (step * size, size))
    return found if D["order"] == ROW else found.T


def times(A: dict[str, Any], x: Any) -> Any:
    """``A @ x`` where only what is stored meets the operand, and what the library does beside.

    An empty slot of Blocked-ELL is multiplied by the operand's first rows.
    """
    values, size = expanded(A).astype(x.dtype), A.get("b", 1)
    found = np.zeros((A["m"], x.shape[1]), x.dtype)
    for i, j in np.ndindex(A["m"] // size, A["k"] // size):
        rows, columns = (slice(n * size, (n + 1) * size) for n in (i, j))
        if A["kind"] == "ell":
            if (slots(A)[i] == j).any():
                found[rows] += values[rows, columns] @ x[columns]
        elif j in at(A["ind"], A["nnz"], np.int32)[row_of(A, i)]:
            found[rows] += values[rows, columns] @ x[columns]
    for i in range(A["m"] // size if A["kind"] == "ell" else 0):
        if (slots(A)[i] < 0).any():
            found[i * size : (i + 1) * size] += np.zeros((size, size), x.dtype) @ x[:size]
    return found


def added(A: dict[str, Any], x: Any, kind: Any) -> Any:
    """Rows of CSR summed up one element after the other in a type."""
    columns, values = at(A["ind"], A["nnz"], np.int32), at(A["val"], A["nnz"], A["type"])
    found = np.zeros((A["m"], x.shape[1]), kind)
    for i in range(A["m"]):
        for place in range(A["nnz"])[row_of(A, i)]:
            term = values[place].astype(np.float32) * x[columns[place]].astype(np.float32)
            found[i] = (found[i].astype(np.float32) + term).astype(kind)
    return found


def row_of(A: dict[str, Any], i: int) -> slice:
    """Where the elements or blocks of a row lie."""
    pointers = at(A["ptr"], i + 2, np.int32)
    return slice(pointers[i], pointers[i + 1])


def slots(A: dict[str, Any]) -> Any:
    """Block columns of Blocked-ELL."""
    width = A["width"] // A["b"]
    return at(A["ind"], A["m"] // A["b"] * width, np.int32).reshape(-1, width)


def expanded(A: dict[str, Any]) -> Any:
    """A sparse matrix as a dense one."""
    if A["kind"] == "ell":
        return _expanded_ell(A)
    b = A.get("b", 1)
    rows = A["m"] // b
    ptr, ind = at(A["ptr"], rows + 1, np.int32), at(A["ind"], A["nnz"], np.int32)
    val = at(A["val"], A["nnz"] * b * b, A["type"]).reshape(-1, b, b)
    found = np.zeros((A["m"], A["k"]), A["type"])
    for i in range(rows):
        for j in range(ptr[i], ptr[i + 1]):
            found[i * b : (i + 1) * b, ind[j] * b : (ind[j] + 1) * b] = val[j]
    return found


def _expanded_ell(A: dict[str, Any]) -> Any:
    """``ellValue`` has the rows of the matrix, ``ellColInd`` the columns of each block row."""
    b, ind = A["b"], slots(A)
    val = at(A["val"], A["m"] * A["width"], A["type"]).reshape(A["m"], A["width"])
    found = np.zeros((A["m"], A["k"]), A["type"])
    for (i, s), j in np.ndenumerate(ind):
        if j >= 0:
            block = val[i * b : (i + 1) * b, s * b : (s + 1) * b]
            found[i * b : (i + 1) * b, j * b : (j + 1) * b] = block
    return found


class FakeDevice(Device):
    """The CPU as a device: its stream, and whether a graph is recorded, are what a test says."""

    __slots__ = ("allocates", "current", "graph", "made", "settled", "shared", "visits")

    def __init__(self) -> None:
        super().__init__(0, "torch")
        self.place = "cpu"
        self.current, self.graph, self.allocates = 5, 0, True
        self.made: list[int] = []
        self.shared: list[Any] = []
        self.settled = self.visits = 0

    def here(self) -> AbstractContextManager[Any]:
        self.visits += 1
        return nullcontext()

    def is_current(self) -> bool:
        return True

    def stream(self) -> int:
        return self.current

    def capture(self, stream: int) -> int:
        return self.graph

    def settle(self) -> None:
        assert not self.graph, "waiting cannot be recorded"
        self.settled += 1

    def steps(self, x: Any) -> tuple[int, ...]:
        found: tuple[int, ...] = x.stride()
        return found

    def share(self, arrays: tuple[Any, ...]) -> None:
        self.shared.append(arrays)

    def can_allocate_in_capture(self) -> bool:
        return self.allocates
