"""Products of a sparse matrix with a dense array: ``out <- alpha * (A @ X) + beta * out``.

A warm call makes one tuple of the operands' raw facts, finds a light plan under it, and runs it.
Only a miss reads the operands, asks dispatch for a kernel and packs the matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparseformats import _arrays, dispatch
from sparseformats._arrays import Array
from sparseformats.dispatch import REGISTRY, Explanation, forcing
from sparseformats.dispatch.plan_cache import Entry
from sparseformats.formats import SparseMatrix, Sum, Transposed
from sparseformats.ops import reordering, sums
from sparseformats.ops.cache import CACHE, source
from sparseformats.ops.compiling import DYNAMO, entry, modules, opaque, watched
from sparseformats.ops.light import Light, execute, pack, whereabouts
from sparseformats.ops.operands import as_sparse, is_foreign, read, separate
from sparseformats.ops.preparing import DEFAULTS, Options, judged, packed_for, query_of, scalars_of
from sparseformats.ops.scalars import Scalar, as_scalar
from sparseformats.ops.sparse_product import explain_sparse, sparse_product
from sparseformats.ops.sum_explaining import SumExplanation, explain_parts

__all__ = ["explain", "lights", "matmul", "matmul_operator"]

_NUMBERS = (int, float, complex, bool)
_Key = tuple[Any, ...]


@entry
def matmul(
    A: Any,
    X: Any,
    *,
    alpha: Any = 1,
    beta: Any = 0,
    out: Any = None,
    kernel: str | None = None,
    precision: str | None = None,
    assume_finite: bool = False,
) -> Any:
    """Multiply: ``out <- alpha * (A @ X) + beta * out``.

    Parameters
    ----------
    A, X : SparseMatrix or array
        At least one is sparse, (m, k) on the left or (k, n) on the right. The dense one is a NumPy,
        torch or CuPy array: a vector, a matrix, or a batch ``(..., k, n)`` (``(..., m, k)`` on
        the left), of any strides, of the sparse one's library and on its device. Lists are not
        taken. SciPy's, torch's and CuPy's sparse matrices are converted first.
    alpha, beta : number
        Python numbers that the result's dtype can hold.
    out : array, optional
        Takes the result: exactly its shape and dtype, any strides. Not read when beta is 0; may
        overlap `X`.
    kernel : str, optional
        Use this kernel, see `sparseformats.kernels`.
    precision : str, optional
        ``"tf32"`` allows a GPU to round float32 operands, ``"ieee"`` does not. By default neither
        does, unless torch's own switch (``torch.backends.cuda.matmul.fp32_precision``,
        ``torch.set_float32_matmul_precision``) allows it for CUDA tensors.
    assume_finite : bool
        Promise that the dense operand holds no NaN and no infinity.

    Returns
    -------
    array
        `out` if given, else a new array. A :class:`CSR` if both operands are sparse.

    Raises
    ------
    ValueError
        Shapes do not match; ``beta != 0`` without `out`; `out` of another shape or dtype.
    TypeError
        Operands of two libraries, or of kinds that cannot be multiplied.
    DeviceMismatchError
        Operands on two devices.
    NoKernelError
        No kernel can serve the call; the text has every reason.
    NotImplementedError
        An operand requires grad while grad mode is on.

    Notes
    -----
    The result's dtype is that of the library's promotion; int8 and int16 products are int32, uint8
    and uint16 uint32 (torch: int64), mixed signs int64. Half types are summed in float32 and
    rounded once (a `Sum` may be rounded more often, as its page in the reference tells). Wider
    integers wrap. Only stored elements of COO, CSR and CSC meet the operand; within a stored block
    of BSR and Blocked-ELL zeros do too (0 x inf = NaN), padding never does.

    Examples
    --------
    >>> import numpy as np
    >>> import sparseformats as sf
    >>> A = sf.CSR([2.0, 1.0, 5.0], [0, 0, 1], [0, 1, 3], (2, 2))
    >>> sf.matmul(A, np.array([1.0, 7.0]))
    array([ 2., 36.])
    """
    if DYNAMO in modules and watched():
        names: dict[str, Any] = {
            "kernel": kernel,
            "precision": precision,
            "assume_finite": assume_finite,
        }
        return opaque(matmul)(A, X, alpha=alpha, beta=beta, out=out, **names)
    if isinstance(alpha, np.generic):
        alpha = alpha.item()
    if isinstance(beta, np.generic):
        beta = beta.item()
    options = DEFAULTS
    if precision is not None or assume_finite or kernel is not None:
        options = Options(precision, assume_finite, kernel)
    key = None
    if type(alpha) in _NUMBERS and type(beta) in _NUMBERS:
        key, light = _find(A, X, out, alpha == 1, beta == 0, options)
        if light is not None:
            return _again(light, A, X, alpha, beta, out, options)
    return _anew(A, X, alpha, beta, out, options, key)


def explain(
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
) -> Explanation | SumExplanation:
    """Tell which kernel `matmul` would run for these arguments, and why not any other one.

    Computes nothing and loads no kernel; refuses the same arguments as `matmul`.

    Parameters
    ----------
    A, X, alpha, beta, out, kernel, precision, assume_finite
        As in `matmul`.
    reorder : bool or ``"always"``
        As in `plan`: tell what a plan would run.

    Returns
    -------
    Explanation
        Print it. Of a `Sum` a `SumExplanation`: one of each part, and how the parts are added.
    """
    a, b = as_sparse(A), as_sparse(X)
    if isinstance(a, SparseMatrix) and isinstance(b, SparseMatrix):
        return explain_sparse(a, b, alpha, beta, out, kernel)
    o = read(a, b)
    factor, summand = scalars_of(o, alpha, beta, out)
    options = Options(precision, assume_finite, kernel, reordering.as_reorder(reorder))
    if isinstance(o.matrix, Sum):
        return explain_parts(o, out, factor, summand, options)
    query = query_of(o, out, factor, summand, options)
    return reordering.explain(o, b if o.left else a, query, options)


@entry
def matmul_operator(a: Any, b: Any) -> Any:
    """``a @ b``; NotImplemented where an operand is of a type that we know nothing of."""
    if DYNAMO in modules and watched():
        return opaque(matmul_operator)(a, b)
    key, light = _find(a, b, None, True, True, DEFAULTS)
    if light is not None:
        if type(light) is Light:
            return execute(light, a if isinstance(b, SparseMatrix) else b, None, 1, 0)
        return _again(light, a, b, 1, 0, None, DEFAULTS)
    if is_foreign(a) or is_foreign(b):
        return NotImplemented
    return _anew(a, b, 1, 0, None, DEFAULTS, key)


def _find(
    a: Any, b: Any, out: Any, alpha_one: bool, beta_zero: bool, options: Options
) -> tuple[_Key | None, Light | sums.Parted | None]:
    """The key of a call, None where its facts are not known, and the plan found under it."""
    left = not isinstance(a, SparseMatrix)
    matrix, x = (b, a) if left else (a, b)
    lib = _arrays.known(x)
    if lib is None or (out is not None and _arrays.known(out) is not lib):
        return None, None
    facts = lib.facts(x)
    given = None if out is None else lib.facts(out)
    if facts is None or (given is None and out is not None):
        return None, None
    transposed = type(matrix) is Transposed
    entry = CACHE.find(matrix.base if transposed else matrix)
    state, generation = forcing.state(), REGISTRY.generation
    key: _Key
    key = (left, transposed, facts, given, alpha_one, beta_zero, options, state, generation)
    if entry is None:
        return key, None
    light: Any = entry.plans.get(_own(key, entry, matrix) if entry.apart else key)
    if light is not None:
        CACHE.touch(light)
    return key, light


def _own(key: _Key, entry: Entry, matrix: SparseMatrix) -> _Key:
    """The key where each thread and stream has plans of its own."""
    return (*key, *whereabouts(matrix.lib, entry.place)) if entry.apart else key


def _again(
    light: Light | sums.Parted, a: Any, b: Any, alpha: Any, beta: Any, out: Any, options: Options
) -> Any:
    """Run a plan that was found."""
    matrix, x = (a, b) if isinstance(a, SparseMatrix) else (b, a)
    if alpha != 1 or type(alpha) is complex:
        alpha = as_scalar(alpha, "alpha", light.dtype)
    if beta != 0 or type(beta) is complex:
        beta = as_scalar(beta, "beta", light.dtype)
    if type(light) is Light:
        return execute(light, x, out, alpha, beta)
    assert isinstance(light, sums.Parted)
    assert isinstance(matrix, Sum)
    return light.run(matrix, x, out, alpha, beta, lights(options, left=matrix is not a))


def _anew(
    a: Any, b: Any, alpha: Any, beta: Any, out: Any, options: Options, key: _Key | None
) -> Any:
    """Understand the call, choose a kernel, prepare, remember, run."""
    first, second = as_sparse(a), as_sparse(b)
    if isinstance(first, SparseMatrix) and isinstance(second, SparseMatrix):
        return sparse_product(first, second, alpha, beta, out, options.kernel)
    matrix, x = (first, second) if isinstance(first, SparseMatrix) else (second, first)
    kept = matrix is a or matrix is b  # else made from another library's matrix for this call only
    if isinstance(matrix, Sum):
        return _by_parts(first, second, alpha, beta, out, options, key)
    light, factor, summand = _prepared(first, second, alpha, beta, out, options, key, kept)
    return execute(light, x, out, factor, summand)


def _prepared(
    a: Any, b: Any, alpha: Any, beta: Any, out: Any, options: Options, key: _Key | None, kept: bool
) -> tuple[Light, Scalar, Scalar]:
    """A new light plan, remembered under `key` where it is `kept`, and the scalars."""
    o = read(a, b)
    factor, summand = scalars_of(o, alpha, beta, out)
    owner, x = (b, a) if o.left else (a, b)
    if out is not None:  # before anything is prepared
        separate(o.lib, x, out, o.matrix.buffers().values())
    with o.lib.on(o.matrix.device):
        o, query = judged(o, out, factor, summand, options)
        selection = dispatch.select(query, options.kernel)
        if not kept:
            packed = pack(o, query, selection)
            return Light(o, x, out, query, selection, packed), factor, summand
        entry, packed = packed_for(o, source(owner), query, selection)
        light = Light(o, x, out, query, selection, packed)
        if key is not None:
            CACHE.remember(entry, _own(key, entry, o.matrix), light)
    return light, factor, summand


def _by_parts(
    a: Any, b: Any, alpha: Any, beta: Any, out: Any, options: Options, key: _Key | None
) -> Any:
    """A product of a `Sum`, made of those of its parts."""
    o = read(a, b)
    factor, summand = scalars_of(o, alpha, beta, out)
    matrix, x = (b, a) if o.left else (a, b)
    made = sums.Parted(o, x, out)
    y = made.run(matrix, x, out, factor, summand, lights(options, left=o.left))
    if key is not None:
        entry = CACHE.entry(matrix, o.matrix.device, o.lib.watch(matrix.buffers().values()))
        made.packed = CACHE.keep(entry, sums.Parted, made.packed)
        CACHE.remember(entry, key, made)
    return y


def lights(options: Options, *, left: bool = False) -> sums.LightOf:
    """What finds or prepares the light plans of a sum's parts."""
    wider = options._replace(unrounded=True)

    def light_of(
        part: SparseMatrix, x: Array, out: Array | None, alpha: Scalar, beta: Scalar, wide: bool
    ) -> Light:
        a, b = (x, part) if left else (part, x)
        asked = wider if wide else options
        key, light = _find(a, b, out, alpha == 1, beta == 0, asked)
        if type(light) is Light:
            return light
        return _prepared(a, b, alpha, beta, out, asked, key, kept=True)[0]

    return light_of
