"""Sparse matrices in six formats, converted without loss and multiplied by one call.

Formats are imported at once; everything that needs more than NumPy is imported when first used.
"""

from typing import TYPE_CHECKING, Any

from sparseformats.errors import (
    DeviceMismatchError,
    InvalidTensorError,
    KernelLoadWarning,
    LossyConversionError,
    NoKernelError,
    PatternError,
    Problem,
    SparseFormatsError,
)
from sparseformats.formats import BSR, COO, CSC, CSR, NM, BlockedELL, SparseMatrix, Transposed

if TYPE_CHECKING:
    from sparseformats import io as io
    from sparseformats import testing as testing
    from sparseformats.convert import (
        asformat,
        explain_conversion,
        from_cupy,
        from_dense,
        from_scipy,
        from_torch,
        same,
    )
    from sparseformats.dispatch import kernels, tracing, use_kernel
    from sparseformats.ops import explain, matmul, validate

__all__ = [
    "BSR",
    "COO",
    "CSC",
    "CSR",
    "NM",
    "BlockedELL",
    "DeviceMismatchError",
    "InvalidTensorError",
    "KernelLoadWarning",
    "LossyConversionError",
    "NoKernelError",
    "PatternError",
    "Problem",
    "SparseFormatsError",
    "SparseMatrix",
    "Transposed",
    "asformat",
    "explain",
    "explain_conversion",
    "from_cupy",
    "from_dense",
    "from_scipy",
    "from_torch",
    "kernels",
    "matmul",
    "same",
    "tracing",
    "use_kernel",
    "validate",
]

__version__ = "0.1.0"

_LATER = {
    "asformat": "sparseformats.convert",
    "explain": "sparseformats.ops",
    "explain_conversion": "sparseformats.convert",
    "from_cupy": "sparseformats.convert",
    "from_dense": "sparseformats.convert",
    "from_scipy": "sparseformats.convert",
    "from_torch": "sparseformats.convert",
    "kernels": "sparseformats.dispatch",
    "matmul": "sparseformats.ops",
    "same": "sparseformats.convert",
    "tracing": "sparseformats.dispatch",
    "use_kernel": "sparseformats.dispatch",
    "validate": "sparseformats.ops",
}
_MODULES = ("io", "reference", "testing")


def __getattr__(name: str) -> Any:
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"sparseformats.{name}")
    if name not in _LATER:
        raise AttributeError(f"module 'sparseformats' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LATER[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
