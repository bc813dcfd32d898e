"""Bringing operands of any rank and side to what a kernel sees: a matrix times a matrix.

Vectors become one column, a dense operand on the left is transposed, batches are folded or looped
over, all by views wherever that is possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sparseformats._arrays import Array, ArrayLibrary
from sparseformats.ops.operands import Operands
from sparseformats.ops.scalars import Scalar

__all__ = ["Run", "shaped"]

Run = Callable[[Array, "Array | None", Scalar, Scalar], Array]
"""``(x, out, alpha, beta) -> y``"""

FOLD_BELOW = 32  # columns of a batch up to which one wide product beats a loop over batches


def shaped(run: Run, o: Operands, has_out: bool) -> Run:
    """Wrap a kernel's run so that it takes operands of the shape of these; keeps none of them.

    Parameters
    ----------
    run : callable
        Takes a (k, n) operand.
    o : Operands
        An example.
    has_out : bool
        Calls will give `out`.
    """
    if len(o.shape) == 1:
        return _into_column(run) if has_out else _column(run)
    if len(o.shape) == 2 and not o.left:
        return run
    call = _Call(o.lib, o.shape, o.left, o.m, o.k, o.columns, o.batch, o.dtype, o.matrix.device)
    if not has_out and not o.left and o.columns < FOLD_BELOW:
        return lambda x, out, alpha, beta: _folded(run, call, x, alpha)
    return lambda x, out, alpha, beta: _piecewise(run, call, x, out, alpha, beta)


@dataclass(frozen=True, slots=True)
class _Call:
    """What `Operands` says beside the arrays."""

    lib: ArrayLibrary
    shape: tuple[int, ...]
    left: bool
    m: int
    k: int
    columns: int
    batch: int
    dtype: str
    device: str


def _column(run: Run) -> Run:
    return lambda x, out, alpha, beta: run(x[:, None], None, alpha, beta)[:, 0]


def _into_column(run: Run) -> Run:
    def call(x: Array, out: Any, alpha: Scalar, beta: Scalar) -> Array:
        run(x[:, None], out[:, None], alpha, beta)
        return out

    return call


def _piecewise(
    run: Run, call: _Call, x: Array, out: Array | None, alpha: Scalar, beta: Scalar
) -> Array:
    result = call.lib.empty(call.shape, call.dtype, call.device) if out is None else out
    for piece, target in _pieces(call, x, result):
        run(piece, target, alpha, beta)
    return result


def _pieces(call: _Call, x: Array, out: Array) -> Iterator[tuple[Array, Array]]:
    """Two-dimensional operands and the views of `out` that take their products."""
    lib = call.lib
    if call.left and len(call.shape) > 2 and lib.is_contiguous(out):
        rows = call.batch * call.columns  # all batches are rows of one operand
        x, out = lib.xp.reshape(x, (rows, call.k)), lib.xp.reshape(out, (rows, call.m))
    if call.left:
        x, out = x.mT, out.mT
    yield from _batches(x, out)


def _batches(x: Array, out: Array) -> Iterator[tuple[Array, Array]]:
    if len(x.shape) == 2:
        yield x, out
        return
    for i in range(int(x.shape[0])):
        yield from _batches(x[i, ...], out[i, ...])


def _folded(run: Run, call: _Call, x: Array, alpha: Scalar) -> Array:
    """One product with all batches side by side: few columns each would waste a kernel."""
    xp, batch = call.lib.xp, call.shape[:-2]
    axes = len(batch)
    wide = xp.permute_dims(x, (axes, *range(axes), axes + 1))
    y = run(xp.reshape(wide, (call.k, call.batch * call.columns)), None, alpha, 0)
    split = xp.reshape(y, (call.m, *batch, call.columns))
    return call.lib.contiguous(xp.permute_dims(split, (*range(1, axes + 1), 0, axes + 1)))
