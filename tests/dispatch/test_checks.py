from dataclasses import replace
from pathlib import Path

import pytest
from dispatch_fakes import Q

from sparseformats.dispatch import CODES, checks

CASES = [  # check, a query that passes, one that does not, code, what the message must say
    (checks.library_is("numpy"), {}, {"library": "torch"}, "library", "arrays of numpy, has torch"),
    (checks.device_is("cuda"), {"device": "cuda"}, {}, "device", "device cuda, has cpu"),
    (checks.capability_at_least(8), {"capability": (9, 0)}, {"capability": (7, 5)}, "capability",
     "compute capability >= 8.0, has 7.5"),
    (checks.capability_at_least(8, 9), {"capability": (8, 9)}, {}, "capability", "has none"),
    (checks.dtype_in("float32", "float64"), {}, {"a_dtype": "int8"}, "dtype",
     "A of dtype float32 or float64, has int8"),
    (checks.dtype_in("float32", operand="x"), {}, {"x_dtype": "int8"}, "dtype", "X of dtype"),
    (checks.dtype_in("float32", operand="out"), {"out_dtype": "float32"}, {}, "dtype", "has none"),
    (checks.dtypes_equal(), {}, {"x_dtype": "float64"}, "dtype", "A of float32 and X of float64"),
    (checks.fits_int32(), {}, {"fits_int32": False}, "index-width", "2147483647"),
    (checks.pattern_in((2, 4), (1, 2)), {"pattern": (2, 4)}, {"pattern": (3, 4)}, "pattern",
     "pattern 2:4 or 1:2, has 3:4"),
    (checks.pattern_in((2, 4)), {"pattern": (2, 4)}, {}, "pattern", "has none"),
    (checks.blocksize_in((16, 16), (32, 32)), {"blocksize": (32, 32)}, {"blocksize": (8, 4)},
     "blocksize", "block size (16, 16) or (32, 32), has (8, 4)"),
    (checks.blocksize_is_square(), {"blocksize": (4, 4)}, {"blocksize": (8, 4)}, "blocksize",
     "square blocks, has block size (8, 4)"),
    (checks.blocksize_is_square(), {"blocksize": (4, 4)}, {}, "blocksize", "has block size none"),
    (checks.divides("k", 16), {"k": 48}, {"k": 50}, "divisibility",
     "needs K % 16 == 0, has K = 50"),
    (checks.divides("R", 16), {"blocksize": (16, 1)}, {}, "divisibility", "has R = unknown"),
    (checks.divides("C", 16), {"blocksize": (1, 16)}, {"blocksize": (16, 1)}, "divisibility",
     "needs C % 16 == 0, has C = 1"),
    (checks.at_least("n", 16), {"n": 16}, {"n": 15}, "size", "needs N >= 16, has N = 15"),
    (checks.at_most("m", 4), {"m": 4}, {"m": 5}, "size", "needs M <= 4, has M = 5"),
    (checks.at_most("nnz", 4), {"nnz": 4}, {"nnz": None}, "size", "has nnz = unknown"),
    (checks.layout_in("C", "F"), {"x_layout": "F"}, {"x_layout": "strided"}, "layout",
     "X in layout C or F, has layout strided"),
    (checks.layout_in("C", operand="out"), {}, {"out_layout": "F"}, "layout", "OUT in layout C"),
    (checks.aligned(), {"x_aligned": True}, {"x_aligned": False}, "alignment",
     "X in 16-byte rows, has an address or stride"),
    (checks.aligned("out"), {}, {"out_aligned": False}, "alignment", "OUT in 16-byte rows"),
    (checks.at_least("nnzb", 2), {"nnzb": 2}, {}, "size", "needs nnzb >= 2, has nnzb = unknown"),
    (checks.no_batch(), {}, {"batch": 4}, "batch", "has a batch of 4"),
    (checks.alpha_is_one(), {}, {"alpha_one": False}, "scaling", "alpha == 1"),
    (checks.beta_is_zero(), {}, {"beta_zero": False}, "scaling", "beta == 0"),
    (checks.epilogue_in(None, "bias"), {"epilogue": "bias"}, {"epilogue": "gelu"}, "epilogue",
     "epilogue none or bias, has gelu"),
    (checks.epilogue_of("scale", "bias", "activation", "residual"),
     {"epilogue": "scale+bias+gelu+residual"}, {"epilogue": "residual+bias"}, "epilogue",
     "epilogue none or some of scale, bias, activation, residual, has residual+bias"),
    (checks.epilogue_of("bias", "activation"), {"epilogue": "relu"}, {"epilogue": "relu+residual"},
     "epilogue", "has relu+residual"),
    (checks.epilogue_of("bias"), {}, {"epilogue": "scale"}, "epilogue", "has scale"),
    (checks.precision_in(None), {}, {"precision": "tf32"}, "precision", "precision none, has tf32"),
    (checks.not_implemented_grad(), {}, {"grad": True}, "gradient", "requires grad"),
    (checks.finite_operand(), {"assume_finite": True}, {}, "needs-finite-operand", "of float32"),
    (checks.finite_operand(), {"x_dtype": "uint8"}, {"x_dtype": None},
     "needs-finite-operand", "has"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "good", "bad", "code", "text"), CASES)
def test_each_check_passes_and_refuses_with_both_sides(check, good, bad, code, text):
    assert check(replace(Q, **good)) is None
    reason = check(replace(Q, **bad))
    assert reason.code == code
    assert text in reason.message
    assert reason.message.startswith("needs ")
    assert ", has " in reason.message
    assert "{" not in reason.message + (reason.hint or "")


def test_every_factory_is_covered_and_every_code_is_documented():
    made = {check.code for check, *_ in CASES}
    assert made <= set(CODES)
    lines = Path(__file__).read_text()
    assert [n for n in checks.__all__ if n != "Check" and f"checks.{n}(" not in lines] == []


def test_one_of_checks_are_data():
    check = checks.library_is("numpy", "torch")
    assert (check.fact, check.allowed) == ("library", ("numpy", "torch"))
    assert check.needs == "arrays of numpy or torch"


def test_unknown_size_or_operand_is_the_author_s_bug_and_found_at_once():
    with pytest.raises(KeyError):
        checks.divides("q", 2)
