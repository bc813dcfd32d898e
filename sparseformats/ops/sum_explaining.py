"""Why these kernels: the explanation of a product of a `Sum`, part by part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sparseformats._arrays import Array
from sparseformats._dtypes import accumulator, kind
from sparseformats.dispatch import Explanation, Query, Row
from sparseformats.formats import SparseMatrix, Sum
from sparseformats.formats.sum import part_name
from sparseformats.ops import reordering
from sparseformats.ops.operands import Operands, read
from sparseformats.ops.preparing import Options, judged, query_of
from sparseformats.ops.scalars import Scalar
from sparseformats.ops.sums import working

__all__ = ["SumExplanation", "explain_parts", "explained", "how_added"]

IDLE = "stores nothing, so no kernel runs"


@dataclass(frozen=True, slots=True)
class SumExplanation:
    """Which kernel each part of a `Sum` gets and why, and how the parts' products are added.

    Print it.

    Attributes
    ----------
    query : Query
        The facts of the call as a whole.
    names : tuple of str
        Formats of the parts.
    parts : tuple of Explanation or None
        One for each part; None of a part without elements, for which nothing runs.
    added : str
        How the parts' products become the result, and where they are rounded.
    """

    query: Query
    names: tuple[str, ...]
    parts: tuple[Explanation | None, ...]
    added: str

    @property
    def chosen(self) -> str | None:
        """Names of the chosen kernels, with ``+`` between; None if a part has none."""
        names = [part.chosen for part in self._told]
        return None if None in names else " + ".join(name for name in names if name)

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of all parts, one part after the other."""
        return tuple(row for part in self._told for row in part.rows)

    @property
    def source(self) -> str:
        """What decided, for each part that runs a kernel."""
        return " + ".join(part.source for part in self._told)

    @property
    def forced(self) -> str | None:
        """The kernel that was asked for by name, the same for all parts."""
        return self._told[0].forced

    def row(self, kernel: str) -> Row:
        """The row of a kernel for the first part that runs one; ``parts[i].row`` has the others.

        Raises
        ------
        KeyError
            The operation has no kernel of that name.
        """
        return self._told[0].row(kernel)

    @property
    def _told(self) -> list[Explanation]:
        return [part for part in self.parts if part is not None]

    @property
    def verdict(self) -> str:
        """The decision, one line a part and one for how they are added."""
        told = [IDLE if part is None else part.verdict for part in self.parts]
        lines = [
            f"part {i}, {name}: {line}"
            for i, (name, line) in enumerate(zip(self.names, told, strict=True))
        ]
        return "\n".join([*lines, f"added {self.added}"])

    def to_dict(self) -> dict[str, object]:
        """Return the explanation as a JSON-able dict."""
        return {
            "query": self.query.to_dict(),
            "chosen": self.chosen,
            "added": self.added,
            "parts": [
                {"format": name, "explanation": None if part is None else part.to_dict()}
                for name, part in zip(self.names, self.parts, strict=True)
            ],
        }

    def __str__(self) -> str:
        tables = [
            f"part {i}, {self.names[i]}\n{part}"
            for i, part in enumerate(self.parts)
            if part is not None
        ]
        return "\n\n".join([f"{self.query.describe()}\n{self.verdict}", *tables])


def explain_parts(
    o: Operands,
    out: Array | None,
    alpha: Scalar,
    beta: Scalar,
    options: Options,
    *,
    laid: Callable[[Operands, Query], Query] | None = None,
) -> SumExplanation:
    """Judge the product of each part as `sums.multiply` would; loads no kernel.

    Parameters
    ----------
    laid : callable, optional
        Adds to a query how the caller's new array for the result lies, where it makes one.
    """
    A, met = _parts(o)
    unrounded = len(met) > 1 and accumulator(o.dtype) != o.dtype
    found: list[Explanation | None] = []
    for part in A.parts:
        if not any(part is other for other in met):
            found.append(None)
            continue
        mine = read(o.x, part) if o.left else read(part, o.x)
        if unrounded:
            query = judged(mine, None, alpha, 0, options._replace(unrounded=True))[1]
        else:
            query = query_of(mine, out, alpha, beta, options)
            query = query if laid is None else laid(mine, query)
            if part is not met[0]:
                query = replace(query, beta_zero=False, out_layout=query.out_layout or "C")
        found.append(reordering.explain(mine, part, query, options))
    return explained(o, query_of(o, out, alpha, beta, options), found)


def explained(o: Operands, query: Query, found: list[Explanation | None]) -> SumExplanation:
    """The explanation of a product of a sum from those of its parts."""
    A, _ = _parts(o)
    names = tuple(map(part_name, A.parts))
    queries = [None if part is None else part.query for part in found]
    return SumExplanation(query, names, tuple(found), how_added(o.dtype, queries))


def how_added(dtype: str, queries: list[Query | None]) -> str:
    """In words, how products of these facts become a result of `dtype`."""
    if sum(query is not None for query in queries) < 2:
        return "nowhere: one part is the whole"
    if kind(dtype) == "b":
        return "by or"
    if kind(dtype) in "iu":
        return f"in {dtype}, exactly as it wraps"
    sums = accumulator(dtype)
    if sums == dtype:
        return f"in {dtype}, part after part, as one sum of products in another order"
    narrow = [str(i) for i, query in enumerate(queries) if query is not None and not query.wide]
    text = f"in {sums} and rounded once to {dtype}"
    if narrow:
        which = f"part{'s' * (len(narrow) > 1)} {' and '.join(narrow)}"
        text += f"; the best kernel of {which} gives {dtype} only, which is one rounding more"
    return text


def _parts(o: Operands) -> tuple[Sum, list[SparseMatrix]]:
    assert isinstance(o.matrix, Sum)
    return o.matrix, working(o.matrix)
