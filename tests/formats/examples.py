"""One small canonical matrix of each format, by hand, in any library and dtype.

All hold the same 3 x 5 matrix (ragged for blocks of 2 and groups of 4)::

    [[1, 0, 0, 2, 0],
     [0, 0, 0, 0, 3],
     [0, 4, 0, 0, 5]]
"""

import copy as _copy

import numpy as np
import torch

from sparseformats import BSR, COO, CSC, CSR, NM, BlockedELL, _arrays
from sparseformats.testing import register_strict

register_strict()

LIBRARIES = ("numpy", "torch", "array_api_strict")
SHAPE = (3, 5)
DENSE = [[1, 0, 0, 2, 0], [0, 0, 0, 0, 3], [0, 4, 0, 0, 5]]

CLASSES = {"coo": COO, "csr": CSR, "csc": CSC, "bsr": BSR, "blocked_ell": BlockedELL, "2:4": NM}
FORMATS = tuple(CLASSES)
SLOT_FORMATS = ("bsr", "blocked_ell", "2:4")
ALL_FORMATS = (*FORMATS, *(f"{name}.T" for name in SLOT_FORMATS))

_ARRAYS = {
    "coo": {"data": [1, 2, 3, 4, 5], "row": [0, 0, 1, 2, 2], "col": [0, 3, 4, 1, 4]},
    "csr": {"data": [1, 2, 3, 4, 5], "indices": [0, 3, 4, 1, 4], "indptr": [0, 2, 3, 5]},
    "csc": {"data": [1, 4, 2, 3, 5], "indices": [0, 2, 0, 1, 2], "indptr": [0, 1, 2, 2, 3, 5]},
    "bsr": {
        "data": [[[1, 0], [0, 0]], [[0, 2], [0, 0]], [[0, 0], [3, 0]], [[0, 4], [0, 0]]]
        + [[[5, 0], [0, 0]]],
        "indices": [0, 1, 2, 0, 2],
        "indptr": [0, 3, 5],
    },
    "blocked_ell": {
        "data": [
            [[[1, 0], [0, 0]], [[0, 2], [0, 0]], [[0, 0], [3, 0]]],
            [[[0, 4], [0, 0]], [[5, 0], [0, 0]], [[0, 0], [0, 0]]],
        ],
        "col_indices": [[0, 1, 2], [0, 2, -1]],
    },
    "2:4": {
        "data": [[[1, 2], [0, 0]], [[0, 0], [3, 0]], [[0, 4], [5, 0]]],
        "indices": [[[0, 3], [0, 1]], [[0, 1], [0, 1]], [[0, 1], [0, 1]]],
    },
}


def arrays(format, library="numpy", dtype="float64", index="int32", device="cpu"):
    """Constructor arguments of the example, as arrays of a library."""
    lib = _arrays.library(library)
    host = _arrays.library("numpy")
    made = {}
    for name, values in _ARRAYS[format].items():
        kind = dtype if name == "data" else "uint8" if format == "2:4" else index
        if kind.startswith("float8"):
            made[name] = torch.tensor(values, dtype=torch.float32).to(getattr(torch, kind))
        else:
            made[name] = lib.from_numpy(np.array(values).astype(host.dtype(kind)), device)
    return made


def lists(format):
    """Constructor arguments of the example, as nested lists."""
    return _copy.deepcopy(_ARRAYS[format])


def build(format, library="numpy", dtype="float64", index="int32", **options):
    """The example; ``"bsr.T"`` and the like are its transposes."""
    name = format.removesuffix(".T")
    A = CLASSES[name](**arrays(name, library, dtype, index), shape=SHAPE, **options)
    return A.T if format.endswith(".T") else A


def changed(format, library="numpy", **values):
    """Arguments of the example with some arrays replaced by lists of the same dtype."""
    lib = _arrays.library(library)
    found = arrays(format, library)
    for name, value in values.items():
        if name in found:
            dtype = lib.dtype_name(found[name])
            value = lib.from_numpy(np.array(value, dtype=dtype), "cpu")
        found[name] = value
    return {"shape": SHAPE, **found}


def host(A, name):
    """A buffer as a NumPy array."""
    return A.lib.to_numpy(A.buffers()[name])
