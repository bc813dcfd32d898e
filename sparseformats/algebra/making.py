"""Identity and random matrices in every format."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from sparseformats import _arrays
from sparseformats._arrays import ArrayLibrary
from sparseformats._dtypes import index_width, kind
from sparseformats.algebra.common import value_name
from sparseformats.convert import convert
from sparseformats.convert.graph import Node
from sparseformats.convert.request import requested
from sparseformats.formats import BSR, COO, SparseMatrix
from sparseformats.formats.inputs import as_shape, index_name
from sparseformats.formats.slots import slots_inside

__all__ = ["eye", "random"]

Host = np.ndarray[Any, np.dtype[Any]]


def eye(
    m: int,
    n: int | None = None,
    *,
    k: int = 0,
    format: str = "csr",
    blocksize: Any = None,
    dtype: Any = "float64",
    library: str = "numpy",
    device: str | None = None,
    index_dtype: Any = None,
) -> SparseMatrix:
    """Ones on a diagonal.

    Parameters
    ----------
    m, n : int
        Shape; n is m by default.
    k : int
        Which diagonal: above the main one if positive.
    format, blocksize, index_dtype
        As of `SparseMatrix.to`; indices are int32 where that suffices.
    dtype : str or dtype
    library, device : str
        Where the arrays live; the device is the library's default one.

    Returns
    -------
    SparseMatrix

    Raises
    ------
    TypeError, ValueError
        Bad sizes, dtype, library, format or block size.
    PatternError, OverflowError, MemoryError
        As of `SparseMatrix.to`.

    Examples
    --------
    >>> import sparseformats as sf
    >>> sf.eye(2, 3, k=1, dtype="int8").to_dense()
    array([[0, 1, 0],
           [0, 0, 1]], dtype=int8)
    """
    shape = as_shape((m, m if n is None else n))
    lib = _arrays.library(library)
    name = value_name("eye", lib, dtype)
    try:
        k = operator.index(k)
    except TypeError as error:
        raise TypeError(f"eye: k must be an integer, got {k!r}") from error
    top, left = max(0, -k), max(0, k)
    count = max(0, min(shape[0] - top, shape[1] - left))
    data = lib.full(count, _one(name), name, device)
    index = lib.arange(count, index_width("int32", *shape), lib.device(data))
    made = COO.trusted(data=data, row=index + top, col=index + left, shape=shape)
    return convert(made, format, blocksize=blocksize, index_dtype=index_dtype)


def _one(name: str) -> Any:
    return True if kind(name) == "b" else 1


def random(
    m: int,
    n: int,
    density: float,
    *,
    format: str = "csr",
    blocksize: Any = None,
    seed: Any = None,
    dtype: Any = "float64",
    library: str = "numpy",
    device: str | None = None,
    index_dtype: Any = None,
) -> SparseMatrix:
    """Non-zeros at random places, exactly as many as the density says.

    Parameters
    ----------
    m, n : int
        Shape.
    density : float
        Share of stored elements, within 0 … 1: ``round(density * m * n)`` are stored. Of block
        formats it is the share of stored blocks, each full. Of n:m it is at most what the
        pattern allows.
    format, blocksize, index_dtype
        As of `SparseMatrix.to`.
    seed : int or numpy.random.Generator, optional
        The same integer gives the same matrix in every library and on every device.
    dtype : str or dtype
    library, device : str
        Where the arrays live. Numbers are drawn on the host.

    Returns
    -------
    SparseMatrix
        Floating values are of size 0.5 to 1 with random signs, in both parts if complex;
        integers of size 1 to 4; bools are true. None is zero.

    Raises
    ------
    ValueError
        A density beyond 0 … 1 or beyond the pattern; bad shape, format or block size.
    TypeError
        Bad kinds of argument.

    Examples
    --------
    >>> import sparseformats as sf
    >>> sf.random(100, 80, 0.01, seed=0)
    <CSR 100x80, float64, nnz=80, numpy on cpu>
    >>> sf.random(64, 64, 0.25, format="bsr", blocksize=16, seed=0).nnzb
    4
    """
    shape = as_shape((m, n))
    if shape[0] * shape[1] > 2**63 - 1:
        raise ValueError(f"random: a {m} x {n} matrix has more than 2**63 - 1 elements")
    lib = _arrays.library(library)
    name = value_name("random", lib, dtype)
    if isinstance(density, bool) or not isinstance(density, (int, float, np.number)):
        raise TypeError(f"random: density must be a number, got {density!r}")
    if not 0 <= density <= 1:
        raise ValueError(f"random: density must be within 0 … 1, got {density}")
    target, size = requested(format, blocksize, Node("coo"), "random")
    rng = np.random.default_rng(seed)
    turned = target.endswith(".T")
    base, own = target.removesuffix(".T"), shape[::-1] if turned else shape
    if base in ("bsr", "blocked_ell"):
        assert size is not None
        made: SparseMatrix = _blocks(rng, own, density, size, lib, name, device)
    elif base == "n:m":
        assert size is not None
        places = _grouped_places(rng, own, density, *size)
        made = _elements(rng, own, places, lib, name, device)
    else:
        places = _chosen(rng, own[0] * own[1], density * own[0] * own[1])
        made = _elements(rng, own, places, lib, name, device)
    width = index_name(index_dtype)
    made = made.T if turned else made
    return convert(made, format, blocksize=blocksize, index_dtype=width)


def _chosen(rng: np.random.Generator, size: int, wanted: float) -> Host:
    """Sorted distinct numbers below `size`, as many as `wanted` rounds to."""
    count = min(size, int(wanted + 0.5))
    if not count:
        return np.zeros(0, np.int64)
    return np.sort(rng.choice(size, count, replace=False, shuffle=False)).astype(np.int64)


def _grouped_places(
    rng: np.random.Generator, shape: tuple[int, int], density: float, n: int, m: int
) -> Host:
    """Flat places, at most n in each group of m."""
    rows, k = shape
    groups = -(-k // m)
    keys = rng.random((rows, groups * m))
    keys[:, k:] = 2  # places beyond the last column come last
    ranked = np.argsort(keys.reshape(rows, groups, m), axis=-1)[:, :, :n]
    column = np.arange(groups)[None, :, None] * m + ranked
    flat = np.arange(rows)[:, None, None] * k + column
    allowed = flat[column < k]
    wanted = int(density * rows * k + 0.5)
    if wanted > allowed.size:
        raise ValueError(
            f"random: {n}:{m} allows a density of {allowed.size / (rows * k):.4g} at most, "
            f"got {density}"
        )
    return np.sort(allowed[_chosen(rng, allowed.size, wanted)])


def _elements(
    rng: np.random.Generator,
    shape: tuple[int, int],
    places: Host,
    lib: ArrayLibrary,
    name: str,
    device: str | None,
) -> COO:
    width = index_width("int32", *shape)
    row, col = np.divmod(places, max(1, shape[1]))
    data = _values(rng, places.size, lib, name, device)
    index = (lib.from_numpy(x.astype(width), lib.device(data)) for x in (row, col))
    return COO.trusted(data=data, **dict(zip(("row", "col"), index, strict=True)), shape=shape)


def _blocks(
    rng: np.random.Generator,
    shape: tuple[int, int],
    density: float,
    size: tuple[int, int],
    lib: ArrayLibrary,
    name: str,
    device: str | None,
) -> BSR:
    (m, n), (r, c) = shape, size
    rows, cols = -(-m // r), -(-n // c)
    places = _chosen(rng, rows * cols, density * rows * cols)
    row, col = np.divmod(places, max(1, cols))
    values = _values(rng, places.size * r * c, lib, name, device)
    host = _arrays.library("numpy")
    inside = slots_inside(host, row, col, size, shape)
    data = lib.xp.reshape(values, (places.size, r, c))
    if inside is not None:
        where = lib.from_numpy(np.flatnonzero(inside), lib.device(values))
        data = lib.scatter((places.size, r, c), where, lib.take(values, where))
    width = index_width("int32", cols, places.size)
    indptr = np.searchsorted(row, np.arange(rows + 1))
    return BSR.trusted(
        data=data,
        indices=lib.from_numpy(col.astype(width), lib.device(values)),
        indptr=lib.from_numpy(indptr.astype(width), lib.device(values)),
        shape=shape,
    )


def _values(
    rng: np.random.Generator, count: int, lib: ArrayLibrary, name: str, device: str | None
) -> Any:
    """Values of any dtype, none of which is or rounds to zero."""
    what = kind(name)
    if what == "b":
        found: Host = np.ones(count, np.bool_)
    elif what in "iu":
        found = rng.integers(1, 5, count)
        found = found * rng.choice([-1, 1], count) if what == "i" else found
    else:
        parts = [
            rng.uniform(0.5, 1, count) * rng.choice([-1.0, 1.0], count)
            for _ in range(2 if what == "c" else 1)
        ]
        found = parts[0] + 1j * parts[1] if what == "c" else parts[0]
    return lib.astype(lib.from_numpy(found, device), name)
