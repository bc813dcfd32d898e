"""Matrix Market files, through SciPy."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from sparseformats._dtypes import kind
from sparseformats.formats import COO, SparseMatrix
from sparseformats.io.files import File, compressing, name_of, reading, writing
from sparseformats.io.market_text import (
    Header,
    MatrixMarketError,
    entries,
    read_header,
    scan,
)

__all__ = ["MatrixMarketError", "read_matrix_market", "write_matrix_market"]

_DTYPES = {
    "real": np.float64,
    "double": np.float64,
    "complex": np.complex128,
    "integer": np.int64,
    "unsigned-integer": np.uint64,
}
_FIELDS = {"i": "integer", "u": "unsigned-integer", "f": "real", "c": "complex"}


def read_matrix_market(
    source: File, format: str = "csr", *, blocksize: Any = None, index_dtype: Any = None
) -> SparseMatrix:
    r"""Read a Matrix Market file into NumPy arrays.

    Parameters
    ----------
    source : path or file object
        Paths that end in ``.gz`` or ``.bz2`` are decompressed.
    format : str
        What to convert to, as of `SparseMatrix.to`.
    blocksize, index_dtype : optional
        As of `SparseMatrix.to`.

    Returns
    -------
    SparseMatrix
        Values are float64 for ``real`` and ``pattern`` (ones), complex128 for ``complex``, int64
        for ``integer`` and uint64 for ``unsigned-integer``.

    Raises
    ------
    MatrixMarketError
        Malformed, with line and reason: a wrong header, a line that is no entry, too few or too
        many entries, an index out of range, an integer beyond 64 bits, both triangles of a
        symmetric matrix, a diagonal that the symmetry forbids, compressed content that is damaged.
    FileNotFoundError, OverflowError, PatternError
        No such file; a sum of integer duplicates, or an index, does not fit; the values do not
        fit an n:m format.

    Notes
    -----
    The other triangle of a symmetric, skew-symmetric or hermitian file is filled in, the diagonal
    once. Entries that are zero are stored, with their sign. Equal positions are summed. ``nan``
    and ``inf`` in any case are values; a decimal beyond float64 reads as infinity. In files of
    kind ``array`` the elements that are not zero are stored.

    Examples
    --------
    >>> import io, sparseformats as sf
    >>> text = b"%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 3\n"
    >>> sf.io.read_matrix_market(io.BytesIO(text)).to_dense()
    array([[0., 1., 0.],
           [1., 0., 0.],
           [0., 0., 1.]])
    """
    name = name_of(source)
    made: SparseMatrix
    with _decompressed(name), reading(source, decompress=True) as stream:
        start = stream.tell()
        header = read_header(name, stream)
        body = stream.tell()
        scan(name, stream, header)
        if header.coordinate or all(header.shape):
            stream.seek(start)
            found = _through_scipy(name, stream)
        else:  # SciPy's reader divides by the number of rows, and takes the process down
            found = np.zeros(header.shape, _DTYPES[header.field])
        _refuse_wrapped(name, header, found)
        if isinstance(found, np.ndarray):
            from sparseformats.convert import from_dense

            made = from_dense(found, "coo")
        else:
            stream.seek(body)
            made = _from_triplets(name, stream, header, found)
    return made.to(format, blocksize=blocksize, index_dtype=index_dtype)


@contextmanager
def _decompressed(name: str) -> Iterator[None]:
    """Say of which file it is that the compressed content is damaged."""
    try:
        yield
    except (EOFError, OSError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the operating system's: no such file, no permission
        raise MatrixMarketError(name, None, f"cannot be decompressed: {error}") from error


def _through_scipy(name: str, stream: BinaryIO) -> Any:
    from scipy.io import mmread

    try:
        return mmread(stream, spmatrix=False)
    except (ValueError, OverflowError) as error:
        place = re.fullmatch(r"Line (\d+): (.*)", str(error), re.DOTALL)
        line, reason = (int(place[1]), place[2]) if place else (None, str(error))
        raise MatrixMarketError(name, line, reason.rstrip(".")) from error


def _refuse_wrapped(name: str, header: Header, found: Any) -> None:
    """Refuse the one integer whose negative, which skew symmetry asks for, is no int64."""
    if header.symmetry != "skew-symmetric" or header.field != "integer":
        return
    values = found if isinstance(found, np.ndarray) else found.data
    least = np.iinfo(np.int64).min
    if (values == least).any():
        raise MatrixMarketError(name, None, f"the mirror image of {least} does not fit int64")


def _from_triplets(name: str, stream: BinaryIO, header: Header, found: Any) -> SparseMatrix:
    made = COO(found.data, found.row, found.col, found.shape)
    if header.symmetry != "general":
        twice = made.nnz < found.nnz
        diagonal = header.symmetry != "symmetric" and bool((found.row == found.col).any())
        if twice or diagonal:
            _refuse_symmetry(name, header, entries(stream, header))
    return made


def _refuse_symmetry(
    name: str, header: Header, lines: Iterator[tuple[int, int, int, list[bytes]]]
) -> None:
    """Name the first entry that contradicts the symmetry which the banner declares, if any."""
    seen: dict[tuple[int, int], int] = {}
    for line, i, j, values in lines:
        if i == j:
            _refuse_diagonal(name, header, line, i, values)
        elif (j, i) in seen:
            reason = (
                f"entry ({i}, {j}) of a {header.symmetry} matrix is the mirror image of line "
                f"{seen[j, i]}; such a file holds one triangle"
            )
            raise MatrixMarketError(name, line, reason)
        seen.setdefault((i, j), line)


def _refuse_diagonal(name: str, header: Header, line: int, i: int, values: list[bytes]) -> None:
    if header.symmetry == "skew-symmetric":
        bad, must = any(float(v) != 0 for v in values) or not values, "zero"
    elif header.symmetry == "hermitian":
        bad, must = len(values) == 2 and float(values[1]) != 0, "real"
    else:
        return
    if bad:
        got = b" ".join(values).decode() or "an entry"
        reason = f"the diagonal of a {header.symmetry} matrix is {must}, got {got} at ({i}, {i})"
        raise MatrixMarketError(name, line, reason)


def write_matrix_market(target: File, A: SparseMatrix, *, comment: str = "") -> None:
    """Write a Matrix Market file of kind ``coordinate``, symmetry ``general``.

    Parameters
    ----------
    target : path or file object
        Paths that end in ``.gz`` or ``.bz2`` are compressed; a path is replaced whole at the end.
    A : SparseMatrix
        Of any format, library and device.
    comment : str
        Lines for the head of the file.

    Raises
    ------
    TypeError
        `A` is no matrix of this library, or `target` is neither a path nor a binary file.

    Notes
    -----
    Every stored element is written, zeros with their sign. Decimals are the shortest that read
    back to the same float64 bits; narrower floats widen to float64 first, exactly. *Loses*: the
    dtype (the format knows ``real``, ``complex``, ``integer`` and ``unsigned-integer``; bool is
    written as integers), the block structure, and payload and sign of NaN. Use `save` to keep all.

    Examples
    --------
    >>> import io, sparseformats as sf
    >>> file = io.BytesIO()
    >>> sf.io.write_matrix_market(file, sf.CSR([2.0], [1], [0, 1], (1, 2)))
    >>> print(file.getvalue().decode())
    %%MatrixMarket matrix coordinate real general
    %
    1 2 1
    1 2 2
    <BLANKLINE>
    """
    if not isinstance(A, SparseMatrix):
        raise TypeError(f"expected a matrix of sparseformats, got {type(A).__name__}")
    coo = A.to("coo")
    host = {name: coo.lib.to_numpy(x) for name, x in coo.buffers().items()}
    values = _widest(host["data"])
    with writing(target) as stream, compressing(target, stream) as packed:
        if values.size:
            _write_with_scipy(packed, A.shape, values, host["row"], host["col"], comment)
        else:
            packed.write(_empty_file(A.shape, values.dtype.kind, comment))


def _write_with_scipy(
    stream: BinaryIO, shape: tuple[int, int], data: Any, row: Any, col: Any, comment: str
) -> None:
    import scipy.sparse as sp
    from scipy.io import mmwrite

    mmwrite(stream, sp.coo_array((data, (row, col)), shape=shape), comment, symmetry="general")


def _empty_file(shape: tuple[int, int], kind_: str, comment: str) -> bytes:
    """A file without entries, for which SciPy would forget the field."""
    lines = [f"%%MatrixMarket matrix coordinate {_FIELDS[kind_]} general"]
    lines += [f"%{line}" for line in comment.split("\n")]
    return "\n".join([*lines, f"{shape[0]} {shape[1]} 0", ""]).encode()


def _widest(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Values in the type that they read back as; widening is exact."""
    wide = {"b": np.int64, "i": np.int64, "u": np.uint64, "f": np.float64, "c": np.complex128}
    with np.errstate(invalid="ignore"):  # signalling NaNs of narrow types
        return data.astype(wide[kind(data.dtype.name)], copy=False)
