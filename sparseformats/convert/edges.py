"""The table of conversion steps: what each keeps and costs.

A path from any format to any other is found over these lines (`sparseformats.convert.graph`), and
each line serves the transposed formats too: an edge ``f -> g`` is run on ``A.T``, which moves no
data, and its result is transposed back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from sparseformats.convert.bsr_bsr import bsr_to_bsr
from sparseformats.convert.bsr_ell import bsr_to_ell, ell_to_bsr
from sparseformats.convert.coo_csc import coo_to_csc, csc_to_coo
from sparseformats.convert.coo_csr import coo_to_csr, csr_to_coo
from sparseformats.convert.csr_bsr import bsr_to_csr, csr_to_bsr
from sparseformats.convert.csr_csc import csc_to_csr, csr_to_csc
from sparseformats.convert.csr_nm import csr_to_nm, nm_to_csr
from sparseformats.convert.dense_bsr import bsr_to_dense, dense_to_bsr
from sparseformats.convert.dense_csr import (
    coo_to_dense,
    csc_to_dense,
    csr_to_dense,
    dense_to_csr,
)
from sparseformats.convert.dense_nm import dense_to_nm, nm_to_dense
from sparseformats.convert.options import Options
from sparseformats.convert.transposed import bsr_transposed_to_bsr

__all__ = ["EDGES", "Edge", "Key"]

Key = Literal["none", "new", "same", "swap"]


@dataclass(frozen=True, slots=True)
class Edge:
    """One conversion step.

    Attributes
    ----------
    source, target : str
        Families, ``"bsr.T"``, or ``"dense"``.
    run : callable
        ``run(A, options) -> B``, for arrays of every library.
    cost : float
        Nanoseconds a stored element (or slot, or dense element) on one CPU core, roughly: it
        decides between paths.
    keeps : str
        What is kept, for people.
    key : {"none", "new", "same", "swap"}
        Block size or pattern of the target: it has none; the one that is asked for; the
        source's; the source's with rows and columns exchanged.
    """

    source: str
    target: str
    run: Callable[[Any, Options], Any]
    cost: float
    keeps: str
    key: Key = "none"

    @property
    def op(self) -> str:
        """The operation under which faster implementations are registered."""
        return f"convert:{self.source}->{self.target}"


_ALL = "every stored element"
_MARKED = "every stored element; stored zeros are marked"
_VALUES = "every value; not which zeros are stored"
_DENSE = "every non-zero, or what the mask selects"

EDGES: tuple[Edge, ...] = (
    Edge("coo", "csr", coo_to_csr, 0.5, _ALL),
    Edge("csr", "coo", csr_to_coo, 1, _ALL),
    Edge("csr", "csc", csr_to_csc, 25, _ALL),
    Edge("csc", "csr", csc_to_csr, 25, _ALL),
    Edge("coo", "csc", coo_to_csc, 24, _ALL),
    Edge("csc", "coo", csc_to_coo, 25, _ALL),
    Edge("csr", "bsr", csr_to_bsr, 12, _MARKED, "new"),
    Edge("bsr", "csr", bsr_to_csr, 6, "every stored element; fill is dropped"),
    Edge("bsr", "bsr", bsr_to_bsr, 10, "every stored element; stored zeros stay marked", "new"),
    Edge("bsr.T", "bsr", bsr_transposed_to_bsr, 3, "every block and mark", "swap"),
    Edge("bsr", "blocked_ell", bsr_to_ell, 2, "every block and mark", "same"),
    Edge("blocked_ell", "bsr", ell_to_bsr, 2, "every block and mark", "same"),
    Edge("csr", "n:m", csr_to_nm, 30, f"{_MARKED}, or lie aside where no slot is left", "new"),
    Edge("n:m", "csr", nm_to_csr, 8, "every stored element, those aside too"),
    Edge("dense", "csr", dense_to_csr, 2, _DENSE),
    Edge("dense", "bsr", dense_to_bsr, 2, _DENSE, "new"),
    Edge("dense", "n:m", dense_to_nm, 31, f"{_DENSE}; or lie aside where no slot is left", "new"),
    Edge("coo", "dense", coo_to_dense, 4, _VALUES),
    Edge("csr", "dense", csr_to_dense, 5, _VALUES),
    Edge("csc", "dense", csc_to_dense, 5, _VALUES),
    Edge("bsr", "dense", bsr_to_dense, 1, _VALUES),
    Edge("n:m", "dense", nm_to_dense, 4, _VALUES),
)
