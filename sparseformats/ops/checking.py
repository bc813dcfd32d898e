"""Validation as a function."""

from __future__ import annotations

from sparseformats.formats import SparseMatrix

__all__ = ["validate"]


def validate(A: SparseMatrix) -> None:
    """Raise one `InvalidTensorError` with every broken rule of a matrix, if there are any.

    Pure: changes nothing. Reads the buffers, so it synchronises a device.

    Parameters
    ----------
    A : SparseMatrix

    Raises
    ------
    InvalidTensorError
        `A` is not valid; ``problems`` lists what is wrong and where.
    TypeError
        `A` is not one of this library's matrices.

    Examples
    --------
    >>> import sparseformats as sf
    >>> sf.validate(sf.CSR([1.0], [0], [0, 1], (1, 2)))
    """
    if not isinstance(A, SparseMatrix):
        raise TypeError(
            f"validate takes a matrix of this library, got {type(A).__name__}; "
            "build one first, for example with sparseformats.asformat(S, 'csr')"
        )
    A.validate()
