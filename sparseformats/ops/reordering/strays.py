"""Rows that resemble no other one enough still belong somewhere: to the cluster most like them.

A row that stores few of its cluster's columns is linked late or never, stands somewhere among
strangers, and costs there as many blocks as a whole row of them. Clusters are judged by the columns
that most of their rows store.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sparseformats.ops.reordering.similarity import Host, Pattern, Tree

__all__ = ["gathered"]

LEAST = 8  # rows of a cluster that takes others in
MOST = 0.3  # of the rows may be strays
SHARE = 0.5  # of a cluster's rows store what is typical of it
PAIRS = 1 << 26  # of a stray's columns and clusters, at most


class _Profiles(NamedTuple):
    """Columns that are typical of clusters: of ``columns[i]``, ascending, it is ``owner[i]``."""

    columns: Host
    owner: Host
    sizes: Host  # typical columns of each cluster


def gathered(pattern: Pattern, found: Tree) -> Iterator[Tree]:
    """For each level of the tree, its large clusters with the strays that are like them.

    Rows that are like none come behind all clusters.
    """
    known = 0
    for starts in found.starts:
        if starts.size == known:
            continue
        known = starts.size
        sizes = np.diff(np.append(starts, found.rows.size))
        large = sizes >= LEAST
        strays = int(sizes[~large].sum())
        if 0 < strays <= MOST * found.rows.size:
            label = np.repeat(np.where(large, np.cumsum(large) - 1, -1), sizes)
            made = _gathered(pattern, found, label, int(large.sum()))
            if made is not None:
                yield made


def _gathered(pattern: Pattern, found: Tree, label: Host, clusters: int) -> Tree | None:
    """The tree whose rows have these clusters, -1 of strays, with the strays gathered in."""
    profiles = _profiles(pattern, found.rows, label, clusters)
    at = np.flatnonzero(label < 0)
    home = _homes(pattern, found.rows[at], profiles)
    if home is None:
        return None
    label = label.copy()
    label[at] = np.where(home < 0, clusters, home)
    order = np.argsort(label, kind="stable")
    starts = np.flatnonzero(np.diff(label[order], prepend=-1))
    return Tree(found.rows[order], found.empty, (starts,))


def _profiles(pattern: Pattern, rows: Host, label: Host, clusters: int) -> _Profiles:
    of_row = np.full(pattern.rows, -1)
    of_row[rows] = label
    owner = np.repeat(of_row, np.diff(pattern.ptr))
    mine = owner >= 0
    keys, stored = np.unique(pattern.columns[mine] * clusters + owner[mine], return_counts=True)
    keys = keys[stored >= SHARE * np.bincount(label[label >= 0])[keys % clusters]]
    owner = keys % clusters
    return _Profiles(keys // clusters, owner, np.bincount(owner, minlength=clusters))


def _homes(pattern: Pattern, rows: Host, profiles: _Profiles) -> Host | None:
    """The cluster that each row is most like, -1 where none has a column of it; None: too many."""
    counts = pattern.ptr[rows + 1] - pattern.ptr[rows]
    columns = pattern.columns[_ranges(pattern.ptr[rows], counts)]
    start = np.searchsorted(profiles.columns, columns)
    each = np.searchsorted(profiles.columns, columns, side="right") - start
    if each.sum() > PAIRS:
        return None
    clusters = profiles.sizes.size
    met = profiles.owner[_ranges(start, each)]
    row = np.repeat(np.repeat(np.arange(rows.size), counts), each)
    keys, shared = np.unique(row * clusters + met, return_counts=True)
    row, met = keys // clusters, keys % clusters
    alike = shared / (counts[row] + profiles.sizes[met] - shared)
    order = np.lexsort((met, -alike, row))
    first = order[np.flatnonzero(np.diff(row[order], prepend=-1))]
    home = np.full(rows.size, -1)
    home[row[first]] = met[first]
    return home


def _ranges(start: Host, counts: Host) -> Host:
    """``start[i], start[i] + 1, …``, so many of each, one behind the other."""
    ranges: Host = np.repeat(start - (np.cumsum(counts) - counts), counts)
    return ranges + np.arange(ranges.size)
