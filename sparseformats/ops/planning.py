"""``plan``: a product prepared now, of one matrix or of the parts of a `Sum`."""

from __future__ import annotations

from typing import Any

from sparseformats._arrays import Array
from sparseformats._dtypes import accumulator
from sparseformats.formats import SparseMatrix, Sum
from sparseformats.ops.compiling import DYNAMO, entry, modules, opaque, watched
from sparseformats.ops.operands import Operands, as_sparse, read
from sparseformats.ops.plans import Plan
from sparseformats.ops.preparing import Options, judged, query_of, scalars_of
from sparseformats.ops.reordering import as_reorder, choose
from sparseformats.ops.scalars import Scalar, as_scalar
from sparseformats.ops.sum_plans import SumPlan
from sparseformats.ops.sums import working

__all__ = ["plan"]


@entry
def plan(
    A: Any,
    X: Any,
    *,
    alpha: Any = 1,
    beta: Any = 0,
    out: Any = None,
    kernel: str | None = None,
    precision: str | None = None,
    assume_finite: bool = False,
    reorder: bool | str = False,
) -> Plan | SumPlan:
    """Prepare a product: choose the kernel and pack the matrix now, multiply later.

    Computes nothing. `matmul` keeps plans of its own, so a repeated ``A @ X`` is nearly as quick;
    a `Plan` is for calls that must not look anything up, may outlive `A`, change values by
    `Plan.update`, or are to be recorded into a CUDA graph.

    Parameters
    ----------
    A, X : SparseMatrix or array
        One is sparse, the other an example of the dense operand: its facts count, its values do
        not. As in `matmul`.
    alpha, beta, kernel, precision, assume_finite
        As in `matmul`, for all calls of the plan. Where torch's own switch decides the precision,
        it is read now.
    out : array, optional
        An example of the result's array. Calls may give `out` without it; what is prepared here
        is not prepared at the first call.
    reorder : bool or ``"always"``
        ``True`` lets the plan hold the matrix with alike rows side by side, in dense blocks, where
        that is predicted to be quicker; results have their rows where `A` has them. It takes
        `assume_finite` or an operand of integers, because blocks hold zeros where nothing is
        stored. ``plan.explanation.remark`` says what was done and why. ``"always"`` asks for it
        whatever it takes.

    Returns
    -------
    Plan
        Call it: ``plan(X, out=Y)``. Of a `Sum` a `SumPlan`, which is called in the same way.

    Raises
    ------
    TypeError, ValueError, DeviceMismatchError, NoKernelError, NotImplementedError
        As `matmul` does. Two sparse operands are a TypeError, ``reorder="always"`` without a
        promise of finite operands a ValueError.
    RuntimeError
        A CUDA graph is being recorded: plans are prepared before.

    Examples
    --------
    >>> import numpy as np
    >>> import sparseformats as sf
    >>> A, x, y = sf.eye(3), np.ones(3), np.empty(3)
    >>> p = sf.plan(A, x)
    >>> p(x, out=y)
    array([1., 1., 1.])
    >>> p.update(np.array([1.0, 2.0, 3.0]))
    >>> p(x)
    array([1., 2., 3.])
    """
    if DYNAMO in modules and watched():
        names: dict[str, Any] = {
            "kernel": kernel,
            "precision": precision,
            "assume_finite": assume_finite,
            "reorder": reorder,
        }
        return opaque(plan)(A, X, alpha=alpha, beta=beta, out=out, **names)
    first, second = as_sparse(A), as_sparse(X)
    if isinstance(first, SparseMatrix) and isinstance(second, SparseMatrix):
        raise TypeError("plan takes one sparse and one dense operand, got two sparse ones")
    o = read(first, second)
    given = out
    if out is None and as_scalar(beta, "beta", o.dtype) != 0:
        given = o.lib.empty(o.shape, o.dtype, o.matrix.device)  # calls will bring theirs
    scalars = scalars_of(o, alpha, beta, given)
    options = Options(precision, assume_finite, kernel, as_reorder(reorder))
    if isinstance(o.matrix, Sum):
        return _of_parts(o, out, scalars, options)
    return _single(o, second if o.left else first, out, scalars, options)


def _single(
    o: Operands,
    owner: SparseMatrix,
    out: Array | None,
    scalars: tuple[Scalar, Scalar],
    options: Options,
) -> Plan:
    o, query = judged(o, out, *scalars, options)
    selection = choose(o, owner, query, options)
    made = Plan(o, owner, tuple(int(size) for size in o.x.shape), scalars, query, selection)
    with o.lib.on(o.matrix.device):
        made._prepare(o, owner, o.x, out)
    return made


def _of_parts(
    o: Operands, out: Array | None, scalars: tuple[Scalar, Scalar], options: Options
) -> SumPlan:
    """A plan for each part that a product meets: they write, add to what is there, or neither."""
    A, (alpha, beta) = o.matrix, scalars
    assert isinstance(A, Sum)
    met = working(A)
    apart = len(met) > 1 and accumulator(o.dtype) != o.dtype
    plans: list[Plan | None] = []
    for part in A.parts:
        if not any(part is other for other in met):
            plans.append(None)
            continue
        mine = read(o.x, part) if o.left else read(part, o.x)
        if apart:
            unrounded = options._replace(unrounded=True)
            plans.append(_single(mine, part, None, (alpha, 0), unrounded))
        elif part is met[0]:
            plans.append(_single(mine, part, out, scalars, options))
        else:
            into = o.lib.empty(o.shape, o.dtype, A.device) if out is None else out
            plans.append(_single(mine, part, into, (alpha, 1), options))
    query = query_of(o, out, *scalars, options)
    return SumPlan(o, query, beta, plans)
