"""The others: each gives the sides that compute a case, prepared and ready to be called.

A side is prepared as well as its library allows: descriptors and copies that a user can keep are
made before, what every call of that library does again is timed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import torch

import sparseformats as sf
from benchmarks.gpu import cusparse_search, cusparselt_search, torch_bsr
from benchmarks.gpu.matrices import Problem, dense_of, even_twin

__all__ = ["PEERS", "Side", "kernel_sides", "other_kernels", "ours", "peer"]

SKIPPED = {"reference"}  # loops in Python on the host


class Side(NamedTuple):
    """One way to compute the product.

    Attributes
    ----------
    name : str
    call : callable
        Computes the product and returns it.
    capturable : bool
        May be recorded into a graph.
    view : callable or None
        Turns what `call` returns into a torch tensor of (m, n).
    of : Problem or None
        The problem that it computes, where that is not the case's own.
    kernel : str or None
        Name of our kernel that runs.
    """

    name: str
    call: Callable[[], Any]
    capturable: bool = True
    view: Callable[[Any], Any] | None = None
    of: Problem | None = None
    kernel: str | None = None


# Ours.


def ours(problem: Problem, kernel: str | None = None, **options: Any) -> Side:
    """What a user gets: the kernel that dispatch chooses, or one asked for by name."""
    if problem.case.gives:
        return _our_layer(problem, kernel)
    options.setdefault("assume_finite", problem.case.finite)
    options.setdefault("reorder", problem.case.reorder and kernel is None)
    plan = sf.plan(problem.matrix, problem.X, out=problem.Y, kernel=kernel, **options)
    return Side("ours", partial(plan, problem.X, out=problem.Y), kernel=plan.kernel)


def _our_layer(problem: Problem, kernel: str | None) -> Side:
    given = problem.X.T, problem.matrix
    options = problem.layer | {"kernel": kernel}
    chosen = sf.explain("linear", *given, **options).chosen
    out = problem.Y.T

    def call() -> Any:
        return sf.linear(*given, out=out, **options).T

    call()  # packs
    return Side("ours", call, kernel=chosen)


def other_kernels(problem: Problem, chosen: str | None) -> tuple[str | None, list[str]]:
    """The choice for a finite operand, and every eligible kernel but `chosen`."""
    if problem.case.gives:
        found = sf.explain("linear", problem.X.T, problem.matrix, **problem.layer)
    else:
        found = sf.explain(problem.matrix, problem.X, out=problem.Y, assume_finite=True)
    names = [row.kernel for row in found.rows if row.status != "refused"]
    return found.chosen, [name for name in names if name not in SKIPPED and name != chosen]


def kernel_sides(problem: Problem, name: str) -> list[Side]:
    """One kernel by its name."""
    return [ours(problem, name, assume_finite=True)._replace(name=f"kernel/{name}")]


def _even(problem: Problem) -> list[Side]:
    twin = even_twin(problem, str(problem.X.device))
    return [ours(twin)._replace(name="own-even", of=twin)]


# Dense.


def _cublas(problem: Problem) -> list[Side]:
    """Both layouts of the operand; results land in the layout that fits."""
    D = dense_of(problem)
    m, n = problem.case.m, problem.case.n
    row_major = problem.X.contiguous()
    column_major = problem.X.T.contiguous().T
    wide = torch.empty(m, n, dtype=D.dtype, device=D.device)
    tall = torch.empty(n, m, dtype=D.dtype, device=D.device).T
    return [
        Side("cublas/row-major", partial(torch.mm, D, row_major, out=wide)),
        Side("cublas/column-major", partial(torch.mm, D, column_major, out=wide)),
        Side("cublas/linear", partial(torch.mm, D, column_major, out=tall)),
    ]


# torch BSR.


def _torch_bsr(problem: Problem) -> list[Side]:
    A = torch_bsr.tensor(problem)
    sides = [Side("torch-bsr/matmul", partial(torch.matmul, A, problem.X))]
    if problem.case.linear:
        tokens = problem.X.T

        def linear() -> Any:
            return torch.nn.functional.linear(tokens, A).T

        sides.append(Side("torch-bsr/linear", linear))
    return sides


def _torch_bsr_tuned(problem: Problem) -> list[Side]:
    return [Side("torch-bsr-tuned", torch_bsr.tuned_call(problem))]


# CuPy.


def _cupy(problem: Problem) -> list[Side]:
    import cupy
    from cupyx.scipy import sparse

    parts = problem.parts
    arrays = (parts.data.reshape(-1), parts.columns, parts.pointers)
    A = sparse.csr_matrix(tuple(map(cupy.from_dlpack, arrays)), shape=problem.matrix.shape)
    X = cupy.from_dlpack(problem.X)
    return [Side("cupy", lambda: A @ X, capturable=False, view=torch.from_dlpack)]


# cuSPARSE CSR, algorithm by algorithm.


def _cusparse(problem: Problem) -> list[Side]:
    calls = cusparse_search.every_algorithm(problem)
    return [Side(f"cusparse/{name}", call) for name, call in calls.items()]


# 2:4.


def _cusparselt(problem: Problem) -> list[Side]:
    """The best of all algorithms, by a search that leaves nothing out."""
    calls = cusparselt_search.best_of_all(problem)
    return [Side(f"cusparselt/{name}", call) for name, call in calls.items()]


def _int_mm(problem: Problem) -> list[Side]:
    D = dense_of(problem)
    layouts = {"row-major": problem.X.contiguous(), "column-major": problem.X.T.contiguous().T}
    return [Side(f"int-mm/{name}", partial(torch._int_mm, D, X)) for name, X in layouts.items()]


def _scaled_mm(problem: Problem) -> list[Side]:
    """Without scales: both are one. Quick accumulation is another arithmetic, for the record."""
    D, X = dense_of(problem), problem.X.T.contiguous().T
    one = torch.ones((), device=D.device)
    scales = {"scale_a": one, "scale_b": one}
    same, half = {"out_dtype": D.dtype}, {"out_dtype": torch.bfloat16}
    quick = {"use_fast_accum": True}
    ways = {"scaled-mm": same, "scaled-mm-quick": same | quick, "scaled-mm-bfloat16": half}
    return [Side(name, partial(torch._scaled_mm, D, X, **scales, **o)) for name, o in ways.items()]


def _scaled_mm_of_layers(problem: Problem) -> list[Side]:
    """Results of bfloat16, into tokens in rows as a layer has them; as dense layers call it."""
    D, tokens = dense_of(problem), problem.X.T.contiguous()
    one = torch.ones((), device=D.device)
    scales = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16}

    def call(**options: Any) -> Any:
        return torch._scaled_mm(tokens, D.T, **scales, **options).T

    quick = partial(call, use_fast_accum=True)
    turned = partial(torch._scaled_mm, D, tokens.T, **scales)
    return [
        Side("scaled-mm-bfloat16/linear", call),
        Side("scaled-mm-bfloat16/turned", turned),
        Side("scaled-mm-quick", quick),
    ]


def _semi(problem: Problem) -> list[Side]:
    """As a user has it: the weight converted once, each call by torch's operator."""
    from torch.sparse import SparseSemiStructuredTensor, to_sparse_semi_structured

    SparseSemiStructuredTensor._FORCE_CUTLASS = False
    W = to_sparse_semi_structured(dense_of(problem))
    sides = [Side("torch-2:4/matmul", partial(torch.mm, W, problem.X))]
    if problem.case.linear:
        tokens = problem.X.T

        def linear() -> Any:
            return torch.nn.functional.linear(tokens, W).T

        sides.append(Side("torch-2:4/linear", linear))
    return sides


# Research libraries.


def _stk(problem: Problem) -> list[Side]:
    stk = import_module("stk")

    parts, shape = problem.parts, torch.Size(problem.matrix.shape)
    index = (parts.rows.short(), parts.columns.short(), parts.pointers)
    A = stk.Matrix(shape, parts.data, *index)
    return [Side("stk", partial(stk.ops.dsd, A, problem.X), capturable=False)]


def _blksprs(problem: Problem) -> list[Side]:
    """Sparse times sparse with a full layout: what it has for a dense operand."""
    bs = import_module("blksprs")

    case, b = problem.case, problem.case.block[0]
    layout = torch.zeros(1, *case.grid, dtype=torch.bool, device=problem.X.device)
    layout[0, problem.parts.rows, problem.parts.columns.long()] = True
    full_x = torch.ones(1, case.grid[1], case.n // b, dtype=torch.bool, device=problem.X.device)
    full_y = torch.ones(1, case.grid[0], case.n // b, dtype=torch.bool, device=problem.X.device)
    X = bs.ops.to_sparse(problem.X[None].contiguous(), full_x, b)

    def view(y: Any) -> Any:
        return bs.ops.to_dense(y, full_y, b)[0]

    call = partial(
        bs.ops.matmul,
        x=problem.parts.data,
        sparsity_layout_x=layout,
        y=X,
        sparsity_layout_y=full_x,
        sparsity_layout_output=full_y,
        sparsity_block_size=b,
    )
    return [Side("blksprs", call, capturable=False, view=view)]


PEERS: dict[str, Callable[[Problem], list[Side]]] = {
    "own-even": _even,
    "cublas": _cublas,
    "torch-bsr": _torch_bsr,
    "torch-bsr-tuned": _torch_bsr_tuned,
    "cupy": _cupy,
    "cusparse": _cusparse,
    "cusparselt": _cusparselt,
    "int-mm": _int_mm,
    "scaled-mm": _scaled_mm,
    "scaled-mm-bfloat16": _scaled_mm_of_layers,
    "torch-2:4": _semi,
    "stk": _stk,
    "blksprs": _blksprs,
}


def peer(name: str, problem: Problem) -> list[Side]:
    """The sides of one peer; raises where it cannot take part."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other people's, about their own state
        return PEERS[name](problem)
