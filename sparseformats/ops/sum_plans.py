"""Explicit plans of products of a `Sum`: the plans of its parts, and how they are added."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any, NoReturn, final

from sparseformats import _arrays
from sparseformats._arrays import Array
from sparseformats._dtypes import accumulator
from sparseformats.dispatch import Query
from sparseformats.formats import Sum
from sparseformats.ops.compiling import DYNAMO, entry, modules, opaque, watched
from sparseformats.ops.operands import Operands, check_target, separate
from sparseformats.ops.plans import Plan
from sparseformats.ops.scalars import Scalar
from sparseformats.ops.sum_explaining import SumExplanation, explained
from sparseformats.ops.sums import added, delivered

__all__ = ["SumPlan"]


@final
class SumPlan:
    """A prepared product of a `Sum`; what `sparseformats.plan` returns for one.

    It holds buffers of the parts but no matrix. Calls from several threads are safe, and each sees
    the values of an update in all parts or in none.

    Attributes
    ----------
    query : Query
        The facts of the call that was planned.
    plans : tuple of Plan or None
        One for each part; None of a part without elements, for which nothing runs.
    explanation : SumExplanation
        Why the parts' kernels were chosen, and how their products are added.
    """

    __slots__ = (
        *("__weakref__", "_beta", "_device", "_dtype", "_idle", "_lib", "_lock", "_met"),
        *("_shape", "explanation", "plans", "query"),
    )

    def __init__(
        self, o: Operands, query: Query, beta: Scalar, plans: Sequence[Plan | None]
    ) -> None:
        A = o.matrix
        assert isinstance(A, Sum)
        self.query = query
        self.plans = tuple(plans)
        found = [None if plan is None else plan.explanation for plan in plans]
        self.explanation: SumExplanation = explained(o, query, found)
        self._beta, self._lib, self._device = beta, o.lib, A.device
        self._shape, self._dtype, self._lock = o.shape, o.dtype, Lock()
        self._met = [plan for plan in plans if plan is not None]
        pairs = zip(A.parts, plans, strict=True)
        self._idle = [x for part, plan in pairs if plan is None for x in part.buffers().values()]

    @property
    def kernel(self) -> str:
        """Names of the kernels that run, with ``+`` between."""
        return " + ".join(plan.kernel for plan in self._met)

    @entry
    def __call__(self, X: Array, *, out: Array | None = None) -> Array:
        """Multiply: ``out <- alpha * (A @ X) + beta * out``, with the planned alpha and beta.

        Parameters
        ----------
        X, out : array
            As of a `Plan`.

        Raises
        ------
        ValueError, RuntimeError
            As of a `Plan`; nothing was written then.
        """
        if DYNAMO in modules and watched():
            return opaque(SumPlan.__call__)(self, X, out=out)
        if out is None and self._beta != 0:
            raise ValueError(f"this plan has beta={self._beta!r}: give out=, which it scales")
        if out is not None:
            check_target(self._lib, self._device, self._shape, self._dtype, out)
        with self._lib.on(self._device):
            return self._multiplied(X, out)

    def _multiplied(self, X: Array, out: Array | None) -> Array:
        met, half = self._met, accumulator(self._dtype) != self._dtype
        with self._lock:  # no update comes between two parts
            values = [plan._values for plan in met]
        pairs = list(zip(met, values, strict=True))
        if len(met) > 1 and half:
            if out is not None:
                separate(self._lib, X, out, self._arrays())
            products = [plan._run(plan._light(X, None, v), X, None) for plan, v in pairs]
            total = added(self._lib, products, accumulator(self._dtype))
            return delivered(self._lib, total, out, self._beta, self._dtype)
        given = out
        if out is None:
            (first, v), *pairs = pairs
            out = first._run(first._light(X, None, v), X, None)
        lights = [plan._light(X, out, v) for plan, v in pairs]
        if given is not None:
            X = separate(self._lib, X, out, self._arrays())
        for (plan, _), light in zip(pairs, lights, strict=True):
            plan._run(light, X, out)
        return out

    def _arrays(self) -> list[Array]:
        """All buffers of the matrix."""
        return [*self._idle, *(x for plan in self._met for x in plan._values.arrays)]

    def update(self, values: Sequence[Array]) -> None:
        """Put new values on the same patterns; later calls use them.

        Parameters
        ----------
        values : sequence of arrays
            One for each part, as of `Plan.update`; of a part without elements an empty one.

        Raises
        ------
        ValueError
            Another number of arrays, or one that does not fit its part. The plan stays as it was.
        RuntimeError, TypeError, DeviceMismatchError
            As of `Plan.update`.
        """
        if _arrays.is_array(values) or not isinstance(values, Sequence):
            raise TypeError(
                f"update takes a list of {len(self.plans)} arrays, one for each part, got "
                f"{type(values).__name__}"
            )
        if len(values) != len(self.plans):
            raise ValueError(
                f"update takes an array for each of {len(self.plans)} parts, got {len(values)}"
            )
        made = []
        for i, (plan, x) in enumerate(zip(self.plans, values, strict=True)):
            if plan is not None:
                made.append((plan, plan._other(x)))
            else:
                self._require_none(i, x)
        with self._lock:
            for plan, new in made:
                plan._replace(new)

    def _require_none(self, i: int, x: Any) -> None:
        """Refuse values for part i, which stores nothing."""
        if not _arrays.is_array(x) or _arrays.of(x) is not self._lib:
            found = _arrays.of(x).name + " array" if _arrays.is_array(x) else type(x).__name__
            raise TypeError(f"update: part {i} takes an empty {self._lib.name} array, got {found}")
        if tuple(x.shape) != (0,):
            raise ValueError(f"update: part {i} stores nothing, got values {tuple(x.shape)}")

    def __repr__(self) -> str:
        return f"<SumPlan {self.kernel}, {self.query.describe()}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a SumPlan belongs to its process and device and cannot be pickled or copied; save the "
            "matrix and plan again with sparseformats.plan(A, X)"
        )
