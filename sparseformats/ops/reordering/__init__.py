"""Plans that hold a matrix with alike rows side by side; results have their rows where it has them.

`similarity` orders the rows of a pattern, `strays` improves on that, `blocks` counts what an order
makes of a matrix and keeps it, `kernel` lets a kernel for blocks serve the matrix as it is given,
`decision` weighs one against the other.
"""

from sparseformats.ops.reordering.decision import as_reorder, choose, explain

__all__ = ["as_reorder", "choose", "explain"]
