"""CSR <-> BSR. CSR is BSR with 1 x 1 blocks that are all stored."""

from __future__ import annotations

from sparseformats.convert.merge import merge
from sparseformats.convert.options import Options
from sparseformats.convert.split import split
from sparseformats.formats import ALL, BSR, CSR

__all__ = ["bsr_to_csr", "csr_to_bsr"]


def csr_to_bsr(A: CSR, options: Options) -> BSR:
    """Gather elements into blocks; stored zeros are marked."""
    assert options.blocksize is not None
    elements = BSR.trusted(
        data=A.lib.xp.reshape(A.data, (A.nnz, 1, 1)),
        indices=A.indices,
        indptr=A.indptr,
        shape=A.shape,
        zeros=ALL,
    )
    return merge(elements, options.blocksize, options)


def bsr_to_csr(A: BSR, options: Options) -> CSR:
    """Keep what is stored: non-zeros and marked zeros. Fill and padding vanish."""
    elements = split(A, (1, 1), options)
    return CSR.trusted(
        data=A.lib.xp.reshape(elements.data, (elements.nnzb,)),
        indices=elements.indices,
        indptr=elements.indptr,
        shape=A.shape,
    )
