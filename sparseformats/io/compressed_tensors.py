"""Sparse weights of checkpoints that compressed-tensors wrote."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from glob import escape, glob
from typing import Any

from sparseformats import _arrays
from sparseformats._arrays import Array
from sparseformats.convert.interop import to_device, to_library
from sparseformats.formats import SparseMatrix
from sparseformats.io.bitmask import PARTS, from_parts
from sparseformats.io.files import name_of

__all__ = ["read_compressed_tensors"]

_Loaders = dict[str, Callable[[], Any]]


def read_compressed_tensors(
    source: Any,
    names: Iterable[str] | None = None,
    *,
    stored: str = "nonzero",
    library: str | None = None,
    device: object = None,
) -> dict[str, SparseMatrix]:
    """Read the sparse weights of a checkpoint in the layouts of compressed-tensors.

    These are ``sparse-24-bitmask`` (2:4 weights as kept values and a bit mask) and
    ``sparse-bitmask`` (the same for any pattern, with row offsets).

    Parameters
    ----------
    source : path, several paths, or mapping
        A safetensors file, the shards of one checkpoint or the folder that holds them, or arrays
        by name: ``<name>.compressed``, ``<name>.bitmask``, ``<name>.shape`` and, in
        ``sparse-bitmask`` only, ``<name>.row_offsets``.
    names : iterable of str, optional
        Weights to read; default all.
    stored : ``"nonzero"`` or ``"all"``
        2:4 keeps two of each four columns even where they are zero. By default such zeros are
        fill, as in a dense array; under ``"all"`` they are stored elements, with their signs.
    library : str, optional
        Whose arrays the matrices hold; default that of a mapping, and torch for files, since its
        arrays alone have fp8.
    device : optional
        As of `SparseMatrix.to_device`; default that of a mapping's arrays, and the CPU for files.

    Returns
    -------
    dict of str to NM or CSR
        By the name before ``.compressed``, from which the writer had cut ``.weight``. Matrices
        are 2:4, or CSR where there are row offsets.

    Raises
    ------
    ValueError
        Nothing of the kind is there, parts are missing, the arrays contradict each other or
        their layout, or a file is damaged; names the weight, the array and the fault.
    TypeError
        `source` is nothing of the kind, or the library has no such dtype.
    FileNotFoundError, ImportError
        No such file; the package safetensors, or the library, is not installed.
    NotImplementedError
        Values of a mapping require grad while grad mode is on.

    Notes
    -----
    Values are what was written: those of a quantized weight are its integers or fp8 values, whose
    scales are tensors of their own. Everything else in the checkpoint is left alone. *Loses*:
    under ``stored="nonzero"``, the signs of kept zeros.

    Examples
    --------
    >>> import numpy as np, sparseformats as sf
    >>> parts = {
    ...     "up.shape": np.array([[1], [8]]),
    ...     "up.bitmask": np.array([[0b0110_1001]], np.uint8),
    ...     "up.compressed": np.array([[1.0, 2.0, 3.0, 4.0]], np.float16),
    ... }
    >>> sf.io.read_compressed_tensors(parts)["up"].to_dense()
    array([[1., 0., 0., 2., 0., 3., 4., 0.]], dtype=float16)
    """
    if stored not in ("nonzero", "all"):
        raise ValueError(f"stored must be 'nonzero' or 'all', got {stored!r}")
    place, given = _named(source)
    if library is not None or not given:
        # A name that is unknown or not installed is refused first.
        _arrays.library(library or "torch")
    made = {}
    with _loaders(source, "np" if library in ("numpy", "cupy") else "pt") as found:
        for name, parts in _weights(place, found, names).items():
            held = {part: load() for part, load in parts.items()}
            A = from_parts(f"{place}: {name}", held, stored, copy=given)
            made[name] = _moved(A, library, device)
    return made


def _moved(A: SparseMatrix, library: str | None, device: object) -> SparseMatrix:
    if device is None and library == "cupy" and A.library == "numpy":
        device = "cuda"
    if device is not None:
        return to_device(A, device, library)
    return A if library is None else to_library(A, library)


def _weights(place: str, found: _Loaders, names: Iterable[str] | None) -> dict[str, _Loaders]:
    """Parts of each weight, complete."""
    have = sorted(
        {
            key.removesuffix(f".{part}")
            for key in found
            for part in ("bitmask", "compressed")
            if key.endswith(f".{part}")
        }
    )
    if not have:
        raise ValueError(
            f"{place} holds no weights of sparse-24-bitmask or sparse-bitmask, which have arrays "
            "<name>.bitmask and <name>.compressed"
        )
    wanted = have if names is None else [names] if isinstance(names, str) else list(names)
    weights = {}
    for name in wanted:
        if name not in have:
            shown = ", ".join(have[:8]) + (" …" if len(have) > 8 else "")
            raise ValueError(f"{place} holds no sparse weight {name!r}; it has {shown}")
        weights[name] = {p: found[f"{name}.{p}"] for p in PARTS if f"{name}.{p}" in found}
        missing = [p for p in PARTS[:3] if p not in weights[name]]
        if missing:
            raise ValueError(
                f"{place}: {name} lacks {' and '.join(f'{name}.{p}' for p in missing)}; a shard "
                "of the checkpoint may be missing"
            )
    return weights


# ---- where arrays come from


def _named(source: Any) -> tuple[str, bool]:
    """What to call the source, and whether its arrays belong to the caller."""
    if isinstance(source, Mapping):
        return "mapping", True
    if isinstance(source, (str, os.PathLike)):
        return name_of(source), False
    if isinstance(source, (list, tuple)) and all(
        isinstance(path, (str, os.PathLike)) for path in source
    ):
        return f"{len(source)} files", False
    raise TypeError(
        "expected a path of a safetensors file, several of them, or a mapping of names to arrays, "
        f"got {type(source).__name__}"
    )


@contextmanager
def _loaders(source: Any, framework: str) -> Iterator[_Loaders]:
    """What gives each array when it is called; only the arrays asked for are read."""
    if isinstance(source, Mapping):
        yield {key: partial(source.__getitem__, key) for key in source if isinstance(key, str)}
        return
    with ExitStack() as stack:
        found: _Loaders = {}
        for path in _paths(source):
            handle = _opened(path, framework, stack)
            for key in handle.keys():  # noqa: SIM118 - no mapping, it has keys and get_tensor
                if key in found:
                    raise ValueError(f"{name_of(path)}: {key} is in another file already")
                found[key] = partial(_tensor, name_of(path), handle, key, framework)
        yield found


def _paths(source: Any) -> list[Any]:
    paths: list[Any] = []
    for path in source if isinstance(source, (list, tuple)) else [source]:
        if os.path.isdir(path):
            inside = sorted(glob(os.path.join(escape(os.fspath(path)), "*.safetensors")))
            if not inside:
                raise ValueError(f"{name_of(path)} holds no files *.safetensors")
            paths += inside
        else:
            paths.append(path)
    return paths


def _opened(path: Any, framework: str, stack: ExitStack) -> Any:
    try:
        import safetensors
    except ImportError as error:
        raise ImportError(
            "reading a checkpoint's files needs the package safetensors (pip install "
            "'sparseformats[safetensors]'); a mapping of names to arrays needs nothing"
        ) from error
    try:
        return stack.enter_context(safetensors.safe_open(os.fspath(path), framework=framework))
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"{name_of(path)} is no safetensors file, or is damaged: {error}"
        ) from error


def _tensor(place: str, handle: Any, key: str, framework: str) -> Array:
    if framework == "np":
        dtype = handle.get_slice(key).get_dtype()
        if dtype.startswith("F8"):
            raise TypeError(
                f"{place}: {key} holds fp8 values, which NumPy has not; use library='torch'"
            )
        if dtype == "BF16":
            _arrays.library("numpy").dtype("bfloat16")  # teaches NumPy the name
    return handle.get_tensor(key)
