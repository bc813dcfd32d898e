"""Opening what the caller names: a path or a binary file object."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import secrets
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, cast

__all__ = ["DAMAGED", "File", "compressing", "name_of", "reading", "writing"]

File = str | os.PathLike[str] | BinaryIO | Any

# What `zipfile` raises for an archive that is none or was changed: NotImplementedError for unknown
# flags and methods, RuntimeError for the flag of encryption.
DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)

_OPENERS: dict[str | bytes, Any] = {".gz": gzip.open, ".bz2": bz2.open}


def name_of(file: File) -> str:
    """How to call a file in a message."""
    if isinstance(file, (str, os.PathLike)):
        return repr(os.fspath(file))
    return repr(getattr(file, "name", None) or type(file).__name__)


@contextmanager
def reading(file: File, *, decompress: bool = False) -> Iterator[BinaryIO]:
    """Seekable binary stream over `file`, from its current position.

    Parameters
    ----------
    file : path or file object
        A text file object is encoded, one that cannot seek is read into memory.
    decompress : bool
        Whether paths that end in ``.gz`` or ``.bz2`` are decompressed.
    """
    if isinstance(file, (str, os.PathLike)):
        path = os.fspath(file)
        opener = _OPENERS.get(os.path.splitext(path)[1] if decompress else "", open)
        with opener(path, "rb") as stream:
            yield stream
        return
    if not hasattr(file, "read"):
        raise TypeError(f"expected a path or a file open for reading, got {type(file).__name__}")
    if isinstance(file, io.TextIOBase):
        yield io.BytesIO(file.read().encode())
    elif hasattr(file, "seekable") and file.seekable():
        yield cast(BinaryIO, file)
    else:
        yield io.BytesIO(file.read())


@contextmanager
def writing(file: File) -> Iterator[BinaryIO]:
    """Binary stream into `file`; a path is replaced whole at the end, or left as it was.

    Parameters
    ----------
    file : path or file object
        A file object is written to directly.
    """
    if not isinstance(file, (str, os.PathLike)):
        if isinstance(file, io.TextIOBase) or not hasattr(file, "write"):
            raise TypeError(
                f"expected a path or a file open for binary writing, got {type(file).__name__}"
            )
        yield cast(BinaryIO, file)
        return
    path = os.path.realpath(os.fspath(file))
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        with open(path, "wb") as stream:  # a pipe or a device cannot be replaced
            yield stream
        return
    folder, name = os.path.split(path)
    beside = os.path.join(folder, f".{name}.{secrets.token_hex(6)}.tmp")
    try:
        with open(beside, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        with suppress(FileNotFoundError):
            os.chmod(beside, stat.S_IMODE(os.stat(path).st_mode))
        os.replace(beside, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(beside)


@contextmanager
def compressing(file: File, stream: BinaryIO) -> Iterator[BinaryIO]:
    """`stream`, compressed as the suffix ``.gz`` or ``.bz2`` of a path asks."""
    suffix = ""
    if isinstance(file, (str, os.PathLike)):
        suffix = os.path.splitext(os.fspath(file))[1]
    if suffix not in _OPENERS:
        yield stream
        return
    # gzip notes the time otherwise, and equal matrices would give unequal files.
    packed: Any = (
        gzip.GzipFile("", "wb", fileobj=stream, mtime=0)
        if suffix == ".gz"
        else bz2.BZ2File(stream, "wb")
    )
    with packed:
        yield cast(BinaryIO, _WriteOnly(packed))


class _WriteOnly:
    """A compressed stream without the `seek` that it has, but refuses when asked."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, content: bytes) -> int:
        return int(self._stream.write(content))
