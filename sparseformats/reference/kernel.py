"""The reference product in the shape of a kernel, so that every call has at least one."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np

from sparseformats.reference.decoding import Slots, slots
from sparseformats.reference.product import Product, multiply

__all__ = ["Reference", "rounded"]


class _State(NamedTuple):
    lib: Any
    device: str
    slots: Slots
    dtype: str


@final
class Reference:
    """Plain loops over rows, on any format of any library on the CPU."""

    @staticmethod
    def pack(A: Any, query: Any) -> _State:
        """Decode the matrix into the places that meet the operand."""
        found = slots(A)
        found = found.transposed() if query.transposed else found
        return _State(A.lib, A.device, found, query.out_dtype)

    @staticmethod
    def run(state: _State, x: Any, out: Any, alpha: Any, beta: Any) -> Any:
        """Multiply in a wide type and round once."""
        lib = state.lib
        summand = lib.to_numpy(out) if out is not None and beta != 0 else None
        product = multiply(state.slots, lib.to_numpy(x), state.dtype, alpha, beta, summand)
        y = rounded(lib, product, state.device)
        if out is None:
            return y
        out[...] = y
        return out


def rounded(lib: Any, product: Product, device: str) -> Any:
    """Round a product to its type, as an array of the library."""
    if not product.dtype.startswith("float8"):
        return lib.from_numpy(product.rounded(), device)
    with np.errstate(over="ignore"):  # the library's own rule where a value is too large
        single = product.value.astype(np.float32)
    return lib.astype(lib.from_numpy(single, device), product.dtype)
