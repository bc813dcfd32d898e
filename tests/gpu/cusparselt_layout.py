"""How cuSPARSELt lays out its blobs, learnt anew: ``python -m tests.gpu.cusparselt_layout``.

For a version or a device whose layout is not in `sparseformats.formats.blob24.LEARNT` yet. Matrices
that number their own values and groups are compressed by the library, and where each number is
found in the bytes tells the layout. What is printed for each dtype is the entry to write into the
table, and whether that layout decodes and encodes every blob, bit for bit, shape by shape.

``--save FILE`` keeps inputs and blobs, ``--read FILE`` learns from such a file without a device,
``--fixture FILE`` writes the blobs that tests without a device use. Exit status 1: a layout that
is in the table is wrong here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import sparseformats as sf
from sparseformats import _arrays
from sparseformats.errors import InvalidTensorError
from sparseformats.formats.blob24 import LEARNT, BlobLayout, decode, encode

Data = dict[str, Any]
Compress = Callable[[Any, str], Any]
"""From bits of a matrix (m, k) and the dtype they are of to the bytes of its blob."""

SHIFTS = {"float16": 7, "bfloat16": 7, "int8": 0, "float8_e4m3fn": 0}
"""How far a number of 1 to 100 is shifted to be the bits of a value: positive, finite."""
SHAPES = [
    *((32, 64), (64, 64), (128, 128), (64, 256), (256, 64), (256, 256), (96, 192), (160, 320)),
    *((160, 64), (1024, 2048)),
]
OTHERS = [(16, 64), (48, 64), (32, 32), (64, 96), (64, 80), (32, 16), (96, 160)]
"""Shapes for which `BlobLayout` makes no promise; what is found there is told."""
FIXTURES = [(32, 64), (96, 192)]
PATTERNS = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
_MANY = 1 << 16  # places of a matrix beyond which only random numbers are tried
_TORCH = _arrays.library("torch")


class Finding(NamedTuple):
    """What was learnt of one dtype.

    Attributes
    ----------
    bits : str or None
        Of `BlobLayout`; None where the codes do not lie in such a way.
    wrong : dict
        Shape to what is not as that layout has it; of `SHAPES` none should be here.
    others : dict
        The same of shapes in `OTHERS`, to what was found.
    """

    bits: str | None
    wrong: dict[str, str]
    others: dict[str, str]


def by_library(device: str) -> Compress:
    """Compression by torch's operator."""

    def compress(bits: Any, dtype: str) -> Any:
        x = torch.from_numpy(np.ascontiguousarray(bits)).to(device).view(getattr(torch, dtype))
        return torch._cslt_compress(x).reshape(-1).view(torch.uint8).cpu().numpy()

    return compress


# ---- matrices that tell where their parts are


def _inputs(shape: tuple[int, int]) -> Iterator[tuple[str, Any]]:
    """Whole numbers of 0 to 100 by name.

    ``p0`` to ``p5`` have all groups of one pattern, ``b0`` and on the first or the last pattern by
    a bit of the group's number: where codes lie, see `_derive`. ``v0`` to ``v2`` number the values
    in digits of base 100, for a person to look at where values lie otherwise than by row. All of
    them, and ``rand``, prove what was derived.
    """
    (m, k), groups = shape, (shape[0], shape[1] // 4)
    count = m * k // 4
    if m * k <= _MANY:
        number = np.arange(2 * count).reshape(*groups, 2)
        for digit in range(3):
            yield f"v{digit}", _placed(number // 100**digit % 100 + 1, (0, 1))
        for q, pattern in enumerate(PATTERNS):
            yield f"p{q}", _placed(np.full((*groups, 2), 5), pattern)
        index = np.arange(count).reshape(*groups, 1)
        for b in range(max(1, (count - 1).bit_length())):
            on = (index >> b & 1) * 5
            yield f"b{b}", _placed(np.concatenate([5 - on, 5 - on, on, on], 2), (0, 1, 2, 3))
    rng = np.random.default_rng(1)
    rank = rng.random((*groups, 4)).argsort(2)
    kept = rank < rng.integers(0, 3, (*groups, 1))
    yield "rand", np.where(kept, rng.integers(1, 100, kept.shape), 0).reshape(m, k)


def _placed(values: Any, columns: tuple[int, ...]) -> Any:
    found = np.zeros((*values.shape[:2], 4), np.int64)
    found[..., list(columns)] = values
    return found.reshape(len(found), -1)


def gather(compress: Compress, say: Callable[[str], Any] = print) -> Data:
    """All blobs, ``DTYPE/MxK/NAME``, and of random matrices the bits, ``DTYPE/MxK/rand_in``."""
    data: Data = {}
    for dtype, shift in SHIFTS.items():
        for m, k in [*SHAPES, *OTHERS]:
            for name, numbers in _inputs((m, k)):
                bits = numbers.astype(np.int16 if shift else np.int8) << shift
                key = f"{dtype}/{m}x{k}/{name}"
                try:
                    data[key] = compress(bits, dtype)
                except RuntimeError as error:
                    say(f"{key} was refused: {str(error).splitlines()[0]}")
                    break
                if name == "rand":
                    data[f"{key}_in"] = bits
    return data


# ---- what they tell


def learn(data: Data, dtype: str) -> Finding:
    """What the blobs of one dtype say."""
    try:
        bits = _derive(data, dtype)
    except ValueError as error:
        return Finding(None, {"64x64": str(error)}, {})
    layout, wrong, others = BlobLayout(bits, "here"), {}, {}
    for key in data:
        own, size, name = key.split("/")
        if own != dtype or name != "rand":
            continue
        m, k = (int(part) for part in size.split("x"))
        if layout.unfit((m, k)):
            others[size] = _of_another_shape(data, dtype, (m, k), layout)
        elif fault := _fault(data, dtype, (m, k), layout):
            wrong[size] = fault
    return Finding(bits, wrong, others)


def _derive(data: Data, dtype: str) -> str:
    """The bits of a code's place, from blobs of a single tile whose groups are numbered bit by bit.

    Raises
    ------
    ValueError
        Codes that do not lie as a permutation of bits would have them.
    """
    where = f"{dtype}/64x64"
    kept = 64 * 32 * (2 if SHIFTS[dtype] else 1)
    codes = {key: _halves(data[key][kept:]) for key in data if key.startswith(f"{where}/")}
    for q, pattern in enumerate(PATTERNS):
        if not (codes[f"{where}/p{q}"] == (pattern[0] | pattern[1] << 2)).all():
            raise ValueError(f"groups with non-zeros at {pattern} have other codes")
    number = sum((codes[f"{where}/b{b}"] == 0b1110).astype(int) << b for b in range(10))
    if sorted(number.tolist()) != list(range(1024)):
        raise ValueError("the codes of 1,024 groups are not there once each")
    names = {1 << i: f"c{i}" for i in range(4)} | {16 << i: f"r{i}" for i in range(6)}
    steps = [int(number[1 << b]) for b in range(10)]
    if number[0] or not set(steps) <= set(names):
        raise ValueError("the place of a code is not made of bits of its row and group")
    linear = [sum(step for b, step in enumerate(steps) if p >> b & 1) for p in range(1024)]
    if number.tolist() != linear:
        raise ValueError("the bits of a code's place depend on each other")
    return " ".join(names[step] for step in steps)


def _halves(raw: Any) -> Any:
    return np.stack([raw & 15, raw >> 4], -1).reshape(-1)


def _fault(data: Data, dtype: str, shape: tuple[int, int], layout: BlobLayout) -> str:
    """What the layout gets wrong for a shape; empty where it reads and makes each blob."""
    place = f"{dtype}/{shape[0]}x{shape[1]}/"
    for key in data:
        if not key.startswith(place) or key.endswith("_in"):
            continue
        blob = torch.from_numpy(data[key].copy())
        try:
            parts = decode(key, _TORCH, layout, _values(blob, dtype), shape)
        except (InvalidTensorError, RuntimeError) as error:
            return f"{key} cannot be read: {str(error).splitlines()[0]}"
        A = sf.NM(*parts, shape)
        made = encode(layout, A)
        if not torch.equal(made, blob[: len(made)]):
            return f"{key} is made otherwise"
        if key.endswith("/rand"):
            dense = _values(torch.from_numpy(data[f"{key}_in"].copy()), dtype)
            if not sf.same(A, sf.from_dense(dense, "2:4"), level="buffers"):
                return f"{key} is read otherwise"
            if not len(made) <= len(blob) < len(made) + shape[0] * A.data.itemsize:
                return f"{key} has {len(blob)} bytes, not {len(made)}"
    return ""


def _of_another_shape(data: Data, dtype: str, shape: tuple[int, int], layout: BlobLayout) -> str:
    """Whether codes lie as those of a matrix that was filled up to whole tiles."""
    (m, k), key = shape, f"{dtype}/{shape[0]}x{shape[1]}/rand"
    blob, bits = data[key], data[f"{key}_in"]
    wide = np.zeros((-(-m // 64) * 64, -(-k // 64) * 64), bits.dtype)
    wide[:m, :k] = bits
    A = sf.from_dense(_values(torch.from_numpy(wide), dtype), "2:4")
    codes = encode(layout, A).numpy()[wide.nbytes // 2 :]
    kept = bits.nbytes // 2
    same = np.array_equal(blob[kept : kept + len(codes)], codes)
    return f"{len(blob)} bytes; codes as of {wide.shape} behind values by row: {same}"


def _values(raw: Any, dtype: str) -> Any:
    return raw.view(getattr(torch, dtype))


def fixture(data: Data) -> Data:
    """What tests without a device read, see ``tests/interop/blobs.py``."""
    found: Data = {}
    for m, k in FIXTURES:
        found[f"in/{m}x{k}"] = data[f"int8/{m}x{k}/rand_in"].astype(np.uint8)
        found |= {f"{dtype}/{m}x{k}": data[f"{dtype}/{m}x{k}/rand"] for dtype in SHIFTS}
    return found


# ---- values that a layout must not change


def kept_values(compress: Compress, dtype: str) -> dict[str, str]:
    """Bits of values that came back changed, as ``{what went in: what came out}``.

    Each stands as the first non-zero of a group with a one behind it.
    """
    wide, one = {
        "float16": ("uint16", 0x3C00),
        "bfloat16": ("uint16", 0x3F80),
        "int8": ("uint8", 1),
        "float8_e4m3fn": ("uint8", 0x38),
        "float32": ("uint32", 0x3F800000),
    }[dtype]
    size = 8 * np.dtype(wide).itemsize
    every = np.arange(1 << min(size, 16), dtype=np.int64)
    # Of 32 bits the upper half in all ways, the lower half mixed.
    every = every if size <= 16 else every << 16 | every * 40503 % (1 << 16)
    m, k = 64, 64 * -(-len(every) // 1024)
    groups = np.zeros((m * k // 4, 4), wide)
    groups[: len(every), 0] = every
    groups[:, 3] = one
    blob = compress(groups.reshape(m, k).view(wide[1:]), dtype)
    found = blob[: groups.nbytes // 2].view(wide).reshape(-1, 2)[: len(every), 0]
    changed = np.flatnonzero(found != every)
    return {f"{every[i]:#x}": f"{int(found[i]):#x}" for i in changed}


def main(arguments: list[str] | None = None) -> int:
    """Learn all dtypes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--save", type=Path, help="keep inputs and blobs in this .npz")
    parser.add_argument("--read", type=Path, help="learn from such a file; needs no device")
    parser.add_argument("--fixture", type=Path, help="write blobs for tests without a device")
    options = parser.parse_args(arguments)
    version: int | str = "?"
    capability: Any = ("?", "?")
    if options.read is None:
        torch.cuda.set_device(options.device)
        version = torch.backends.cusparselt.version()
        capability = torch.cuda.get_device_capability(options.device)
        compress = by_library(options.device)
        data = gather(compress)
        for dtype in (*SHIFTS, "float32"):
            changed = kept_values(compress, dtype)
            some = dict(list(changed.items())[:: max(1, len(changed) // 12)])
            print(f"{dtype}: {len(changed)} values come back changed {some or ''}")
    else:
        with np.load(options.read, allow_pickle=False) as file:
            data = dict(file)
    if options.save is not None:
        np.savez_compressed(options.save, **data)
    if options.fixture is not None:
        np.savez_compressed(options.fixture, **fixture(data))
    return tell({dtype: learn(data, dtype) for dtype in SHIFTS}, version, capability)


def tell(findings: dict[str, Finding], version: Any, capability: Any) -> int:
    """Print what was learnt; the exit status says whether the table is wrong."""
    status = 0
    for dtype, found in findings.items():
        known = LEARNT.get((version, capability, dtype))
        right = found.bits is not None and not found.wrong
        agrees = known is None or (right and known.bits == found.bits)
        status |= not agrees
        entry = f'({version}, {capability}, "{dtype}"): BlobLayout("{found.bits}", ...)'
        print(entry if right else f"{dtype}: NOT UNDERSTOOD {found.bits or ''} {found.wrong}")
        words = "not in the table" if known is None else "as the table" if agrees else "TABLE WRONG"
        print(f"  {words}; other shapes: {found.others}")
    return status


if __name__ == "__main__":
    sys.exit(main())
