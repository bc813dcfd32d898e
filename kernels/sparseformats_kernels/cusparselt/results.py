"""Which results the library writes itself, with what follows the sums: found out by trying.

What types it can write is known from others who use it, but not what a bias of 8-bit products is
of, nor that every device and version has kernels with scales of rows. So before a layer relies on
it, a small product with these very features is made once a process and compared, bit by bit, with
what float32 sums give when they are rounded once. What is refused or differs is not used; sums of
float32 and a second pass remain.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, Final, NamedTuple

import numpy as np

from sparseformats.dispatch.query import Query
from sparseformats_kernels.cusparselt.api import ORDER_COL
from sparseformats_kernels.cusparselt.finding import known_api
from sparseformats_kernels.cusparselt.handles import handle
from sparseformats_kernels.cusparselt.launching import Launch
from sparseformats_kernels.cusparselt.packing import Blob
from sparseformats_kernels.cusparselt.plans import DEFAULT, Problem
from sparseformats_kernels.cusparselt.state import State

__all__ = ["RIGHT", "Features", "features_of", "outcome", "refused", "told", "tried"]

RIGHT: Final = "right"
_M, _K, _N = 64, 128, 32
_KEPT = 1024


class Features(NamedTuple):
    """What a kernel of the library would have to do.

    Attributes
    ----------
    dtype, gives : str
        Of the operands, and of the result.
    bias : str or None
        Dtype of a bias as the library would read it; None without one.
    relu : bool
    vector : bool
        Each row of the result has a scale.
    """

    dtype: str
    gives: str
    bias: str | None = None
    relu: bool = False
    vector: bool = False


_Key = tuple[Any, ...]
_known: dict[_Key, str] = {}
_lock = Lock()


def features_of(query: Query) -> list[Features]:
    """What a layer's call asks for: a bias of the first dtype that will do, most exact first."""
    names = (query.epilogue or "").split("+")
    dtype, gives = str(query.a_dtype), str(query.out_dtype)
    plain = Features(dtype, gives, None, "relu" in names, query.scales is not None)
    if "bias" not in names:
        return [plain]
    # A bias comes in float32; in the result's dtype it is the same where it was given in that.
    given = ["float32"] if query.bias_dtype != gives else ["float32", gives]
    return [plain._replace(bias=name) for name in dict.fromkeys(given)]


def told(query: Query) -> str:
    """What is known of a call's result, for people; tries nothing."""
    api = known_api()
    if api is None:
        return "the library is asked once whether it writes the result itself"
    key = api.version, query.capability
    outcomes = [_known.get((*key, features)) for features in features_of(query)]
    outcomes += [why] if (why := _known.get((*key, *_sizes(query)))) else []
    if RIGHT in outcomes and why is None:
        return f"the library writes {query.out_dtype} itself"
    if outcomes[-1] is None:
        return f"a small product tells first whether the library writes {query.out_dtype} itself"
    return f"sums in float32, rounded in a second pass: {outcomes[-1]}"


def tried(state: State, query: Query) -> Features | None:
    """The features of a call that come out right; None where sums must be followed by a pass."""
    for features in features_of(query):
        key = (state.api.version, query.capability, features)
        with _lock:
            found = _known.get(key)
        if found is None:
            found = outcome(state, features)
            with _lock:
                _known[key] = found
        if found == RIGHT:
            return features
    return None


def refused(state: State, query: Query, why: str) -> None:
    """Remember that a product of a call's own sizes was refused, though a small one was right."""
    with _lock:
        while len(_known) >= _KEPT:
            _known.pop(next(iter(_known)))
        _known[state.api.version, query.capability, *_sizes(query)] = why


def _sizes(query: Query) -> _Key:
    return tuple(features_of(query)), query.m, query.k, query.n


def outcome(state: State, features: Features) -> str:
    """Make a small product: ``"right"``, or what the library does instead.

    Parameters
    ----------
    state : State
        Of any matrix: its device and library are asked.
    """
    try:
        y, exact = _product(state, features)
    except RuntimeError as error:
        return str(error)
    lib = state.lib
    wanted = lib.astype(lib.from_numpy(exact, state.device.place), features.gives)
    wanted = lib.astype(wanted, "float32")
    y = lib.astype(y, "float32")
    # As the tolerance of the records says: NaN may stand for an infinity, and nothing else may.
    endless = (wanted != wanted) | (lib.xp.abs(wanted) == float("inf"))
    wrong = lib.count_nonzero(~((y == wanted) | ((y != y) & endless)))
    if not wrong:
        return RIGHT
    return f"{wrong} of {exact.size} results of a small product are wrong"


def _product(state: State, features: Features) -> tuple[Any, Any]:
    """A product by the library in the result's dtype, and the float32 numbers to be rounded."""
    lib, place, device = state.lib, state.device.place, state.device
    D, X, scales, bias = _operands(features)
    with device.here():
        context = handle(state.api, device.index)
        A, x = (lib.astype(lib.from_numpy(each, place), features.dtype) for each in (D, X.T.copy()))
        blob = Blob(state.api, context, device, A, features.dtype, "float32")
        blob = blob.giving(features.gives, features.bias)
        mine = State(device, state.api, blob, D.shape, features.gives, state.device_name)
        # Twice the bytes that a bias should need: who reads another dtype reads nothing else.
        room = lib.zeros((2 * _M,), "float32", place)
        if features.bias is not None:
            made = lib.astype(lib.from_numpy(bias, place), features.bias)
            room = lib.concat([made, lib.zeros((3 * _M,), features.bias, place)])
        problem = Problem(_N, ORDER_COL, _K, ORDER_COL, _M)
        problem = problem._replace(relu=features.relu, vector=features.vector)
        where = lib.address(room) if features.bias is not None else 0
        plan = mine.make_plan(problem, DEFAULT, where)
        workspace = device.empty((max(1, plan.workspace),), "uint8")
        y = lib.full((_N, _M), 7.0, features.gives, place)
        launch = Launch(mine, plan, device.stream(), workspace, None, vector=features.vector)
        if features.vector:
            launch.scale(lib.from_numpy(scales, place), None, 1)
        launch(lib.address(x), lib.address(y), float(scales[0]), 0)
        device.settle()
    return y.mT, _exact(features, D, X, scales, bias)


def _operands(features: Features) -> tuple[Any, Any, Any, Any]:
    """Matrix, operand, scales and bias: every sum is exact in float32, and not in a half type.

    The last row and columns hold what leads beyond the largest number of a half type, and NaN.
    """
    rng = np.random.default_rng(5)
    D = np.zeros((_M, _K), np.float32)
    D[:, ::4], D[:, 1::4] = (rng.integers(1, 8, (_M, _K // 4)) * (-1.0) ** i for i in range(2))
    X = rng.integers(-7, 8, (_K, _N)).astype(np.float32)
    X[:, -1] = np.nan
    D[-1] = np.where(D[-1] != 0, 448, 0)
    X[:, -2] = 448
    X[:, -3] = -448
    scales = 1 + np.arange(_M, dtype=np.float32) / 64 if features.vector else np.full(_M, 0.75)
    bias = rng.integers(-(2**10), 2**10, _M) / np.float32(2**7)
    if features.bias == "bfloat16":
        bias = np.trunc(bias)  # which it holds up to 8 bits
    return D, X, scales.astype(np.float32), bias.astype(np.float32)


def _exact(features: Features, D: Any, X: Any, scales: Any, bias: Any) -> Any:
    with np.errstate(all="ignore"):
        found = (D.astype(np.float64) @ X.astype(np.float64)) * scales[:, None]
        found += bias[:, None] if features.bias is not None else 0
        found = np.where(found < 0, 0, found) if features.relu else found
        return found.astype(np.float32)
