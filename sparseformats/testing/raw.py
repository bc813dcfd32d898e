"""What a person may hand to a constructor, with an independent account of what it means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from sparseformats import _arrays, _dtypes, reference
from sparseformats.reference import Content
from sparseformats.testing._values import Host, host_dtype

__all__ = ["Choices", "Meaning", "Place", "RawInput"]

Place = tuple[int, int]


@dataclass(frozen=True)
class Choices:
    """What a strategy may draw: each field a Hypothesis strategy but `library`, `values`, `messy`.

    Attributes
    ----------
    dtypes, shapes, blocksizes, index_dtypes : strategy
        Of type names, of (m, k), of (R, C), of ``"int32"`` and ``"int64"``.
    patterns : strategy
        Of (n, m) for n:m formats.
    values : str or strategy
        See `sparseformats.testing.strategies.matrices`.
    library : str
        Name of the array library to build in.
    messy : bool
        Whether unsorted input and duplicates may be drawn.
    """

    dtypes: Any
    shapes: Any
    blocksizes: Any
    index_dtypes: Any
    patterns: Any
    values: Any = "any"
    library: str = "numpy"
    messy: bool = True

    def values_for(self, duplicates: bool) -> Any:
        """Kind of values to draw; sums of duplicates must be exact to have one right answer."""
        return "small" if duplicates else self.values


@dataclass(frozen=True, eq=False)
class RawInput:
    """Arguments of a constructor and what they mean.

    Attributes
    ----------
    format : str
        Format string of the matrix that they make.
    make : type
        Class to call.
    arrays : mapping of str to array
        NumPy arrays by argument name.
    options : mapping of str to object
        Every other argument.
    meaning : Content
        What the arguments mean: duplicates are summed, fill is left out.
    summed : frozenset of (i, j)
        Places whose value came from a sum: signs of zero and NaN payloads are open there.
    canonical : bool
        Whether the arrays are sorted and without duplicates already.
    """

    format: str
    make: Any
    arrays: Mapping[str, Host]
    options: Mapping[str, Any]
    meaning: Content
    summed: frozenset[Place] = frozenset()
    canonical: bool = True

    def arguments(self, library: str = "numpy", device: str = "cpu") -> dict[str, Any]:
        """All arguments, the arrays in another library and on another device."""
        lib = _arrays.library(library)
        given: dict[str, Any] = {}
        for name, value in {**self.arrays, **self.options}.items():
            if isinstance(value, np.ndarray):
                value = lib.from_numpy(value.copy(), device)
            elif isinstance(value, RawInput):
                value = value.build(library, device)
            elif isinstance(value, list):  # the parts of a sum
                value = [part.build(library, device) for part in value]
            given[name] = value
        return given

    def build(self, library: str = "numpy", device: str = "cpu", **options: Any) -> Any:
        """Call the constructor.

        Parameters
        ----------
        library, device : str
            Where the arrays go.
        **options : object
            Further arguments of the constructor, such as ``check=False``.
        """
        return self.make(**self.arguments(library, device), **options)

    def check(self, A: Any) -> None:
        """Raise AssertionError unless `A` is what the arguments mean."""
        found = reference.content(A)
        if (found.shape, found.dtype) != (self.meaning.shape, self.meaning.dtype):
            raise AssertionError(f"expected {self.meaning[:2]}, got {found[:2]}")
        expected = self.meaning.elements
        if found.elements.keys() != expected.keys():
            lost, new = expected.keys() - found.elements.keys(), found.elements.keys() - expected
            raise AssertionError(f"lost {sorted(lost)}, invented {sorted(new)}")
        for place, bits in expected.items():
            got = found.elements[place]
            if got != bits and not (place in self.summed and self._equal(got, bits)):
                raise AssertionError(f"at {place}: expected bits {bits.hex()}, got {got.hex()}")

    def _equal(self, got: bytes, expected: bytes) -> bool:
        dtype = host_dtype(self.meaning.dtype)
        return bool(np.frombuffer(got, dtype)[0] == np.frombuffer(expected, dtype)[0])


@dataclass
class Meaning:
    """Collects stored elements, several at one place allowed, and sums them."""

    shape: Place
    dtype: str
    found: dict[Place, list[Host]] = field(default_factory=dict)
    loose: set[Place] = field(default_factory=set)

    def add(self, i: int, j: int, value: Host) -> None:
        """Note one stored element."""
        self.found.setdefault((i, j), []).append(value.reshape(()))

    def finish(self) -> dict[str, Any]:
        """Fields `meaning` and `summed` of a `RawInput`."""
        elements = {place: self._total(values).tobytes() for place, values in self.found.items()}
        several = {place for place, values in self.found.items() if len(values) > 1}
        content = Content(self.shape, self.dtype, MappingProxyType(elements))
        return {"meaning": content, "summed": frozenset(several | self.loose)}

    def _total(self, values: list[Host]) -> Host:
        if len(values) == 1:
            return values[0].copy()
        wide = {"b": np.bool_, "i": np.int64, "u": np.uint64, "f": np.float64, "c": np.complex128}
        total: Host = values[0].astype(wide[_dtypes.kind(self.dtype)])
        for value in values[1:]:
            total = total + value.astype(total.dtype)  # of bools, `+` is "or"
        return np.asarray(total).astype(host_dtype(self.dtype))
