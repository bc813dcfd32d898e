"""A stand-in for libcusparseLt over the CPU's memory, with the C signatures of its header (0.8).

It reads structs and addresses as the header and the documentation describe them, checks what the
real library checks or asks for (alignment, sizes, orders, that a struct is where it was when it was
made, that a handle stays with its thread), and multiplies by NumPy. Compressed matrices are real:
what is in that memory is what is multiplied. What it cannot show is what the real library computes;
`tests/gpu/test_cusparselt.py` does.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from threading import get_ident
from typing import Any

import ml_dtypes
import numpy as np

from sparseformats_kernels.cusparselt.api import SIGNATURES, Api
from sparseformats_kernels.cusparselt.plans import Algorithm
from sparseformats_kernels.cusparselt.versions import KNOWN
from tests.kernels.cusparse.fake import at, number

# library_types.h: cudaDataType_t
TYPES: dict[int, Any] = {
    0: np.float32,
    2: np.float16,
    3: np.int8,
    10: np.int32,
    14: ml_dtypes.bfloat16,
    28: ml_dtypes.float8_e4m3fn,
}
INVALID, NOT_SUPPORTED = 3, 10  # cusparse.h: cusparseStatus_t
COL, ROW = 1, 2  # cusparseOrder_t
RESULTS = {0: {0}, 2: {2}, 14: {14}, 3: {3, 10, 2, 14}, 28: {0, 2, 14}}
ADDS = {28: {28: 2}}  # types of C where they are not those of D
COMPUTES = {0: 2, 2: 2, 14: 2, 3: 0, 28: 2}
SPARSE, DENSE = {1: 32, 2: 16, 4: 8}, {1: 16, 2: 8, 4: 4}


class Fake:
    """What an `Api` calls, and what it was called with.

    Attributes
    ----------
    late : bool
        A product reads the bias's address when it is launched, not when its plan is made.
    most : int
        Algorithms that there are.
    refuses : set of int
        Those that no product takes.
    without_bias : set of int
        Those that no product with a bias takes.
    results : dict of int to set of int
        Types of results by that of operands.
    bias_of_bytes : int or None
        Type of a bias of 8-bit operands; None for that of the result.
    saturates : bool
        What is beyond the largest number of a type becomes that number.
    times : dict of Algorithm to float
        Microseconds, for `clock`.
    """

    def __init__(self, version: tuple[int, int, int] = (0, 8, 0), *, late: bool = False) -> None:
        self.version, self.late = version, late
        self.calls: list[tuple[Any, ...]] = []
        self.objects: dict[int, dict[str, Any]] = {}
        self.marks = count(1)
        self.fails: dict[str, int] = {}
        self.workspace, self.most = 77, 5
        self.refuses: set[int] = {3}
        self.without_bias: set[int] = {2}
        self.times: dict[Algorithm, float] = {}
        self.ran: list[Algorithm] = []
        self.streams: list[int] = []
        self.through_float = True
        self.results = {kind: set(allowed) for kind, allowed in RESULTS.items()}
        self.bias_of_bytes: int | None = 0
        self.vectors, self.saturates = True, False

    def api(self) -> Api:
        """An `Api` over these functions."""
        made = object.__new__(Api)
        made.path, made._library = "fake", self
        made.version, made.layout = self.version, KNOWN[self.version[:2]]
        names = [*SIGNATURES, "cusparseLtMatmulAlgSelectionDestroy"]
        made._functions = {name: self._function(name) for name in names}
        return made

    def clock(self, call: Callable[[], Any], times: int) -> float:
        """Microseconds of so many calls."""
        for _ in range(times):
            call()
        return times * self.times.get(self.ran[-1], 100.0)

    def named(self, name: str) -> list[tuple[Any, ...]]:
        """Arguments of all calls of one function."""
        return [call[1:] for call in self.calls if call[0] == f"cusparseLt{name}"]

    def living(self, kind: str) -> list[dict[str, Any]]:
        """Facts of all structs of a kind that were not destroyed."""
        return [x for x in self.objects.values() if x["kind"] == kind]

    def _function(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            codes = SIGNATURES.get(name, "p")
            assert len(arguments) == len(codes), f"{name} takes {len(codes)}, got {arguments}"
            found = tuple(number(x) for x in arguments)
            self.calls.append((name, *found))
            if name in self.fails:
                return self.fails[name]
            return int(getattr(self, "_" + name.removeprefix("cusparseLt").lower())(*found) or 0)

        return call

    # Structs: a mark in their memory tells whether they moved.

    def _make(self, address: int, kind: str, **facts: Any) -> None:
        assert address % 16 == 0, "structs lie at multiples of 16 bytes"
        mark = next(self.marks)
        size = KNOWN[self.version[:2]].size
        at(address, size, np.uint8)[...] = 0xA5  # all of it belongs to the library
        at(address, 1, np.int64)[...] = mark
        self.objects[address] = {"kind": kind, "mark": mark, **facts}

    def _get(self, address: int, kind: str) -> dict[str, Any]:
        found = self.objects.get(address)
        assert found is not None, f"no {kind} was made at this address, or it was destroyed"
        assert found["kind"] == kind
        assert at(address, 1, np.int64)[0] == found["mark"], f"the {kind} was overwritten or moved"
        return found

    def _drop(self, address: int, kind: str) -> None:
        self._get(address, kind)
        del self.objects[address]

    def _handle(self, address: int) -> dict[str, Any]:
        found = self._get(address, "handle")
        assert found["thread"] == get_ident(), "a handle belongs to one thread"
        return found

    def _init(self, address: int) -> None:
        self._make(address, "handle", thread=get_ident())

    def _destroy(self, address: int) -> None:
        self._drop(address, "handle")

    def _densedescriptorinit(self, handle: int, address: int, *facts: int) -> int:
        return self._describe(handle, address, False, *facts)

    def _structureddescriptorinit(self, handle: int, address: int, *facts: int) -> int:
        assert facts[-1] == 0, "half of all places"
        return self._describe(handle, address, True, *facts[:-1])

    def _describe(
        self,
        handle: int,
        address: int,
        sparse: bool,
        rows: int,
        columns: int,
        step: int,
        aligned: int,
        kind: int,
        order: int,
    ) -> int:
        self._handle(handle)
        size = np.dtype(TYPES[kind]).itemsize
        edge = (SPARSE if sparse else DENSE)[size]
        if min(rows, columns) < 1 or rows % edge or columns % edge or aligned % 16:
            return INVALID
        if step < (columns if order == ROW else rows) or step * size % 16:
            return INVALID
        facts = {"rows": rows, "columns": columns, "step": step, "order": order, "type": kind}
        self._make(address, "matrix", sparse=sparse, batch=1, gap=0, **facts)
        return 0

    def _matdescsetattribute(self, handle: int, matrix: int, *rest: int) -> None:
        self._handle(handle)
        attribute, where, size = rest
        assert (attribute, size) in ((0, 4), (1, 8)), "NUM_BATCHES, BATCH_STRIDE"
        value = int(at(where, 1, np.int32 if size == 4 else np.int64)[0])
        self._get(matrix, "matrix")["gap" if attribute else "batch"] = value

    def _matdescriptordestroy(self, address: int) -> None:
        self._drop(address, "matrix")

    def _matmuldescriptorinit(
        self, handle: int, address: int, flip_a: int, flip_b: int, *rest: int
    ) -> int:
        self._handle(handle)
        A, B, C, D = (self._get(place, "matrix") for place in rest[:4])
        assert A["sparse"]
        assert flip_a == 0
        k, n = (B["columns"], B["rows"]) if flip_b else (B["rows"], B["columns"])
        assert (A["columns"], A["rows"], n) == (k, D["rows"], D["columns"])
        added = ADDS.get(A["type"], {}).get(D["type"], D["type"])
        assert (C["type"], C["order"], C["step"]) == (added, D["order"], D["step"])
        kinds = A["type"], B["type"], D["type"]
        if kinds[0] != kinds[1] or kinds[2] not in self.results[kinds[0]]:
            return NOT_SUPPORTED
        if rest[4] != COMPUTES[kinds[0]]:
            return NOT_SUPPORTED
        by_column = (B["order"] == COL) != bool(flip_b)
        if kinds[0] in (3, 28) and not by_column:
            return NOT_SUPPORTED  # 8-bit types: both operands along the sum
        facts = {"A": rest[0], "B": rest[1], "D": rest[3], "flip": flip_b}
        facts |= {"bias": 0, "relu": 0, "vector": 0}
        self._make(address, "product", **facts)
        return 0

    def _matmuldescsetattribute(self, handle: int, product: int, *rest: int) -> None:
        self._handle(handle)
        attribute, where, size = rest
        assert (attribute, size) in ((8, 8), (0, 4), (5, 4)), "BIAS_POINTER, RELU, ALPHA_VECTOR"
        kind = np.int64 if attribute == 8 else np.int32
        name = {8: "bias", 0: "relu", 5: "vector"}[attribute]
        self._get(product, "product")[name] = int(at(where, 1, kind)[0])

    # Algorithms.

    def _matmulalgselectioninit(self, handle: int, address: int, product: int, kind: int) -> None:
        self._handle(handle)
        self._get(product, "product")
        assert kind == 0
        self._make(address, "selection", product=product, chosen={})

    def _matmulalgselectiondestroy(self, address: int) -> None:
        assert KNOWN[self.version[:2]].frees_selections, "this version lacks the function"
        self._drop(address, "selection")

    def _matmulalgsetattribute(self, handle: int, selection: int, *rest: int) -> int:
        self._handle(handle)
        attribute, where, size = rest
        assert size == 4
        value = int(at(where, 1, np.int32)[0])
        if attribute == 0 and not 0 <= value < self.most:
            return INVALID
        assert attribute in (0, 3, 4)
        self._get(selection, "selection")["chosen"][attribute] = value
        return 0

    def _matmulalggetattribute(self, handle: int, selection: int, *rest: int) -> None:
        self._handle(handle)
        self._get(selection, "selection")
        attribute, where, size = rest
        assert (attribute, size) == (1, 4), "CUSPARSELT_MATMUL_ALG_CONFIG_MAX_ID"
        at(where, 1, np.int32)[...] = self.most

    def _matmulplaninit(self, handle: int, address: int, product: int, selection: int) -> int:
        self._handle(handle)
        facts, chosen = self._get(product, "product"), self._get(selection, "selection")["chosen"]
        if facts["vector"] and not self.vectors:
            return NOT_SUPPORTED
        algorithm = Algorithm(chosen.get(0, -1), chosen.get(3, 1), chosen.get(4, 0))
        if algorithm.id in self.refuses or (facts["bias"] and algorithm.id in self.without_bias):
            return NOT_SUPPORTED
        known = {"product": product, "bias": facts["bias"], "algorithm": algorithm}
        known["need"] = self.workspace * (2 if algorithm.split_k != 1 else 1)
        self._make(address, "plan", handle=handle, selection=selection, **known)
        return 0

    def _matmulplandestroy(self, address: int) -> None:
        self._drop(address, "plan")

    def _matmulgetworkspace(self, handle: int, plan: int, where: int) -> None:
        self._handle(handle)
        at(where, 1, np.int64)[...] = self._get(plan, "plan")["need"]

    # Matrices.

    def _spmmacompressedsize2(self, handle: int, matrix: int, size: int, extra: int) -> None:
        self._handle(handle)
        A = self._get(matrix, "matrix")
        assert A["sparse"]
        kept = A["rows"] * A["columns"] // 2
        at(size, 1, np.int64)[...] = kept * (np.dtype(TYPES[A["type"]]).itemsize + 1)
        at(extra, 1, np.int64)[...] = 64

    def _spmmacompress2(self, handle: int, matrix: int, is_a: int, flip: int, *rest: int) -> None:
        self._handle(handle)
        assert (is_a, flip) == (1, 0)
        dense, out, buffer, _ = rest
        at(buffer, 64, np.uint8)[...] = 1
        A = self._get(matrix, "matrix")
        m, k, kind = A["rows"], A["columns"], np.dtype(TYPES[A["type"]])
        m_of = 2 if kind.itemsize == 4 else 4
        D = at(dense, m * k, kind).reshape(m, k // m_of, m_of)
        with np.errstate(all="ignore"):
            used = D.astype(np.float64) != 0  # NaN is not zero, either zero is
        assert used.sum(axis=2).max() <= m_of // 2, "more than half of a group is not zero"
        # Those first that are used, each in its order; what is left fills up.
        order = np.argsort(~used, axis=2, kind="stable")[:, :, : m_of // 2]
        order.sort(axis=2)
        kept = np.take_along_axis(D, order, axis=2).reshape(-1)
        values, places = self._parts(out, A)
        values[...], places[...] = kept, order.astype(np.uint8).reshape(-1)

    def _parts(self, blob: int, A: dict[str, Any]) -> tuple[Any, Any]:
        kept, kind = A["rows"] * A["columns"] // 2, np.dtype(TYPES[A["type"]])
        return at(blob, kept, kind), at(blob + kept * kind.itemsize, kept, np.uint8)

    def _expanded(self, blob: int, A: dict[str, Any]) -> Any:
        m, k, kind = A["rows"], A["columns"], np.dtype(TYPES[A["type"]])
        m_of = 2 if kind.itemsize == 4 else 4
        values, places = (x.reshape(m, k // m_of, m_of // 2) for x in self._parts(blob, A))
        found = np.zeros((m, k // m_of, m_of), kind)
        np.put_along_axis(found, places.astype(np.int64), values, axis=2)
        return found.reshape(m, k)

    def _matmul(self, *arguments: int) -> int:
        handle, plan, alpha, a, b, beta, c, d, workspace, streams, many = arguments
        self._handle(handle)
        P = self._get(plan, "plan")
        assert P["handle"] == handle, "a plan belongs to the handle that it was made with"
        product = self._get(P["product"], "product")
        self._get(P["selection"], "selection")
        A, B, D = (self._get(product[name], "matrix") for name in "ABD")
        assert many == 1
        assert all(x % 16 == 0 for x in (a, b, c, d)), "operands lie at multiples of 16 bytes"
        assert c == d
        self.streams.append(int(at(streams, 1, np.int64)[0]))
        if P["need"]:
            assert workspace, "a workspace"
            at(workspace, P["need"], np.uint8)[...] = 0xEE
        self.ran.append(P["algorithm"])
        scales = at(alpha, D["rows"] if product["vector"] else 1, np.float32).copy()
        numbers = scales[:, None], float(at(beta, 1, np.float32)[0])
        bias = product["bias"] if self.late else P["bias"]
        assert A["batch"] == B["batch"] == D["batch"]
        assert A["gap"] == 0, "one matrix for all"
        for i in range(D["batch"]):
            x = _dense(b + i * B["gap"] * np.dtype(TYPES[B["type"]]).itemsize, B)
            x = x.T if product["flip"] else x
            y = _dense(d + i * D["gap"] * np.dtype(TYPES[D["type"]]).itemsize, D)
            self._write(y, self._expanded(a, A), x, numbers, bias)
            if product["relu"]:
                with np.errstate(invalid="ignore"):
                    y[...] = np.where(y < 0, np.zeros(1, y.dtype), y)
        return 0

    def _write(self, y: Any, A: Any, x: Any, numbers: tuple[Any, float], bias: int) -> None:
        whole = A.dtype == np.int8
        wide = np.int32 if whole else np.float32
        with np.errstate(all="ignore"):
            found = np.where(A == 0, 0, A).astype(wide) @ x.astype(wide)
            if self.through_float or not whole:
                found = found.astype(np.float32) * numbers[0]
            if numbers[1] != 0:
                found = found + np.float32(numbers[1]) * y.astype(np.float32)
            if bias:
                kind = y.dtype
                if A.dtype.itemsize == 1 and self.bias_of_bytes is not None:
                    kind = np.dtype(TYPES[self.bias_of_bytes])
                found = found + at(bias, len(y), kind).astype(np.float32)[:, None]
            if self.saturates and not whole:
                largest = float(ml_dtypes.finfo(y.dtype).max)
                found = np.where(np.isnan(found), found, np.clip(found, -largest, largest))
            y[...] = found.astype(y.dtype)


def _dense(address: int, D: dict[str, Any]) -> Any:
    """A matrix where it lies."""
    m, n, step = D["rows"], D["columns"], D["step"]
    major, minor = (m, n) if D["order"] == ROW else (n, m)
    memory = at(address, (major - 1) * step + minor, TYPES[D["type"]])
    size = memory.itemsize
    found = np.lib.stride_tricks.as_strided(memory, (major, minor), (step * size, size))
    return found if D["order"] == ROW else found.T
