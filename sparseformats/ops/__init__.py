"""Operations on sparse matrices: normalise the operands, ask dispatch for a kernel, run it.

`operands` reads the arguments and refuses what cannot be multiplied before anything runs;
`product` is the dense product, `sparse_product` that of two sparse matrices, `layer` one with
bias and activation, `sampled` a dense product sampled at a pattern; `torch_functions`
answers for torch's own functions. `plans` prepares products, `light` and `cache` are what a warm
call finds prepared. `sums` makes the product of a sum of those of its parts. `converting` prepares
conversions that are repeated, `room` is what they fill, `room_products` multiplies what lies there.
"""

from sparseformats.ops.cache import cache_info, clear_cache, set_cache_limit
from sparseformats.ops.checking import validate
from sparseformats.ops.conversion_plans import ConversionPlan
from sparseformats.ops.converting import plan_conversion
from sparseformats.ops.explaining import explain
from sparseformats.ops.layer import explain_linear, linear
from sparseformats.ops.planning import plan
from sparseformats.ops.plans import Plan
from sparseformats.ops.product import matmul, matmul_operator
from sparseformats.ops.sampled import explain_sddmm, sddmm
from sparseformats.ops.sum_explaining import SumExplanation
from sparseformats.ops.sum_plans import SumPlan
from sparseformats.ops.torch_functions import torch_function

__all__ = [
    "ConversionPlan",
    "Plan",
    "SumExplanation",
    "SumPlan",
    "cache_info",
    "clear_cache",
    "explain",
    "explain_linear",
    "explain_sddmm",
    "linear",
    "matmul",
    "matmul_operator",
    "plan",
    "plan_conversion",
    "sddmm",
    "set_cache_limit",
    "torch_function",
    "validate",
]
