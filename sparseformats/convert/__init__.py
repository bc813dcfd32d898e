"""Conversion between formats, to and from dense arrays, and to other libraries' objects.

`edges` is the table of steps, `graph` finds the shortest path over it, `run` takes a matrix along
the path; each pair of formats has its file. What crosses the border to SciPy, torch and CuPy is
in `interop`, which is imported when it is first needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparseformats.convert.edges import EDGES, Edge
from sparseformats.convert.entry import asformat, convert, from_dense, to_dense
from sparseformats.convert.explain import ConversionExplanation, explain_conversion
from sparseformats.convert.options import Options
from sparseformats.convert.same import same

if TYPE_CHECKING:
    from sparseformats.convert.interop import (
        from_cupy as from_cupy,
        from_scipy as from_scipy,
        from_torch as from_torch,
        to_cupy as to_cupy,
        to_device as to_device,
        to_library as to_library,
        to_scipy as to_scipy,
        to_torch as to_torch,
    )

__all__ = [
    "EDGES",
    "ConversionExplanation",
    "Edge",
    "Options",
    "asformat",
    "convert",
    "explain_conversion",
    "from_cupy",
    "from_dense",
    "from_scipy",
    "from_torch",
    "same",
    "to_cupy",
    "to_dense",
    "to_device",
    "to_library",
    "to_scipy",
    "to_torch",
]

_INTEROP = frozenset(
    ("from_cupy", "from_scipy", "from_torch")
    + ("to_cupy", "to_device", "to_library", "to_scipy", "to_torch")
)


def __getattr__(name: str) -> Any:
    if name not in _INTEROP:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sparseformats.convert import interop

    value = getattr(interop, name)
    globals()[name] = value
    return value
