"""The blocks that a grouping of a matrix's rows makes, found once and kept with the matrix.

There are two ways. Rows of elements can be grouped and cut into blocks, which then hold zeros
where nothing is stored. Or whole block rows of a BSR matrix are put next to those that store the
same block columns, for kernels whose block rows share what they read; that adds no zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Any, NamedTuple, final

import numpy as np

from sparseformats._arrays import Array
from sparseformats._dtypes import INT32_MAX, itemsize
from sparseformats.convert import convert
from sparseformats.dispatch import Query, density_bucket
from sparseformats.dispatch.plan_cache import Packed
from sparseformats.formats import CSR, SparseMatrix, Transposed
from sparseformats.ops.cache import CACHE, source
from sparseformats.ops.facts import ALIGNMENT
from sparseformats.ops.operands import Operands
from sparseformats.ops.reordering import similarity
from sparseformats.ops.reordering.similarity import Order, Pattern, Tree
from sparseformats.ops.reordering.strays import gathered

__all__ = ["SHARING", "SIZES", "Blocks", "Groupings", "elements", "of_block_rows", "of_rows"]

SIZES = ((16, 16), (32, 32), (64, 16), (64, 32), (64, 64), (128, 64))
"""Rows and columns of the blocks that are tried."""
SHARING = (16, 32)
"""Rows of blocks whose block rows share what they read in some kernel."""
HIGH = 128  # rows over which `Query.union` is told


class Blocks(NamedTuple):
    """How a matrix is put into blocks.

    Attributes
    ----------
    size : (int, int)
        Rows and columns of a block.
    order : Order
        Where its rows go.
    stored : int
        Blocks.
    union : float
        As `Query.union`.
    whole : bool
        They are those of the matrix itself, and whole block rows move.
    """

    size: tuple[int, int]
    order: Order
    stored: int
    union: float
    whole: bool = False

    def fits(self, k: int) -> bool:
        """Whether int32 can address all of the blocks of a matrix of k columns."""
        (r, c), rows = self.size, self.order.rows
        return max(rows + r, k + c, self.stored * r * c) <= INT32_MAX

    def query(self, query: Query, *, addressed: bool) -> Query:
        """The facts of the product of the blocks, from those of the matrix as it is given.

        Parameters
        ----------
        addressed : bool
            The library's arrays have addresses that kernels ask about.
        """
        (r, c), rows = self.size, self.order.rows
        high, across = -(-rows // r), -(-query.k // c)
        slots, fits = self.stored * r * c, self.fits(query.k)
        layout, aligned = query.out_layout, query.out_aligned
        if self.order.places is not None:  # then the result comes as a new array
            row = query.n * itemsize(query.out_dtype or "float32")
            layout = None if query.beta_zero else "C"
            aligned = None if query.beta_zero or not addressed else row % ALIGNMENT == 0
        index = 4 if fits else 8
        return replace(
            query,
            format="bsr",
            pattern=None,
            transposed=False,
            m=rows,
            blocksize=self.size,
            nnz=None,
            nnzb=self.stored,
            nbytes=slots * itemsize(query.a_dtype or "float32") + index * (self.stored + high + 1),
            density=density_bucket(self.stored, high * across),
            row_skew=None,
            union=self.union,
            index_dtype="int32" if fits else "int64",
            fits_int32=fits,
            out_layout=layout,
            out_aligned=aligned,
        )


@final
class Groupings:
    """What is known about grouping the rows of one matrix in one way.

    Attributes
    ----------
    stored : int
        Stored elements, or blocks where whole block rows move.
    given : Blocks or None
        The matrix as it is, where it has blocks that kernels may share.
    hoped : tuple of Blocks
        What no order can better.
    """

    __slots__ = ("_best", "_lock", "_made", "given", "hoped", "stored")

    def __init__(self, stored: int, given: Blocks | None, hoped: tuple[Blocks, ...]) -> None:
        self.stored, self.given, self.hoped = stored, given, hoped
        self._best: tuple[Blocks, ...] | None = None
        self._made: dict[Any, Any] = {}
        self._lock = Lock()

    def best(self, find: Callable[[], list[Blocks]]) -> tuple[Blocks, ...]:
        """The orders with the fewest blocks, or the least unions; `find` finds them."""
        with self._lock:
            if self._best is None:
                self._best = tuple(find())
            return self._best

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """One object under each key."""
        with self._lock:
            if key not in self._made:
                self._made[key] = make()
            return self._made[key]


def of_rows(o: Operands, owner: SparseMatrix) -> tuple[Groupings, Callable[[], list[Blocks]]]:
    """Groupings of rows into blocks of `SIZES`, and what finds the best ones."""

    def make() -> Groupings:
        pattern = _elements(o)
        unmoved = Order(None, pattern.rows)
        hoped = []
        for high, wide in SIZES:
            met = similarity.coarse(pattern, wide).columns
            least = max(-(-met.size // high), int(np.unique(met).size))
            hoped.append(Blocks((high, wide), unmoved, least, min(1.0, high / HIGH)))
        return Groupings(int(pattern.columns.size), None, tuple(hoped))

    return _kept(o, owner, "rows", make), lambda: _in_blocks(_elements(o))


def of_block_rows(o: Operands, owner: SparseMatrix) -> tuple[Groupings, Callable[[], list[Blocks]]]:
    """Orders of the block rows of a BSR matrix, and what finds the best one."""
    (r, _), stored = o.matrix.blocksize, int(o.matrix.data.shape[0])
    size, high = o.matrix.blocksize, HIGH // r

    def union(pattern: Pattern, order: Order) -> float:
        return similarity.blocks_of(pattern, order, high, 1) / max(1, stored)

    def make() -> Groupings:
        pattern = _block_rows(o)
        unmoved = Order(None, pattern.rows)
        given = Blocks(size, Order(None, o.m), stored, union(pattern, unmoved), whole=True)
        least = max(1 / high, np.unique(pattern.columns).size / max(1, stored))
        return Groupings(stored, given, (given._replace(union=least),))

    def find() -> list[Blocks]:
        pattern = _block_rows(o)
        orders = similarity.orders(similarity.tree(pattern), high)
        tried = [(union(pattern, order), order.rows, i, order) for i, order in enumerate(orders)]
        best = min(tried, key=lambda each: each[:3])
        return [Blocks(size, _spread(best[3], r, o.m), stored, best[0], whole=True)]

    return _kept(o, owner, "block rows", make), find


def _kept(o: Operands, owner: SparseMatrix, way: str, make: Callable[[], Groupings]) -> Groupings:
    """What is kept for the matrix, or is found out now."""
    lib, device, base = o.lib, o.matrix.device, source(owner)
    entry = CACHE.entry(base, device, lib.watch(base.buffers().values()))
    key = ("reorder", way, o.matrix.family, o.transposed)
    kept = entry.packed.get(key)
    if kept is None:
        places = 8 * len(SIZES) * o.m
        kept = CACHE.keep(entry, key, Packed(make(), places, None))
    found: Groupings = kept.state
    return found


def elements(A: SparseMatrix, *, transposed: bool) -> CSR:
    """The stored elements of a matrix, or of its transpose, row by row."""
    lib = A.lib
    # Values that want gradients would be refused by a conversion; a product takes them as they are.
    plain = A.from_parts({name: lib.native(x) for name, x in A.buffers().items()}, A.static())
    whole: SparseMatrix = plain.T if transposed else plain
    if isinstance(whole, Transposed) or not isinstance(whole, CSR):
        whole = convert(whole, "csr")
    assert isinstance(whole, CSR)
    return whole


def _elements(o: Operands) -> Pattern:
    A = elements(o.matrix, transposed=o.transposed)
    return _pattern(o, A.indptr, A.indices, A.shape[1])


def _block_rows(o: Operands) -> Pattern:
    A: Any = o.matrix
    return _pattern(o, A.indptr, A.indices, -(-A.shape[1] // A.blocksize[1]))


def _pattern(o: Operands, indptr: Array, indices: Array, extent: int) -> Pattern:
    ptr, columns = (o.lib.to_numpy(x).astype(np.int64) for x in (indptr, indices))
    return Pattern(ptr, columns, 1, extent)


def _in_blocks(pattern: Pattern) -> list[Blocks]:
    """For each of `SIZES` the order with the fewest blocks."""
    met = {wide: similarity.coarse(pattern, wide) for wide in sorted({size[1] for size in SIZES})}
    trees = []
    for each in met.values():
        tree = similarity.tree(each)
        trees += [tree, *gathered(each, tree)]
    found = []
    for high, wide in SIZES:
        stored, order = _fewest(met[wide], trees, high)
        union = similarity.blocks_of(met[wide], order, HIGH, wide) / max(1, stored)
        found.append(Blocks((high, wide), order, stored, min(1.0, union)))
    return found


def _fewest(met: Pattern, trees: list[Tree], high: int) -> tuple[int, Order]:
    """The order in which rows have the fewest blocks of `high` rows, and how many."""
    order, least = Order(None, met.rows), -(-met.columns.size // high)
    stored = similarity.blocks_of(met, order, high, met.width)
    for tried in (order for tree in trees for order in similarity.orders(tree, high)):
        if stored == least:
            break  # every block is full of rows
        count = similarity.blocks_of(met, tried, high, met.width)
        if (count, tried.rows) < (stored, order.rows):
            stored, order = count, tried
    return stored, order


def _spread(order: Order, high: int, rows: int) -> Order:
    """An order of block rows as one of rows."""
    assert order.places is not None
    row = np.arange(rows)
    return Order(order.places[row // high] * high + row % high, order.rows * high)
