"""The answer to "how would this conversion go?"; the object itself is the answer."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from sparseformats import _arrays, dispatch
from sparseformats._arrays import Array
from sparseformats._dtypes import index_width
from sparseformats.convert.estimate import Size, Stored, size_of
from sparseformats.convert.graph import Node, Step, path
from sparseformats.convert.request import node_of, requested
from sparseformats.convert.run import GENERIC, facts, slots_of, transposed
from sparseformats.dispatch.explanation import table
from sparseformats.formats import NM, SparseMatrix, Sum, Transposed
from sparseformats.formats.inputs import index_name

__all__ = ["ConversionExplanation", "ConversionStep", "explain_conversion"]

_START = 20.0  # microseconds that a step takes however little there is to do


@dataclass(frozen=True, slots=True)
class ConversionStep:
    """One step of a conversion.

    Attributes
    ----------
    source, target : str
        Formats, with block size or pattern.
    implementation : str
        Name of the registered implementation that would run, or ``"array-api"``.
    microseconds : float
        Estimated time.
    keeps : str
        What the step keeps.
    """

    source: str
    target: str
    implementation: str
    microseconds: float
    keeps: str

    def to_dict(self) -> dict[str, object]:
        """Return the step as a JSON-able dict."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class ConversionExplanation:
    """How a conversion would go: its steps, what each costs and keeps, and how large it ends.

    Print it.

    Attributes
    ----------
    source, target : str
        Formats, with block size or pattern.
    shape : (m, n)
    dtype : str
    steps : tuple of ConversionStep
        Empty where the matrix already is what is asked for.
    nbytes : int
        Bytes of the source's buffers.
    result_nbytes : int
        Estimated bytes of the result's buffers.
    bound : str
        How to read `result_nbytes`: ``""`` (exactly, marks of stored zeros aside), ``"at most"``,
        ``"at least"``.
    """

    source: str
    target: str
    shape: tuple[int, int]
    dtype: str
    steps: tuple[ConversionStep, ...]
    nbytes: int
    result_nbytes: int
    bound: str

    @property
    def microseconds(self) -> float:
        """Estimated time of all steps."""
        return sum(step.microseconds for step in self.steps)

    def to_dict(self) -> dict[str, object]:
        """Return the explanation as a JSON-able dict."""
        found = {name: getattr(self, name) for name in self.__slots__ if name != "steps"}
        found["shape"] = list(self.shape)
        return {**found, "steps": [step.to_dict() for step in self.steps]}

    def __str__(self) -> str:
        head = f"{self.source} -> {self.target} ({self.shape[0]} x {self.shape[1]}, {self.dtype})"
        if not self.steps:
            return f"{head}: already in that form, nothing is done"
        size = f"{self.bound} {self.result_nbytes:,} bytes".strip()
        head += f": ~{self.microseconds:,.0f} us, {self.nbytes:,} bytes become {size}"
        rows = [
            (f"{s.source} -> {s.target}", s.implementation, f"~{s.microseconds:,.0f}", [s.keeps])
            for s in self.steps
        ]
        return f"{head}\n{table(('step', 'implementation', 'us', 'keeps'), rows)}"


def explain_conversion(
    A: SparseMatrix | Array, format: str, *, blocksize: Any = None, index_dtype: Any = None
) -> ConversionExplanation:
    """Tell how ``A.to(format)`` would go, without doing it or asking a device anything.

    Parameters
    ----------
    A : SparseMatrix or dense array
    format : str
        As of `SparseMatrix.to`, or ``"dense"``.
    blocksize, index_dtype : optional
        As of `SparseMatrix.to`.

    Returns
    -------
    ConversionExplanation

    Raises
    ------
    TypeError, ValueError
        As of `SparseMatrix.to`; `A` is neither a matrix nor a dense array.

    Examples
    --------
    >>> import sparseformats as sf
    >>> A = sf.CSR([2.0], [1], [0, 1, 1], (2, 2))
    >>> [step.target for step in sf.explain_conversion(A, "blocked_ell", blocksize=2).steps]
    ['bsr (2, 2)', 'blocked_ell (2, 2)']
    """
    if isinstance(A, SparseMatrix):
        source, stored = node_of(A), _stored(A, index_name(index_dtype))
    elif _arrays.is_array(A) and len(A.shape) == 2:
        source, stored = Node("dense"), _stored_dense(A, index_name(index_dtype))
    else:
        raise TypeError(
            f"explain_conversion takes a sparse matrix or a 2-D dense array, got {type(A).__name__}"
        )
    dense = format == "dense" and blocksize is None
    target = Node("dense") if dense else requested(format, blocksize, source, "explain_conversion")
    steps = path(source, target)
    start = _size_now(A)
    wraps = target.name == "sum" and source.name != "dense"
    result = size_of(target, stored) if steps and not wraps else start
    return ConversionExplanation(
        _text(source),
        _text(target),
        stored.shape,
        stored.dtype,
        tuple(_explained(A, steps, stored)),
        start.nbytes,
        result.nbytes,
        result.bound,
    )


def _text(node: Node) -> str:
    if node.key is None:
        return node.name
    turned = ".T" if node.name.endswith(".T") else ""
    if node.name.startswith("n:m"):
        return f"{node.key[0]}:{node.key[1]}{turned}"
    return f"{node.name} {node.key[::-1] if turned else node.key}"


def _stored(A: SparseMatrix, width: str | None) -> Stored:
    if isinstance(A, Sum):
        parts = [_stored(part, width) for part in A.parts]
        exact, index = all(p.exact for p in parts), max(p.index_dtype for p in parts)
        return Stored(A.shape, sum(p.elements for p in parts), exact, A.dtype_name, index)
    base = A.base if isinstance(A, Transposed) else A
    lib, known = A.lib, base._repr_nnz()  # None where counting would read all values
    slots = slots_of(base)
    current = lib.dtype_name(A.index_dtype)
    if isinstance(base, NM):
        current = "int32" if base.side is None else lib.dtype_name(base.side.row)
        slots += 0 if base.side is None else base.side.nnz
    exact = known is not None
    index = width or index_width("int64" if current == "int64" else "int32", *A.shape, slots)
    return Stored(A.shape, slots if known is None else known, exact, A.dtype_name, index)


def _stored_dense(D: Array, width: str | None) -> Stored:
    lib, shape = _arrays.of(D), (int(D.shape[0]), int(D.shape[1]))
    index = width or index_width("int32", *shape)
    return Stored(shape, math.prod(shape), False, lib.dtype_name(D), index)


def _size_now(A: SparseMatrix | Array) -> Size:
    if isinstance(A, SparseMatrix):
        return Size(slots_of(A), A.nbytes, "")
    return size_of(Node("dense"), _stored_dense(A, None))


def _explained(
    A: SparseMatrix | Array, steps: tuple[Step, ...], stored: Stored
) -> list[ConversionStep]:
    found: list[ConversionStep] = []
    elements, query = _size_now(A).elements, None
    for step in steps:
        made = size_of(step.target, stored).elements
        if query is None:
            query = facts(step.edge, transposed(A) if step.mirrored else A, step.options)
        else:
            query = _facts_later(query, step, stored)
        name, cost = GENERIC, _START + step.edge.cost * max(elements, made) / 1000
        if dispatch.records(step.edge.op):
            judged = dispatch.explain(query)
            if judged.chosen is not None:
                name = judged.chosen
                cost = judged.row(name).microseconds or cost
        ends = _text(step.source), _text(step.target)
        found.append(ConversionStep(*ends, name, cost, step.edge.keeps))
        elements = made
    return found


def _facts_later(before: dispatch.Query, step: Step, stored: Stored) -> dispatch.Query:
    """Facts of a matrix that does not exist yet."""
    m, k = stored.shape[::-1] if step.mirrored else stored.shape
    size = size_of(step.source, stored)
    source = step.edge.source
    blocked = source in ("bsr", "bsr.T", "blocked_ell")
    options = step.options
    pattern = step.source.key if source == "n:m" else None
    if options.n is not None and options.m is not None:
        pattern = options.n, options.m
    return replace(
        before,
        op=step.edge.op,
        format=source.removesuffix(".T"),
        transposed=source.endswith(".T"),
        pattern=pattern,
        m=m,
        k=k,
        blocksize=step.source.key if blocked else options.blocksize,
        into=options.blocksize,
        nnz=None if blocked or source == "n:m" else stored.elements,
        nbytes=size.nbytes,
        index_dtype=stored.index_dtype,
        x_layout=None,
    )
