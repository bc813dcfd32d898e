"""The kernels of sparseformats, one folder a backend.

Each backend's ``__init__.py`` offers ``RECORDS``, a tuple of `KernelRecord`, and imports nothing
heavier than `sparseformats.dispatch.record`; the heavy code lies beside it and is named by string.
A new backend is one folder and one line here. (A list in code, not entry points: a source tree on
PYTHONPATH has none.)
"""

from __future__ import annotations

__all__ = ["BACKENDS"]

BACKENDS = (
    "sparseformats_kernels.cpu",
    "sparseformats_kernels.cuda",
    "sparseformats_kernels.cusparse",
    "sparseformats_kernels.cusparselt",
    "sparseformats_kernels.triton",
)
"""Modules with ``RECORDS``, read in this order at the first question about kernels."""
