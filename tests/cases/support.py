"""What the case tests share: every format as a target, every array library, every kernel."""

import numpy as np

import sparseformats as sf
from sparseformats import _arrays, reference
from sparseformats.testing import register_strict

register_strict()

LIBRARIES = ("numpy", "torch")
STRICT = (*LIBRARIES, "array_api_strict")

# Every format, block formats with blocks that divide, do not divide and exceed small shapes.
TARGETS = (
    ("coo", {}),
    ("csr", {}),
    ("csc", {}),
    ("bsr", {"blocksize": (1, 1)}),
    ("bsr", {"blocksize": (2, 3)}),
    ("bsr", {"blocksize": (5, 4)}),
    ("blocked_ell", {"blocksize": 1}),
    ("blocked_ell", {"blocksize": 2}),
    ("blocked_ell", {"blocksize": 7}),
)
GROUPED = (("2:4", {}), ("4:4", {}))
SPARSE_LINES = (*TARGETS, *GROUPED)


def name_of(target):
    """Readable identity of a target for pytest."""
    format, options = target
    return f"{format}{options.get('blocksize', '')}".replace(" ", "")


def array(x, library="numpy", dtype=None):
    """A NumPy array or list as an array of a library."""
    return _arrays.library(library).from_numpy(np.array(x, dtype), "cpu")


def host(x):
    """An array of any library as NumPy."""
    return _arrays.of(x).to_numpy(x)


def dense(A):
    """Dense values of a matrix by the reference, never by the code under test."""
    return reference.dense(A)


def content(A):
    """Stored elements: place to bits."""
    return dict(reference.content(A).elements)


def convert(A, target):
    """Convert and check that the result is valid and of the format asked for."""
    format, options = target
    B = A.to(format, **options)
    assert B.problems() == []
    assert B.format == format
    return B


def fits(D, target):
    """Whether a format can hold the values (n:m takes few non-zeros a group)."""
    n, colon, m = target[0].partition(":")
    if not colon:
        return True
    D = np.asarray(D) != 0
    groups = np.add.reduceat(D, np.arange(0, D.shape[1], int(m)), axis=1) if D.shape[1] else D
    return groups.max(initial=0) <= int(n)


def in_every_format(A, targets=SPARSE_LINES):
    """The matrix in every format that can hold it, with the target's name."""
    D = dense(A)
    for target in targets:
        if fits(D, target):
            yield name_of(target), convert(A, target)


def kernels_for(A, X, **options):
    """Names of all kernels that can serve a product."""
    rows = sf.explain(A, X, **options).rows
    found = [row.kernel for row in rows if row.status != "refused"]
    assert found
    return found


def products(A, X, **options):
    """The product by every kernel that can serve it, as NumPy, with the kernel's name."""
    for kernel in kernels_for(A, X):
        yield kernel, host(sf.matmul(A, X, kernel=kernel, **options))
