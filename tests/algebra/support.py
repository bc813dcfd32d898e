"""Oracles in plain Python: a matrix is a dict from places to 0-d NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from hypothesis import Phase, settings, strategies as st

from sparseformats import _arrays, _dtypes, reference
from sparseformats.reference import Content
from sparseformats.testing import (
    FORMATS,
    check_valid,
    host_dtype,
    matrices,
    register_strict,
    shapes,
)

register_strict()

LIBRARIES = ("numpy", "torch", "array_api_strict")
EXAMPLES: list[tuple[str, dict[str, Any]]] = [
    ("coo", {}),
    ("csr", {}),
    ("csc", {}),
    ("bsr", {"blocksize": (2, 3)}),
    ("blocked_ell", {"blocksize": 2}),
    ("2:4", {}),
    ("bsr.T", {"blocksize": (3, 2)}),
    ("2:4.T", {}),
]
Entries = dict[tuple[int, int], Any]


def host(x: Any) -> Any:
    """An array or scalar of any library as NumPy."""
    return _arrays.of(x).to_numpy(x) if _arrays.is_array(x) else np.asarray(x)


def array(x: Any, library: str = "numpy", dtype: str | None = None) -> Any:
    lib = _arrays.library(library)
    return lib.from_numpy(np.array(x, None if dtype is None else host_dtype(dtype)), "cpu")


ANY = (*FORMATS, "bsr.T", "blocked_ell.T", "n:m.T")
# A planted bug need not be shrunk, and may show in more ways than one.
PLANTED = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
)


@st.composite
def pairs(draw: Any, library: str, **options: Any) -> tuple[Any, Any]:
    """Two matrices of one shape; half of the time of one format and block size."""
    shape, alike = draw(shapes(6)), draw(st.booleans())
    common = draw(st.sampled_from(["csr", "bsr", "blocked_ell", "2:4", "bsr.T"]))
    if alike:
        options["blocksizes"] = (2, 2)
    found = []
    for _ in range(2):
        format = common if alike else draw(st.sampled_from(ANY))
        own = shape[::-1] if format.endswith(".T") else shape
        found.append(draw(matrices(format, library=library, shapes=own, **options)))
    return found[0], found[1]


def expect(B: Any, entries: Mapping[tuple[int, int], Any], shape: Any, dtype: str) -> None:
    """Check that `B` is valid and stores exactly `entries`, bit for bit."""
    check_valid(B)
    with np.errstate(all="ignore"):
        want = {at: np.asarray(v).astype(host_dtype(dtype)).tobytes() for at, v in entries.items()}
    found = reference.content(B)
    assert (found.shape, found.dtype) == (tuple(shape), dtype)
    assert found == Content(tuple(shape), dtype, found.elements)
    assert found.elements.keys() == want.keys()
    for at, bits in want.items():
        got = found.elements[at]
        assert got == bits or _both_nan(got, bits, dtype), (at, got, bits)


def _both_nan(a: bytes, b: bytes, dtype: str) -> bool:
    """NaN from arithmetic has an open payload, and torch spreads it over both complex parts."""
    x, y = (np.frombuffer(bits, host_dtype(dtype))[0] for bits in (a, b))
    return bool(x != x and y != y)


def moved(B: Any, entries: Mapping[tuple[int, int], Any], shape: Any) -> None:
    """Check that `B` is valid and stores exactly `entries`, every bit, NaN payloads too."""
    check_valid(B)
    found = reference.content(B)
    assert found.shape == tuple(shape)
    assert dict(found.elements) == {at: v.tobytes() for at, v in entries.items()}


def half_aware(op: Callable[[Any, Any], Any], a: Any, b: Any, dtype: str) -> Any:
    """``op`` in `dtype`, half types through float32."""
    work = host_dtype(_dtypes.accumulator(dtype))
    target = host_dtype(dtype)
    with np.errstate(all="ignore"):
        left, right = (np.asarray(x).astype(target).astype(work)[None] for x in (a, b))
        return op(left, right).astype(target)[0]
