"""What of the CuPy crossing can be held without CuPy; the rest is in the GPU suite."""

import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from sparseformats import BSR, CSR, NM
from sparseformats.convert.interop import from_cupy, to_cupy


@pytest.mark.parametrize("thing", [np.eye(2), sp.csr_array(np.eye(2)), "C"])
def test_what_is_not_cupyx(thing: Any) -> None:
    with pytest.raises(TypeError, match="cupyx") as error:
        from_cupy(thing)
    assert type(thing).__name__ in str(error.value)
    assert "{" not in str(error.value)


def csr(dtype: str) -> CSR:
    return CSR(np.ones(1, dtype), [0], [0, 1], (1, 1))


@pytest.mark.parametrize(
    ("A", "texts"),
    [
        (BSR(np.ones((1, 1, 1)), [0], [0, 1], (1, 1)), ("no bsr format", 'A.to("csr")')),
        (BSR(np.ones((1, 1, 1)), [0], [0, 1], (1, 1)).T, ("no bsr.T format", 'A.to("csr")')),
        (NM(np.ones((1, 1, 2)), [[[0, 1]]], (1, 4)), ("no 2:4 format", 'A.to("csr")')),
        (csr("int32"), ("int32", "float32")),
        (csr("float16"), ("float16", "complex128")),
        (csr("float32"), ("'cpu'", 'A.to_device("cuda", "cupy")')),
    ],
)
def test_what_cupy_cannot_hold(A: Any, texts: tuple[str, ...]) -> None:
    with pytest.raises(TypeError) as error:
        to_cupy(A)
    for text in texts:
        assert text in str(error.value)
    assert "{" not in str(error.value)


def test_importing_the_crossings_loads_no_library() -> None:
    import subprocess

    code = (
        "import sys, sparseformats.convert.interop, sparseformats.io\n"
        "heavy = {'scipy', 'torch', 'cupy', 'cupyx', 'ml_dtypes', 'array_api_compat'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "")
