"""Explicit plans: a product prepared once, called many times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from threading import Lock
from typing import Any, NoReturn, final

from sparseformats import _arrays
from sparseformats._arrays import Array
from sparseformats._dtypes import accumulator
from sparseformats.dispatch import Explanation, Query, Selection
from sparseformats.dispatch.plan_cache import PLANS, Packed
from sparseformats.formats import SparseMatrix
from sparseformats.ops.cache import source
from sparseformats.ops.compiling import DYNAMO, entry, modules, opaque, watched
from sparseformats.ops.facts import layout, matmul_query
from sparseformats.ops.light import Light, execute, is_apart, pack, refuse_capture, whereabouts
from sparseformats.ops.operands import Operands, check_out, read
from sparseformats.ops.preparing import packed_for
from sparseformats.ops.scalars import Scalar

__all__ = ["Plan"]


@final
class _Values:
    """The buffers of a matrix, and what was prepared from them."""

    __slots__ = ("arrays", "buffers", "cls", "is_current", "lights", "packed", "static")

    def __init__(self, matrix: SparseMatrix) -> None:
        self.cls: type[SparseMatrix] = type(matrix)
        self.buffers: Mapping[str, Array] = matrix.buffers()
        self.static: Mapping[str, Any] = matrix.static()
        self.arrays = tuple(self.buffers.values())
        self.is_current = matrix.lib.watch(self.arrays)
        self.packed: dict[tuple[int, ...], Packed] = {}
        self.lights: dict[tuple[Any, ...], Light] = {}

    def matrix(self) -> SparseMatrix:
        """A matrix over the buffers, which nobody else knows."""
        return self.cls.from_parts(self.buffers, self.static)


@final
class Plan:
    """A prepared product; what `sparseformats.plan` returns.

    It holds buffers of the matrix but not the matrix, so it outlives it. Calls from several
    threads are safe.

    Attributes
    ----------
    query : Query
        The facts of the call that was planned.
    """

    __slots__ = (
        *("__weakref__", "_alpha", "_apart", "_beta", "_device", "_left", "_lib", "_lock"),
        *("_selection", "_shape", "_values", "query"),
    )

    def __init__(
        self,
        o: Operands,
        owner: SparseMatrix,
        shape: tuple[int, ...],
        scalars: tuple[Scalar, Scalar],
        query: Query,
        selection: Selection,
    ) -> None:
        self.query = query
        self._selection = selection
        self._apart = is_apart(selection)
        self._lib = o.lib
        self._left = o.left
        self._device = o.matrix.device
        self._shape = shape
        self._alpha, self._beta = scalars
        self._values = _Values(owner)
        self._lock = Lock()

    @property
    def kernel(self) -> str:
        """Name of the kernel that runs."""
        return self._selection.name

    @property
    def explanation(self) -> Explanation:
        """Why that kernel was chosen, and why not any other one."""
        return self._selection.explanation

    @entry
    def __call__(self, X: Array, *, out: Array | None = None) -> Array:
        """Multiply: ``out <- alpha * (A @ X) + beta * out``, with the planned alpha and beta.

        Parameters
        ----------
        X : array
            Of the planned shape, dtype, layout (``"C"``, ``"F"`` or neither), library and device.
        out : array, optional
            Takes the result; as in `matmul`. Needed where beta is not 0.

        Raises
        ------
        ValueError
            `X` is not what was planned; the text has both sides. `out` cannot take the result,
            or the kernel cannot write to it.
        RuntimeError
            A CUDA graph is being recorded, and operands of these facts were not met before.
        """
        if DYNAMO in modules and watched():
            return opaque(Plan.__call__)(self, X, out=out)
        return self._run(self._light(X, out, self._values), X, out)

    def _run(self, light: Light, X: Array, out: Array | None) -> Array:
        return execute(light, X, out, self._alpha, self._beta)

    def _light(self, X: Array, out: Array | None, values: _Values) -> Light:
        """The light plan of operands of these facts and of these values, found or made."""
        lib = self._lib
        if values.is_current is not None and not values.is_current():
            values = self._replace(_Values(values.matrix()), values)
        light = None
        if _arrays.known(X) is lib and (out is None or _arrays.known(out) is lib):
            key: tuple[Any, ...] = (lib.facts(X), None if out is None else lib.facts(out))
            if self._apart:
                key = (*key, *whereabouts(lib, self._device))
            light = values.lights.get(key)
        if light is None:
            with lib.on(self._device):
                light = self._admit(values, X, out)
        return light

    def update(self, values: Array) -> None:
        """Put new values on the same pattern; later calls use them.

        Parameters
        ----------
        values : array
            Of the shape and dtype of the matrix's ``data``; copied. A stored value may become
            zero and stays stored.

        Raises
        ------
        ValueError
            Another shape or dtype, or a non-zero where nothing is stored. The plan stays as it
            was.
        RuntimeError
            A CUDA graph is being recorded.
        TypeError, DeviceMismatchError
            An array of another library; on another device.
        """
        self._replace(self._other(values))

    def _other(self, values: Array) -> _Values:
        """New values on the same pattern, checked."""
        refuse_capture(self._lib, self._device, apart=self._apart)  # checks read the values
        old = self._values.matrix()
        matrix = old.with_data(values)
        if matrix.dtype_name != old.dtype_name:
            raise ValueError(
                f"update: this plan is for values of {old.dtype_name}, got {matrix.dtype_name}"
            )
        return _Values(matrix)

    def __repr__(self) -> str:
        how = getattr(self._selection.target, "how", "")  # of a matrix that was put together anew
        return f"<Plan {self.kernel}, {self.query.describe()}{', ' * bool(how)}{how}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Plan belongs to its process and device and cannot be pickled or copied; save the "
            "matrix and plan again with sparseformats.plan(A, X)"
        )

    def _replace(self, values: _Values, old: _Values | None = None) -> _Values:
        """Use other values from now on; with `old`, only if no other thread has replaced those."""
        with self._lock:
            if old is None or self._values is old:
                self._values = values
            return self._values

    def _prepare(self, o: Operands, owner: SparseMatrix, x: Array, out: Array | None) -> None:
        """Share the state that implicit plans of the matrix use, or make it for them."""
        entry, packed = packed_for(o, source(owner), self.query, self._selection)
        place = whereabouts(o.lib, entry.place) if self._apart else ()
        self._values.packed[place] = packed
        if out is not None or self._beta == 0:
            self._admit(self._values, x, out)
        if out is None and self._device.startswith("cuda"):
            # A graph may record `plan(X, out=Y)` without a call before: prepare for a plain Y.
            self._admit(self._values, x, o.lib.empty(o.shape, o.dtype, self._device))

    def _admit(self, values: _Values, X: Any, out: Any) -> Light:
        """Check facts that were not seen before against the planned ones."""
        matrix = values.matrix()
        self._check(matrix, X)
        o = read(X, matrix) if self._left else read(matrix, X)
        o = replace(o, dtype=accumulator(o.dtype)) if self.query.wide else o
        query = self._query(o, out)
        refuse_capture(o.lib, self._device, apart=self._apart)  # to bind may compile or allocate
        place = whereabouts(o.lib, self._device) if self._apart else ()
        packed = values.packed.get(place)
        if packed is None:
            packed = values.packed.setdefault(place, pack(o, query, self._selection))
        light = Light(o, X, out, query, self._selection, packed)
        key = (o.lib.facts(X), None if out is None else o.lib.facts(out), *place)
        if key[0] is not None and (out is None or key[1] is not None):
            if len(values.lights) >= PLANS:
                values.lights.clear()
            values.lights[key] = light
        return light

    def _check(self, matrix: SparseMatrix, X: Any) -> None:
        if not _arrays.is_array(X) or _arrays.of(X) is not self._lib:
            found = _arrays.of(X).name if _arrays.is_array(X) else type(X).__name__
            raise ValueError(f"this plan is for a {self._lib.name} array, got {found}")
        lib, planned = self._lib, self.query
        shape = tuple(int(size) for size in X.shape)
        sides = [
            ("shape", self._shape, shape),
            ("dtype", planned.x_dtype, lib.dtype_name(X)),
            ("device", self._device, lib.device(X)),
        ]
        if shape == self._shape:
            sides.append(("layout", planned.x_layout, layout(lib, X, self._left)))
        differ = [(name, mine, its) for name, mine, its in sides if mine != its]
        if differ:
            mine = ", ".join(f"{name} {value}" for name, value, _ in differ)
            its = ", ".join(f"{name} {value}" for name, _, value in differ)
            raise ValueError(
                f"this plan is for X of {mine}, got {its}; make another with sparseformats.plan"
            )

    def _query(self, o: Operands, out: Any) -> Query:
        """The planned facts, with those of this `out`; the kernel must be able to serve them."""
        if out is None and self._beta != 0:
            raise ValueError(f"this plan has beta={self._beta!r}: give out=, which it scales")
        if out is not None:
            check_out(o, out)
        planned = self.query
        query = matmul_query(
            o,
            out,
            alpha_one=planned.alpha_one,
            beta_zero=planned.beta_zero,
            precision=planned.precision,
            assume_finite=planned.assume_finite,
            wide=planned.wide,
        )
        reasons = self._selection.record.reasons(query)
        if reasons:
            raise ValueError(
                f"{self.kernel}, which this plan uses, cannot serve this call: "
                + "; ".join(map(str, reasons))
            )
        return query
