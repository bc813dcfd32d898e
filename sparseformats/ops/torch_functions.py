"""What torch's own functions do when one of their arguments is a matrix of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparseformats.formats import SparseMatrix
from sparseformats.ops.compiling import DYNAMO, entry, modules, opaque, watched
from sparseformats.ops.layer import linear
from sparseformats.ops.product import matmul

__all__ = ["torch_function"]


@entry
def torch_function(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Answer for ``func(*args, **kwargs)``, a function or method of torch.

    Raises
    ------
    TypeError
        The function has no meaning here; the text names it.
    """
    if DYNAMO in modules and watched():
        return opaque(torch_function)(func, args, kwargs)
    name = getattr(func, "__name__", str(func))
    answer = _ANSWERS.get(name)
    if answer is None:
        raise TypeError(
            f"torch's {name} does not take a matrix of sparseformats; torch.matmul, torch.mm, "
            "torch.nn.functional.linear and @ do, and A.to_torch() or A.to_dense() make tensors"
        )
    return answer(*args, **kwargs)


def _matmul(input: Any, other: Any, *, out: Any = None) -> Any:
    return matmul(input, other, out=out)


def _mm(input: Any, mat2: Any, *, out: Any = None) -> Any:
    for x in (input, mat2):
        if len(x.shape) != 2:
            raise ValueError(f"torch.mm takes two matrices, got shape {tuple(x.shape)}")
    return matmul(input, mat2, out=out)


def _rmatmul(self: Any, other: Any) -> Any:
    return matmul(other, self)


def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    if not isinstance(weight, SparseMatrix):
        raise TypeError("torch.nn.functional.linear takes a sparse weight, not a sparse input")
    return linear(input, weight, bias)


_ANSWERS: dict[str, Callable[..., Any]] = {
    "matmul": _matmul,
    "__matmul__": _matmul,
    "__rmatmul__": _rmatmul,
    "mm": _mm,
    "linear": _linear,
}
