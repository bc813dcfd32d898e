"""The formats: one final frozen class a file, each file's docstring its byte layout and rules."""

from sparseformats.formats.base import ALL, SparseMatrix
from sparseformats.formats.blocked_ell import BlockedELL
from sparseformats.formats.bsr import BSR
from sparseformats.formats.coo import COO
from sparseformats.formats.csc import CSC
from sparseformats.formats.csr import CSR
from sparseformats.formats.nm import NM
from sparseformats.formats.sum import Sum
from sparseformats.formats.transposed import Transposed

__all__ = ["ALL", "BSR", "COO", "CSC", "CSR", "NM", "BlockedELL", "SparseMatrix", "Sum"]
__all__ += ["Transposed"]
