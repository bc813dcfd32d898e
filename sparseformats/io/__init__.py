"""Files: Matrix Market, this library's own ``.npz``, SciPy's ``.npz``, sparse checkpoints.

Files are written beside their place and then renamed, so that a reader never sees half a file.
Writing is an act on the host: it takes matrices of any library and device.
"""

from sparseformats.io.compressed_tensors import read_compressed_tensors
from sparseformats.io.market import MatrixMarketError, read_matrix_market, write_matrix_market
from sparseformats.io.npz import load, save
from sparseformats.io.scipy_npz import load_scipy_npz, save_scipy_npz

__all__ = [
    "MatrixMarketError",
    "load",
    "load_scipy_npz",
    "read_compressed_tensors",
    "read_matrix_market",
    "save",
    "save_scipy_npz",
    "write_matrix_market",
]
