"""The library's own files: a zip of ``.npy`` members and a description, without pickle.

Layout (version 1)
------------------
``sparseformats.json``
    The description, UTF-8: ``version``, ``class`` (``"CSR"``, ``"Transposed"`` …), ``format``,
    ``library`` (where the matrix came from: a note, not an instruction), ``static`` (shape, n, m,
    the mark of zeros, the base of a transpose) and ``buffers``: name -> dtype.
``<name>.npy``
    One for each buffer of `SparseMatrix.buffers`, side record and marks of zeros included.
    bfloat16 and fp8 are stored as integers of their width; the description has their names.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from sparseformats import _arrays
from sparseformats._dtypes import VALUE_DTYPES, bits_name
from sparseformats.convert.interop import to_device
from sparseformats.formats import SparseMatrix
from sparseformats.io.files import DAMAGED, File, name_of, reading, writing
from sparseformats.io.npz_parts import Description, build, check_description

__all__ = ["load", "save"]

VERSION = 1
_DESCRIPTION = "sparseformats.json"
_AS_BITS = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
_HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def save(target: File, A: SparseMatrix, *, compressed: bool = False) -> None:
    """Write `A` to a file that keeps all of it: format, values, index widths, stored zeros.

    Parameters
    ----------
    target : path or file object
        A path is taken as it is (no suffix is added) and replaced whole at the end; a file object
        must be open for binary writing.
    A : SparseMatrix
        Of any format, library and device.
    compressed : bool
        Whether members are deflated.

    Raises
    ------
    TypeError
        `A` is no matrix of this library, or `target` is neither a path nor a binary file.

    Notes
    -----
    *Loses*: nothing but the library and the device, which are noted only.

    Examples
    --------
    >>> import io, sparseformats as sf
    >>> file = io.BytesIO()
    >>> sf.io.save(file, sf.CSR([0.0, 2.0], [0, 1], [0, 2], (1, 2)))
    >>> sf.io.load(io.BytesIO(file.getvalue()))
    <CSR 1x2, float64, nnz=2, numpy on cpu>
    """
    if not isinstance(A, SparseMatrix):
        raise TypeError(f"expected a matrix of sparseformats, got {type(A).__name__}")
    buffers = A.buffers()
    description = {
        "version": VERSION,
        "class": type(A).__name__,
        "format": A.format,
        "library": A.library,
        "static": A.static(),
        "buffers": {name: A.lib.dtype_name(x) for name, x in buffers.items()},
    }
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with writing(target) as stream, zipfile.ZipFile(stream, "w", method) as archive:
        # Entries carry no time, so that equal matrices give equal files.
        archive.writestr(_entry(_DESCRIPTION, method), json.dumps(description, indent=1))
        for name, x in buffers.items():
            x = A.lib.bits(x) if A.lib.dtype_name(x) in _AS_BITS else x
            with archive.open(_entry(f"{name}.npy", method), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, A.lib.to_numpy(x), allow_pickle=False)


def _entry(name: str, method: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.compress_type = method
    return info


def load(
    source: File, *, library: str | None = None, device: object = None, check: bool = True
) -> SparseMatrix:
    """Read a file of `save`.

    Parameters
    ----------
    source : path or file object
    library : str, optional
        Whose arrays the matrix holds; default NumPy, whatever it was saved from.
    device : optional
        Where they live, as of `to_device`; default the CPU, or the current device for CuPy.
    check : bool
        Whether the matrix is validated; ``False`` trusts the file.

    Returns
    -------
    SparseMatrix
        Equal to what was saved, bit for bit.

    Raises
    ------
    ValueError
        Not such a file, truncated or damaged, or written by a later version of its layout; an
        unknown library or device.
    InvalidTensorError
        The arrays do not form a valid matrix; carries every problem.
    TypeError, ImportError
        The library has no such dtype (fp8 is torch's only) or is not installed.

    Notes
    -----
    Nothing in the file is executed: it holds arrays and JSON.
    """
    if library is not None:
        _arrays.library(library)  # a name that is unknown or not installed is refused first
    host = "torch" if library == "torch" else "numpy"
    name = name_of(source)
    with reading(source) as stream, _sound(name, zipfile.ZipFile, stream) as archive:
        described, arrays = _read(name, archive)
    _require_dtypes(name, described, host)
    lib = _arrays.library(host)
    buffers = {
        key: lib.from_bits(lib.from_numpy(x), described.buffers[key])
        if described.buffers[key] in _AS_BITS
        else lib.from_numpy(x)
        for key, x in arrays.items()
    }
    A = build(name, described, buffers, check=check)
    if device is None and library != "cupy":
        return A
    return to_device(A, "cuda" if device is None else device, library or host)


def _sound(name: str, read: Callable[..., Any], *args: object) -> Any:
    """`read` of the archive, in which damage may raise nearly anything."""
    try:
        return read(*args)
    except (*DAMAGED, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"{name} is no sparseformats file, or is damaged: {reason}") from error


def _read(name: str, archive: zipfile.ZipFile) -> tuple[Description, dict[str, Any]]:
    if _DESCRIPTION not in archive.namelist():
        _refuse_foreign(name, archive.namelist())
    text = _sound(name, archive.read, _DESCRIPTION)
    try:
        raw = json.loads(text)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{name}: the description is not JSON: {error}") from error
    described = check_description(name, raw, VERSION)
    arrays = {}
    for key, dtype in described.buffers.items():
        if f"{key}.npy" not in archive.namelist():
            raise ValueError(f"{name} is damaged: it lacks the member '{key}.npy'")
        arrays[key] = _array(name, key, dtype, archive)
    return described, arrays


def _array(name: str, key: str, dtype: str, archive: zipfile.ZipFile) -> np.ndarray[Any, Any]:
    """One member, whose header must agree with the description and with the member's size."""
    info = archive.getinfo(f"{key}.npy")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} is damaged: '{key}.npy' is packed by method {info.compress_type}")
    expected = bits_name(dtype) if dtype in _AS_BITS else dtype
    with _sound(name, archive.open, info) as member:
        try:
            read_header = _HEADERS[np.lib.format.read_magic(member)]
            shape, fortran, found = read_header(member)
        except (*DAMAGED, ValueError, KeyError) as error:
            raise ValueError(f"{name} is damaged: member '{key}.npy': {error}") from error
        size = math.prod(shape) * found.itemsize
        held = info.file_size - member.tell()
        if found.name != expected or size != held:
            raise ValueError(
                f"{name} is damaged: member '{key}.npy' announces {found.name} {shape} in {held} "
                f"bytes, expected {expected} and {size} bytes"
            )
        content = _sound(name, member.read)
    if len(content) != size:
        raise ValueError(f"{name} is damaged: member '{key}.npy' ends after {len(content)} bytes")
    flat = np.frombuffer(content, found)
    if expected == "bool" and bool((flat.view(np.uint8) > 1).any()):
        raise ValueError(f"{name} is damaged: member '{key}.npy' holds bytes that are no bool")
    native = _arrays.library("numpy").native(flat.reshape(shape, order="F" if fortran else "C"))
    return np.ascontiguousarray(native).reshape(shape)


def _refuse_foreign(name: str, members: list[str]) -> NoReturn:
    hint = ""
    if "format.npy" in members:
        hint = "; a file of scipy.sparse.save_npz is read by load_scipy_npz"
    shown = ", ".join(members[:5]) or "nothing"
    raise ValueError(
        f"{name} is no sparseformats file: it lacks '{_DESCRIPTION}' and holds {shown}{hint}"
    )


def _require_dtypes(name: str, described: Description, host: str) -> None:
    wrong = [dtype for dtype in described.values if dtype not in VALUE_DTYPES[host]]
    if not wrong:
        return
    dtype = wrong[0]
    other = next(lib for lib in ("torch", "numpy") if dtype in VALUE_DTYPES[lib])
    raise TypeError(
        f"{name} holds {dtype} values, which {host} arrays do not have here; use "
        f"load(..., library={other!r})"
    )
