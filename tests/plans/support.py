"""A kernel that counts what it is asked for, and plans a fresh cache for each test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import sparseformats as sf
from sparseformats import dispatch, reference
from sparseformats.dispatch import KernelRecord
from sparseformats.ops.facts import layout

COUNTS: Counter[str] = Counter()


class Spy:
    """A sound kernel on the reference, which counts its packs, binds and runs."""

    @staticmethod
    def pack(A: Any, query: Any) -> Any:
        COUNTS["pack"] += 1
        slots = reference.slots(A)
        return A.lib, (slots.transposed() if query.transposed else slots), query.out_dtype

    @staticmethod
    def bind(state: Any, query: Any) -> Any:
        COUNTS["bind"] += 1
        return lambda x, out, alpha, beta: Spy.run(state, x, out, alpha, beta)

    @staticmethod
    def run(state: Any, x: Any, out: Any, alpha: Any, beta: Any) -> Any:
        COUNTS["run"] += 1
        lib, slots, dtype = state
        old = None if out is None else lib.to_numpy(out)
        y = reference.multiply(slots, lib.to_numpy(x), dtype, alpha, beta, old).rounded()
        if out is None:
            return lib.from_numpy(y)
        out[...] = lib.from_numpy(y)
        return out


class ThreadSpy(Spy):
    """The same with states that threads must not share."""

    per_thread = True


class RigidSpy(Spy):
    """The same, bound to the facts of its query: a call of others is an error."""

    @staticmethod
    def bind(state: Any, query: Any) -> Any:
        lib = state[0]

        def run(x: Any, out: Any, alpha: Any, beta: Any) -> Any:
            assert tuple(x.shape) == (query.k, query.n)
            assert lib.dtype_name(x) == query.x_dtype
            assert layout(lib, x) == query.x_layout
            assert (None if out is None else layout(lib, out)) == query.out_layout
            assert (alpha == 1, beta == 0) == (query.alpha_one, query.beta_zero)
            return Spy.run(state, x, out, alpha, beta)

        return run


class BatchSpy(Spy):
    """The same, taking batches of more than two columns whole."""

    @staticmethod
    def bind_batch(state: Any, query: Any) -> Any:
        def run(x: Any, out: Any, alpha: Any, beta: Any) -> Any:
            assert x.shape[0] == query.batch
            COUNTS["batch"] += 1
            pieces = [Spy.run(state, x[i], None, alpha, 0) for i in range(x.shape[0])]
            y = state[0].xp.stack(pieces)
            if out is None:
                return y
            out[...] = y + beta * out if beta != 0 else y
            return out

        return run if query.n > 2 else None


class BucketSpy(Spy):
    """The same with a state for each bucket of columns."""

    @staticmethod
    def layout(query: Any) -> int:
        return dispatch.size_bucket(query.n)


def record(target: type = Spy, **options: Any) -> KernelRecord:
    """The record of a spy."""
    return KernelRecord(
        "spy",
        "matmul",
        dispatch.ANY,
        f"{__name__}:{target.__name__}",
        cost=lambda query: 0.0,
        **options,
    )


@contextmanager
def spying(target: type = Spy, **options: Any) -> Iterator[Counter[str]]:
    """Have only the spy registered; gives its counts."""
    COUNTS.clear()
    sf.clear_cache()
    with dispatch.temporary(record(target, **options), only=True):
        yield COUNTS


def sample(library: str = "numpy", format: str = "csr", m: int = 12, k: int = 8) -> Any:
    """A small matrix of whole numbers."""
    rng = np.random.default_rng(m * k)
    D = rng.integers(1, 9, (m, k)).astype(np.float64) * (rng.random((m, k)) < 0.4)
    D[:, ::4] = 0  # so that 2:4 can hold most, and the rest is cut
    D[:, 1::4] = 0
    options = {"bsr": {"blocksize": (3, 2)}, "blocked_ell": {"blocksize": (2, 2)}}
    A = sf.from_dense(D, format, **options.get(format, {}))
    return A.to_library(library)


def operand(library: str, shape: tuple[int, ...], dtype: str = "float64") -> Any:
    """Whole numbers."""
    x = np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(dtype)
    if library == "torch":
        import torch

        return torch.from_numpy(x)
    return x


def host(x: Any) -> Any:
    """As NumPy."""
    return np.asarray(x)
