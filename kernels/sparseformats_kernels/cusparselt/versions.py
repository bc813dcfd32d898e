"""What differs between versions of the library: sizes of its structs, and functions it has.

A caller of the C interface keeps the library's opaque structs in memory of its own, so their size
is part of that interface. It has changed before (11,024 bytes in 0.4, 1,024 in 0.7, 512 in 0.8),
and a struct that is too small is memory overwritten in silence. So a version that is not listed
here is refused. Sizes are those of ``cusparseLt.h`` as NVIDIA's packages of each version have it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["KNOWN", "Layout", "Version", "known_versions", "written"]

Version = tuple[int, int, int]


class Layout(NamedTuple):
    """How a version is called.

    Attributes
    ----------
    size, alignment : int
        Bytes of each opaque struct: handle, descriptors, selection of an algorithm, plan.
    frees_selections : bool
        The selection of an algorithm is destroyed by a function of its own.
    """

    size: int
    alignment: int
    frees_selections: bool


KNOWN: Final[dict[tuple[int, int], Layout]] = {
    (0, 7): Layout(1024, 16, False),  # header of 0.7.1; it asks for no alignment
    (0, 8): Layout(512, 16, True),  # headers of 0.8.0 and 0.8.1
}
"""By the first two numbers of a version."""


def written(version: Version) -> str:
    """``"0.8.0"``."""
    return ".".join(map(str, version))


def known_versions() -> str:
    """The versions that can be called, for people."""
    return " or ".join(f"{major}.{minor}.x" for major, minor in KNOWN)
