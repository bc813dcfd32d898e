"""BSR -> BSR of another block size, through the largest blocks that divide both."""

from __future__ import annotations

import math

from sparseformats.convert.merge import merge
from sparseformats.convert.options import Options
from sparseformats.convert.split import split
from sparseformats.formats import BSR

__all__ = ["bsr_to_bsr"]


def bsr_to_bsr(A: BSR, options: Options) -> BSR:
    """Cut blocks where the new grid cuts them, then join what falls together.

    Blocks without a stored element are dropped; under the mark "all" every slot is one.
    """
    size = options.blocksize
    assert size is not None
    common = math.gcd(A.blocksize[0], size[0]), math.gcd(A.blocksize[1], size[1])
    small = A if A.blocksize == common else split(A, common, options)
    return small if common == size else merge(small, size, options)
