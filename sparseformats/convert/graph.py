"""Shortest paths over the table of edges.

A node is a format with its block size or pattern, so that ``bsr`` in (2, 2) and in (3, 3) are two
places, and Blocked-ELL is reached only from a BSR of the same square blocks.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from sparseformats.convert.edges import EDGES, Edge
from sparseformats.convert.options import Options
from sparseformats.errors import LossyConversionError

__all__ = ["Node", "Step", "formats", "mirrored_name", "path"]

_HOP = 0.5  # cost of one more step, so that a direct edge wins over two as cheap ones
_STRIDED = 30.0  # more for reading a dense array column by column
_SELF_MIRRORED = ("dense",)
_MIRRORS = {"csr": "csc", "csc": "csr"}
_WITH_TRANSPOSE = ("bsr", "blocked_ell", "n:m")
_SQUARE = ("blocked_ell", "blocked_ell.T")

Pair = tuple[int, int]


class Node(NamedTuple):
    """A format and, where it has one, its block size or its (n, m).

    The key of a transposed format is that of its base.
    """

    name: str
    key: Pair | None = None


class Step(NamedTuple):
    """An edge on a path; `mirrored` says that it is run on the transposed matrix."""

    edge: Edge
    mirrored: bool
    source: Node
    target: Node

    @property
    def options(self) -> Options:
        """What the edge is told."""
        key, name = self.target.key, self.edge.target
        if key is None:
            return Options()
        return Options(n=key[0], m=key[1]) if name == "n:m" else Options(blocksize=key)


def mirrored_name(name: str) -> str | None:
    """Format of ``A.T`` where transposing moves no data, else None."""
    if name in _SELF_MIRRORED:
        return name
    if name.endswith(".T"):
        return name[:-2]
    return f"{name}.T" if name in _WITH_TRANSPOSE else _MIRRORS.get(name)


def formats() -> tuple[str, ...]:
    """Names that a matrix can be converted to, in the order of the table."""
    return tuple(dict.fromkeys(e.target for e in EDGES if e.target != "dense"))


@lru_cache(maxsize=1)
def _outgoing() -> dict[str, list[tuple[Edge, bool, str]]]:
    """Edges by the format they leave: the edge, whether mirrored, the format they reach."""
    found: dict[str, list[tuple[Edge, bool, str]]] = {}
    for edge in EDGES:
        found.setdefault(edge.source, []).append((edge, False, edge.target))
    direct = {(edge.source, edge.target) for edge in EDGES}
    for edge in EDGES:
        source, target = mirrored_name(edge.source), mirrored_name(edge.target)
        if source is not None and target is not None and (source, target) not in direct:
            found.setdefault(source, []).append((edge, True, target))
    return found


def _steps(node: Node, goal: Node) -> Iterator[Step]:
    for edge, mirrored, name in _outgoing().get(node.name, ()):
        key = node.key
        if edge.key == "none":
            key = None
        elif edge.key == "new":
            key = _wanted(name, goal)
            if key is None:
                continue
        elif edge.key == "swap" and key is not None:
            key = key[1], key[0]
        if name in _SQUARE and key is not None and key[0] != key[1]:
            continue
        yield Step(edge, mirrored, node, Node(name, key))


def _weight(step: Step) -> float:
    strided = step.mirrored and step.source.name == "dense"
    return step.edge.cost + _HOP + _STRIDED * strided


def _wanted(name: str, goal: Node) -> Pair | None:
    """Key that a freely chosen `name` must have to lead to the goal; None where it leads away."""
    if goal.key is None or (name.startswith("n:m") != goal.name.startswith("n:m")):
        return None
    turned = name.endswith(".T") != goal.name.endswith(".T") and not name.startswith("n:m")
    return (goal.key[1], goal.key[0]) if turned else goal.key


@lru_cache(maxsize=4096)
def path(source: Node, target: Node) -> tuple[Step, ...]:
    """Cheapest steps from one node to another; empty where they are one.

    Raises
    ------
    LossyConversionError
        No edges lead there.
    """
    heap: list[tuple[float, int, Node, tuple[Step, ...]]] = [(0.0, 0, source, ())]
    done: set[Node] = set()
    pushed = 0
    while heap:
        cost, _, node, steps = heapq.heappop(heap)
        if node == target:
            return steps
        if node in done:
            continue
        done.add(node)
        if node.name == "dense" and steps:
            continue  # nothing goes through dense unasked
        for step in _steps(node, target):
            pushed += 1
            heapq.heappush(heap, (cost + _weight(step), pushed, step.target, (*steps, step)))
    raise LossyConversionError(
        f"no conversion leads from {source.name} to {target.name} without losing something"
    )
