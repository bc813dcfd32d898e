"""What `convert` was asked for: a format string and a block size become a node of the graph."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from sparseformats.convert.graph import Node, formats
from sparseformats.formats import NM, SparseMatrix, Transposed
from sparseformats.formats.groups import check_pattern_numbers
from sparseformats.formats.inputs import as_blocksize

__all__ = ["BLOCKED", "node_of", "requested"]

BLOCKED = ("bsr", "blocked_ell")
_SQUARE = ("blocked_ell",)
_PATTERN = re.compile(r"([1-9][0-9]{0,8}):([1-9][0-9]{0,8})")


def node_of(A: SparseMatrix) -> Node:
    """The node of a matrix."""
    if isinstance(A, Transposed):
        name, key = node_of(A.base)
        return Node(f"{name}.T", key)
    if isinstance(A, NM):
        return Node("n:m", (A.n, A.m))
    return Node(A.family, A.blocksize if A.family in BLOCKED else None)


def requested(format: Any, blocksize: Any, source: Node, what: str = "to") -> Node:
    """The node that a format string and a block size name.

    Parameters
    ----------
    format : str
    blocksize : (R, C), int or None
        None takes over the source's, where it has one and that is legal.
    source : Node
    what : str
        The operation, for messages.

    Raises
    ------
    TypeError
        `format` is no string, or `blocksize` is not made of integers.
    ValueError
        Unknown format; missing, bad or superfluous block size.
    """
    base, pattern, turned = _parsed(format)
    if base not in BLOCKED:
        if blocksize is not None:
            raise ValueError(
                f"{what}({format!r}) takes no blocksize, got {blocksize!r}: only "
                f"{' and '.join(repr(name) for name in BLOCKED)} have blocks"
            )
        return Node(f"{base}.T" if turned else base, pattern)
    size = _inherited(source) if blocksize is None else as_blocksize(blocksize)
    if size is None:
        raise ValueError(
            f"{what}({format!r}) needs a block size and the source has none: pass "
            f"blocksize=(R, C), for example blocksize=(32, 32)"
        )
    if base in _SQUARE and size[0] != size[1]:
        inherited = "the source's are" if blocksize is None else "got"
        raise ValueError(
            f"{what}({format!r}) needs square blocks, {inherited} {size}: pass "
            f"blocksize=(R, C) with R == C"
        )
    return Node(f"{base}.T", (size[1], size[0])) if turned else Node(base, size)


def _inherited(source: Node) -> tuple[int, int] | None:
    name, key = source
    if key is None or name.removesuffix(".T") not in BLOCKED:
        return None
    return (key[1], key[0]) if name.endswith(".T") else key


@lru_cache(maxsize=256)
def _known(format: str) -> tuple[str, tuple[int, int] | None, bool]:
    base = format.removesuffix(".T")
    turned = base != format
    match = _PATTERN.fullmatch(base)
    if match is not None:
        n, m = int(match[1]), int(match[2])
        try:
            check_pattern_numbers(n, m)
        except ValueError as error:
            raise ValueError(f"unknown format {format!r}: {error}") from error
        return "n:m", (n, m), turned
    names = [name for name in formats() if name != "n:m"]
    if base not in names or (turned and base not in BLOCKED):
        raise ValueError(
            f"unknown format {format!r}, expected one of {', '.join(map(repr, names))} or a "
            "pattern such as '2:4'" + ("; use A.to_dense()" if format == "dense" else "")
        )
    return base, None, turned


def _parsed(format: Any) -> tuple[str, tuple[int, int] | None, bool]:
    if not isinstance(format, str):
        raise TypeError(f"format must be a string such as 'csr', got {format!r}")
    return _known(format)
