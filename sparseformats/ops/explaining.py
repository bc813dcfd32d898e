"""Why a kernel: `explain` for every operation by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparseformats.dispatch import Explanation
from sparseformats.ops.layer import explain_linear
from sparseformats.ops.product import explain as explain_matmul
from sparseformats.ops.sampled import explain_sddmm
from sparseformats.ops.sum_explaining import SumExplanation

__all__ = ["explain"]

_OPERATIONS: dict[str, Callable[..., Explanation | SumExplanation]] = {
    "matmul": explain_matmul,
    "linear": explain_linear,
    "sddmm": explain_sddmm,
}


def explain(*operands: Any, **options: Any) -> Explanation | SumExplanation:
    """Tell which kernel a call would run, and why not any other one.

    ``explain(A, X)`` is about `matmul`; ``explain(op, …)`` about ``"matmul"``, ``"linear"`` or
    ``"sddmm"`` with that operation's own arguments. Computes nothing and loads no kernel;
    refuses the arguments that the operation refuses.

    Parameters
    ----------
    *operands, **options
        As of the operation, but for `out` of `linear`; of `matmul` also `reorder` as of `plan`.

    Returns
    -------
    Explanation
        Print it, or take ``to_dict()``. Of a `Sum` a `SumExplanation`: one for each part.

    Raises
    ------
    ValueError
        No operation of that name; `explain_conversion` tells about conversions.
    TypeError, ValueError, DeviceMismatchError, NotImplementedError
        As of the operation.

    Examples
    --------
    >>> import numpy as np
    >>> import sparseformats as sf
    >>> A = sf.eye(4)
    >>> sf.explain(A, np.ones(4)).chosen == sf.explain("matmul", A, np.ones(4)).chosen
    True
    >>> sf.explain("sddmm", A, np.ones((4, 2)), np.ones((2, 4))).chosen is not None
    True
    """
    if not (operands and isinstance(operands[0], str)):
        return explain_matmul(*operands, **options)
    op, *rest = operands
    if op not in _OPERATIONS:
        raise ValueError(
            f"explain knows {', '.join(map(repr, _OPERATIONS))}, got {op!r}; for conversions use "
            "explain_conversion(A, format)"
        )
    return _OPERATIONS[op](*rest, **options)
