"""The one place that tells NumPy, torch and CuPy arrays apart.

Algorithms are written once against the array API (`ArrayLibrary.xp`) and the dozen primitives
that it lacks: scatter, bit views, stable lexicographic sorting, segment sums and a few more.
Nothing here imports torch or CuPy: a library is asked only when the caller already loaded it.

Values move by gather and scatter, never through arithmetic, so that NaN payloads and signs of
zero survive. What a value *is* (zero or not) is read from its bits: a process that flushes
subnormals to zero must not make them vanish.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import numpy as np

from sparseformats._arrays.base import Array, ArrayLibrary
from sparseformats._arrays.cupy_ import CuPyLibrary
from sparseformats._arrays.numpy_ import NumPyLibrary
from sparseformats._arrays.placing import placed, switching
from sparseformats._arrays.torch_ import TorchLibrary

__all__ = [
    "Array",
    "ArrayLibrary",
    "CuPyLibrary",
    "NumPyLibrary",
    "TorchLibrary",
    "is_array",
    "is_packed",
    "known",
    "library",
    "of",
    "placed",
    "register",
]

_KNOWN: dict[str, tuple[str, type[ArrayLibrary]]] = {
    "numpy": ("numpy", NumPyLibrary),
    "torch": ("torch", TorchLibrary),
    "cupy": ("cupy", CuPyLibrary),
}
_LOADED: dict[str, ArrayLibrary] = {"numpy": NumPyLibrary(np)}
_BY_TYPE: dict[type, ArrayLibrary] = {}


def register(name: str, module: str, cls: type[ArrayLibrary]) -> None:
    """Teach the library another kind of array (used by `sparseformats.testing`)."""
    _KNOWN[name] = (module, cls)


def _load(name: str, lib: ArrayLibrary) -> None:
    _LOADED[name] = lib
    if lib.switches:
        switching[name] = lib


def _already_loaded() -> Iterable[ArrayLibrary]:
    for name, (module, cls) in _KNOWN.items():
        if name not in _LOADED and module in sys.modules:
            _load(name, cls(sys.modules[module]))
        if name in _LOADED:
            yield _LOADED[name]


def library(name: str) -> ArrayLibrary:
    """Look a library up by name, importing it when it is asked for by name.

    Raises
    ------
    ValueError
        The name is none of ``"numpy"``, ``"torch"``, ``"cupy"``.
    ImportError
        The library is not installed.
    """
    if name not in _KNOWN:
        raise ValueError(f"unknown array library {name!r}, expected one of {sorted(_KNOWN)}")
    if name not in _LOADED:
        import importlib

        module, cls = _KNOWN[name]
        _load(name, cls(importlib.import_module(module)))
    return _LOADED[name]


def _find(x: object) -> ArrayLibrary | None:
    # Whether a library owns an array depends on its type alone, and each call asks many times.
    found = _BY_TYPE.get(type(x))
    if found is None:
        found = next((lib for lib in _already_loaded() if lib.owns(x)), None)
        if found is not None:
            _BY_TYPE[type(x)] = found
    return found


def known(x: object) -> ArrayLibrary | None:
    """Library of an array if one of its type was seen before: one look into a table."""
    return _BY_TYPE.get(type(x))


def is_array(x: object) -> bool:
    """Whether `x` is a dense array of a library that is loaded (lists are not)."""
    return _find(x) is not None


def is_packed(x: object) -> bool:
    """Whether `x` is one of torch's packed 2:4 tensors, which call themselves strided."""
    return type(x).__module__ == "torch.sparse.semi_structured"


def of(*arrays: Array) -> ArrayLibrary:
    """Library that all `arrays` belong to.

    Raises
    ------
    TypeError
        An argument is no array, or the arguments belong to different libraries.
    """
    found: ArrayLibrary | None = None
    for x in arrays:
        lib = _find(x)
        if lib is None:
            raise TypeError(f"expected a NumPy, torch or CuPy array, got {type(x).__name__}")
        if found is not None and lib is not found:
            raise TypeError(
                f"arrays of one call must come from one library, got {found.name} and {lib.name}; "
                "convert one side first, for example with to_library()"
            )
        found = lib
    if found is None:
        raise TypeError("expected at least one array")
    return found
