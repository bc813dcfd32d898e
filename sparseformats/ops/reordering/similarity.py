"""An order of rows in which those with alike columns stand together; reads a pattern only.

Rows are compared by MinHash signatures of the block columns that they store: the share of hashes
upon which two rows agree estimates the Jaccard similarity of their sets. Rows that agree upon a
band of hashes are linked, and links make nested clusters, from nearly equal rows to remotely alike
ones; the order goes through these as through a tree. So no threshold has to be guessed, and rows
that are like no other stay where they were. All hashes have fixed seeds: equal patterns give equal
orders. Time grows with the stored elements, and as a sort with the rows.

References
----------
A. Z. Broder, "On the resemblance and containment of documents", SEQUENCES 1997 (MinHash).
P. Indyk, R. Motwani, "Approximate nearest neighbors", STOC 1998 (bands of hashes).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Order", "Pattern", "Tree", "blocks_of", "coarse", "orders", "tree"]

Host = np.ndarray[Any, np.dtype[Any]]

HASHES = 64
BAND = 2  # hashes upon which linked rows agree; rows half alike hardly ever miss each other
LEVELS = tuple(level / 100 for level in range(95, 14, -8))  # similarity within clusters, by level
ROOM = 1.25  # times as many rows, at most, once clusters begin with blocks of their own
CHUNK = 1 << 17  # entries that are hashed at a time
BITMAP = 1 << 26  # places of blocks that are counted without a sort


class Pattern(NamedTuple):
    """Block columns that rows store.

    Attributes
    ----------
    ptr : (m + 1,) int64
        Entries of row i are ``columns[ptr[i]:ptr[i + 1]]``, ascending.
    columns : (entries,) int64
        Block columns.
    width : int
        Columns of each.
    extent : int
        Columns of the matrix.
    """

    ptr: Host
    columns: Host
    width: int
    extent: int

    @property
    def rows(self) -> int:
        """Rows of the matrix."""
        return self.ptr.size - 1


class Order(NamedTuple):
    """Where rows go.

    Attributes
    ----------
    places : (m,) int64 or None
        New place of each row; None where all stay.
    rows : int
        Places; more than rows where clusters are padded to whole blocks.
    """

    places: Host | None
    rows: int


class Tree(NamedTuple):
    """Rows in an order in which clusters within clusters stand together.

    Attributes
    ----------
    rows : (filled,) int64
        Rows that store anything, in that order.
    empty : (m - filled,) int64
        The others.
    starts : tuple of arrays
        Of each of `LEVELS`, where in `rows` its clusters begin.
    """

    rows: Host
    empty: Host
    starts: tuple[Host, ...]


def coarse(pattern: Pattern, width: int) -> Pattern:
    """The pattern in blocks of more columns, a multiple of those of `pattern`."""
    if width == pattern.width:
        return pattern
    columns = pattern.columns // (width // pattern.width)
    first = np.ones(columns.size, bool)
    np.not_equal(columns[1:], columns[:-1], out=first[1:])
    first[pattern.ptr[:-1][np.diff(pattern.ptr) > 0]] = True
    before = np.concatenate([[0], np.cumsum(first)])
    return Pattern(before[pattern.ptr], columns[first], width, pattern.extent)


def blocks_of(pattern: Pattern, order: Order, high: int, wide: int) -> int:
    """Blocks of `high` rows and `wide` columns that hold any entry, in this order."""
    places = np.arange(pattern.rows) if order.places is None else order.places
    row = np.repeat(places // high, np.diff(pattern.ptr))
    across = -(-pattern.extent // wide)
    keys = row * across + pattern.columns // (wide // pattern.width)
    total = -(-order.rows // high) * across
    if total > max(BITMAP, 8 * keys.size):
        return int(np.unique(keys).size)
    met = np.zeros(total, bool)
    met[keys] = True
    return int(np.count_nonzero(met))


def tree(pattern: Pattern) -> Tree:
    """Nested clusters of the rows that store anything."""
    counts = np.diff(pattern.ptr)
    filled, empty = np.flatnonzero(counts), np.flatnonzero(counts == 0)
    if not filled.size:
        return Tree(filled, empty, ())
    ptr = np.append(pattern.ptr[filled], pattern.ptr[-1])
    labels = _clusters(_signatures(pattern._replace(ptr=ptr)))
    order = np.lexsort((np.arange(filled.size), *labels))
    starts = tuple(np.flatnonzero(np.diff(label[order], prepend=-1)) for label in labels)
    return Tree(filled[order], empty, starts)


def orders(found: Tree, high: int) -> Iterator[Order]:
    """Orders that group alike rows, for blocks of `high` rows.

    The first has no room between clusters; in the others those of one level begin with blocks of
    their own, where that makes the matrix little higher.
    """
    count = found.rows.size
    if not count:
        return
    at = np.arange(count)
    yield _placed(found, at)
    known = 0
    for starts in found.starts:
        sizes = np.diff(np.append(starts, count))
        padded = -(-sizes // high) * high
        if starts.size == known or padded.sum() > ROOM * count + high:
            continue
        known = starts.size
        yield _placed(found, at + np.repeat(np.cumsum(padded) - padded - starts, sizes))


def _placed(found: Tree, at: Host) -> Order:
    """Rows at places, with empty rows in the gaps and behind."""
    count = found.rows.size + found.empty.size
    free = np.ones(max(int(at[-1]) + 1, count), bool)  # there is room: each row takes one place
    free[at] = False
    places = np.empty(count, np.int64)
    places[found.rows] = at
    places[found.empty] = np.flatnonzero(free)[: found.empty.size]
    return Order(places, int(places.max()) + 1)


def _mixed(columns: Host) -> Host:
    """Hashes of block columns: (columns, HASHES) uint32, by the finaliser of MurmurHash3."""
    seeds = np.arange(1, HASHES + 1, dtype=np.uint32) * np.uint32(0x9E3779B1)
    x = (columns + 1).astype(np.uint32)[:, None] * np.uint32(0x85EBCA6B) ^ seeds
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x ^= x >> np.uint32(shift)
        x *= np.uint32(factor)
    x ^= x >> np.uint32(16)
    return x


def _signatures(pattern: Pattern) -> Host:
    """The least hashes of each row: (rows, HASHES); every row has an entry."""
    # Of the columns that are met: of huge shapes with few elements these are a small part.
    met, at = np.unique(pattern.columns, return_inverse=True)
    hashes, ptr = _mixed(met), pattern.ptr
    found = np.empty((pattern.rows, HASHES), np.uint32)
    first = 0
    while first < pattern.rows:
        last = int(np.searchsorted(ptr, ptr[first] + CHUNK, side="right")) - 1
        last = min(max(last, first + 1), pattern.rows)
        here = hashes[at[ptr[first] : ptr[last]]]
        np.minimum.reduceat(here, ptr[first:last] - ptr[first], axis=0, out=found[first:last])
        first = last
    return found


def _clusters(signatures: Host) -> list[Host]:
    """The cluster of each row, named by its first row, for each of `LEVELS`."""
    a, b = _links(signatures)
    alike = np.empty(a.size, np.float32)
    for start in range(0, a.size, CHUNK):
        piece = slice(start, start + CHUNK)
        alike[piece] = (signatures[a[piece]] == signatures[b[piece]]).mean(axis=1)
    label = np.arange(len(signatures))
    labels = []
    for level in LEVELS:
        near = alike >= level
        label = _joined(label, a[near], b[near])
        labels.append(label)
    return labels


def _links(signatures: Host) -> tuple[Host, Host]:
    """Pairs of rows that agree upon a band, each with its next; as many as rows for each band."""
    wide = signatures.astype(np.uint64)
    keys = [wide[:, i] << np.uint64(32) | wide[:, i + 1] for i in range(0, HASHES, BAND)]
    pairs = []
    for i, key in enumerate(keys):
        # Rows that agree upon the next band too stand together: more likely of one cluster.
        order = np.lexsort((keys[i - 1], key))
        same = key[order[1:]] == key[order[:-1]]
        a, b = order[:-1][same], order[1:][same]
        pairs.append(np.minimum(a, b) * len(wide) + np.maximum(a, b))
    found = np.unique(np.concatenate(pairs))
    return found // len(wide), found % len(wide)


def _joined(label: Host, a: Host, b: Host) -> Host:
    """Clusters after joining those of the rows a[i] and b[i]; each is named by its first row."""
    label = label.copy()
    while True:
        x, y = label[a], label[b]
        low, high = np.minimum(x, y), np.maximum(x, y)
        apart = low != high
        if not apart.any():
            return label
        np.minimum.at(label, high[apart], low[apart])
        while True:
            further = label[label]
            if (further == label).all():
                break
            label = further
