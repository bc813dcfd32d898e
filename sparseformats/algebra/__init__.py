"""What people expect of a matrix: making, stacking, slicing, adding, scaling, pruning, splitting.

Every operation is written once, for all array libraries, from the primitives of
`sparseformats._arrays`, and runs where the data is. Values that are only moved keep their bits.
"""

from sparseformats.algebra.arithmetic import add, multiply, subtract
from sparseformats.algebra.casting import astype
from sparseformats.algebra.making import eye, random
from sparseformats.algebra.pattern import PatternReport, check_pattern
from sparseformats.algebra.pruning import prune
from sparseformats.algebra.reduce import diagonal, total
from sparseformats.algebra.scaling import absolute, divided, negative, scaled
from sparseformats.algebra.slicing import getitem
from sparseformats.algebra.splitting import split
from sparseformats.algebra.stacking import block_diag, hstack, vstack
from sparseformats.algebra.values import eliminate_zeros, with_data

__all__ = [
    "PatternReport",
    "absolute",
    "add",
    "astype",
    "block_diag",
    "check_pattern",
    "diagonal",
    "divided",
    "eliminate_zeros",
    "eye",
    "getitem",
    "hstack",
    "multiply",
    "negative",
    "prune",
    "random",
    "scaled",
    "split",
    "subtract",
    "total",
    "vstack",
    "with_data",
]
