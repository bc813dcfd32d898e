"""Slow, obvious decoding and multiplication of every format, in NumPy alone.

This module is the oracle: it reads the buffers of a format by plain loops, shares no code with
``convert`` and is never optimised. The dispatcher also uses it as the kernel of last resort.

Two views of a matrix matter. Its *stored* elements are its content. Its *slots* are the places that
meet a dense operand in a product: the stored elements of COO, CSR and CSC, but every place inside
the logical shape of a stored block of BSR and Blocked-ELL, where a zero times infinity is NaN as in
dense arithmetic.
"""

from sparseformats.reference.decoding import (
    Content,
    Slots,
    content,
    dense,
    entries,
    same_content,
    slots,
)
from sparseformats.reference.pairs import sparse_matmul
from sparseformats.reference.product import Product, matmul, multiply, product_dtype, rmatmul
from sparseformats.reference.sampled import sampled

__all__ = [
    "Content",
    "Product",
    "Slots",
    "content",
    "dense",
    "entries",
    "matmul",
    "multiply",
    "product_dtype",
    "rmatmul",
    "same_content",
    "sampled",
    "slots",
    "sparse_matmul",
]
