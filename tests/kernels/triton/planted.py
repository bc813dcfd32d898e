"""A plain block-sparse kernel in Triton that can be told to have a bug: what checkers must reject.

It takes any block size, any strides, BSR and Blocked-ELL with their transposes, on a GPU and in the
interpreter. Without a bug it is right, so a rejection is the bug's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from sparseformats.dispatch import KernelRecord, checks

__all__ = ["BUGS", "FORMATS", "Planted", "record"]

FORMATS = ("bsr", "bsr.T", "blocked_ell", "blocked_ell.T")
BUGS = (
    "skips-last-step",
    "reads-beyond-n",
    "writes-beyond-n",
    "multiplies-empty-slots",
    "multiplies-padding",
    "forgets-empty-rows",
    "narrow-offsets",
    "reads-out-under-beta-0",
    "forgets-strides-of-out",
    "half-accumulator",
)
"""Bugs of `multiply`; ``"races"`` and ``"adds-atomically"`` are another kernel's."""


@triton.jit
def multiply(
    data,
    indices,
    indptr,
    x,
    y,
    M,
    K,
    N,
    x_row,
    x_column,
    y_row,
    y_column,
    alpha,
    beta,
    R: tl.constexpr,
    C: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    BETA: tl.constexpr,
    BUG: tl.constexpr,
):
    """One block row times BN columns a program; a block is one step."""
    i, j = tl.program_id(0), tl.program_id(1)
    r, c, n = tl.arange(0, BM), tl.arange(0, BK), j * BN + tl.arange(0, BN)
    begin, end = tl.load(indptr + i), tl.load(indptr + i + 1)
    empty = begin == end
    if BUG == "skips-last-step":
        end = tl.maximum(begin, end - 1)
    acc = tl.zeros((BM, BN), tl.float32)
    for block in range(begin, end):
        column = tl.load(indices + block)
        present = column >= 0
        if BUG == "multiplies-empty-slots":
            present = column > -2
            column = tl.maximum(column, 0)
        k = column * C + c
        offsets = tl.cast(block, tl.int64) * (R * C) + r[:, None] * C + c[None, :]
        a = tl.load(data + offsets, mask=(r[:, None] < R) & (c[None, :] < C), other=0.0)
        reached = (c < C) & (k < K) & present
        if BUG == "multiplies-padding":
            reached = (k < K) & present
        met = reached[:, None] & (n[None, :] < N)
        if BUG == "reads-beyond-n":
            met = reached[:, None] & (n[None, :] < N + 1)
        places = k[:, None].to(tl.int64) * x_row + n[None, :].to(tl.int64) * x_column
        b = tl.load(x + places, mask=met, other=0.0)
        acc += tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
        if BUG == "half-accumulator":
            acc = acc.to(tl.float16).to(tl.float32)
    acc *= alpha
    rows = i * R + r
    inside = (r < R)[:, None] & (rows < M)[:, None] & (n[None, :] < N)
    if BUG == "writes-beyond-n":
        inside = (r < R)[:, None] & (rows < M)[:, None] & (n[None, :] < N + 1)
    if BUG == "forgets-empty-rows":
        inside = inside & (empty == 0)
    if BUG == "narrow-offsets":
        target = y + (rows[:, None] * y_row + n[None, :] * y_column)
    elif BUG == "forgets-strides-of-out":
        target = y + rows[:, None].to(tl.int64) * N + n[None, :]
    else:
        target = y + rows[:, None].to(tl.int64) * y_row + n[None, :].to(tl.int64) * y_column
    if BETA or BUG == "reads-out-under-beta-0":
        acc += beta * tl.load(target, mask=inside, other=0.0).to(tl.float32)
    tl.store(target, acc.to(y.dtype.element_ty), mask=inside)


@triton.jit
def scatter(
    data,
    indices,
    owners,
    x,
    total,
    K,
    N,
    x_row,
    x_column,
    R: tl.constexpr,
    C: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    ATOMIC: tl.constexpr,
):
    """One block times BN columns a program, added to ``total`` in whatever order programs come."""
    block, j = tl.program_id(0), tl.program_id(1)
    r, c, n = tl.arange(0, BM), tl.arange(0, BK), j * BN + tl.arange(0, BN)
    column, i = tl.load(indices + block), tl.load(owners + block)
    k = column * C + c
    offsets = tl.cast(block, tl.int64) * (R * C) + r[:, None] * C + c[None, :]
    a = tl.load(data + offsets, mask=(r[:, None] < R) & (c[None, :] < C), other=0.0)
    met = ((c < C) & (k < K) & (column >= 0))[:, None] & (n[None, :] < N)
    places = k[:, None].to(tl.int64) * x_row + n[None, :].to(tl.int64) * x_column
    b = tl.load(x + places, mask=met, other=0.0)
    acc = tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    inside = (r < R)[:, None] & (n[None, :] < N)
    target = total + (i * R + r)[:, None].to(tl.int64) * N + n[None, :]
    if ATOMIC:
        tl.atomic_add(target, acc, mask=inside)
    else:
        tl.store(target, tl.load(target, mask=inside, other=0.0) + acc, mask=inside)


class State(NamedTuple):
    """A packed matrix: blocks by block rows, empty slots of Blocked-ELL included."""

    data: torch.Tensor
    indices: torch.Tensor
    indptr: torch.Tensor
    owners: torch.Tensor
    shape: tuple[int, int]
    dtype: Any


class Planted:
    """The kernel, with one bug or with none."""

    def __init__(self, bug: str = "") -> None:
        self.bug = bug

    def pack(self, A: Any, query: Any) -> State:
        """Take blocks as they are, or sort them by columns for a transpose."""
        if A.family == "blocked_ell":
            rows, width = (int(n) for n in A.col_indices.shape)
            data = A.data.reshape(rows * width, *A.data.shape[2:])
            indices = A.col_indices.reshape(-1)
            owners = torch.arange(rows, device=data.device).repeat_interleave(width)
        else:
            data, indices = A.data, A.indices
            rows = int(A.indptr.shape[0]) - 1
            counts = A.indptr[1:] - A.indptr[:-1]
            owners = torch.arange(rows, device=data.device).repeat_interleave(counts)
        if query.transposed:
            order = torch.argsort(indices, stable=True)
            order = order[indices[order] >= 0]
            data, indices, owners = data[order].mT, owners[order], indices[order]
        heights = int(data.shape[1])
        rows = -(-query.m // heights)
        starts = torch.searchsorted(
            owners.to(torch.int64), torch.arange(rows + 1, device=data.device)
        )
        shape = (query.m, query.k)
        packed = (data.contiguous(), *(x.to(torch.int32) for x in (indices, starts, owners)))
        return State(*packed, shape, getattr(torch, query.out_dtype))

    def run(self, s: State, x: Any, out: Any, alpha: Any, beta: Any) -> Any:
        """Multiply, on the current stream of the operand's device."""
        (m, k), n = s.shape, int(x.shape[1])
        y = torch.empty((m, n), dtype=s.dtype, device=x.device) if out is None else out
        if not (m and n):
            return y
        r, c = (int(size) for size in s.data.shape[1:])
        tile = {"R": r, "C": c, "BM": _tile(r), "BN": 32, "BK": _tile(c)}
        columns = triton.cdiv(n, 32)
        if self.bug in ("races", "adds-atomically"):
            rows = -(-m // r)
            total = torch.zeros((rows * r, n), dtype=torch.float32, device=x.device)
            if s.indices.shape[0]:
                scatter[(s.indices.shape[0], columns)](
                    *(s.data, s.indices, s.owners, x, total, k, n, *x.stride()),
                    **tile,
                    ATOMIC=self.bug == "adds-atomically",
                )
            kept = beta * y.float() if beta != 0 else 0
            y.copy_(alpha * total[:m] + kept)
            return y
        multiply[(s.indptr.shape[0] - 1, columns)](
            *(s.data, s.indices, s.indptr, x, y, m, k, n, *x.stride(), *y.stride()),
            *(float(alpha), float(beta)),
            **tile,
            BETA=beta != 0,
            BUG=self.bug,
        )
        return y


def _tile(size: int) -> int:
    return max(16, triton.next_power_of_2(size))


_KERNELS = {bug: Planted(bug) for bug in ("", *BUGS, "races", "adds-atomically")}


def __getattr__(name: str) -> Planted:
    """Targets of records: ``kernel`` and then the bug."""
    bug = name.removeprefix("kernel").replace("_", "-").removeprefix("-")
    if not name.startswith("kernel") or bug not in _KERNELS:
        raise AttributeError(name)
    return _KERNELS[bug]


def record(bug: str = "", *, device: str = "cpu") -> KernelRecord:
    """Record of the kernel with a bug, for arrays of torch on a device."""
    target = f"{__name__}:kernel" + (f"_{bug.replace('-', '_')}" if bug else "")
    return KernelRecord(
        f"planted-{bug or 'nothing'}",
        "matmul",
        FORMATS,
        target,
        cost=lambda query: 0.0,
        checks=(
            checks.library_is("torch"),
            checks.device_is(device),
            checks.dtype_in("float16", "bfloat16", "float32"),
            checks.dtypes_equal(),
            checks.epilogue_in(None),
            checks.precision_in(None),
            checks.not_implemented_grad(),
        ),
    )
