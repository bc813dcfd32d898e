"""Operations on sparse matrices: normalise the operands, ask dispatch for a kernel, run it.

`operands` reads the arguments and refuses what cannot be multiplied before anything runs;
`product` is the dense product, `sparse_product` that of two sparse matrices; `torch_functions`
answers for torch's own functions.
"""

from sparseformats.ops.checking import validate
from sparseformats.ops.product import explain, matmul, matmul_operator
from sparseformats.ops.torch_functions import torch_function

__all__ = ["explain", "matmul", "matmul_operator", "torch_function", "validate"]
