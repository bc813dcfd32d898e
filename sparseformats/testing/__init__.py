"""Strategies, laws, error bounds and certification, for our own tests and for other people's.

Needs the extra ``sparseformats[test]`` (hypothesis); nothing else in the library imports it.
"""

from __future__ import annotations

from sparseformats.reference.decoding import host_dtype
from sparseformats.testing._memory import shares_memory, unchanged
from sparseformats.testing.bounds import assert_close, assert_product, error_bound
from sparseformats.testing.broken import RULES, BrokenInput, broken_inputs
from sparseformats.testing.certify import Certificate, certify_format, certify_kernel
from sparseformats.testing.laws import (
    check_content_preserved,
    check_copy,
    check_dense_round_trip,
    check_immutable,
    check_index_width,
    check_no_shared_memory,
    check_pickle,
    check_round_trip,
    check_same_buffers,
    check_transpose,
    check_valid,
    holds,
)
from sparseformats.testing.operands import LAYOUTS, dense_operands, laid_out
from sparseformats.testing.products import check_product
from sparseformats.testing.raw import RawInput
from sparseformats.testing.sparse_results import check_sampled, check_sparse_product
from sparseformats.testing.strategies import FORMATS, blocksizes, matrices, raw_inputs, shapes
from sparseformats.testing.strict import StrictLibrary, register_strict

__all__ = [
    "FORMATS",
    "LAYOUTS",
    "RULES",
    "BrokenInput",
    "Certificate",
    "RawInput",
    "StrictLibrary",
    "assert_close",
    "assert_product",
    "blocksizes",
    "broken_inputs",
    "certify_format",
    "certify_kernel",
    "check_content_preserved",
    "check_copy",
    "check_dense_round_trip",
    "check_immutable",
    "check_index_width",
    "check_no_shared_memory",
    "check_pickle",
    "check_product",
    "check_round_trip",
    "check_same_buffers",
    "check_sampled",
    "check_sparse_product",
    "check_transpose",
    "check_valid",
    "dense_operands",
    "error_bound",
    "holds",
    "host_dtype",
    "laid_out",
    "matrices",
    "raw_inputs",
    "register_strict",
    "shapes",
    "shares_memory",
    "unchanged",
]
