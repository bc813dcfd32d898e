"""In and out of SciPy, torch and CuPy: their sparse objects, and ours on their arrays.

Objects of other libraries are mutable and ours are values, so the crossing copies unless a
function says otherwise. Nothing is ever written to the caller's object.
"""

from sparseformats.convert.interop.cupy_ import from_cupy, to_cupy
from sparseformats.convert.interop.move import to_device, to_library
from sparseformats.convert.interop.scipy_ import from_scipy, to_scipy
from sparseformats.convert.interop.torch_in import from_torch
from sparseformats.convert.interop.torch_out import to_torch

__all__ = [
    "from_cupy",
    "from_scipy",
    "from_torch",
    "to_cupy",
    "to_device",
    "to_library",
    "to_scipy",
    "to_torch",
]
