"""Reading Matrix Market text strictly, line by line, before SciPy turns it into numbers.

SciPy's reader is fast but lenient: it takes ``1.5D+02`` for 1.5 and ``1.5`` in an integer file for
1, ignores what follows a value, and allocates what the size line promises. So every line is first
held against the grammar, at a small part of the cost of a conversion, and errors get their line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from sparseformats._dtypes import INT64_MAX
from sparseformats.errors import SparseFormatsError

__all__ = ["Header", "MatrixMarketError", "entries", "read_header", "scan"]

_CHUNK = 1 << 20
_FIELDS = ("real", "double", "complex", "integer", "unsigned-integer", "pattern")
_SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")

_REAL = (
    rb"[-]?+(?>(?>\d++\.?+\d*+|\.\d++)(?>[eE][-+]?+\d++)?+"
    rb"|[nN][aA][nN]|[iI][nN][fF](?>[iI][nN][iI][tT][yY])?+)"
)
_GAP = rb"[ \t]++"
_VALUES = {
    "real": [_REAL],
    "double": [_REAL],
    "complex": [_REAL, _REAL],
    "integer": [rb"[-]?+\d++"],
    "unsigned-integer": [rb"\d++"],
    "pattern": [],
}
_SAYS = {
    "real": "a number",
    "double": "a number",
    "complex": "two numbers",
    "integer": "an integer",
    "unsigned-integer": "an integer that is not negative",
    "pattern": "no value",
}


class MatrixMarketError(SparseFormatsError, ValueError):
    """A Matrix Market file is malformed; has `line` (from 1, None if unknown) and `reason`."""

    def __init__(self, source: str, line: int | None, reason: str) -> None:
        self.source, self.line, self.reason = source, line, reason
        place = source if line is None else f"{source}, line {line}"
        super().__init__(f"{place}: {reason}")

    def __reduce__(self) -> tuple[type, tuple[str, int | None, str]]:
        return type(self), (self.source, self.line, self.reason)


@dataclass(frozen=True, slots=True)
class Header:
    """Banner and size line.

    Attributes
    ----------
    coordinate : bool
        Whether entries have positions; else the file is a dense array, by columns.
    field, symmetry : str
        Words of the banner.
    shape : (m, n)
    count : int
        Entry lines that must follow.
    lines : int
        Lines up to and including the size line.
    """

    coordinate: bool
    field: str
    symmetry: str
    shape: tuple[int, int]
    count: int
    lines: int


def _banner(source: str, text: bytes) -> tuple[bool, str, str]:
    words = text.decode("latin-1").split()
    if not words or words[0] != "%%MatrixMarket":
        got = words[0][:40] if words else "an empty line"
        raise MatrixMarketError(source, 1, f"must begin with %%MatrixMarket, got {got!r}")
    lowered = [w.lower() for w in words[1:]]
    if len(lowered) != 4:
        reason = f"needs object, format, field and symmetry after %%MatrixMarket, got {lowered}"
        raise MatrixMarketError(source, 1, reason)
    checked = (
        ("object", lowered[0], ("matrix",)),
        ("format", lowered[1], ("coordinate", "array")),
        ("field", lowered[2], _FIELDS),
        ("symmetry", lowered[3], _SYMMETRIES),
    )
    for what, word, allowed in checked:
        if word not in allowed:
            reason = f"{what} must be one of {', '.join(allowed)}, got {word!r}"
            raise MatrixMarketError(source, 1, reason)
    if lowered[1] == "array" and lowered[2] == "pattern":
        raise MatrixMarketError(source, 1, "an array has values, its field cannot be 'pattern'")
    if lowered[2:] == ["unsigned-integer", "skew-symmetric"]:
        reason = "a skew-symmetric matrix has negative values, its field cannot be unsigned"
        raise MatrixMarketError(source, 1, reason)
    return lowered[1] == "coordinate", lowered[2], lowered[3]


def read_header(source: str, stream: BinaryIO) -> Header:
    """Read up to and including the size line.

    Raises
    ------
    MatrixMarketError
        The banner or the size line is malformed.
    """
    coordinate, field, symmetry = _banner(source, stream.readline())
    lines, text = 1, b"%"
    while text and (text.lstrip().startswith(b"%") or not text.strip()):
        text = stream.readline()
        lines += 1
    words = text.split()
    names = "rows, columns and entries" if coordinate else "rows and columns"
    if len(words) != (3 if coordinate else 2) or not all(w.isdigit() for w in words):
        got = text.decode("latin-1").strip()[:60] or "the end of the file"
        reason = f"the size line must hold {names}, got {got!r}"
        raise MatrixMarketError(source, lines, reason)
    m, n, *rest = (int(w) for w in words)
    if max(m, n) > INT64_MAX:
        raise MatrixMarketError(source, lines, f"size {max(m, n)} does not fit int64")
    if symmetry != "general" and m != n:
        reason = f"a {symmetry} matrix must be square, got {m} x {n}"
        raise MatrixMarketError(source, lines, reason)
    triangle = {"general": m * n, "skew-symmetric": m * (m - 1) // 2}
    count = rest[0] if coordinate else triangle.get(symmetry, m * (m + 1) // 2)
    return Header(coordinate, field, symmetry, (m, n), count, lines)


def _entry(header: Header) -> bytes:
    place = [rb"\d++", rb"\d++"] if header.coordinate else []
    return rb"[ \t]*+" + _GAP.join([*place, *_VALUES[header.field]]) + rb"[ \t]*+"


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    """The rest of a stream in pieces that end at line ends."""
    while chunk := stream.read(_CHUNK):
        chunk += stream.readline()
        if not chunk.endswith(b"\n"):
            # A lone carriage return at the end stays illegal: SciPy's reader crashes on it.
            chunk += b"\r\n" if chunk.endswith(b"\r") else b"\n"
        yield chunk


def scan(source: str, stream: BinaryIO, header: Header) -> None:
    """Hold every line after the header against the grammar, and count the entries.

    Raises
    ------
    MatrixMarketError
        A line that is no entry of this file's field, or too few or too many entries.
    """
    entry = _entry(header)
    legal = re.compile(rb"(?>(?>" + entry + rb"|[ \t]*+)\r?+\n)*+")
    blank = re.compile(rb"(?m)^[ \t]*\r?\n")
    found, line = 0, header.lines
    for chunk in _chunks(stream):
        if not legal.fullmatch(chunk):
            _refuse_line(source, line, chunk, header)
        many = chunk.count(b"\n")
        filled = many - len(blank.findall(chunk))
        if found + filled > header.count:
            at = _line_of_entry(chunk, header.count - found)
            reason = f"the file goes on after the {header.count} entries that it announces"
            raise MatrixMarketError(source, line + at, reason)
        found, line = found + filled, line + many
    if found < header.count:
        reason = f"the file ends after {found} of the {header.count} entries that it announces"
        raise MatrixMarketError(source, line, reason)


def _line_of_entry(chunk: bytes, index: int) -> int:
    filled = [i for i, text in enumerate(chunk.split(b"\n"), 1) if text.strip()]
    return filled[index]


def _refuse_line(source: str, before: int, chunk: bytes, header: Header) -> None:
    legal = re.compile(rb"(?>" + _entry(header) + rb"|[ \t]*+)\r?+")
    for i, text in enumerate(chunk.split(b"\n"), 1):
        if not legal.fullmatch(text):
            got = text.decode("latin-1").strip("\n")[:60]
            place = "row, column and " if header.coordinate else ""
            reason = f"expected {place}{_SAYS[header.field]}, got {got!r}"
            raise MatrixMarketError(source, before + i, reason)
    raise AssertionError("a chunk whose lines are all legal is legal")


def entries(stream: BinaryIO, header: Header) -> Iterator[tuple[int, int, int, list[bytes]]]:
    """Line, row and column (from 1) and value words of each entry of a sound coordinate file."""
    line = header.lines
    for chunk in _chunks(stream):
        for text in chunk.split(b"\n")[:-1]:
            line += 1
            words = text.split()
            if words:
                yield line, int(words[0]), int(words[1]), words[2:]
