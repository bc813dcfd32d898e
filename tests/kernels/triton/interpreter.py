"""Triton's interpreter as a checker of memory: what hardware forgives now and then never passes.

The interpreter reads and writes raw addresses, so a load beyond an array goes unnoticed. Within
`checked` every address must lie in a tensor that was passed to the launch, and no two programs of a
launch may meet in one element unless both only read it: on a GPU their order is not defined.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.tools.tensor_descriptor import TensorDescriptor

__all__ = ["Checker", "Launch", "MemoryFault", "checked", "repaired"]

Host = np.ndarray[Any, np.dtype[Any]]


class MemoryFault(AssertionError):
    """An access that is wrong, whether or not it shows in the result."""


@dataclass
class Launch:
    """One launch: the memory that it may touch, and what it touched.

    Attributes
    ----------
    name : str
        Of the kernel.
    arrays : list of (first byte, end, description)
    reads, writes : list of (number of the program, addresses)
    """

    name: str
    arrays: list[tuple[int, int, str]]
    reads: list[tuple[int, Host]] = field(default_factory=list)
    writes: list[tuple[int, Host]] = field(default_factory=list)
    accesses: int = 0

    def check(self, what: str, program: tuple[int, ...], at: Host, size: int) -> None:
        """Raise where an access of `size` bytes is not inside one array."""
        starts = np.array([start for start, _, _ in self.arrays], np.uint64)
        ends = np.array([end for _, end, _ in self.arrays], np.uint64)
        inside = np.zeros(at.shape, np.bool_)
        for start, end in zip(starts, ends, strict=True):
            inside |= (at >= start) & (at + np.uint64(size) <= end)
        self.accesses += at.size
        if not inside.all():
            raise MemoryFault(self._describe(what, program, int(at[~inside][0])))

    def _describe(self, what: str, program: tuple[int, ...], at: int) -> str:
        def distance(array: tuple[int, int, str]) -> int:
            return max(array[0] - at, at - array[1] + 1)

        text = f"{self.name}, program {program}, {what} outside every array that it was given"
        if not self.arrays:
            return text
        start, end, name = min(self.arrays, key=distance)
        where = f"{at - end} bytes behind" if at >= end else f"{start - at} bytes before"
        return f"{text}: {where} {name}"

    def finish(self) -> None:
        """Raise where programs met: two that write an element, or one that reads another's."""
        at, by = self._written()
        if not at.size:
            return
        twice = np.flatnonzero(at[1:] == at[:-1])
        if twice.size:
            pair = sorted((int(by[twice[0]]), int(by[twice[0] + 1])))
            raise MemoryFault(f"{self.name}: programs {pair} write one element: a race")
        for program, seen in self.reads:
            found = np.minimum(np.searchsorted(at, seen), at.size - 1)
            foreign = (at[found] == seen) & (by[found] != program)
            if foreign.any():
                other = int(by[found][foreign][0])
                raise MemoryFault(
                    f"{self.name}: program {program} reads what program {other} writes: a race"
                )

    def _written(self) -> tuple[Host, Host]:
        """Addresses that were written, ascending, one a program, and the program of each."""
        if not self.writes:
            return np.zeros(0, np.uint64), np.zeros(0, np.int64)
        at = np.concatenate([found for _, found in self.writes])
        by = np.concatenate([np.full(found.size, who) for who, found in self.writes])
        pairs = np.unique(np.stack([at.astype(np.int64), by], axis=1), axis=0)
        return pairs[:, 0].astype(np.uint64), pairs[:, 1]


class Checker:
    """Stands where the interpreter has its raw memory functions.

    Attributes
    ----------
    launches : list of Launch
        All that ran, so that a test can tell that something did.
    """

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self.launches: list[Launch] = []
        self._open: Launch | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def load(self, ptrs: Host, mask: Host, other: Host, dtype: Any) -> Any:
        self._note("reads", ptrs, mask, np.dtype(dtype).itemsize)
        return self._raw.load(ptrs, _boolean(mask), other, dtype)

    def store(self, ptrs: Host, value: Host, mask: Host) -> Any:
        self._note("writes", ptrs, mask, value.dtype.itemsize)
        return self._raw.store(ptrs, value, _boolean(mask))

    def atomic_rmw(self, op: Any, ptrs: Host, value: Host, mask: Host, order: Any) -> Any:
        self._note("atomically writes", ptrs, mask, value.dtype.itemsize)
        return self._raw.atomic_rmw(op, ptrs, value, _boolean(mask), order)

    def atomic_cas(self, ptrs: Host, old: Host, new: Host, order: Any) -> Any:
        self._note("atomically writes", ptrs, np.ones(ptrs.shape, np.bool_), new.dtype.itemsize)
        return self._raw.atomic_cas(ptrs, old, new, order)

    def _note(self, what: str, ptrs: Host, mask: Host, size: int) -> None:
        launch = self._open
        if launch is None:
            return
        allowed = np.broadcast_to(mask, ptrs.shape).astype(np.bool_)
        at = ptrs[allowed].astype(np.uint64)
        index = interpreter.interpreter_builder.grid_idx
        launch.check(what, tuple(int(i) for i in index), at, size)
        grid = interpreter.interpreter_builder.grid_dim
        program = int(np.ravel_multi_index(index, grid))
        if what == "reads":
            launch.reads.append((program, np.unique(at)))
        elif what == "writes":
            launch.writes.append((program, np.unique(at)))

    @contextmanager
    def launch(self, name: str, arguments: list[Any]) -> Iterator[None]:
        """Check what runs in the block against these arguments."""
        self._open = Launch(name, list(_spans(arguments)))
        self.launches.append(self._open)
        try:
            yield
            self._open.finish()
        finally:
            self._open = None


def _boolean(mask: Host) -> Host:
    """A mask as it was meant: the interpreter makes integers of one joined with a scalar."""
    return np.ascontiguousarray(mask, np.bool_)


def _spans(arguments: list[Any]) -> Iterator[tuple[int, int, str]]:
    """First byte, end and description of every tensor among the arguments of a launch."""
    for number, x in enumerate(arguments):
        if isinstance(x, (tuple, list)):
            yield from _spans(list(x))
        elif isinstance(x, TensorDescriptor):
            yield from _spans([x.base])
        elif hasattr(x, "data_ptr") and 0 not in x.shape:
            last = sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True))
            start, size = x.data_ptr(), x.element_size()
            yield start, start + (last + 1) * size, f"argument {number}, {x.dtype} {list(x.shape)}"


def _indexed(patch: Any) -> Any:
    """Let loaded values bound a ``range``: with NumPy 2.4, Triton 3.6 cannot read them."""

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    return patched


_NARROW = {tl.bfloat16: ml_dtypes.bfloat16, tl.float8e4nv: ml_dtypes.float8_e4m3fn}


def _rounding(convert: Any) -> Any:
    """Round float32 to the nearest, as a GPU does: the interpreter cuts bits off, and wraps."""
    nearest = (None, interpreter._ir.ROUNDING_MODE.RTNE)

    def converted(x: Host, source: Any, target: Any, mode: Any) -> Host:
        if source == tl.float32 and target in _NARROW and mode in nearest:
            narrow, bits = _NARROW[target], f"u{target.primitive_bitwidth // 8}"
            if target == tl.float8e4nv:  # as the instruction, which leaves NaN alone
                x = np.where(np.isnan(x), x, np.clip(x, -448, 448)).astype(np.float32)
            return x.astype(narrow).view(bits)
        if source in _NARROW and target == tl.float32:
            return x.view(_NARROW[source]).astype(np.float32).view(np.uint32)
        found: Host = convert(x, source, target, mode)
        return found

    return converted


@contextmanager
def repaired() -> Iterator[None]:
    """Run interpreted kernels as a GPU would: bounds of loops, roundings, NaN without warnings."""
    with (
        np.errstate(all="ignore"),  # NaN and infinity are ordinary values
        mock.patch.object(interpreter, "_convert_float", _rounding(interpreter._convert_float)),
        mock.patch.object(
            interpreter, "_patch_lang_tensor", _indexed(interpreter._patch_lang_tensor)
        ),
    ):
        yield


@contextmanager
def checked() -> Iterator[Checker]:
    """Run interpreted kernels, `repaired`, with every access checked.

    Yields
    ------
    Checker

    Raises
    ------
    MemoryFault
        From the launch that accesses what it must not.
    """
    checker = Checker(interpreter._interpreter)
    whole = interpreter.GridExecutor.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with checker.launch(self.fn.__name__, [*args, *kwargs.values()]):
            try:
                return whole(self, *args, **kwargs)
            except interpreter.InterpreterError as error:
                fault = _fault_in(error)
                if fault is None:
                    raise
                raise fault from None

    with (
        repaired(),
        mock.patch.object(interpreter, "_interpreter", checker),
        mock.patch.object(interpreter.GridExecutor, "__call__", call),
    ):
        yield checker


def _fault_in(error: BaseException | None) -> MemoryFault | None:
    """The fault that the interpreter wrapped in its own errors, if there is one."""
    while error is not None:
        if isinstance(error, MemoryFault):
            return error
        error = error.__cause__
    return None
