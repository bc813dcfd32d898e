"""The plain facts of one call, from which kernels are judged.

A `Query` holds no buffer and no object of an array library, so it can be hashed, printed, sent
over a wire and written into a test by hand. Dtypes, libraries and devices are their names.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass

__all__ = ["Query", "density_bucket", "size_bucket", "skew_bucket"]


@dataclass(frozen=True, slots=True)
class Query:
    """What a kernel may know about a call before it runs.

    Attributes
    ----------
    op : str
        Name of the operation: ``"matmul"``, ``"sddmm"``, ``"convert:csr->bsr"``,
        ``"plan_conversion:csr->bsr"``.
    format : str
        Family of the sparse matrix: ``"coo" "csr" "csc" "bsr" "blocked_ell" "n:m"``, ``"dense"``.
    pattern : (int, int) or None
        ``(n, m)`` of the n:m family.
    transposed : bool
        The matrix is the transpose of what its family stores (``"bsr.T"``).
    m, k, n : int
        The sparse matrix is logically (m, k), the dense operand (k, n); n = 1 for a vector.
    blocksize : (int, int) or None
        ``(R, C)`` of the stored blocks.
    into : (int, int) or None
        ``(R, C)`` of the blocks that a conversion is to make.
    nnz : int or None
        Stored elements; None where counting them would read values, as in BSR, Blocked-ELL, n:m.
    nnzb : int or None
        Places for blocks that are stored: the blocks of BSR; of Blocked-ELL ``block_rows * width``,
        those that are empty (-1) included. None for other formats. Of a conversion plan, as `nnz`
        there, what it has room for.
    nbytes : int or None
        Bytes of the matrix's buffers.
    density : int or None
        `density_bucket` of what is stored: of BSR and Blocked-ELL the share of blocks, `nnzb` of
        all places of the grid; of COO, CSR and CSC that of elements. None where nobody counted.
    row_skew : int or None
        `skew_bucket` of the imbalance of rows; None where telling would read a device's memory.
    union : float or None
        How little block rows share: distinct block columns in neighbouring block rows that are 128
        rows high together, as a share of the blocks that these store, over the whole matrix. 1
        where they share none. None where nobody counted.
    a_dtype, x_dtype, out_dtype : str or None
        Names of the value dtypes of the matrix, the dense operand and the result.
    index_dtype : str or None
        ``"int32"`` or ``"int64"``.
    fits_int32 : bool
        Shape, nnz and the element addresses of blocks all fit int32.
    library : str
        ``"numpy" "torch" "cupy" "array_api_strict"``.
    device : str
        Kind of device: ``"cpu" "cuda" "meta"``.
    capability : (int, int) or None
        Compute capability of a CUDA device.
    x_layout, out_layout : str or None
        ``"C"``: whole rows without a gap; ``"F"``: the same of columns; ``"strided"``: anything
        else, padded rows among it. None for an operand that is not given. A kernel that can read
        padded rows looks at the strides of the operand itself.
    x_aligned, out_aligned : bool or None
        The address and every stride but the unit one are multiples of 16 bytes, so that whole rows
        (of ``"F"``: columns) can be read in vectors or by TMA; in a batch those of every piece.
        None for an operand that is not given, and in libraries of which nobody asks (NumPy).
    batch : int
        Product of the leading batch axes of the dense operand.
    alpha_one, beta_zero : bool
        The scalars are trivial: alpha == 1, beta == 0.
    wide : bool
        The result is wanted in the dtype in which sums are kept (float32 for half types) and not in
        that of the operands' promotion, because something will be added before it is rounded.
    epilogue : str or None
        What is fused behind the product: ``"bias"``, ``"relu"``, ``"bias+gelu"``, as a whole
        ``"scale+bias+gelu+residual"``. With ``"scale"`` the sums, of int8 or fp8, are scaled in
        float32 and rounded to `out_dtype`, which is then not that of the operands' promotion.
    scales : str or None
        What an epilogue with ``"scale"`` has beside numbers, such as ``"one+rows"``: arrays of
        ``"one"`` scale, of one for each of the ``"rows"`` of the result, for each of its
        ``"columns"``.
    bias_dtype : str or None
        The dtype of such an epilogue's bias as it was given; kernels get it in float32.
    precision : str or None
        ``"tf32"`` and the like is allowed; None is the IEEE arithmetic of the dtypes.
    deterministic : bool
        Only kernels that give the same bits on every run will do.
    grad : bool
        An operand wants gradients.
    assume_finite : bool
        The caller promises that the dense operand holds no NaN and no infinity.
    """

    op: str
    format: str = "dense"
    _: KW_ONLY
    pattern: tuple[int, int] | None = None
    transposed: bool = False
    m: int = 0
    k: int = 0
    n: int = 1
    blocksize: tuple[int, int] | None = None
    into: tuple[int, int] | None = None
    nnz: int | None = None
    nnzb: int | None = None
    nbytes: int | None = None
    density: int | None = None
    row_skew: int | None = None
    union: float | None = None
    a_dtype: str | None = None
    x_dtype: str | None = None
    out_dtype: str | None = None
    index_dtype: str | None = None
    fits_int32: bool = True
    library: str = "numpy"
    device: str = "cpu"
    capability: tuple[int, int] | None = None
    x_layout: str | None = None
    out_layout: str | None = None
    x_aligned: bool | None = None
    out_aligned: bool | None = None
    batch: int = 1
    alpha_one: bool = True
    beta_zero: bool = True
    wide: bool = False
    epilogue: str | None = None
    scales: str | None = None
    bias_dtype: str | None = None
    precision: str | None = None
    deterministic: bool = False
    grad: bool = False
    assume_finite: bool = False

    @property
    def format_name(self) -> str:
        """The matrix's format as the user writes it: ``"csr"``, ``"bsr.T"``, ``"2:4"``."""
        name = self.format if self.pattern is None else f"{self.pattern[0]}:{self.pattern[1]}"
        return f"{name}.T" if self.transposed else name

    def to_dict(self) -> dict[str, object]:
        """Return all facts by name."""
        return {name: getattr(self, name) for name in self.__slots__}

    def describe(self) -> str:
        """Write one line that a person can read.

        >>> Query("matmul", "csr", m=6, k=4, n=2, a_dtype="float32", x_dtype="float32").describe()
        'matmul: csr (6 x 4, float32) @ (4 x 2, float32), numpy on cpu'
        """
        text = f"{self.op}: {self._matrix()}"
        if self.x_dtype is not None:
            text += f" @ {self._operand()}"
        if self.out_dtype is not None:
            text += f" -> {self.out_dtype}"
        return f"{text}, {self.library} on {self._place()}{self._switches()}"

    def _matrix(self) -> str:
        facts = [f"{self.m} x {self.k}"]
        facts += [f"blocks {self.blocksize[0]} x {self.blocksize[1]}"] if self.blocksize else []
        if self.into is not None and self.into != self.blocksize:
            facts.append(f"into {self.into[0]} x {self.into[1]}")
        facts += [f"{self.nnzb} stored"] if self.nnzb is not None else []
        facts += [f"nnz {self.nnz}"] if self.nnz is not None else []
        facts += [name for name in (self.a_dtype, self.index_dtype) if name is not None]
        return f"{self.format_name} ({', '.join(facts)})"

    def _operand(self) -> str:
        batch = f"{self.batch} of " if self.batch != 1 else ""
        layout = f", {self.x_layout}" if self.x_layout is not None else ""
        return f"({batch}{self.k} x {self.n}, {self.x_dtype}{layout})"

    def _place(self) -> str:
        if self.capability is None:
            return self.device
        return f"{self.device} (compute capability {self.capability[0]}.{self.capability[1]})"

    def _switches(self) -> str:
        switches = {
            "alpha != 1": not self.alpha_one,
            "beta != 0": not self.beta_zero,
            "unrounded": self.wide,
            f"epilogue {self.epilogue}": self.epilogue is not None,
            f"scales of {self.scales}": self.scales is not None,
            f"precision {self.precision}": self.precision is not None,
            "deterministic": self.deterministic,
            "gradients wanted": self.grad,
            "finite operand promised": self.assume_finite,
        }
        return "".join(f", {text}" for text, on in switches.items() if on)


def density_bucket(stored: int, slots: int) -> int:
    """Return the bucket of a density: b, at most 30, where 2**-(b + 1) < density <= 2**-b.

    Parameters
    ----------
    stored, slots : int
        Stored elements, and the places that they could fill. No places at all count as full.

    Examples
    --------
    >>> density_bucket(16, 16), density_bucket(9, 16), density_bucket(8, 16)
    (0, 0, 1)
    """
    if slots <= 0:
        return 0
    if stored <= 0:
        return 30
    return min(30, max(0, math.floor(math.log2(slots / stored))))


def skew_bucket(longest: int, mean: float) -> int:
    """Return the bucket of row imbalance: how often the longest row doubles the mean.

    Examples
    --------
    >>> skew_bucket(10, 10.0), skew_bucket(25, 10.0), skew_bucket(40, 10.0)
    (0, 1, 2)
    """
    if mean <= 0 or longest <= mean:
        return 0
    return math.floor(math.log2(longest / mean))


def size_bucket(n: int) -> int:
    """Round n up to a power of two (0 stays 0): batch sizes in packing and tables.

    Examples
    --------
    >>> [size_bucket(n) for n in (0, 1, 3, 64, 65)]
    [0, 1, 4, 64, 128]
    """
    return 0 if n <= 0 else 1 << (n - 1).bit_length()
